//! The scanner by itself, for the benchmark (`worker/examples/scan.rs`) and the fuzz target
//! (`tests/fuzz`).

use shellward_protocol::message::{Cut, Marks, Size};

use super::scanner::{Found, Scanner, Sink, State};
use super::screen::Screen;

/// What became of a text.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// The text that went on.
    pub out: String,
    /// How many bytes went on, also if `out` is not kept.
    pub bytes: usize,
    /// How many marks and questions were taken out.
    pub found: usize,
}

struct Counter {
    scanned: Scanned,
    keeps: bool,
    screen: Option<Screen>,
}

impl Sink for Counter {
    fn text(&mut self, text: &str, cuts: Vec<Cut>, active: usize) {
        drop(cuts);
        if self.keeps {
            self.scanned.out.push_str(text);
        }
        self.scanned.bytes += text.len();
        if let Some(screen) = &mut self.screen {
            screen.push(text, active);
        }
    }
    fn found(&mut self, _: Found, _: &State) {
        self.scanned.found += 1;
        if let Some(screen) = &mut self.screen {
            screen.cursor();
        }
    }
}

/// Scans `text` in pieces that end at multiples of `step` bytes, or as near as characters allow;
/// with a model of the screen, if there is a size.
#[must_use]
pub fn scan(text: &str, step: usize, keeps: bool, screen: Option<(u16, u16)>) -> Scanned {
    let mut scanner = Scanner::new(Marks::Strip);
    let mut counter = Counter {
        scanned: Scanned::default(),
        keeps,
        screen: screen.map(|(cols, rows)| Screen::new(Size { cols, rows })),
    };
    for piece in shellward_protocol::text::pieces(text, step.max(4)) {
        scanner.scan(piece, &mut counter);
        drop(scanner.take_title());
    }
    scanner.finish(&mut counter);
    if let Some(screen) = &mut counter.screen {
        screen.cursor();
    }
    counter.scanned
}
