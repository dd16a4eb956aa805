//! One pass over what a terminal prints: what goes on, what is taken out, and what it tells.
//!
//! What lives here: finding the sequences that concern the host, however the reads split them, and
//! the modes and colours that output sets. What must not: whom to believe, what to answer.
//!
//! Text between sequences costs one `memchr`; a sequence is looked at once, when it is whole. Only
//! what may still become a mark or a question is held back, and that is bounded; everything else
//! goes on at once, even if it never ends.

use memchr::memchr;
use shellward_protocol::limits::TITLE_MAX;
use shellward_protocol::message::Cut;
use shellward_protocol::modes::{INSERT, KEYPAD};
use shellward_protocol::{Modes, message::Marks};

use super::cuts::Planner;
use super::marks::{self, Signed};
use super::queries::{self, Change, Query, Rgb};
use super::sequence::{self, ESC, End, Shape, body};

/// The longest mark or question, in bytes; a longer one goes on as it is. A mark carries a command
/// line, whose every byte may be written as four.
pub(crate) const HELD_MAX: usize = 128 << 10;

/// A CSI longer than this is nothing we know. xterm takes 30 parameters.
const CSI_MAX: usize = 256;

/// What the scanner found in place of text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// A mark of a shell.
    Mark(Signed),
    /// A question.
    Query(Query),
}

/// Takes what the scanner makes of the output, in order.
pub(crate) trait Sink {
    /// Output, with places where it may be cut. The first `active` bytes may move the cursor by
    /// sequences; the rest is text and sequences that do not.
    fn text(&mut self, text: &str, cuts: Vec<Cut>, active: usize);
    /// Something that stands at this place.
    fn found(&mut self, found: Found, state: &State);
}

/// What output has set and is still in force.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) modes: Modes,
    pub(super) colours: [Option<Rgb>; 3],
    pub(super) has_own_palette: bool,
}

/// Follows the output of one terminal.
#[derive(Debug)]
pub(crate) struct Scanner {
    marks: Marks,
    /// A sequence without an end that may still concern us, or the last ESC of one that does not.
    held: String,
    /// How much of `held` need not be looked at again for its end.
    looked_at: usize,
    /// In a control string that does not concern us and goes on as it comes.
    passing: Option<Shape>,
    /// The text of that string, if it may be a title.
    title_so_far: Option<String>,
    /// The newest title since it was asked for.
    title: Option<String>,
    state: State,
    planner: Planner,
    /// How many bytes went on.
    out: u64,
    /// Up to where the output may move the cursor by sequences.
    active: u64,
}

/// What becomes of a whole sequence.
enum Fate {
    Pass,
    /// It goes on, and may have moved the cursor.
    PassActive,
    Take(Found),
}

impl Scanner {
    pub(crate) fn new(marks: Marks) -> Self {
        Self {
            marks,
            held: String::new(),
            looked_at: 0,
            passing: None,
            title_so_far: None,
            title: None,
            state: State::default(),
            planner: Planner::new(),
            out: 0,
            active: 0,
        }
    }

    /// The newest title the output asked for since the last call.
    pub(crate) fn take_title(&mut self) -> Option<String> {
        self.title.take()
    }

    /// Scans what follows what was scanned before.
    pub(crate) fn scan(&mut self, text: &str, sink: &mut impl Sink) {
        if self.held.is_empty() {
            self.scan_whole(text, sink);
        } else {
            let mut whole = std::mem::take(&mut self.held);
            whole.push_str(text);
            self.scan_whole(&whole, sink);
        }
    }

    /// No more will come: what was held back goes on.
    pub(crate) fn finish(&mut self, sink: &mut impl Sink) {
        let held = std::mem::take(&mut self.held);
        self.looked_at = 0;
        self.pass(&held, sink);
    }

