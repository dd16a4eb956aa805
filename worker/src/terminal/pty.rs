//! What the worker needs from a pty, whoever opens it.
//!
//! What lives here: the contract of a binding and its errors. What must not: a particular
//! binding (those are below this module), reading and writing (the terminal does that on the
//! descriptor).

pub(crate) mod native;
pub(crate) mod portable;

use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::termios::{InputFlags, SetArg, tcgetattr, tcsetattr};
use shellward_protocol::message::Size;

use crate::binding::LoadError;
use native::NativePty;
use portable::PortablePty;

/// Why no shell runs on a pty, or on pipes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PtyError {
    /// The native binding cannot be used.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The machine has none, or none left.
    #[error("cannot open a pty")]
    Open(#[source] Cause),
    /// It opened, but could not be made ready.
    #[error("cannot set up the pty")]
    SetUp(#[source] io::Error),
    /// There are no descriptors left for the pipes.
    #[error("cannot make the pipes")]
    Pipes(#[source] io::Error),
    /// No process could be started on it.
    #[error("cannot start a process on the terminal")]
    Spawn(#[source] Cause),
    /// The binding broke its own contract.
    #[error("the pty binding gave no {0}")]
    Binding(&'static str),
}

/// What a binding said, and the system's error in it, if there is one.
#[derive(Debug, thiserror::Error)]
#[error("{words}")]
pub(crate) struct Cause {
    /// In words.
    pub(crate) words: String,
    /// The number of the system's error.
    pub(crate) errno: Option<Errno>,
}

impl From<io::Error> for Cause {
    fn from(error: io::Error) -> Self {
        Self {
            words: words_of(&error),
            errno: error.raw_os_error().map(Errno::from_raw),
        }
    }
}

/// An error in words, without the number that Rust puts behind the system's.
pub(crate) fn words_of(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(number) => Errno::from_raw(number).desc().to_owned(),
        None => error.to_string(),
    }
}

/// Opens a pty of this size before any program can see another one: with the native binding at
/// this path, or with the built-in one if it is empty. One that does not work is not replaced by
/// the other: that would hide what is wrong with it.
pub(crate) fn open(binding: &[u8], size: Size) -> Result<Box<dyn Pty>, PtyError> {
    if binding.is_empty() {
        return Ok(Box::new(PortablePty::open(size)?));
    }
    let path = Path::new(std::ffi::OsStr::from_bytes(binding));
    Ok(Box::new(NativePty::open(path, size)?))
}

/// Non-blocking, and with IUTF8, so that the kernel's line editing erases whole characters.
fn set_up(master: &OwnedFd) -> nix::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(master, FcntlArg::F_GETFL)?);
    fcntl(master, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    let mut termios = tcgetattr(master)?;
    termios.input_flags.insert(InputFlags::IUTF8);
    tcsetattr(master, SetArg::TCSANOW, &termios)
}

/// A program to start on a pty, with exactly this environment.
#[derive(Debug)]
pub(crate) struct Program {
    /// Absolute path and arguments; the path is the first argument too.
    pub(crate) argv: Vec<OsString>,
    /// Its whole environment. Holds HOME and SHELL, so that no binding looks for them itself.
    pub(crate) environment: Vec<(OsString, OsString)>,
}

/// The side of a pty that the worker holds.
pub(crate) trait Pty {
    /// Starts the one program of this pty as leader of a session it controls, and lets go of the
    /// other side: as long as anybody holds that, the end of the output never comes.
    fn spawn(&mut self, program: &Program) -> Result<u32, PtyError>;

    /// Changes the size; the kernel tells the foreground processes.
    fn resize(&self, size: Size) -> io::Result<()>;

    /// Where to read and write; non-blocking.
    fn fd(&self) -> BorrowedFd<'_>;
}
