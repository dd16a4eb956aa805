//! What was typed since the prompt, with the line editing applied.
//!
//! What lives here: the keys of a line editor that everybody uses, pure. What must not: history,
//! completion — only the shell knows those, so this is the last resort (see `line`).

/// The longest line that is followed, in characters.
const LINE_MAX: usize = 16 << 10;

/// A line as a line editor would hold it.
#[derive(Debug, Default)]
pub(super) struct TypedLine {
    /// Lines that were finished: a command may have several.
    done: Vec<String>,
    line: Vec<char>,
    cursor: usize,
    /// An unfinished key sequence or character.
    pending: Vec<u8>,
    is_pasting: bool,
}

impl TypedLine {
    /// A new prompt.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Everything typed so far, without the last Enter.
    pub(super) fn text(&self) -> String {
        let mut text = self.done.join("\n");
        if !self.line.is_empty() {
            if !text.is_empty() {
                text.push('\n');
            }
            text.extend(&self.line);
        }
        text
    }

    /// Takes what was typed, however it was cut.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.pending.push(*byte);
            if let Some(key) = complete(&self.pending) {
                let pending = std::mem::take(&mut self.pending);
                self.press(key, &pending);
            }
        }
    }

    fn press(&mut self, key: Key, bytes: &[u8]) {
        match key {
            Key::Character => {
                for character in String::from_utf8(bytes.to_vec())
                    .unwrap_or_default()
                    .chars()
                {
                    self.insert(character);
                }
            }
            Key::Sequence => self.sequence(bytes),
            Key::Control(byte) => match byte {
                b'\r' | b'\n' => self.enter(),
                b'\t' if self.is_pasting => self.insert('\t'),
                0x7F | 0x08 if self.cursor > 0 => {
                    self.cursor -= 1;
                    self.line.remove(self.cursor);
                }
                0x01 => self.cursor = 0,
                0x05 => self.cursor = self.line.len(),
                0x02 => self.left(),
                0x06 => self.right(),
                0x04 => self.delete(),
                0x0B => self.line.truncate(self.cursor),
                0x15 => {
                    self.line.drain(..self.cursor);
                    self.cursor = 0;
                }
                0x17 => self.erase_word(),
                // Ctrl-C gives everything up.
                0x03 => self.clear(),
                _ => {}
            },
        }
    }

    fn sequence(&mut self, bytes: &[u8]) {
        match bytes {
            b"\x1b[200~" => self.is_pasting = true,
            b"\x1b[201~" => self.is_pasting = false,
            b"\x1b[D" | b"\x1bOD" => self.left(),
            b"\x1b[C" | b"\x1bOC" => self.right(),
            b"\x1b[H" | b"\x1bOH" | b"\x1b[1~" => self.cursor = 0,
            b"\x1b[F" | b"\x1bOF" | b"\x1b[4~" => self.cursor = self.line.len(),
            b"\x1b[3~" => self.delete(),
            b"\x1b\x7f" | b"\x1b\x08" => self.erase_word(),
            _ => {}
        }
    }

    fn insert(&mut self, character: char) {
        if self.line.len() < LINE_MAX {
            self.line.insert(self.cursor, character);
            self.cursor += 1;
        }
    }

    fn enter(&mut self) {
        let line: String = std::mem::take(&mut self.line).into_iter().collect();
        self.cursor = 0;
        let so_far: usize = self.done.iter().map(|line| line.len() + 1).sum();
        // An Enter at an empty prompt is no part of a command.
        if so_far + line.len() <= LINE_MAX && !(self.done.is_empty() && line.is_empty()) {
            self.done.push(line);
        }
    }

    fn left(&mut self) {
        self.cursor = self.cursor.saturating_sub(1);
    }

    fn right(&mut self) {
        self.cursor = (self.cursor + 1).min(self.line.len());
    }

    fn delete(&mut self) {
        if self.cursor < self.line.len() {
            self.line.remove(self.cursor);
        }
    }

    /// Back to the beginning of the word before the cursor, words being apart by blanks.
    fn erase_word(&mut self) {
        let before = self.line.get(..self.cursor).unwrap_or_default();
        let is_blank = |character: &char| character.is_whitespace();
        let word_end = before
            .iter()
            .rposition(|c| !is_blank(c))
            .map_or(0, |at| at + 1);
        let head = before.get(..word_end).unwrap_or_default();
        let start = head.iter().rposition(is_blank).map_or(0, |at| at + 1);
        self.line.drain(start..self.cursor);
        self.cursor = start;
    }
}

