//! One terminal's record.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use shellward_protocol::message::ExitStatus;
use tokio::sync::Notify;

use super::card::Card;
use super::{Call, ConnectionId, Pace, Running};
use crate::ahp::TerminalDocument;
use crate::limits::{WAITING_BYTES, WAITING_REQUESTS};
use crate::outbox::Outbox;
use crate::worker_link::LinkQueue;

/// Where a terminal is in its life.
#[derive(Debug)]
pub(super) enum Phase {
    /// No shell yet; calls about it wait. `creator` is answered at the end.
    Starting { creator: Call },
    /// A new worker takes the place of the one before; calls about it wait. `asked_by` is answered
    /// at the end. It is on the list (and its old worker is heard to the end) if its shell ran.
    Restarting {
        asked_by: Option<Call>,
        is_listed: bool,
    },
    /// It can be used. Its shell may have exited.
    Live,
    /// The same, exited, and it is given a worker that keeps what was shown; calls about it wait.
    Keeping,
    /// Told to end; calls about it wait. `disposer` is answered at the end.
    Ending { disposer: Option<Call> },
}

/// What a terminal's link task needs without the core's lock.
#[derive(Debug)]
pub struct Shared {
    /// The channel as a JSON string.
    pub channel_json: String,
    /// Woken when a paused terminal may be read again.
    pub resume: Arc<Notify>,
    /// Whether anybody is to be sent the output.
    recorded: AtomicBool,
    /// Grows when a subscriber comes or goes.
    readers: AtomicU64,
}

impl Shared {
    pub(crate) fn new(uri: &str) -> Self {
        Self {
            channel_json: crate::ahp::rpc::to_json(&uri),
            resume: Arc::new(Notify::new()),
            recorded: AtomicBool::new(false),
            readers: AtomicU64::new(0),
        }
    }

    /// Differs from what it was before if a subscriber has come or gone.
    #[must_use]
    pub fn readers(&self) -> u64 {
        self.readers.load(Ordering::Relaxed)
    }

    /// A subscriber has come or gone: what waits for readers looks again.
    pub(crate) fn readers_changed(&self) {
        self.readers.fetch_add(1, Ordering::Relaxed);
        self.resume.notify_one();
    }

    /// Whether output should be rendered before it is handed to the core. Only a hint.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.recorded.load(Ordering::Relaxed)
    }
}

/// How a worker ended that had not announced its shell's exit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    /// What happened, as a clause: `was killed by SIGKILL`.
    pub words: String,
    /// How its shell counts as ended by that: by the signal that was the cause, else [`LOST`].
    pub status: ExitStatus,
}

impl Gone {
    /// In these words, and by this signal if one was the cause.
    pub fn by(words: String, signal: Option<i32>) -> Self {
        let signal = signal.and_then(|number| u8::try_from(number).ok());
        let status = signal.map_or(LOST, ExitStatus::Signal);
        Self { words, status }
    }
}

/// How a shell ended of which nobody knows.
pub const LOST: ExitStatus = ExitStatus::Code(128);

/// A terminal that was taken over waits for its readers to come back.
#[derive(Debug)]
pub(super) struct Hold {
    pub until: Instant,
    /// How many bytes of output it does not wait with.
    pub bytes: usize,
}

/// The command that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Open {
    pub id: String,
    pub since: Instant,
}

/// The newest command, told apart or not from those before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Newest {
    None,
    Running(Open),
    Finished { id: String, exit_code: Option<i64> },
}

/// The commands of one terminal. What they printed is in its document, as far as it is kept.
#[derive(Debug)]
pub(super) struct Commands {
    started: u64,
    pub newest: Newest,
    /// Whether Enter was typed at a prompt and no command has started since: an empty line, a
    /// syntax error, or the shell wants more. The newest command is not the answer to it then.
    pub line_typed: bool,
}

impl Commands {
    /// Goes on after `started` commands.
    pub fn resume(&mut self, started: u64, newest: Newest) {
        self.started = started;
        self.newest = newest;
    }

    /// How many have started.
    pub fn count(&self) -> u64 {
        self.started
    }

    /// Names a command that starts.
    pub fn start(&mut self, now: Instant) -> String {
        self.started += 1;
        self.line_typed = false;
        let id = self.started.to_string();
        self.newest = Newest::Running(Open {
            id: id.clone(),
            since: now,
        });
        id
    }

    /// Something was typed. What is typed into a running command is its own.
    pub fn typed(&mut self, data: &str) {
        if !matches!(self.newest, Newest::Running(_)) && data.contains(['\r', '\n']) {
            self.line_typed = true;
        }
    }