    /// `text` starts with what was held back.
    fn scan_whole(&mut self, text: &str, sink: &mut impl Sink) {
        let bytes = text.as_bytes();
        let mut looked_at = std::mem::take(&mut self.looked_at);
        // Where the stretch that goes on begins, and where we are.
        let (mut run, mut at) = (0, 0);
        while at < bytes.len() {
            if let Some(shape) = self.passing {
                at = self.pass_string(shape, text, at);
                if self.passing.is_some() {
                    break;
                }
                continue;
            }
            let rest = bytes.get(at..).unwrap_or_default();
            let plain = memchr(ESC, rest).unwrap_or(rest.len());
            if plain > 0 {
                let here = self.out + (at - run) as u64;
                let stretch = text.get(at..at + plain).unwrap_or_default();
                self.planner.ground(here, stretch, self.state.modes);
                at += plain;
                continue;
            }
            let shape = sequence::shape(rest);
            match sequence::end(shape, rest, std::mem::take(&mut looked_at)) {
                End::Whole(len) => {
                    let end = at + len;
                    let whole = text.get(at..end).unwrap_or_default();
                    match self.judge(shape, whole) {
                        Fate::Pass => {}
                        Fate::PassActive => self.active = self.out + (end - run) as u64,
                        Fate::Take(found) => {
                            let keeps =
                                self.marks == Marks::Keep && matches!(found, Found::Mark(_));
                            let run_end = if keeps { end } else { at };
                            if matches!(found, Found::Mark(_)) {
                                let here = self.out + (run_end - run) as u64;
                                self.planner.boundary(here, self.state.modes);
                            }
                            self.pass(text.get(run..run_end).unwrap_or_default(), sink);
                            sink.found(found, &self.state);
                            run = end;
                        }
                    }
                    at = end;
                }
                End::Broken(len) => {
                    let end = at + len;
                    let broken = text.get(at..end).unwrap_or_default();
                    if is_question_to_some(shape, broken) {
                        self.pass(text.get(run..at).unwrap_or_default(), sink);
                        run = end;
                    }
                    at = end;
                    self.active = self.out + at.saturating_sub(run) as u64;
                }
                End::Open { looked_at: seen } => {
                    if concerns_us(shape, rest, text.get(at..).unwrap_or_default()) {
                        self.pass(text.get(run..at).unwrap_or_default(), sink);
                        self.looked_at = seen;
                        text.get(at..)
                            .unwrap_or_default()
                            .clone_into(&mut self.held);
                        return;
                    }
                    if matches!(shape, Shape::Escape | Shape::Csi) {
                        // Too long to be anything, or with a control character inside: what
                        // comes then is text to us.
                        at = bytes.len();
                        self.active = self.out + (at - run) as u64;
                    } else {
                        self.passing = Some(shape);
                        self.title_so_far = (shape == Shape::Osc).then(String::new);
                        at += 2;
                    }
                }
            }
        }
        self.pass(text.get(run..at).unwrap_or_default(), sink);
        text.get(at..)
            .unwrap_or_default()
            .clone_into(&mut self.held);
    }

    /// Goes through a control string that does not concern us, to its end or to that of `text`,
    /// less an ESC whose meaning the next byte decides.
    fn pass_string(&mut self, shape: Shape, text: &str, at: usize) -> usize {
        let bytes = text.as_bytes();
        let (end, is_whole) = match sequence::string_end(shape, bytes, at) {
            End::Open { looked_at } => {
                self.grow_title(text.get(at..looked_at).unwrap_or_default());
                return looked_at;
            }
            End::Whole(end) => (end, true),
            End::Broken(end) => (end, false),
        };
        self.passing = None;
        self.grow_title(text.get(at..end).unwrap_or_default());
        if let Some(so_far) = self.title_so_far.take().filter(|_| is_whole) {
            self.learn(body(&format!("\u{1b}]{so_far}")));
        }
        end
    }

    fn grow_title(&mut self, text: &str) {
        if let Some(title) = &mut self.title_so_far {
            if title.len() + text.len() <= TITLE_MAX + 8 {
                title.push_str(text);
            } else {
                self.title_so_far = None;
            }
        }
    }

    /// What an OSC that goes on tells us.
    fn learn(&mut self, body: &str) {
        if let Some(title) = body
            .strip_prefix("0;")
            .or_else(|| body.strip_prefix("2;"))
            .filter(|title| title.len() <= TITLE_MAX)
        {
            self.title = Some(title.to_owned());
            return;
        }
        match queries::change(body) {
            Some(Change::Palette) => self.state.has_own_palette = true,
            Some(Change::Colours(all)) => {
                for (index, colour) in all {
                    if let Some(place) = self.state.colours.get_mut(index) {
                        *place = colour;
                    }
                }
            }
            None => {}
        }
    }

    /// Decides about a whole sequence.
    fn judge(&mut self, shape: Shape, whole: &str) -> Fate {
        match shape {
            Shape::Csi if whole.ends_with('m') => Fate::Pass,
            Shape::Csi if whole.len() > CSI_MAX => Fate::PassActive,
            Shape::Csi => match queries::parse(shape, whole) {
                Some(query) => Fate::Take(Found::Query(query)),
                // A control character inside acts, and the question is one all the same to a
                // viewer; it is not worth an answer.
                None if is_hidden_question(whole) => Fate::Take(Found::Query(Query::Silent)),
                None => {
                    self.follow_modes(whole);
                    Fate::PassActive
                }
            },
            Shape::Escape => {
                if let Some(query) = queries::parse(shape, whole) {
                    return Fate::Take(Found::Query(query));
                }
                match whole {
                    "\u{1b}c" => self.state = State::default(),
                    "\u{1b}=" => self.state.modes = self.state.modes.with(KEYPAD, true),
                    "\u{1b}>" => self.state.modes = self.state.modes.with(KEYPAD, false),
                    _ => {}
                }
                Fate::PassActive
            }
            Shape::Osc | Shape::Text => {
                if whole.len() > HELD_MAX || !is_clean(whole, 2) {
                    return Fate::PassActive;
                }
                if let Some(query) = queries::parse(shape, whole) {
                    return Fate::Take(Found::Query(query));
                }
                if shape == Shape::Text {
                    // Pictures are drawn by these.
                    return Fate::PassActive;
                }
                let body = body(whole);
                if marks::is_mark(body) == Some(true) {
                    return Fate::Take(Found::Mark(marks::parse(body)));
                }
                self.learn(body);
                Fate::Pass
            }
            Shape::Tmux => Fate::PassActive,
        }
    }

