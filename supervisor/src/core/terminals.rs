//! Terminals: how they start, what their workers report, how they end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use shellward_protocol::message::{Cut, ExitStatus, Started};

use super::card::Card;
use super::{Call, Core, Effect, Gone, Phase, Shared, StartPlan, Terminal, TerminalKey};
use crate::ahp::envelope::OutputEnvelope;
use crate::ahp::params::CreateTerminal;
use crate::ahp::{HostAction, RpcError, TerminalDocument, names};
use crate::limits::{TERMINALS, TERMINATE_GRACE_MS};
use crate::outbox::Mark;
use crate::signals;
use crate::worker_link::LinkQueue;

/// Whether a terminal's worker may be read further.
#[derive(Debug, PartialEq, Eq)]
pub enum Pace {
    /// Yes.
    Go,
    /// Not before [`Shared::resume`]; then ask again.
    Pause,
}

/// What a terminal's link task is given when its shell runs.
#[derive(Debug)]
pub struct Running {
    /// What to send to the worker.
    pub link: Arc<LinkQueue>,
    /// What to know without the lock.
    pub shared: Arc<Shared>,
}

impl Core {
    pub(super) fn create_terminal(
        &mut self,
        call: &Call,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) -> Result<Option<String>, RpcError> {
        let client_id = self
            .client_id(call.connection)
            .unwrap_or_default()
            .to_owned();
        let params = CreateTerminal::parse(&call.params, &client_id)?;
        if self.by_uri.contains_key(&params.channel) {
            return Err(RpcError::already_exists(
                "a terminal has this URI already; choose another or dispose it first",
            ));
        }
        if self.shutting_down {
            return Err(RpcError::internal("the host is shutting down"));
        }
        if self.terminals.len() >= TERMINALS {
            return Err(RpcError::internal(format!(
                "this host has {TERMINALS} terminals, the most it keeps; dispose some first"
            )));
        }
        let id = self.fresh_id()?;
        let shell = std::path::PathBuf::from(self.default_shell(call.connection));
        let cwd = params
            .cwd
            .unwrap_or_else(|| self.settings.directory.clone());
        let named = params.name.is_some();
        let title = params.name.unwrap_or_else(|| {
            shell
                .file_name()
                .and_then(|name| names::clean_title(&name.to_string_lossy()))
                .unwrap_or_else(|| "shell".to_owned())
        });
        let size = params.size;
        let document = TerminalDocument::new(
            title,
            params.claim,
            names::directory_to_uri(&cwd),
            params.size,
            true,
        );
        self.next_key += 1;
        let key = TerminalKey(self.next_key);
        let creator = call.clone();
        self.by_uri.insert(params.channel.clone(), key);
        let phase = Phase::Starting { creator };
        let mut terminal = Terminal::new(
            id.clone(),
            params.channel,
            shell.clone(),
            phase,
            document,
            now,
        );
        terminal.named = named;
        let card = Card::of(&terminal);
        self.terminals.insert(key, terminal);
        tracing::info!(connection = call.connection.0, terminal = %id, "a terminal is created");
        effects.push(Effect::Start(StartPlan {
            key,
            id,
            shell,
            cwd,
            size,
            card,
            again: None,
            ended: None,
        }));
        Ok(None)
    }

    /// Eight letters and digits that name no other terminal of this host.
    fn fresh_id(&self) -> Result<String, RpcError> {
        const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
        loop {
            let mut random = [0_u8; 8];
            getrandom::fill(&mut random)
                .map_err(|error| RpcError::internal(format!("no random numbers: {error}")))?;
            let id: String = random
                .iter()
                .map(|byte| char::from(ALPHABET[usize::from(byte % 32)]))
                .collect();
            if !self.terminals.values().any(|terminal| terminal.id == id) {
                return Ok(id);
            }
        }
    }

    /// A terminal's worker process exists.
    pub fn worker_exists(&mut self, key: TerminalKey, pid: u32) {
        if let Some(terminal) = self.terminals.get_mut(&key) {
            terminal.worker_pid = Some(pid);
            self.metrics.worker_starts.one();
        }
    }

    /// A terminal's shell runs.
    pub fn started(
        &mut self,
        key: TerminalKey,
        started: Started,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) -> Option<Running> {
        let terminal = self.terminals.get_mut(&key)?;
        if matches!(terminal.phase, Phase::Keeping) {
            return self.kept(key, now, effects);
        }
        terminal.document.set_pty(started.is_pty);
        terminal.shell_pid = Some(started.shell_pid);
        self.metrics.start.observe(terminal.figures.runs(now));
        if !started.is_pty {
            let probe = &self.settings.about["probe"]["sentence"];
            terminal.figures.pty_reason = probe.as_str().map(str::to_owned);
        }
        let running = terminal.linked();
        let asked_by = match std::mem::replace(&mut terminal.phase, Phase::Live) {
            Phase::Starting { creator } => Some(creator),
            Phase::Restarting { asked_by, .. } => asked_by,
            Phase::Live | Phase::Keeping | Phase::Ending { .. } => None,
        };
        self.root_list_changed();
        if let Some(asked_by) = asked_by {
            self.answer(&asked_by, Ok(Some("null".to_owned())));
        }
        self.run_waiting(key, now, effects);
        if self.shutting_down {
            self.end(key, None, effects);
        }
        Some(running)
    }

