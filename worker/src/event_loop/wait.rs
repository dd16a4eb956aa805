//! What the loop waits for.
//!
//! What lives here: choosing descriptors, interests and the time-out, and polling. What must not:
//! acting on any of it.
//!
//! Level-triggered: whatever is not handled in one turn is reported again in the next. A
//! descriptor is polled only for what can be acted on now, so that an idle or a stalled worker
//! does not wake up at all.

use std::os::fd::AsFd;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{EventLoop, LoopError, PENDING_MAX};
use crate::terminal::Due;

/// What one poll reported.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) signals: bool,
    pub(super) listener: bool,
    pub(super) link: PollFlags,
    /// Of all descriptors of the terminal together.
    pub(super) terminal: PollFlags,
    pub(super) pending: [bool; PENDING_MAX],
}

impl Ready {
    const NOTHING: Self = Self {
        signals: false,
        listener: false,
        link: PollFlags::empty(),
        terminal: PollFlags::empty(),
        pending: [false; PENDING_MAX],
    };
}

impl EventLoop {
    /// When something happens by time alone.
    fn deadline(&self, now: Instant) -> Option<Instant> {
        let terminal = self.terminal.as_ref();
        let exit = match terminal.map(|terminal| terminal.exit_due(now, self.outbox.has_room())) {
            Some(Due::Now) => Some(now),
            Some(Due::At(at)) => Some(at),
            Some(Due::Later) | None => None,
        };
        let read = terminal
            .filter(|_| self.outbox.has_room())
            .and_then(|terminal| match terminal.needs_read(now) {
                true => Some(now),
                false => terminal.look_again_at(),
            });
        self.pending
            .iter()
            .map(|pending| pending.deadline)
            .chain(
                [
                    self.absence.deadline(),
                    self.accept_at,
                    self.tidy_at,
                    self.report_at,
                    self.ending.deadline(),
                    exit,
                    read,
                ]
                .into_iter()
                .flatten(),
            )
            .min()
    }

    /// Waits for something to do.
    pub(super) fn wait(&self, now: Instant) -> Result<Ready, LoopError> {
        let timeout = match self.deadline(now) {
            None => PollTimeout::NONE,
            // Rounded up: a wait of zero milliseconds for half a one is a busy loop.
            Some(at) => {
                let left = at
                    .saturating_duration_since(now)
                    .as_nanos()
                    .div_ceil(1_000_000);
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            }
        };
        let may_accept = self.pending.len() < PENDING_MAX && self.accept_at.is_none();
        let mut link_events = PollFlags::POLLIN;
        link_events.set(PollFlags::POLLOUT, self.outbox.wants_write());
        let watched = match &self.terminal {
            Some(terminal) => terminal.watched(self.outbox.has_room()),
            None => [None; 3],
        };

        let mut fds = Vec::with_capacity(6 + PENDING_MAX);
        fds.push(PollFd::new(self.signals.as_fd(), PollFlags::POLLIN));
        let listener_at = fds.len();
        if may_accept {
            fds.push(PollFd::new(self.listener.as_fd(), PollFlags::POLLIN));
        }
        let link_at = fds.len();
        if let Some(link) = &self.link {
            fds.push(PollFd::new(link.as_fd(), link_events));
        }
        let terminal_at = fds.len();
        for (fd, events) in watched.into_iter().flatten() {
            fds.push(PollFd::new(fd, events));
        }
        let pending_at = fds.len();
        for pending in &self.pending {
            fds.push(PollFd::new(pending.as_fd(), PollFlags::POLLIN));
        }

        match poll(&mut fds, timeout) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(Ready::NOTHING),
            Err(errno) => return Err(LoopError::Poll(errno.into())),
        }
        let events = |at: usize| {
            fds.get(at)
                .and_then(PollFd::revents)
                .unwrap_or(PollFlags::empty())
        };
        let mut ready = Ready {
            signals: !events(0).is_empty(),
            listener: may_accept && !events(listener_at).is_empty(),
            ..Ready::NOTHING
        };
        if self.link.is_some() {
            ready.link = events(link_at);
        }
        for at in terminal_at..pending_at {
            ready.terminal |= events(at);
        }
        for (index, is_ready) in ready.pending.iter_mut().enumerate() {
            *is_ready = !events(pending_at + index).is_empty();
        }
        Ok(ready)
    }
}
