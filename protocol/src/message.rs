//! What messages hold, and the kind number of each; what outlives a supervisor is in
//! [`crate::kept`].

use serde::{Deserialize, Serialize};

use crate::codec;
use crate::data::Data;
use crate::error::WireError;
use crate::frame::{Header, write_frame};
use crate::limits::REASON_MAX;
use crate::modes::Modes;
use crate::token::AttachToken;

pub use crate::direction::{FromWorker, ToWorker};

/// Kind numbers. Never reused, never renumbered; golden bytes hold them.
pub mod kind {
    /// [`crate::Hello`], both directions.
    pub const HELLO: u16 = 1;
    /// [`crate::Boot`], on the pipe a worker inherits.
    pub const BOOT: u16 = 2;
    /// [`super::ProbeReport`], on the pipe a probe inherits.
    pub const PROBE_REPORT: u16 = 3;
    /// [`super::Start`].
    pub const START: u16 = 16;
    /// [`super::Input`].
    pub const INPUT: u16 = 17;
    /// [`super::Size`].
    pub const RESIZE: u16 = 18;
    /// [`super::Ack`].
    pub const ACK: u16 = 19;
    /// [`super::Terminate`].
    pub const TERMINATE: u16 = 20;
    // 21 acknowledged an exit; a worker now stays as long as its terminal.
    /// [`super::ToWorker::Card`].
    pub const CARD: u16 = 22;
    /// [`crate::kept::Watch`].
    pub const WATCH: u16 = 23;
    /// [`crate::kept::Clear`].
    pub const CLEAR: u16 = 24;
    /// [`crate::kept::Patience`].
    pub const PATIENCE: u16 = 25;
    /// [`crate::kept::Past`], both directions.
    pub const PAST: u16 = 32;
    /// [`super::Started`].
    pub const STARTED: u16 = 64;
    /// [`super::StartFailed`].
    pub const START_FAILED: u16 = 65;
    /// [`super::Output`].
    pub const OUTPUT: u16 = 66;
    /// [`super::InputTaken`].
    pub const INPUT_TAKEN: u16 = 67;
    /// [`super::Exited`].
    pub const EXITED: u16 = 68;
    /// [`super::Event`].
    pub const EVENT: u16 = 69;
    /// [`crate::kept::Kept`].
    pub const KEPT: u16 = 70;
    /// [`crate::kept::Lost`].
    pub const LOST: u16 = 71;
}

/// What a worker is told before it listens: the only frame on its inherited pipe (stdin).
#[derive(Debug, Clone)]
pub struct Boot<'a> {
    /// Where the worker listens, an absolute path.
    pub socket: Data<'a>,
    /// Who may attach.
    pub token: AttachToken,
    /// The user id the attaching supervisor must have (`SO_PEERCRED`).
    pub supervisor_uid: u32,
}

#[derive(Serialize, Deserialize)]
struct BootWire<'a> {
    #[serde(borrow)]
    socket: Data<'a>,
    token: [u8; AttachToken::LEN],
    supervisor_uid: u32,
}

impl<'a> Boot<'a> {
    /// Appends the frame to `out`.
    ///
    /// # Errors
    /// The path is over the payload limit.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let wire = BootWire {
            socket: Data::borrowed(self.socket.as_slice()),
            token: *self.token.expose(),
            supervisor_uid: self.supervisor_uid,
        };
        write_frame(kind::BOOT, out, |out| codec::encode(kind::BOOT, &wire, out))
    }

    /// Reads the frame.
    ///
    /// # Errors
    /// Another kind, or a malformed payload.
    pub fn decode(header: Header, payload: &'a [u8]) -> Result<Self, WireError> {
        if header.kind != kind::BOOT {
            return Err(WireError::UnknownKind(header.kind));
        }
        let wire: BootWire<'a> = codec::decode(kind::BOOT, payload)?;
        Ok(Self {
            socket: wire.socket,
            token: AttachToken::new(wire.token),
            supervisor_uid: wire.supervisor_uid,
        })
    }
}

/// What a probe found out before it left. A probe that crashes or hangs sends none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProbeReport {
    /// A program ran on a pty: its output arrived, it saw the size, and its end was told.
    Works,
    /// No pty could be opened, or it did not carry what was written to it.
    NoPty(Trouble),
    /// The binding's file could not be loaded; the words are the loader's own.
    BindingMissing(Trouble),
    /// It was loaded, but is not of the ABI version we speak, or lacks a function.
    BindingAbi(Trouble),
    /// The file or a directory it lies in may not be trusted, or the system refused something
    /// that has nothing to do with ptys.
    Refused(Trouble),
}