    /// Ends the command that is open, if one is.
    pub fn finish(&mut self, exit_code: Option<i64>) -> Option<Open> {
        let Newest::Running(open) = &self.newest else {
            return None;
        };
        let open = open.clone();
        self.newest = Newest::Finished {
            id: open.id.clone(),
            exit_code,
        };
        Some(open)
    }
}

/// What is counted about one terminal, for operators.
#[derive(Debug)]
pub(super) struct Figures {
    /// When its creation was accepted.
    accepted: Instant,
    running_since: Option<Instant>,
    pub output_bytes: u64,
    pub input_bytes: u64,
    /// Of these, what came before its present worker, which does not know of it.
    pub before: (u64, u64),
    /// When something was typed that no output has followed yet; of several, the first.
    typed_at: Option<Instant>,
    /// What its worker has in RAM, in bytes, when that was looked at last.
    pub memory: Option<u64>,
    /// Why it sits on pipes, if it does.
    pub pty_reason: Option<String>,
}

impl Figures {
    fn new(now: Instant) -> Self {
        Self {
            accepted: now,
            running_since: None,
            output_bytes: 0,
            input_bytes: 0,
            before: (0, 0),
            typed_at: None,
            memory: None,
            pty_reason: None,
        }
    }

    /// Its shell runs; how long that took since it was asked for.
    pub fn runs(&mut self, now: Instant) -> Duration {
        self.running_since = Some(now);
        now.saturating_duration_since(self.accepted)
    }

    /// It is to have another worker.
    pub fn changes_worker(&mut self) {
        self.before = (self.output_bytes, self.input_bytes);
    }

    /// Its shell is to be started again.
    pub fn starts_again(&mut self, now: Instant) {
        self.accepted = now;
        self.running_since = None;
    }

    /// For how long its shell has run until `end`.
    pub fn uptime(&self, end: Instant) -> Option<Duration> {
        Some(end.saturating_duration_since(self.running_since?))
    }

    pub fn typed(&mut self, bytes: u64, now: Instant) {
        self.input_bytes += bytes;
        self.typed_at.get_or_insert(now);
    }

    /// It has written; how long it took to answer, if something was typed.
    pub fn wrote(&mut self, bytes: u64, now: Instant) -> Option<Duration> {
        self.output_bytes += bytes;
        let typed_at = self.typed_at.take()?;
        Some(now.saturating_duration_since(typed_at))
    }
}

#[derive(Debug)]
pub(super) struct Terminal {
    pub id: String,
    pub uri: String,
    pub phase: Phase,
    /// In the order they came in.
    pub waiting: VecDeque<Call>,
    waiting_bytes: usize,
    pub document: TerminalDocument,
    /// What it runs.
    pub shell: PathBuf,
    /// Whether a client chose its title, so that no program does.
    pub named: bool,
    pub commands: Commands,
    pub subscribers: Vec<(ConnectionId, Arc<Outbox>)>,
    pub shared: Arc<Shared>,
    /// Until when output is recorded without subscribers.
    record_until: Option<Instant>,
    /// The last `serverSeq` that stood for output nobody was sent.
    pub unrecorded_seq: u64,
    /// Present while the worker lives.
    pub link: Option<Arc<LinkQueue>>,
    pub worker_pid: Option<u32>,
    pub shell_pid: Option<u32>,
    pub exited_at: Option<Instant>,
    /// How its shell ended.
    pub end: Option<ExitStatus>,
    /// When it was given a worker that keeps what was shown.
    pub kept_at: Option<Instant>,
    /// Whether it was its worker that ended, not its shell.
    pub is_crashed: bool,
    /// Whether its worker was stopped and has not gone on.
    pub is_unresponsive: bool,
    /// How often its shell was started again.
    pub restarts: u32,
    /// When its worker crashed lately and its shell was started again for it.
    pub crashes: VecDeque<Instant>,
    /// The place in the worker's stream up to which its document tells.
    pub place: u64,
    pub hold: Option<Hold>,
    /// When it was created, as its card and operators are told; kept as it was written.
    pub created_at: String,
    /// The same, to be compared: the text has as many digits of a second as it needs.
    pub created: Timestamp,
    pub figures: Figures,
}

impl Terminal {
    pub fn new(
        id: String,
        uri: String,
        shell: PathBuf,
        phase: Phase,
        document: TerminalDocument,
        now: Instant,
    ) -> Self {
        let created = Timestamp::now();
        Self {
            id,
            phase,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            document,
            shell,
            named: false,
            commands: Commands {
                started: 0,
                newest: Newest::None,
                line_typed: false,
            },
            subscribers: Vec::new(),
            shared: Arc::new(Shared::new(&uri)),
            record_until: None,
            unrecorded_seq: 0,
            link: None,
            worker_pid: None,
            shell_pid: None,
            exited_at: None,
            end: None,
            kept_at: None,
            is_crashed: false,
            is_unresponsive: false,
            restarts: 0,
            crashes: VecDeque::new(),
            place: 0,
            hold: None,
            created_at: created.to_string(),
            created,
            figures: Figures::new(now),
            uri,
        }
    }

