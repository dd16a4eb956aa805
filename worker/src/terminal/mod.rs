//! One shell on one pty: reading, typing, and how it ends.
//!
//! What lives here: the state of the terminal and its reads and writes. What must not: the link,
//! polling, other processes than the shell.

pub(crate) mod pty;

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::unistd::{Pid, read, write};
use shellward_protocol::WireError;
use shellward_protocol::limits::OUTPUT_CHUNK_MAX;
use shellward_protocol::message::{ExitStatus, Size};

use crate::cuts::Scanner;
use crate::input::{InputError, InputQueue};
use crate::outbox::Outbox;
use crate::utf8::{Decoder, pieces};
use pty::Pty;

/// The exit is announced when a job still holds the pty but nothing came for this long. The
/// shell's own last words are in the kernel's buffer by then and have been read.
const QUIET: Duration = Duration::from_millis(100);

/// A job that keeps printing does not hold the announcement up for longer than this.
const ANNOUNCE_MAX: Duration = Duration::from_secs(1);

/// More than the kernel keeps between a program and the reader of its pty: once this much was
/// read after the shell's death, what it wrote has been read.
const KERNEL_BUFFER: usize = 128 << 10;

/// How often a pty is looked at that nobody has open while its shell lives on. Rare (a shell that
/// redirected all its descriptors), and the kernel reports nothing when it is opened again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
struct End {
    status: ExitStatus,
    at: Instant,
}

/// When the exit is to be announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Now.
    Now,
    /// Not before this, unless something happens.
    At(Instant),
    /// When something happens.
    Later,
}

/// A terminal with its shell.
pub(crate) struct Terminal {
    /// Gone once everything is read and nobody can write any more.
    pty: Option<Box<dyn Pty>>,
    shell: Pid,
    decoder: Decoder,
    scanner: Scanner,
    input: InputQueue,
    end: Option<End>,
    last_output: Instant,
    read_since_end: usize,
    /// The last read found the pty empty.
    is_drained: bool,
    /// Nobody has the other side open, though the shell lives: when to look again.
    look_again: Option<Instant>,
    is_announced: bool,
}

impl Terminal {
    pub(crate) fn new(pty: Box<dyn Pty>, shell: Pid, now: Instant) -> Self {
        Self {
            pty: Some(pty),
            shell,
            decoder: Decoder::new(OUTPUT_CHUNK_MAX),
            scanner: Scanner::new(),
            input: InputQueue::default(),
            end: None,
            last_output: now,
            read_since_end: 0,
            is_drained: false,
            look_again: None,
            is_announced: false,
        }
    }

    pub(crate) fn shell(&self) -> Pid {
        self.shell
    }

    /// The descriptor to poll: none while there is nothing to learn from it. A pty that nobody has
    /// open reports a hang-up for ever.
    pub(crate) fn pollable(&self) -> Option<BorrowedFd<'_>> {
        match self.look_again {
            Some(_) => None,
            None => self.pty.as_ref().map(|pty| pty.fd()),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.pty.is_none()
    }

    /// Gives back memory that only a flood needs.
    pub(crate) fn rest(&mut self) {
        self.decoder.rest();
    }

    pub(crate) fn resize(&self, size: Size) {
        if let Some(pty) = &self.pty {
            // It fails only for a pty that is gone, whose size nobody sees.
            drop(pty.resize(size));
        }
    }

    /// Types bytes; as many as the pty takes go at once.
    pub(crate) fn push_input(&mut self, seq: u64, data: &[u8]) -> Result<(), InputError> {
        self.input.push(seq, data)?;
        self.write_input();
        Ok(())
    }

    pub(crate) fn wants_write(&self) -> bool {
        !self.input.is_empty()
    }

    pub(crate) fn input_taken(&self) -> u64 {
        self.input.taken()
    }

    /// Writes what waits, until the pty takes no more.
    pub(crate) fn write_input(&mut self) {
        while !self.input.is_empty() {
            let Some(pty) = &self.pty else {
                return self.input.discard();
            };
            match write(pty.fd(), self.input.front()) {
                Ok(0) | Err(Errno::EAGAIN) => return,
                Ok(n) => self.input.advance(n),
                Err(Errno::EINTR) => {}
                // Nobody has the other side open.
                Err(_) => return self.input.discard(),
            }
        }
    }

    /// Reads one turn's worth and queues it.
    pub(crate) fn read_output(
        &mut self,
        now: Instant,
        outbox: &mut Outbox,
    ) -> Result<(), WireError> {
        let mut is_hung_up = false;
        let mut total = 0;
        let room = outbox.room();
        self.look_again = None;
        self.is_drained = false;
        while let Some(pty) = &self.pty {
            let space = self.decoder.space();
            let len = space.len().min(room.saturating_sub(total));
            // The turn is over: what is left is reported again.
            let Some(space) = space.get_mut(..len).filter(|space| !space.is_empty()) else {
                break;
            };
            match read(pty.fd(), space) {
                Ok(0) => is_hung_up = true,
                Ok(n) => {
                    self.decoder.filled(n);
                    total += n;
                    continue;
                }
                Err(Errno::EINTR) => continue,
                Err(Errno::EAGAIN) => self.is_drained = true,
                // EIO: nobody has the other side open. Anything else will not get better.
                Err(_) => is_hung_up = true,
            }
            break;
        }
        if total > 0 {
            self.last_output = now;
            if self.end.is_some() {
                self.read_since_end = self.read_since_end.saturating_add(total);
            }
            let text = self.decoder.take();
            queue(&mut self.scanner, &text, outbox)?;
        }
        if is_hung_up {
            self.hang_up(now, outbox)?;
        }
        Ok(())
    }

