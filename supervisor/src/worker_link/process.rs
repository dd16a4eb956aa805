//! Worker processes: starting them, knowing them, noticing that one was stopped.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use shellward_protocol::{AttachToken, Boot, Data};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::sync::Notify;

use super::adopted::Adopted;
use super::leftovers::token_file;
use crate::core::TerminalKey;
use crate::faults;
use crate::limits::WORKER_LOG_LINE_BYTES;

/// How the rest of the host reaches a worker process without owning it.
///
/// Signals are sent by the owner of the [`Child`] alone, which knows whether the number is still
/// its child's (field case S-06).
#[derive(Debug)]
pub struct Control {
    /// Process id.
    pub pid: u32,
    /// Its terminal's id, for the log.
    pub terminal: String,
    /// Wakes the owner to kill the worker.
    pub kill: Notify,
    /// The signal that stopped it, or 0.
    stopped_by: AtomicI32,
    /// How often it was noticed to be stopped.
    stops: AtomicU32,
}

impl Control {
    pub(super) fn new(pid: u32, terminal: &str) -> Arc<Self> {
        Arc::new(Self {
            pid,
            terminal: terminal.to_owned(),
            kill: Notify::new(),
            stopped_by: AtomicI32::new(0),
            stops: AtomicU32::new(0),
        })
    }

    /// The signal that stopped the worker for good, if one did.
    #[must_use]
    pub fn stopped_by(&self) -> Option<i32> {
        match self.stopped_by.load(Ordering::Relaxed) {
            0 => None,
            signal => Some(signal),
        }
    }

    /// Whether it is stopped at this moment.
    fn is_stopped(&self) -> bool {
        super::stat::Stat::of(self.pid).is_some_and(|stat| stat.is_stopped())
    }
}

/// A worker was stopped.
#[derive(Debug, Clone, Copy)]
pub struct Stop {
    /// By this signal.
    signal: i32,
    /// For so many times.
    number: u32,
}

/// All worker processes, and the lock under which they are made.
#[derive(Debug)]
pub struct Workers {
    known: Mutex<Known>,
    /// Children that this process had before it started any worker: a script may have executed us
    /// in its place. They are none of our business.
    inherited: Vec<u32>,
}

#[derive(Debug, Default)]
struct Known {
    workers: HashMap<TerminalKey, Arc<Control>>,
    probes: Vec<u32>,
}

impl Default for Workers {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            inherited: super::orphans::children().collect(),
        }
    }
}

impl Workers {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `look` with a test for process ids, while no worker is being made: a child of ours
    /// that the test does not know is an orphan of a dead worker.
    pub(super) fn with_known<T>(&self, look: impl FnOnce(&dyn Fn(u32) -> bool) -> T) -> T {
        let known = self.lock();
        look(&|pid| {
            self.inherited.contains(&pid)
                || known.probes.contains(&pid)
                || known.workers.values().any(|control| control.pid == pid)
        })
    }

    /// Forks and executes a probe, known from its first moment.
    ///
    /// # Errors
    /// What the system says.
    pub fn spawn_probe(&self, command: &mut Command) -> io::Result<Child> {
        let mut known = self.lock();
        let child = command.spawn()?;
        known.probes.extend(child.id());
        Ok(child)
    }

    /// Forgets a probe that was waited for, and ends what it left behind.
    pub async fn probe_ended(&self, pid: u32) {
        self.lock().probes.retain(|known| *known != pid);
        super::orphans::sweep(self).await;
    }

    /// Ends and reaps, at the end of the host, probes that nobody waits for any more and whatever
    /// they or dead workers left behind.
    pub async fn sweep_all(&self) {
        self.lock().probes.clear();
        super::orphans::sweep(self).await;
    }

    /// Knows a worker that a supervisor before us started.
    pub(super) fn adopt(&self, key: TerminalKey, control: Arc<Control>) {
        self.lock().workers.insert(key, control);
    }

    /// Forgets a worker whose process was waited for.
    pub(super) fn forget(&self, key: TerminalKey) {
        self.lock().workers.remove(&key);
    }

    /// What reaches the worker that a terminal has now, if it has one.
    #[must_use]
    pub fn control(&self, key: TerminalKey) -> Option<Arc<Control>> {
        self.lock().workers.get(&key).cloned()
    }

    /// Workers that were stopped (SIGSTOP) since the last call. Called for every SIGCHLD.
    #[must_use]
    pub fn newly_stopped(&self) -> Vec<(Arc<Control>, Stop)> {
        let known: Vec<Arc<Control>> = self.lock().workers.values().cloned().collect();
        known
            .into_iter()
            .filter_map(|control| {
                let pid = Pid::from_raw(i32::try_from(control.pid).ok()?);
                let flags = WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG;
                match waitid(Id::Pid(pid), flags) {
                    Ok(WaitStatus::Stopped(_, signal)) => {
                        let stop = Stop {
                            signal: signal as i32,
                            number: control.stops.fetch_add(1, Ordering::Relaxed) + 1,
                        };
                        Some((control, stop))
                    }
                    _ => None,
                }
            })
            .collect()
    }

