//! Connections of supervisors: who may attach, and the frames that come in.
//!
//! What lives here: the greeting, the token and the epoch, reading frames. What must not: what a
//! message does (the event loop), what goes out (the outbox).

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use shellward_protocol::{
    AttachToken, FrameDecoder, Hello, OLDEST_WIRE_VERSION, Role, WIRE_VERSION, WireError,
};

use crate::input::InputError;
use crate::outbox::{AckError, SeedError};

/// How long a connection may take to say who it is.
const HELLO_MAX: Duration = Duration::from_secs(2);

/// How many bytes it may send before it has said so. A hello has 64; later versions may add some.
const HELLO_BYTES_MAX: usize = 4 << 10;

/// How much is read at once. Typed input is small; a paste takes a few more calls.
const READ_SIZE: usize = 16 << 10;

/// How much of one link is read in one turn, so that output is not held up by a paste.
const TURN_MAX: usize = 64 << 10;

/// Why a link ended. Each of these ends this connection and nothing else.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// The other side closed it.
    #[error("closed")]
    Closed,
    /// The socket failed.
    #[error("socket: {0}")]
    Socket(#[from] io::Error),
    /// It sent what is no frame or no message.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// It broke the order of input.
    #[error(transparent)]
    Input(#[from] InputError),
    /// It acknowledged what it cannot have.
    #[error(transparent)]
    Ack(#[from] AckError),
    /// It told what was before, and should not have.
    #[error(transparent)]
    Seed(#[from] SeedError),
    /// It broke another rule.
    #[error("{0}")]
    Order(&'static str),
    /// It may not attach.
    #[error("refused: {0}")]
    Refused(&'static str),
}

/// Who may attach.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) token: AttachToken,
    pub(crate) supervisor_uid: u32,
}

/// A connection with its incoming frames.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) stream: UnixStream,
    pub(crate) decoder: FrameDecoder,
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// What one read brought.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadEnd {
    /// Bytes; there may be more.
    Some(usize),
    /// Nothing for now.
    Empty,
}

impl Link {
    /// Reads once, at most `wanted` bytes.
    fn read(&mut self, wanted: usize) -> Result<ReadEnd, LinkError> {
        let space = self.decoder.space(wanted);
        let len = space.len().min(wanted);
        match (&self.stream).read(space.get_mut(..len).unwrap_or_default()) {
            Ok(0) => Err(LinkError::Closed),
            Ok(n) => {
                self.decoder.filled(n);
                Ok(ReadEnd::Some(n))
            }
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(ReadEnd::Empty)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Reads once of at most [`TURN_MAX`] a turn; `so_far` counts the turn's bytes.
    pub(crate) fn read_in_turn(&mut self, so_far: &mut usize) -> Result<ReadEnd, LinkError> {
        if *so_far >= TURN_MAX {
            return Ok(ReadEnd::Empty);
        }
        let end = self.read(READ_SIZE)?;
        if let ReadEnd::Some(n) = end {
            *so_far += n;
            if n < READ_SIZE {
                // The socket is empty; asking it again would cost an echo one more call.
                *so_far = TURN_MAX;
            }
        }
        Ok(end)
    }
}

/// A connection that has not proven anything yet.
#[derive(Debug)]
pub(crate) struct Pending {
    link: Link,
    received: usize,
    pub(crate) deadline: Instant,
}

impl AsFd for Pending {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }
}

impl Pending {
    /// Takes a connection, if the kernel says it is the right user's.
    pub(crate) fn new(
        stream: UnixStream,
        admission: &Admission,
        now: Instant,
    ) -> Result<Self, LinkError> {
        stream.set_nonblocking(true)?;
        let peer = getsockopt(&stream, PeerCredentials).map_err(io::Error::from)?;
        if peer.uid() != admission.supervisor_uid {
            return Err(LinkError::Refused("another user"));
        }
        Ok(Self {
            link: Link {
                stream,
                decoder: FrameDecoder::new(),
            },
            received: 0,
            deadline: now + HELLO_MAX,
        })
    }

    /// Reads on. Gives the hello once it is there and right.
    pub(crate) fn advance(
        &mut self,
        admission: &Admission,
        highest_epoch: u64,
    ) -> Result<Option<Hello>, LinkError> {
        match self.link.read(HELLO_BYTES_MAX)? {
            ReadEnd::Some(n) => self.received += n,
            ReadEnd::Empty => return Ok(None),
        }
        let Some((header, payload)) = self.link.decoder.next_frame()? else {
            if self.received >= HELLO_BYTES_MAX {
                return Err(LinkError::Refused("a hello of that length"));
            }
            return Ok(None);
        };
        let hello = Hello::decode(header, payload)?;
        check(&hello, admission, highest_epoch)?;
        Ok(Some(hello))
    }

    /// The link it has become; what came after the hello is in it.
    pub(crate) fn into_link(self) -> Link {
        self.link
    }
}

fn check(hello: &Hello, admission: &Admission, highest_epoch: u64) -> Result<(), LinkError> {
    if hello.role != Role::Supervisor {
        return Err(LinkError::Refused("not a supervisor"));
    }
    // The token before anything that a stranger could learn from.
    if !admission.token.matches(&hello.token) {
        return Err(LinkError::Refused("a wrong token"));
    }
    if hello.newest < OLDEST_WIRE_VERSION || hello.oldest > WIRE_VERSION {
        return Err(LinkError::Refused("no common wire version"));
    }
    if hello.epoch < highest_epoch {
        return Err(LinkError::Refused("an older supervisor"));
    }
    Ok(())
}

/// The answer to a supervisor that was let in.
pub(crate) fn greeting(pid: u32, epoch: u64) -> Result<Vec<u8>, WireError> {
    let mut bytes = Vec::new();
    Hello {
        oldest: OLDEST_WIRE_VERSION,
        newest: WIRE_VERSION,
        role: Role::Worker,
        pid,
        epoch,
        token: AttachToken::new([0; AttachToken::LEN]),
    }
    .encode(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            oldest: 1,
            newest: 1,
            role: Role::Supervisor,
            pid: 1,
            epoch: 5,
            token: AttachToken::new([7; AttachToken::LEN]),
        }
    }

    #[test]
    fn only_the_right_supervisor_is_let_in() {
        let admission = Admission {
            token: AttachToken::new([7; AttachToken::LEN]),
            supervisor_uid: 0,
        };
        let refused = |hello: Hello, epoch| match check(&hello, &admission, epoch) {
            Err(LinkError::Refused(why)) => Some(why),
            _ => None,
        };
        assert_eq!(refused(hello(), 5), None);
        assert_eq!(refused(hello(), 6), Some("an older supervisor"));
        let token = AttachToken::new([8; AttachToken::LEN]);
        assert_eq!(
            refused(Hello { token, ..hello() }, 0),
            Some("a wrong token")
        );
        let role = Role::Worker;
        assert_eq!(
            refused(Hello { role, ..hello() }, 0),
            Some("not a supervisor")
        );
        assert_eq!(
            refused(
                Hello {
                    oldest: 2,
                    newest: 3,
                    ..hello()
                },
                0
            ),
            Some("no common wire version")
        );
    }
}
