//! From the bytes of a pty to valid UTF-8, however the reads split them (field cases S-07, S-08).
//!
//! What lives here: the read buffer of a terminal and its decoding. What must not: input or output.

use std::borrow::Cow;

/// The longest beginning of a character that can wait for its rest.
const TAIL_MAX: usize = 3;

/// A fixed read buffer whose contents come out as text.
///
/// Bytes that can not be part of UTF-8 become U+FFFD, one for each maximal subpart, exactly as
/// [`String::from_utf8_lossy`] does it for the whole stream. The beginning of a character at the
/// end of what was read stays in front of the buffer until its rest arrives, so that valid text
/// is never copied.
#[derive(Debug)]
pub(crate) struct Decoder {
    /// Made at the first read, and again after [`Self::rest`].
    buffer: Box<[u8]>,
    capacity: usize,
    /// Bytes before this were handed out.
    start: usize,
    /// Bytes from here on are free space.
    end: usize,
}

impl Decoder {
    /// A decoder that reads at most `capacity` bytes at a time.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            buffer: Box::default(),
            capacity: capacity.max(TAIL_MAX + 1),
            start: 0,
            end: 0,
        }
    }

    /// Space for the next read; tell [`Self::filled`] how many bytes came. Empty when the buffer
    /// is full, which ends a turn.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.buffer.is_empty() {
            self.buffer = vec![0; self.capacity].into_boxed_slice();
        }
        if self.start > 0 {
            // At most a tail is left over, so this moves three bytes.
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        self.buffer.get_mut(self.end..).unwrap_or_default()
    }

    /// Counts `n` bytes of the last [`Self::space`] as read.
    pub(crate) fn filled(&mut self, n: usize) {
        self.end = (self.end + n).min(self.buffer.len());
    }

    /// Everything read so far as text, but for the beginning of a character at the end.
    pub(crate) fn take(&mut self) -> Cow<'_, str> {
        let from = self.start;
        let bytes = self.buffer.get(from..self.end).unwrap_or_default();
        match std::str::from_utf8(bytes) {
            Ok(text) => {
                self.start = self.end;
                Cow::Borrowed(text)
            }
            Err(_) => {
                let whole = bytes.len() - incomplete_tail(bytes);
                self.start += whole;
                String::from_utf8_lossy(bytes.get(..whole).unwrap_or_default())
            }
        }
    }

    /// Gives the buffer back until the next read, if nothing waits in it.
    pub(crate) fn rest(&mut self) {
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            self.buffer = Box::default();
        }
    }

    /// The rest, when no more bytes will come: an incomplete character is one U+FFFD.
    pub(crate) fn finish(&mut self) -> Cow<'_, str> {
        let from = self.start;
        self.start = self.end;
        String::from_utf8_lossy(self.buffer.get(from..self.end).unwrap_or_default())
    }
}

/// How many bytes at the end of `bytes` are the beginning of a character that could still become
/// valid.
fn incomplete_tail(bytes: &[u8]) -> usize {
    // A character starts at most three bytes before its incomplete end. The standard library
    // knows which beginnings are possible (no surrogates, no overlong forms): it says so by
    // leaving `error_len` out.
    for len in (1..=TAIL_MAX.min(bytes.len())).rev() {
        let tail = bytes.get(bytes.len() - len..).unwrap_or_default();
        if tail.first().is_some_and(|lead| *lead >= 0xC2)
            && std::str::from_utf8(tail)
                .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        {
            return len;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(bytes: &[u8], splits: &[usize], capacity: usize) -> String {
        let mut decoder = Decoder::new(capacity);
        let mut out = String::new();
        let mut rest = bytes;
        let mut splits = splits.iter().cycle();
        while !rest.is_empty() {
            let wanted = splits.next().copied().unwrap_or(1).max(1);
            let space = decoder.space();
            let n = wanted.min(rest.len()).min(space.len());
            space[..n].copy_from_slice(&rest[..n]);
            decoder.filled(n);
            rest = &rest[n..];
            out.push_str(&decoder.take());
        }
        out.push_str(&decoder.finish());
        out
    }

    #[test]
    fn character_cut_in_two_is_whole() {
        assert_eq!(decode(b"A \xe2\x94\x80 B", &[3], 64), "A \u{2500} B");
    }

    #[test]
    fn valid_text_is_borrowed() {
        let mut decoder = Decoder::new(64);
        let text = "größe \u{1f600}";
        decoder.space()[..text.len()].copy_from_slice(text.as_bytes());
        decoder.filled(text.len());
        assert!(matches!(decoder.take(), Cow::Borrowed(_)));
    }

    #[test]
    fn resting_keeps_the_beginning_of_a_character() {
        let mut decoder = Decoder::new(64);
        decoder.space()[..1].copy_from_slice(b"\xc3");
        decoder.filled(1);
        assert_eq!(decoder.take(), "");
        decoder.rest();
        decoder.space()[..1].copy_from_slice(b"\xa9");
        decoder.filled(1);
        assert_eq!(decoder.take(), "é");
        decoder.rest();
        assert!(decoder.buffer.is_empty());
        assert_eq!(decoder.space().len(), 64);
    }

    #[test]
    fn full_buffer_of_tails_still_has_space() {
        let mut decoder = Decoder::new(1);
        decoder.space()[..3].copy_from_slice(b"\xf0\x9f\x98");
        decoder.filled(3);
        assert_eq!(decoder.take(), "");
        assert!(!decoder.space().is_empty());
    }

    proptest! {
        #[test]
        fn any_split_equals_the_lossy_whole(
            bytes in proptest::collection::vec(
                prop_oneof![
                    any::<u8>(),
                    prop_oneof![Just(0xE2), Just(0x94), Just(0x80), Just(0xF0), Just(0x9F), Just(0xED), Just(0xA0), Just(b'a')],
                ],
                0..200,
            ),
            splits in proptest::collection::vec(1_usize..9, 1..20),
            capacity in 1_usize..40,
        ) {
            prop_assert_eq!(decode(&bytes, &splits, capacity), String::from_utf8_lossy(&bytes));
        }
    }
}
