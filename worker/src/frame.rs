//! Frames for the supervisor, encoded, with what must be known about them.
//!
//! What lives here: making them, and reading them again. What must not: their order (the outbox).

use shellward_protocol::frame::HEADER_LEN;
use shellward_protocol::message::{Cut, Event, Happened, Output};
use shellward_protocol::{Data, FromWorker, Header, WireError};

/// What the fields around the data of an output frame take, generously.
const OUTPUT_EXTRA: usize = 256;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Output up to this place, so many characters; kept until acknowledged.
    Output { end: u64, chars: usize },
    /// An event at the place before this one, so many bytes; kept as well.
    Event { end: u64, bytes: usize },
    /// What gave way up to this place; made anew for the next link.
    Lost { end: u64 },
    /// A count that later counts replace.
    InputTaken,
    /// Who we are and what was before; made anew for the next link.
    Greeting,
    /// Anything else; made anew for the next link.
    Other,
}

impl Kind {
    /// The place in the stream behind it, if it has one.
    pub(crate) fn end(self) -> Option<u64> {
        match self {
            Self::Output { end, .. } | Self::Event { end, .. } | Self::Lost { end } => Some(end),
            Self::InputTaken | Self::Greeting | Self::Other => None,
        }
    }

    /// How much of what may wait it is: an event may hold a long command line and no output.
    pub(crate) fn weight(self) -> usize {
        match self {
            Self::Output { chars, .. } => chars,
            Self::Event { bytes, .. } => bytes,
            Self::Lost { .. } | Self::InputTaken | Self::Greeting | Self::Other => 0,
        }
    }
}

/// A frame.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) bytes: Vec<u8>,
}

impl Frame {
    /// Output of so many characters that begins at this place.
    pub(crate) fn output(
        offset: u64,
        cuts: Vec<Cut>,
        data: &str,
        chars: usize,
    ) -> Result<Self, WireError> {
        let mut bytes = Vec::with_capacity(data.len() + OUTPUT_EXTRA);
        FromWorker::Output(Output {
            offset,
            cuts,
            data: Data::borrowed(data.as_bytes()),
        })
        .encode(&mut bytes)?;
        let end = offset + data.len() as u64;
        Ok(Self {
            kind: Kind::Output { end, chars },
            bytes,
        })
    }

    /// Something that happened at this place.
    pub(crate) fn event(offset: u64, what: Happened<'_>) -> Result<Self, WireError> {
        let mut frame = Self::of(Kind::Other, &FromWorker::Event(Event { offset, what }))?;
        frame.kind = Kind::Event {
            end: offset + 1,
            bytes: frame.bytes.len(),
        };
        Ok(frame)
    }

    /// Any message.
    pub(crate) fn of(kind: Kind, message: &FromWorker<'_>) -> Result<Self, WireError> {
        let mut bytes = Vec::new();
        message.encode(&mut bytes)?;
        Ok(Self { kind, bytes })
    }

    /// Whether it goes to the next link as it is.
    pub(crate) fn is_kept(&self) -> bool {
        matches!(self.kind, Kind::Output { .. } | Kind::Event { .. })
    }
}

/// A frame of our own.
pub(crate) fn decoded(frame: &[u8]) -> Result<FromWorker<'_>, WireError> {
    let (head, payload) = frame
        .split_first_chunk::<HEADER_LEN>()
        .ok_or(WireError::TooLong(frame.len() as u64))?;
    FromWorker::decode(Header::parse(*head)?, payload)
}

/// One that holds output.
pub(crate) fn decoded_output(frame: &[u8]) -> Result<Output<'_>, WireError> {
    match decoded(frame)? {
        FromWorker::Output(output) => Ok(output),
        other => Err(WireError::UnknownKind(other.kind())),
    }
}

/// Its text: it was some when the frame was made.
pub(crate) fn text_of<'a>(output: &'a Output<'_>) -> &'a str {
    std::str::from_utf8(output.data.as_slice()).unwrap_or_default()
}
