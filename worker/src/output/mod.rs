//! What a terminal prints, on its way to the supervisor.
//!
//! What lives here: putting together what the scanner finds, and queueing frames in order. What
//! must not: reading, the pty, the pipes.

mod commands;
mod cuts;
mod line;
mod marks;
mod queries;
mod scanner;
mod screen;
mod sequence;
pub mod trial;
mod typed;

use std::path::Path;
use std::time::Instant;

use nix::unistd::Pid;
use shellward_protocol::limits::OUTPUT_CHUNK_MAX;
use shellward_protocol::message::{Cut, Happened, Marks, Size};
use shellward_protocol::{Data, WireError};

use crate::input::ANSWERS_MAX;
use crate::integration::{Installed, Nonce};
use crate::outbox::Outbox;
use commands::{Commands, Now, Outcome};
use queries::Facts;
use scanner::{Found, Scanner, Sink, State};
use screen::Screen;
use shellward_protocol::text::pieces;

/// What is known about a terminal from what it has printed.
pub(crate) struct Output {
    scanner: Scanner,
    known: Known,
    /// The files of our script, until it has read them.
    installed: Option<Installed>,
}

/// Everything but the scanner, which hands it what it finds.
struct Known {
    is_pty: bool,
    shell: Pid,
    commands: Commands,
    screen: Screen,
    /// The directory that was told last.
    directory: Vec<u8>,
    /// Answers to be typed.
    answers: Vec<u8>,
    is_loaded: bool,
}

/// One turn: what is known, and where it goes.
struct Turn<'a> {
    known: &'a mut Known,
    outbox: &'a mut Outbox,
    now: Instant,
    failure: Option<WireError>,
}

impl Output {
    pub(crate) fn new(
        is_pty: bool,
        shell: Pid,
        size: Size,
        marks: Marks,
        directory: &[u8],
        installed: Option<Installed>,
    ) -> Self {
        let nonce: Option<Nonce> = installed.as_ref().map(|installed| installed.nonce.clone());
        Self {
            scanner: Scanner::new(marks),
            known: Known {
                is_pty,
                shell,
                commands: Commands::new(is_pty, nonce),
                screen: Screen::new(size),
                directory: directory.to_vec(),
                answers: Vec::new(),
                is_loaded: false,
            },
            installed,
        }
    }

    /// Before anything was printed: whether commands can be told apart from the start.
    pub(crate) fn begin(&mut self, outbox: &mut Outbox) -> Result<(), WireError> {
        match self.known.commands.begin() {
            Some(what) => outbox.event(what),
            None => Ok(()),
        }
    }

    /// Takes text, in order.
    pub(crate) fn take(
        &mut self,
        text: &str,
        now: Instant,
        outbox: &mut Outbox,
    ) -> Result<(), WireError> {
        self.turn(now, outbox, |scanner, turn| {
            scanner.scan(text, turn);
            if let Some(title) = scanner.take_title() {
                turn.tell(Happened::Title(Data::from(title)));
            }
        })?;
        if self.known.is_loaded {
            self.installed = None;
        }
        Ok(())
    }

    /// What was held back goes on: nothing will follow it.
    pub(crate) fn finish(&mut self, now: Instant, outbox: &mut Outbox) -> Result<(), WireError> {
        self.turn(now, outbox, |scanner, turn| scanner.finish(turn))
    }

    fn turn(
        &mut self,
        now: Instant,
        outbox: &mut Outbox,
        work: impl FnOnce(&mut Scanner, &mut Turn<'_>),
    ) -> Result<(), WireError> {
        let mut turn = Turn {
            known: &mut self.known,
            outbox,
            now,
            failure: None,
        };
        work(&mut self.scanner, &mut turn);
        turn.failure.map_or(Ok(()), Err)
    }

    /// The shell has ended, and with it the command that ran in it.
    pub(crate) fn shell_ended(
        &mut self,
        now: Instant,
        outbox: &mut Outbox,
    ) -> Result<(), WireError> {
        self.finish(now, outbox)?;
        match self.known.commands.finish(None, now) {
            Some(what) => outbox.event(what),
            None => Ok(()),
        }
    }

    /// Something was typed by a client.
    pub(crate) fn typed(&mut self, bytes: &[u8]) {
        self.known.commands.typed(bytes);
    }

    pub(crate) fn size(&self) -> Size {
        self.known.screen.size()
    }

    pub(crate) fn resize(&mut self, size: Size) {
        self.known.screen.resize(size);
    }

    /// Answers to be typed.
    pub(crate) fn take_answers(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.known.answers)
    }