/// Why something does not work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// The system's error number, if it gave one.
    pub errno: Option<i32>,
    /// In words; at most [`REASON_MAX`] bytes.
    pub words: String,
}

impl ProbeReport {
    /// What is wrong, unless nothing is.
    #[must_use]
    pub fn trouble(&self) -> Option<&Trouble> {
        match self {
            Self::Works => None,
            Self::NoPty(trouble)
            | Self::BindingMissing(trouble)
            | Self::BindingAbi(trouble)
            | Self::Refused(trouble) => Some(trouble),
        }
    }

    /// Appends the frame to `out`; on an error `out` is unchanged.
    ///
    /// # Errors
    /// The words are over the payload limit.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let kind = kind::PROBE_REPORT;
        write_frame(kind, out, |out| codec::encode(kind, self, out))
    }

    /// Reads the frame.
    ///
    /// # Errors
    /// Another kind, or a malformed payload.
    pub fn decode(header: Header, payload: &[u8]) -> Result<Self, WireError> {
        if header.kind != kind::PROBE_REPORT {
            return Err(WireError::UnknownKind(header.kind));
        }
        let report: Self = codec::decode(header.kind, payload)?;
        match report.trouble() {
            Some(trouble) if trouble.words.len() > REASON_MAX => Err(WireError::Malformed {
                kind: header.kind,
                detail: "the words are too long".to_owned(),
            }),
            _ => Ok(report),
        }
    }
}

/// A terminal's size in character cells, each within [`crate::limits::SIZE_RANGE`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
}

/// What runs in the terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command<'a> {
    /// The shell itself, interactive.
    Shell,
    /// `shell -c line`, the line untouched.
    #[serde(borrow)]
    Line(Data<'a>),
    /// A program and its arguments; each word is quoted, then run as a line.
    Program(Vec<Data<'a>>),
}

/// What the shell sits on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode<'a> {
    /// A pseudoterminal, opened by the binding at this path; empty means the built-in one.
    #[serde(borrow)]
    Pty(Data<'a>),
    /// Three pipes.
    Pipes,
    /// Nothing: no shell is started. The terminal's shell has ended, and so has the worker it had;
    /// this one keeps what was shown, for the next supervisor.
    Ended(Ended),
}

/// A terminal whose shell has ended, see [`Mode::Ended`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// How.
    pub status: ExitStatus,
    /// Whether it sat on a pty.
    pub was_pty: bool,
    /// Whether its commands could be told apart ([`Happened::CanDetectCommands`]).
    pub can_detect: bool,
}

/// One resource limit for the shell (`setrlimit`); `u64::MAX` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// The kernel's number of the resource (`RLIMIT_NOFILE` is 7).
    pub resource: u32,
    /// Soft limit.
    pub soft: u64,
    /// Hard limit.
    pub hard: u64,
}

/// What becomes of the marks a shell prints about its prompts, commands and directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Marks {
    /// They are taken out of the output, as AHP demands of a host.
    Strip,
    /// They stay in the output.
    Keep,
}

/// Start the shell on a pty or on pipes. Sent once, first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start<'a> {
    /// What it sits on.
    #[serde(borrow)]
    pub mode: Mode<'a>,
    /// Absolute path of the shell; empty means the account's own.
    #[serde(borrow)]
    pub shell: Data<'a>,
    /// What runs.
    pub command: Command<'a>,
    /// Absolute path of the directory it starts in.
    pub cwd: Data<'a>,
    /// The host's environment, uncleaned: the worker decides what travels (field case S-27).
    pub host_env: Vec<(Data<'a>, Data<'a>)>,
    /// The caller's variables, laid over the host's.
    pub caller_env: Vec<(Data<'a>, Data<'a>)>,
    /// Size of the pty before the shell sees it.
    pub size: Size,
    /// File mode mask of the shell.
    pub umask: u32,
    /// Limits to set for the shell, which the supervisor changed for itself.
    pub limits: Vec<Limit>,
    /// What becomes of marks.
    pub marks: Marks,
    /// Whether a shell we have a script for is started with it (on a pty, and alone).
    pub integrate: bool,
    /// What the supervisor wants to be told when it takes the terminal over ([`crate::kept::Kept::card`]): the
    /// worker does not look into it. At most [`crate::limits::CARD_MAX`] bytes.
    pub card: Data<'a>,
    /// How many commands the terminal has had already, with a shell before this one.
    pub commands: u64,
    /// How long output that is watched waits for the next supervisor, in milliseconds.
    pub reattach_grace_ms: u32,
    /// After so long without a supervisor everything ends, in milliseconds.
    pub orphan_timeout_ms: u64,
}

