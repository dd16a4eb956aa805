//! Output that came in small frames, put together: a frame for every keystroke would cost more
//! than what is in it.
//!
//! What lives here: one such piece. What must not: when it is begun, sent or dropped.

use shellward_protocol::limits::CUT_DISTANCE;
use shellward_protocol::message::Cut;

use shellward_protocol::text::boundary;

/// Output of at least this size is kept as the frame it came in, so that a flood is not copied.
pub(crate) const LARGE: usize = 16 << 10;

/// A piece does not grow beyond this. What was acknowledged gives way by whole pieces, so more is
/// kept than must be by about as much.
pub(crate) const PIECE_MAX: usize = 2 * LARGE;

/// Cuts closer to each other than this are thinned out: commands make as many as they like, and a
/// frame holds [`shellward_protocol::limits::CUTS_MAX`].
const APART: usize = CUT_DISTANCE / 2;

/// A stretch of output.
#[derive(Debug, Default)]
pub(crate) struct Piece {
    text: String,
    cuts: Vec<Cut>,
}

impl Piece {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn cuts(&self) -> &[Cut] {
        &self.cuts
    }

    /// Puts `text` behind it, unless it would become too large. An empty piece takes anything.
    pub(crate) fn append(&mut self, text: &str, cuts: &[Cut]) -> bool {
        let base = self.text.len();
        if base > 0 && base + text.len() > PIECE_MAX {
            return false;
        }
        if base == 0 {
            self.cuts.extend_from_slice(cuts);
        } else {
            for cut in cuts {
                let at = base + cut.at as usize;
                let last = self.cuts.last().map_or(0, |last| last.at as usize);
                if let Ok(place) = u32::try_from(at)
                    && at >= last + APART
                {
                    self.cuts.push(Cut { at: place, ..*cut });
                }
            }
        }
        self.text.push_str(text);
        true
    }

    /// Forgets its first `count` bytes, or a little less: not half of a character.
    pub(crate) fn drop_front(&mut self, count: usize) {
        let count = boundary(&self.text, count);
        self.text.drain(..count);
        self.cuts.retain_mut(|cut| {
            let at = (cut.at as usize).checked_sub(count).filter(|at| *at > 0);
            let at = at.and_then(|at| u32::try_from(at).ok());
            cut.at = at.unwrap_or_default();
            at.is_some()
        });
    }

    /// Nothing will follow.
    pub(crate) fn shrink(&mut self) {
        self.text.shrink_to_fit();
        self.cuts.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shellward_protocol::Modes;
    use shellward_protocol::limits::{CUTS_MAX, OUTPUT_CHUNK_MAX};

    fn cut(at: usize) -> Cut {
        Cut {
            at: u32::try_from(at).unwrap(),
            modes: Modes(u32::try_from(at).unwrap()),
        }
    }

    #[test]
    fn front_goes_with_its_cuts() {
        let mut piece = Piece::default();
        assert!(piece.append("é\nabc\n", &[cut(3), cut(7)]));
        piece.drop_front(1);
        assert_eq!(piece.text(), "é\nabc\n");
        piece.drop_front(3);
        assert_eq!(piece.text(), "abc\n");
        assert_eq!(piece.cuts(), [Cut { at: 4, ..cut(7) }]);
    }

    proptest! {
        #[test]
        fn however_small_the_frames_a_piece_fits_one(
            frames in proptest::collection::vec((1_usize..3000, any::<bool>()), 1..200),
        ) {
            let mut piece = Piece::default();
            let mut all = String::new();
            for (len, has_cut) in frames {
                let text = "x".repeat(len);
                let cuts: Vec<Cut> = has_cut.then(|| cut(len)).into_iter().collect();
                if piece.append(&text, &cuts) {
                    all.push_str(&text);
                }
            }
            prop_assert_eq!(piece.text(), &all);
            prop_assert!(all.len() <= OUTPUT_CHUNK_MAX);
            prop_assert!(piece.cuts().len() <= CUTS_MAX);
            prop_assert!(piece.cuts().iter().all(|cut| cut.at as usize <= all.len()));
            prop_assert!(piece.cuts().windows(2).all(|pair| pair[0].at < pair[1].at));
        }
    }
}
