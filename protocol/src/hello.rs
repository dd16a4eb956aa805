//! The first frame of each side. Its layout is frozen for ever.
//!
//! ```text
//! 0..2   oldest wire version the sender speaks  u16 little-endian
//! 2..4   newest wire version the sender speaks  u16 little-endian
//! 4      role: 1 supervisor, 2 worker
//! 5..8   zero
//! 8..12  process id of the sender               u32 little-endian
//! 12..20 epoch                                  u64 little-endian
//! 20..52 attach token (supervisor), zeros (worker)
//! 52..   ignored: room for later versions
//! ```
//!
//! Written by hand, so that no codec change can move a byte of it.

use crate::error::WireError;
use crate::frame::{Header, write_frame};
use crate::message::kind;
use crate::token::AttachToken;

/// Length of the part that is read, in bytes.
const FIXED_LEN: usize = 52;

/// Who sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The supervisor; sends its hello first.
    Supervisor,
    /// The worker; answers only if the token is right.
    Worker,
}

/// The contents of a hello.
#[derive(Debug, Clone)]
pub struct Hello {
    /// Oldest wire version the sender speaks.
    pub oldest: u16,
    /// Newest wire version the sender speaks.
    pub newest: u16,
    /// Who sends.
    pub role: Role,
    /// Process id of the sender.
    pub pid: u32,
    /// Supervisor: its epoch, which grows with every start. Worker: the highest it has obeyed.
    pub epoch: u64,
    /// Supervisor: proves the right to attach. Worker: zeros.
    pub token: AttachToken,
}

impl Hello {
    /// Appends the frame to `out`.
    ///
    /// # Errors
    /// None in practice: the length is fixed.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        write_frame(kind::HELLO, out, |out| {
            out.extend_from_slice(&self.oldest.to_le_bytes());
            out.extend_from_slice(&self.newest.to_le_bytes());
            out.push(match self.role {
                Role::Supervisor => 1,
                Role::Worker => 2,
            });
            out.extend_from_slice(&[0; 3]);
            out.extend_from_slice(&self.pid.to_le_bytes());
            out.extend_from_slice(&self.epoch.to_le_bytes());
            out.extend_from_slice(self.token.expose());
            Ok(())
        })
    }

    /// Reads a hello from a frame.
    ///
    /// # Errors
    /// Another kind, too few bytes, an unknown role, an empty version window.
    pub fn decode(header: Header, payload: &[u8]) -> Result<Self, WireError> {
        if header.kind != kind::HELLO {
            return Err(WireError::BadHello("the first frame is of another kind"));
        }
        let Some(fixed) = payload.first_chunk::<FIXED_LEN>() else {
            return Err(WireError::BadHello("too short"));
        };
        let role = match fixed[4] {
            1 => Role::Supervisor,
            2 => Role::Worker,
            _ => return Err(WireError::BadHello("unknown role")),
        };
        let oldest = u16::from_le_bytes([fixed[0], fixed[1]]);
        let newest = u16::from_le_bytes([fixed[2], fixed[3]]);
        if oldest > newest {
            return Err(WireError::BadHello("no wire version between its bounds"));
        }
        let mut pid = [0; 4];
        pid.copy_from_slice(&fixed[8..12]);
        let mut epoch = [0; 8];
        epoch.copy_from_slice(&fixed[12..20]);
        let mut token = [0; AttachToken::LEN];
        token.copy_from_slice(&fixed[20..52]);
        Ok(Self {
            oldest,
            newest,
            role,
            pid: u32::from_le_bytes(pid),
            epoch: u64::from_le_bytes(epoch),
            token: AttachToken::new(token),
        })
    }
}
