//! The probe: does a pty work here, and the binding that opens it?
//!
//! What lives here: trying it in a process whose crash is an answer too. What must not: a second
//! way of opening a pty; it takes the worker's own.
//!
//! `shellward-worker probe [BINDING]`, with the report pipe as descriptor 3. Started by hand,
//! without that pipe, it prints the answer. The exit code is 0 if ptys work, else 3.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::sys::stat::{SFlag, fstat};
use nix::unistd::{Pid, alarm, isatty, read, setsid, write};
use shellward_protocol::limits::REASON_MAX;
use shellward_protocol::message::{ExitStatus, ProbeReport, Size, Trouble};

use crate::binding::LoadError;
use crate::escape::shortened;
use crate::exec_stage::Orders;
use crate::start::{OWN_BINARY, chain};
use crate::sys::{self, PidFd, Reaped, reap};
use crate::terminal::pty::{self, Program, Pty, PtyError};
use crate::trust::Distrust;

/// The word that selects this role.
pub(crate) const ROLE: &str = "probe";

/// The word that selects the role of the program on the pty; private to this binary.
pub(crate) const TRIAL_ROLE: &str = "probe-trial";

/// Exit code when ptys do not work: not available.
const NO_PTY: u8 = 3;

/// Where the report goes.
const REPORT: RawFd = 3;

/// Where it is kept meanwhile, out of the way of a binding that closes what it knows.
const REPORT_KEPT: RawFd = 200;

/// How long the trial may take. The supervisor gives a probe 3 s, and the words say more than a
/// deadline.
const TRIAL_MAX: Duration = Duration::from_secs(2);

/// When the kernel ends a probe whose supervisor is gone, in seconds. Well after the supervisor's
/// time: a binding that hangs must not look like one that was killed.
const ALARM: u32 = 6;

/// What a probe may use: the kernel's number of the resource, soft and hard limit.
const LIMITS: [(u32, u64, u64); 5] = [
    // Seconds on the processor, while a binding runs in circles; as the alarm.
    (0, 4, 5),
    // A file it writes, by mistake.
    (1, 1 << 20, 1 << 20),
    // Memory.
    (2, 512 << 20, 512 << 20),
    // No core files.
    (4, 0, 0),
    // Descriptors; more than REPORT_KEPT.
    (7, 256, 256),
];

/// The size a pty is opened with, and the one it is changed to: none that is a default anywhere.
const FIRST: Size = Size { cols: 83, rows: 29 };
const SECOND: Size = Size { cols: 91, rows: 31 };

/// What the program on the pty says before its size, is told, and ends with.
const WORD: &str = "shellward-probe ";
const LINE: &str = "go\n";
const CODE: u8 = 23;

/// More output than this is not the program's.
const OUTPUT_MAX: usize = 64 << 10;

