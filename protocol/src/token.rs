//! The secret that lets a supervisor attach to a worker.

use std::fmt;

/// 256 random bits, one per worker.
///
/// It reaches the worker by an inherited pipe and the socket in the first frame, and nothing else:
/// never argv, the environment, a log or an error.
#[derive(Clone)]
pub struct AttachToken([u8; Self::LEN]);

impl AttachToken {
    /// Length in bytes.
    pub const LEN: usize = 32;

    /// Wraps bytes that came from the system's random number generator.
    #[must_use]
    pub fn new(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// The bytes, to be written to the other side.
    #[must_use]
    pub fn expose(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// Whether both are the same, in time that does not depend on where they differ.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        let difference = self
            .0
            .iter()
            .zip(other.0.iter())
            .fold(0_u8, |difference, (a, b)| difference | (a ^ b));
        std::hint::black_box(difference) == 0
    }
}

impl fmt::Debug for AttachToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AttachToken(…)")
    }
}
