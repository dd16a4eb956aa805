//! Envelopes that were sent, kept for `reconnect`; bounded in bytes and number.

use std::collections::VecDeque;

use axum::extract::ws::Utf8Bytes;

use super::TerminalKey;
use crate::limits::{REPLAY_BYTES, REPLAY_ENVELOPES};

/// The channel an envelope belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channel {
    /// The root channel.
    Root,
    /// A terminal.
    Terminal(TerminalKey),
}

#[derive(Debug)]
struct Entry {
    seq: u64,
    channel: Channel,
    text: Utf8Bytes,
}

/// The newest envelopes of all channels.
#[derive(Debug)]
pub struct Replay {
    entries: VecDeque<Entry>,
    bytes: usize,
    /// Everything after this number that was broadcast is in `entries`.
    complete_after: u64,
}

impl Replay {
    /// Empty; nothing before `seq` can be replayed.
    #[must_use]
    pub fn new(seq: u64) -> Self {
        Self {
            entries: VecDeque::new(),
            bytes: 0,
            complete_after: seq,
        }
    }

    /// Adds an envelope that all subscribers of `channel` were sent.
    pub fn push(&mut self, seq: u64, channel: Channel, text: Utf8Bytes) {
        self.bytes += text.len();
        self.entries.push_back(Entry { seq, channel, text });
        while self.bytes > REPLAY_BYTES || self.entries.len() > REPLAY_ENVELOPES {
            let Some(oldest) = self.entries.pop_front() else {
                break;
            };
            self.bytes -= oldest.text.len();
            self.complete_after = oldest.seq;
        }
    }

    /// Whether nothing after `seq` was lost.
    #[must_use]
    pub fn reaches(&self, seq: u64) -> bool {
        seq >= self.complete_after
    }

    /// The envelopes after `seq` on the channels that `wanted` accepts, oldest first.
    pub fn after(
        &self,
        seq: u64,
        wanted: impl Fn(Channel) -> bool,
    ) -> impl Iterator<Item = (Channel, &Utf8Bytes)> {
        let from = self.entries.partition_point(|entry| entry.seq <= seq);
        self.entries
            .range(from..)
            .filter(move |entry| wanted(entry.channel))
            .map(|entry| (entry.channel, &entry.text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_gave_way_is_known_to_be_lost() {
        let mut replay = Replay::new(10);
        assert!(!replay.reaches(9));
        assert!(replay.reaches(10));
        let text: Utf8Bytes = "x".repeat(REPLAY_BYTES / 4).into();
        for seq in 11..=16 {
            replay.push(seq, Channel::Root, text.clone());
        }
        assert!(!replay.reaches(11));
        assert!(replay.reaches(12));
        assert_eq!(replay.after(12, |_| true).count(), 4);
        assert_eq!(replay.after(14, |_| true).count(), 2);
        assert_eq!(replay.after(16, |_| true).count(), 0);
        assert_eq!(
            replay.after(12, |channel| channel != Channel::Root).count(),
            0
        );
    }

    #[test]
    fn tiny_envelopes_are_bounded_in_number() {
        let mut replay = Replay::new(0);
        for seq in 1..=(REPLAY_ENVELOPES as u64 + 5) {
            replay.push(seq, Channel::Root, "x".into());
        }
        assert_eq!(replay.entries.len(), REPLAY_ENVELOPES);
        assert!(replay.reaches(5));
        assert!(!replay.reaches(4));
    }
}
