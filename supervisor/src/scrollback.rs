//! What a terminal has printed, bounded, cut only where it is safe.
//!
//! The worker finds the safe places (it is the only one that parses terminal bytes) and sends them
//! along; here they are data: a place inside a character is ignored.

use std::collections::VecDeque;

use crate::limits::{SCROLLBACK_CHARS, SCROLLBACK_SLACK_CHARS};

/// Two places closer than this are one: bounds the list at `slack / distance`.
const CUT_DISTANCE_BYTES: u64 = 1024;

/// A safe place, counted from the terminal's first output.
#[derive(Debug, Clone, Copy)]
struct Cut {
    byte: u64,
    chars: u64,
}

/// The newest [`SCROLLBACK_CHARS`] characters of a terminal's output, or fewer.
#[derive(Debug, Default)]
pub struct Scrollback {
    text: String,
    /// Where `text` starts and ends, in bytes and characters since the terminal's first output.
    start: Position,
    end: Position,
    cuts: VecDeque<Cut>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Position {
    byte: u64,
    chars: u64,
}

impl Scrollback {
    /// Appends output; `cuts` are byte indices in `text`, ascending.
    pub fn push(&mut self, text: &str, cuts: &[u32]) {
        let mut counted = 0;
        let mut position = self.end;
        for cut in cuts {
            let at = *cut as usize;
            let (Some(between), true) = (text.get(counted..at), at > counted) else {
                continue;
            };
            position.chars += chars(between);
            position.byte += between.len() as u64;
            counted = at;
            let far = self
                .cuts
                .back()
                .is_none_or(|last| position.byte - last.byte >= CUT_DISTANCE_BYTES);
            if far {
                self.cuts.push_back(Cut {
                    byte: position.byte,
                    chars: position.chars,
                });
            }
        }
        let rest = text.get(counted..).unwrap_or_default();
        position.chars += chars(rest);
        position.byte += rest.len() as u64;
        self.end = position;
        self.text.push_str(text);
        if self.end.chars - self.start.chars > SCROLLBACK_SLACK_CHARS as u64 {
            self.trim();
        }
    }

    /// The part a new subscriber is given, at most [`SCROLLBACK_CHARS`] characters.
    #[must_use]
    pub fn visible(&self) -> &str {
        let start = self.visible_start();
        self.text.get(self.index(start.byte)..).unwrap_or_default()
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.text = String::new();
        self.cuts.clear();
        self.start = self.end;
    }

    fn index(&self, byte: u64) -> usize {
        usize::try_from(byte - self.start.byte).unwrap_or(usize::MAX)
    }

    fn visible_start(&self) -> Position {
        let allowed_from = self.end.chars.saturating_sub(SCROLLBACK_CHARS as u64);
        if self.start.chars >= allowed_from {
            return self.start;
        }
        let first = self.cuts.partition_point(|cut| cut.chars < allowed_from);
        if let Some(cut) = self
            .cuts
            .get(first)
            .filter(|cut| cut.byte >= self.start.byte)
        {
            return Position {
                byte: cut.byte,
                chars: cut.chars,
            };
        }
        // No safe place: a worker that finds none (an endless sequence) must not make us keep
        // everything. Never inside a character, all the same.
        let skip = usize::try_from(allowed_from - self.start.chars).unwrap_or(usize::MAX);
        let byte = self
            .text
            .char_indices()
            .nth(skip)
            .map_or(self.text.len(), |(at, _)| at);
        Position {
            byte: self.start.byte + byte as u64,
            chars: allowed_from,
        }
    }

    fn trim(&mut self) {
        let start = self.visible_start();
        let at = self.index(start.byte);
        self.text.drain(..at);
        self.start = start;
        let gone = self.cuts.partition_point(|cut| cut.byte <= start.byte);
        self.cuts.drain(..gone);
    }
}

fn chars(text: &str) -> u64 {
    text.chars().count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line_cuts(text: &str) -> Vec<u32> {
        text.match_indices('\n')
            .map(|(at, _)| u32::try_from(at + 1).unwrap())
            .collect()
    }

    #[test]
    fn less_than_the_limit_is_kept_whole() {
        let mut scrollback = Scrollback::default();
        scrollback.push("a\nb", &[2]);
        scrollback.push("c漢", &[]);
        assert_eq!(scrollback.visible(), "a\nbc漢");
        scrollback.clear();
        assert_eq!(scrollback.visible(), "");
        scrollback.push("x", &[]);
        assert_eq!(scrollback.visible(), "x");
    }

    #[test]
    fn s24_more_is_cut_at_the_start_of_a_line() {
        let mut scrollback = Scrollback::default();
        let mut all = String::new();
        for number in 0..60_000 {
            let line = format!("\u{1b}[38;2;1;2;3m{number} 漢😀\u{1b}[0m\n");
            scrollback.push(&line, &line_cuts(&line));
            all.push_str(&line);
        }
        let visible = scrollback.visible();
        let count = visible.chars().count();
        assert!(count <= SCROLLBACK_CHARS, "{count}");
        assert!(count > SCROLLBACK_CHARS - 2000, "{count}");
        assert!(all.ends_with(visible));
        assert!(visible.starts_with("\u{1b}[38;2;1;2;3m"));
    }

    #[test]
    fn without_any_safe_place_it_is_still_bounded() {
        let mut scrollback = Scrollback::default();
        for _ in 0..100 {
            scrollback.push(&"漢".repeat(20_000), &[1, 2, 4_000_000]);
        }
        assert_eq!(scrollback.visible().chars().count(), SCROLLBACK_CHARS);
        assert!(scrollback.text.chars().count() <= SCROLLBACK_SLACK_CHARS);
    }

    #[test]
    fn places_are_few_however_many_are_sent() {
        let mut scrollback = Scrollback::default();
        for _ in 0..500_000 {
            scrollback.push("\n", &[1]);
        }
        assert!(scrollback.cuts.len() <= SCROLLBACK_SLACK_CHARS / 1024 + 2);
    }

    proptest! {
        #[test]
        fn the_visible_part_is_the_end_of_everything(chunks in proptest::collection::vec(("[a漢\n]{0,30}", 1_usize..3000), 1..60)) {
            let mut scrollback = Scrollback::default();
            let mut all = String::new();
            for (unit, times) in chunks {
                let text = unit.repeat(times);
                scrollback.push(&text, &line_cuts(&text));
                all.push_str(&text);
            }
            let visible = scrollback.visible();
            prop_assert!(all.ends_with(visible));
            prop_assert!(visible.chars().count() <= SCROLLBACK_CHARS);
            if all.chars().count() <= SCROLLBACK_CHARS {
                prop_assert_eq!(visible, all);
            }
        }
    }
}
