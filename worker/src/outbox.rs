//! Frames on their way to the supervisor, and what it has not acknowledged.
//!
//! What lives here: the order of frames, the credit for output, what is sent again after the link
//! was lost; what gives way while nobody is there is in `unattended` and `lost`. What must not: the
//! socket beyond writing to it, the pty, how long somebody is waited for.
//!
//! A frame of output is encoded once. It moves from "unsent" to "unacked" without a copy, back when
//! a link is lost, and into the past when it is acknowledged, so nothing that was shown gets lost
//! with a supervisor.

mod lost;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tests;
mod unattended;

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};

use shellward_protocol::kept::{Lost, Past as Told};
use shellward_protocol::limits::{
    CUTS_MAX, FRAMES_WINDOW, OUTPUT_CHUNK_MAX, OUTPUT_WINDOW, PAST_FRAMES,
};
use shellward_protocol::message::{Cut, Happened, InputTaken};
use shellward_protocol::{FromWorker, WireError};

use crate::frame::{Frame, Kind, decoded};
use crate::past::{NoText, Past};
use crate::piece::{LARGE, PIECE_MAX, Piece};

/// Frames that go out in one system call: a keystroke's echo and the report that it was taken.
const FRAMES_PER_WRITE: usize = 4;

/// Less room than this is not used: a window that opens byte by byte would make frames of a byte.
const ROOM_MIN: usize = 4 << 10;

/// About so much of the past is encoded at once, in bytes: it may be large, and what is encoded is
/// held twice.
const TOLD_AT_ONCE: usize = 64 << 10;

/// Who takes output.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Taker {
    /// A supervisor.
    Supervisor,
    /// Nobody, but somebody is waited for.
    #[default]
    Later,
    /// Nobody: it runs free, and the oldest gives way.
    Nobody,
}

/// Why an acknowledgement was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AckError {
    /// Of what it cannot have.
    #[error("output up to {got} was acknowledged, but only {sent} was sent")]
    NotSent { got: u64, sent: u64 },
    /// A frame of our own could not be read.
    #[error(transparent)]
    Frame(#[from] WireError),
}

/// Why a piece of the past was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SeedError {
    /// It does not stand right behind the start, or there is too much of it.
    #[error("what was before came too late, or too much of it")]
    Order,
    /// It holds what is none.
    #[error(transparent)]
    NoText(#[from] NoText),
}

/// Output on its way into a frame.
#[derive(Debug)]
struct Tail {
    start: u64,
    chars: usize,
    piece: Piece,
}

/// The way out.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    taker: Taker,
    unsent: VecDeque<Frame>,
    unacked: VecDeque<Frame>,
    /// Bytes of the first unsent frame that are written.
    cursor: usize,
    /// The place after the last output or event made, sent, acknowledged.
    made: u64,
    sent: u64,
    acked: u64,
    /// The place up to which a supervisor that is gone was sent it.
    delivered: u64,
    /// Of all frames and the tail, see [`Kind::weight`].
    weight: usize,
    /// The end of what was made while nobody was there, not a frame yet.
    tail: Option<Tail>,
    /// What was acknowledged.
    past: Past,
    /// The next piece of it to tell, while it is being told.
    telling: Option<usize>,
    /// To be forgotten up to here once it is told.
    clear_at: Option<u64>,
    /// So many more pieces of it may come from the supervisor.
    seeds: usize,
    /// What gave way, between what was acknowledged and the first frame.
    lost: Option<Lost<'static>>,
    /// It has grown since it was told.
    has_lost: bool,
    /// The count of the last InputTaken frame, and whether it still waits.
    taken: u64,
    taken_waits: bool,
    /// Large frames were freed since [`Self::take_slack`].
    has_slack: bool,
}

impl Outbox {
    /// Whether more output may be made now. With a supervisor: while it takes what there is.
    pub(crate) fn has_room(&self) -> bool {
        match self.taker {
            Taker::Supervisor => {
                self.room() >= ROOM_MIN
                    && self.unsent.is_empty()
                    && self.unacked.len() < FRAMES_WINDOW
            }
            Taker::Later => false,
            Taker::Nobody => true,
        }
    }

    /// How many bytes of output are taken now.
    pub(crate) fn room(&self) -> usize {
        match self.taker {
            Taker::Supervisor => {
                let room = OUTPUT_WINDOW.saturating_sub(self.made - self.window_start());
                usize::try_from(room).unwrap_or(usize::MAX)
            }
            Taker::Later => 0,
            // Whole frames give way: less than a third of what is kept at a time.
            Taker::Nobody => PIECE_MAX,
        }
    }

    /// Where the window begins: what gave way takes no memory.
    fn window_start(&self) -> u64 {
        self.lost.as_ref().map_or(self.acked, lost::end)
    }

