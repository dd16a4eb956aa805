//! Where text may be cut: both sides cut it to the wire's bounds, and never inside a character.

/// The last place at or before byte `at` that is not inside a character.
#[must_use]
pub fn boundary(text: &str, at: usize) -> usize {
    // `str::floor_char_boundary` of newer standard libraries.
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// Cuts `text` into pieces of at most `max` bytes, never inside a character. A character may have
/// four bytes, so `max` counts as at least four.
pub fn pieces(text: &str, max: usize) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (piece, tail) = rest.split_at(boundary(rest, max.max(4)));
        rest = tail;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_join_to_the_whole(text in ".{0,80}", max in 4_usize..20) {
            let joined: String = pieces(&text, max).collect();
            prop_assert_eq!(joined, text.clone());
            prop_assert!(pieces(&text, max).all(|piece| piece.len() <= max && !piece.is_empty()));
        }

        #[test]
        fn a_boundary_is_the_last_one(text in "[a-zé漢🙂]{0,9}", at in 0_usize..50) {
            let found = boundary(&text, at);
            prop_assert!(found <= at && text.is_char_boundary(found));
            prop_assert!((found + 1..=at.min(text.len())).all(|later| !text.is_char_boundary(later)));
        }
    }
}