    /// Has a worker killed that has been stopped since, noting the signal as the cause. One that
    /// went on and was stopped again has its time from then.
    pub fn end_if_stopped(control: &Control, stop: Stop) {
        if control.is_stopped() && control.stops.load(Ordering::Relaxed) == stop.number {
            control.stopped_by.store(stop.signal, Ordering::Relaxed);
            control.kill.notify_one();
        }
    }
}

/// A worker's process, not waited for.
#[derive(Debug)]
pub(super) enum Process {
    /// A child of ours.
    Child(Child),
    /// A supervisor before us started it.
    Adopted(Adopted),
}

/// A worker that has not ended.
#[derive(Debug)]
pub(super) struct Worker {
    pub process: Process,
    pub control: Arc<Control>,
    pub socket: PathBuf,
    pub token: AttachToken,
}

/// How a worker that was just started is told what it is, and says that it listens.
#[derive(Debug)]
pub(super) struct Pipes {
    stdin: Option<ChildStdin>,
    stdout: Option<ChildStdout>,
}

impl Worker {
    /// Forks and executes a worker. Its environment is empty and its command line one word, so
    /// that neither can hold a secret. The token is kept in a file beside its socket, for the next
    /// supervisor.
    pub fn spawn(
        workers: &Workers,
        key: TerminalKey,
        id: &str,
        binary: &Path,
        sockets: &Path,
    ) -> io::Result<(Self, Pipes)> {
        let socket = sockets.join(format!("{id}.sock"));
        let mut secret = [0; AttachToken::LEN];
        getrandom::fill(&mut secret).map_err(io::Error::other)?;
        faults::check("supervisor.spawn")?;
        let token = AttachToken::new(secret);
        token_file::write(&socket, &token)?;
        let mut known = workers.lock();
        let spawned = Command::new(binary)
            .arg("run")
            .env_clear()
            .envs(faults::passed_on())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = match spawned {
            Ok(child) => child,
            Err(error) => {
                drop(known);
                super::leftovers::remove(&socket);
                return Err(error);
            }
        };
        let control = Control::new(child.id().unwrap_or_default(), id);
        known.workers.insert(key, Arc::clone(&control));
        drop(known);
        if let Some(stderr) = child.stderr.take() {
            tokio::spawn(log_lines(id.to_owned(), stderr));
        }
        let pipes = Pipes {
            stdin: child.stdin.take(),
            stdout: child.stdout.take(),
        };
        let worker = Self {
            process: Process::Child(child),
            control,
            socket,
            token,
        };
        Ok((worker, pipes))
    }

    /// Tells the worker where to listen and waits until it does.
    pub async fn boot(&self, pipes: Pipes) -> io::Result<()> {
        let mut frame = Vec::new();
        Boot {
            socket: Data::borrowed(std::os::unix::ffi::OsStrExt::as_bytes(
                self.socket.as_os_str(),
            )),
            token: self.token.clone(),
            supervisor_uid: nix::unistd::geteuid().as_raw(),
        }
        .encode(&mut frame)
        .map_err(io::Error::other)?;
        // Dropping the pipe is the end of file that the worker waits for.
        if let Some(mut pipe) = pipes.stdin {
            pipe.write_all(&frame).await?;
        }
        let mut line = String::new();
        if let Some(pipe) = pipes.stdout {
            BufReader::new(pipe.take(1024)).read_line(&mut line).await?;
        }
        match line.trim_end() {
            "ready" => Ok(()),
            "" => Err(io::Error::other("it ended before it listened")),
            other => Err(io::Error::other(other.to_owned())),
        }
    }

    /// Waits for its end; how it ended, if that can be known. Cancel safe.
    pub async fn wait(&mut self) -> Option<ExitStatus> {
        match &mut self.process {
            Process::Child(child) => child.wait().await.ok(),
            Process::Adopted(adopted) => {
                adopted.ended().await;
                None
            }
        }
    }

    /// Its shell has ended.
    pub fn shell_ended(&mut self) {
        if let Process::Adopted(adopted) = &mut self.process {
            adopted.shell_ended();
        }
    }

    /// Kills it; [`Self::wait`] follows.
    pub fn kill(&mut self) -> io::Result<()> {
        match &mut self.process {
            Process::Child(child) => child.start_kill(),
            Process::Adopted(adopted) => adopted.kill(),
        }
    }
}

/// Passes a worker's log lines on, each bounded and without control characters.
async fn log_lines(id: String, stderr: ChildStderr) {
    let mut reader = BufReader::with_capacity(WORKER_LOG_LINE_BYTES, stderr);
    loop {
        let (used, line) = match reader.fill_buf().await {
            Ok([]) | Err(_) => return,
            Ok(bytes) => {
                let end = bytes.iter().position(|byte| *byte == b'\n');
                let line = String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]);
                (
                    end.map_or(bytes.len(), |at| at + 1),
                    line.escape_debug().to_string(),
                )
            }
        };
        if !line.is_empty() {
            tracing::warn!(terminal = %id, "worker: {line}");
        }
        reader.consume(used);
    }
}