    /// Queues output: at most [`OUTPUT_CHUNK_MAX`] bytes of valid UTF-8, not empty.
    /// One frame has room for a cut in each block, and one that began before; if there is one more,
    /// at the end of a part, the oldest gives way.
    pub(crate) fn output(&mut self, mut cuts: Vec<Cut>, data: &str) -> Result<(), WireError> {
        debug_assert!(data.len() <= OUTPUT_CHUNK_MAX);
        cuts.drain(..cuts.len().saturating_sub(CUTS_MAX));
        let chars = data.chars().count();
        let start = self.made;
        self.made += data.len() as u64;
        self.weight += chars;
        if self.taker == Taker::Nobody {
            return self.output_unattended(start, cuts, data, chars);
        }
        self.unsent
            .push_back(Frame::output(start, cuts, data, chars)?);
        Ok(())
    }

    /// Queues something that happened, at its place in the output.
    pub(crate) fn event(&mut self, what: Happened<'_>) -> Result<(), WireError> {
        self.seal()?;
        let frame = Frame::event(self.made, what)?;
        self.made += 1;
        self.weight += frame.kind.weight();
        self.unsent.push_back(frame);
        self.give_way()
    }

    /// Queues a message behind everything else; without a link it is not needed.
    pub(crate) fn announce(&mut self, message: &FromWorker<'_>) -> Result<(), WireError> {
        if self.taker == Taker::Supervisor {
            self.unsent.push_back(Frame::of(Kind::Other, message)?);
        }
        Ok(())
    }

    /// Queues the count of input taken if it grew; at most one waits at a time.
    pub(crate) fn input_taken(&mut self, total: u64) -> Result<(), WireError> {
        if self.taker != Taker::Supervisor || self.taken_waits || total == self.taken {
            return Ok(());
        }
        let message = FromWorker::InputTaken(InputTaken { total });
        self.unsent
            .push_back(Frame::of(Kind::InputTaken, &message)?);
        self.taken = total;
        self.taken_waits = true;
        Ok(())
    }

    /// The link is gone: what was not acknowledged waits for the next one, and nothing is added.
    pub(crate) fn detach(&mut self) {
        self.taker = Taker::Later;
        self.cursor = 0;
        self.taken_waits = false;
        self.delivered = self.delivered.max(self.sent);
        self.sent = self.acked;
        self.seeds = 0;
        self.telling = None;
        self.clear_if_told();
        self.unsent.retain(Frame::is_kept);
        let mut all = std::mem::take(&mut self.unacked);
        all.retain(Frame::is_kept);
        all.append(&mut self.unsent);
        self.unsent = all;
    }

    /// Nobody is waited for any more.
    pub(crate) fn run_free(&mut self) {
        if self.taker == Taker::Later {
            self.taker = Taker::Nobody;
        }
    }

    /// A supervisor is there: `greeting`, which tells that so much input was taken, goes before
    /// everything that waits; behind it the past, if it is told.
    pub(crate) fn attach(
        &mut self,
        greeting: Vec<u8>,
        taken: u64,
        tells_past: bool,
    ) -> Result<(), WireError> {
        self.seal()?;
        self.taker = Taker::Supervisor;
        self.taken = taken;
        if self.has_lost {
            self.begin_safely()?;
            self.has_lost = false;
        }
        if let Some(lost) = &self.lost {
            let end = lost::end(lost);
            let message = FromWorker::Lost(Box::new(lost.clone()));
            self.unsent
                .push_front(Frame::of(Kind::Lost { end }, &message)?);
        }
        self.unsent.push_front(Frame {
            kind: Kind::Greeting,
            bytes: greeting,
        });
        self.telling = tells_past.then_some(0);
        Ok(())
    }

    /// Puts the next stretch of the past in front, if there is more.
    fn tell_on(&mut self) -> Result<(), WireError> {
        let Some(mut next) = self.telling else {
            return Ok(());
        };
        let mut bytes = Vec::new();
        while bytes.len() < TOLD_AT_ONCE && self.past.encode(next, &mut bytes)? {
            next += 1;
        }
        if bytes.is_empty() {
            self.telling = None;
            self.clear_if_told();
            self.has_slack = true;
        } else {
            self.telling = Some(next);
            self.unsent.push_front(Frame {
                kind: Kind::Greeting,
                bytes,
            });
        }
        Ok(())
    }

    /// A shell starts. What an earlier one left may follow.
    pub(crate) fn begin(&mut self, commands: u64, can_detect: bool) {
        self.past.begin(commands, can_detect);
        self.seeds = PAST_FRAMES;
    }

