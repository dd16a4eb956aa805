//! One terminal of Shellward: everything that `shellward-worker` is.
//!
//! What lives here: choosing the role, and the edge where errors become words and exit codes.
//! What must not: anything a role does.
//!
//! The process has exactly one thread: what runs between fork and exec in the pty binding is only
//! sound then.

#![deny(unsafe_code)]

mod binding;
mod command;
mod ending;
mod environment;
mod escape;
mod event_loop;
mod exec_stage;
mod faults;
mod frame;
mod input;
mod integration;
mod link;
mod outbox;
mod output;
mod past;
mod piece;
mod probe;
mod run;
mod start;
mod sys;
mod terminal;
mod tree;
mod trust;
mod utf8;

pub use output::trial;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// Wrong usage.
const USAGE: u8 = 2;

/// The program, from its arguments to its exit code.
#[must_use]
pub fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let role = args.get(1).and_then(|role| role.to_str());
    let rest = args.get(2..).unwrap_or_default();
    let code = match (role, rest) {
        (Some(run::ROLE), []) => run_worker(),
        (Some(exec_stage::ROLE), rest) => exec_stage::run(rest),
        (Some(probe::ROLE), []) => probe::run(b""),
        (Some(probe::ROLE), [binding]) => probe::run(binding.as_bytes()),
        (Some(probe::TRIAL_ROLE), []) => probe::trial(),
        (Some("--version"), []) => {
            // Nobody to tell if nobody listens.
            writeln!(
                io::stdout(),
                "shellward-worker {}",
                env!("CARGO_PKG_VERSION")
            )
            .ok();
            0
        }
        _ => {
            let usage = "usage: shellward-worker run|probe [BINDING]|--version\n\
                 Started by shellward, one for each terminal; not meant to be run by hand.";
            writeln!(io::stderr(), "{usage}").ok();
            USAGE
        }
    };
    ExitCode::from(code)
}

fn run_worker() -> u8 {
    match run::run() {
        Ok(()) => 0,
        Err(error) => {
            log(&format!("{:#}", anyhow::Error::from(error)));
            1
        }
    }
}

/// One line for the supervisor's log, and one write, which a pipe takes whole or not at all. Unlike
/// `eprintln!` it does not panic when nobody reads it.
fn log(line: &str) {
    let line = format!("worker {}: {line}", std::process::id());
    let mut line = escape::shortened(line, LOG_LINE_MAX);
    line.push('\n');
    if takes_a_line(io::stderr().as_fd()) {
        io::stderr().write_all(line.as_bytes()).ok();
    }
}

/// The longest line of the log without its end, in bytes. poll(2) calls a pipe writable when it has
/// room for `PIPE_BUF` bytes, 4096.
const LOG_LINE_MAX: usize = 4000;

/// Whether a line can be written without waiting: a supervisor that was stopped, or one whose pipe
/// somebody else still holds, must not stop the terminal, too. Not `O_NONBLOCK`, which would
/// concern everybody who writes to the same terminal or file.
fn takes_a_line(fd: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::POLLOUT)];
    poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
        && fds[0]
            .revents()
            .is_some_and(|events| events.contains(PollFlags::POLLOUT))
}
