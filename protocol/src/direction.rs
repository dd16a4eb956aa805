//! Which messages go which way, and their way into frames and out of them.
//!
//! To a worker: imperatives. From a worker: past facts.
//!
//! What lives here: the two enumerations, encoding, and the bounds that decoding checks. What must
//! not: what the messages hold.

use crate::codec;
use crate::data::Data;
use crate::error::WireError;
use crate::frame::{Header, write_frame};
use crate::kept::{Clear, Kept, Lost, Past, Patience, Watch};
use crate::limits::{
    CARD_MAX, COMMAND_LINE_MAX, CUTS_MAX, OUTPUT_CHUNK_MAX, PAST_FRAMES, PATH_MAX, REASON_MAX,
    SIZE_RANGE, TITLE_MAX,
};
use crate::message::{
    Ack, Cut, Event, Exited, Happened, Input, InputTaken, Output, Size, Start, StartFailed,
    Started, Terminate, kind,
};

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
    /// See [`Patience`].
    Patience(Patience),
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
            Self::Patience(_) => kind::PATIENCE,
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
            Self::Patience(message) => codec::encode(kind, message, out),
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
            kind::PATIENCE => Ok(Self::Patience(codec::decode(kind, payload)?)),
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