#[derive(Debug, thiserror::Error)]
enum ProbeError {
    #[error(transparent)]
    Pty(#[from] PtyError),
    #[error("cannot change the size of the pty")]
    Resize(#[source] io::Error),
    #[error("cannot write to the pty: {}", .0.desc())]
    Write(Errno),
    #[error("cannot read the pty: {}", .0.desc())]
    Read(Errno),
    #[error("the pty has a size of {got} where {wanted} was set")]
    Size { got: String, wanted: String },
    #[error("what a program wrote to the pty did not arrive")]
    Silent,
    #[error("the program on the pty did not end well ({0})")]
    BadEnd(String),
    #[error("cannot wait for the program on the pty")]
    Wait(#[source] io::Error),
}

impl ProbeError {
    fn to_report(&self) -> ProbeReport {
        let trouble = |errno: Option<i32>, words: String| Trouble {
            errno,
            words: shortened(words, REASON_MAX),
        };
        let number = |errno: &Option<Errno>| errno.map(|errno| errno as i32);
        let words = || chain(self);
        match self {
            Self::Pty(PtyError::Load(error)) => match error {
                LoadError::Refused(distrust) => {
                    let errno = match distrust {
                        Distrust::Unreadable { source, .. } => source.raw_os_error(),
                        _ => None,
                    };
                    ProbeReport::Refused(trouble(errno, distrust.to_string()))
                }
                LoadError::Missing { words, errno } => {
                    ProbeReport::BindingMissing(trouble(*errno, words.clone()))
                }
                LoadError::Damage(_) => ProbeReport::BindingAbi(trouble(None, words())),
                LoadError::Abi { path, what } => {
                    ProbeReport::BindingAbi(trouble(None, format!("{path} {what}")))
                }
            },
            Self::Pty(PtyError::Open(cause)) => {
                ProbeReport::NoPty(trouble(number(&cause.errno), words()))
            }
            Self::Pty(PtyError::SetUp(error)) | Self::Resize(error) => {
                ProbeReport::NoPty(trouble(error.raw_os_error(), words()))
            }
            Self::Pty(PtyError::Spawn(cause)) => {
                ProbeReport::Refused(trouble(number(&cause.errno), words()))
            }
            Self::Pty(PtyError::Pipes(error)) | Self::Wait(error) => {
                ProbeReport::Refused(trouble(error.raw_os_error(), words()))
            }
            Self::Read(errno) | Self::Write(errno) => {
                ProbeReport::NoPty(trouble(Some(*errno as i32), words()))
            }
            Self::Pty(PtyError::Binding(_)) | Self::Size { .. } | Self::Silent => {
                ProbeReport::NoPty(trouble(None, words()))
            }
            Self::BadEnd(_) => ProbeReport::NoPty(trouble(None, words())),
        }
    }
}

/// Tries the binding at this path, or the built-in one if it is empty, and gives the exit code.
pub(crate) fn run(binding: &[u8]) -> u8 {
    sys::die_of_faults();
    // Before any code that is not ours runs.
    let pipe = report_pipe();
    confine();
    let report = match try_pty(binding) {
        Ok(()) => ProbeReport::Works,
        Err(error) => error.to_report(),
    };
    tell(&report, pipe);
    if report == ProbeReport::Works {
        0
    } else {
        NO_PTY
    }
}

/// The pipe that the supervisor reads. By hand there is none, or the number is something else's.
fn report_pipe() -> Option<OwnedFd> {
    let pipe = sys::inherited(REPORT)?;
    let is_pipe = fstat(pipe).is_ok_and(|stat| {
        SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) == SFlag::S_IFIFO
    });
    let is_for_writing = fcntl(pipe, FcntlArg::F_GETFL)
        .is_ok_and(|flags| OFlag::from_bits_retain(flags) & OFlag::O_ACCMODE == OFlag::O_WRONLY);
    if !is_pipe || !is_for_writing {
        return None;
    }
    sys::take_inherited(REPORT, REPORT_KEPT).ok()
}

/// A session and a process group of its own, as a worker has it, and little to do harm with. What
/// cannot be set is stricter already.
fn confine() {
    setsid().ok();
    // No core file through a pipe either, which no limit stops.
    prctl::set_dumpable(false).ok();
    for (resource, soft, hard) in LIMITS {
        sys::set_limit(resource, soft, hard).ok();
    }
    alarm::set(ALARM);
}

fn tell(report: &ProbeReport, pipe: Option<OwnedFd>) {
    let Some(pipe) = pipe else {
        let words = match (report, report.trouble()) {
            (_, None) => "ok".to_owned(),
            (ProbeReport::NoPty(_), Some(trouble)) => format!("no pty: {}", trouble.words),
            (ProbeReport::BindingMissing(_), Some(trouble)) => {
                format!("no binding: {}", trouble.words)
            }
            (ProbeReport::BindingAbi(_), Some(trouble)) => {
                format!("not our binding: {}", trouble.words)
            }
            (_, Some(trouble)) => format!("refused: {}", trouble.words),
        };
        // The exit code says it too.
        writeln!(io::stdout(), "{words}").ok();
        return;
    };
    let mut frame = Vec::new();
    if report.encode(&mut frame).is_ok() {
        // If nobody reads it, nobody asks.
        File::from(pipe).write_all(&frame).ok();
    }
}

fn try_pty(binding: &[u8]) -> Result<(), ProbeError> {
    let until = Instant::now() + TRIAL_MAX;
    let mut pty = pty::open(binding, FIRST)?;
    check_size(terminal_size(pty.fd())?, FIRST)?;
    pty.resize(SECOND).map_err(ProbeError::Resize)?;

    let pid = pty.spawn(&program())?;
    let pid = Pid::from_raw(i32::try_from(pid).unwrap_or(i32::MAX));
    let outcome = watch(pty.as_ref(), pid, until);
    // Ours until it is waited for, so the number still is its. It would see the pty close anyway,
    // if the pty is one.
    if outcome.is_err()
        && let Ok(child) = PidFd::open(pid)
    {
        child.send(Signal::SIGKILL).ok();
    }
    outcome
}

fn terminal_size(fd: BorrowedFd<'_>) -> Result<Size, ProbeError> {
    sys::terminal_size(fd).map_err(|error| ProbeError::Pty(PtyError::SetUp(error)))
}

fn check_size(got: Size, wanted: Size) -> Result<(), ProbeError> {
    if got == wanted {
        return Ok(());
    }
    Err(ProbeError::Size {
        got: show(got),
        wanted: show(wanted),
    })
}

fn show(size: Size) -> String {
    format!("{}x{}", size.cols, size.rows)
}

/// The trial, started the way every shell is.
fn program() -> Program {
    let orders = Orders {
        cwd: b"/".to_vec(),
        umask: 0o077,
        limits: Vec::new(),
        program: OWN_BINARY.as_bytes().to_vec(),
        argv: vec![b"shellward-worker".to_vec(), TRIAL_ROLE.as_bytes().to_vec()],
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
    Program { argv, environment }
}

fn watch(pty: &dyn Pty, pid: Pid, until: Instant) -> Result<(), ProbeError> {
    match write(pty.fd(), LINE.as_bytes()) {
        Ok(n) if n == LINE.len() => {}
        Ok(_) => return Err(ProbeError::Write(Errno::EAGAIN)),
        Err(errno) => return Err(ProbeError::Write(errno)),
    }
    let output = read_all(pty, until)?;
    let (_, rest) = output.split_once(WORD).ok_or(ProbeError::Silent)?;
    let got = rest.split(['\r', '\n']).next().unwrap_or_default();
    if got != show(SECOND) {
        return Err(ProbeError::Size {
            got: got.chars().take(20).collect(),
            wanted: show(SECOND),
        });
    }
    // The end of the output comes a moment before the end of the process.
    loop {
        match reap().map_err(ProbeError::Wait)? {
            Reaped::Ended(ended, ExitStatus::Code(CODE)) if ended == pid => return Ok(()),
            Reaped::Ended(ended, status) if ended == pid => {
                return Err(ProbeError::BadEnd(match status {
                    ExitStatus::Code(code) => format!("exit code {code}"),
                    ExitStatus::Signal(signal) => format!("signal {signal}"),
                }));
            }
            // A child that a binding has started.
            Reaped::Ended(..) => {}
            Reaped::NoneEnded if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Reaped::NoneEnded => return Err(ProbeError::BadEnd("it goes on".to_owned())),
            Reaped::NoChildren => return Err(ProbeError::BadEnd("it is gone".to_owned())),
        }
    }
}

/// Everything until the pty is closed, or until it is too much or too late.
fn read_all(pty: &dyn Pty, until: Instant) -> Result<String, ProbeError> {
    let mut output = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        match read(pty.fd(), &mut buffer) {
            Ok(0) | Err(Errno::EIO) => break,
            Ok(n) => output.extend_from_slice(buffer.get(..n).unwrap_or_default()),
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => {
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    break;
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
        if output.len() > OUTPUT_MAX {
            break;
        }
    }
    Ok(output.iter().map(|byte| char::from(*byte)).collect())
}

/// The program on the pty: says the size it sees, and ends well if it is told to.
pub(crate) fn trial() -> u8 {
    let stdin = io::stdin();
    if !isatty(stdin.as_fd()).unwrap_or(false) {
        return 1;
    }
    let Ok(size) = sys::terminal_size(stdin.as_fd()) else {
        return 1;
    };
    if writeln!(io::stdout(), "{WORD}{}", show(size)).is_err() {
        return 1;
    }
    let mut line = String::new();
    match stdin.lock().read_line(&mut line) {
        Ok(_) if line == LINE => CODE,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::pty::Cause;

    #[test]
    fn answers_are_told_apart() {
        let report = |error: PtyError| ProbeError::from(error).to_report();
        let cause = |errno: Errno| Cause {
            words: errno.desc().to_owned(),
            errno: Some(errno),
        };
        let ProbeReport::NoPty(trouble) = report(PtyError::Open(cause(Errno::ENOSPC))) else {
            panic!("another answer");
        };
        assert_eq!(trouble.errno, Some(28));
        assert_eq!(trouble.words, "cannot open a pty: No space left on device");
        assert!(matches!(
            report(PtyError::Spawn(cause(Errno::EAGAIN))),
            ProbeReport::Refused(Trouble {
                errno: Some(11),
                ..
            })
        ));
        let words = "x".repeat(2 * REASON_MAX);
        let ProbeReport::BindingMissing(trouble) =
            report(PtyError::Load(LoadError::Missing { words, errno: None }))
        else {
            panic!("another answer");
        };
        assert!(trouble.words.len() <= REASON_MAX);
    }
}
