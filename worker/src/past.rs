//! What a supervisor has acknowledged, kept for the next one.
//!
//! What lives here: what is kept of it, in which order, and what gives way. What must not: the
//! link, what was not acknowledged (the outbox).
//!
//! It holds about as much as clients see, so that a supervisor which comes anew can show what the
//! one before it showed. Where commands begin and end is kept between the text; of everything else
//! that happened, only how it is now.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use shellward_protocol::kept::{Commands, Finished, Gap, Lost, Newest, Past as Told, Started};
use shellward_protocol::limits::{PAST_CHARS, PAST_FRAMES};
use shellward_protocol::message::{Happened, Output};
use shellward_protocol::{Data, FromWorker, Modes, WireError};

use crate::frame::{decoded_output, text_of};
use crate::piece::{LARGE, Piece};

/// What a supervisor told of an earlier shell holds text that is none, or a place to cut it that is
/// none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the past holds text that is none")]
pub(crate) struct NoText;

#[derive(Debug)]
enum What {
    /// Small frames, put together.
    Piece(Piece),
    /// A large one, as it was sent.
    Frame(Vec<u8>),
    Started(Started<'static>),
    Finished(Finished),
    Gap(Gap),
}

#[derive(Debug)]
struct Entry {
    /// The place in the stream behind it; zero for what an earlier shell left.
    end: u64,
    chars: usize,
    what: What,
}

/// The past of a terminal.
#[derive(Debug)]
pub(crate) struct Past {
    entries: VecDeque<Entry>,
    /// Of all entries: of their text, and of the lines of commands.
    chars: usize,
    /// How many entries are starts of commands.
    starts: u64,
    /// The command that started before the first entry and did not end before it, and the place
    /// behind its start.
    open: Option<(u64, Started<'static>)>,
    trimmed: bool,
    /// The place behind what gave way.
    gone: u64,
    /// How many commands have started in all.
    count: u64,
    newest: Newest,
    can_detect: bool,
    directory: Option<Vec<u8>>,
    title: Option<Vec<u8>>,
    /// In force at the last place that is known to be safe.
    modes: Modes,
}

impl Default for Past {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            chars: 0,
            starts: 0,
            open: None,
            trimmed: false,
            gone: 0,
            count: 0,
            newest: Newest::None,
            can_detect: false,
            directory: None,
            title: None,
            modes: Modes::default(),
        }
    }
}

impl Past {
    /// The terminal had so many commands with an earlier shell, and whether they can be told apart is
    /// known.
    pub(crate) fn begin(&mut self, commands: u64, can_detect: bool) {
        self.count = commands;
        self.can_detect = can_detect;
    }

    /// What an earlier shell left. It is counted already.
    pub(crate) fn seed(&mut self, told: Told<'_>) -> Result<(), NoText> {
        match told {
            Told::Text { cuts, data } => {
                let text = std::str::from_utf8(data.as_slice()).map_err(|_| NoText)?;
                let is_place = |at: u32| text.is_char_boundary(at as usize);
                if !cuts.iter().all(|cut| is_place(cut.at)) {
                    return Err(NoText);
                }
                if text.is_empty() {
                    return Ok(());
                }
                if let Some(last) = cuts.last() {
                    self.modes = last.modes;
                }
                let mut piece = Piece::default();
                piece.append(text, &cuts);
                piece.shrink();
                self.push(0, text.chars().count(), What::Piece(piece));
            }
            Told::CommandStarted(started) => {
                self.begun(0, started);
            }
            Told::CommandFinished(finished) => self.finished(0, finished),
            Told::Gap(gap) => {
                self.modes = gap.modes;
                self.push(0, 0, What::Gap(gap));
            }
        }
        Ok(())
    }

