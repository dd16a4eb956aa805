//! The contract between the Shellward supervisor and its workers.
//!
//! One connection carries frames in both directions. A frame is a fixed header ([`frame`]) and a
//! payload. The first frame each side sends is a [`hello`], whose byte layout never changes; every
//! other payload is a message ([`message`]) encoded by [`codec`]. Kind numbers are fixed and never
//! reused; `tests/golden.rs` holds the bytes of every kind.
//!
//! What lives here: types, encoding, limits. What must not: input or output, unsafe code, time,
//! threads, anything that knows AHP or a pty.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod codec;
pub mod data;
mod direction;
pub mod error;
pub mod frame;
pub mod hello;
pub mod kept;
pub mod limits;
pub mod message;
pub mod modes;
pub mod text;
pub mod token;

pub use data::Data;
pub use error::WireError;
pub use frame::{FrameDecoder, Header};
pub use hello::{Hello, Role};
pub use message::{Boot, FromWorker, ProbeReport, ToWorker};
pub use modes::Modes;
pub use token::AttachToken;

/// The wire version this crate speaks: the number in every header it writes.
///
/// Also the name of the directory that holds the workers' sockets (`w1`), so that supervisors of
/// different wire versions can share a runtime directory.
pub const WIRE_VERSION: u16 = 1;

/// The oldest wire version this crate can still talk to.
pub const OLDEST_WIRE_VERSION: u16 = 1;
