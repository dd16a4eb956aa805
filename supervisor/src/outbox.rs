//! What waits to be sent to one connection: ordered, bounded in bytes.
//!
//! The core pushes while it holds its own lock, so that the order in here is the order of
//! `serverSeq`; the connection's writer takes. Nothing here waits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::ws::Utf8Bytes;
use tokio::sync::Notify;

use crate::ahp::envelope::{JoinedOutput, OutputText};
use crate::limits::{
    OUTBOX_BYTES, OUTBOX_JOIN_AFTER, OUTBOX_JOIN_BYTES, OUTBOX_JOINED_BYTES, OUTBOX_PAUSE_BYTES,
    OUTBOX_RESUME_BYTES,
};

/// Why we close a connection. The codes are WebSocket's (RFC 6455 section 7.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Close {
    /// Status code.
    pub code: u16,
    /// Reason, at most 123 bytes.
    pub reason: &'static str,
}

impl Close {
    /// The host is shutting down.
    pub const GOING_AWAY: Self = Self::new(1001, "the host is shutting down");
    /// Too many messages that are not JSON-RPC.
    pub const NOT_A_CLIENT: Self = Self::new(1002, "messages that are not JSON-RPC");
    /// Nothing but text frames is spoken here.
    pub const BINARY: Self = Self::new(1003, "text frames only");
    /// One message was over the limit.
    pub const TOO_BIG: Self = Self::new(1009, "a message may have 2 MiB at most");
    /// Pings as a weapon.
    pub const PINGS: Self = Self::new(1008, "too many pings");
    /// No `initialize` in time.
    pub const SILENT: Self = Self::new(1008, "no initialize in time");
    /// The versions do not match.
    pub const VERSION: Self = Self::new(1008, "no protocol version in common");
    /// The same clientId connected again.
    pub const REPLACED: Self = Self::new(4001, "this clientId connected again");
    /// It read too slowly; it may come back through `reconnect`.
    pub const TOO_SLOW: Self = Self::new(1013, "reading too slowly; reconnect to go on");

    const fn new(code: u16, reason: &'static str) -> Self {
        Self { code, reason }
    }
}

/// One message that waits.
#[derive(Debug)]
enum Waiting {
    /// Anything; nothing is added to it.
    Message(Utf8Bytes),
    /// Output, in the buffer that all its readers share.
    Output(OutputText),
    /// Output that was joined for this reader alone.
    Joined(JoinedOutput),
}

impl Waiting {
    fn len(&self) -> usize {
        match self {
            Self::Message(text) => text.len(),
            Self::Output(output) => output.text.len(),
            Self::Joined(joined) => joined.as_str().len(),
        }
    }

    fn into_text(self) -> Utf8Bytes {
        match self {
            Self::Message(text) => text,
            Self::Output(output) => output.text,
            Self::Joined(joined) => joined.into_text(),
        }
    }

    /// Nothing will be added to it: gives back the room it had to grow.
    fn settle(&mut self) {
        if let Self::Joined(_) = self {
            let joined = std::mem::replace(self, Self::Message(Utf8Bytes::default()));
            *self = Self::Message(joined.into_text());
        }
    }

    /// Adds the output that follows; false if it must wait for itself.
    fn join(&mut self, next: &OutputText) -> bool {
        let is_small = |bytes: usize| bytes <= OUTBOX_JOIN_BYTES;
        match self {
            _ if !is_small(next.text.len()) => false,
            Self::Joined(joined) if joined.as_str().len() <= OUTBOX_JOINED_BYTES => {
                joined.push(next)
            }
            Self::Output(first) if is_small(first.text.len()) => match first.join(next) {
                Some(joined) => {
                    *self = Self::Joined(joined);
                    true
                }
                None => false,
            },
            _ => false,
        }
    }
}

#[derive(Debug, Default)]
struct Inner {
    messages: VecDeque<Waiting>,
    /// Of `messages` and of what the writer has taken but not sent.
    bytes: usize,
    close: Option<Close>,
    /// Terminals that pause for this reader.
    paused: Vec<Arc<Notify>>,
}

/// One connection's queue.
#[derive(Debug, Default)]
pub struct Outbox {
    inner: Mutex<Inner>,
    ready: Notify,
    ending: Notify,
}

