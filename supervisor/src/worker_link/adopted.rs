//! Worker processes that are no children of ours: a supervisor before us started them.
//!
//! They are known by process descriptors (pidfd), which mean one process for ever, whatever becomes
//! of its number (field case S-06). What such a worker leaves behind when it is killed does not
//! become our child either; it is found by the session of its shell.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::unix::AsyncFd;

use super::stat::Stat;

/// Rounds of looking for what a worker left behind: the kernel takes a moment to end a process.
const ROUNDS: u32 = 20;
const ROUND_TIME: Duration = Duration::from_millis(10);

/// A process by its descriptor, which becomes readable when the process ends (pidfd_open(2)).
#[derive(Debug)]
struct Handle(AsyncFd<OwnedFd>);

impl Handle {
    fn open(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(|| io::Error::other("no process has this number"))?;
        let process = pidfd_open(pid, PidfdFlags::NONBLOCK)?;
        // Deprecated because a type could change its descriptor while it is registered; this one owns
        // one and keeps it. The replacement is unsafe code, which this program has none of.
        #[allow(deprecated)]
        let registered = AsyncFd::new(process)?;
        Ok(Self(registered))
    }

    async fn ended(&self) {
        // An error is one of the runtime, which is going away then.
        if let Ok(mut guard) = self.0.readable().await {
            guard.retain_ready();
        }
    }

    fn kill(&self) -> io::Result<()> {
        Ok(pidfd_send_signal(self.0.get_ref(), Signal::KILL)?)
    }
}

/// A worker that was taken over.
#[derive(Debug)]
pub(super) struct Adopted {
    worker: Handle,
    /// The leader of the session that the terminal's processes are in, and when it started.
    shell: Option<(u32, Stat)>,
}

impl Adopted {
    /// The process that listens at a socket. To be opened before the handshake: whoever answers
    /// that is alive, so the descriptor means it and no later owner of its number.
    pub fn open(pid: u32) -> io::Result<Self> {
        Ok(Self {
            worker: Handle::open(pid)?,
            shell: None,
        })
    }

    /// Its shell, as it says; believed if that is its child.
    pub fn has_shell(&mut self, worker: u32, shell: u32) {
        self.shell = Stat::of(shell)
            .filter(|stat| stat.parent == worker && stat.session == shell)
            .map(|stat| (shell, stat));
    }

    pub async fn ended(&self) {
        self.worker.ended().await;
    }

    pub fn kill(&self) -> io::Result<()> {
        self.worker.kill()
    }

    /// Its shell has ended; whatever it left is not told apart from strangers any more.
    pub fn shell_ended(&mut self) {
        self.shell = None;
    }

    /// Ends what a killed worker has left of its shell's session.
    ///
    /// The leader may be gone already, hung up with its terminal. But a session's number is not given
    /// to anybody else while a process is in it, and the shell was there until its worker died: so
    /// who is in the session and has started before that is one of its processes.
    pub async fn end_session(&self) {
        let (Some((leader, known)), Some(died)) = (self.shell, super::stat::now()) else {
            return;
        };
        let is_member = |stat: &Stat| {
            stat.session == leader
                && !stat.is_dead
                && (known.started..=died).contains(&stat.started)
        };
        for _ in 0..ROUNDS {
            let members: Vec<u32> = super::stat::all()
                .filter(|(_, stat)| is_member(stat))
                .map(|(pid, _)| pid)
                .collect();
            if members.is_empty() {
                return;
            }
            for pid in members {
                let Ok(handle) = Handle::open(pid) else {
                    continue;
                };
                // Looked at again now that the descriptor means one process.
                if Stat::of(pid).is_some_and(|stat| is_member(&stat))
                    && let Err(error) = handle.kill()
                {
                    tracing::debug!(pid, %error, "a leftover process had ended");
                }
            }
            tokio::time::sleep(ROUND_TIME).await;
        }
    }
}
