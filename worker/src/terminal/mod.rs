//! One shell, on a pty or on pipes: reading, typing, and how it ends.
//!
//! What lives here: what both have in common. What must not: the link, polling, other processes
//! than the shell.

mod keys;
mod on_pty;
pub(crate) mod pipes;
pub(crate) mod pty;

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use nix::unistd::Pid;
use shellward_protocol::WireError;
use shellward_protocol::kept;
use shellward_protocol::message::{Ended, ExitStatus, Marks, Size};

use crate::input::{InputError, InputQueue};
use crate::outbox::Outbox;
use crate::output::Output;
use on_pty::OnPty;
use pipes::Pipes;
use pty::Pty;

/// A job that still holds the terminal does not hold the announcement of the exit up for longer
/// than this.
const ANNOUNCE_MAX: Duration = Duration::from_secs(1);

/// Stands for the shell where there is none.
const NO_SHELL: Pid = Pid::from_raw(0);

/// Descriptors of a terminal to poll, and what for.
pub(crate) type Watched<'a> = [Option<(BorrowedFd<'a>, PollFlags)>; 3];

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

/// What typing has asked for besides bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Typed {
    /// Nothing.
    Bytes,
    /// What runs in the foreground is to be interrupted; on a pty the kernel does that.
    Interrupt,
}

/// What the shell sits on.
pub(crate) enum Side {
    Pty(OnPty),
    Pipes(Pipes),
    /// Nothing: the shell and the worker that had it are gone.
    Ended {
        was_pty: bool,
    },
}

impl Side {
    /// On a pty.
    pub(crate) fn pty(pty: Box<dyn Pty>, now: Instant) -> Self {
        Self::Pty(OnPty::new(pty, now))
    }
}

/// Where output goes: both streams of a terminal on pipes make one text.
struct Sink<'a> {
    output: &'a mut Output,
    outbox: &'a mut Outbox,
    now: Instant,
}

impl Sink<'_> {
    /// How many bytes may be read now.
    fn room(&self) -> usize {
        self.outbox.room()
    }

    /// Queues what was printed.
    fn text(&mut self, text: &str) -> Result<(), WireError> {
        self.output.take(text, self.now, self.outbox)
    }

    /// No more will come.
    fn finish(&mut self) -> Result<(), WireError> {
        self.output.finish(self.now, self.outbox)
    }
}

/// A terminal with its shell.
pub(crate) struct Terminal {
    side: Side,
    shell: Pid,
    output: Output,
    input: InputQueue,
    end: Option<End>,
    is_announced: bool,
}

impl Terminal {
    pub(crate) fn new(side: Side, shell: Pid, output: Output) -> Self {
        Self {
            side,
            shell,
            output,
            input: InputQueue::default(),
            end: None,
            is_announced: false,
        }
    }

    /// One whose shell has ended, which is known already.
    pub(crate) fn ended(ended: Ended, size: Size, now: Instant) -> Self {
        let side = Side::Ended {
            was_pty: ended.was_pty,
        };
        let output = Output::new(ended.was_pty, NO_SHELL, size, Marks::Strip, b"", None);
        Self {
            end: Some(End {
                status: ended.status,
                at: now,
            }),
            is_announced: true,
            ..Self::new(side, NO_SHELL, output)
        }
    }

    /// Whether a shell was started here. It may have ended.
    pub(crate) fn had_shell(&self) -> bool {
        self.shell != NO_SHELL
    }

    pub(crate) fn shell(&self) -> Pid {
        self.shell
    }

    pub(crate) fn is_pty(&self) -> bool {
        matches!(self.side, Side::Pty(_) | Side::Ended { was_pty: true })
    }

