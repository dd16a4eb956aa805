//! The built-in binding. The only file that names portable-pty.
//!
//! What lives here: opening, size, and starting the exec stage. What must not: portable-pty's
//! writer (dropping it types a line end and an end of input into the shell), its kill (signals by
//! number), its environment (it inherits the worker's), its working directory (a missing one
//! silently becomes HOME) and its wait (codes without signals). Style-anchors part 5 has the
//! measurements.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use portable_pty::{CommandBuilder, MasterPty, PtySize, SlavePty, native_pty_system};
use shellward_protocol::message::Size;

use super::{Cause, Program, Pty, PtyError, set_up};
use crate::sys;

/// A pty of portable-pty.
pub(crate) struct PortablePty {
    master: Box<dyn MasterPty + Send>,
    slave: Option<Box<dyn SlavePty + Send>>,
    /// A descriptor of our own for the master.
    fd: OwnedFd,
}

impl PortablePty {
    /// Opens a pty of this size, before any program can see another one.
    pub(crate) fn open(size: Size) -> Result<Self, PtyError> {
        let pair = native_pty_system()
            .openpty(pty_size(size))
            .map_err(|error| PtyError::Open(open_cause(&error.to_string())))?;
        let raw = pair
            .master
            .as_raw_fd()
            .ok_or(PtyError::Binding("descriptor"))?;
        let fd = sys::duplicate(raw).map_err(PtyError::SetUp)?;
        set_up(&fd).map_err(|errno| PtyError::SetUp(errno.into()))?;
        Ok(Self {
            master: pair.master,
            slave: Some(pair.slave),
            fd,
        })
    }
}

fn pty_size(size: Size) -> PtySize {
    PtySize {
        rows: size.rows,
        cols: size.cols,
        pixel_width: 0,
        pixel_height: 0,
    }
}

/// portable-pty puts the system's error into words only; the words are kept without its Rust form.
fn open_cause(words: &str) -> Cause {
    let errno = words
        .split_once("code: ")
        .and_then(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next())
        .and_then(|digits| digits.parse().ok())
        .map(Errno::from_raw);
    Cause {
        words: errno.map_or_else(|| words.to_owned(), |errno| errno.desc().to_owned()),
        errno,
    }
}

impl Pty for PortablePty {
    fn spawn(&mut self, program: &Program) -> Result<u32, PtyError> {
        let slave = self.slave.take().ok_or(PtyError::Binding("second shell"))?;
        let mut builder = CommandBuilder::from_argv(program.argv.clone());
        builder.env_clear();
        for (name, value) in &program.environment {
            builder.env(name, value);
        }
        // A directory that is always there; the exec stage goes to the right one and can say so
        // if it cannot.
        builder.cwd("/");
        let child = slave.spawn_command(builder).map_err(|error| {
            let errno = error
                .downcast_ref::<io::Error>()
                .and_then(io::Error::raw_os_error)
                .map(Errno::from_raw);
            PtyError::Spawn(Cause {
                words: error.to_string(),
                errno,
            })
        })?;
        // The handle neither waits nor kills when it is dropped; the event loop reaps every child.
        child.process_id().ok_or(PtyError::Binding("process id"))
    }

    fn resize(&self, size: Size) -> io::Result<()> {
        self.master
            .resize(pty_size(size))
            .map_err(|error| io::Error::other(error.to_string()))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::termios::{InputFlags, tcgetattr};

    #[test]
    fn errors_of_the_binding_are_said_in_words() {
        let cause = open_cause(
            "failed to openpty: Os { code: 28, kind: StorageFull, message: \"No space left on device\" }",
        );
        assert_eq!(cause.errno, Some(Errno::ENOSPC));
        assert_eq!(cause.words, "No space left on device");
        assert_eq!(open_cause("odd").words, "odd");
    }

    #[test]
    fn opened_pty_has_its_size_and_edits_characters() {
        let size = Size {
            cols: 132,
            rows: 43,
        };
        let pty = PortablePty::open(size).unwrap();
        let got = pty.master.get_size().unwrap();
        assert_eq!((got.cols, got.rows), (132, 43));
        let termios = tcgetattr(pty.fd()).unwrap();
        assert!(termios.input_flags.contains(InputFlags::IUTF8));
    }
}
