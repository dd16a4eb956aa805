//! What waits to be sent to one worker.
//!
//! Bounded whatever clients do: input up to the worker's own bound, and one place each for
//! everything of which only the last counts.

use std::sync::{Mutex, MutexGuard, PoisonError};

use shellward_protocol::kept::{Clear, Typed, Watch};
use shellward_protocol::limits::INPUT_PENDING_MAX;
use shellward_protocol::message::{Ack, Input, Size, Terminate};
use shellward_protocol::{Data, ToWorker, WireError};
use tokio::sync::Notify;

#[derive(Debug, Default)]
struct Inner {
    input: Vec<u8>,
    /// Bytes accepted and bytes the worker reported as taken, since the terminal's start.
    accepted: u64,
    taken: u64,
    input_seq: u64,
    size: Option<Size>,
    ack: Option<u64>,
    clear: Option<u64>,
    card: Option<Vec<u8>>,
    watched: Option<bool>,
    terminate: Option<u32>,
    closed: bool,
}

/// One worker's queue.
#[derive(Debug, Default)]
pub struct LinkQueue {
    inner: Mutex<Inner>,
    ready: Notify,
}

/// The shell's side does not take that much; the number is what waits already.
#[derive(Debug, PartialEq, Eq)]
pub struct InputFull(pub u64);

impl LinkQueue {
    /// The queue of a terminal that has been typed into already.
    #[must_use]
    pub fn resumed(typed: Typed) -> Self {
        let inner = Inner {
            accepted: typed.came,
            taken: typed.taken,
            input_seq: typed.seq,
            ..Inner::default()
        };
        Self {
            inner: Mutex::new(inner),
            ready: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut Inner)) {
        change(&mut self.lock());
        self.ready.notify_one();
    }

    /// Whether `bytes` more can be typed. Only the core types, so what it was told stays true.
    ///
    /// # Errors
    /// More than `INPUT_PENDING_MAX` would wait.
    pub fn admits(&self, bytes: usize) -> Result<(), InputFull> {
        let inner = self.lock();
        let waiting = inner.accepted - inner.taken;
        if waiting + bytes as u64 > INPUT_PENDING_MAX {
            return Err(InputFull(waiting));
        }
        Ok(())
    }

    /// Types `data`, whole or not at all.
    ///
    /// # Errors
    /// As [`Self::admits`].
    pub fn input(&self, data: &[u8]) -> Result<(), InputFull> {
        self.admits(data.len())?;
        let mut inner = self.lock();
        inner.accepted += data.len() as u64;
        inner.input.extend_from_slice(data);
        drop(inner);
        self.ready.notify_one();
        Ok(())
    }

