//! The modes of a terminal that outlive the output which set them (field case S-24).
//!
//! The worker reads them out of the output; whoever shows a terminal from the middle of its output
//! must set them first.

use serde::{Deserialize, Serialize};

/// A set of modes that differ from what a terminal starts with.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Modes(pub u32);

/// One mode: what sets it in a fresh terminal, and how its DEC private number is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode {
    /// Its bit in [`Modes`].
    pub bit: u32,
    /// The number in `CSI ? number h` and `CSI ? number l` (xterm's ctlseqs, "DEC Private Mode
    /// Set"); absent for those with a sequence of their own.
    pub number: Option<u16>,
    /// Whether it is in force in a fresh terminal, so that its bit stands for its absence.
    pub starts_on: bool,
    /// Setting it ends the others of the same group: only one kind of mouse report is in force.
    pub group: u8,
}

const fn mode(index: u32, number: u16, starts_on: bool, group: u8) -> Mode {
    Mode {
        bit: 1 << index,
        number: Some(number),
        starts_on,
        group,
    }
}

/// The application keypad, `ESC =`.
pub const KEYPAD: Mode = Mode {
    bit: 1 << 31,
    number: None,
    starts_on: false,
    group: 0,
};

/// Insert mode, `CSI 4 h`: an ANSI mode, not a private one.
pub const INSERT: Mode = Mode {
    bit: 1 << 30,
    number: None,
    starts_on: false,
    group: 0,
};

/// The private modes that are followed, in the order in which they are restored: the screen first,
/// because what follows may be kept per screen.
pub const PRIVATE: [Mode; 20] = [
    // The alternate screen, with the cursor saved, without, and the oldest form.
    mode(0, 1049, false, 1),
    mode(1, 1047, false, 1),
    mode(2, 47, false, 1),
    // Application cursor keys, reverse video, origin, line wrap, a visible cursor.
    mode(3, 1, false, 0),
    mode(4, 5, false, 0),
    mode(5, 6, false, 0),
    mode(6, 7, true, 0),
    mode(7, 25, true, 0),
    // Which mouse events are reported.
    mode(8, 9, false, 2),
    mode(9, 1000, false, 2),
    mode(10, 1002, false, 2),
    mode(11, 1003, false, 2),
    // How they are written.
    mode(12, 1005, false, 3),
    mode(13, 1006, false, 3),
    mode(14, 1015, false, 3),
    mode(15, 1016, false, 3),
    // Focus reports, the wheel as arrow keys, bracketed paste, synchronized output (which ends by
    // itself in every emulator, so that it is followed for DECRQM and not restored).
    mode(16, 1004, false, 0),
    mode(17, 1007, false, 0),
    mode(18, 2004, false, 0),
    mode(19, 2026, false, 0),
];

/// Synchronized output.
const SYNCHRONIZED: u32 = 1 << 19;

impl Modes {
    /// What `CSI ? number h` (`on`) or `CSI ? number l` makes of the set.
    #[must_use]
    pub fn with_private(self, number: u16, on: bool) -> Self {
        let Some(mode) = PRIVATE.iter().find(|mode| mode.number == Some(number)) else {
            return self;
        };
        // Leaving one kind of alternate screen or mouse report leaves all, as emulators do it.
        let cleared = PRIVATE
            .iter()
            .filter(|other| mode.group != 0 && other.group == mode.group)
            .fold(self.0 & !mode.bit, |bits, other| bits & !other.bit);
        if on == mode.starts_on {
            Self(cleared)
        } else {
            Self(cleared | mode.bit)
        }
    }

    /// The set with one of [`KEYPAD`] and [`INSERT`] in force or not.
    #[must_use]
    pub fn with(self, mode: Mode, on: bool) -> Self {
        if on {
            Self(self.0 | mode.bit)
        } else {
            Self(self.0 & !mode.bit)
        }
    }

