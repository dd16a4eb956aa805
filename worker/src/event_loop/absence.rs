//! How long a worker goes on without a supervisor.
//!
//! What lives here: the times. What must not: what happens when they have passed.

use std::time::{Duration, Instant};

use shellward_protocol::kept::Patience;

/// How long a fresh worker waits for its supervisor.
const FIRST_ATTACH_MAX: Duration = Duration::from_secs(10);

/// What time has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Passed {
    /// Output is not held back any longer.
    Grace,
    /// Nobody will come.
    Patience,
}

/// What is known about how long to wait, and the waiting.
#[derive(Debug)]
pub(super) struct Absence {
    /// Whether somebody reads the output at the supervisor.
    pub(super) is_watched: bool,
    grace: Duration,
    patience: Duration,
    held_until: Option<Instant>,
    alone_until: Option<Instant>,
}

impl Absence {
    /// A worker that nobody has attached to yet.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            is_watched: false,
            grace: Duration::ZERO,
            patience: Duration::ZERO,
            held_until: None,
            alone_until: Some(now + FIRST_ATTACH_MAX),
        }
    }

    /// There is something to keep now, for so long.
    pub(super) fn keep(&mut self, patience: Patience) {
        self.grace = Duration::from_millis(patience.reattach_grace_ms.into());
        self.patience = Duration::from_millis(patience.orphan_timeout_ms);
    }

    /// The supervisor is gone. Whether output is held back for the next one; that takes effect at
    /// once, the rest when it is due.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        // A time beyond all clocks is one for ever.
        self.alone_until = now.checked_add(self.patience);
        self.held_until = (self.is_watched && !self.grace.is_zero()).then(|| now + self.grace);
        self.held_until.is_some()
    }

    /// A supervisor is there.
    pub(super) fn end(&mut self) {
        self.held_until = None;
        self.alone_until = None;
    }

    /// What has passed since the last call.
    pub(super) fn advance(&mut self, now: Instant) -> Option<Passed> {
        if self.alone_until.take_if(|until| now >= *until).is_some() {
            self.held_until = None;
            return Some(Passed::Patience);
        }
        self.held_until
            .take_if(|until| now >= *until)
            .map(|_| Passed::Grace)
    }

    /// When [`Self::advance`] has something to say.
    pub(super) fn deadline(&self) -> Option<Instant> {
        [self.held_until, self.alone_until]
            .into_iter()
            .flatten()
            .min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn absence(is_watched: bool) -> (Absence, Instant) {
        let now = Instant::now();
        let mut absence = Absence::new(now);
        absence.is_watched = is_watched;
        absence.grace = Duration::from_secs(5);
        absence.patience = Duration::from_secs(60);
        (absence, now)
    }

    #[test]
    fn watched_output_is_held_back_for_a_while() {
        let (mut absence, now) = absence(true);
        assert!(absence.begin(now));
        assert_eq!(absence.advance(now), None);
        assert_eq!(absence.deadline(), Some(now + Duration::from_secs(5)));
        let later = now + Duration::from_secs(5);
        assert_eq!(absence.advance(later), Some(Passed::Grace));
        assert_eq!(absence.advance(later), None);
        let latest = now + Duration::from_secs(60);
        assert_eq!(absence.deadline(), Some(latest));
        assert_eq!(absence.advance(latest), Some(Passed::Patience));
        assert_eq!(absence.deadline(), None);
    }

    #[test]
    fn what_nobody_watches_runs_on_at_once() {
        let (mut absence, now) = absence(false);
        assert!(!absence.begin(now));
        assert_eq!(absence.deadline(), Some(now + Duration::from_secs(60)));
        absence.end();
        assert_eq!(absence.deadline(), None);
    }

    #[test]
    fn patience_beyond_all_clocks_never_ends() {
        let (mut absence, now) = absence(false);
        absence.patience = Duration::MAX;
        absence.begin(now);
        assert_eq!(absence.deadline(), None);
    }
}