    /// A frame of output of so many characters was acknowledged.
    pub(crate) fn output(&mut self, frame: Vec<u8>, chars: usize) -> Result<(), WireError> {
        let output = decoded_output(&frame)?;
        if let Some(last) = output.cuts.last() {
            self.modes = last.modes;
        }
        let start = output.offset;
        let end = start + output.data.as_slice().len() as u64;
        if output.data.as_slice().len() >= LARGE {
            self.push(end, chars, What::Frame(frame));
            return Ok(());
        }
        let text = text_of(&output);
        // Only what follows it without a gap: then its places can be counted from its end.
        if let Some(last) = self.entries.back_mut()
            && last.end == start
            && start > 0
            && let What::Piece(piece) = &mut last.what
        {
            if piece.append(text, &output.cuts) {
                last.end = end;
                last.chars += chars;
                self.chars += chars;
                self.trim();
                return Ok(());
            }
            piece.shrink();
        }
        let mut piece = Piece::default();
        piece.append(text, &output.cuts);
        self.push(end, chars, What::Piece(piece));
        Ok(())
    }

    /// An event was acknowledged that ends at this place.
    pub(crate) fn event(&mut self, end: u64, what: Happened<'_>) {
        match what {
            Happened::CanDetectCommands => self.can_detect = true,
            Happened::CommandStarted { line, at_ms } => {
                self.started(end, Started { line, at_ms });
            }
            Happened::CommandFinished {
                exit_code,
                duration_ms,
            } => self.finished(
                end,
                Finished {
                    exit_code,
                    duration_ms,
                },
            ),
            Happened::Directory(path) => self.directory = Some(path.into_vec()),
            Happened::Title(title) => self.title = Some(title.into_vec()),
        }
    }

    /// It was acknowledged that something is missing.
    pub(crate) fn lost(&mut self, lost: Lost<'_>) {
        let end = lost.offset + lost.places;
        self.modes = lost.modes;
        self.can_detect |= lost.can_detect;
        if lost.bytes > 0 {
            let gap = Gap {
                bytes: lost.bytes,
                modes: lost.modes,
            };
            self.push(end, 0, What::Gap(gap));
        }
        if let Some(finished) = lost.finished {
            self.finished(end, finished);
        }
        if let Some(started) = lost.started {
            self.started(end, started);
        }
        if let Some(directory) = lost.directory {
            self.directory = Some(directory.into_vec());
        }
        if let Some(title) = lost.title {
            self.title = Some(title.into_vec());
        }
    }

    fn started(&mut self, end: u64, started: Started<'_>) {
        self.count += 1;
        self.begun(end, started);
    }

    fn begun(&mut self, end: u64, started: Started<'_>) {
        self.starts += 1;
        self.newest = Newest::Running {
            at_ms: started.at_ms,
        };
        // It was text when it was made; a supervisor that seeds another has its bytes counted.
        let line = std::str::from_utf8(started.line.as_slice());
        let chars = line.map_or(started.line.as_slice().len(), |line| line.chars().count());
        self.push(end, chars, What::Started(started.into_owned()));
    }

    fn finished(&mut self, end: u64, finished: Finished) {
        self.newest = Newest::Finished {
            exit_code: finished.exit_code,
        };
        self.push(end, 0, What::Finished(finished));
    }

    fn push(&mut self, end: u64, chars: usize, what: What) {
        if let Some(last) = self.entries.back_mut()
            && let What::Piece(piece) = &mut last.what
        {
            piece.shrink();
        }
        self.chars += chars;
        self.entries.push_back(Entry { end, chars, what });
        self.trim();
    }

    /// The oldest gives way while what is left is as much as clients see, or too many pieces. One
    /// more is told for the command that was open before them.
    fn trim(&mut self) {
        while let Some(front) = self.entries.front()
            && (self.chars - front.chars >= PAST_CHARS || self.entries.len() >= PAST_FRAMES)
        {
            self.pop();
        }
    }

