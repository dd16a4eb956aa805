//! Frames on their way to the supervisor, and what it has not acknowledged.
//!
//! What lives here: the order of frames, the credit for output, and what is sent again after the
//! link was lost. What must not: the socket beyond writing to it, the pty.
//!
//! A frame of output is encoded once. It moves from "unsent" to "unacked" without a copy, and back
//! when a link is lost, so nothing that was shown gets lost with a supervisor.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

use shellward_protocol::limits::{CUTS_MAX, FRAMES_WINDOW, OUTPUT_CHUNK_MAX, OUTPUT_WINDOW};
use shellward_protocol::message::{Cut, Event, Happened, InputTaken, Output};
use shellward_protocol::{Data, FromWorker, WireError};

/// What the fields around the data of an output frame take, generously.
const OUTPUT_EXTRA: usize = 256;

/// A frame of this size is part of a flood.
const LARGE: usize = 16 << 10;

/// Frames that go out in one system call: a keystroke's echo and the report that it was taken.
const FRAMES_PER_WRITE: usize = 4;

/// Less room than this is not used: a window that opens byte by byte would make frames of a byte.
const ROOM_MIN: usize = 4 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Output or an event up to this offset; kept until acknowledged.
    Output { end: u64 },
    /// A count that later counts replace.
    InputTaken,
    /// Anything else; made anew for the next link.
    Other,
}

#[derive(Debug)]
struct Frame {
    kind: Kind,
    bytes: Vec<u8>,
}

/// Why an acknowledgement was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("output up to {got} was acknowledged, but only {sent} was sent")]
pub(crate) struct AckError {
    got: u64,
    sent: u64,
}

/// The way out.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    attached: bool,
    unsent: VecDeque<Frame>,
    unacked: VecDeque<Frame>,
    /// Bytes of the first unsent frame that are written.
    cursor: usize,
    /// The offset after the last byte of output made, sent, acknowledged.
    made: u64,
    sent: u64,
    acked: u64,
    /// The count of the last InputTaken frame, and whether it still waits.
    taken: u64,
    taken_waits: bool,
    /// Large frames were freed since [`Self::take_slack`].
    has_slack: bool,
}

impl Outbox {
    /// Whether more output may be made now. With a supervisor: while it takes what there is.
    /// Without: until the window is full.
    pub(crate) fn has_room(&self) -> bool {
        self.room() >= ROOM_MIN
            && self.unsent.len() + self.unacked.len() < FRAMES_WINDOW
            && (!self.attached || self.unsent.is_empty())
    }

