//! The one loop of a worker.
//!
//! What lives here: the order within a turn, when the worker leaves. What it waits for is in `wait`,
//! what each message does in `orders`, how supervisors come and go in `attach`, and how long none
//! may be there in `absence`. What must not: how any of the parts does its work.

mod absence;
mod attach;
mod orders;
mod wait;

use std::io;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::signal::Signal;
use nix::sys::signalfd::SignalFd;
use nix::unistd::Pid;
use shellward_protocol::message::Size;
use shellward_protocol::{ToWorker, WireError};

use crate::ending::{DEFAULT_GRACE, Ending};
use crate::faults;
use crate::link::{Admission, Link, LinkError, Pending, ReadEnd};
use crate::log;
use crate::outbox::Outbox;
use crate::sys::{self, Reaped, reap};
use crate::terminal::{Due, Terminal};
use absence::{Absence, Passed};
use wait::Ready;

/// How long to leave the listener alone after it failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Input that was taken is reported with the next output, which is nearly always its echo; if none
/// comes, after this long.
const REPORT_AFTER: Duration = Duration::from_millis(20);

/// More input than this is reported at once: the supervisor counts it as waiting until then.
const REPORT_STRIDE: u64 = 64 << 10;

/// How long after the last large frame memory is given back.
const TIDY_AFTER: Duration = Duration::from_secs(1);

/// How many connections may be saying who they are. More wait in the kernel's queue.
const PENDING_MAX: usize = 4;

