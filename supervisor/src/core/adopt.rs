//! Terminals that a supervisor before this one had: what their workers kept makes them again.
//!
//! Clients were sent what the former supervisor had read, up to a little beyond what it had
//! acknowledged. So a terminal that was watched goes on from there with the output that was not
//! acknowledged, and if that is much, it waits with it for a subscriber: the snapshot is then not
//! newer than what the subscriber has seen, and everything after it arrives.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use shellward_protocol::kept::{self, Kept, Newest as KeptNewest, Past};
use shellward_protocol::message::Cut;

use super::card::Card;
use super::happened::{command_end, directory, number, text};
use super::terminal::{Hold, Newest, Open};
use super::{Core, Effect, Happened, Pace, Phase, Running, Terminal, TerminalKey};
use crate::ahp::{HostAction, TerminalDocument, names};
use crate::limits::HOLD_BYTES;
use crate::worker_link::LinkQueue;

/// A terminal that is being taken over, made outside the core's lock.
#[derive(Debug)]
pub struct Adopted {
    terminal: Terminal,
    link: Arc<LinkQueue>,
    watched: bool,
    /// The number of the next command of the past.
    next_command: u64,
}

impl Adopted {
    /// What a worker kept, without the past. `id` names its socket.
    ///
    /// # Errors
    /// What the worker says makes no sense.
    pub fn new(id: String, kept: &Kept<'_>, now: Instant) -> Result<Self, &'static str> {
        let (card, claim) = Card::read(kept.card.as_slice())?;
        let cwd = match &kept.directory {
            None => card.cwd,
            Some(path) => names::directory_to_uri(&directory(path.as_slice())?),
        };
        let mut title = card.title;
        if let (false, Some(asked)) = (card.named, &kept.title) {
            let asked =
                std::str::from_utf8(asked.as_slice()).map_err(|_| "a title is not UTF-8")?;
            title = names::clean_title(asked).unwrap_or(title);
        }
        let mut document = TerminalDocument::new(title, claim, cwd, kept.size, kept.is_pty);
        if kept.can_detect {
            document.apply(&HostAction::command_detection_available(), None);
        }
        if kept.trimmed {
            document.begin_trimmed();
        }
        let link = Arc::new(LinkQueue::resumed(kept.typed));
        let shell = PathBuf::from(card.shell);
        let mut terminal = Terminal::new(id, card.uri, shell, Phase::Live, document, now);
        terminal.named = card.named;
        // A text that is no time counts as now: after every terminal that has one.
        terminal.created = card.created_at.parse().unwrap_or(terminal.created);
        terminal.created_at = card.created_at;
        terminal.restarts = card.restarts;
        terminal.place = kept.offset;
        terminal.is_crashed = card.crashed;
        terminal.shell_pid = Some(kept.shell_pid).filter(|pid| *pid != 0);
        terminal.link = Some(Arc::clone(&link));
        let figures = &mut terminal.figures;
        figures.pty_reason = card.pty_reason;
        figures.runs(ago(kept.started_ms, now));
        figures.before = card.bytes_before;
        figures.output_bytes = card.bytes_before.0.saturating_add(kept.offset);
        figures.input_bytes = card.bytes_before.1.saturating_add(kept.typed.came);
        let commands = kept.commands;
        terminal.commands.resume(
            commands.count,
            match commands.newest {
                KeptNewest::None => Newest::None,
                KeptNewest::Running { at_ms } => Newest::Running(Open {
                    id: commands.count.to_string(),
                    since: ago(at_ms, now),
                }),
                KeptNewest::Finished { exit_code } => Newest::Finished {
                    id: commands.count.to_string(),
                    exit_code: exit_code.map(i64::from),
                },
            },
        );
        Ok(Self {
            terminal,
            link,
            watched: kept.watched,
            next_command: commands.first,
        })
    }

    /// The next piece of the past.
    ///
    /// # Errors
    /// It makes no sense.
    pub fn past(&mut self, past: Past<'_>) -> Result<(), &'static str> {
        let document = &mut self.terminal.document;
        match past {
            Past::Text { cuts, data } => {
                let text =
                    std::str::from_utf8(data.as_slice()).map_err(|_| "its past is not UTF-8")?;
                document.append(text, &cuts);
            }
            Past::CommandStarted(kept::Started { line, at_ms }) => {
                let line = text(line.as_slice(), "a command line is not UTF-8")?;
                let timestamp = number(at_ms)?;
                let id = self.next_command.to_string();
                self.next_command = self.next_command.saturating_add(1);
                document.apply(&HostAction::command_executed(id, line, timestamp), None);
            }
            Past::CommandFinished(end) => {
                let id = self.next_command.saturating_sub(1).to_string();
                let end = command_end(end.exit_code, end.duration_ms)?;
                document.apply(&HostAction::command_finished(id, end), None);
            }
            Past::Gap(gap) => {
                let (text, cut) = gap_text(document, gap);
                document.append(&text, &[cut]);
            }
        }
        Ok(())
    }
}

impl Core {
    /// A terminal is there again. The worker's task is given what it needs; nothing if another
    /// terminal has its URI.
    pub fn adopt(
        &mut self,
        adopted: Adopted,
        worker_pid: u32,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) -> Option<(TerminalKey, Running)> {
        let Adopted {
            mut terminal,
            link,
            watched,
            ..
        } = adopted;
        if self.by_uri.contains_key(&terminal.uri) {
            return None;
        }
        terminal.worker_pid = Some(worker_pid);
        if watched {
            terminal.hold = Some(Hold {
                until: now + self.settings.reattach_grace,
                bytes: HOLD_BYTES,
            });
            effects.push(Effect::Reschedule);
        }
        self.next_key += 1;
        let key = TerminalKey(self.next_key);
        let shared = Arc::clone(&terminal.shared);
        self.by_uri.insert(terminal.uri.clone(), key);
        self.terminals.insert(key, terminal);
        self.metrics.workers_adopted.one();
        self.root_list_changed();
        if self.shutting_down {
            // It answered late, when the others had been told to end already.
            self.end(key, None, effects);
        }
        Some((key, Running { link, shared }))
    }

    /// Output of a terminal gave way while no supervisor was there, and this happened meanwhile. In
    /// this order it becomes the past, too (`shellward_protocol::kept::Lost`).
    pub fn lost(
        &mut self,
        key: TerminalKey,
        gap: kept::Gap,
        events: Vec<Happened>,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) -> Pace {
        let mut pace = Pace::Go;
        if let (Some(terminal), true) = (self.terminals.get(&key), gap.bytes > 0) {
            let (text, cut) = gap_text(&terminal.document, gap);
            pace = self.output(key, &text, &[cut], None, now);
        }
        for what in events {
            pace = self.happened(key, what, now, effects);
        }
        pace
    }

    /// Lets terminals go on whose readers did not come back in time; when to look again.
    pub(super) fn end_holds(&mut self, now: Instant) -> Option<Instant> {
        for terminal in self.terminals.values_mut() {
            if terminal.hold.as_ref().is_some_and(|hold| hold.until <= now) {
                terminal.end_hold();
                terminal.tell_watched();
            }
        }
        let holds = self.terminals.values().filter_map(|t| t.hold.as_ref());
        holds.map(|hold| hold.until).min()
    }
}

/// What stands where output is missing, and puts right what the missing would have.
fn gap_text(document: &TerminalDocument, gap: kept::Gap) -> (String, Cut) {
    let text = format!(
        "{}\r\n[shellward: {} bytes of output were not kept while no supervisor ran]\r\n",
        document.modes().change(gap.modes),
        gap.bytes
    );
    let cut = Cut {
        at: u32::try_from(text.len()).unwrap_or_default(),
        modes: gap.modes,
    };
    (text, cut)
}

/// The moment that a clock on the wall told, as far as that can be known: the clock may have been
/// set since.
fn ago(unix_ms: u64, now: Instant) -> Instant {
    let now_ms = u64::try_from(Timestamp::now().as_millisecond()).unwrap_or_default();
    let ago = Duration::from_millis(now_ms.saturating_sub(unix_ms));
    now.checked_sub(ago).unwrap_or(now)
}
