//! Where scrollback may be cut without breaking a sequence or a character (field case S-24).
//!
//! What lives here: a scanner that knows just enough of ECMA-48 to tell "inside a sequence" from
//! "between". What must not: meaning of sequences, input or output.
//!
//! Text costs two `memchr` calls per 4 KiB; only the bytes of sequences are looked at one by one.

use memchr::{memchr, memrchr};
use shellward_protocol::Modes;
use shellward_protocol::limits::CUT_DISTANCE;
use shellward_protocol::message::Cut;

/// A control string (OSC, DCS, …) or a sequence longer than this is given up: a stray introducer
/// in a binary must not make the rest of the output uncuttable.
const SEQUENCE_MAX: usize = 64 << 10;

const ESC: u8 = 0x1B;
const BEL: u8 = 0x07;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1A;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Between sequences.
    Ground,
    /// After ESC, before the final byte.
    Escape,
    /// After ESC [.
    Csi,
    /// In an operating system command: BEL ends it too.
    Osc,
    /// In a DCS, SOS, PM or APC string.
    Text,
}

/// Follows the output of one terminal.
#[derive(Debug)]
pub(crate) struct Scanner {
    state: State,
    /// Length of the sequence so far.
    sequence_len: usize,
    /// Bytes left until the end of the current block.
    block_left: usize,
    /// A block ended without a place to cut; the next line end is taken at once.
    owed: bool,
}

/// What a stretch of output offers.
#[derive(Debug, Default)]
struct Found {
    /// The place after the first line end between sequences.
    first_line: Option<usize>,
    /// The place after the last line end between sequences.
    last_line: Option<usize>,
    /// The last place between sequences.
    ground: Option<usize>,
}

impl Scanner {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Ground,
            sequence_len: 0,
            block_left: CUT_DISTANCE,
            owed: false,
        }
    }

    /// Appends the places in `text` where it may be cut, ascending, each at most once.
    ///
    /// `text` follows what was scanned before. A place may equal the length of `text`, and is
    /// never zero.
    pub(crate) fn scan(&mut self, text: &str, cuts: &mut Vec<Cut>) {
        let mut at = 0;
        let mut last = 0;
        while at < text.len() {
            let block_end = at.saturating_add(self.block_left).min(text.len());
            let stretch = block_end - at;
            let found = self.stretch(text, at, block_end);
            self.block_left -= stretch;
            let complete = self.block_left == 0;
            if self.owed
                && let Some(line) = found.first_line
            {
                self.owed = false;
                push(cuts, &mut last, line);
            }
            if complete {
                self.block_left = CUT_DISTANCE;
                // A stretch that is only the end of a block, because the text came in small
                // pieces, rarely holds a line end. Then the next one is taken, wherever it is;
                // only after a whole block without any the line is broken.
                let whole = stretch == CUT_DISTANCE || self.owed;
                match found.last_line.or(found.ground.filter(|_| whole)) {
                    Some(place) if place > last => {
                        self.owed = false;
                        push(cuts, &mut last, place);
                    }
                    Some(_) => {}
                    None => self.owed = true,
                }
            }
            at = block_end;
        }
    }

    /// Moves through `text[from..to]`.
    fn stretch(&mut self, text: &str, from: usize, to: usize) -> Found {
        let bytes = text.as_bytes();
        let mut found = Found::default();
        let mut at = from;
        while at < to {
            if self.state == State::Ground {
                let rest = bytes.get(at..to).unwrap_or_default();
                let plain = memchr(ESC, rest).unwrap_or(rest.len());
                let rest = rest.get(..plain).unwrap_or_default();
                if let Some(line) = memrchr(b'\n', rest) {
                    found.last_line = Some(at + line + 1);
                    if self.owed && found.first_line.is_none() {
                        found.first_line = memchr(b'\n', rest).map(|line| at + line + 1);
                    }
                }
                at += plain;
                let mut place = at;
                while !text.is_char_boundary(place) {
                    place -= 1;
                }
                // A character that began before this text began has no boundary here.
                if place > 0 {
                    found.ground = Some(place);
                }
                if at < to {
                    self.enter(State::Escape);
                    at += 1;
                }
            } else {
                if let Some(byte) = bytes.get(at) {
                    self.step(*byte);
                }
                at += 1;
                if self.state == State::Ground && text.is_char_boundary(at) {
                    found.ground = Some(at);
                }
            }
        }
        found
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        self.sequence_len = 0;
    }

    /// One byte outside the ground state. The 8-bit ST (0x9C) is no end: it is a byte of UTF-8.
    fn step(&mut self, byte: u8) {
        self.sequence_len += 1;
        if self.sequence_len > SEQUENCE_MAX || matches!(byte, CAN | SUB) {
            return self.enter(State::Ground);
        }
        if byte == ESC {
            // Ends whatever it interrupts; the `\` of ST then is the end of a short sequence.
            return self.enter(State::Escape);
        }
        match self.state {
            State::Ground => {}
            State::Escape => match byte {
                b'[' => self.enter(State::Csi),
                b']' => self.enter(State::Osc),
                b'P' | b'X' | b'^' | b'_' => self.enter(State::Text),
                // Intermediates, and control characters, which act without ending it.
                0x00..=0x2F | 0x7F => {}
                _ => self.enter(State::Ground),
            },
            State::Csi => {
                if (0x40..=0x7E).contains(&byte) || byte >= 0x80 {
                    self.enter(State::Ground);
                }
            }
            State::Osc => {
                if byte == BEL {
                    self.enter(State::Ground);
                }
            }
            State::Text => {}
        }
    }
}