/// Type these bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input<'a> {
    /// Counts up by one from 1; a number that was seen already is not typed again.
    pub seq: u64,
    /// What to type; written whole before the next one.
    #[serde(borrow)]
    pub data: Data<'a>,
}

/// Output and events up to here arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    /// The place in the stream after the last one that arrived.
    pub offset: u64,
}

/// End the shell and everything it started, then exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminate {
    /// How long HUP and TERM may take before KILL, in milliseconds.
    pub grace_ms: u32,
}

/// The shell runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Process id of the shell (of the exec stage, which becomes the shell).
    pub shell_pid: u32,
    /// Whether it sits on a pty.
    pub is_pty: bool,
}

/// Why no shell runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartFailure {
    /// The machine has no pty left, or none at all.
    NoPty,
    /// A process could not be made (EAGAIN, ENOMEM).
    NoProcess,
    /// What was asked for cannot be done (environment too long).
    Refused,
    /// Anything else.
    Other,
}

/// Nothing runs; the worker exits after this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartFailed {
    /// What kind of failure.
    pub failure: StartFailure,
    /// What was attempted and what the system said; at most [`REASON_MAX`] bytes.
    pub reason: String,
}

/// A place where scrollback may be cut: the start of a line where there is one, never inside a
/// character or an escape sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// A byte index in the data, after its start and at most its length.
    pub at: u32,
    /// The modes in force there.
    pub modes: Modes,
}

/// The terminal printed something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output<'a> {
    /// The place of the first byte in the terminal's stream, in which a byte of output and an
    /// [`Event`] take one place each.
    pub offset: u64,
    /// Where scrollback may be cut, ascending; at most [`crate::limits::CUTS_MAX`].
    pub cuts: Vec<Cut>,
    /// Valid UTF-8, at most [`crate::limits::OUTPUT_CHUNK_MAX`] bytes.
    #[serde(borrow)]
    pub data: Data<'a>,
}

/// Something the output told, between the bytes before it and those after it.
///
/// Command boundaries come in order: a command that started is finished before the next one
/// starts, and nothing is finished that has not started. The end of the shell finishes it too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Happened<'a> {
    /// Commands are told apart from here on. Comes once, on a pty only.
    CanDetectCommands,
    /// A command runs; the output that follows is its own.
    CommandStarted {
        /// What was typed, valid UTF-8; at most [`crate::limits::COMMAND_LINE_MAX`] bytes.
        #[serde(borrow)]
        line: Data<'a>,
        /// When, in milliseconds since 1970.
        at_ms: u64,
    },
    /// It ended, or whatever came since shows that it must have.
    CommandFinished {
        /// Its exit code, if the shell told it.
        exit_code: Option<i32>,
        /// How long it ran, in milliseconds.
        duration_ms: u64,
    },
    /// The shell is in this directory now: an absolute path without control characters, at most
    /// [`crate::limits::PATH_MAX`] bytes, not always UTF-8.
    Directory(Data<'a>),
    /// It asks for this title: UTF-8, at most [`crate::limits::TITLE_MAX`] bytes, not cleaned.
    Title(Data<'a>),
}

impl Happened<'_> {
    /// A copy that owns its bytes.
    #[must_use]
    pub fn into_owned(self) -> Happened<'static> {
        match self {
            Self::CanDetectCommands => Happened::CanDetectCommands,
            Self::CommandStarted { line, at_ms } => Happened::CommandStarted {
                line: line.into_owned(),
                at_ms,
            },
            Self::CommandFinished {
                exit_code,
                duration_ms,
            } => Happened::CommandFinished {
                exit_code,
                duration_ms,
            },
            Self::Directory(path) => Happened::Directory(path.into_owned()),
            Self::Title(title) => Happened::Title(title.into_owned()),
        }
    }
}

/// Where in the stream something happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event<'a> {
    /// Its place in the terminal's stream, which it has for itself; see [`Output::offset`].
    pub offset: u64,
    /// What happened.
    #[serde(borrow)]
    pub what: Happened<'a>,
}

/// This much of the input has reached the shell's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputTaken {
    /// Bytes written to the pty or dropped because it is closed, since the start of the terminal.
    pub total: u64,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExitStatus {
    /// It exited with this code.
    Code(u8),
    /// This signal killed it.
    Signal(u8),
}

/// The shell ended and its output has drained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exited {
    /// How.
    pub status: ExitStatus,
}
