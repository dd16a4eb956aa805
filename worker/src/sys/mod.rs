//! The system calls that nix does not wrap. With `crate::binding`, the only unsafe code of the
//! worker.
//!
//! What lives here: one thin wrapper per call, owned types in and out. What must not: policy.

#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::unistd::Pid;
use shellward_protocol::message::{ExitStatus, Size};

use crate::terminal::pty::Program;

/// What [`reap`] found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reaped {
    /// This child ended and is gone now.
    Ended(Pid, ExitStatus),
    /// There are children, and all of them live.
    NoneEnded,
    /// There are no children.
    NoChildren,
}

/// Takes the end of any child, without waiting.
///
/// Not nix's `waitpid`: it fails on death by a real-time signal, after the child is reaped.
pub(crate) fn reap() -> io::Result<Reaped> {
    loop {
        let mut status: libc::c_int = 0;
        // SAFETY: `status` is a valid place for the result and outlives the call.
        let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) };
        if pid == 0 {
            return Ok(Reaped::NoneEnded);
        }
        if pid < 0 {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => continue,
                Some(libc::ECHILD) => return Ok(Reaped::NoChildren),
                _ => return Err(error),
            }
        }
        let ended = if libc::WIFSIGNALED(status) {
            u8::try_from(libc::WTERMSIG(status)).map(ExitStatus::Signal)
        } else {
            u8::try_from(libc::WEXITSTATUS(status)).map(ExitStatus::Code)
        };
        return Ok(Reaped::Ended(
            Pid::from_raw(pid),
            // Both macros mask to less than eight bits, so this is never used.
            ended.unwrap_or(ExitStatus::Code(u8::MAX)),
        ));
    }
}

/// A handle that keeps meaning one process, whatever becomes of its number.
#[derive(Debug)]
pub(crate) struct PidFd(OwnedFd);

impl PidFd {
    /// Opens the process that has the number now.
    pub(crate) fn open(pid: Pid) -> io::Result<Self> {
        // SAFETY: the call takes two integers and touches no memory of ours.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
        let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just gave us this descriptor, nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sends a signal to that process.
    pub(crate) fn send(&self, signal: nix::sys::signal::Signal) -> io::Result<()> {
        let (fd, signal) = (self.0.as_raw_fd(), signal as libc::c_int);
        let info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open as long as `self`; a null info is allowed.
        let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, fd, signal, info, 0) };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

/// A descriptor of our own for an open file that somebody else holds by number.
pub(crate) fn duplicate(fd: RawFd) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: it is borrowed for this statement only; the caller's owner keeps it open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    borrowed.try_clone_to_owned()
}

/// What a new process sits on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Session {
    /// Its stdin is the terminal that controls its session.
    OnTerminal,
    /// Nothing controls it.
    Bare,
}

/// Starts a program with these three descriptors as leader of a session and a process group of its
/// own. What else is open closes at its exec; it starts in a directory that is always there.
pub(crate) fn spawn(program: &Program, stdio: [OwnedFd; 3], session: Session) -> io::Result<u32> {
    let mut argv = program.argv.iter();
    let path = argv.next().ok_or(io::ErrorKind::InvalidInput)?;
    let [stdin, stdout, stderr] = stdio;
    let mut command = Command::new(path);
    command
        .args(argv)
        .env_clear()
        .envs(
            program
                .environment
                .iter()
                .map(|(name, value)| (name, value)),
        )
        .current_dir("/")
        .stdin(stdin)
        .stdout(stdout)
        .stderr(stderr);
    let between = move || {
        // SAFETY: takes nothing, touches no memory.
        if unsafe { libc::setsid() } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: takes integers only.
        if session == Session::OnTerminal && unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: between fork and exec it makes two system calls and allocates nothing.
    unsafe { command.pre_exec(between) };
    // The handle neither waits nor kills when it is dropped; the event loop reaps every child.
    Ok(command.spawn()?.id())
}

/// How many bytes wait in a pipe.
pub(crate) fn waiting(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: the descriptor is open; `count` is a valid place for the answer.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD, &raw mut count) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(usize::try_from(count).unwrap_or_default())
}

