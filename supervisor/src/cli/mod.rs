//! The command line: what can be said, and the commands that talk to a running supervisor.

mod client;
mod commands;
mod escapes;
mod plain;
mod probe;
mod ps;
mod read;
mod target;
mod wait;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

pub use client::NotAvailable;
pub use commands::run;
pub use probe::{NoPty, ProbeArgs, probe};
pub use read::Read;
pub use wait::Wait;

use crate::config::ServeArgs;

/// An AHP (Agent Host Protocol) terminal host: shells on this machine as channels that clients
/// open, watch, type into and share. Every terminal runs in a worker process of its own.
#[derive(Debug, Parser)]
#[command(
    version,
    max_term_width = 100,
    after_help = "\
First session:
  shellward serve &                        start the host; it prints where clients connect
  shellward new --name build               open a terminal
  shellward send build 'make test\\r'       type into it; \\r is Enter
  shellward wait build --command           wait for it; its exit code is this one's
  shellward read build                     see what it shows
  shellward ps                             list the terminals
  shellward restart build                  a new shell in it; nothing else changes
  shellward kill build                     end it

A TERMINAL is named by its title, its id, its URI, or a prefix of these that fits only one.
Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no host is running, it does not answer or went away,
or what was asked for is not to be had here; `wait` has those of what it waited for."
)]
pub struct Cli {
    /// Where the host's sockets are [default: $SHELLWARD_RUNTIME_DIR, else
    /// $XDG_RUNTIME_DIR/shellward, as root /run/shellward]
    #[arg(long, value_name = "DIR", global = true)]
    pub runtime_dir: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the host until TERM, INT or `shellward shutdown`
    ///
    /// All terminals end with it. With --on-exit keep they outlive TERM and INT, and `shellward
    /// shutdown` ends them. They always outlive a host that is killed: the next one over the same
    /// runtime directory takes them over, with all they show.
    Serve(Box<ServeArgs>),
    /// Find out whether ptys work here: exit code 0 if they do, 3 if not
    ///
    /// Asks the running host to try again, so that a repaired machine or binding is taken up. With
    /// --pty-binding, or where no host runs, it tries by itself.
    Probe(ProbeArgs),
    #[command(flatten)]
    #[allow(missing_docs)]
    Ops(Ops),
}

/// Commands that talk to a running supervisor.
#[derive(Debug, Subcommand)]
pub enum Ops {
    /// List the terminals
    Ps {
        /// One JSON object, for machines
        #[arg(long)]
        json: bool,
    },
    /// Open a terminal and print its id
    New(New),
    /// Type into a terminal
    #[command(after_help = "\
TEXT may hold \\r (Enter), \\n, \\t, \\e (Escape), \\\\, \\xHH (one byte) and \\u{HHHH} (one character):
  shellward send build 'make test\\r'       run a command
  shellward send build '\\x03'              Ctrl-C
  shellward send build --raw 'a\\b'         type a\\b as it is
  shellward send build - < file             type what is in a file")]
    Send {
        /// The terminal
        terminal: String,
        /// What to type; `-` reads it from stdin, as it is
        text: String,
        /// Take TEXT as it is
        #[arg(long)]
        raw: bool,
    },
    /// Print what a terminal shows, as plain text
    ///
    /// Waits until the terminal has been quiet for a moment (250 ms, at most 2 s), so that the
    /// answer to what was just sent is there.
    ///
    /// --last-command prints the output of the last command alone; its JSON object has uri, id,
    /// commandId, commandLine, output, exitCode, durationMs, timestamp (milliseconds since 1970) and
    /// isComplete. An exitCode of null is not known (yet).
    #[command(after_help = "\
Examples:
  shellward read build                          what the terminal shows
  shellward read build --last-command           what the last command printed
  shellward read build --last-command --json    and its line, exit code and duration")]
    Read(Read),
    /// Wait until a terminal, or the command that runs in it, ends; exit with its exit code
    ///
    /// With --command, if none runs, a line that was typed since the last one has 2 s to start one; if
    /// it does not (an empty line, a syntax error, an open quote), that is an error, exit code 1. If
    /// none was typed, the last command's exit code is taken. `exit 5` has that of the terminal.
    ///
    /// A terminal that was ended by a signal has exit code 128, and the signal's name is printed on
    /// stderr; a command that was has 128 and the signal's number, as shells tell it. 1 stands for
    /// an exit code that is not known, with a message. 3: this terminal does not tell commands
    /// apart, or the host ended and its terminals with it, or it went away and neither it nor the
    /// terminal came back within 30 s; a host that is started again meanwhile changes nothing. 124:
    /// not within --timeout.
    #[command(after_help = "\
Examples:
  shellward send build 'make test\\r'
  shellward wait build --command --timeout 10m && echo tests pass
  shellward read build --last-command           what they printed
  shellward wait build                          until its shell exits")]
    Wait(Wait),
    /// End terminals and everything that runs in them
    Kill {
        /// The terminals
        #[arg(required = true)]
        terminals: Vec<String>,
    },
    /// Start a new shell, in a new worker process, in terminals that stay as they are
    ///
    /// URI, title, claim, size, directory (the last one) and what the terminal shows stay; everything
    /// that runs in it ends. One that has exited runs again.
    Restart {
        /// The terminals
        #[arg(required = true)]
        terminals: Vec<String>,
    },
    /// Give a terminal another title
    Rename {
        /// The terminal
        terminal: String,
        /// The title
        title: String,
    },
    /// Empty a terminal's scrollback
    Clear {
        /// The terminal
        terminal: String,
    },
    /// End the host and all its terminals
    ///
    /// Workers that it cannot end, because they do not answer or belong to another version, are
    /// named on stderr; exit code 1 then.
    Shutdown,
}

