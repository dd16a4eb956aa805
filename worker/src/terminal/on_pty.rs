//! The worker's side of a shell on a pty.
//!
//! What lives here: reading, typing, and when a pty is read to its end. What must not: opening one.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::unistd::{read, write};
use shellward_protocol::WireError;
use shellward_protocol::limits::OUTPUT_CHUNK_MAX;
use shellward_protocol::message::Size;

use super::pty::Pty;
use super::{ANNOUNCE_MAX, Due, Sink, Watched};
use crate::input::InputQueue;
use crate::utf8::Decoder;

/// The exit is announced when a job still holds the pty but nothing came for this long. The
/// shell's own last words are in the kernel's buffer by then and have been read.
const QUIET: Duration = Duration::from_millis(100);

/// More than the kernel keeps between a program and the reader of its pty: once this much was
/// read after the shell's death, what it wrote has been read.
const KERNEL_BUFFER: usize = 128 << 10;

/// How often a pty is looked at that nobody has open while its shell lives on. Rare (a shell that
/// redirected all its descriptors), and the kernel reports nothing when it is opened again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// A pty with what was read from it.
pub(crate) struct OnPty {
    /// Gone once everything is read and nobody can write any more.
    pty: Option<Box<dyn Pty>>,
    decoder: Decoder,
    last_output: Instant,
    /// When the shell ended, if it did.
    end: Option<Instant>,
    read_since_end: usize,
    /// The last read found the pty empty.
    is_drained: bool,
    /// Nobody has the other side open, though the shell lives: when to look again.
    look_again: Option<Instant>,
}

impl OnPty {
    pub(super) fn new(pty: Box<dyn Pty>, now: Instant) -> Self {
        Self {
            pty: Some(pty),
            decoder: Decoder::new(OUTPUT_CHUNK_MAX),
            last_output: now,
            end: None,
            read_since_end: 0,
            is_drained: false,
            look_again: None,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.pty.is_none()
    }

    pub(super) fn rest(&mut self) {
        self.decoder.rest();
    }

    pub(super) fn resize(&self, size: Size) {
        if let Some(pty) = &self.pty {
            // It fails only for a pty that is gone, whose size nobody sees.
            drop(pty.resize(size));
        }
    }

    /// The descriptor to poll: none while there is nothing to learn from it. A pty that nobody has
    /// open reports a hang-up for ever, and one that is polled for nothing still reports it.
    pub(super) fn watched(&self, may_read: bool, wants_write: bool) -> Watched<'_> {
        let mut events = PollFlags::empty();
        events.set(PollFlags::POLLIN, may_read);
        events.set(PollFlags::POLLOUT, wants_write);
        let fd = self
            .pty
            .as_ref()
            .filter(|_| self.look_again.is_none() && !events.is_empty())
            .map(|pty| (pty.fd(), events));
        [fd, None, None]
    }

    /// Writes what waits, until the pty takes no more.
    pub(super) fn write(&self, input: &mut InputQueue) {
        while !input.is_empty() {
            let Some(pty) = &self.pty else {
                return input.discard();
            };
            match write(pty.fd(), input.front()) {
                Ok(0) | Err(Errno::EAGAIN) => return,
                Ok(n) => input.advance(n),
                Err(Errno::EINTR) => {}
                // Nobody has the other side open.
                Err(_) => return input.discard(),
            }
        }
    }

