//! The probe: does a pty work here?
//!
//! What lives here: trying it in a process whose crash is an answer too. What must not: a second
//! way of opening a pty; it takes the worker's own.

use std::ffi::OsString;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::read;
use shellward_protocol::message::{ExitStatus, Size};

use crate::exec_stage::Orders;
use crate::start::{OWN_BINARY, chain};
use crate::sys::{Reaped, reap};
use crate::terminal::pty::portable::PortablePty;
use crate::terminal::pty::{Program, Pty, PtyError};

/// The word that selects this role.
pub(crate) const ROLE: &str = "probe";

/// Exit code when ptys do not work: not available.
const NO_PTY: u8 = 3;

/// How long the whole trial may take; the supervisor waits for it before it listens.
const TRIAL_MAX: Duration = Duration::from_secs(5);

/// What the child says, if the pty carries it.
const WORD: &[u8] = b"shellward-probe";

#[derive(Debug, thiserror::Error)]
enum ProbeError {
    #[error(transparent)]
    Pty(#[from] PtyError),
    #[error("cannot read the pty: {0}")]
    Read(Errno),
    #[error("what a program wrote to the pty did not arrive")]
    Silent,
    #[error("the program on the pty did not end well")]
    BadEnd,
    #[error("cannot wait for the program on the pty: {0}")]
    Wait(#[from] io::Error),
}

/// Prints one line and gives the exit code.
pub(crate) fn run() -> u8 {
    let (line, code) = match try_pty() {
        Ok(()) => ("ok".to_owned(), 0),
        Err(error) => (format!("no pty: {}", chain(&error)), NO_PTY),
    };
    // The exit code says it too.
    writeln!(io::stdout(), "{line}").ok();
    code
}

fn try_pty() -> Result<(), ProbeError> {
    let mut pty = PortablePty::open(Size { cols: 80, rows: 24 })?;
    let orders = Orders {
        cwd: b"/".to_vec(),
        umask: 0o077,
        limits: Vec::new(),
        program: b"/bin/sh".to_vec(),
        argv: [&b"sh"[..], b"-c", b"test -t 0 && echo shellward-probe"]
            .map(<[u8]>::to_vec)
            .to_vec(),
    };
    let mut argv = vec![OsString::from(OWN_BINARY)];
    argv.extend(orders.to_args());
    let environment = [
        ("HOME", "/"),
        ("SHELL", "/bin/sh"),
        ("PATH", "/usr/bin:/bin"),
    ]
    .map(|(name, value)| (name.into(), value.into()))
    .to_vec();
    pty.spawn(&Program { argv, environment })?;

    let output = read_all(&pty)?;
    if !output.windows(WORD.len()).any(|window| window == WORD) {
        return Err(ProbeError::Silent);
    }
    // The end of the output comes a moment before the end of the process.
    let until = Instant::now() + TRIAL_MAX;
    loop {
        match reap()? {
            Reaped::Ended(_, ExitStatus::Code(0)) => return Ok(()),
            Reaped::NoneEnded if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(1));
            }
            _ => return Err(ProbeError::BadEnd),
        }
    }
}

/// Everything until the pty is closed.
fn read_all(pty: &PortablePty) -> Result<Vec<u8>, ProbeError> {
    let until = Instant::now() + TRIAL_MAX;
    let mut output = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        match read(pty.fd(), &mut buffer) {
            Ok(0) | Err(Errno::EIO) => return Ok(output),
            Ok(n) => output.extend_from_slice(buffer.get(..n).unwrap_or_default()),
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Ok(output);
                }
                let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
                let mut fds = [PollFd::new(pty.fd(), PollFlags::POLLIN)];
                match poll(&mut fds, timeout) {
                    Ok(_) | Err(Errno::EINTR) => {}
                    Err(errno) => return Err(ProbeError::Read(errno)),
                }
            }
            Err(errno) => return Err(ProbeError::Read(errno)),
        }
        // A program that prints for ever is not ours.
        if output.len() > 64 << 10 {
            return Ok(output);
        }
    }
}