    /// A terminal has no shell and never will.
    pub fn start_failed(
        &mut self,
        key: TerminalKey,
        reason: &str,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        self.metrics.starts_failed.one();
        match self.terminals.get(&key).map(|terminal| &terminal.phase) {
            Some(Phase::Restarting { .. }) => self.restart_failed(key, reason, now, effects),
            Some(Phase::Keeping) => self.keep_failed(key, reason, now, effects),
            _ => self.remove(key, Err(RpcError::internal(reason)), now, effects),
        }
    }

    /// Output of a terminal. `rendered` is present if [`Shared::is_recorded`] said so.
    pub fn output(
        &mut self,
        key: TerminalKey,
        text: &str,
        cuts: &[Cut],
        rendered: Option<OutputEnvelope>,
        now: Instant,
    ) -> Pace {
        let seq = self.next_seq();
        let Some(terminal) = self.terminals.get_mut(&key) else {
            return Pace::Go;
        };
        if !terminal.is_listed() {
            return Pace::Go;
        }
        terminal.document.append(text, cuts);
        if let Some(hold) = &mut terminal.hold {
            hold.bytes = hold.bytes.saturating_sub(text.len());
        }
        let bytes = text.len() as u64;
        self.metrics.output_bytes.add(bytes);
        if let Some(time) = terminal.figures.wrote(bytes, now) {
            self.metrics.echo.observe(time);
        }
        if !terminal.records(now) {
            terminal.unrecorded_seq = seq;
            return terminal.pace();
        }
        let envelope =
            rendered.unwrap_or_else(|| OutputEnvelope::new(&terminal.shared.channel_json, text));
        let output = envelope.finish(seq);
        let text = output.text.clone();
        self.broadcast(key, seq, text, |outbox| outbox.push_output(output.clone()))
    }

    /// A terminal's worker was heard up to this place of its stream.
    pub fn heard(&mut self, key: TerminalKey, place: u64) {
        if let Some(terminal) = self.terminals.get_mut(&key) {
            terminal.place = place;
        }
    }

    /// How far each subscriber of a terminal has been sent, to be looked at later; empty if there is
    /// none. Absent while it waits for those who may still come back.
    #[must_use]
    pub fn marks(&self, key: TerminalKey) -> Option<Vec<Mark>> {
        let Some(terminal) = self.terminals.get(&key) else {
            return Some(Vec::new());
        };
        let subscribers = terminal.subscribers.iter();
        (terminal.hold.is_none()).then(|| subscribers.map(|(_, outbox)| outbox.mark()).collect())
    }

    /// Whether a paused terminal may go on.
    #[must_use]
    pub fn pace(&self, key: TerminalKey) -> Pace {
        match self.terminals.get(&key) {
            Some(terminal) if terminal.is_listed() => terminal.pace(),
            _ => Pace::Go,
        }
    }

    /// A terminal's shell ended and its output has drained.
    pub fn exited(
        &mut self,
        key: TerminalKey,
        status: ExitStatus,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let (code, signal) = match status {
            ExitStatus::Code(code) => (i64::from(code), None),
            ExitStatus::Signal(number) => (128, Some(signals::name(i32::from(number)))),
        };
        let Some(terminal) = self.terminals.get_mut(&key) else {
            return;
        };
        if terminal.exited_at.is_some() || !matches!(terminal.phase, Phase::Live) {
            return;
        }
        terminal.exited_at = Some(now);
        terminal.end = Some(status);
        self.close_command(key, now);
        self.emit(key, &HostAction::exited(code, signal), None, None);
        self.root_list_changed();
        effects.push(Effect::Reschedule);
    }

    /// A terminal's worker is gone. `gone` is absent if it left as it should.
    pub fn worker_gone(
        &mut self,
        key: TerminalKey,
        gone: Option<&Gone>,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let Some(terminal) = self.terminals.get_mut(&key) else {
            return;
        };
        let lives = matches!(terminal.phase, Phase::Live) && terminal.exited_at.is_none();
        if gone.is_some() || lives {
            self.metrics.worker_crashes.one();
        }
        if let Some(link) = terminal.link.take() {
            link.close();
        }
        terminal.worker_pid = None;
        terminal.shell_pid = None;
        terminal.is_unresponsive = false;
        let exited = terminal.exited_at.is_some();
        match terminal.phase {
            Phase::Ending { .. } => {
                self.remove(key, Ok(Some("null".to_owned())), now, effects);
            }
            Phase::Starting { .. } => {
                let words = gone.map_or("left", |gone| &gone.words);
                self.start_failed(
                    key,
                    &format!("the worker {words} before the shell ran"),
                    now,
                    effects,
                );
            }
            Phase::Restarting { .. } => self.start_again(key, Duration::ZERO, now, effects),
            Phase::Keeping => {}
            Phase::Live if exited => self.keep(key, now, effects),
            Phase::Live => {
                let gone = gone
                    .cloned()
                    .unwrap_or_else(|| Gone::by("left without a word".to_owned(), None));
                self.crashed(key, &gone, now, effects);
            }
        }
    }