    /// The worker says how much input it has taken in all.
    ///
    /// # Errors
    /// It claims more than it was sent, or less than before.
    pub fn taken(&self, total: u64) -> Result<(), &'static str> {
        let mut inner = self.lock();
        let sent = inner.accepted - inner.input.len() as u64;
        if total > sent || total < inner.taken {
            return Err("it reports input that it was not sent");
        }
        inner.taken = total;
        Ok(())
    }

    /// Resizes the terminal.
    pub fn resize(&self, size: Size) {
        self.update(|inner| inner.size = Some(size));
    }

    /// Acknowledges output up to `offset`.
    pub fn ack(&self, offset: u64) {
        self.update(|inner| inner.ack = Some(offset));
    }

    /// Ends the terminal.
    pub fn terminate(&self, grace_ms: u32) {
        self.update(|inner| inner.terminate = Some(grace_ms));
    }

    /// A client has cleared what was shown up to `offset`.
    pub fn clear(&self, offset: u64) {
        self.update(|inner| inner.clear = Some(offset));
    }

    /// Notes what the next supervisor is to be told about the terminal.
    pub fn card(&self, card: Vec<u8>) {
        self.update(|inner| inner.card = Some(card));
    }

    /// Whether anybody reads the output.
    pub fn watch(&self, watched: bool) {
        self.update(|inner| inner.watched = Some(watched));
    }

    /// Input that was accepted and that the shell's side has not taken, in bytes.
    #[must_use]
    pub fn waiting_input(&self) -> u64 {
        let inner = self.lock();
        inner.accepted - inner.taken
    }

    /// Ends the writer.
    pub fn close(&self) {
        self.update(|inner| inner.closed = true);
    }

    /// Waits for work and appends its frames to `out`; false at the end. For the writer alone.
    ///
    /// # Errors
    /// None in practice: everything is within the wire's bounds.
    pub async fn next(&self, out: &mut Vec<u8>) -> Result<bool, WireError> {
        loop {
            {
                let mut inner = self.lock();
                if inner.closed {
                    return Ok(false);
                }
                Self::encode(&mut inner, out)?;
                if !out.is_empty() {
                    return Ok(true);
                }
            }
            self.ready.notified().await;
        }
    }

    fn encode(inner: &mut Inner, out: &mut Vec<u8>) -> Result<(), WireError> {
        if let Some(offset) = inner.ack.take() {
            ToWorker::Ack(Ack { offset }).encode(out)?;
        }
        if let Some(offset) = inner.clear.take() {
            ToWorker::Clear(Clear { offset }).encode(out)?;
        }
        if let Some(size) = inner.size.take() {
            ToWorker::Resize(size).encode(out)?;
        }
        if !inner.input.is_empty() {
            inner.input_seq += 1;
            ToWorker::Input(Input {
                seq: inner.input_seq,
                data: Data::borrowed(&inner.input),
            })
            .encode(out)?;
            // A paste's buffer is not kept for the keystrokes that follow.
            inner.input = Vec::new();
        }
        if let Some(watched) = inner.watched.take() {
            ToWorker::Watch(Watch { watched }).encode(out)?;
        }
        if let Some(card) = inner.card.take() {
            ToWorker::Card(card.into()).encode(out)?;
        }
        if let Some(grace_ms) = inner.terminate.take() {
            ToWorker::Terminate(Terminate { grace_ms }).encode(out)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use shellward_protocol::FrameDecoder;

    fn drain(queue: &LinkQueue) -> Vec<String> {
        let mut bytes = Vec::new();
        if queue.next(&mut bytes).now_or_never().is_none() {
            return Vec::new();
        }
        let mut decoder = FrameDecoder::new();
        decoder.push(&bytes);
        let mut found = Vec::new();
        while let Some((header, payload)) = decoder.next_frame().unwrap() {
            found.push(match ToWorker::decode(header, payload).unwrap() {
                ToWorker::Input(input) => {
                    format!("input {} {}", input.seq, input.data.as_slice().len())
                }
                ToWorker::Resize(size) => format!("{}x{}", size.cols, size.rows),
                other => format!("{other:?}"),
            });
        }
        found
    }

    #[test]
    fn only_the_last_size_counts_and_input_is_joined() {
        let queue = LinkQueue::default();
        for cols in 1..100 {
            queue.resize(Size { cols, rows: 5 });
            queue.input(b"ab").unwrap();
        }
        assert_eq!(drain(&queue), ["99x5", "input 1 198"]);
        queue.input(b"c").unwrap();
        assert_eq!(drain(&queue), ["input 2 1"]);
        assert_eq!(drain(&queue), [""; 0]);
    }

    #[test]
    fn s19_input_beyond_the_bound_is_refused_whole_until_some_was_taken() {
        let queue = LinkQueue::default();
        let most = usize::try_from(INPUT_PENDING_MAX).unwrap();
        queue.input(&vec![b'x'; most]).unwrap();
        assert_eq!(queue.input(b"y"), Err(InputFull(INPUT_PENDING_MAX)));
        assert_eq!(queue.taken(1), Err("it reports input that it was not sent"));
        assert_eq!(drain(&queue), [format!("input 1 {most}")]);
        queue.taken(10).unwrap();
        assert!(queue.taken(9).is_err());
        queue.input(b"0123456789").unwrap();
        assert!(queue.input(b"y").is_err());
    }
}