/// What ends the loop other than its own decision.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoopError {
    #[error("cannot poll")]
    Poll(#[source] io::Error),
    #[error("cannot read signals")]
    Signals(#[source] io::Error),
    #[error("cannot wait for children")]
    Wait(#[source] io::Error),
    #[error("cannot make a frame")]
    Frame(#[from] WireError),
}

/// Everything a worker is.
pub(crate) struct EventLoop {
    listener: UnixListener,
    signals: SignalFd,
    admission: Admission,
    me: Pid,
    /// Where the files of shell integration may be put.
    scripts: PathBuf,
    pending: Vec<Pending>,
    link: Option<Link>,
    outbox: Outbox,
    /// The highest epoch that attached.
    epoch: u64,
    terminal: Option<Terminal>,
    /// Start came, whatever became of it.
    is_started: bool,
    /// An interrupt on pipes is not for the shell itself: it reads commands.
    spares_shell: bool,
    /// A size that came before the pty.
    size: Option<Size>,
    /// What the supervisor noted about the terminal; it is told to the next one.
    card: Vec<u8>,
    /// When the shell was started, in milliseconds since 1970.
    started_ms: u64,
    absence: Absence,
    has_children: bool,
    ending: Ending,
    /// Not to accept before this.
    accept_at: Option<Instant>,
    /// When to give memory back: a while after a flood or the start, once.
    tidy_at: Option<Instant>,
    /// When to report input that was taken, if no output takes the report along.
    report_at: Option<Instant>,
}

impl EventLoop {
    pub(crate) fn new(
        listener: UnixListener,
        signals: SignalFd,
        admission: Admission,
        me: Pid,
        scripts: PathBuf,
    ) -> Self {
        Self {
            listener,
            signals,
            admission,
            me,
            scripts,
            pending: Vec::new(),
            link: None,
            outbox: Outbox::default(),
            epoch: 0,
            terminal: None,
            is_started: false,
            spares_shell: true,
            size: None,
            card: Vec::new(),
            started_ms: 0,
            absence: Absence::new(Instant::now()),
            has_children: false,
            ending: Ending::Not,
            accept_at: None,
            tidy_at: None,
            report_at: None,
        }
    }

    /// Serves until there is nothing left to serve.
    pub(crate) fn run(mut self) -> Result<(), LoopError> {
        loop {
            let now = Instant::now();
            self.advance(now)?;
            if self.is_done(now) {
                faults::hit("worker.leaving");
                return Ok(());
            }
            let ready = self.wait(now)?;
            self.handle(&ready)?;
        }
    }

    /// Everything that happens by time or follows from a change, not from a descriptor.
    fn advance(&mut self, now: Instant) -> Result<(), LoopError> {
        self.accept_at = self.accept_at.filter(|at| now < *at);
        self.pending.retain(|pending| now < pending.deadline);
        match self.absence.advance(now) {
            Some(Passed::Grace) => self.outbox.run_free(),
            Some(Passed::Patience) => {
                log("no supervisor: ending");
                self.outbox.run_free();
                self.end(DEFAULT_GRACE, now);
            }
            None => {}
        }
        self.ending.advance(self.me, self.has_children, now);
        if let Some(terminal) = &mut self.terminal {
            if self.outbox.has_room() && terminal.needs_read(now) {
                terminal.read_output(now, &mut self.outbox)?;
            }
            if terminal.exit_due(now, self.outbox.has_room()) == Due::Now {
                self.announce_exit()?;
            }
        }
        self.report_input(now)?;
        self.flush(now);
        self.tidy(now);
        Ok(())
    }

    fn report_input(&mut self, now: Instant) -> Result<(), WireError> {
        let total = self.terminal.as_ref().map_or(0, Terminal::input_taken);
        let unreported = self.outbox.unreported_input(total);
        let is_due = self.report_at.is_some_and(|at| now >= at);
        if unreported == 0 {
            self.report_at = None;
        } else if is_due || unreported >= REPORT_STRIDE || self.outbox.is_sending() {
            self.report_at = None;
            self.outbox.input_taken(total)?;
        } else if self.report_at.is_none() {
            self.report_at = Some(now + REPORT_AFTER);
        }
        Ok(())
    }

    /// Gives back what a flood or the start has taken, so that hundreds of idle terminals are
    /// cheap. Later flooding puts it off, so that it costs one wake-up and no throughput.
    fn tidy(&mut self, now: Instant) {
        if self.outbox.take_slack() {
            self.tidy_at = Some(now + TIDY_AFTER);
        }
        if self.tidy_at.is_some_and(|at| now >= at) {
            self.tidy_at = None;
            if let Some(terminal) = &mut self.terminal {
                terminal.rest();
            }
            self.outbox.rest();
            sys::trim_memory();
        }
    }

    /// Whether to leave now.
    fn is_done(&mut self, now: Instant) -> bool {
        let Ending::Leaving { until } = self.ending else {
            return false;
        };
        let is_told = self.outbox.is_empty()
            && self
                .terminal
                .as_ref()
                .is_none_or(|terminal| terminal.is_announced() || terminal.exit_status().is_none());
        is_told || self.link.is_none() || now >= until
    }

    /// Signals, typed input, output, and only then strangers.
    fn handle(&mut self, ready: &Ready) -> Result<(), LoopError> {
        let now = Instant::now();
        if ready.signals {
            self.read_signals(now)?;
        }
        // A hang-up without data is read too: the read tells the end.
        if ready
            .link
            .intersects(PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR)
        {
            self.read_link(now);
        }
        if let Some(terminal) = &mut self.terminal {
            if ready
                .terminal
                .intersects(PollFlags::POLLOUT | PollFlags::POLLERR)
            {
                terminal.write_input();
            }
            let is_readable = PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR;
            if ready.terminal.intersects(is_readable) && self.outbox.has_room() {
                terminal.read_output(now, &mut self.outbox)?;
                faults::hit("worker.output-read");
                self.report_input(now)?;
                self.flush(now);
                faults::hit("worker.output-sent");
            }
        }
        self.greet(&ready.pending, now)?;
        if ready.listener {
            self.accept(now);
        }
        Ok(())
    }

    fn read_signals(&mut self, now: Instant) -> Result<(), LoopError> {
        loop {
            match self.signals.read_signal() {
                Ok(Some(info)) if info.ssi_signo == Signal::SIGCHLD as u32 => {}
                Ok(Some(_)) => self.end(DEFAULT_GRACE, now),
                Ok(None) | Err(Errno::EAGAIN) => break,
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(LoopError::Signals(errno.into())),
            }
        }
        self.reap(now)
    }

    /// One SIGCHLD may stand for many children.
    fn reap(&mut self, now: Instant) -> Result<(), LoopError> {
        loop {
            match reap().map_err(LoopError::Wait)? {
                Reaped::Ended(pid, status) => {
                    if let Some(terminal) = &mut self.terminal
                        && terminal.shell() == pid
                    {
                        terminal.shell_ended(status, now);
                    }
                }
                Reaped::NoneEnded => {
                    self.has_children = true;
                    return Ok(());
                }
                Reaped::NoChildren => {
                    self.has_children = false;
                    return Ok(());
                }
            }
        }
    }

    fn end(&mut self, grace: Duration, now: Instant) {
        if self.has_children {
            self.ending.ask(self.me, grace, now);
        } else {
            self.ending.leave(now);
        }
    }

    fn accept(&mut self, now: Instant) {
        let admitted = match self.listener.accept() {
            Ok((stream, _)) => Pending::new(stream, &self.admission, now),
            Err(error) => {
                // Most likely the caller went away again. If the machine has no descriptors left,
                // trying again at once would be a busy loop.
                if error.kind() != io::ErrorKind::WouldBlock {
                    self.accept_at = Some(now + ACCEPT_PAUSE);
                }
                return;
            }
        };
        match admitted {
            Ok(pending) => self.pending.push(pending),
            Err(error) => log(&format!("connection: {error}")),
        }
    }

    /// Lets connections say who they are. One that may attach replaces the link.
    fn greet(&mut self, ready: &[bool; PENDING_MAX], now: Instant) -> Result<(), LoopError> {
        let all = std::mem::take(&mut self.pending);
        for (index, mut pending) in all.into_iter().enumerate() {
            if !ready.get(index).copied().unwrap_or(false) {
                self.pending.push(pending);
                continue;
            }
            match pending.advance(&self.admission, self.epoch) {
                Ok(None) => self.pending.push(pending),
                Ok(Some(hello)) => self.attach(pending.into_link(), &hello, now)?,
                Err(error) => log(&format!("connection: {error}")),
            }
        }
        Ok(())
    }

    /// Reads one turn's worth of messages.
    fn read_link(&mut self, now: Instant) {
        let Some(mut link) = self.link.take() else {
            return;
        };
        match self.take_messages(&mut link, now) {
            Ok(()) => self.link = Some(link),
            Err(error) => self.lose(&error, now),
        }
    }

    fn take_messages(&mut self, link: &mut Link, now: Instant) -> Result<(), LinkError> {
        let mut so_far = 0;
        loop {
            while let Some((header, payload)) = link.decoder.next_frame()? {
                let message = ToWorker::decode(header, payload)?;
                self.obey(message, now)?;
            }
            if link.read_in_turn(&mut so_far)? == ReadEnd::Empty {
                return Ok(());
            }
        }
    }

    /// Sends what can be sent now.
    fn flush(&mut self, now: Instant) {
        if let Some(link) = &self.link
            && let Err(error) = self.outbox.write_to(&link.stream)
        {
            self.take_last_words(now);
            self.lose(&error.into(), now);
        }
    }
}
