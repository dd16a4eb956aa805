//! What a terminal driver does with typed bytes, as far as it is done on pipes.
//!
//! What lives here: one pure function. What must not: input or output, signals.
//!
//! On pipes there is no line editing and no echo: what is typed goes to the program as it is, but
//! for four bytes. 0x03 interrupts and is left out. 0x04 ends the input once everything before it
//! was written. A carriage return, which is what the Enter key sends, becomes a line end; together
//! with the line end that follows it, it is one.

/// ^C.
const INTERRUPT: u8 = 0x03;
/// ^D.
const END: u8 = 0x04;

/// What became of typed bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Step {
    /// How many of them are dealt with.
    pub(super) taken: usize,
    /// How many bytes to write came out of it.
    pub(super) made: usize,
    /// The last of them was a carriage return: a line end that follows belongs to it.
    pub(super) after_return: bool,
    /// The input ends after these.
    pub(super) is_end: bool,
}

/// Whether there is an interrupt in `typed`.
pub(super) fn interrupts(typed: &[u8]) -> bool {
    memchr::memchr(INTERRUPT, typed).is_some()
}

/// Translates the beginning of `typed`, as far as `out` has room.
///
/// Translating again with less room gives the beginning of the same bytes and how many of `typed`
/// they stand for: that is how a write that was cut short is counted.
pub(super) fn translate(typed: &[u8], after_return: bool, out: &mut [u8]) -> Step {
    let mut step = Step {
        taken: 0,
        made: 0,
        after_return,
        is_end: false,
    };
    let mut room = out.iter_mut();
    for byte in typed {
        let written = match *byte {
            INTERRUPT => None,
            END => {
                step.is_end = true;
                None
            }
            b'\n' if step.after_return => None,
            b'\r' => Some(b'\n'),
            other => Some(other),
        };
        if let Some(written) = written {
            let Some(place) = room.next() else {
                return step;
            };
            *place = written;
            step.made += 1;
        }
        step.taken += 1;
        step.after_return = *byte == b'\r';
        if step.is_end {
            return step;
        }
    }
    step
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Everything at once.
    fn all(typed: &[u8]) -> (Vec<u8>, Step) {
        let mut out = vec![0; typed.len()];
        let step = translate(typed, false, &mut out);
        out.truncate(step.made);
        (out, step)
    }

    #[test]
    fn return_is_a_line_end() {
        assert_eq!(all(b"hi\r").0, b"hi\n");
        assert_eq!(all(b"a\r\nb\n\r\r\n\nc").0, b"a\nb\n\n\n\nc");
    }

    #[test]
    fn interrupt_is_left_out_and_counted() {
        let (out, step) = all(b"a\x03b\x03");
        assert_eq!((out.as_slice(), step.taken), (&b"ab"[..], 4));
        assert!(interrupts(b"a\x03") && !interrupts(b"a\x04"));
    }

    #[test]
    fn end_stops_after_what_came_before_it() {
        let (out, step) = all(b"hi\r\x04more");
        assert_eq!((out.as_slice(), step.taken), (&b"hi\n"[..], 4));
        assert!(step.is_end);
        assert!(all(b"\x04").1.is_end);
    }

    #[test]
    fn other_bytes_stay_what_they_are() {
        let typed: Vec<u8> = (0..=255)
            .filter(|byte| ![3, 4, 13].contains(byte))
            .collect();
        assert_eq!(all(&typed).0, typed);
    }

    fn typed() -> impl Strategy<Value = Vec<u8>> {
        let byte = prop_oneof![
            4 => proptest::sample::select(b"\r\n\x03ab".to_vec()),
            1 => any::<u8>(),
        ];
        proptest::collection::vec(byte, 0..40)
    }

    proptest! {
        #[test]
        fn splits_change_nothing(
            typed in typed(),
            reads in proptest::collection::vec(1_usize..7, 40),
            rooms in proptest::collection::vec(1_usize..5, 40),
        ) {
            let (expected, whole) = all(&typed);
            let (mut out, mut at, mut after_return, mut is_end) = (Vec::new(), 0, false, false);
            let mut sizes = reads.iter().cycle().zip(rooms.iter().cycle());
            while at < typed.len() && !is_end {
                let (read, room) = sizes.next().unwrap();
                let end = (at + read).min(typed.len());
                let mut buffer = vec![0; *room];
                let step = translate(&typed[at..end], after_return, &mut buffer);
                prop_assert!(step.taken > 0);
                out.extend_from_slice(&buffer[..step.made]);
                at += step.taken;
                after_return = step.after_return;
                is_end = step.is_end;
            }
            prop_assert_eq!(out, expected);
            prop_assert_eq!(at, whole.taken);
            prop_assert_eq!(is_end, whole.is_end);
        }

        #[test]
        fn a_short_write_is_counted_right(typed in typed(), cut in 0_usize..40) {
            let (whole, _) = all(&typed);
            let cut = cut.min(whole.len());
            let mut out = vec![0; cut];
            let step = translate(&typed, false, &mut out);
            prop_assert_eq!(step.made, cut);
            prop_assert_eq!(&out, &whole[..cut]);
            // The rest gives the rest.
            let mut rest = vec![0; typed.len()];
            let after = if step.is_end {
                Vec::new()
            } else {
                let next = translate(&typed[step.taken..], step.after_return, &mut rest);
                rest.truncate(next.made);
                rest
            };
            prop_assert_eq!(after, &whole[cut..]);
        }
    }
}
