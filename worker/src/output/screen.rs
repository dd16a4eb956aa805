//! Where the cursor is: a model of the screen, made only when somebody asks.
//!
//! What lives here: feeding the emulator, late and little; reading text back from it. What must
//! not: sequences of our own making, answers.
//!
//! Output waits here unread. Most of what waits is dropped again without ever reaching the
//! emulator: once more lines have ended than the screen is high, without a sequence in between
//! that moves the cursor, the cursor stands where the last of these lines put it, whatever came
//! before. So a build log or a coloured listing costs a few searches for line ends, and a shell at
//! its prompt costs the bytes of that prompt.

use alacritty_terminal::Term;
use alacritty_terminal::event::VoidListener;
use alacritty_terminal::grid::Dimensions;
use alacritty_terminal::index::{Column, Line};
use alacritty_terminal::term::Config;
use alacritty_terminal::term::cell::Flags;
use alacritty_terminal::vte::ansi::Processor;
use memchr::memrchr;
use shellward_protocol::message::Size;

/// Output that waits, in bytes; more is fed to the emulator.
const WAITING_MAX: usize = 16 << 10;

/// Changes of size that wait among it.
const SIZES_MAX: usize = 4;

/// Output for one size of the screen.
#[derive(Debug)]
struct Waiting {
    size: Size,
    text: String,
    /// Up to here there are sequences that may move the cursor.
    active: usize,
}

/// The screen of one terminal.
pub(super) struct Screen {
    emulator: Option<Emulator>,
    /// Never empty; the last one is of the size in force.
    waiting: Vec<Waiting>,
}

impl Screen {
    pub(super) fn new(size: Size) -> Self {
        Self {
            emulator: None,
            waiting: vec![Waiting {
                size,
                text: String::new(),
                active: 0,
            }],
        }
    }

    pub(super) fn size(&self) -> Size {
        self.waiting
            .last()
            .map_or(Size { cols: 80, rows: 24 }, |last| last.size)
    }

    pub(super) fn resize(&mut self, size: Size) {
        if size == self.size() {
            return;
        }
        if self.waiting.len() >= SIZES_MAX {
            self.feed();
        }
        match self.waiting.last_mut() {
            Some(last) if last.text.is_empty() && self.emulator.is_none() => last.size = size,
            _ => self.waiting.push(Waiting {
                size,
                text: String::new(),
                active: 0,
            }),
        }
    }

    /// Takes output; its first `active` bytes may hold sequences that move the cursor.
    pub(super) fn push(&mut self, text: &str, active: usize) {
        let rows = usize::from(self.size().rows);
        let Some(last) = self.waiting.last_mut() else {
            return;
        };
        let (before, calm) = text.split_at_checked(active).unwrap_or((text, ""));
        if !before.is_empty() {
            last.text.push_str(before);
            last.active = last.text.len();
        }
        match enough(calm, rows) {
            Some(from) => {
                // What waits and is calm itself does not matter any more, either.
                last.text.truncate(last.active);
                last.text.push_str(calm.get(from..).unwrap_or_default());
            }
            None => last.text.push_str(calm),
        }
        if last.text.len() > WAITING_MAX {
            let calm = last.text.get(last.active..).unwrap_or_default();
            if let Some(from) = enough(calm, rows) {
                last.text.drain(last.active..last.active + from);
            }
            if last.text.len() > WAITING_MAX {
                self.feed();
            }
        }
    }

    /// Row and column of the cursor, from 1.
    pub(super) fn cursor(&mut self) -> (usize, usize) {
        self.feed();
        self.emulator.as_ref().map_or((1, 1), Emulator::cursor)
    }

    /// Gives back what only a flood needs.
    pub(super) fn rest(&mut self) {
        for waiting in &mut self.waiting {
            waiting.text.shrink_to_fit();
        }
    }

    fn feed(&mut self) {
        let Some(first) = self.waiting.first().map(|waiting| waiting.size) else {
            return;
        };
        let emulator = self.emulator.get_or_insert_with(|| Emulator::new(first));
        for waiting in &self.waiting {
            emulator.resize(waiting.size);
            emulator.feed(&waiting.text);
        }
        let size = self.size();
        self.waiting.clear();
        self.waiting.push(Waiting {
            size,
            text: String::new(),
            active: 0,
        });
    }
}

/// Where the end of `text` begins that alone decides about the cursor: a line end that brings it
/// to the first column, then as many lines as the screen has, which bring it to the bottom of the
/// screen or of its scrolling region, wherever it was.
fn enough(text: &str, rows: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut end = bytes.len();
    for _ in 0..rows {
        end = memrchr(b'\n', bytes.get(..end)?)?;
    }
    loop {
        end = memrchr(b'\n', bytes.get(..end)?)?;
        if end > 0 && bytes.get(end - 1) == Some(&b'\r') {
            return Some(end - 1);
        }
    }
}

/// The emulator of a kept crate.
struct Emulator {
    term: Term<VoidListener>,
    parser: Processor,
}

struct Area(Size);

impl Dimensions for Area {
    fn total_lines(&self) -> usize {
        self.screen_lines()
    }
    fn screen_lines(&self) -> usize {
        usize::from(self.0.rows)
    }
    fn columns(&self) -> usize {
        // The emulator has no screen of a single column.
        usize::from(self.0.cols).max(2)
    }
}

impl Emulator {
    fn new(size: Size) -> Self {
        let config = Config {
            scrolling_history: 0,
            ..Config::default()
        };
        Self {
            term: Term::new(config, &Area(size), VoidListener),
            parser: Processor::new(),
        }
    }

    fn feed(&mut self, text: &str) {
        self.parser.advance(&mut self.term, text.as_bytes());
    }