    fn pop(&mut self) {
        let Some(entry) = self.entries.pop_front() else {
            return;
        };
        self.chars -= entry.chars;
        match entry.what {
            // Its line is part of what is shown as long as any of it is.
            What::Started(started) => {
                self.starts -= 1;
                self.open = Some((entry.end, started));
                return;
            }
            What::Finished(_) => self.open = None,
            What::Piece(_) | What::Frame(_) | What::Gap(_) => {}
        }
        self.trimmed = true;
        self.gone = entry.end;
    }

    /// Everything up to this place is forgotten; how many commands there were, and how it is now,
    /// is not.
    pub(crate) fn clear(&mut self, offset: u64) {
        // More may have been acknowledged, and have given way, before the order to clear came.
        let gone = self.gone;
        while self
            .entries
            .front()
            .is_some_and(|front| front.end <= offset)
        {
            self.pop();
        }
        self.open.take_if(|(end, _)| *end <= offset);
        self.gone = if gone > offset { gone } else { 0 };
        self.trimmed = gone > offset;
        if let Some(front) = self.entries.front_mut()
            && let What::Piece(piece) = &mut front.what
        {
            let start = front.end.saturating_sub(piece.text().len() as u64);
            if let Ok(count) = usize::try_from(offset.saturating_sub(start)) {
                piece.drop_front(count);
            }
            let chars = piece.text().chars().count();
            self.chars -= front.chars - chars;
            front.chars = chars;
        }
        self.rest();
    }

    /// Gives back memory that nothing is in.
    pub(crate) fn rest(&mut self) {
        if self.entries.capacity() > 2 * self.entries.len() {
            self.entries.shrink_to_fit();
        }
    }

    /// How many pieces are told.
    pub(crate) fn len(&self) -> usize {
        self.entries.len() + usize::from(self.open.is_some())
    }

    /// Appends a frame for the piece with this number, if there is one.
    pub(crate) fn encode(&self, number: usize, out: &mut Vec<u8>) -> Result<bool, WireError> {
        let number = match (&self.open, number) {
            (Some((_, started)), 0) => {
                let told = Told::CommandStarted(borrowed(started));
                FromWorker::Past(told).encode(out)?;
                return Ok(true);
            }
            (Some(_), number) => number - 1,
            (None, number) => number,
        };
        let Some(entry) = self.entries.get(number) else {
            return Ok(false);
        };
        let told = match &entry.what {
            What::Piece(piece) => Told::Text {
                cuts: piece.cuts().to_vec(),
                data: Data::borrowed(piece.text().as_bytes()),
            },
            What::Frame(frame) => {
                let Output { cuts, data, .. } = decoded_output(frame)?;
                Told::Text { cuts, data }
            }
            What::Started(started) => Told::CommandStarted(borrowed(started)),
            What::Finished(finished) => Told::CommandFinished(*finished),
            What::Gap(gap) => Told::Gap(*gap),
        };
        FromWorker::Past(told).encode(out)?;
        Ok(true)
    }

    pub(crate) fn commands(&self) -> Commands {
        let told = self.starts + u64::from(self.open.is_some());
        Commands {
            count: self.count,
            first: (self.count + 1).saturating_sub(told).max(1),
            newest: self.newest,
        }
    }

    pub(crate) fn is_trimmed(&self) -> bool {
        self.trimmed
    }

    pub(crate) fn can_detect(&self) -> bool {
        self.can_detect
    }

    pub(crate) fn directory(&self) -> Option<&[u8]> {
        self.directory.as_deref()
    }

    pub(crate) fn title(&self) -> Option<&[u8]> {
        self.title.as_deref()
    }

    /// The modes in force at the last place that is known to be safe.
    pub(crate) fn modes(&self) -> Modes {
        self.modes
    }
}

fn borrowed<'a>(started: &'a Started<'_>) -> Started<'a> {
    Started {
        line: Data::borrowed(started.line.as_slice()),
        at_ms: started.at_ms,
    }
}