    pub(super) fn dispose_terminal(
        &mut self,
        call: &Call,
        uri: &str,
        effects: &mut Vec<Effect>,
    ) -> Result<Option<String>, RpcError> {
        let key = self
            .live(uri)
            .ok_or_else(|| RpcError::not_found("there is no such terminal"))?;
        if let Some(terminal) = self.terminals.get(&key) {
            tracing::info!(connection = call.connection.0, terminal = %terminal.id, "a terminal is disposed of");
        }
        if self.end(key, Some(call), effects) {
            Ok(Some("null".to_owned()))
        } else {
            Ok(None)
        }
    }

    /// Takes a terminal off the list and ends what runs in it. True if nothing runs, so that it is
    /// gone already; otherwise `disposer` is answered when it is.
    pub(super) fn end(
        &mut self,
        key: TerminalKey,
        disposer: Option<&Call>,
        effects: &mut Vec<Effect>,
    ) -> bool {
        self.drop_subscribers(key);
        let Some(terminal) = self.terminals.get_mut(&key) else {
            return true;
        };
        terminal.end_hold();
        let done = match &terminal.link {
            Some(link) => {
                link.terminate(TERMINATE_GRACE_MS);
                terminal.phase = Phase::Ending {
                    disposer: disposer.cloned(),
                };
                effects.push(Effect::WatchEnd(key));
                false
            }
            None => {
                let uri = terminal.uri.clone();
                self.terminals.remove(&key);
                self.by_uri.remove(&uri);
                true
            }
        };
        self.root_list_changed();
        done
    }

    /// The terminal is taken off the list, and with it its stream ends.
    pub(super) fn drop_subscribers(&mut self, key: TerminalKey) {
        let Some(terminal) = self.terminals.get_mut(&key) else {
            return;
        };
        for (connection, _) in std::mem::take(&mut terminal.subscribers) {
            if let Some(connection) = self.connections.get_mut(&connection) {
                connection.subscriptions = connection.subscriptions.saturating_sub(1);
            }
        }
        terminal.shared.readers_changed();
    }

    /// Ends every terminal; true if none is left.
    pub fn end_all(&mut self, effects: &mut Vec<Effect>) -> bool {
        self.shutting_down = true;
        let live: Vec<TerminalKey> = self
            .terminals
            .iter()
            .filter(|(_, terminal)| matches!(terminal.phase, Phase::Live))
            .map(|(key, _)| *key)
            .collect();
        for key in live {
            self.end(key, None, effects);
        }
        self.terminals.is_empty()
    }

    /// Does what is due; when to look again.
    pub fn due(&mut self, now: Instant, effects: &mut Vec<Effect>) -> Option<Instant> {
        let forget = self.forget_exited(now, effects);
        let titles = self.titles_due(now);
        let holds = self.end_holds(now);
        self.returning_until = self.returning_until.filter(|until| now < *until);
        [forget, titles, holds, self.returning_until]
            .into_iter()
            .flatten()
            .min()
    }

    /// Forgets exited terminals whose time has come; when to look again.
    pub(super) fn forget_exited(
        &mut self,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) -> Option<Instant> {
        let keep = self.settings.keep_exited;
        let due: Vec<TerminalKey> = self
            .terminals
            .iter()
            .filter(|(_, terminal)| terminal.forget_at(keep).is_some_and(|at| at <= now))
            .map(|(key, _)| *key)
            .collect();
        for key in due {
            self.end(key, None, effects);
        }
        self.terminals
            .values()
            .filter_map(|terminal| terminal.forget_at(keep))
            .min()
    }

    /// Runs what waited for a terminal's start.
    pub(super) fn run_waiting(
        &mut self,
        key: TerminalKey,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        while let Some(terminal) = self.terminals.get_mut(&key)
            && matches!(terminal.phase, Phase::Live)
            && let Some(call) = terminal.waiting.pop_front()
        {
            self.call(call, now, effects);
        }
    }

    /// Removes a starting or ending terminal, answers who started or ended it, then runs what
    /// waited for it.
    fn remove(
        &mut self,
        key: TerminalKey,
        outcome: Result<Option<String>, RpcError>,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let Some(terminal) = self.terminals.remove(&key) else {
            return;
        };
        self.by_uri.remove(&terminal.uri);
        let asked_by = match terminal.phase {
            Phase::Starting { creator } => Some(creator),
            Phase::Ending { disposer } => disposer,
            Phase::Restarting { asked_by, .. } => asked_by,
            Phase::Live | Phase::Keeping => None,
        };
        if let Some(call) = asked_by {
            self.answer(&call, outcome);
        }
        for call in terminal.waiting {
            self.call(call, now, effects);
        }
    }
}
