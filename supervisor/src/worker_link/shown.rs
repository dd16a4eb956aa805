//! When output may be acknowledged: once a reader's socket has it.
//!
//! What is acknowledged the worker may let go of, and the next supervisor shows it as the past. So
//! nothing is, before the fastest of the readers has been sent it: what still waits here when this
//! process dies is sent again by the worker. Where nobody reads, it is acknowledged at once.

use std::collections::VecDeque;

use crate::core::Shared;
use crate::outbox::Mark;

/// Strides of a worker's stream that wait to be acknowledged, oldest first; at most as many as its
/// window holds.
#[derive(Debug, Default)]
pub(super) struct Shown {
    strides: VecDeque<Stride>,
    /// The readers that the marks are of.
    readers: u64,
}

#[derive(Debug)]
struct Stride {
    end: u64,
    /// Absent until it was looked who reads.
    marks: Option<Vec<Mark>>,
}

impl Shown {
    /// The stream up to here is to be acknowledged when its turn has come.
    pub fn wait(&mut self, end: u64) {
        self.strides.push_back(Stride { end, marks: None });
    }

    /// Whether anything waits for a reader.
    pub fn waits(&self) -> bool {
        !self.strides.is_empty()
    }

    /// Up to where is to be acknowledged now. `marks` tells how far each reader has been sent, or
    /// nothing while readers are waited for; in both cases [`Shared::resume`] wakes.
    pub fn due(&mut self, shared: &Shared, marks: impl Fn() -> Option<Vec<Mark>>) -> Option<u64> {
        if self.strides.is_empty() {
            return None;
        }
        let readers = shared.readers();
        if std::mem::replace(&mut self.readers, readers) != readers {
            // Who has come since has it all in a snapshot; who has gone will not read it.
            for stride in &mut self.strides {
                stride.marks = None;
            }
        }
        for stride in self.strides.iter_mut().rev() {
            if stride.marks.is_some() {
                break;
            }
            let marks = marks()?;
            for mark in &marks {
                mark.wake(&shared.resume);
            }
            stride.marks = Some(marks);
        }
        let is_shown = |stride: &Stride| {
            let marks = stride.marks.as_deref().unwrap_or_default();
            marks.is_empty() || marks.iter().any(Mark::is_sent)
        };
        let mut due = None;
        while let Some(stride) = self.strides.front().filter(|stride| is_shown(stride)) {
            due = Some(stride.end);
            self.strides.pop_front();
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::Outbox;
    use futures_util::FutureExt as _;
    use std::sync::Arc;

    #[test]
    fn a_stride_waits_for_the_fastest_reader_and_for_nobody_if_there_is_none() {
        let shared = Shared::new("t:/1");
        let mut shown = Shown::default();
        assert_eq!(shown.due(&shared, || Some(Vec::new())), None);
        shown.wait(10);
        assert_eq!(shown.due(&shared, || None), None, "they may come back");
        assert_eq!(shown.due(&shared, || Some(Vec::new())), Some(10));
        assert!(!shown.waits());
        let (slow, fast) = (Arc::new(Outbox::default()), Arc::new(Outbox::default()));
        for outbox in [&slow, &fast] {
            outbox.push("0123456789".into());
        }
        shared.readers_changed();
        assert!(shared.resume.notified().now_or_never().is_some());
        let marks = || Some(vec![slow.mark(), fast.mark()]);
        shown.wait(20);
        assert_eq!(shown.due(&shared, marks), None);
        // What comes later does not belong to it.
        for outbox in [&slow, &fast] {
            outbox.push("0123456789".into());
        }
        shown.wait(30);
        assert_eq!(shown.due(&shared, marks), None);
        assert!(shared.resume.notified().now_or_never().is_none());
        fast.sent(10);
        assert!(shared.resume.notified().now_or_never().is_some());
        assert_eq!(shown.due(&shared, marks), Some(20));
        fast.sent(10);
        slow.sent(10);
        assert_eq!(shown.due(&shared, marks), Some(30));
    }

    #[test]
    fn readers_that_come_and_go_are_looked_at_anew() {
        let shared = Shared::new("t:/1");
        let mut shown = Shown::default();
        let stalled = Arc::new(Outbox::default());
        stalled.push("0123456789".into());
        shown.wait(10);
        assert_eq!(shown.due(&shared, || Some(vec![stalled.mark()])), None);
        let fresh = Arc::new(Outbox::default());
        let both = || Some(vec![stalled.mark(), fresh.mark()]);
        assert_eq!(shown.due(&shared, both), None, "nobody said that it came");
        shared.readers_changed();
        assert_eq!(shown.due(&shared, both), Some(10));
        shown.wait(20);
        assert_eq!(shown.due(&shared, || Some(vec![stalled.mark()])), None);
        shared.readers_changed();
        assert_eq!(
            shown.due(&shared, || Some(Vec::new())),
            Some(20),
            "the last has gone"
        );
    }
}