    /// A piece of what an earlier shell left.
    pub(crate) fn seed(&mut self, told: Told<'_>) -> Result<(), SeedError> {
        self.seeds = self.seeds.checked_sub(1).ok_or(SeedError::Order)?;
        Ok(self.past.seed(told)?)
    }

    /// Output up to `offset` arrived.
    pub(crate) fn ack(&mut self, offset: u64) -> Result<(), AckError> {
        if offset > self.sent {
            return Err(AckError::NotSent {
                got: offset,
                sent: self.sent,
            });
        }
        self.seeds = 0;
        while let Some(end) = self.unacked.front().and_then(|frame| frame.kind.end())
            && end <= offset
            && let Some(frame) = self.unacked.pop_front()
        {
            // Of a frame of which only a part arrived nothing did.
            self.settle(frame, end)?;
        }
        if self.unacked.is_empty() && self.unacked.capacity() > 64 {
            self.unacked = VecDeque::new();
        }
        Ok(())
    }

    /// A frame becomes the past; the next begins at `end`.
    fn settle(&mut self, frame: Frame, end: u64) -> Result<(), WireError> {
        self.acked = end;
        self.weight -= frame.kind.weight();
        self.has_slack |= frame.bytes.len() > LARGE;
        match frame.kind {
            Kind::Output { chars, .. } => self.past.output(frame.bytes, chars)?,
            Kind::Event { end, .. } => {
                if let FromWorker::Event(event) = decoded(&frame.bytes)? {
                    self.past.event(end, event.what);
                }
            }
            Kind::Lost { .. } => {
                if let Some(lost) = self.lost.take() {
                    self.past.lost(lost);
                }
            }
            Kind::InputTaken | Kind::Greeting | Kind::Other => {}
        }
        Ok(())
    }

    /// Output up to `offset` arrived and is to be forgotten.
    pub(crate) fn clear(&mut self, offset: u64) -> Result<(), AckError> {
        self.ack(offset)?;
        self.clear_at = self.clear_at.max(Some(offset));
        self.clear_if_told();
        Ok(())
    }

    /// What is being told is counted already, so it is told to its end first.
    fn clear_if_told(&mut self) {
        if self.telling.is_none()
            && let Some(offset) = self.clear_at.take()
        {
            self.past.clear(offset);
            self.has_slack = true;
        }
    }

    /// What was acknowledged.
    pub(crate) fn past(&self) -> &Past {
        &self.past
    }

    /// The place behind it.
    pub(crate) fn acked(&self) -> u64 {
        self.acked
    }

    /// Whether large frames were freed since the last call.
    pub(crate) fn take_slack(&mut self) -> bool {
        std::mem::take(&mut self.has_slack)
    }

    /// Gives back memory that only a flood needs.
    pub(crate) fn rest(&mut self) {
        self.past.rest();
        if self.unsent.is_empty() {
            self.unsent = VecDeque::new();
        }
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
        if self.taker == Taker::Supervisor {
            total.saturating_sub(self.taken)
        } else {
            0
        }
    }

    /// Whether there is something to write that the window allows.
    pub(crate) fn wants_write(&self) -> bool {
        self.taker == Taker::Supervisor
            && self
                .unsent
                .front()
                .is_some_and(|frame| self.cursor > 0 || self.is_allowed(frame))
    }

    /// Invalid bytes triple on the way to U+FFFD, so more may be made than the window allows; it
    /// waits here. A frame that is begun is always finished.
    fn is_allowed(&self, frame: &Frame) -> bool {
        match frame.kind {
            Kind::Output { end, .. } | Kind::Event { end, .. } => {
                end.saturating_sub(self.window_start()) <= OUTPUT_WINDOW
            }
            Kind::Lost { .. } | Kind::InputTaken | Kind::Greeting | Kind::Other => true,
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
                // More of the past comes between this frame and the next.
                if frame.kind == Kind::Greeting && self.telling.is_some() {
                    break;
                }
            }
            match stream.write_vectored(&slices) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => self.written(n)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Counts bytes that the socket took.
    fn written(&mut self, n: usize) -> io::Result<()> {
        self.cursor += n;
        while let Some(frame) = self.unsent.front()
            && self.cursor >= frame.bytes.len()
        {
            self.cursor -= frame.bytes.len();
            self.first_is_sent().map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn first_is_sent(&mut self) -> Result<(), WireError> {
        let Some(frame) = self.unsent.pop_front() else {
            return Ok(());
        };
        if let Some(end) = frame.kind.end() {
            self.sent = end;
            self.unacked.push_back(frame);
            return Ok(());
        }
        match frame.kind {
            Kind::InputTaken => self.taken_waits = false,
            Kind::Greeting => self.tell_on()?,
            _ => {}
        }
        Ok(())
    }
}