/// What the writer is to do next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Send these, then report with [`Outbox::sent`].
    Send(VecDeque<Utf8Bytes>),
    /// Send this close frame and end.
    Close(Close),
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a message. A connection that has too much waiting is closed instead.
    pub fn push(&self, message: Utf8Bytes) {
        self.add(Waiting::Message(message));
    }

    /// The same for output. For a reader that is behind, small pieces of one terminal become one
    /// message, as long as nothing else stands between them: what it is sent is then its data, not
    /// a hundred envelopes.
    pub fn push_output(&self, output: OutputText) {
        self.add(Waiting::Output(output));
    }

    fn add(&self, message: Waiting) {
        let mut inner = self.lock();
        if inner.close.is_some() {
            return;
        }
        if inner.bytes > OUTBOX_BYTES {
            // What waits is worth nothing to a client that will ask again.
            let dropped: usize = inner.messages.iter().map(Waiting::len).sum();
            inner.bytes -= dropped;
            inner.messages.clear();
            self.set_close(&mut inner, Close::TOO_SLOW);
        } else {
            let inner = &mut *inner;
            let is_behind = inner.messages.len() >= OUTBOX_JOIN_AFTER;
            let mut bytes = message.len();
            let mut joined = false;
            if let Some(last) = inner.messages.back_mut().filter(|_| is_behind) {
                let before = last.len();
                if let Waiting::Output(output) = &message {
                    joined = last.join(output);
                }
                if joined {
                    bytes = last.len() - before;
                } else {
                    last.settle();
                }
            }
            inner.bytes += bytes;
            if !joined {
                inner.messages.push_back(message);
            }
        }
        drop(inner);
        self.ready.notify_one();
    }

    /// Ends the connection after what waits now.
    pub fn close(&self, close: Close) {
        self.set_close(&mut self.lock(), close);
        self.ready.notify_one();
    }

    /// Waits until the connection is to be closed. For one waiter alone.
    pub async fn closing(&self) {
        self.ending.notified().await;
    }

    fn set_close(&self, inner: &mut Inner, close: Close) {
        inner.close.get_or_insert(close);
        self.ending.notify_one();
        for terminal in inner.paused.drain(..) {
            terminal.notify_one();
        }
    }

    /// Whether this reader is far behind; one that is closing holds nobody up.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        let inner = self.lock();
        inner.close.is_none() && inner.bytes > OUTBOX_PAUSE_BYTES
    }

    /// What waits, in bytes.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lock().bytes
    }

    /// Whether it was closed for reading too slowly.
    #[must_use]
    pub fn was_too_slow(&self) -> bool {
        self.lock().close == Some(Close::TOO_SLOW)
    }

    /// Tells `terminal` once this reader has caught up.
    pub fn wake_when_caught_up(&self, terminal: &Arc<Notify>) {
        let mut inner = self.lock();
        if inner.close.is_some() || inner.bytes <= OUTBOX_RESUME_BYTES {
            drop(inner);
            terminal.notify_one();
        } else if !inner
            .paused
            .iter()
            .any(|known| Arc::ptr_eq(known, terminal))
        {
            inner.paused.push(Arc::clone(terminal));
        }
    }

    /// Waits for work. For the connection's writer alone.
    pub async fn next(&self) -> Next {
        loop {
            let taken = {
                let mut inner = self.lock();
                if inner.messages.is_empty()
                    && let Some(close) = inner.close
                {
                    return Next::Close(close);
                }
                std::mem::take(&mut inner.messages)
            };
            if !taken.is_empty() {
                return Next::Send(taken.into_iter().map(Waiting::into_text).collect());
            }
            self.ready.notified().await;
        }
    }

    /// The writer has handed `bytes` to the socket.
    pub fn sent(&self, bytes: usize) {
        let mut inner = self.lock();
        inner.bytes = inner.bytes.saturating_sub(bytes);
        if inner.bytes <= OUTBOX_RESUME_BYTES {
            for terminal in inner.paused.drain(..) {
                terminal.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ahp::envelope::OutputEnvelope;
    use futures_util::FutureExt as _;
    use serde_json::Value;

    fn message(bytes: usize) -> Utf8Bytes {
        "x".repeat(bytes).into()
    }

    #[test]
    fn messages_come_out_in_order_and_close_comes_last() {
        let outbox = Outbox::default();
        outbox.push("a".into());
        outbox.push("b".into());
        outbox.close(Close::GOING_AWAY);
        outbox.push("c".into());
        outbox.close(Close::SILENT);
        let next = outbox.next().now_or_never();
        assert_eq!(next, Some(Next::Send(["a".into(), "b".into()].into())));
        assert_eq!(
            outbox.next().now_or_never(),
            Some(Next::Close(Close::GOING_AWAY))
        );
    }

    #[test]
    fn a_reader_that_is_too_slow_is_closed_and_its_queue_dropped() {
        let outbox = Outbox::default();
        for _ in 0..OUTBOX_BYTES / 100_000 + 3 {
            outbox.push(message(100_000));
        }
        assert_eq!(
            outbox.next().now_or_never(),
            Some(Next::Close(Close::TOO_SLOW))
        );
        assert!(!outbox.is_behind() && outbox.was_too_slow());
        assert_eq!(outbox.waiting(), 0);
    }

    fn output(channel: &str, text: &str, seq: u64) -> OutputText {
        OutputEnvelope::new(&format!("\"{channel}\""), text).finish(seq)
    }

    /// Channel, data and number of every message; other messages as they are.
    fn read(messages: impl IntoIterator<Item = Utf8Bytes>) -> Vec<(String, String, u64)> {
        let part = |value: &Value| value.as_str().unwrap_or("").to_owned();
        messages
            .into_iter()
            .map(|text| {
                let params: Value = serde_json::from_str(&text).unwrap_or_default();
                let params = &params["params"];
                let data = part(&params["action"]["data"]);
                let seq = params["serverSeq"].as_u64().unwrap_or(0);
                (part(&params["channel"]), data, seq)
            })
            .collect()
    }

    fn taken(outbox: &Outbox) -> VecDeque<Utf8Bytes> {
        match outbox.next().now_or_never() {
            Some(Next::Send(messages)) => messages,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn s21_a_reader_that_is_not_behind_shares_the_buffer() {
        let outbox = Outbox::default();
        let all: Vec<OutputText> = (1..)
            .take(OUTBOX_JOIN_AFTER)
            .map(|seq| output("t:/1", "x", seq))
            .collect();
        for output in &all {
            outbox.push_output(output.clone());
        }
        let messages = taken(&outbox);
        assert_eq!(messages.len(), OUTBOX_JOIN_AFTER);
        for (message, output) in messages.iter().zip(&all) {
            assert_eq!(message.as_str().as_ptr(), output.text.as_str().as_ptr());
        }
    }

    #[test]
    fn s21_small_output_is_joined_for_a_reader_that_is_behind() {
        let outbox = Outbox::default();
        for _ in 0..OUTBOX_JOIN_AFTER {
            outbox.push("{}".into());
        }
        let mut wanted = String::new();
        let mut seq = 0;
        for n in 0..10_000 {
            seq += 1;
            let text = format!("line {n}\r\n");
            outbox.push_output(output("t:/1", &text, seq));
            wanted.push_str(&text);
        }
        let last_of_first = seq;
        // What stands between two pieces keeps them apart: another terminal, a message, a large piece.
        outbox.push_output(output("t:/2", "other", seq + 1));
        outbox.push_output(output("t:/1", "a", seq + 2));
        outbox.push("{}".into());
        outbox.push_output(output("t:/1", "b", seq + 3));
        let large = "l".repeat(OUTBOX_JOIN_BYTES);
        outbox.push_output(output("t:/1", &large, seq + 4));
        outbox.push_output(output("t:/1", "c", seq + 5));
        outbox.push_output(output("t:/1", "d", seq + 6));

        let waiting = outbox.waiting();
        let messages = taken(&outbox);
        let bytes: usize = messages.iter().map(|message| message.len()).sum();
        assert_eq!(bytes, waiting, "what was counted is what is sent");
        for message in &messages {
            assert!(message.len() <= OUTBOX_JOINED_BYTES + OUTBOX_JOIN_BYTES);
            outbox.sent(message.len());
        }
        assert_eq!(outbox.waiting(), 0);
        let mut all = read(messages).split_off(OUTBOX_JOIN_AFTER);
        let rest = all.split_off(all.len() - 6);
        assert!((2..10).contains(&all.len()), "{}", all.len());
        assert!(all.windows(2).all(|pair| pair[0].2 < pair[1].2));
        assert_eq!(all.last().unwrap().2, last_of_first);
        assert_eq!(all.into_iter().map(|m| m.1).collect::<String>(), wanted);
        let rest: Vec<_> = rest
            .iter()
            .map(|(channel, data, seq)| (channel.as_str(), data.as_str(), *seq))
            .collect();
        assert_eq!(
            rest,
            [
                ("t:/2", "other", seq + 1),
                ("t:/1", "a", seq + 2),
                ("", "", 0),
                ("t:/1", "b", seq + 3),
                ("t:/1", &large, seq + 4),
                ("t:/1", "cd", seq + 6),
            ]
        );
    }

    #[test]
    fn s21_joined_output_has_the_same_bound() {
        let outbox = Outbox::default();
        let (mut seq, mut text) = (0, 0);
        while !outbox.was_too_slow() {
            seq += 1;
            text += 100;
            outbox.push_output(output("t:/1", &"x".repeat(100), seq));
            assert!(outbox.waiting() <= OUTBOX_BYTES + OUTBOX_JOIN_BYTES);
        }
        // Nearly all of it was data; unjoined, more than half would have been envelopes.
        assert!(text > OUTBOX_BYTES / 100 * 95, "{text}");
    }

    #[test]
    fn one_large_message_is_not_slowness() {
        let outbox = Outbox::default();
        outbox.push(message(OUTBOX_BYTES * 3));
        assert!(matches!(outbox.next().now_or_never(), Some(Next::Send(_))));
    }

    #[test]
    fn a_paused_terminal_is_woken_when_the_reader_catches_up_or_goes() {
        let outbox = Outbox::default();
        let terminal = Arc::new(Notify::new());
        outbox.push(message(OUTBOX_PAUSE_BYTES + 1));
        assert!(outbox.is_behind());
        assert_eq!(outbox.waiting(), OUTBOX_PAUSE_BYTES + 1);
        outbox.wake_when_caught_up(&terminal);
        assert!(terminal.notified().now_or_never().is_none());
        outbox.sent(OUTBOX_PAUSE_BYTES + 1);
        assert!(terminal.notified().now_or_never().is_some());

        outbox.push(message(OUTBOX_PAUSE_BYTES + 1));
        outbox.wake_when_caught_up(&terminal);
        outbox.close(Close::GOING_AWAY);
        assert!(terminal.notified().now_or_never().is_some());
    }
}
