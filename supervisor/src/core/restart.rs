//! A new worker and a new shell for a terminal that goes on: because somebody asked for it, or
//! because its worker has crashed (`--restart on-crash`).
//!
//! URI, title, claim, size, directory and scrollback stay. While the shell of a running terminal is
//! replaced, its subscribers stay too and see no exit. One that has exited cannot run again for
//! those who have seen the exit (no action takes that back), so it leaves the list and comes back.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use shellward_protocol::Modes;
use shellward_protocol::message::Cut;

use super::card::Card;
use super::{Again, Call, Core, Effect, Gone, LOST, Phase, StartPlan, TerminalKey};
use crate::ahp::{RpcError, names};
use crate::limits::{CRASH_DELAYS, CRASH_TIME, TERMINATE_GRACE_MS};

impl Core {
    pub(super) fn restart_terminal(
        &mut self,
        call: &Call,
        uri: &str,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) -> Result<Option<String>, RpcError> {
        let key = self
            .live(uri)
            .ok_or_else(|| RpcError::not_found("there is no such terminal"))?;
        if self.shutting_down {
            return Err(RpcError::internal("the host is shutting down"));
        }
        let Some(terminal) = self.terminals.get_mut(&key) else {
            return Ok(None);
        };
        tracing::info!(connection = call.connection.0, terminal = %terminal.id, "a terminal's shell is started again");
        terminal.crashes.clear();
        let is_listed = terminal.exited_at.is_none();
        terminal.phase = Phase::Restarting {
            asked_by: Some(call.clone()),
            is_listed,
        };
        if !is_listed {
            self.drop_subscribers(key);
        }
        self.root_list_changed();
        match self
            .terminals
            .get(&key)
            .and_then(|found| found.link.as_ref())
        {
            Some(link) => {
                link.terminate(TERMINATE_GRACE_MS);
                effects.push(Effect::WatchEnd(key));
            }
            None => self.start_again(key, Duration::ZERO, now, effects),
        }
        Ok(None)
    }

    /// A terminal's worker has ended without its shell's end.
    pub(super) fn crashed(
        &mut self,
        key: TerminalKey,
        gone: &Gone,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let again = self.settings.restart_on_crash && !self.shutting_down;
        let Some(terminal) = self.terminals.get_mut(&key) else {
            return;
        };
        terminal
            .crashes
            .retain(|at| now.saturating_duration_since(*at) < CRASH_TIME);
        let count = terminal.crashes.len();
        let delay = CRASH_DELAYS.get(count).filter(|_| again).copied();
        let what_now = match delay {
            Some(_) => "its shell is started again".to_owned(),
            None if again => format!(
                "its shell has ended and is not started again, because this was the {}rd time in {} s",
                count + 1,
                CRASH_TIME.as_secs()
            ),
            None => "its shell has ended".to_owned(),
        };
        // Before the words: they are not the command's.
        self.close_command(key, now);
        let text = format!(
            "\r\n[shellward: the worker process of this terminal {}; {what_now}]\r\n",
            gone.words
        );
        self.output(key, &text, &[], None, now);
        let Some(terminal) = self.terminals.get_mut(&key) else {
            return;
        };
        match delay {
            None => {
                terminal.is_crashed = true;
                self.exited(key, gone.status, now, effects);
                self.keep(key, now, effects);
            }
            Some(delay) => {
                terminal.crashes.push_back(now);
                terminal.phase = Phase::Restarting {
                    asked_by: None,
                    is_listed: true,
                };
                self.start_again(key, delay, now, effects);
            }
        }
    }

    /// The worker of a terminal that is being restarted is gone: the next one.
    pub(super) fn start_again(
        &mut self,
        key: TerminalKey,
        delay: Duration,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        if self.shutting_down {
            self.start_failed(key, "the host is shutting down", now, effects);
            return;
        }
        self.close_command(key, now);
        let Some(terminal) = self.terminals.get_mut(&key) else {
            return;
        };
        terminal.document.run_again();
        terminal.exited_at = None;
        terminal.end = None;
        terminal.is_crashed = false;
        terminal.restarts = terminal.restarts.saturating_add(1);
        terminal.hold = None;
        terminal.figures.starts_again(now);
        self.metrics.worker_restarts.one();
        // The modes of the old shell are not the new one's.
        let text = format!(
            "{}\u{1b}[0m\r\n[shellward: the shell was started again at {}]\r\n",
            terminal.document.modes().change(Modes::default()),
            Timestamp::now().strftime("%Y-%m-%d %H:%M:%S UTC"),
        );
        let cut = Cut {
            at: u32::try_from(text.len()).unwrap_or_default(),
            modes: Modes::default(),
        };
        if terminal.is_listed() {
            self.output(key, &text, &[cut], None, now);
        } else {
            terminal.document.append(&text, &[cut]);
        }
        effects.extend(self.plan_again(key, delay).map(Effect::Start));
    }

    /// Another worker for a terminal that goes on: how to start it.
    pub(super) fn plan_again(&mut self, key: TerminalKey, delay: Duration) -> Option<StartPlan> {
        let terminal = self.terminals.get_mut(&key)?;
        terminal.place = 0;
        terminal.figures.changes_worker();
        let document = &terminal.document;
        Some(StartPlan {
            key,
            id: terminal.id.clone(),
            shell: terminal.shell.clone(),
            cwd: names::directory_from_uri(document.cwd())
                .unwrap_or_else(|_| self.settings.directory.clone()),
            size: document.size(),
            card: Card::of(terminal),
            again: Some(Again {
                commands: terminal.commands.count(),
                past: document.past(),
                delay,
            }),
            ended: None,
        })
    }

    /// No new shell: the terminal stays, exited.
    pub(super) fn restart_failed(
        &mut self,
        key: TerminalKey,
        reason: &str,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let Some(terminal) = self.terminals.get_mut(&key) else {
            return;
        };
        let Phase::Restarting { asked_by, .. } =
            std::mem::replace(&mut terminal.phase, Phase::Live)
        else {
            return;
        };
        let text = format!("\r\n[shellward: {reason}]\r\n");
        self.output(key, &text, &[], None, now);
        self.exited(key, LOST, now, effects);
        self.keep(key, now, effects);
        if let Some(call) = asked_by {
            self.answer(&call, Err(RpcError::internal(reason)));
        }
        self.run_waiting(key, now, effects);
        if self.shutting_down {
            self.end_all(effects);
        }
    }
}
