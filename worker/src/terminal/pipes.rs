//! The worker's side of a shell on three pipes: where there is no pty, or none is wanted.
//!
//! What lives here: starting the exec stage on pipes, reading both streams, typing. What must not:
//! what bytes mean (`keys`), whom an interrupt reaches (the event loop and `tree`).
//!
//! Output is in order of arrival as far as two pipes tell it: what came on one of them and was
//! read before anything came on the other stands before that. Where both have something when the
//! worker looks, stdout goes first: complaints mostly follow what they are about.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::PollFlags;
use nix::unistd::{pipe2, read, write};
use shellward_protocol::WireError;
use shellward_protocol::limits::OUTPUT_CHUNK_MAX;

use super::keys::translate;
use super::pty::{Cause, Program, PtyError};
use super::{ANNOUNCE_MAX, Due, Sink, Watched};
use crate::input::InputQueue;
use crate::sys;
use crate::utf8::Decoder;

/// How much is written at once. The kernel takes this much whole or not at all (PIPE_BUF), so a
/// line that is not longer arrives in one piece.
const WRITE_SIZE: usize = 4 << 10;

/// How much of each stream is read in a turn; both together are what a pty gets.
const READ_SIZE: usize = OUTPUT_CHUNK_MAX / 2;

/// One of the two ways out.
#[derive(Debug)]
struct Stream {
    /// Gone once it is read to its end.
    fd: Option<OwnedFd>,
    decoder: Decoder,
    /// Bytes that were in the pipe when the shell had ended and were not read yet: its last words
    /// are among them.
    owed: usize,
}

/// Three pipes.
#[derive(Debug)]
pub(crate) struct Pipes {
    /// Gone once the input has ended, or nobody can read it.
    stdin: Option<OwnedFd>,
    after_return: bool,
    out: Stream,
    err: Stream,
}

impl Pipes {
    /// Starts a program on pipes, with no terminal at all. Gives its process id, too.
    pub(crate) fn start(program: &Program) -> Result<(Self, u32), PtyError> {
        let pair = || pipe2(OFlag::O_CLOEXEC).map_err(failed);
        let (child_in, stdin) = pair()?;
        let (out, child_out) = pair()?;
        let (err, child_err) = pair()?;
        for fd in [&stdin, &out, &err] {
            // Our ends only: the other ends are other open files, and a program expects to wait.
            fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map_err(failed)?;
        }
        let stdio = [child_in, child_out, child_err];
        let pid = sys::spawn(program, stdio, sys::Session::Bare)
            .map_err(|error| PtyError::Spawn(Cause::from(error)))?;
        let pipes = Self {
            stdin: Some(stdin),
            after_return: false,
            out: Stream::new(out),
            err: Stream::new(err),
        };
        Ok((pipes, pid))
    }

    pub(super) fn is_closed(&self) -> bool {
        self.out.fd.is_none() && self.err.fd.is_none()
    }

    pub(super) fn rest(&mut self) {
        self.out.decoder.rest();
        self.err.decoder.rest();
    }

    /// A pipe that is polled for nothing still reports that the other side is gone, so it is left
    /// out then.
    pub(super) fn watched(&self, may_read: bool, wants_write: bool) -> Watched<'_> {
        let stdin = self.stdin.as_ref().filter(|_| wants_write);
        [
            stdin.map(|fd| (fd.as_fd(), PollFlags::POLLOUT)),
            self.out.watched(may_read),
            self.err.watched(may_read),
        ]
    }

    /// Writes what waits, until the pipe takes no more.
    pub(super) fn write(&mut self, input: &mut InputQueue) {
        let mut buffer = [0; WRITE_SIZE];
        while !input.is_empty() {
            let Some(stdin) = &self.stdin else {
                return input.discard();
            };
            let mut step = translate(input.front(), self.after_return, &mut buffer);
            if let Some(made) = buffer.get(..step.made).filter(|made| !made.is_empty()) {
                match write(stdin, made) {
                    Ok(n) if n == made.len() => {}
                    Ok(0) | Err(Errno::EAGAIN) => return,
                    Ok(n) => {
                        let part = buffer.get_mut(..n).unwrap_or_default();
                        step = translate(input.front(), self.after_return, part);
                    }
                    Err(Errno::EINTR) => continue,
                    // Nobody can read it any more, nor ever again: there is no way to open the
                    // other end anew.
                    Err(_) => {
                        self.stdin = None;
                        continue;
                    }
                }
            }
            self.after_return = step.after_return;
            input.advance(step.taken);
            if step.is_end {
                self.stdin = None;
            }
        }
    }

    /// Reads one turn's worth of both and queues it.
    pub(super) fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), WireError> {
        self.out.read(sink)?;
        self.err.read(sink)
    }

    /// The shell is dead: what is in the pipes now is to be read before its exit is told.
    pub(super) fn shell_ended(&mut self) {
        for stream in [&mut self.out, &mut self.err] {
            stream.owed = match &stream.fd {
                // It does not fail for a pipe.
                Some(fd) => sys::waiting(fd.as_fd()).unwrap_or_default(),
                None => 0,
            };
        }
    }

    /// When to announce the end of the shell, which came at `end`: the pipes are not closed, so a
    /// job has them.
    pub(super) fn exit_due(&self, end: Instant, now: Instant) -> Due {
        let latest = end + ANNOUNCE_MAX;
        if self.out.owed > 0 || self.err.owed > 0 {
            Due::Later
        } else if now >= latest {
            Due::Now
        } else {
            Due::At(latest)
        }
    }
}

fn failed(errno: Errno) -> PtyError {
    PtyError::Pipes(io::Error::from(errno))
}

impl Stream {
    fn new(fd: OwnedFd) -> Self {
        Self {
            fd: Some(fd),
            decoder: Decoder::new(READ_SIZE),
            owed: 0,
        }
    }

    fn watched(&self, may_read: bool) -> Option<(std::os::fd::BorrowedFd<'_>, PollFlags)> {
        let fd = self.fd.as_ref().filter(|_| may_read)?;
        Some((fd.as_fd(), PollFlags::POLLIN))
    }

    fn read(&mut self, sink: &mut Sink<'_>) -> Result<(), WireError> {
        let room = sink.room();
        let mut total = 0;
        let mut is_end = false;
        while let Some(fd) = &self.fd {
            let space = self.decoder.space();
            let len = space.len().min(room.saturating_sub(total));
            let Some(space) = space.get_mut(..len).filter(|space| !space.is_empty()) else {
                break;
            };
            match read(fd, space) {
                Ok(0) => is_end = true,
                Ok(n) => {
                    let is_all = n < space.len();
                    self.decoder.filled(n);
                    total += n;
                    // The pipe was empty a moment ago; asking again would cost an echo one call.
                    if is_all {
                        break;
                    }
                    continue;
                }
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => {}
                // A pipe has no other errors; none would get better.
                Err(_) => is_end = true,
            }
            break;
        }
        self.owed = self.owed.saturating_sub(total);
        if total > 0 {
            sink.text(&self.decoder.take())?;
        }
        if is_end {
            self.fd = None;
            self.owed = 0;
            sink.text(&self.decoder.finish())?;
        }
        Ok(())
    }
}
