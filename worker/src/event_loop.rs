//! The one loop of a worker.
//!
//! What lives here: the order within a turn, what each message does, when the worker leaves; what
//! it waits for is in `wait`. What must not: how any of the parts does its work.

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
use shellward_protocol::message::{Command, Exited, Size, Start, Started};
use shellward_protocol::{FromWorker, Hello, ToWorker, WireError};

use crate::ending::{DEFAULT_GRACE, Ending};
use crate::faults;
use crate::link::{Admission, Link, LinkError, Pending, ReadEnd, greeting};
use crate::log;
use crate::outbox::Outbox;
use crate::start::start;
use crate::sys::{self, Reaped, reap};
use crate::terminal::{Due, Terminal, Typed};
use crate::tree;
use wait::Ready;

/// How long a fresh worker waits for its supervisor.
const FIRST_ATTACH_MAX: Duration = Duration::from_secs(10);

/// How long a worker waits for another supervisor when its link is lost.
const REATTACH_GRACE: Duration = Duration::from_secs(5);

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
    is_exit_acked: bool,
    has_children: bool,
    ending: Ending,
    /// Not to accept before this.
    accept_at: Option<Instant>,
    /// When to give memory back: a while after a flood or the start, once.
    tidy_at: Option<Instant>,
    /// When to report input that was taken, if no output takes the report along.
    report_at: Option<Instant>,
    /// When to give up without a link.
    alone_until: Option<Instant>,
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
            is_exit_acked: false,
            has_children: false,
            ending: Ending::Not,
            accept_at: None,
            tidy_at: None,
            report_at: None,
            alone_until: Some(Instant::now() + FIRST_ATTACH_MAX),
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
        if self.alone_until.is_some_and(|until| now >= until) {
            self.alone_until = None;
            log("no supervisor: ending");
            self.end(DEFAULT_GRACE, now);
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
        if let Some(terminal) = &self.terminal
            && self.is_exit_acked
            && terminal.is_closed()
            && !self.has_children
        {
            self.ending.leave(now);
        }
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

    fn attach(&mut self, link: Link, hello: &Hello, now: Instant) -> Result<(), LoopError> {
        if self.link.take().is_some() {
            log("another supervisor took over");
            self.outbox.detach();
        }
        self.epoch = hello.epoch;
        let mut bytes = greeting(self.me.as_raw().unsigned_abs(), self.epoch)?;
        if let Some(terminal) = &self.terminal {
            started(terminal).encode(&mut bytes)?;
        }
        self.outbox.attach(bytes);
        faults::hit("worker.attached");
        self.link = Some(link);
        self.alone_until = None;
        if self.terminal.as_ref().is_some_and(Terminal::is_announced) && !self.is_exit_acked {
            self.announce_exit()?;
        }
        // What came together with the hello is not reported by polling.
        self.read_link(now);
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

    fn obey(&mut self, message: ToWorker<'_>, now: Instant) -> Result<(), LinkError> {
        match message {
            ToWorker::Start(message) => self.start(&message, now)?,
            ToWorker::Input(input) => match &mut self.terminal {
                Some(terminal) => {
                    let typed = terminal.push_input(input.seq, input.data.as_slice())?;
                    if typed == Typed::Interrupt {
                        tree::interrupt(self.me, terminal.shell(), self.spares_shell);
                    }
                }
                // Its start failed; the supervisor learns that soon.
                None if self.is_started => {}
                None => return Err(LinkError::Order("input came before the start")),
            },
            ToWorker::Resize(size) => match &mut self.terminal {
                Some(terminal) => terminal.resize(size),
                None => self.size = Some(size),
            },
            ToWorker::Ack(ack) => self.outbox.ack(ack.offset)?,
            ToWorker::Terminate(terminate) => {
                faults::hit("worker.terminating");
                self.end(Duration::from_millis(terminate.grace_ms.into()), now);
            }
            ToWorker::AckExit => {
                if !self.terminal.as_ref().is_some_and(Terminal::is_announced) {
                    return Err(LinkError::Order(
                        "an exit was acknowledged that was not announced",
                    ));
                }
                self.is_exit_acked = true;
            }
        }
        Ok(())
    }

    fn start(&mut self, message: &Start<'_>, now: Instant) -> Result<(), LinkError> {
        if self.is_started {
            return Err(LinkError::Order("a second start came"));
        }
        self.is_started = true;
        self.spares_shell = message.command == Command::Shell;
        if self.ending != Ending::Not {
            return Ok(());
        }
        let size = self.size.unwrap_or(message.size);
        match start(message, size, now, &self.scripts) {
            Ok(mut terminal) => {
                self.has_children = true;
                self.tidy_at = Some(now + TIDY_AFTER);
                faults::hit("worker.started");
                self.outbox.announce(&started(&terminal))?;
                terminal.begin(&mut self.outbox)?;
                self.terminal = Some(terminal);
            }
            Err(error) => {
                let failed = error.to_message();
                log(&failed.reason);
                if error.is_fatal() {
                    // The link may be something else by now, and so may the signals.
                    std::process::abort();
                }
                self.outbox.announce(&FromWorker::StartFailed(failed))?;
                self.end(Duration::ZERO, now);
            }
        }
        Ok(())
    }

    fn announce_exit(&mut self) -> Result<(), WireError> {
        let Some(terminal) = &mut self.terminal else {
            return Ok(());
        };
        if let Some(status) = terminal.exit_status() {
            faults::hit("worker.exiting");
            terminal.end_output(Instant::now(), &mut self.outbox)?;
            terminal.set_announced();
            self.outbox
                .announce(&FromWorker::Exited(Exited { status }))?;
        }
        Ok(())
    }

    /// Sends what can be sent now.
    fn flush(&mut self, now: Instant) {
        if let Some(link) = &self.link
            && let Err(error) = self.outbox.write_to(&link.stream)
        {
            self.lose(&error.into(), now);
        }
    }

    fn lose(&mut self, error: &LinkError, now: Instant) {
        log(&format!("link lost: {error}"));
        self.link = None;
        self.outbox.detach();
        self.alone_until = Some(now + REATTACH_GRACE);
    }
}

fn started(terminal: &Terminal) -> FromWorker<'static> {
    FromWorker::Started(Started {
        shell_pid: terminal.shell().as_raw().unsigned_abs(),
        is_pty: terminal.is_pty(),
    })
}
