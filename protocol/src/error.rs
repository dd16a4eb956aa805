//! What can be wrong with bytes from the other side.

/// Why a frame or a message was refused.
///
/// Each of these ends the connection it arrived on and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The first four bytes of a header are not ours.
    #[error("not a Shellward frame (it starts with {0:02x?})")]
    BadMagic([u8; 4]),
    /// The header names a wire version outside the window.
    #[error("wire version {got} is not among {oldest} to {newest}")]
    Version {
        /// What the header says.
        got: u16,
        /// [`crate::OLDEST_WIRE_VERSION`].
        oldest: u16,
        /// [`crate::WIRE_VERSION`].
        newest: u16,
    },
    /// The header claims a payload beyond [`crate::limits::PAYLOAD_MAX`].
    #[error("a frame of {0} bytes is over the limit")]
    TooLong(u64),
    /// The kind number is not one this direction knows.
    #[error("unknown frame kind {0}")]
    UnknownKind(u16),
    /// The payload is not what its kind prescribes.
    #[error("frame kind {kind}: {detail}")]
    Malformed {
        /// The kind number of the header.
        kind: u16,
        /// What is wrong, in words.
        detail: String,
    },
    /// A message cannot be encoded (it is over a limit).
    #[error("cannot encode frame kind {kind}: {detail}")]
    Unencodable {
        /// The kind number it would have.
        kind: u16,
        /// What is wrong, in words.
        detail: String,
    },
    /// The hello frame is not a hello.
    #[error("malformed hello: {0}")]
    BadHello(&'static str),
}
