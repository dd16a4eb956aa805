//! What is made while nobody is there to take it.
//!
//! What lives here: putting small frames together, what gives way, and where what is left begins.
//! What must not: when somebody is there.

use shellward_protocol::limits::{FRAMES_WINDOW, UNATTENDED_CHARS};
use shellward_protocol::message::{Cut, Event, Happened, Output};
use shellward_protocol::{Data, FromWorker, WireError};

use super::{Outbox, Tail, Taker, lost};
use crate::frame::{Frame, decoded, text_of};
use crate::piece::{LARGE, Piece};

impl Outbox {
    /// Output that nobody waits for goes into frames of some size.
    pub(super) fn output_unattended(
        &mut self,
        start: u64,
        cuts: Vec<Cut>,
        data: &str,
        chars: usize,
    ) -> Result<(), WireError> {
        if data.len() >= LARGE {
            self.seal()?;
            let frame = Frame::output(start, cuts, data, chars)?;
            self.unsent.push_back(frame);
            return self.give_way();
        }
        if let Some(tail) = &mut self.tail
            && tail.piece.append(data, &cuts)
        {
            tail.chars += chars;
            return self.give_way();
        }
        self.seal()?;
        let mut piece = Piece::default();
        piece.append(data, &cuts);
        self.tail = Some(Tail {
            start,
            chars,
            piece,
        });
        self.give_way()
    }

    /// Makes a frame of the tail.
    pub(super) fn seal(&mut self) -> Result<(), WireError> {
        if let Some(Tail {
            start,
            chars,
            piece,
        }) = self.tail.take()
        {
            let cuts = piece.cuts().to_vec();
            let frame = Frame::output(start, cuts, piece.text(), chars)?;
            self.unsent.push_back(frame);
        }
        Ok(())
    }

    /// While nobody is there, only so much is kept; what gives way is the oldest.
    pub(super) fn give_way(&mut self) -> Result<(), WireError> {
        while self.taker == Taker::Nobody
            && !self.unsent.is_empty()
            && (self.weight > UNATTENDED_CHARS || self.unsent.len() > FRAMES_WINDOW)
        {
            if !self.settle_delivered()? {
                self.lose_first()?;
            }
        }
        Ok(())
    }

    /// The oldest becomes the past instead of giving way, if a supervisor was sent all of it: clients
    /// have probably seen it, for only every so often is something acknowledged.
    fn settle_delivered(&mut self) -> Result<bool, WireError> {
        let delivered = self.delivered;
        if let Some(lost) = self.lost.take_if(|lost| lost::end(lost) <= delivered) {
            self.acked = lost::end(&lost);
            self.past.lost(lost);
        }
        let end = self.unsent.front().and_then(|frame| frame.kind.end());
        let Some(end) = end.filter(|end| *end <= delivered) else {
            return Ok(false);
        };
        if let Some(frame) = self.unsent.pop_front() {
            self.settle(frame, end)?;
        }
        Ok(true)
    }

    fn lose_first(&mut self) -> Result<(), WireError> {
        let Some(frame) = self.unsent.pop_front() else {
            return Ok(());
        };
        let (acked, modes) = (self.acked, self.past.modes());
        let lost = self.lost.get_or_insert_with(|| lost::nothing(acked, modes));
        self.has_lost = true;
        match decoded(&frame.bytes)? {
            FromWorker::Output(output) => lost::swallow_output(lost, &output),
            FromWorker::Event(event) => lost::swallow_event(lost, event.what),
            other => return Err(WireError::UnknownKind(other.kind())),
        }
        self.weight -= frame.kind.weight();
        self.has_slack |= frame.bytes.len() > LARGE;
        Ok(())
    }

    /// What follows a gap begins where scrollback may be cut, if such a place is near: not inside
    /// a sequence whose beginning is lost.
    pub(super) fn begin_safely(&mut self) -> Result<(), WireError> {
        loop {
            let Some(front) = self.unsent.front() else {
                return Ok(());
            };
            let piece = match decoded(&front.bytes)? {
                FromWorker::Output(output) => {
                    let Some(first) = output.cuts.first() else {
                        return Ok(());
                    };
                    let at = first.at as usize;
                    if let (Some(lost), Some(gone)) =
                        (&mut self.lost, output.data.as_slice().get(..at))
                    {
                        let gone = Output {
                            offset: output.offset,
                            cuts: vec![*first],
                            data: Data::borrowed(gone),
                        };
                        lost::swallow_output(lost, &gone);
                    }
                    let mut piece = Piece::default();
                    piece.append(text_of(&output), &output.cuts);
                    piece.drop_front(at);
                    piece
                }
                // A part of the output begins here, so it is such a place.
                FromWorker::Event(Event {
                    what: Happened::CommandStarted { .. } | Happened::CommandFinished { .. },
                    ..
                }) => return Ok(()),
                FromWorker::Event(_) => {
                    self.lose_first()?;
                    continue;
                }
                other => return Err(WireError::UnknownKind(other.kind())),
            };
            if let Some(whole) = self.unsent.pop_front() {
                self.weight -= whole.kind.weight();
            }
            if !piece.text().is_empty() {
                let chars = piece.text().chars().count();
                let (at, cuts) = (self.window_start(), piece.cuts().to_vec());
                let frame = Frame::output(at, cuts, piece.text(), chars)?;
                self.weight += chars;
                self.unsent.push_front(frame);
            }
            return Ok(());
        }
    }
}