/// The size of the terminal that a descriptor is.
pub(crate) fn terminal_size(fd: BorrowedFd<'_>) -> io::Result<Size> {
    let mut size = libc::winsize {
        ws_row: 0,
        ws_col: 0,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: the descriptor is open; `size` is a valid place for the answer.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Size {
        cols: size.ws_col,
        rows: size.ws_row,
    })
}

/// What is open under a number, if anything is: inherited, or somebody else's here.
pub(crate) fn inherited(number: RawFd) -> Option<BorrowedFd<'static>> {
    // SAFETY: takes integers only.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return None;
    }
    // SAFETY: it is open; callers use it at once, before anything else runs.
    Some(unsafe { BorrowedFd::borrow_raw(number) })
}

/// Takes over a descriptor that this process inherited under a number: a duplicate above `lowest`
/// that no program inherits further. The number itself is closed.
pub(crate) fn take_inherited(number: RawFd, lowest: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: takes integers only.
    let fd = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, lowest) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: nothing in this process owns the number; it was inherited.
    unsafe { libc::close(number) };
    // SAFETY: the kernel just gave us this descriptor, nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Closes every descriptor from `first` on. Only for a process that is about to exec.
pub(crate) fn close_from(first: libc::c_uint) -> io::Result<()> {
    // SAFETY: takes integers only; the caller uses no descriptor from `first` on afterwards.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, 0) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Gives every signal its default action. Only for a process that is about to exec.
pub(crate) fn default_all_signals() {
    // Not libc's own call: that refuses the two signals it keeps to itself, and an ignored one
    // would be inherited all the same. The default action is all zeros: handler SIG_DFL, no flags,
    // no restorer, an empty mask; four words hold the kernel's structure on every 64-bit Linux.
    let default = [0_u64; 4];
    let mask_size = size_of::<u64>();
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: `default` lives through the call and is only read; no old action is asked for.
        // KILL and STOP fail, which changes nothing: nobody can ignore those.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                signal,
                default.as_ptr(),
                std::ptr::null_mut::<u64>(),
                mask_size,
            )
        };
    }
}

/// Lets memory faults kill this process. Rust's start-up catches them to tell a stack overflow
/// apart, and its handler swallows the first one that comes from outside (`kill -SEGV`).
pub(crate) fn die_of_faults() {
    for signal in [libc::SIGSEGV, libc::SIGBUS] {
        // SAFETY: the default action needs no handler, and no other thread sets one meanwhile.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// Gives memory that is free back to the system. With glibc it stays with the process otherwise,
/// up to several hundred KiB in each of hundreds of workers.
pub(crate) fn trim_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it touches free memory only, and nothing else runs: there is one thread.
    unsafe {
        libc::malloc_trim(0)
    };
}

/// Sets a resource limit by its number.
pub(crate) fn set_limit(resource: u32, soft: u64, hard: u64) -> io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: soft,
        rlim_max: hard,
    };
    // SAFETY: `limit` lives through the call and is only read; a null place for the old value is
    // allowed. prlimit, because its resource type is the same plain number with every libc.
    let result = unsafe {
        libc::syscall(
            libc::SYS_prlimit64,
            0,
            resource,
            &raw const limit,
            std::ptr::null_mut::<libc::rlimit>(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::signal::Signal;

    #[test]
    fn pidfd_of_a_process_that_is_gone_reaches_nobody() {
        let mut child = std::process::Command::new("/bin/sh")
            .args(["-c", "exit 0"])
            .spawn()
            .unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        let handle = PidFd::open(pid).unwrap();
        child.wait().unwrap();
        assert_eq!(
            handle.send(Signal::SIGTERM).unwrap_err().raw_os_error(),
            Some(libc::ESRCH)
        );
    }

    #[test]
    fn negative_descriptor_is_refused() {
        assert!(duplicate(-1).is_err());
    }

    #[test]
    fn own_limit_can_be_set_to_what_it_is() {
        let (soft, hard) =
            nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_CORE).unwrap();
        set_limit(4, soft, hard).unwrap();
        assert!(set_limit(9999, 0, 0).is_err());
    }
}