    fn hang_up(&mut self, now: Instant, outbox: &mut Outbox) -> Result<(), WireError> {
        self.input.discard();
        if self.end.is_none() {
            // The shell may open its terminal again; closing our side would hang it up.
            self.look_again = Some(now + LOOK_AGAIN);
            return Ok(());
        }
        self.pty = None;
        let rest = self.decoder.finish();
        queue(&mut self.scanner, &rest, outbox)
    }

    /// The shell is dead. What it wrote last is still to be read.
    pub(crate) fn shell_ended(&mut self, status: ExitStatus, now: Instant) {
        if self.end.is_none() {
            self.end = Some(End { status, at: now });
            self.is_drained = false;
            self.look_again = None;
        }
    }

    /// Whether the pty must be read without being asked: after the shell's death until it was
    /// found empty once, and where polling says nothing.
    pub(crate) fn needs_read(&self, now: Instant) -> bool {
        let is_ending = self.end.is_some() && !self.is_announced && !self.is_drained;
        let is_due = self.look_again.is_some_and(|at| now >= at);
        self.pty.is_some() && (is_ending || is_due)
    }

    /// When to look again at a pty that cannot be polled.
    pub(crate) fn look_again_at(&self) -> Option<Instant> {
        self.look_again
    }

    /// When to announce the exit. `may_read` says whether output is being read at all: while the
    /// supervisor takes none, silence means nothing.
    pub(crate) fn exit_due(&self, now: Instant, may_read: bool) -> Due {
        let Some(end) = self.end.filter(|_| !self.is_announced) else {
            return Due::Later;
        };
        if self.pty.is_none() {
            return Due::Now;
        }
        if !may_read {
            return Due::Later;
        }
        let latest = end.at + ANNOUNCE_MAX;
        let due = if self.is_drained {
            latest.min(self.last_output.max(end.at) + QUIET)
        } else if self.read_since_end >= KERNEL_BUFFER {
            latest
        } else {
            return Due::Later;
        };
        if now >= due { Due::Now } else { Due::At(due) }
    }

    /// How the shell ended, if it is known.
    pub(crate) fn exit_status(&self) -> Option<ExitStatus> {
        self.end.map(|end| end.status)
    }

    pub(crate) fn is_announced(&self) -> bool {
        self.is_announced
    }

    pub(crate) fn set_announced(&mut self) {
        self.is_announced = true;
    }
}

/// Queues text in frames of a permitted size.
fn queue(scanner: &mut Scanner, text: &str, outbox: &mut Outbox) -> Result<(), WireError> {
    for piece in pieces(text, OUTPUT_CHUNK_MAX) {
        let mut cuts = Vec::new();
        scanner.scan(piece, &mut cuts);
        outbox.output(cuts, piece)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    struct NoPty(std::fs::File);

    impl Pty for NoPty {
        fn spawn(&mut self, _: &pty::Program) -> Result<u32, pty::PtyError> {
            Err(pty::PtyError::Binding("shell"))
        }
        fn resize(&self, _: Size) -> io::Result<()> {
            Ok(())
        }
        fn fd(&self) -> BorrowedFd<'_> {
            std::os::fd::AsFd::as_fd(&self.0)
        }
    }

    fn ended() -> (Terminal, Instant) {
        let now = Instant::now();
        let pty = NoPty(std::fs::File::open("/dev/null").unwrap());
        let mut terminal = Terminal::new(Box::new(pty), Pid::from_raw(1), now);
        terminal.shell_ended(ExitStatus::Code(0), now);
        (terminal, now)
    }

    #[test]
    fn exit_waits_for_the_pty_to_be_read() {
        let (mut terminal, now) = ended();
        assert_eq!(
            terminal.exit_due(now + Duration::from_secs(9), true),
            Due::Later
        );
        terminal.is_drained = true;
        assert_eq!(terminal.exit_due(now, true), Due::At(now + QUIET));
        assert_eq!(terminal.exit_due(now + QUIET, true), Due::Now);
        assert_eq!(terminal.exit_due(now + QUIET, false), Due::Later);
    }

    #[test]
    fn printing_job_holds_the_exit_up_for_a_second_only() {
        let (mut terminal, now) = ended();
        terminal.read_since_end = KERNEL_BUFFER;
        assert_eq!(terminal.exit_due(now, true), Due::At(now + ANNOUNCE_MAX));
        terminal.last_output = now + Duration::from_millis(950);
        terminal.is_drained = true;
        assert_eq!(terminal.exit_due(now, true), Due::At(now + ANNOUNCE_MAX));
    }

    #[test]
    fn closed_pty_announces_at_once_and_once() {
        let (mut terminal, now) = ended();
        let mut outbox = Outbox::default();
        terminal.read_output(now, &mut outbox).unwrap();
        assert!(terminal.is_closed());
        assert_eq!(terminal.exit_due(now, false), Due::Now);
        terminal.set_announced();
        assert_eq!(terminal.exit_due(now, true), Due::Later);
    }
}
