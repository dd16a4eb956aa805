//! Terminals whose worker is gone and that stay on the list: they are given another one, which runs
//! nothing and keeps what was shown, so that they outlive this supervisor like all others.

use std::time::{Duration, Instant};

use shellward_protocol::message::Ended;

use super::{Core, Effect, Phase, Running, StartPlan, TerminalKey};
use crate::limits::CRASH_TIME;

impl Core {
    /// Has a worker started for an exited terminal that has none. Calls about it wait meanwhile:
    /// it takes as long as a start, less the shell's.
    pub(super) fn keep(&mut self, key: TerminalKey, now: Instant, effects: &mut Vec<Effect>) {
        let Some(terminal) = self.terminals.get_mut(&key) else {
            return;
        };
        let (Phase::Live, None, Some(status)) = (&terminal.phase, &terminal.link, terminal.end)
        else {
            return;
        };
        // Whatever ended the last one may end the next.
        let is_recent = |at| now.saturating_duration_since(at) < CRASH_TIME;
        if self.shutting_down || terminal.kept_at.is_some_and(is_recent) {
            return;
        }
        terminal.kept_at = Some(now);
        terminal.phase = Phase::Keeping;
        let ended = Some(Ended {
            status,
            was_pty: terminal.document.is_pty(),
            can_detect: terminal.document.detects_commands(),
        });
        let plan = self.plan_again(key, Duration::ZERO);
        effects.extend(plan.map(|plan| Effect::Start(StartPlan { ended, ..plan })));
    }

    /// Its worker keeps what was shown from now on.
    pub(super) fn kept(
        &mut self,
        key: TerminalKey,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) -> Option<Running> {
        let terminal = self.terminals.get_mut(&key)?;
        let running = terminal.linked();
        self.keeping_ends(key, now, effects);
        Some(running)
    }

    /// It has to do without a worker: it is gone when this supervisor ends, as operators may see from
    /// there being none.
    pub(super) fn keep_failed(
        &mut self,
        key: TerminalKey,
        reason: &str,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(terminal) = self.terminals.get_mut(&key) {
            tracing::warn!(terminal = %terminal.id, %reason, "an exited terminal will not outlive this supervisor");
            terminal.worker_pid = None;
        }
        self.keeping_ends(key, now, effects);
    }

    fn keeping_ends(&mut self, key: TerminalKey, now: Instant, effects: &mut Vec<Effect>) {
        if let Some(terminal) = self.terminals.get_mut(&key) {
            terminal.phase = Phase::Live;
        }
        effects.push(Effect::Reschedule);
        self.run_waiting(key, now, effects);
        if self.shutting_down {
            self.end_all(effects);
        }
    }
}