    /// Reads one turn's worth and queues it.
    pub(super) fn read(
        &mut self,
        now: Instant,
        input: &mut InputQueue,
        sink: &mut Sink<'_>,
    ) -> Result<(), WireError> {
        let mut is_hung_up = false;
        let mut total = 0;
        let room = sink.room();
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
            sink.text(&self.decoder.take())?;
        }
        if is_hung_up {
            input.discard();
            self.hang_up(now, sink)?;
        }
        Ok(())
    }

    fn hang_up(&mut self, now: Instant, sink: &mut Sink<'_>) -> Result<(), WireError> {
        if self.end.is_none() {
            // The shell may open its terminal again; closing our side would hang it up.
            self.look_again = Some(now + LOOK_AGAIN);
            return Ok(());
        }
        self.pty = None;
        sink.text(&self.decoder.finish())?;
        sink.finish()
    }

    /// The shell is dead. What it wrote last is still to be read.
    pub(super) fn shell_ended(&mut self, now: Instant) {
        self.end = Some(now);
        self.is_drained = false;
        self.look_again = None;
    }

    /// Whether the pty must be read without being asked: after the shell's death until it was
    /// found empty once, and where polling says nothing.
    pub(super) fn needs_read(&self, now: Instant, is_announced: bool) -> bool {
        let is_ending = self.end.is_some() && !is_announced && !self.is_drained;
        let is_due = self.look_again.is_some_and(|at| now >= at);
        self.pty.is_some() && (is_ending || is_due)
    }

    /// When to look again at a pty that cannot be polled.
    pub(super) fn look_again_at(&self) -> Option<Instant> {
        self.look_again
    }

    /// When to announce the end of the shell, which came at `end`.
    pub(super) fn exit_due(&self, end: Instant, now: Instant) -> Due {
        let latest = end + ANNOUNCE_MAX;
        let due = if self.is_drained {
            latest.min(self.last_output.max(end) + QUIET)
        } else if self.read_since_end >= KERNEL_BUFFER {
            latest
        } else {
            return Due::Later;
        };
        if now >= due { Due::Now } else { Due::At(due) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Side, Terminal, pty};
    use super::*;
    use crate::outbox::Outbox;
    use crate::output::Output;
    use nix::unistd::Pid;
    use shellward_protocol::message::{ExitStatus, Marks};
    use std::io;
    use std::os::fd::{AsFd, BorrowedFd};

    struct NoPty(std::fs::File);

    impl Pty for NoPty {
        fn spawn(&mut self, _: &pty::Program) -> Result<u32, pty::PtyError> {
            Err(pty::PtyError::Binding("shell"))
        }
        fn resize(&self, _: Size) -> io::Result<()> {
            Ok(())
        }
        fn fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    fn ended(change: impl FnOnce(&mut OnPty, Instant)) -> (Terminal, Instant) {
        let now = Instant::now();
        let pty = NoPty(std::fs::File::open("/dev/null").unwrap());
        let mut side = OnPty::new(Box::new(pty), now);
        side.shell_ended(now);
        change(&mut side, now);
        let size = Size { cols: 80, rows: 24 };
        let shell = Pid::from_raw(1);
        let output = Output::new(true, shell, size, Marks::Strip, b"/", None);
        let mut terminal = Terminal::new(Side::Pty(side), shell, output);
        terminal.end = Some(super::super::End {
            status: ExitStatus::Code(0),
            at: now,
        });
        (terminal, now)
    }

    #[test]
    fn exit_waits_for_the_pty_to_be_read() {
        let (terminal, now) = ended(|_, _| {});
        let late = now + Duration::from_secs(9);
        assert_eq!(terminal.exit_due(late, true), Due::Later);
        let (terminal, now) = ended(|side, _| side.is_drained = true);
        assert_eq!(terminal.exit_due(now, true), Due::At(now + QUIET));
        assert_eq!(terminal.exit_due(now + QUIET, true), Due::Now);
        assert_eq!(terminal.exit_due(now + QUIET, false), Due::Later);
    }

    #[test]
    fn printing_job_holds_the_exit_up_for_a_second_only() {
        let (terminal, now) = ended(|side, _| side.read_since_end = KERNEL_BUFFER);
        assert_eq!(terminal.exit_due(now, true), Due::At(now + ANNOUNCE_MAX));
        let (terminal, now) = ended(|side, now| {
            side.last_output = now + Duration::from_millis(950);
            side.is_drained = true;
        });
        assert_eq!(terminal.exit_due(now, true), Due::At(now + ANNOUNCE_MAX));
    }

    #[test]
    fn closed_pty_announces_at_once_and_once() {
        let (mut terminal, now) = ended(|_, _| {});
        let mut outbox = Outbox::default();
        outbox.run_free();
        terminal.read_output(now, &mut outbox).unwrap();
        assert!(terminal.is_closed());
        assert_eq!(terminal.exit_due(now, false), Due::Now);
        terminal.set_announced();
        assert_eq!(terminal.exit_due(now, true), Due::Later);
    }
}
