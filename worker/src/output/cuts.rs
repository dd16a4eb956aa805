//! Where scrollback may be cut without breaking a sequence or a character (field case S-24).
//!
//! What lives here: choosing among the places between sequences that the scanner tells of. What
//! must not: knowing sequences.
//!
//! Plain text costs one `memrchr` per 4 KiB.

use memchr::{memchr, memrchr};
use shellward_protocol::Modes;
use shellward_protocol::limits::CUT_DISTANCE;

use shellward_protocol::text::boundary;

/// A place in the output, counted from the terminal's first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) at: u64,
    pub(super) modes: Modes,
}

/// Chooses about one place in every block of [`CUT_DISTANCE`] bytes.
#[derive(Debug)]
pub(super) struct Planner {
    /// Where the current block ends.
    block_end: u64,
    /// A block ended without a place; the next line end is taken at once.
    owed: bool,
    /// The best places in this block that are still ahead of what was sent.
    line: Option<Place>,
    ground: Option<Place>,
    chosen: Vec<Place>,
    /// Where the output began that the chosen places are of.
    taken_at: u64,
}

impl Planner {
    pub(super) fn new() -> Self {
        Self {
            block_end: CUT_DISTANCE as u64,
            owed: false,
            line: None,
            ground: None,
            chosen: Vec::new(),
            taken_at: 0,
        }
    }

    /// A stretch of text between sequences, which starts at `at` of the output.
    pub(super) fn ground(&mut self, mut at: u64, mut text: &str, modes: Modes) {
        if at >= self.block_end {
            self.close(at);
            // A sequence longer than a block: where it ends is the first place after it, and what
            // follows must not go with it.
            if self.owed && at > self.taken_at {
                self.owed = false;
                self.chosen.push(Place { at, modes });
            }
        }
        loop {
            let room = usize::try_from(self.block_end - at).unwrap_or(usize::MAX);
            let part = text.as_bytes().get(..room).unwrap_or(text.as_bytes());
            if self.owed
                && let Some(line) = memchr(b'\n', part)
            {
                self.owed = false;
                let place = at + line as u64 + 1;
                self.chosen.push(Place { at: place, modes });
                // One cut for this block, wherever it began.
                self.block_end = place + CUT_DISTANCE as u64;
                self.line = None;
                self.ground = None;
                let (_, rest) = text.split_at(line + 1);
                text = rest;
                at = place;
                continue;
            }
            if let Some(line) = memrchr(b'\n', part) {
                self.line = Some(Place {
                    at: at + line as u64 + 1,
                    modes,
                });
            }
            let last = boundary(text, part.len());
            if last > 0 {
                self.ground = Some(Place {
                    at: at + last as u64,
                    modes,
                });
            }
            if part.len() < room {
                return;
            }
            // The block is full. What is left of a character belongs to the next one.
            let (_, rest) = text.split_at(last);
            text = rest;
            at += last as u64;
            self.close(self.block_end.max(at));
        }
    }

    /// Ends the block at its end, or where something that cannot be cut went beyond it.
    fn close(&mut self, at: u64) {
        // A block that came in pieces rarely has a line end in its last one. Then the next line end
        // is taken, wherever it is; only after a whole block without any the line is broken.
        let place = self.line.or(self.ground.filter(|_| self.owed));
        self.owed = place.is_none();
        self.chosen.extend(place);
        self.line = None;
        self.ground = None;
        self.block_end = at.max(self.block_end) + CUT_DISTANCE as u64;
    }

    /// Something is told at this place, where one part of the output ends: the best place of all.
    pub(super) fn boundary(&mut self, at: u64, modes: Modes) {
        if self.chosen.last().is_none_or(|last| last.at < at) {
            self.chosen.push(Place { at, modes });
        }
        self.owed = false;
        self.line = None;
        self.ground = None;
        self.block_end = at + CUT_DISTANCE as u64;
    }

    /// The places chosen since the last call. What was sent up to `sent_to` is out of reach.
    pub(super) fn take(&mut self, sent_to: u64) -> Vec<Place> {
        self.taken_at = sent_to;
        self.line = None;
        self.ground = None;
        std::mem::take(&mut self.chosen)
    }
}
