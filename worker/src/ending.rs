//! How a worker and everything below it ends.
//!
//! What lives here: the steps from asking to killing to leaving, and their times. What must not:
//! the pty, the link.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::log;
use crate::tree;

/// The grace where nobody names one: a signal to the worker, or a supervisor that is gone.
pub(crate) const DEFAULT_GRACE: Duration = Duration::from_secs(2);

/// How long killing may take. Only a process that the kernel does not let go (state D), or one
/// that runs as somebody else, outlives it.
const KILLING_MAX: Duration = Duration::from_secs(5);

/// How often new processes are looked for while killing: one that was just forked escapes a look.
const KILL_AGAIN: Duration = Duration::from_millis(20);

/// How often at once. A parent that forks as fast as it can loses against this, not against one
/// look every 20 ms.
const LOOKS_MAX: usize = 10;

/// How long the supervisor may take for the last frames.
const LEAVING_MAX: Duration = Duration::from_secs(3);

/// Where in its life a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It serves.
    Not,
    /// Everything was asked to end.
    Asked { kill_at: Instant },
    /// Everything is being killed.
    Killing { again_at: Instant, until: Instant },
    /// Nothing is left but to say so.
    Leaving { until: Instant },
}

impl Ending {
    /// Asks everything below `me` to end: terminals' shells by HUP (they ignore TERM), stopped
    /// jobs by CONT (they see no signal before it), the rest by TERM. Asking again with a shorter
    /// grace shortens it.
    pub(crate) fn ask(&mut self, me: Pid, grace: Duration, now: Instant) {
        // A grace beyond all clocks is one for ever.
        let kill_at = now
            .checked_add(grace)
            .unwrap_or(now + Duration::from_secs(86_400));
        match self {
            Self::Not => {
                *self = Self::Asked { kill_at };
                for seen in tree::descendants(me) {
                    let signals = [Signal::SIGHUP, Signal::SIGCONT, Signal::SIGTERM];
                    tree::signal(me, seen, &signals);
                }
            }
            Self::Asked { kill_at: earlier } => *earlier = kill_at.min(*earlier),
            Self::Killing { .. } | Self::Leaving { .. } => {}
        }
    }

    /// Leaves; there is nothing to end.
    pub(crate) fn leave(&mut self, now: Instant) {
        if !matches!(self, Self::Leaving { .. }) {
            *self = Self::Leaving {
                until: now + LEAVING_MAX,
            };
        }
    }

    /// Takes the step that is due.
    pub(crate) fn advance(&mut self, me: Pid, has_children: bool, now: Instant) {
        match *self {
            Self::Not | Self::Leaving { .. } => {}
            Self::Asked { .. } | Self::Killing { .. } if !has_children => self.leave(now),
            Self::Asked { kill_at } if now >= kill_at => {
                kill_all(me);
                *self = Self::Killing {
                    again_at: now + KILL_AGAIN,
                    until: now + KILLING_MAX,
                };
            }
            Self::Killing { until, .. } if now >= until => {
                let left: Vec<String> = tree::descendants(me)
                    .iter()
                    .map(ToString::to_string)
                    .collect();
                log(&format!(
                    "processes that cannot be killed are left behind: {}",
                    left.join(" ")
                ));
                self.leave(now);
            }
            Self::Killing { again_at, until } if now >= again_at => {
                kill_all(me);
                *self = Self::Killing {
                    again_at: now + KILL_AGAIN,
                    until,
                };
            }
            Self::Asked { .. } | Self::Killing { .. } => {}
        }
    }

    /// When [`Self::advance`] has something to do.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match *self {
            Self::Not => None,
            Self::Asked { kill_at } => Some(kill_at),
            Self::Killing { again_at, .. } => Some(again_at),
            Self::Leaving { until } => Some(until),
        }
    }
}

fn kill_all(me: Pid) {
    let mut killed = HashSet::new();
    for _ in 0..LOOKS_MAX {
        let mut is_new = false;
        for seen in tree::descendants(me) {
            if !killed.contains(&seen) && tree::signal(me, seen, &[Signal::SIGKILL]) {
                killed.insert(seen);
                is_new = true;
            }
        }
        if !is_new {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_children_the_end_comes_at_once() {
        let (me, now) = (nix::unistd::getpid(), Instant::now());
        let mut ending = Ending::Asked {
            kill_at: now + Duration::from_secs(60),
        };
        ending.advance(me, true, now);
        assert!(matches!(ending, Ending::Asked { .. }));
        ending.advance(me, false, now);
        assert!(matches!(ending, Ending::Leaving { .. }));
    }

    #[test]
    fn a_second_request_only_shortens_the_grace() {
        let (me, now) = (nix::unistd::getpid(), Instant::now());
        let kill_at = now + Duration::from_secs(5);
        let mut ending = Ending::Asked { kill_at };
        ending.ask(me, Duration::from_secs(60), now);
        assert_eq!(ending, Ending::Asked { kill_at });
        ending.ask(me, Duration::from_secs(1), now);
        assert_eq!(ending.deadline(), Some(now + Duration::from_secs(1)));
    }
}