    /// Gives back memory that only a flood needs.
    pub(crate) fn rest(&mut self) {
        self.known.screen.rest();
    }
}

impl Turn<'_> {
    fn tell(&mut self, what: Happened<'static>) {
        if let Happened::Directory(path) = &what {
            if self.known.directory == path.as_slice() {
                return;
            }
            self.known.directory = path.as_slice().to_vec();
        }
        if self.failure.is_none() {
            self.failure = self.outbox.event(what).err();
        }
    }

    /// Several cuts in one run of text, for each of the frames it makes.
    fn send(&mut self, text: &str, cuts: Vec<Cut>) -> Result<(), WireError> {
        if text.len() <= OUTPUT_CHUNK_MAX {
            return self.outbox.output(cuts, text);
        }
        let mut cuts = cuts.into_iter().peekable();
        let mut start = 0;
        for piece in pieces(text, OUTPUT_CHUNK_MAX) {
            let end = start + piece.len();
            let mut here = Vec::new();
            while let Some(cut) = cuts.next_if(|cut| cut.at as usize <= end) {
                if let Ok(at) = u32::try_from((cut.at as usize).saturating_sub(start)) {
                    here.push(Cut { at, ..cut });
                }
            }
            self.outbox.output(here, piece)?;
            start = end;
        }
        Ok(())
    }
}

impl Sink for Turn<'_> {
    fn text(&mut self, text: &str, cuts: Vec<Cut>, active: usize) {
        if self.known.is_pty {
            self.known.screen.push(text, active);
            self.known.commands.printed(text);
        }
        if self.failure.is_none() {
            self.failure = self.send(text, cuts).err();
        }
    }

    fn found(&mut self, found: Found, state: &State) {
        match found {
            Found::Mark(signed) => {
                let now = Now::at(self.now);
                let (commands, screen) = (&mut self.known.commands, &mut self.known.screen);
                let size = screen.size();
                for outcome in commands.mark(signed, now, size, || screen.cursor().1) {
                    match outcome {
                        Outcome::Tell(what) => self.tell(what),
                        Outcome::Loaded => self.known.is_loaded = true,
                        Outcome::ShellDirectory(path) => {
                            if let Some(path) = shell_directory(&path, self.known.shell) {
                                self.tell(Happened::Directory(Data::from(path)));
                            }
                        }
                    }
                }
            }
            // Without a terminal there is nobody who could be asked.
            Found::Query(_) if !self.known.is_pty => {}
            Found::Query(query) => {
                let screen = &mut self.known.screen;
                let size = screen.size();
                let answer = queries::answer(
                    &query,
                    &mut Facts {
                        size,
                        modes: state.modes,
                        colours: &state.colours,
                        has_usual_palette: !state.has_own_palette,
                        cursor: &mut || screen.cursor(),
                    },
                );
                if self.known.answers.len() + answer.len() <= ANSWERS_MAX {
                    self.known.answers.extend_from_slice(answer.as_bytes());
                }
            }
        }
    }
}

/// The directory a shell says it is in, if it is: a path over links is what people know it by.
/// Else what the kernel says. A name that is no text cannot be told by a shell at all.
fn shell_directory(said: &[u8], shell: Pid) -> Option<Vec<u8>> {
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    use std::os::unix::fs::MetadataExt as _;
    let link = format!("/proc/{shell}/cwd");
    let real = std::fs::metadata(&link).ok();
    let stated = std::fs::metadata(Path::new(std::ffi::OsStr::from_bytes(said))).ok();
    let same = match (&real, &stated) {
        (Some(real), Some(stated)) => (real.dev(), real.ino()) == (stated.dev(), stated.ino()),
        _ => false,
    };
    if same {
        return Some(said.to_vec());
    }
    // One that was removed has no name any more, only one with a remark behind it.
    real.filter(|real| real.nlink() > 0)?;
    marks::directory_path(std::fs::read_link(&link).ok()?.into_os_string().into_vec())
}
