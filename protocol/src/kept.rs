//! What outlives a supervisor: a worker keeps it, and tells it to the next one.
//!
//! The order on a link that is attached anew: hello, [`Kept`], as many [`Past`] as it counts, then
//! what was not acknowledged, as if nothing had happened; if something of that gave way meanwhile,
//! a [`Lost`] stands in its place.

use serde::{Deserialize, Serialize};

use crate::data::Data;
use crate::message::{Cut, Size};
use crate::modes::Modes;

/// A piece of what was shown before, oldest first. What a supervisor has acknowledged becomes part
/// of the past; it is bounded by [`crate::limits::PAST_CHARS`], the oldest giving way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Past<'a> {
    /// Output, as in [`crate::message::Output`].
    Text {
        /// Where it may be cut, ascending.
        cuts: Vec<Cut>,
        /// Valid UTF-8, at most [`crate::limits::OUTPUT_CHUNK_MAX`] bytes.
        #[serde(borrow)]
        data: Data<'a>,
    },
    /// See [`crate::message::Happened::CommandStarted`].
    CommandStarted(#[serde(borrow)] Started<'a>),
    /// See [`crate::message::Happened::CommandFinished`]. The command it ends may be older than the
    /// past; then it ends nothing.
    CommandFinished(Finished),
    /// Output is missing here.
    Gap(Gap),
}

/// Output that is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// How much, in bytes.
    pub bytes: u64,
    /// The modes in force behind it.
    pub modes: Modes,
}

/// A command that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started<'a> {
    /// What was typed, valid UTF-8; at most [`crate::limits::COMMAND_LINE_MAX`] bytes.
    #[serde(borrow)]
    pub line: Data<'a>,
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
}

impl Started<'_> {
    /// A copy that owns its bytes.
    #[must_use]
    pub fn into_owned(self) -> Started<'static> {
        Started {
            line: self.line.into_owned(),
            at_ms: self.at_ms,
        }
    }
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finished {
    /// Its exit code, if the shell told it.
    pub exit_code: Option<i32>,
    /// How long it ran, in milliseconds.
    pub duration_ms: u64,
}

/// The newest command of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Newest {
    /// There was none.
    None,
    /// It runs.
    Running {
        /// Since when, in milliseconds since 1970.
        at_ms: u64,
    },
    /// It has ended.
    Finished {
        /// Its exit code, if the shell told it.
        exit_code: Option<i32>,
    },
}

/// How far the commands of a terminal have come, at the end of its past.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commands {
    /// How many have started; the first has number 1.
    pub count: u64,
    /// The number of the first [`Past::CommandStarted`] that is told; `count + 1` if there is none.
    pub first: u64,
    /// The last of them.
    pub newest: Newest,
}

/// How far the input of a terminal has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Typed {
    /// The highest [`crate::message::Input::seq`] that came.
    pub seq: u64,
    /// Bytes that came in all.
    pub came: u64,
    /// Of these, what was written or dropped; see [`crate::message::InputTaken::total`].
    pub taken: u64,
}

/// A terminal that a supervisor did not start itself: what it must know to go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept<'a> {
    /// Process id of the shell, as it was told at its start. It may have ended; 0 if it was another
    /// worker's ([`crate::message::Mode::Ended`]).
    pub shell_pid: u32,
    /// Whether it sits on a pty.
    pub is_pty: bool,
    /// Its size.
    pub size: Size,
    /// When the shell was started, in milliseconds since 1970.
    pub started_ms: u64,
    /// What the supervisor noted last ([`crate::message::Start::card`], [`crate::ToWorker::Card`]).
    #[serde(borrow)]
    pub card: Data<'a>,
    /// Whether somebody watched when the supervisor went.
    pub watched: bool,
    /// Its input.
    pub typed: Typed,
    /// The place in the stream where what was acknowledged ends and what follows the past begins.
    pub offset: u64,
    /// Whether something older than the past gave way.
    pub trimmed: bool,
    /// Whether [`crate::message::Happened::CanDetectCommands`] was told and acknowledged.
    pub can_detect: bool,
    /// Its commands.
    pub commands: Commands,
    /// The directory that was told last and acknowledged, if any was.
    #[serde(borrow)]
    pub directory: Option<Data<'a>>,
    /// The same for the title a program asked for.
    #[serde(borrow)]
    pub title: Option<Data<'a>>,
    /// How many [`Past`] follow; at most [`crate::limits::PAST_FRAMES`].
    pub past: u32,
}

/// Output and events that gave way while no supervisor was there, and what came of them.
///
/// Once acknowledged it is told as [`Past::Gap`] (if output is missing), then the end of the command
/// that was open, then the start of the one that is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost<'a> {
    /// The place of the first that is missing.
    pub offset: u64,
    /// How many places are missing, at least one; the stream goes on behind them.
    pub places: u64,
    /// Bytes of output among them.
    pub bytes: u64,
    /// The modes in force behind them.
    pub modes: Modes,
    /// Whether [`crate::message::Happened::CanDetectCommands`] was among them.
    pub can_detect: bool,
    /// The command that was open before them ended among them.
    pub finished: Option<Finished>,
    /// A command started among them and is open behind them.
    #[serde(borrow)]
    pub started: Option<Started<'a>>,
    /// The last directory among them.
    #[serde(borrow)]
    pub directory: Option<Data<'a>>,
    /// The last title among them.
    #[serde(borrow)]
    pub title: Option<Data<'a>>,
}

/// Whether anybody reads the terminal's output at the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// If so, output waits for the next supervisor for a while when this one goes.
    pub watched: bool,
}

/// How long a terminal does without a supervisor from now on; what its start said is replaced
/// ([`crate::message::Start::reattach_grace_ms`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Patience {
    /// How long output that is watched waits for the next supervisor, in milliseconds.
    pub reattach_grace_ms: u32,
    /// After so long without a supervisor everything ends, in milliseconds.
    pub orphan_timeout_ms: u64,
}

/// The past up to here is forgotten: a client has cleared the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clear {
    /// The place up to which it is, which is acknowledged by it.
    pub offset: u64,
}
