//! What a terminal has printed and which commands printed it, bounded, cut only where it is safe.
//!
//! The worker finds the safe places and the modes in force there (it is the only one that parses
//! terminal bytes) and sends them along; here they are data: a place inside a character is ignored.
//!
//! One buffer holds the text of all parts, so that a byte is copied once. The parts are what the
//! official reducer makes of the same actions (ahp-facts 7), which alone knows no bound; a test in
//! [`crate::ahp::document`] holds the two against each other.

use std::collections::VecDeque;

use shellward_protocol::Modes;
use shellward_protocol::kept::{self, Past};
use shellward_protocol::limits::{CUTS_MAX, OUTPUT_CHUNK_MAX};
use shellward_protocol::message::Cut as ToldCut;
use shellward_protocol::text::pieces;

use crate::limits::{
    CONTENT_PARTS, CONTENT_SLACK_PARTS, RESTORE_CHARS, SCROLLBACK_CHARS, SCROLLBACK_SLACK_CHARS,
};

/// Two places inside a part that are closer than this are one: bounds the list of them.
const CUT_DISTANCE_BYTES: u64 = 1024;

/// A place in the stream, counted from the terminal's first output.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Place {
    byte: u64,
    /// Characters before it: of the text, and of the command lines of all parts but its own, whose
    /// line is kept with every rest of its text.
    chars: u64,
    /// The number of the part it is in. Several parts without text are at the same byte.
    part: u64,
}

/// A place where the text may be cut.
#[derive(Debug, Clone, Copy)]
struct Cut {
    place: Place,
    modes: Modes,
}

/// A command, and what is known of its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Names it among the commands of this terminal.
    pub id: String,
    /// What was typed.
    pub line: String,
    /// When it started, in milliseconds since 1970.
    pub timestamp: i64,
    /// Its end, once it has come.
    pub end: Option<CommandEnd>,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandEnd {
    /// Its exit code, if known.
    pub exit_code: Option<i64>,
    /// How long it ran, in milliseconds, if known.
    pub duration_ms: Option<i64>,
}

/// A stretch of the text; it ends where the next one starts.
#[derive(Debug)]
struct Part {
    start: Place,
    /// Whose output it is.
    command: Option<Command>,
    /// Characters of the command's line.
    line_chars: u64,
}

/// The newest [`SCROLLBACK_CHARS`] characters of a terminal's output and command lines, or fewer.
#[derive(Debug, Default)]
pub struct Scrollback {
    text: String,
    /// Where `text` starts and ends.
    base: u64,
    end: u64,
    /// Characters so far, the line of the last part left out.
    chars: u64,
    parts: VecDeque<Part>,
    /// The number of the next part.
    next_part: u64,
    /// Ascending.
    cuts: VecDeque<Cut>,
    /// The newest place that was told, kept or not.
    told_at: u64,
    told_modes: Modes,
    /// The modes in force at `base`, as far as they were told.
    base_modes: Modes,
    /// Whether anything was taken away at the front since it was last empty.
    trimmed: bool,
}

/// What a new subscriber is given.
#[derive(Debug)]
pub struct Visible<'a> {
    /// What puts a fresh terminal into the modes in force where the parts begin; empty where
    /// nothing is to be set or the parts begin with the terminal.
    pub restore: String,
    /// The parts, oldest first, and their text.
    pub parts: Vec<(Option<&'a Command>, &'a str)>,
}

impl Scrollback {
    /// Appends output; the places are byte indices in `text`, ascending.
    pub fn push(&mut self, text: &str, cuts: &[ToldCut]) {
        let takes_output = self.parts.back().is_some_and(|part| {
            part.command
                .as_ref()
                .is_none_or(|command| command.end.is_none())
        });
        if !takes_output {
            self.begin(None, 0);
        }
        let mut counted = 0;
        for cut in cuts {
            let at = cut.at as usize;
            let (Some(between), true) = (text.get(counted..at), at > counted) else {
                continue;
            };
            self.count(between);
            counted = at;
            (self.told_at, self.told_modes) = (self.end, cut.modes);
            let far = self
                .cuts
                .back()
                .is_none_or(|last| self.end - last.place.byte >= CUT_DISTANCE_BYTES);
            if far {
                self.keep_told();
            }
        }
        self.count(text.get(counted..).unwrap_or_default());
        self.text.push_str(text);
        self.trim_if_due();
    }

