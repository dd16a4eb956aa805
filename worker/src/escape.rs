//! Names from outside, made fit for a terminal or a log.
//!
//! What lives here: escaping and shortening. What must not: anything that knows what is shown.

use shellward_protocol::text::boundary;

/// `bytes` as text on one line: control characters and invalid bytes escaped.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() || is_bidi(character) {
                out.extend(character.escape_default());
            } else {
                out.push(character);
            }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}

/// Characters that reorder what stands beside them, so that a name reads as another.
fn is_bidi(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// At most `max` bytes of `text`, cut between characters.
pub(crate) fn shortened(mut text: String, max: usize) -> String {
    if text.len() > max {
        let mark = "…";
        text.truncate(boundary(&text, max.saturating_sub(mark.len())));
        text.push_str(mark);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_and_invalid_bytes_are_visible() {
        assert_eq!(
            escaped(b"a\x1b[31m\n\xff\xc3\xa9"),
            "a\\u{1b}[31m\\n\\xff\u{e9}"
        );
        assert_eq!(escaped("\u{9b}x\u{202e}".as_bytes()), "\\u{9b}x\\u{202e}");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(shortened("abc".to_owned(), 3), "abc");
        let short = shortened("é".repeat(100), 20);
        assert!(short.len() <= 20 && short.ends_with('…'));
    }
}