    /// Whether `CSI ? number h` is in force; absent if it is not followed.
    #[must_use]
    pub fn private(self, number: u16) -> Option<bool> {
        PRIVATE
            .iter()
            .find(|mode| mode.number == Some(number))
            .map(|mode| (self.0 & mode.bit != 0) != mode.starts_on)
    }

    /// Whether one of [`KEYPAD`] and [`INSERT`] is in force.
    #[must_use]
    pub fn has(self, mode: Mode) -> bool {
        self.0 & mode.bit != 0
    }

    /// What sets these modes in a fresh terminal; empty if it has them already.
    #[must_use]
    pub fn restore(self) -> String {
        Self::default().change(self)
    }

    /// What makes `to` of a terminal in these modes; empty if they are the same.
    #[must_use]
    pub fn change(self, to: Self) -> String {
        let mut text = String::new();
        let differs = |bit: u32| (self.0 ^ to.0) & bit & !SYNCHRONIZED != 0;
        // What is left first: entering one kind of a group may be leaving another.
        for enters in [false, true] {
            for mode in PRIVATE {
                let (Some(number), true) = (mode.number, differs(mode.bit)) else {
                    continue;
                };
                let is_set = to.0 & mode.bit != 0;
                if is_set == enters {
                    let end = if is_set == mode.starts_on { 'l' } else { 'h' };
                    text.push_str(&format!("\u{1b}[?{number}{end}"));
                }
            }
        }
        if differs(INSERT.bit) {
            text.push_str(if to.has(INSERT) {
                "\u{1b}[4h"
            } else {
                "\u{1b}[4l"
            });
        }
        if differs(KEYPAD.bit) {
            text.push_str(if to.has(KEYPAD) { "\u{1b}=" } else { "\u{1b}>" });
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_is_used_once() {
        let bits: Vec<u32> = PRIVATE
            .iter()
            .chain(&[KEYPAD, INSERT])
            .map(|mode| mode.bit)
            .collect();
        assert_eq!(
            bits.iter().fold(0, |all, bit| all | bit).count_ones() as usize,
            bits.len()
        );
    }

    #[test]
    fn what_was_set_is_restored_and_nothing_else() {
        assert_eq!(Modes::default().restore(), "");
        let modes = Modes::default()
            .with_private(2004, true)
            .with_private(25, false)
            .with_private(1003, true)
            .with_private(1049, true)
            .with_private(2026, true)
            .with_private(12, true)
            .with(KEYPAD, true);
        assert_eq!(
            modes.restore(),
            "\u{1b}[?1049h\u{1b}[?25l\u{1b}[?1003h\u{1b}[?2004h\u{1b}="
        );
        assert_eq!(modes.private(25), Some(false));
        assert_eq!(modes.private(7), Some(true));
        assert_eq!(modes.private(12), None);
        let modes = modes.with_private(25, true).with_private(1049, false);
        assert_eq!(modes.restore(), "\u{1b}[?1003h\u{1b}[?2004h\u{1b}=");
    }

    #[test]
    fn a_change_leaves_what_is_not_in_force_any_more() {
        let before = Modes::default()
            .with_private(1049, true)
            .with_private(25, false)
            .with_private(1000, true)
            .with(KEYPAD, true);
        let after = Modes::default().with_private(1002, true).with(INSERT, true);
        assert_eq!(before.change(before), "");
        assert_eq!(
            before.change(after),
            "\u{1b}[?1049l\u{1b}[?25h\u{1b}[?1000l\u{1b}[?1002h\u{1b}[4h\u{1b}>"
        );
    }

    #[test]
    fn of_a_group_the_newest_is_in_force() {
        let modes = Modes::default()
            .with_private(1000, true)
            .with_private(1002, true);
        assert_eq!(modes.restore(), "\u{1b}[?1002h");
        assert_eq!(modes.with_private(1000, false), Modes::default());
    }
}
