//! A pty of a native binding.
//!
//! What lives here: what the worker does itself with a pty that somebody else opened: its settings
//! and the exec stage on it. What must not: calls into the library (`crate::binding`).

use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::libc;
use nix::unistd::isatty;
use shellward_protocol::message::Size;

use super::{Cause, Program, Pty, PtyError, set_up};
use crate::binding::{Binding, Held, NativePty as Handle, Slave};
use crate::sys;

/// A pty of a library.
pub(crate) struct NativePty {
    handle: Handle,
    slave: Option<OwnedFd>,
    /// A descriptor of our own for the master.
    fd: OwnedFd,
}

impl NativePty {
    /// Loads the binding at `path` and opens a pty of this size with it.
    pub(crate) fn open(path: &Path, size: Size) -> Result<Self, PtyError> {
        let held = Held::now();
        let binding = Binding::load(path);
        held.check()?;
        let handle = binding?.open(size);
        held.check()?;
        let mut handle = handle.map_err(PtyError::Open)?;
        let fd = sys::duplicate(handle.master()).map_err(PtyError::SetUp)?;
        set_up(&fd).map_err(|errno| PtyError::SetUp(errno.into()))?;
        let slave = open_slave(&mut handle)?;
        Ok(Self {
            handle,
            slave: Some(slave),
            fd,
        })
    }
}

fn open_slave(handle: &mut Handle) -> Result<OwnedFd, PtyError> {
    let slave = match handle.slave().map_err(PtyError::Open)? {
        Slave::Open(fd) => fd,
        Slave::Named(path) => OpenOptions::new()
            .read(true)
            .write(true)
            // As the leader of a session without a terminal, the worker would get it as its own.
            .custom_flags(libc::O_NOCTTY)
            .open(path)
            .map_err(PtyError::SetUp)?
            .into(),
    };
    match isatty(&slave) {
        Ok(true) => Ok(slave),
        Ok(false) => Err(PtyError::SetUp(Errno::ENOTTY.into())),
        Err(errno) => Err(PtyError::SetUp(errno.into())),
    }
}

impl Pty for NativePty {
    fn spawn(&mut self, program: &Program) -> Result<u32, PtyError> {
        let slave = self.slave.take().ok_or(PtyError::Binding("second shell"))?;
        let again = |fd: &OwnedFd| fd.try_clone().map_err(PtyError::SetUp);
        let stdio = [again(&slave)?, again(&slave)?, slave];
        sys::spawn(program, stdio, sys::Session::OnTerminal)
            .map_err(|error| PtyError::Spawn(Cause::from(error)))
    }

    fn resize(&self, size: Size) -> io::Result<()> {
        self.handle.resize(size).map_err(io::Error::other)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
