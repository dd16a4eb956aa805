//! Worker processes that are no children of ours: a supervisor before us started them.
//!
//! They are known by process descriptors (pidfd), which mean one process for ever, whatever becomes
//! of its number (field case S-06). What such a worker leaves behind when it is killed does not
//! become our child either; it is found by the session of its shell and by a variable (`marked.rs`).

use std::io;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::io::unix::AsyncFd;

use super::marked;
use super::stat::Stat;

/// Rounds of looking for what a worker left behind: the kernel takes a moment to end a process.
const ROUNDS: u32 = 20;
const ROUND_TIME: Duration = Duration::from_millis(10);

/// A process by its descriptor, which becomes readable when the process ends (pidfd_open(2)).
#[derive(Debug)]
struct Handle(AsyncFd<OwnedFd>);

/// A descriptor of the process that has this number now.
fn open(pid: u32) -> io::Result<OwnedFd> {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or_else(|| io::Error::other("no process has this number"))?;
    Ok(pidfd_open(pid, PidfdFlags::NONBLOCK)?)
}

impl Handle {
    fn open(pid: u32) -> io::Result<Self> {
        let process = open(pid)?;
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
    /// Its parent, which its children become children of when it is gone: whoever takes in orphans.
    reaper: Option<u32>,
    /// The leader of the session that the terminal's processes are in, and when it started.
    shell: Option<(u32, Stat)>,
}

impl Adopted {
    /// The process that listens at a socket. To be opened before the handshake: whoever answers
    /// that is alive, so the descriptor means it and no later owner of its number.
    pub fn open(pid: u32) -> io::Result<Self> {
        Ok(Self {
            worker: Handle::open(pid)?,
            reaper: Stat::of(pid).map(|stat| stat.parent),
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

    /// What it has left, now that it was killed: its shell's session, and what the shell started and
    /// has left the session.
    ///
    /// The leader may be gone already, hung up with its terminal. But a session's number is not given
    /// to anybody else while a process is in it, and the shell was there until its worker died: so
    /// who is in the session and has started before that is one of its processes.
    pub fn remains(&self, id: &str) -> Remains {
        let died = super::stat::now();
        Remains {
            id: id.to_owned(),
            reaper: self.reaper,
            session: self
                .shell
                .zip(died)
                .map(|((leader, known), died)| (leader, known.started..=died)),
        }
    }
}

/// What a dead worker has left of its terminal.
#[derive(Debug)]
pub(super) struct Remains {
    /// The terminal, which its processes have in their environment.
    id: String,
    /// Who has taken them in, if that is known.
    reaper: Option<u32>,
    /// The session of its shell, and when its members have started.
    session: Option<(u32, RangeInclusive<u64>)>,
}

impl Remains {
    /// Of a worker that died while no supervisor ran: nothing but the terminal is known.
    pub fn of(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            reaper: None,
            session: None,
        }
    }

    fn has_member(&self, stat: &Stat) -> bool {
        self.session.as_ref().is_some_and(|(leader, times)| {
            stat.session == *leader && !stat.is_dead && times.contains(&stat.started)
        })
    }

    fn find(&self) -> Vec<u32> {
        let all: Vec<(u32, Stat)> = super::stat::all().collect();
        let members = all.iter().filter(|(_, stat)| self.has_member(stat));
        let mut found: Vec<u32> = members.map(|(pid, _)| *pid).collect();
        found.extend(marked::of(&self.id, self.reaper, &all));
        found
    }

    /// Looked at again, now that a descriptor means one process.
    fn has(&self, pid: u32) -> bool {
        Stat::of(pid).is_some_and(|stat| self.has_member(&stat)) || marked::is_marked(pid, &self.id)
    }

    /// Kills until nothing is found any more, for a bounded time. Beside everything else: reading all
    /// of /proc takes milliseconds.
    pub async fn end(self) {
        let ended = tokio::task::spawn_blocking(move || {
            for _ in 0..ROUNDS {
                let found = self.find();
                if found.is_empty() {
                    return;
                }
                for pid in found {
                    let Ok(process) = open(pid) else {
                        continue;
                    };
                    if self.has(pid)
                        && let Err(error) = pidfd_send_signal(&process, Signal::KILL)
                    {
                        tracing::debug!(pid, %error, "a leftover process had ended");
                    }
                }
                std::thread::sleep(ROUND_TIME);
            }
        });
        if let Err(error) = ended.await {
            tracing::warn!(%error, "what a dead worker left could not be ended");
        }
    }
}