    /// A command starts; the output that follows is its own.
    pub fn start_command(&mut self, command: Command) {
        let line_chars = chars(&command.line);
        self.begin(Some(command), line_chars);
        self.trim_if_due();
    }

    /// A command ends. One that is not known (any more) is none of ours.
    pub fn finish_command(&mut self, id: &str, end: CommandEnd) {
        // The open one is the last part, if it is here at all.
        let command = self
            .parts
            .iter_mut()
            .rev()
            .filter_map(|part| part.command.as_mut())
            .find(|command| command.id == id);
        if let Some(command) = command {
            command.end = Some(end);
        }
    }

    /// Older output than the first that will come gave way already.
    pub fn begin_trimmed(&mut self) {
        self.trimmed = true;
    }

    /// The modes in force at the end, as far as they were told.
    #[must_use]
    pub fn modes(&self) -> Modes {
        self.told_modes
    }

    /// What a new subscriber would be given, as a worker keeps it: a shell that is started again
    /// goes on behind it.
    #[must_use]
    pub fn past(&self) -> Vec<Past<'static>> {
        let visible = self.visible();
        let mut past = Vec::new();
        if !visible.restore.is_empty() {
            past.push(Past::Text {
                cuts: Vec::new(),
                data: visible.restore.into(),
            });
        }
        let shown: usize = visible.parts.iter().map(|(_, text)| text.len()).sum();
        let mut at = self.end - shown as u64;
        let mut cuts = self.cuts.iter().peekable();
        for (command, text) in visible.parts {
            if let Some(command) = command {
                past.push(Past::CommandStarted(kept::Started {
                    line: command.line.clone().into(),
                    at_ms: u64::try_from(command.timestamp).unwrap_or_default(),
                }));
            }
            for piece in pieces(text, OUTPUT_CHUNK_MAX) {
                let end = at + piece.len() as u64;
                let mut here = Vec::new();
                while let Some(cut) = cuts.next_if(|cut| cut.place.byte <= end) {
                    let place = cut.place.byte.checked_sub(at).filter(|at| *at > 0);
                    if let Some(Ok(at)) = place.map(u32::try_from) {
                        here.push(ToldCut {
                            at,
                            modes: cut.modes,
                        });
                    }
                }
                here.drain(..here.len().saturating_sub(CUTS_MAX));
                past.push(Past::Text {
                    cuts: here,
                    data: piece.to_owned().into(),
                });
                at = end;
            }
            if let Some(end) = command.and_then(|command| command.end) {
                past.push(Past::CommandFinished(kept::Finished {
                    exit_code: end.exit_code.and_then(|code| i32::try_from(code).ok()),
                    duration_ms: end
                        .duration_ms
                        .and_then(|time| u64::try_from(time).ok())
                        .unwrap_or_default(),
                }));
            }
        }
        past
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.chars += self.parts.back().map_or(0, |part| part.line_chars);
        self.text = String::new();
        self.parts = VecDeque::new();
        self.cuts = VecDeque::new();
        self.base = self.end;
        self.base_modes = self.told_modes;
        self.trimmed = false;
    }

    /// What a new subscriber is given, at most [`SCROLLBACK_CHARS`] characters in at most
    /// [`CONTENT_PARTS`] parts.
    #[must_use]
    pub fn visible(&self) -> Visible<'_> {
        let from = self.visible_start();
        let trimmed = self.trimmed || from.place.byte > self.base || from.place.part > self.first();
        let ends = self
            .parts
            .iter()
            .skip(1)
            .map(|next| next.start.byte)
            .chain([self.end]);
        let parts = self
            .parts
            .iter()
            .zip(ends)
            .filter(|(part, _)| part.start.part >= from.place.part)
            .map(|(part, end)| {
                let start = part.start.byte.max(from.place.byte);
                let text = self.text.get(self.index(start)..self.index(end));
                (part.command.as_ref(), text.unwrap_or_default())
            })
            .collect();
        Visible {
            restore: if trimmed {
                from.modes.restore()
            } else {
                String::new()
            },
            parts,
        }
    }

    fn begin(&mut self, command: Option<Command>, line_chars: u64) {
        self.chars += self.parts.back().map_or(0, |part| part.line_chars);
        let start = Place {
            byte: self.end,
            chars: self.chars,
            part: self.next_part,
        };
        self.next_part += 1;
        let after_text = self
            .parts
            .back()
            .is_some_and(|part| part.start.byte < self.end);
        self.parts.push_back(Part {
            start,
            command,
            line_chars,
        });
        // The start of a part is the best place of all, if the modes in force there are known; a
        // place at the end of the text before it would keep an empty rest of that part.
        if self.told_at == self.end {
            let ends_text = self
                .cuts
                .back()
                .is_some_and(|last| last.place.byte == self.end);
            if after_text && ends_text {
                self.cuts.pop_back();
            }
            self.keep_told();
        }
    }

    fn count(&mut self, text: &str) {
        self.chars += chars(text);
        self.end += text.len() as u64;
    }

    /// Keeps the place that was told last as one where the text may be cut.
    fn keep_told(&mut self) {
        self.cuts.push_back(Cut {
            place: Place {
                byte: self.end,
                chars: self.chars,
                part: self.next_part.saturating_sub(1),
            },
            modes: self.told_modes,
        });
    }

    fn index(&self, byte: u64) -> usize {
        usize::try_from(byte - self.base).unwrap_or(usize::MAX)
    }

    /// The number of the first part.
    fn first(&self) -> u64 {
        self.next_part - self.parts.len() as u64
    }

    /// Characters kept: text and command lines.
    fn kept_chars(&self) -> u64 {
        let (Some(first), Some(last)) = (self.parts.front(), self.parts.back()) else {
            return 0;
        };
        self.chars + last.line_chars - first.start.chars
    }

    /// Where the visible part starts, and the modes in force there.
    fn visible_start(&self) -> Cut {
        let front = Cut {
            place: self
                .parts
                .front()
                .map(|part| part.start)
                .unwrap_or_default(),
            modes: self.base_modes,
        };
        let kept = self.kept_chars();
        let limit = SCROLLBACK_CHARS as u64;
        let excess = if self.trimmed || kept > limit {
            kept.saturating_sub(limit - RESTORE_CHARS as u64)
        } else {
            0
        };
        let first_part = self.next_part.saturating_sub(CONTENT_PARTS as u64);
        if excess == 0 && front.place.part >= first_part {
            return front;
        }
        let from = front.place.chars + excess;
        let early = |place: &Place| place.chars < from || place.part < first_part;
        let at = self.cuts.partition_point(|cut| early(&cut.place));
        if let Some(cut) = self.cuts.get(at) {
            return *cut;
        }
        // No safe place: a worker that finds none (an endless sequence) must not make us keep
        // everything. At least between two commands, or inside the last one's output; never inside
        // a character. The modes told last are as near as one can come.
        let modes = self.cuts.back().map_or(self.base_modes, |cut| cut.modes);
        let at = self.parts.partition_point(|part| early(&part.start));
        if let Some(part) = self.parts.get(at) {
            return Cut {
                place: part.start,
                modes,
            };
        }
        let start = self.parts.back().map(|part| part.start).unwrap_or_default();
        let skip = usize::try_from(from.saturating_sub(start.chars)).unwrap_or(usize::MAX);
        let text = self.text.get(self.index(start.byte)..).unwrap_or_default();
        let bytes = text
            .char_indices()
            .nth(skip)
            .map_or(text.len(), |(at, _)| at);
        Cut {
            place: Place {
                byte: start.byte + bytes as u64,
                chars: from.max(start.chars),
                part: start.part,
            },
            modes,
        }
    }

    fn trim_if_due(&mut self) {
        if self.kept_chars() > SCROLLBACK_SLACK_CHARS as u64
            || self.parts.len() > CONTENT_SLACK_PARTS
        {
            self.trim();
        }
    }

    fn trim(&mut self) {
        let Cut { place, modes } = self.visible_start();
        self.text.drain(..self.index(place.byte));
        let gone = self
            .parts
            .partition_point(|part| part.start.part < place.part);
        self.parts.drain(..gone);
        if let Some(part) = self.parts.front_mut() {
            part.start = place;
        }
        let gone = self
            .cuts
            .partition_point(|cut| (cut.place.part, cut.place.byte) <= (place.part, place.byte));
        self.cuts.drain(..gone);
        self.base = place.byte;
        self.base_modes = modes;
        self.trimmed = true;
    }
}

fn chars(text: &str) -> u64 {
    text.chars().count() as u64
}

#[cfg(test)]
mod tests;
