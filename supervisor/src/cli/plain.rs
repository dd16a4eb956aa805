//! Terminal output as text that is safe to print.
//!
//! This runs in the command's own process, never in the supervisor. It is no emulator: it drops
//! escape sequences and control characters, and knows what a carriage return and a backspace do to
//! a line, which is enough for logs, prompts and progress bars.

/// Where the scanner is inside an escape sequence.
#[derive(Clone, Copy, PartialEq)]
enum State {
    Text,
    Escape,
    Csi,
    /// Inside OSC, DCS, SOS, PM or APC: until ST, or BEL.
    Text7,
    /// An ESC inside such a string.
    Text7Escape,
}

/// Drops everything but visible text, line ends and tabs.
#[must_use]
pub(super) fn plain(text: &str) -> String {
    let mut lines = String::with_capacity(text.len());
    let mut line = String::new();
    let mut state = State::Text;
    let mut returned = false;
    for c in text.chars() {
        state = match (state, c) {
            // CAN and SUB abort any sequence (ECMA-48).
            (_, '\u{18}' | '\u{1a}') => State::Text,
            (State::Text7, '\u{1b}') => State::Text7Escape,
            (_, '\u{1b}') => State::Escape,
            (State::Escape, '[') => State::Csi,
            (State::Escape, ']' | 'P' | 'X' | '^' | '_') => State::Text7,
            (State::Escape, ' '..='/') => State::Escape,
            (State::Csi, ' '..='?') => State::Csi,
            (State::Text7, '\u{7}')
            | (State::Text7Escape, '\\')
            | (State::Escape | State::Csi, _) => State::Text,
            (State::Text7 | State::Text7Escape, _) => State::Text7,
            (State::Text, '\n') => {
                lines.push_str(&line);
                lines.push('\n');
                line.clear();
                returned = false;
                State::Text
            }
            (State::Text, '\r') => {
                returned = true;
                State::Text
            }
            (State::Text, '\u{8}') => {
                line.pop();
                State::Text
            }
            (State::Text, c) => {
                if c == '\t' || !c.is_control() {
                    if std::mem::take(&mut returned) {
                        line.clear();
                    }
                    line.push(c);
                }
                State::Text
            }
        };
    }
    lines.push_str(&line);
    lines
}

/// One line without anything that could move a cursor; for messages and tables.
#[must_use]
pub(super) fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| {
            if crate::ahp::names::is_hidden(c) {
                ' '
            } else {
                c
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sequences_go_and_text_stays() {
        for (given, wanted) in [
            ("\u{1b}[1;31mred\u{1b}[0m\r\n$ ", "red\n$ "),
            ("\u{1b}]0;title\u{7}a\u{1b}]8;;http://x\u{1b}\\b", "ab"),
            ("10%\r20%\r\ndone", "20%\ndone"),
            ("ab\u{8}c", "ac"),
            ("\u{1b}(Ba\u{1b}=b\u{1b}Pq\u{1b}[x\u{1b}\\c", "abc"),
            ("\u{1b}]0;never ended\u{18}seen\u{0}\u{9b}x", "seenx"),
            ("a\tb 漢😀", "a\tb 漢😀"),
        ] {
            assert_eq!(plain(given), wanted, "{given:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_that_moves_a_cursor_is_left(text in any::<String>()) {
            prop_assert!(plain(&text).chars().all(|c| c == '\n' || c == '\t' || !c.is_control()));
            prop_assert!(!one_line(&text).chars().any(char::is_control));
        }
    }
}