    /// What to poll; `may_read` says whether output is taken now.
    pub(crate) fn watched(&self, may_read: bool) -> Watched<'_> {
        let wants_write = !self.input.is_empty();
        match &self.side {
            Side::Pty(side) => side.watched(may_read, wants_write),
            Side::Pipes(side) => side.watched(may_read, wants_write),
            Side::Ended { .. } => [None; 3],
        }
    }

    /// Whether nothing can come any more.
    pub(crate) fn is_closed(&self) -> bool {
        match &self.side {
            Side::Pty(side) => side.is_closed(),
            Side::Pipes(side) => side.is_closed(),
            Side::Ended { .. } => true,
        }
    }

    /// Gives back memory that only a flood needs.
    pub(crate) fn rest(&mut self) {
        match &mut self.side {
            Side::Pty(side) => side.rest(),
            Side::Pipes(side) => side.rest(),
            Side::Ended { .. } => {}
        }
        self.output.rest();
    }

    pub(crate) fn size(&self) -> Size {
        self.output.size()
    }

    pub(crate) fn resize(&mut self, size: Size) {
        self.output.resize(size);
        match &self.side {
            Side::Pty(side) => side.resize(size),
            // Pipes have no size; the supervisor keeps it for those who ask.
            Side::Pipes(_) | Side::Ended { .. } => {}
        }
    }

    /// Types bytes; as many as are taken go at once.
    pub(crate) fn push_input(&mut self, seq: u64, data: &[u8]) -> Result<Typed, InputError> {
        let is_new = self.input.push(seq, data)?;
        self.write_input();
        if is_new {
            self.output.typed(data);
        }
        // At once, before what waits: a program that does not read must be reached, too.
        let interrupts = is_new && !self.is_pty() && keys::interrupts(data);
        Ok(if interrupts && self.end.is_none() {
            Typed::Interrupt
        } else {
            Typed::Bytes
        })
    }

    pub(crate) fn input_taken(&self) -> u64 {
        self.input.taken()
    }

    /// How far what was typed has come.
    pub(crate) fn typed(&self) -> kept::Typed {
        self.input.typed()
    }

    /// Writes what waits, until no more is taken.
    pub(crate) fn write_input(&mut self) {
        match &mut self.side {
            Side::Pty(side) => side.write(&mut self.input),
            Side::Pipes(side) => side.write(&mut self.input),
            Side::Ended { .. } => self.input.discard(),
        }
    }

    /// Reads one turn's worth and queues it.
    pub(crate) fn read_output(
        &mut self,
        now: Instant,
        outbox: &mut Outbox,
    ) -> Result<(), WireError> {
        let output = &mut self.output;
        let mut sink = Sink {
            output,
            outbox,
            now,
        };
        match &mut self.side {
            Side::Pty(side) => side.read(now, &mut self.input, &mut sink)?,
            Side::Pipes(side) => side.read(&mut sink)?,
            Side::Ended { .. } => {}
        }
        let answers = self.output.take_answers();
        if !answers.is_empty() {
            self.input.push_answers(&answers);
            self.write_input();
        }
        Ok(())
    }

    /// What is told before anything was printed.
    pub(crate) fn begin(&mut self, outbox: &mut Outbox) -> Result<(), WireError> {
        self.output.begin(outbox)
    }

    /// What is told before the exit is.
    pub(crate) fn end_output(
        &mut self,
        now: Instant,
        outbox: &mut Outbox,
    ) -> Result<(), WireError> {
        self.output.shell_ended(now, outbox)
    }

    /// The shell is dead. What it wrote last is still to be read.
    pub(crate) fn shell_ended(&mut self, status: ExitStatus, now: Instant) {
        if self.end.is_some() {
            return;
        }
        self.end = Some(End { status, at: now });
        match &mut self.side {
            Side::Pty(side) => side.shell_ended(now),
            Side::Pipes(side) => side.shell_ended(),
            Side::Ended { .. } => {}
        }
    }

    /// Whether output must be read without being asked.
    pub(crate) fn needs_read(&self, now: Instant) -> bool {
        match &self.side {
            Side::Pty(side) => side.needs_read(now, self.is_announced),
            // Polling tells everything about pipes.
            Side::Pipes(_) | Side::Ended { .. } => false,
        }
    }

    /// When to look again at what cannot be polled.
    pub(crate) fn look_again_at(&self) -> Option<Instant> {
        match &self.side {
            Side::Pty(side) => side.look_again_at(),
            Side::Pipes(_) | Side::Ended { .. } => None,
        }
    }

    /// When to announce the exit. `may_read` says whether output is being read at all: while the
    /// supervisor takes none, silence means nothing.
    pub(crate) fn exit_due(&self, now: Instant, may_read: bool) -> Due {
        let Some(end) = self.end.filter(|_| !self.is_announced) else {
            return Due::Later;
        };
        if self.is_closed() {
            return Due::Now;
        }
        if !may_read {
            return Due::Later;
        }
        match &self.side {
            Side::Pty(side) => side.exit_due(end.at, now),
            Side::Pipes(side) => side.exit_due(end.at, now),
            Side::Ended { .. } => Due::Now,
        }
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