    fn resize(&mut self, size: Size) {
        let area = Area(size);
        if (area.columns(), area.screen_lines()) == (self.term.columns(), self.term.screen_lines())
        {
            return;
        }
        self.term.resize(area);
        // It grows by a thousand lines at a time.
        self.term.grid_mut().truncate();
    }

    fn cursor(&self) -> (usize, usize) {
        let point = self.term.grid().cursor.point;
        let row = usize::try_from(point.line.0).unwrap_or(0);
        (row + 1, point.column.0 + 1)
    }

    /// The text from a place on the first line to the end, wrapped lines joined.
    fn text_from(&self, column: usize) -> String {
        let grid = self.term.grid();
        let mut lines: Vec<String> = Vec::new();
        let mut joins = false;
        for row in 0..self.term.screen_lines() {
            let Ok(line) = i32::try_from(row) else { break };
            let cells = &grid[Line(line)];
            let from = if row == 0 { column } else { 0 };
            let mut text = String::new();
            for index in from..self.term.columns() {
                let cell = &cells[Column(index)];
                if cell
                    .flags
                    .intersects(Flags::WIDE_CHAR_SPACER | Flags::LEADING_WIDE_CHAR_SPACER)
                {
                    continue;
                }
                text.push(cell.c);
                text.extend(cell.zerowidth().into_iter().flatten());
            }
            let wraps = cells[Column(self.term.columns() - 1)]
                .flags
                .contains(Flags::WRAPLINE);
            if !wraps {
                text.truncate(text.trim_end_matches([' ', '\t']).len());
            }
            match lines.last_mut().filter(|_| joins) {
                Some(last) => last.push_str(&text),
                None => lines.push(text),
            }
            joins = wraps;
        }
        while lines.last().is_some_and(String::is_empty) {
            lines.pop();
        }
        lines.join("\n")
    }
}

/// The most rows that an echoed command line is followed over.
const ECHO_ROWS: u16 = 300;

/// What `echo` leaves on a screen whose cursor stands in this column (from 1): a command line as
/// a shell has drawn and redrawn it.
pub(super) fn drawn(echo: &str, column: usize, size: Size) -> String {
    let column = column.clamp(1, usize::from(size.cols).max(2));
    let mut emulator = Emulator::new(Size {
        cols: size.cols,
        rows: ECHO_ROWS,
    });
    emulator.feed(&format!("\u{1b}[{column}G"));
    emulator.feed(echo);
    emulator.text_from(column - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn size(cols: u16, rows: u16) -> Size {
        Size { cols, rows }
    }

    #[test]
    fn cursor_is_where_an_emulator_has_it() {
        let mut screen = Screen::new(size(80, 24));
        assert_eq!(screen.cursor(), (1, 1));
        screen.push("abc\r\nde", 0);
        assert_eq!(screen.cursor(), (2, 3));
        screen.push("\u{1b}[10;20H漢", 8);
        assert_eq!(screen.cursor(), (10, 22));
        screen.resize(size(40, 5));
        assert_eq!(screen.cursor().0, 5);
    }

    #[test]
    fn flood_of_lines_never_reaches_the_emulator() {
        let mut screen = Screen::new(size(80, 24));
        for number in 0..10_000 {
            screen.push(&format!("line {number}\u{1b}[31m red\u{1b}[m\r\n"), 0);
            assert!(screen.waiting[0].text.len() <= WAITING_MAX);
        }
        assert!(screen.emulator.is_none());
        screen.push("> ", 0);
        assert_eq!(screen.cursor(), (24, 3));
    }

    #[test]
    fn echo_is_read_as_it_stands_there_in_the_end() {
        let echo = "l\u{8}\u{1b}[Kecho hi\u{1b}[1P\u{8}";
        assert_eq!(drawn("ls -l\r\n", 20, size(80, 24)), "ls -l");
        assert_eq!(drawn("a\u{8}\u{1b}[Kb", 3, size(80, 24)), "b");
        assert!(drawn(echo, 1, size(80, 24)).starts_with("echo h"));
        let long = "x".repeat(100);
        assert_eq!(drawn(&format!("{long}\r\n"), 11, size(40, 24)), long);
        assert_eq!(drawn("for\r\ndo 漢\r\n", 3, size(80, 24)), "for\ndo 漢");
    }

    proptest! {
        #[test]
        fn what_was_dropped_changes_nothing(
            parts in proptest::collection::vec(
                prop_oneof![
                    4 => "[a-z漢é\u{301} ]{0,100}".prop_map(|text| (text, false)),
                    6 => Just(("\r\n".to_owned(), false)),
                    1 => Just(("\n".to_owned(), false)),
                    1 => Just(("\t\u{8}".to_owned(), false)),
                    2 => (1_usize..80).prop_map(|n| ("x\r\n".repeat(n), false)),
                    2 => Just(("\u{1b}[1;31m".to_owned(), false)),
                    1 => (1_u8..30, 1_u8..90).prop_map(|(r, c)| (format!("\u{1b}[{r};{c}H"), true)),
                    1 => (1_u8..12, 12_u8..30).prop_map(|(t, b)| (format!("\u{1b}[{t};{b}r"), true)),
                    1 => Just(("\u{1b}[?6h".to_owned(), true)),
                    1 => Just(("\u{1b}[5A".to_owned(), true)),
                ],
                1..40,
            ),
            cols in 1_u16..100,
            rows in 1_u16..30,
        ) {
            let mut lazy = Screen::new(size(cols, rows));
            let mut whole = Emulator::new(size(cols, rows));
            for (text, is_active) in parts {
                lazy.push(&text, if is_active { text.len() } else { 0 });
                whole.feed(&text);
            }
            prop_assert_eq!(lazy.cursor(), whole.cursor());
        }
    }
}
