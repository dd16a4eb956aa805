//! What a terminal's output told besides text: commands, the directory, the title.
//!
//! At most one command is open at any time, and who waits for its end gets it: from the shell, with
//! the terminal's exit, or when the worker dies (field case S-13).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::time::Instant;

use axum::extract::ws::Utf8Bytes;

use super::replay::Channel;
use super::terminal::Open;
use super::{Core, Effect, Pace, TerminalKey};
use crate::ahp::envelope::envelope;
use crate::ahp::{HostAction, names};
use crate::limits::TITLE_LIST_TIME;
use crate::outbox::Outbox;
use crate::scrollback::CommandEnd;

/// Something that happened in a terminal, between two pieces of its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    /// Commands are told apart from here on.
    CanDetectCommands,
    /// A command runs.
    CommandStarted {
        /// What was typed.
        line: String,
        /// When, in milliseconds since 1970.
        timestamp: i64,
    },
    /// It ended.
    CommandFinished(CommandEnd),
    /// The shell is in this directory now.
    Directory(PathBuf),
    /// It asks for this title.
    Title(String),
}

/// Numbers above this are no exact numbers in JavaScript.
const LARGEST_NUMBER: u64 = (1 << 53) - 1;

impl Happened {
    /// A command that a worker tells of.
    ///
    /// # Errors
    /// The line is not UTF-8, or the time makes no sense.
    pub fn started(line: &[u8], at_ms: u64) -> Result<Self, &'static str> {
        Ok(Self::CommandStarted {
            line: text(line, "a command line is not UTF-8")?,
            timestamp: number(at_ms)?,
        })
    }

    /// The directory that a worker tells.
    ///
    /// # Errors
    /// It is not absolute, or has control characters.
    pub fn directory(path: &[u8]) -> Result<Self, &'static str> {
        directory(path).map(Self::Directory)
    }

    /// The title that a worker tells.
    ///
    /// # Errors
    /// It is not UTF-8.
    pub fn title(title: &[u8]) -> Result<Self, &'static str> {
        text(title, "a title is not UTF-8").map(Self::Title)
    }
}

/// How a command ended, as a worker tells it.
///
/// # Errors
/// The time makes no sense.
pub fn command_end(exit_code: Option<i32>, duration_ms: u64) -> Result<CommandEnd, &'static str> {
    Ok(CommandEnd {
        exit_code: exit_code.map(i64::from),
        duration_ms: Some(number(duration_ms)?),
    })
}

pub(super) fn directory(path: &[u8]) -> Result<PathBuf, &'static str> {
    if !path.starts_with(b"/") || path.iter().any(u8::is_ascii_control) {
        return Err("a directory is not absolute or has control characters");
    }
    Ok(PathBuf::from(OsString::from_vec(path.to_vec())))
}

pub(super) fn text(bytes: &[u8], otherwise: &'static str) -> Result<String, &'static str> {
    std::str::from_utf8(bytes)
        .map(str::to_owned)
        .map_err(|_| otherwise)
}

pub(super) fn number(told: u64) -> Result<i64, &'static str> {
    i64::try_from(told)
        .ok()
        .filter(|_| told <= LARGEST_NUMBER)
        .ok_or("it told a time that makes no sense")
}

impl Core {
    /// Something happened in a terminal. What changes nothing is told to nobody.
    pub fn happened(
        &mut self,
        key: TerminalKey,
        what: Happened,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) -> Pace {
        let Some(terminal) = self.terminals.get_mut(&key) else {
            return Pace::Go;
        };
        if !terminal.is_listed() {
            return Pace::Go;
        }
        match what {
            Happened::CanDetectCommands => {
                self.tell(key, &HostAction::command_detection_available(), now)
            }
            Happened::CommandStarted { line, timestamp } => {
                if terminal.exited_at.is_some() {
                    // A job that outlived the shell prints marks; nobody would ever end it.
                    return Pace::Go;
                }
                let id = terminal.commands.start(now);
                self.tell(key, &HostAction::command_executed(id, line, timestamp), now)
            }
            Happened::CommandFinished(end) => match terminal.commands.finish(end.exit_code) {
                Some(Open { id, .. }) => {
                    self.tell(key, &HostAction::command_finished(id, end), now)
                }
                None => Pace::Go,
            },
            Happened::Directory(path) => {
                let cwd = names::directory_to_uri(&path);
                if cwd == terminal.document.cwd() {
                    return Pace::Go;
                }
                self.tell(key, &HostAction::cwd_changed(cwd), now)
            }
            Happened::Title(title) => {
                let title = names::clean_title(&title)
                    .filter(|title| !terminal.named && title != terminal.document.title());
                let Some(title) = title else {
                    return Pace::Go;
                };
                let pace = self.tell(key, &HostAction::title_changed(title), now);
                self.title_in_root_list(now, effects);
                pace
            }
        }
    }

    /// Ends the command that is open, because its terminal has ended and the shell did not say.
    pub(super) fn close_command(&mut self, key: TerminalKey, now: Instant) {
        let Some(terminal) = self.terminals.get_mut(&key) else {
            return;
        };
        if let Some(Open { id, since }) = terminal.commands.finish(None) {
            let end = CommandEnd {
                exit_code: None,
                duration_ms: i64::try_from(now.saturating_duration_since(since).as_millis()).ok(),
            };
            self.tell(key, &HostAction::command_finished(id, end), now);
        }
    }

    /// Like [`Core::emit`], for what a program can bring about as often as it likes: it has the
    /// bounds of output, and is recorded for nobody where nobody could ask for it.
    fn tell(&mut self, key: TerminalKey, action: &HostAction, now: Instant) -> Pace {
        let seq = self.next_seq();
        let Some(terminal) = self.terminals.get_mut(&key) else {
            return Pace::Go;
        };
        terminal.document.apply(action, None);
        if !terminal.records(now) {
            terminal.unrecorded_seq = seq;
            return terminal.pace();
        }
        let text: Utf8Bytes = envelope(&terminal.uri, &action.to_json(), None, seq).into();
        let copy = text.clone();
        self.broadcast(key, seq, text, |outbox| outbox.push(copy.clone()))
    }

    /// Hands an envelope of a terminal to its subscribers, by `push`, and to those who come back.
    pub(super) fn broadcast(
        &mut self,
        key: TerminalKey,
        seq: u64,
        text: Utf8Bytes,
        push: impl Fn(&Outbox),
    ) -> Pace {
        let Some(terminal) = self.terminals.get_mut(&key) else {
            return Pace::Go;
        };
        for (_, outbox) in &terminal.subscribers {
            push(outbox);
        }
        let pace = terminal.pace();
        self.replay.push(seq, Channel::Terminal(key), text);
        pace
    }

    /// A program changed a title: the root list follows, now or in a moment.
    fn title_in_root_list(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        match self.title_list_due {
            Some(due) if now < due => {
                if !std::mem::replace(&mut self.title_list_waits, true) {
                    effects.push(Effect::Reschedule);
                }
            }
            _ => {
                self.root_list_changed();
                self.title_list_due = Some(now + TITLE_LIST_TIME);
            }
        }
    }

    /// Sends the root list if a title waits for it and its time has come; when to look again.
    pub(super) fn titles_due(&mut self, now: Instant) -> Option<Instant> {
        let due = self.title_list_due.filter(|_| self.title_list_waits)?;
        if now < due {
            return Some(due);
        }
        self.root_list_changed();
        self.title_list_due = Some(now + TITLE_LIST_TIME);
        None
    }
}
