//! Every message, with its kind number.
//!
//! To a worker: imperatives. From a worker: past facts.

use serde::{Deserialize, Serialize};

use crate::codec;
use crate::data::Data;
use crate::error::WireError;
use crate::frame::{Header, write_frame};
use crate::kept::{Clear, Kept, Lost, Past, Watch};
use crate::limits::{
    CARD_MAX, COMMAND_LINE_MAX, CUTS_MAX, OUTPUT_CHUNK_MAX, PAST_FRAMES, PATH_MAX, REASON_MAX,
    SIZE_RANGE, TITLE_MAX,
};
use crate::modes::Modes;
use crate::token::AttachToken;

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

/// A terminal's size in character cells, each within [`SIZE_RANGE`].
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
    /// What the supervisor wants to be told when it takes the terminal over ([`Kept::card`]): the
    /// worker does not look into it. At most [`CARD_MAX`] bytes.
    pub card: Data<'a>,
    /// How many commands the terminal has had already: its shell is started again.
    pub commands: u64,
    /// Whether something older than the past that follows ([`ToWorker::Past`]) gave way.
    pub trimmed: bool,
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
    /// Where scrollback may be cut, ascending; at most [`CUTS_MAX`].
    pub cuts: Vec<Cut>,
    /// Valid UTF-8, at most [`OUTPUT_CHUNK_MAX`] bytes.
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
        /// What was typed, valid UTF-8; at most [`COMMAND_LINE_MAX`] bytes.
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
    /// [`PATH_MAX`] bytes, not always UTF-8.
    Directory(Data<'a>),
    /// It asks for this title: UTF-8, at most [`TITLE_MAX`] bytes, not cleaned.
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

/// A message to a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToWorker<'a> {
    /// See [`Start`].
    Start(Box<Start<'a>>),
    /// See [`Input`].
    Input(Input<'a>),
    /// The terminal has this size now.
    Resize(Size),
    /// See [`Ack`].
    Ack(Ack),
    /// See [`Terminate`].
    Terminate(Terminate),
    /// Replaces [`Start::card`].
    Card(Data<'a>),
    /// See [`Watch`].
    Watch(Watch),
    /// See [`Clear`].
    Clear(Clear),
    /// What the terminal has shown before its shell was started again; right behind the start.
    Past(Past<'a>),
}

/// A message from a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromWorker<'a> {
    /// See [`Started`].
    Started(Started),
    /// See [`StartFailed`].
    StartFailed(StartFailed),
    /// See [`Output`].
    Output(Output<'a>),
    /// See [`InputTaken`].
    InputTaken(InputTaken),
    /// See [`Exited`].
    Exited(Exited),
    /// See [`Event`].
    Event(Event<'a>),
    /// See [`Kept`]. Boxed, as it is large and comes once.
    Kept(Box<Kept<'a>>),
    /// See [`Past`].
    Past(Past<'a>),
    /// See [`Lost`].
    Lost(Box<Lost<'a>>),
}

impl<'a> ToWorker<'a> {
    /// The number in the header.
    #[must_use]
    pub fn kind(&self) -> u16 {
        match self {
            Self::Start(_) => kind::START,
            Self::Input(_) => kind::INPUT,
            Self::Resize(_) => kind::RESIZE,
            Self::Ack(_) => kind::ACK,
            Self::Terminate(_) => kind::TERMINATE,
            Self::Card(_) => kind::CARD,
            Self::Watch(_) => kind::WATCH,
            Self::Clear(_) => kind::CLEAR,
            Self::Past(_) => kind::PAST,
        }
    }

    /// Appends the frame to `out`; on an error `out` is unchanged.
    ///
    /// # Errors
    /// The message is over the payload limit.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let kind = self.kind();
        write_frame(kind, out, |out| match self {
            Self::Start(message) => codec::encode(kind, message, out),
            Self::Input(message) => codec::encode(kind, message, out),
            Self::Resize(message) => codec::encode(kind, message, out),
            Self::Ack(message) => codec::encode(kind, message, out),
            Self::Terminate(message) => codec::encode(kind, message, out),
            Self::Card(message) => codec::encode(kind, message, out),
            Self::Watch(message) => codec::encode(kind, message, out),
            Self::Clear(message) => codec::encode(kind, message, out),
            Self::Past(message) => codec::encode(kind, message, out),
        })
    }

    /// Reads a message from a frame.
    ///
    /// # Errors
    /// An unknown kind, a malformed payload, a value out of range.
    pub fn decode(header: Header, payload: &'a [u8]) -> Result<Self, WireError> {
        let kind = header.kind;
        match kind {
            kind::START => {
                let start: Box<Start<'a>> = codec::decode(kind, payload)?;
                check_size(kind, start.size)?;
                check_len(kind, "card", &start.card, CARD_MAX)?;
                Ok(Self::Start(start))
            }
            kind::INPUT => Ok(Self::Input(codec::decode(kind, payload)?)),
            kind::RESIZE => {
                let size = codec::decode(kind, payload)?;
                check_size(kind, size)?;
                Ok(Self::Resize(size))
            }
            kind::ACK => Ok(Self::Ack(codec::decode(kind, payload)?)),
            kind::TERMINATE => Ok(Self::Terminate(codec::decode(kind, payload)?)),
            kind::CARD => {
                let card: Data<'a> = codec::decode(kind, payload)?;
                check_len(kind, "card", &card, CARD_MAX)?;
                Ok(Self::Card(card))
            }
            kind::WATCH => Ok(Self::Watch(codec::decode(kind, payload)?)),
            kind::CLEAR => Ok(Self::Clear(codec::decode(kind, payload)?)),
            kind::PAST => Ok(Self::Past(past(payload)?)),
            other => Err(WireError::UnknownKind(other)),
        }
    }
}

impl<'a> FromWorker<'a> {
    /// The number in the header.
    #[must_use]
    pub fn kind(&self) -> u16 {
        match self {
            Self::Started(_) => kind::STARTED,
            Self::StartFailed(_) => kind::START_FAILED,
            Self::Output(_) => kind::OUTPUT,
            Self::InputTaken(_) => kind::INPUT_TAKEN,
            Self::Exited(_) => kind::EXITED,
            Self::Event(_) => kind::EVENT,
            Self::Kept(_) => kind::KEPT,
            Self::Past(_) => kind::PAST,
            Self::Lost(_) => kind::LOST,
        }
    }

    /// Appends the frame to `out`; on an error `out` is unchanged.
    ///
    /// # Errors
    /// The message is over the payload limit.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let kind = self.kind();
        write_frame(kind, out, |out| match self {
            Self::Started(message) => codec::encode(kind, message, out),
            Self::StartFailed(message) => codec::encode(kind, message, out),
            Self::Output(message) => codec::encode(kind, message, out),
            Self::InputTaken(message) => codec::encode(kind, message, out),
            Self::Exited(message) => codec::encode(kind, message, out),
            Self::Event(message) => codec::encode(kind, message, out),
            Self::Kept(message) => codec::encode(kind, message, out),
            Self::Past(message) => codec::encode(kind, message, out),
            Self::Lost(message) => codec::encode(kind, message, out),
        })
    }

    /// Reads a message from a frame.
    ///
    /// Neither the text of an [`Output`] nor that of an [`Event`] is checked for UTF-8 here: the
    /// supervisor does that once, where it makes a string of it.
    ///
    /// # Errors
    /// An unknown kind, a malformed payload, a value out of range.
    pub fn decode(header: Header, payload: &'a [u8]) -> Result<Self, WireError> {
        let kind = header.kind;
        let refuse = |detail: &str| WireError::Malformed {
            kind,
            detail: detail.to_owned(),
        };
        match kind {
            kind::STARTED => Ok(Self::Started(codec::decode(kind, payload)?)),
            kind::START_FAILED => {
                let failed: StartFailed = codec::decode(kind, payload)?;
                if failed.reason.len() > REASON_MAX {
                    return Err(refuse("the reason is too long"));
                }
                Ok(Self::StartFailed(failed))
            }
            kind::OUTPUT => {
                let output: Output<'a> = codec::decode(kind, payload)?;
                check_text(kind, &output.cuts, &output.data)?;
                Ok(Self::Output(output))
            }
            kind::INPUT_TAKEN => Ok(Self::InputTaken(codec::decode(kind, payload)?)),
            kind::EXITED => Ok(Self::Exited(codec::decode(kind, payload)?)),
            kind::EVENT => {
                let event: Event<'a> = codec::decode(kind, payload)?;
                match &event.what {
                    Happened::CommandStarted { line, .. } => {
                        check_len(kind, "command line", line, COMMAND_LINE_MAX)?;
                    }
                    Happened::Directory(path) => check_len(kind, "directory", path, PATH_MAX)?,
                    Happened::Title(title) => check_len(kind, "title", title, TITLE_MAX)?,
                    Happened::CanDetectCommands | Happened::CommandFinished { .. } => {}
                }
                Ok(Self::Event(event))
            }
            kind::KEPT => {
                let kept: Box<Kept<'a>> = codec::decode(kind, payload)?;
                check_size(kind, kept.size)?;
                check_len(kind, "card", &kept.card, CARD_MAX)?;
                check_state(kind, kept.directory.as_ref(), kept.title.as_ref())?;
                if kept.past as usize > PAST_FRAMES {
                    return Err(refuse("more of the past than may be kept"));
                }
                Ok(Self::Kept(kept))
            }
            kind::PAST => Ok(Self::Past(past(payload)?)),
            kind::LOST => {
                let lost: Box<Lost<'a>> = codec::decode(kind, payload)?;
                check_state(kind, lost.directory.as_ref(), lost.title.as_ref())?;
                if let Some(started) = &lost.started {
                    check_len(kind, "command line", &started.line, COMMAND_LINE_MAX)?;
                }
                Ok(Self::Lost(lost))
            }
            other => Err(WireError::UnknownKind(other)),
        }
    }
}

fn past(payload: &[u8]) -> Result<Past<'_>, WireError> {
    let kind = kind::PAST;
    let past: Past<'_> = codec::decode(kind, payload)?;
    match &past {
        Past::Text { cuts, data } => check_text(kind, cuts, data)?,
        Past::CommandStarted(started) => {
            check_len(kind, "command line", &started.line, COMMAND_LINE_MAX)?;
        }
        Past::CommandFinished(_) | Past::Gap(_) => {}
    }
    Ok(past)
}

fn check_text(kind: u16, cuts: &[Cut], data: &Data<'_>) -> Result<(), WireError> {
    check_len(kind, "output of one frame", data, OUTPUT_CHUNK_MAX)?;
    if cuts.len() > CUTS_MAX {
        return Err(WireError::Malformed {
            kind,
            detail: "more cuts than one frame may hold".to_owned(),
        });
    }
    Ok(())
}

fn check_state(
    kind: u16,
    directory: Option<&Data<'_>>,
    title: Option<&Data<'_>>,
) -> Result<(), WireError> {
    if let Some(directory) = directory {
        check_len(kind, "directory", directory, PATH_MAX)?;
    }
    if let Some(title) = title {
        check_len(kind, "title", title, TITLE_MAX)?;
    }
    Ok(())
}

fn check_len(kind: u16, what: &str, data: &Data<'_>, max: usize) -> Result<(), WireError> {
    if data.as_slice().len() <= max {
        Ok(())
    } else {
        Err(WireError::Malformed {
            kind,
            detail: format!("the {what} is too long"),
        })
    }
}

fn check_size(kind: u16, size: Size) -> Result<(), WireError> {
    if SIZE_RANGE.contains(&size.cols) && SIZE_RANGE.contains(&size.rows) {
        Ok(())
    } else {
        Err(WireError::Malformed {
            kind,
            detail: format!("a size of {}x{}", size.cols, size.rows),
        })
    }
}