    fn follow_modes(&mut self, whole: &str) {
        let text = whole.get(2..).unwrap_or_default();
        let Some((params, last)) = text.split_at_checked(text.len() - 1) else {
            return;
        };
        let on = match last {
            "h" => true,
            "l" => false,
            // DECSTR, a soft reset.
            "p" if params == "!" => {
                let screen = |modes: Modes, number| modes.private(number) == Some(true);
                let old = self.state.modes;
                let mut modes = Modes::default();
                for number in [47, 1047, 1049, 1000, 1002, 1003, 1006, 2004] {
                    modes = modes.with_private(number, screen(old, number));
                }
                self.state.modes = modes;
                return;
            }
            _ => return,
        };
        let modes = &mut self.state.modes;
        match params.strip_prefix('?') {
            Some(numbers) => {
                for number in numbers.split(';').filter_map(|number| number.parse().ok()) {
                    *modes = modes.with_private(number, on);
                }
            }
            None if params.split(';').any(|number| number == "4") => {
                *modes = modes.with(INSERT, on)
            }
            None => {}
        }
    }

    /// Sends text on.
    fn pass(&mut self, text: &str, sink: &mut impl Sink) {
        let places = self.planner.take(self.out + text.len() as u64);
        if text.is_empty() {
            return;
        }
        let start = self.out;
        self.out += text.len() as u64;
        let relative = |at: u64| usize::try_from(at.saturating_sub(start)).unwrap_or(usize::MAX);
        let cuts: Vec<Cut> = places
            .iter()
            .filter_map(|place| {
                let at = u32::try_from(relative(place.at)).ok()?;
                (0 < at && at as usize <= text.len()).then_some(Cut {
                    at,
                    modes: place.modes,
                })
            })
            .collect();
        sink.text(text, cuts, relative(self.active).min(text.len()));
    }
}

/// Whether an unfinished sequence may still become a mark or a question.
fn concerns_us(shape: Shape, bytes: &[u8], text: &str) -> bool {
    match shape {
        Shape::Escape => bytes.len() < CSI_MAX && is_clean(text, 1),
        Shape::Csi => bytes.len() < CSI_MAX,
        Shape::Osc | Shape::Text => {
            let body = text.get(2..).unwrap_or_default();
            let body = body.strip_suffix('\u{1b}').unwrap_or(body);
            let may_be_tmux =
                shape == Shape::Text && bytes.get(1) == Some(&b'P') && "tmux;".starts_with(body);
            let may_be_question = match bytes.get(1) {
                Some(b'X' | b'^' | b'_') => false,
                _ => queries::may_become(shape, body),
            };
            let may_be_mark = shape == Shape::Osc && marks::is_mark(body) != Some(false);
            bytes.len() <= HELD_MAX
                && is_clean(text, 2)
                && (may_be_tmux || may_be_question || may_be_mark)
        }
        Shape::Tmux => false,
    }
}

/// Whether control characters are all that keeps a CSI from being a question.
fn is_hidden_question(whole: &str) -> bool {
    if is_clean(whole, 1) {
        return false;
    }
    let visible: String = whole
        .chars()
        .filter(|c| *c == '\u{1b}' || !c.is_control())
        .collect();
    queries::parse(Shape::Csi, &visible).is_some()
}

/// Whether a control string that another sequence ended is a question to emulators that take
/// this for an end (xterm.js does). It gets no answer and must not get one of theirs.
fn is_question_to_some(shape: Shape, broken: &str) -> bool {
    matches!(shape, Shape::Osc | Shape::Text)
        && !broken.ends_with(['\u{18}', '\u{1a}'])
        && is_clean(broken, 2)
        && queries::parse(shape, &format!("{broken}\u{7}")).is_some()
}

/// Whether no control character stands inside, as in everything that shells and programs mean for
/// us. One that stands there shows that the sequence was never finished.
fn is_clean(sequence: &str, from: usize) -> bool {
    let inside = sequence.as_bytes().get(from..).unwrap_or_default();
    let inside = inside
        .strip_suffix(b"\x1b\\")
        .or_else(|| inside.strip_suffix(b"\x07"))
        .or_else(|| inside.strip_suffix(b"\x1b"))
        .unwrap_or(inside);
    !inside.iter().any(|byte| *byte < 0x20 || *byte == 0x7F)
}

#[cfg(test)]
#[path = "scanner_tests.rs"]
mod tests;