    /// Makes `call` wait for the end of this phase; gives it back when too much waits already.
    pub fn wait(&mut self, call: Call) -> Result<(), Call> {
        let bytes = self.waiting_bytes + call.params.len();
        if self.waiting.len() >= WAITING_REQUESTS || bytes > WAITING_BYTES {
            return Err(call);
        }
        self.waiting_bytes = bytes;
        self.waiting.push_back(call);
        Ok(())
    }

    /// Whether output goes to anybody, now or through `reconnect`.
    pub fn records(&mut self, now: Instant) -> bool {
        let records =
            !self.subscribers.is_empty() || self.record_until.is_some_and(|end| now < end);
        self.shared.recorded.store(records, Ordering::Relaxed);
        records
    }

    pub fn add_subscriber(&mut self, connection: ConnectionId, outbox: &Arc<Outbox>) -> bool {
        self.shared.recorded.store(true, Ordering::Relaxed);
        if self
            .subscribers
            .iter()
            .any(|(known, _)| *known == connection)
        {
            return false;
        }
        self.subscribers.push((connection, Arc::clone(outbox)));
        self.shared.readers_changed();
        self.end_hold();
        self.tell_watched();
        true
    }

    /// Goes on without waiting for readers any longer.
    pub fn end_hold(&mut self) {
        if self.hold.take().is_some() {
            self.shared.resume.notify_one();
        }
    }

    /// Its worker is there: gives the link to it.
    pub fn linked(&mut self) -> Running {
        let link = Arc::new(LinkQueue::default());
        if !self.subscribers.is_empty() {
            link.watch(true);
        }
        self.link = Some(Arc::clone(&link));
        Running {
            link,
            shared: Arc::clone(&self.shared),
        }
    }

    /// Tells the worker whether somebody reads, where that may have changed.
    pub fn tell_watched(&self) {
        if let Some(link) = &self.link
            && self.subscribers.len() <= 1
        {
            link.watch(!self.subscribers.is_empty());
        }
    }

    /// Whether it is on the list of terminals and can be subscribed to.
    pub fn is_listed(&self) -> bool {
        matches!(
            self.phase,
            Phase::Live
                | Phase::Keeping
                | Phase::Restarting {
                    is_listed: true,
                    ..
                }
        )
    }

    /// Notes for the next supervisor what has changed.
    pub fn note(&self) {
        if let Some(link) = &self.link {
            link.card(Card::of(self));
        }
    }

    /// Removes a subscriber; `lost` means that it may come back through `reconnect`.
    pub fn remove_subscriber(&mut self, connection: ConnectionId, lost: Option<Instant>) -> bool {
        let before = self.subscribers.len();
        self.subscribers.retain(|(known, _)| *known != connection);
        let removed = self.subscribers.len() < before;
        if removed {
            if let Some(now) = lost {
                self.record_until = Some(now + crate::limits::RECORD_AFTER_LOSS);
            }
            // The terminal may have been paused for the one who left.
            self.shared.readers_changed();
            self.tell_watched();
        }
        removed
    }

    /// Whether every subscriber is far behind; then each will wake the terminal. Or whether it waits
    /// for its readers to come back; the first one, or the end of its patience, will wake it.
    pub fn must_pause(&self) -> bool {
        if let Some(hold) = &self.hold {
            return hold.bytes == 0;
        }
        let pause = !self.subscribers.is_empty()
            && self
                .subscribers
                .iter()
                .all(|(_, outbox)| outbox.is_behind());
        if pause {
            for (_, outbox) in &self.subscribers {
                outbox.wake_when_caught_up(&self.shared.resume);
            }
        }
        pause
    }

    /// Whether its worker may be read further.
    pub fn pace(&self) -> Pace {
        if self.must_pause() {
            Pace::Pause
        } else {
            Pace::Go
        }
    }

    /// When this terminal is to be forgotten, if nothing changes.
    pub fn forget_at(&self, keep_exited: Duration) -> Option<Instant> {
        let held = matches!(self.document.claim(), crate::ahp::Claim::Session { .. });
        let idle = matches!(self.phase, Phase::Live) && self.subscribers.is_empty() && !held;
        if idle {
            self.exited_at
                .and_then(|exited| exited.checked_add(keep_exited))
        } else {
            None
        }
    }
}
