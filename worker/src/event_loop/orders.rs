//! What each message of the supervisor does.
//!
//! What lives here: the order they may come in, and whom they concern. What must not: how any of
//! the parts does its work.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use shellward_protocol::kept::Patience;
use shellward_protocol::message::{Command, Exited, Mode, Start, Started};
use shellward_protocol::{FromWorker, ToWorker, WireError};

use super::{EventLoop, TIDY_AFTER};
use crate::ending::Ending;
use crate::faults;
use crate::link::LinkError;
use crate::log;
use crate::start::start;
use crate::terminal::{Terminal, Typed};
use crate::tree;

impl EventLoop {
    pub(super) fn obey(&mut self, message: ToWorker<'_>, now: Instant) -> Result<(), LinkError> {
        match message {
            ToWorker::Start(message) => self.start(&message, now)?,
            ToWorker::Past(past) => self.outbox.seed(past)?,
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
            // A supervisor that takes workers over says so first.
            ToWorker::Ack(_) if !self.is_started => {
                return Err(LinkError::Order("an acknowledgement came before the start"));
            }
            ToWorker::Ack(ack) => self.outbox.ack(ack.offset)?,
            ToWorker::Clear(clear) => self.outbox.clear(clear.offset)?,
            ToWorker::Watch(watch) => self.absence.is_watched = watch.watched,
            ToWorker::Patience(patience) => self.absence.keep(patience),
            ToWorker::Card(card) => self.card = card.into_vec(),
            ToWorker::Terminate(terminate) => {
                faults::hit("worker.terminating");
                self.end(Duration::from_millis(terminate.grace_ms.into()), now);
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
        let can_detect = matches!(message.mode, Mode::Ended(ended) if ended.can_detect);
        self.outbox.begin(message.commands, can_detect);
        if self.ending != Ending::Not {
            return Ok(());
        }
        self.card = message.card.as_slice().to_vec();
        self.absence.keep(Patience {
            reattach_grace_ms: message.reattach_grace_ms,
            orphan_timeout_ms: message.orphan_timeout_ms,
        });
        let size = self.size.unwrap_or(message.size);
        match start(message, size, now, &self.scripts) {
            Ok(mut terminal) => {
                self.has_children = terminal.had_shell();
                self.tidy_at = Some(now + TIDY_AFTER);
                // A clock before 1970 is wrong anyway.
                let since = SystemTime::now().duration_since(UNIX_EPOCH);
                let since = since.map_or(0, |since| since.as_millis());
                self.started_ms = u64::try_from(since).unwrap_or(u64::MAX);
                faults::hit("worker.started");
                self.outbox.announce(&started(&terminal))?;
                if terminal.had_shell() {
                    terminal.begin(&mut self.outbox)?;
                }
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

    pub(super) fn announce_exit(&mut self) -> Result<(), WireError> {
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
}

fn started(terminal: &Terminal) -> FromWorker<'static> {
    FromWorker::Started(Started {
        shell_pid: terminal.shell().as_raw().unsigned_abs(),
        is_pty: terminal.is_pty(),
    })
}
