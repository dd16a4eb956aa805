//! Where an escape sequence ends (ECMA-48, and what xterm's ctlseqs page adds to it).
//!
//! What lives here: the shape of sequences and their ends. What must not: their meaning.
//!
//! The text is UTF-8, so the 8-bit forms (0x9B, 0x9C, 0x9D) are bytes of characters and neither
//! begin nor end anything (field case S-11).

pub(super) const ESC: u8 = 0x1B;
const BEL: u8 = 0x07;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1A;

/// What follows ESC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// A short one: intermediates and a final byte.
    Escape,
    /// `ESC [`
    Csi,
    /// `ESC ]`, an operating system command: BEL ends it too.
    Osc,
    /// `ESC P`, `ESC X`, `ESC ^`, `ESC _`: only ST ends it.
    Text,
    /// `ESC P tmux;`: a wrapper for the terminal that tmux itself sits in, every ESC in it doubled
    /// (field case S-15).
    Tmux,
}

/// Where a sequence ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Not within these bytes; the first `looked_at` of them need not be looked at again.
    Open { looked_at: usize },
    /// After so many bytes, properly.
    Whole(usize),
    /// After so many bytes, without a proper end: another ESC, CAN, SUB, or a byte that has no
    /// business there.
    Broken(usize),
}

/// The shape of a sequence, as far as its beginning tells. `bytes` starts with ESC.
pub(super) fn shape(bytes: &[u8]) -> Shape {
    match bytes.get(1) {
        Some(b'[') => Shape::Csi,
        Some(b']') => Shape::Osc,
        Some(b'P') if bytes.starts_with(b"\x1bPtmux;") => Shape::Tmux,
        Some(b'P' | b'X' | b'^' | b'_') => Shape::Text,
        _ => Shape::Escape,
    }
}

/// Looks for the end of a sequence. `bytes` starts with ESC; `from` is what was looked at already.
pub(super) fn end(shape: Shape, bytes: &[u8], from: usize) -> End {
    match shape {
        Shape::Escape => escape_end(bytes),
        Shape::Csi => csi_end(bytes, from),
        Shape::Osc | Shape::Text | Shape::Tmux => string_end(shape, bytes, from.max(2)),
    }
}

fn escape_end(bytes: &[u8]) -> End {
    for (at, byte) in bytes.iter().enumerate().skip(1) {
        match *byte {
            CAN | SUB => return End::Broken(at + 1),
            // Intermediates, and control characters, which act without ending it.
            0x00..=0x1A | 0x1C..=0x2F | 0x7F => {}
            0x30..=0x7E => return End::Whole(at + 1),
            // ESC, or a character.
            ESC | 0x80.. => return End::Broken(at),
        }
    }
    End::Open { looked_at: 1 }
}

fn csi_end(bytes: &[u8], from: usize) -> End {
    for (at, byte) in bytes.iter().enumerate().skip(from.max(2)) {
        match *byte {
            0x40..=0x7E => return End::Whole(at + 1),
            CAN | SUB => return End::Broken(at + 1),
            ESC | 0x80.. => return End::Broken(at),
            _ => {}
        }
    }
    End::Open {
        looked_at: bytes.len(),
    }
}

/// The end of a control string whose text begins at or before `from`.
pub(super) fn string_end(shape: Shape, bytes: &[u8], from: usize) -> End {
    let mut at = from;
    while let Some(byte) = bytes.get(at) {
        match *byte {
            BEL if shape == Shape::Osc => return End::Whole(at + 1),
            CAN | SUB => return End::Broken(at + 1),
            ESC => match bytes.get(at + 1) {
                None => break,
                Some(b'\\') => return End::Whole(at + 2),
                Some(&ESC) if shape == Shape::Tmux => at += 2,
                Some(_) => return End::Broken(at),
            },
            _ => at += 1,
        }
    }
    End::Open { looked_at: at }
}

/// The text of a whole OSC or DCS, without introducer and terminator.
pub(super) fn body(sequence: &str) -> &str {
    let text = sequence.get(2..).unwrap_or_default();
    text.strip_suffix("\u{1b}\\")
        .or_else(|| text.strip_suffix('\u{7}'))
        .unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end_of(text: &str) -> End {
        end(shape(text.as_bytes()), text.as_bytes(), 0)
    }

    #[test]
    fn ends_are_found() {
        for (text, expected) in [
            ("\u{1b}7x", End::Whole(2)),
            ("\u{1b}(Bx", End::Whole(3)),
            ("\u{1b}[31mx", End::Whole(5)),
            ("\u{1b}[?25", End::Open { looked_at: 5 }),
            ("\u{1b}[3\n1m", End::Whole(6)),
            ("\u{1b}[3\u{1b}[m", End::Broken(3)),
            ("\u{1b}[3é", End::Broken(3)),
            ("\u{1b}[3\u{18}m", End::Broken(4)),
            ("\u{1b}", End::Open { looked_at: 1 }),
            ("\u{1b}\u{1b}[m", End::Broken(1)),
            ("\u{1b}é", End::Broken(1)),
            ("\u{1b}]0;a\u{7}x", End::Whole(6)),
            ("\u{1b}]0;a\u{1b}\\x", End::Whole(7)),
            ("\u{1b}]0;a\u{1b}[m", End::Broken(5)),
            ("\u{1b}]0;a\u{1a}x", End::Broken(6)),
            ("\u{1b}]0;a\u{1b}", End::Open { looked_at: 5 }),
            ("\u{1b}]0;\u{2733} a\u{7}x", End::Whole(10)),
            ("\u{1b}P1\u{7}\u{1b}\\x", End::Whole(6)),
            (
                "\u{1b}Ptmux;\u{1b}\u{1b}]133;D;0\u{7}\u{1b}\\VISIBLE",
                End::Whole(20),
            ),
        ] {
            assert_eq!(end_of(text), expected, "{text:?}");
        }
    }

    #[test]
    fn body_is_between() {
        assert_eq!(body("\u{1b}]0;a\u{7}"), "0;a");
        assert_eq!(body("\u{1b}]0;a\u{1b}\\"), "0;a");
        assert_eq!(body("\u{1b}P$qm\u{1b}\\"), "$qm");
    }
}