fn push(cuts: &mut Vec<Cut>, last: &mut usize, place: usize) {
    if place > *last
        && let Ok(cut) = u32::try_from(place)
    {
        *last = place;
        cuts.push(Cut {
            at: cut,
            modes: Modes::default(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shellward_protocol::limits::{CUTS_MAX, OUTPUT_CHUNK_MAX};

    /// Every place between sequences and characters, found the slow way.
    fn allowed(text: &str) -> Vec<bool> {
        let mut scanner = Scanner::new();
        let mut places = vec![true];
        for (index, byte) in text.bytes().enumerate() {
            match scanner.state {
                State::Ground if byte == ESC => scanner.enter(State::Escape),
                State::Ground => {}
                _ => scanner.step(byte),
            }
            places.push(scanner.state == State::Ground && text.is_char_boundary(index + 1));
        }
        places
    }

    fn cuts_of(text: &str, splits: &[usize]) -> Vec<usize> {
        let mut scanner = Scanner::new();
        let mut all = Vec::new();
        let mut offset = 0;
        let mut splits = splits.iter().cycle();
        while offset < text.len() {
            let wanted = splits.next().copied().unwrap().max(1);
            let mut end = (offset + wanted).min(text.len());
            while !text.is_char_boundary(end) {
                end += 1;
            }
            let piece = &text[offset..end];
            let mut cuts = Vec::new();
            scanner.scan(piece, &mut cuts);
            assert!(cuts.len() <= CUTS_MAX);
            assert!(cuts.is_sorted_by(|a, b| a.at < b.at));
            for cut in cuts {
                assert!(cut.at as usize <= piece.len());
                all.push(offset + cut.at as usize);
            }
            offset = end;
        }
        all
    }

    #[test]
    fn lines_are_cut_at_their_ends() {
        let text = "0123456789\r\n".repeat(10_000);
        let cuts = cuts_of(&text, &[OUTPUT_CHUNK_MAX]);
        assert_eq!(cuts.len(), text.len() / CUT_DISTANCE);
        assert!(cuts.iter().all(|cut| cut % 12 == 0));
    }

    #[test]
    fn small_pieces_are_cut_at_line_ends_too() {
        let text = "0123456789\r\n".repeat(10_000);
        let cuts = cuts_of(&text, &[7]);
        assert!(cuts.len() >= text.len() / CUT_DISTANCE - 1);
        assert!(cuts.iter().all(|cut| cut % 12 == 0));
    }

    #[test]
    fn one_endless_line_is_cut_between_characters() {
        let text = "\u{1f600}".repeat(30_000);
        let cuts = cuts_of(&text, &[1000]);
        assert!(cuts.len() >= text.len() / CUT_DISTANCE / 2 - 1);
        assert!(cuts.iter().all(|cut| cut % 4 == 0));
    }

    #[test]
    fn long_string_is_not_cut_and_an_endless_one_is_given_up() {
        let text = format!("\u{1b}]0;{}\u{7}tail", "x".repeat(60_000));
        assert!(cuts_of(&text, &[4096]).iter().all(|cut| *cut > 60_000));
        let text = format!("\u{1b}P{}", "y".repeat(200_000));
        assert!(!cuts_of(&text, &[4096]).is_empty());
    }

    #[test]
    fn eight_bit_terminator_inside_a_character_ends_nothing() {
        // U+071C is DC 9C.
        let text = format!("\u{1b}]0;\u{71c}{}\u{1b}\\", "\n".repeat(9000));
        assert!(cuts_of(&text, &[100_000]).iter().all(|cut| *cut > 9000));
    }

    #[test]
    fn frame_of_any_alignment_stays_below_the_limit() {
        for shift in [0, 1, 17, 4095] {
            let text = "\n".repeat(OUTPUT_CHUNK_MAX);
            let mut scanner = Scanner::new();
            let mut cuts = Vec::new();
            scanner.scan(&"x".repeat(shift), &mut cuts);
            for _ in 0..3 {
                cuts.clear();
                scanner.scan(&text, &mut cuts);
                assert!(cuts.len() <= CUTS_MAX, "{}", cuts.len());
            }
        }
    }

    proptest! {
        #[test]
        fn any_split_cuts_only_where_it_is_allowed(
            parts in proptest::collection::vec(
                prop_oneof![
                    Just("\u{1b}[38;2;1;2;3m".to_owned()),
                    Just("\u{1b}]0;title\u{7}".to_owned()),
                    Just("\u{1b}]8;;http://x\u{1b}\\".to_owned()),
                    Just("\u{1b}P1$r\u{1b}\\".to_owned()),
                    Just("\u{1b}".to_owned()),
                    Just("\u{1b}(B\u{18}\u{1a}".to_owned()),
                    Just("\r\n".to_owned()),
                    "\\PC{0,40}",
                    (1_usize..4000).prop_map(|n| "\u{1f600}a".repeat(n)),
                    (1_usize..4000).prop_map(|n| "line\r\n".repeat(n)),
                ],
                0..20,
            ),
            splits in proptest::collection::vec(1_usize..9000, 1..10),
        ) {
            let text: String = parts.concat();
            let allowed = allowed(&text);
            for cut in cuts_of(&text, &splits) {
                prop_assert!(allowed[cut], "cut at {} of {:?}", cut, &text[..cut.min(80)]);
            }
        }
    }
}
