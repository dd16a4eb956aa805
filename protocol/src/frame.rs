//! The fixed header, and an incremental decoder.
//!
//! ```text
//! 0..4   magic "SHWD"
//! 4..6   wire version   u16 little-endian
//! 6..8   kind           u16 little-endian
//! 8..12  payload length u32 little-endian
//! ```
//!
//! The header is outside the codec, so that a foreign version is recognised without decoding it.

use crate::error::WireError;
use crate::limits::PAYLOAD_MAX;
use crate::{OLDEST_WIRE_VERSION, WIRE_VERSION};

/// The first four bytes of every frame.
pub const MAGIC: [u8; 4] = *b"SHWD";

/// Length of a header in bytes.
pub const HEADER_LEN: usize = 12;

/// A receive buffer larger than this is given back once it is empty.
const KEEP_CAPACITY: usize = 2 * crate::limits::OUTPUT_CHUNK_MAX;

/// A frame's header without its magic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The wire version of the sender.
    pub version: u16,
    /// What the payload is.
    pub kind: u16,
    /// Length of the payload in bytes.
    pub len: u32,
}

impl Header {
    /// The bytes of this header.
    #[must_use]
    pub fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4..6].copy_from_slice(&self.version.to_le_bytes());
        bytes[6..8].copy_from_slice(&self.kind.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.len.to_le_bytes());
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// Foreign magic, a version outside the window, a length over the limit.
    pub fn parse(bytes: [u8; HEADER_LEN]) -> Result<Self, WireError> {
        let [m0, m1, m2, m3, v0, v1, k0, k1, l0, l1, l2, l3] = bytes;
        let magic = [m0, m1, m2, m3];
        if magic != MAGIC {
            return Err(WireError::BadMagic(magic));
        }
        let version = u16::from_le_bytes([v0, v1]);
        if !(OLDEST_WIRE_VERSION..=WIRE_VERSION).contains(&version) {
            return Err(WireError::Version {
                got: version,
                oldest: OLDEST_WIRE_VERSION,
                newest: WIRE_VERSION,
            });
        }
        let len = u32::from_le_bytes([l0, l1, l2, l3]);
        if len as usize > PAYLOAD_MAX {
            return Err(WireError::TooLong(u64::from(len)));
        }
        Ok(Self {
            version,
            kind: u16::from_le_bytes([k0, k1]),
            len,
        })
    }
}

/// Appends a frame to `out`; `payload` writes the payload itself. On an error `out` is unchanged.
pub(crate) fn write_frame(
    kind: u16,
    out: &mut Vec<u8>,
    payload: impl FnOnce(&mut Vec<u8>) -> Result<(), WireError>,
) -> Result<(), WireError> {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_LEN]);
    let result = payload(out).and_then(|()| {
        let len = out.len() - start - HEADER_LEN;
        match u32::try_from(len) {
            Ok(len) if len as usize <= PAYLOAD_MAX => {
                let header = Header {
                    version: WIRE_VERSION,
                    kind,
                    len,
                };
                out[start..start + HEADER_LEN].copy_from_slice(&header.to_bytes());
                Ok(())
            }
            _ => Err(WireError::TooLong(len as u64)),
        }
    });
    if result.is_err() {
        out.truncate(start);
    }
    result
}

/// Cuts a byte stream into frames, however the stream was split.
///
/// Holds at most one incomplete frame, so at most [`PAYLOAD_MAX`] and a header, plus what the last
/// read brought.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    buffer: Vec<u8>,
    /// Bytes before this were handed out.
    start: usize,
    /// Bytes from here on are free space.
    end: usize,
}

impl FrameDecoder {
    /// An empty decoder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Space of at least `wanted` bytes for the next read; tell [`Self::filled`] how many came.
    pub fn space(&mut self, wanted: usize) -> &mut [u8] {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            if self.buffer.len() > KEEP_CAPACITY.max(wanted) {
                self.buffer = Vec::new();
            }
        } else if self.buffer.len() - self.end < wanted {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.buffer.len() - self.end < wanted {
            self.buffer.resize(self.end + wanted, 0);
        }
        &mut self.buffer[self.end..]
    }

    /// Counts `n` bytes of the last [`Self::space`] as received.
    pub fn filled(&mut self, n: usize) {
        self.end = (self.end + n).min(self.buffer.len());
    }

    /// Copies `bytes` in; for callers that have them already.
    pub fn push(&mut self, bytes: &[u8]) {
        self.space(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.filled(bytes.len());
    }

    /// The next whole frame, if there is one.
    ///
    /// # Errors
    /// Anything [`Header::parse`] refuses. The stream cannot be resynchronised after that.
    pub fn next_frame(&mut self) -> Result<Option<(Header, &[u8])>, WireError> {
        let Some(header) = self.peek()? else {
            return Ok(None);
        };
        let from = self.start + HEADER_LEN;
        let len = header.len as usize;
        self.start = from + len;
        Ok(Some((header, &self.buffer[from..from + len])))
    }

    /// Whether [`Self::next_frame`] would give a frame.
    ///
    /// # Errors
    /// As [`Self::next_frame`].
    pub fn has_frame(&self) -> Result<bool, WireError> {
        Ok(self.peek()?.is_some())
    }

    /// The header of the next whole frame.
    fn peek(&self) -> Result<Option<Header>, WireError> {
        let have = &self.buffer[self.start..self.end];
        let Some((head, rest)) = have.split_first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let header = Header::parse(*head)?;
        Ok((rest.len() >= header.len as usize).then_some(header))
    }

    /// Whether no byte is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
}
