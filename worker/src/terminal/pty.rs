//! What the worker needs from a pty, whoever opens it.
//!
//! What lives here: the contract of a binding and its errors. What must not: a particular
//! binding (those are below this module), reading and writing (the terminal does that on the
//! descriptor).

pub(crate) mod portable;

use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use shellward_protocol::message::Size;

/// Why no shell runs on a pty.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PtyError {
    /// The machine has none, or none left.
    #[error("cannot open a pty")]
    Open(#[source] Cause),
    /// It opened, but could not be made ready.
    #[error("cannot set up the pty")]
    SetUp(#[source] io::Error),
    /// No process could be started on it.
    #[error("cannot start a process on the pty")]
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