    /// How many bytes of output the window still takes.
    pub(crate) fn room(&self) -> usize {
        let room = OUTPUT_WINDOW.saturating_sub(self.made - self.acked);
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    /// Queues output: at most [`OUTPUT_CHUNK_MAX`] bytes of valid UTF-8, not empty.
    /// One frame has room for a cut in each block, and one that began before; if there is one more,
    /// at the end of a part, the oldest gives way.
    pub(crate) fn output(&mut self, mut cuts: Vec<Cut>, data: &str) -> Result<(), WireError> {
        debug_assert!(data.len() <= OUTPUT_CHUNK_MAX);
        cuts.drain(..cuts.len().saturating_sub(CUTS_MAX));
        let mut bytes = Vec::with_capacity(data.len() + OUTPUT_EXTRA);
        FromWorker::Output(Output {
            offset: self.made,
            cuts,
            data: Data::borrowed(data.as_bytes()),
        })
        .encode(&mut bytes)?;
        self.made += data.len() as u64;
        self.unsent.push_back(Frame {
            kind: Kind::Output { end: self.made },
            bytes,
        });
        Ok(())
    }

    /// Queues something that happened, at its place in the output.
    pub(crate) fn event(&mut self, what: Happened<'_>) -> Result<(), WireError> {
        let mut bytes = Vec::new();
        FromWorker::Event(Event {
            offset: self.made,
            what,
        })
        .encode(&mut bytes)?;
        self.made += 1;
        self.unsent.push_back(Frame {
            kind: Kind::Output { end: self.made },
            bytes,
        });
        Ok(())
    }

    /// Queues a message behind everything else; without a link it is not needed.
    pub(crate) fn announce(&mut self, message: &FromWorker<'_>) -> Result<(), WireError> {
        if self.attached {
            let mut bytes = Vec::new();
            message.encode(&mut bytes)?;
            self.unsent.push_back(Frame {
                kind: Kind::Other,
                bytes,
            });
        }
        Ok(())
    }

    /// Queues the count of input taken if it grew; at most one waits at a time.
    pub(crate) fn input_taken(&mut self, total: u64) -> Result<(), WireError> {
        if !self.attached || self.taken_waits || total == self.taken {
            return Ok(());
        }
        let mut bytes = Vec::new();
        FromWorker::InputTaken(InputTaken { total }).encode(&mut bytes)?;
        self.unsent.push_back(Frame {
            kind: Kind::InputTaken,
            bytes,
        });
        self.taken = total;
        self.taken_waits = true;
        Ok(())
    }

    /// The link is gone: what was not acknowledged waits for the next one.
    pub(crate) fn detach(&mut self) {
        self.attached = false;
        self.cursor = 0;
        self.taken_waits = false;
        // Reported again from zero, since nobody knows what arrived.
        self.taken = 0;
        self.sent = self.acked;
        let is_output = |frame: &Frame| matches!(frame.kind, Kind::Output { .. });
        self.unsent.retain(is_output);
        let mut all = std::mem::take(&mut self.unacked);
        all.append(&mut self.unsent);
        self.unsent = all;
    }

    /// A supervisor is there: `greeting` goes before everything that waits.
    pub(crate) fn attach(&mut self, greeting: Vec<u8>) {
        self.attached = true;
        self.unsent.push_front(Frame {
            kind: Kind::Other,
            bytes: greeting,
        });
    }

    /// Output up to `offset` arrived.
    pub(crate) fn ack(&mut self, offset: u64) -> Result<(), AckError> {
        if offset > self.sent {
            return Err(AckError {
                got: offset,
                sent: self.sent,
            });
        }
        self.acked = self.acked.max(offset);
        while self
            .unacked
            .front()
            .is_some_and(|frame| matches!(frame.kind, Kind::Output { end } if end <= self.acked))
        {
            let freed = self.unacked.pop_front();
            self.has_slack |= freed.is_some_and(|frame| frame.bytes.len() > LARGE);
        }
        if self.unacked.is_empty() && self.unacked.capacity() > 64 {
            self.unacked = VecDeque::new();
        }
        Ok(())
    }

    /// Whether large frames were freed since the last call.
    pub(crate) fn take_slack(&mut self) -> bool {
        std::mem::take(&mut self.has_slack)
    }

    /// Whether nothing waits to be sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Whether anything is on its way to the socket.
    pub(crate) fn is_sending(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// How much of the input that was taken is not reported yet, in bytes.
    pub(crate) fn unreported_input(&self, total: u64) -> u64 {
        if self.attached {
            total.saturating_sub(self.taken)
        } else {
            0
        }
    }

    /// Whether there is something to write that the window allows.
    pub(crate) fn wants_write(&self) -> bool {
        self.attached
            && self
                .unsent
                .front()
                .is_some_and(|frame| self.cursor > 0 || self.is_allowed(frame))
    }

    /// Invalid bytes triple on the way to U+FFFD, so more may be made than the window allows; it
    /// waits here. A frame that is begun is always finished.
    fn is_allowed(&self, frame: &Frame) -> bool {
        match frame.kind {
            Kind::Output { end } => end - self.acked <= OUTPUT_WINDOW,
            Kind::InputTaken | Kind::Other => true,
        }
    }

    /// Writes until nothing is left, the window is used up or the socket is full.
    pub(crate) fn write_to(&mut self, mut stream: impl Write) -> io::Result<()> {
        while self.wants_write() {
            let mut slices = [IoSlice::new(&[]); FRAMES_PER_WRITE];
            let mut start = self.cursor;
            for (slice, frame) in slices.iter_mut().zip(&self.unsent) {
                if start == 0 && !self.is_allowed(frame) {
                    break;
                }
                *slice = IoSlice::new(frame.bytes.get(start..).unwrap_or_default());
                start = 0;
            }
            match stream.write_vectored(&slices) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => self.written(n),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Counts bytes that the socket took.
    fn written(&mut self, n: usize) {
        self.cursor += n;
        while let Some(frame) = self.unsent.front()
            && self.cursor >= frame.bytes.len()
        {
            self.cursor -= frame.bytes.len();
            self.first_is_sent();
        }
    }

    fn first_is_sent(&mut self) {
        let Some(frame) = self.unsent.pop_front() else {
            return;
        };
        match frame.kind {
            Kind::Output { end } => {
                self.sent = end;
                self.unacked.push_back(frame);
            }
            Kind::InputTaken => self.taken_waits = false,
            Kind::Other => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shellward_protocol::FrameDecoder;

    /// Takes a limited number of bytes, then would block.
    struct Narrow<'a> {
        taken: &'a mut Vec<u8>,
        left: usize,
    }

    impl Write for Narrow<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.left == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let n = bytes.len().min(self.left);
            self.left -= n;
            self.taken.extend_from_slice(&bytes[..n]);
            Ok(n)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn offsets(bytes: &[u8]) -> Vec<u64> {
        let mut decoder = FrameDecoder::new();
        decoder.push(bytes);
        let mut found = Vec::new();
        while let Some((header, payload)) = decoder.next_frame().unwrap() {
            if let Ok(FromWorker::Output(output)) = FromWorker::decode(header, payload) {
                found.push(output.offset);
            }
        }
        found
    }

    fn attached() -> Outbox {
        let mut outbox = Outbox::default();
        outbox.attach(Vec::new());
        let mut sink = Vec::new();
        // The empty greeting is "written whole" by a stream that takes nothing of it.
        outbox.unsent.clear();
        outbox.write_to(&mut sink).unwrap();
        outbox
    }

    #[test]
    fn unacknowledged_output_is_sent_again_after_a_loss() {
        let mut outbox = attached();
        for text in ["one", "two", "three"] {
            outbox.output(Vec::new(), text).unwrap();
        }
        let mut first = Vec::new();
        outbox
            .write_to(Narrow {
                taken: &mut first,
                left: 100,
            })
            .unwrap();
        outbox.ack(3).unwrap();
        outbox.detach();
        let mut greeting = Vec::new();
        FromWorker::InputTaken(InputTaken { total: 0 })
            .encode(&mut greeting)
            .unwrap();
        outbox.attach(greeting);
        let mut second = Vec::new();
        outbox.write_to(&mut second).unwrap();
        assert_eq!(offsets(&second), [3, 6]);
        outbox.ack(11).unwrap();
        assert!(outbox.unacked.is_empty());
    }

    #[test]
    fn no_frame_has_more_cuts_than_it_may_hold() {
        let mut outbox = attached();
        let cut = Cut {
            at: 1,
            modes: shellward_protocol::Modes::default(),
        };
        let cuts = vec![cut; CUTS_MAX + 2];
        outbox.output(cuts, &"x".repeat(100)).unwrap();
        let mut bytes = Vec::new();
        outbox.write_to(&mut bytes).unwrap();
        assert_eq!(offsets(&bytes), [0], "it can be decoded");
    }

    #[test]
    fn window_is_never_exceeded() {
        let mut outbox = attached();
        let chunk = "x".repeat(OUTPUT_CHUNK_MAX);
        for _ in 0..10 {
            outbox.output(Vec::new(), &chunk).unwrap();
        }
        assert!(!outbox.has_room());
        let mut bytes = Vec::new();
        outbox.write_to(&mut bytes).unwrap();
        assert_eq!(offsets(&bytes).len(), 8);
        assert!(!outbox.wants_write());
        outbox.ack(1).unwrap();
        assert!(!outbox.wants_write());
        outbox.ack(2 * OUTPUT_CHUNK_MAX as u64).unwrap();
        outbox.write_to(&mut bytes).unwrap();
        assert_eq!(offsets(&bytes).len(), 10);
        assert!(outbox.is_empty());
    }

    #[test]
    fn acknowledging_what_was_not_sent_is_refused() {
        let mut outbox = attached();
        outbox.output(Vec::new(), "abc").unwrap();
        assert_eq!(outbox.ack(3), Err(AckError { got: 3, sent: 0 }));
    }

    #[test]
    fn counts_of_input_do_not_pile_up() {
        let mut outbox = attached();
        for total in 1..100 {
            outbox.input_taken(total).unwrap();
        }
        assert_eq!(outbox.unsent.len(), 1);
        outbox.write_to(&mut Vec::new()).unwrap();
        outbox.input_taken(99).unwrap();
        assert_eq!(outbox.unsent.len(), 1);
    }
}
