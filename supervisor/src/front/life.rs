//! Whether the other side of a connection is still there.
//!
//! A peer whose cable was pulled says nothing, and the system notices only after a quarter of an
//! hour, or never where there is nothing to send (field case S-21). So who has been silent, and whose
//! socket takes nothing either, is asked with a WebSocket ping. A reader that is slow but alive takes
//! a byte now and then, and that is an answer as well: its pong stands behind all that it has yet to
//! read. Bytes are counted where they pass, below the WebSocket: one message may take minutes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until, timeout};

use crate::limits::{PING_AFTER, PING_ANSWER};

/// What an unanswered ping itself puts into the socket: a frame without a payload.
const PING_FRAME_BYTES: u64 = 2;

/// What is known of the other side.
#[derive(Debug)]
pub(super) struct Life {
    start: Instant,
    /// Bytes that came from it.
    received: AtomicU64,
    /// Bytes that the socket took for it.
    taken: AtomicU64,
    /// When either grew last, in milliseconds since `start`.
    moved_at: AtomicU64,
    /// Whether an answer is waited for.
    waits: AtomicBool,
    moved: Notify,
    ping: Notify,
}

impl Life {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            received: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            moved_at: AtomicU64::new(0),
            waits: AtomicBool::new(false),
            moved: Notify::new(),
            ping: Notify::new(),
        })
    }

    fn count(&self, counter: &AtomicU64, bytes: usize) {
        if bytes == 0 {
            return;
        }
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
        let since = self.start.elapsed().as_millis();
        self.moved_at
            .store(u64::try_from(since).unwrap_or(u64::MAX), Ordering::Relaxed);
        if self.waits.load(Ordering::Relaxed) {
            self.moved.notify_one();
        }
    }

    fn moved_at(&self) -> Instant {
        self.start + Duration::from_millis(self.moved_at.load(Ordering::Relaxed))
    }

    /// Waits until a ping is to be sent. For the connection's writer alone.
    pub async fn ping_wanted(&self) {
        self.ping.notified().await;
    }

    /// Waits until the other side is found to be gone. There is one timer for each connection, set
    /// to when it would have been silent for long enough.
    pub async fn lost(&self) {
        loop {
            let silent_at = self.moved_at() + PING_AFTER;
            if Instant::now() < silent_at {
                sleep_until(silent_at).await;
                continue;
            }
            let before = self.bytes();
            self.waits.store(true, Ordering::Relaxed);
            self.ping.notify_one();
            let answer = timeout(PING_ANSWER, self.answer(before)).await;
            self.waits.store(false, Ordering::Relaxed);
            if answer.is_err() {
                return;
            }
        }
    }

    fn bytes(&self) -> (u64, u64) {
        let [received, taken] = [&self.received, &self.taken].map(|n| n.load(Ordering::Relaxed));
        (received, taken)
    }

    /// Waits until more has moved than our ping.
    async fn answer(&self, before: (u64, u64)) {
        loop {
            let (received, taken) = self.bytes();
            if received > before.0 || taken > before.1 + PING_FRAME_BYTES {
                return;
            }
            self.moved.notified().await;
        }
    }
}

/// A connection's stream whose bytes are signs of life.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    life: Arc<Life>,
}

impl<S> Watched<S> {
    pub fn new(stream: S, life: Arc<Life>) -> Self {
        Self { stream, life }
    }

    fn took(&self, result: io::Result<usize>) -> Poll<io::Result<usize>> {
        if let Ok(bytes) = result {
            self.life.count(&self.life.taken, bytes);
        }
        Poll::Ready(result)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        let bytes = buf.filled().len() - before;
        self.life.count(&self.life.received, bytes);
        Poll::Ready(result)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.stream).poll_write(cx, buf));
        self.took(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.stream).poll_write_vectored(cx, bufs));
        self.took(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
