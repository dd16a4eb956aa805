//! What was typed and not yet taken by the terminal (field cases S-18, S-19).
//!
//! What lives here: the bounded queue and its counting. What must not: the pty, the pipes.

use std::collections::VecDeque;

use shellward_protocol::kept::Typed;
use shellward_protocol::limits::INPUT_PENDING_MAX;

/// Room above this is given back once the queue is empty; a paste is rare.
const KEEP_CAPACITY: usize = 16 << 10;

/// Answers of our own that may wait, in bytes: a program that asks and never reads gets no more.
pub(crate) const ANSWERS_MAX: usize = 4 << 10;

/// Why input was refused: the supervisor broke the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InputError {
    /// A number was left out, so something typed was lost.
    #[error("input {got} came after input {last}")]
    Gap {
        /// The highest number so far.
        last: u64,
        /// The number that came.
        got: u64,
    },
    /// More than [`INPUT_PENDING_MAX`] would wait.
    #[error("{0} bytes of input would wait, over the limit")]
    TooMuch(u64),
}

/// Typed bytes in order, at most once each.
#[derive(Debug, Default)]
pub(crate) struct InputQueue {
    bytes: VecDeque<u8>,
    last_seq: u64,
    came: u64,
    taken: u64,
    /// Stretches of `bytes` that are answers of our own, each as where it starts behind the one
    /// before, and its length.
    own: VecDeque<(usize, usize)>,
    own_len: usize,
}

impl InputQueue {
    /// Takes one message and says whether it is a new one. A number that was seen already is
    /// ignored: its bytes were typed.
    pub(crate) fn push(&mut self, seq: u64, data: &[u8]) -> Result<bool, InputError> {
        if seq <= self.last_seq {
            return Ok(false);
        }
        if self.last_seq.checked_add(1) != Some(seq) {
            return Err(InputError::Gap {
                last: self.last_seq,
                got: seq,
            });
        }
        let pending = (self.bytes.len() - self.own_len) as u64 + data.len() as u64;
        if pending > INPUT_PENDING_MAX {
            return Err(InputError::TooMuch(pending));
        }
        self.last_seq = seq;
        self.came += data.len() as u64;
        self.bytes.extend(data);
        Ok(true)
    }

    /// Puts answers of the terminal itself behind what waits; nobody is told that they were taken.
    /// More than [`ANSWERS_MAX`] of them do not wait: who asks and does not read gets none.
    pub(crate) fn push_answers(&mut self, answers: &[u8]) {
        if self.own_len + answers.len() > ANSWERS_MAX {
            return;
        }
        let behind: usize = self.own.iter().map(|(gap, len)| gap + len).sum();
        self.own
            .push_back((self.bytes.len() - behind, answers.len()));
        self.own_len += answers.len();
        self.bytes.extend(answers);
    }

    /// Takes `n` bytes off the front; how many of them are our own.
    fn take_own(&mut self, mut n: usize) -> usize {
        let mut own = 0;
        while let Some((gap, len)) = self.own.front_mut() {
            let foreign = n.min(*gap);
            *gap -= foreign;
            let ours = (n - foreign).min(*len);
            *len -= ours;
            own += ours;
            n -= foreign + ours;
            if *len > 0 {
                break;
            }
            self.own.pop_front();
        }
        self.own_len -= own;
        own
    }

    /// The bytes to write next; not all that wait, if the ring wraps.
    pub(crate) fn front(&self) -> &[u8] {
        self.bytes.as_slices().0
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Counts `n` bytes of [`Self::front`] as written.
    pub(crate) fn advance(&mut self, n: usize) {
        let n = n.min(self.bytes.len());
        self.bytes.drain(..n);
        let own = self.take_own(n);
        self.taken += (n - own) as u64;
        if self.bytes.is_empty() && self.bytes.capacity() > KEEP_CAPACITY {
            self.bytes = VecDeque::new();
        }
    }

    /// Nobody reads any more: what waits is dropped and counts as taken.
    pub(crate) fn discard(&mut self) {
        self.advance(self.bytes.len());
    }

    /// Bytes written or dropped since the start.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// How far it has come: the next supervisor goes on from here.
    pub(crate) fn typed(&self) -> Typed {
        Typed {
            seq: self.last_seq,
            came: self.came,
            taken: self.taken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn repeated_number_is_typed_once() {
        let mut queue = InputQueue::default();
        queue.push(1, b"a").unwrap();
        queue.push(1, b"a").unwrap();
        queue.push(2, b"b").unwrap();
        queue.push(1, b"a").unwrap();
        assert_eq!(queue.front(), b"ab");
    }

    #[test]
    fn gap_is_refused() {
        let mut queue = InputQueue::default();
        assert_eq!(
            queue.push(2, b"b"),
            Err(InputError::Gap { last: 0, got: 2 })
        );
        assert!(queue.is_empty());
    }

    #[test]
    fn last_number_of_all_does_not_overflow() {
        let mut queue = InputQueue {
            last_seq: u64::MAX,
            ..InputQueue::default()
        };
        queue.push(u64::MAX, b"x").unwrap();
        assert!(queue.is_empty());
    }

    #[test]
    fn a_full_queue_refuses_more_and_keeps_what_it_has() {
        let mut queue = InputQueue::default();
        let full = vec![b'x'; usize::try_from(INPUT_PENDING_MAX).unwrap()];
        queue.push(1, &full).unwrap();
        assert!(matches!(queue.push(2, b"y"), Err(InputError::TooMuch(_))));
        queue.advance(1);
        queue.push(2, b"y").unwrap();
    }

    #[test]
    fn what_is_dropped_counts_as_taken() {
        let mut queue = InputQueue::default();
        queue.push(1, b"abc").unwrap();
        queue.advance(1);
        queue.discard();
        assert!(queue.is_empty());
        assert_eq!(queue.taken(), 3);
    }

    proptest! {
        #[test]
        fn bytes_come_out_in_order(
            pushes in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..30),
            steps in proptest::collection::vec(0_usize..40, 1..30),
        ) {
            let mut queue = InputQueue::default();
            let mut out = Vec::new();
            let mut steps = steps.iter().cycle();
            for (index, data) in pushes.iter().enumerate() {
                queue.push(index as u64 + 1, data).unwrap();
                let n = (*steps.next().unwrap()).min(queue.front().len());
                out.extend_from_slice(&queue.front()[..n]);
                queue.advance(n);
            }
            while !queue.is_empty() {
                let n = queue.front().len();
                out.extend_from_slice(&queue.front()[..n]);
                queue.advance(n);
            }
            prop_assert_eq!(queue.taken(), out.len() as u64);
            prop_assert_eq!(out, pushes.concat());
        }
    }
}
