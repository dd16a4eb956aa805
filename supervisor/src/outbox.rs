//! What waits to be sent to one connection: ordered, bounded in bytes.
//!
//! The core pushes while it holds its own lock, so that the order in here is the order of
//! `serverSeq`; the connection's writer takes. Nothing here waits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::extract::ws::Utf8Bytes;
use tokio::sync::Notify;

use crate::limits::{OUTBOX_BYTES, OUTBOX_PAUSE_BYTES, OUTBOX_RESUME_BYTES};

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

#[derive(Debug, Default)]
struct Inner {
    messages: VecDeque<Utf8Bytes>,
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
        let mut inner = self.lock();
        if inner.close.is_some() {
            return;
        }
        if inner.bytes > OUTBOX_BYTES {
            // What waits is worth nothing to a client that will ask again.
            let dropped: usize = inner.messages.iter().map(|message| message.len()).sum();
            inner.bytes -= dropped;
            inner.messages.clear();
            self.set_close(&mut inner, Close::TOO_SLOW);
        } else {
            inner.bytes += message.len();
            inner.messages.push_back(message);
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
            {
                let mut inner = self.lock();
                if !inner.messages.is_empty() {
                    return Next::Send(std::mem::take(&mut inner.messages));
                }
                if let Some(close) = inner.close {
                    return Next::Close(close);
                }
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
    use futures_util::FutureExt as _;

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