/// A command that no host could make sense of: exit code 2, as where clap finds that out.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongUsage(String);

impl Ops {
    /// Finds out what is wrong with a command before any host is asked. What is to be typed is `raw`
    /// afterwards, unless it comes from stdin.
    fn checked(mut self) -> anyhow::Result<Self> {
        let terminals = match &self {
            Self::Send { terminal, .. }
            | Self::Rename { terminal, .. }
            | Self::Clear { terminal }
            | Self::Read(Read { terminal, .. })
            | Self::Wait(Wait { terminal, .. }) => std::slice::from_ref(terminal),
            Self::Kill { terminals } | Self::Restart { terminals } => terminals,
            Self::Ps { .. } | Self::New(_) | Self::Shutdown => &[],
        };
        if terminals.iter().any(String::is_empty) {
            return Err(WrongUsage("the name of the terminal is empty".to_owned()).into());
        }
        match &mut self {
            Self::Send { text, raw, .. } if !*raw && text != "-" => {
                *text = escapes::unescape(text).map_err(WrongUsage)?;
                *raw = true;
            }
            Self::Wait(wait) => drop(wait.limit()?),
            _ => {}
        }
        Ok(self)
    }
}

/// `shellward new`
#[derive(Debug, Args)]
pub struct New {
    /// Its title [default: the shell's name]
    #[arg(long)]
    pub name: Option<String>,
    /// The directory it starts in [default: the host's]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// Columns, 1 to 1000
    #[arg(long, default_value_t = 80, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub cols: u16,
    /// Rows, 1 to 1000
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rows: u16,
    /// One JSON object {"uri","id"}, for machines
    #[arg(long)]
    pub json: bool,
    /// Do not wait for the shell's first output (at most 2 s)
    #[arg(long)]
    pub no_wait: bool,
}

/// A terminal does not tell commands apart: exit code 3.
#[derive(Debug, thiserror::Error)]
#[error(
    "this terminal does not tell commands apart: its shell prints no marks (OSC 133 or 633), or it sits on pipes; bash, zsh and fish on a pty do, unless serve runs with --shell-integration off"
)]
pub struct NoCommandDetection;

/// Prints an error and its causes in one line on stderr.
pub fn complain(error: &anyhow::Error) {
    say(&format!("{error:#}"));
}

/// Prints one line on stderr.
fn say(text: &str) {
    use std::io::Write as _;
    let text = plain::one_line(text);
    // There is nowhere left to say that stderr is closed.
    drop(writeln!(std::io::stderr(), "shellward: {text}"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_runtime_directory_may_stand_before_or_after() {
        for words in [
            ["shellward", "--runtime-dir", "/r", "ps"],
            ["shellward", "ps", "--runtime-dir", "/r"],
        ] {
            let cli = Cli::try_parse_from(words).unwrap();
            assert_eq!(cli.runtime_dir, Some("/r".into()));
        }
        assert!(
            Cli::try_parse_from([
                "shellward",
                "serve",
                "--connection-token",
                "a",
                "--without-connection-token"
            ])
            .is_err()
        );
        assert!(Cli::try_parse_from(["shellward", "new", "--cols", "0"]).is_err());
    }
}
