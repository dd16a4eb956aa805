//! How supervisors come and go.
//!
//! What lives here: the greeting of a terminal that runs already, and what a lost link leads to.
//! What must not: who may attach (the link), how long nobody may be there.

use std::time::{Duration, Instant};

use shellward_protocol::kept::Kept;
use shellward_protocol::message::Exited;
use shellward_protocol::{Data, FromWorker, Hello};

use super::{EventLoop, LoopError};
use crate::faults;
use crate::link::{Link, LinkError, greeting};
use crate::log;
use crate::terminal::Terminal;

/// In so many turns everything is read that a socket holds.
const LAST_TURNS: usize = 16;

impl EventLoop {
    pub(super) fn attach(
        &mut self,
        link: Link,
        hello: &Hello,
        now: Instant,
    ) -> Result<(), LoopError> {
        if self.link.take().is_some() {
            log("another supervisor took over");
            self.outbox.detach();
        }
        self.absence.end();
        self.epoch = hello.epoch;
        let mut bytes = greeting(self.me.as_raw().unsigned_abs(), self.epoch)?;
        if let Some(terminal) = &self.terminal {
            FromWorker::Kept(Box::new(self.kept(terminal))).encode(&mut bytes)?;
        }
        let taken = self.terminal.as_ref().map_or(0, Terminal::input_taken);
        self.outbox.attach(bytes, taken, self.terminal.is_some())?;
        faults::hit("worker.attached");
        self.link = Some(link);
        if let Some(terminal) = &self.terminal
            && terminal.is_announced()
            && let Some(status) = terminal.exit_status()
        {
            self.outbox
                .announce(&FromWorker::Exited(Exited { status }))?;
        }
        // What came together with the hello is not reported by polling.
        self.read_link(now);
        Ok(())
    }

    /// What the next supervisor must know. It borrows: what is in it may be large.
    fn kept(&self, terminal: &Terminal) -> Kept<'_> {
        let past = self.outbox.past();
        Kept {
            shell_pid: terminal.shell().as_raw().unsigned_abs(),
            is_pty: terminal.is_pty(),
            size: terminal.size(),
            started_ms: self.started_ms,
            card: Data::borrowed(&self.card),
            watched: self.absence.is_watched,
            typed: terminal.typed(),
            offset: self.outbox.acked(),
            trimmed: past.is_trimmed(),
            can_detect: past.can_detect(),
            commands: past.commands(),
            directory: past.directory().map(Data::borrowed),
            title: past.title().map(Data::borrowed),
            // It is bounded far below that.
            past: u32::try_from(past.len()).unwrap_or(u32::MAX),
        }
    }

    /// What a supervisor sent before it died is obeyed, also where writing finds out first.
    pub(super) fn take_last_words(&mut self, now: Instant) {
        if let Some(mut link) = self.link.take() {
            for _ in 0..LAST_TURNS {
                // Nobody is there to be told what was wrong with it.
                if self.take_messages(&mut link, now).is_err() {
                    break;
                }
            }
        }
    }

    pub(super) fn lose(&mut self, error: &LinkError, now: Instant) {
        log(&format!("link lost: {error}"));
        self.link = None;
        self.outbox.detach();
        if self.terminal.is_none() {
            // Nothing was started that could be kept.
            self.end(Duration::ZERO, now);
        } else if !self.absence.begin(now) {
            self.outbox.run_free();
        }
    }
}