enum Key {
    Character,
    Control(u8),
    Sequence,
}

/// What `bytes` are, once they are a whole key.
fn complete(bytes: &[u8]) -> Option<Key> {
    /// Longer than any key.
    const SEQUENCE_MAX: usize = 32;
    match bytes {
        [0x1B, b'[', .., last] if (0x40..=0x7E).contains(last) && bytes.len() > 2 => {
            Some(Key::Sequence)
        }
        [0x1B, b'O', _] => Some(Key::Sequence),
        [0x1B, b'[' | b'O'] | [0x1B] => None,
        [0x1B, b'[', ..] if bytes.len() < SEQUENCE_MAX => None,
        [0x1B, ..] => Some(Key::Sequence),
        [byte] if *byte < 0x20 || *byte == 0x7F => Some(Key::Control(*byte)),
        _ => match std::str::from_utf8(bytes) {
            Ok(_) => Some(Key::Character),
            Err(error) if error.error_len().is_none() && bytes.len() < 4 => None,
            Err(_) => Some(Key::Character),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn typed(keys: &str) -> String {
        let mut line = TypedLine::default();
        line.push(keys.as_bytes());
        line.text()
    }

    #[test]
    fn editing_is_applied() {
        for (keys, expected) in [
            ("ls -l\r", "ls -l"),
            ("lx\u{7f}s\r", "ls"),
            ("漢x\u{8}\u{8}é\r", "é"),
            ("rm -rf /\u{15}ls\r", "ls"),
            ("echo one two\u{17}three\r", "echo one three"),
            ("echo one  \u{17}two\r", "echo two"),
            ("ho\u{1}ec\u{5} hi\r", "echo hi"),
            ("ac\u{1b}[Db\u{1b}[Cd\r", "abcd"),
            ("ac\u{1b}OD\u{1b}ODx\r", "xac"),
            ("abc\u{1}\u{4}\u{1b}[3~\r", "c"),
            ("abc\u{2}\u{2}\u{b}\r", "a"),
            ("abc\u{3}def\r", "def"),
            (
                "\u{1b}[200~for i in 1 2\ndo\techo\ndone\u{1b}[201~\r",
                "for i in 1 2\ndo\techo\ndone",
            ),
            ("\r\r", ""),
            ("a\\\rb\r", "a\\\nb"),
            ("l\ts\u{1b}[A\u{1b}[1;5C\r", "ls"),
        ] {
            assert_eq!(typed(keys), expected, "{keys:?}");
        }
    }

    #[test]
    fn length_is_bounded() {
        let mut line = TypedLine::default();
        for _ in 0..100 {
            line.push(&[b'x'; 1000]);
        }
        assert_eq!(line.text().len(), LINE_MAX);
        line.clear();
        for _ in 0..100_000 {
            line.push(b"y\r");
        }
        assert!(line.text().len() <= LINE_MAX + 1);
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_are_the_same(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0_usize..200) {
            let at = at.min(bytes.len());
            let mut whole = TypedLine::default();
            whole.push(&bytes);
            let mut cut = TypedLine::default();
            cut.push(&bytes[..at]);
            cut.push(&bytes[at..]);
            prop_assert_eq!(whole.text(), cut.text());
            prop_assert!(whole.pending.len() <= 32);
        }
    }
}
