//! The real `shellward serve`, in a directory of its own.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::builder::HostBuilder;
use crate::leftovers::{self, Marks};
use crate::proc::{self, Process};
use crate::{DEADLINE, poll_for};

/// How long a host may take from TERM to its end, with every terminal disposed.
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// A running host. Dropping it stops it and checks that nothing is left.
pub struct Host {
    pub(crate) child: Child,
    /// What it was started by, to start it again.
    pub(crate) command: Command,
    /// What was below supervisors that crashed.
    pub(crate) orphans: Vec<Process>,
    pub(crate) binaries: PathBuf,
    pub(crate) runtime_dir: PathBuf,
    pub(crate) folder: Option<TempDir>,
    /// `ws://127.0.0.1:PORT`
    pub url: String,
    /// Path of the unix socket.
    pub socket: String,
    /// The connection token, where there is one.
    pub token: Option<String>,
    pub pid: i32,
    /// The ready line.
    pub ready: Value,
    pub(crate) log: PathBuf,
    pub(crate) marks: Marks,
    pub(crate) ended: bool,
}

impl Host {
    /// One with nothing special: bash, a generated token, loopback.
    #[track_caller]
    pub fn start() -> Self {
        HostBuilder::new().start()
    }

    /// One whose shell is dash.
    #[track_caller]
    pub fn dash() -> Self {
        HostBuilder::new().dash().start()
    }

    pub fn builder() -> HostBuilder {
        HostBuilder::new()
    }

    /// Takes in what a host says when it is ready, after [`HostBuilder::start`] has started it.
    #[track_caller]
    pub(crate) fn wait_ready(&mut self) {
        let started = self.child.id().cast_signed();
        let stdout = self.child.stdout.take().unwrap();
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stdout);
            let mut line = String::new();
            if reader.read_line(&mut line).is_ok() {
                let _ = sender.send(line);
            }
            // Whatever else it prints is read, so that it cannot block.
            let mut rest = Vec::new();
            let _ = reader.read_to_end(&mut rest);
        });
        let ready = receiver
            .recv_timeout(DEADLINE)
            .ok()
            .and_then(|line| serde_json::from_str::<Value>(&line).ok());
        let Some(ready) = ready else {
            panic!("no ready line within {DEADLINE:?}; log:\n{}", self.log());
        };
        self.url = ready["url"].as_str().expect("url").to_owned();
        self.socket = ready["socket"].as_str().expect("socket").to_owned();
        // The host's own number may be of another namespace; what counts here is ours.
        self.pid = std::iter::once(Process::read(started))
            .flatten()
            .chain(proc::descendants(started))
            .find(|process| process.name == "shellward")
            .expect("the host's process")
            .pid;
        self.token = ready["tokenFile"].as_str().map(|file| {
            // In a mount namespace of the host's own it may be seen from there alone.
            fs::read_to_string(file)
                .or_else(|_| fs::read_to_string(format!("/proc/{}/root{file}", self.pid)))
                .expect("token file")
                .trim()
                .to_owned()
        });
        self.ready = ready;
    }

    /// Kills the supervisor alone, as a crash does. What was below it goes on, and is looked for
    /// at the end.
    #[track_caller]
    pub fn crash(&mut self) {
        self.remember_family();
        self.signal(Signal::SIGKILL);
        self.wait_end();
    }

    /// Has everything that is below the supervisor now looked for at the end.
    pub fn remember_family(&mut self) {
        self.orphans.extend(proc::descendants(self.pid));
    }

    /// Starts a supervisor that has ended once more: the same words, the same directories.
    #[track_caller]
    pub fn start_again(&mut self) {
        self.spawn_again();
        self.wait_ready();
    }

    /// The same without waiting until it is ready: it will not live to see that.
    pub fn spawn_again(&mut self) {
        self.child = self.command.spawn().expect("shellward");
        self.pid = self.child.id().cast_signed();
    }

    pub fn folder(&self) -> &Path {
        self.folder.as_ref().expect("not stopped").path()
    }

    pub fn runtime_dir(&self) -> &Path {
        &self.runtime_dir
    }

    /// What every process of this host can be told by.
    pub fn marks(&self) -> &Marks {
        &self.marks
    }

    /// `HOST:PORT`.
    pub fn address(&self) -> &str {
        let address = self.url.strip_prefix("ws://").expect("a ws url");
        address.split('/').next().unwrap()
    }

    pub fn token(&self) -> &str {
        self.token.as_deref().expect("a token file")
    }

    /// The address a WebSocket client is given.
    pub fn url_with_token(&self) -> String {
        match &self.token {
            Some(token) => format!("ws://{}/?tkn={token}", self.address()),
            None => format!("ws://{}/", self.address()),
        }
    }

    pub fn log(&self) -> String {
        fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Runs `shellward WORDS…` against this host, found by the environment.
    pub fn cli(&self, words: &[&str]) -> Output {
        self.cli_command()
            .env("SHELLWARD_RUNTIME_DIR", &self.runtime_dir)
            .args(words)
            .output()
            .expect("shellward")
    }

    /// `shellward` with an empty environment but for PATH and HOME.
    pub fn cli_command(&self) -> Command {
        let mut command = Command::new(self.binaries.join("shellward"));
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.folder().join("home"))
            .current_dir(self.folder())
            .stdin(Stdio::null());
        command
    }

    /// `ps --json`.
    #[track_caller]
    pub fn ps(&self) -> Value {
        let output = self.cli(&["ps", "--json"]);
        assert!(
            output.status.success(),
            "ps --json failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).expect("ps --json prints JSON")
    }

    /// The entry of one terminal in `ps --json`.
    #[track_caller]
    pub fn ps_entry(&self, uri: &str) -> Value {
        let listing = self.ps();
        listing["terminals"]
            .as_array()
            .expect("terminals")
            .iter()
            .find(|entry| entry["uri"] == uri)
            .unwrap_or_else(|| panic!("{uri} is not in {listing}"))
            .clone()
    }

    /// Worker and shell of one terminal.
    #[track_caller]
    pub fn pids(&self, uri: &str) -> (i32, i32) {
        let entry = self.ps_entry(uri);
        let pid = |name: &str| {
            i32::try_from(
                entry[name]
                    .as_i64()
                    .unwrap_or_else(|| panic!("{name} in {entry}")),
            )
            .unwrap()
        };
        (pid("workerPid"), pid("shellPid"))
    }

    /// Waits until no worker process is left.
    #[track_caller]
    pub fn wait_no_workers(&self) {
        poll_for("no worker", DEADLINE, || {
            self.workers().is_empty().then_some(())
        });
    }

    /// Every worker process of this host.
    pub fn workers(&self) -> Vec<Process> {
        proc::descendants(self.pid)
            .into_iter()
            .filter(|process| process.parent == self.pid && process.is_worker())
            .collect()
    }

    /// Every worker of this host, also those of a supervisor before.
    pub fn every_worker(&self) -> Vec<Process> {
        leftovers::processes(&self.marks, &self.orphans)
            .into_iter()
            .chain(self.workers())
            .filter(Process::is_worker)
            .fold(Vec::new(), |mut all, worker| {
                if all.iter().all(|known| known.pid != worker.pid) {
                    all.push(worker);
                }
                all
            })
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid), signal).expect("the host runs");
    }

    /// Whether the supervisor still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end, which something else brings about.
    #[track_caller]
    pub fn wait_end(&mut self) -> ExitStatus {
        let end = Instant::now() + STOP_LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(
                Instant::now() < end,
                "the host did not end within {STOP_LIMIT:?}; log:\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops it with TERM and panics if anything is left of it.
    #[track_caller]
    pub fn stop(mut self) {
        let faults = self.end();
        assert!(
            faults.is_empty(),
            "{}\nlog:\n{}",
            faults.join("\n"),
            self.log()
        );
    }

    /// Ends it; every fault as a sentence.
    fn end(&mut self) -> Vec<String> {
        self.ended = true;
        let mut faults = Vec::new();
        let family = |host: &Self| {
            let mut family = proc::descendants(host.pid);
            family.extend(host.orphans.iter().cloned());
            family
        };
        let mut seen = family(self);
        if self.child.try_wait().unwrap().is_none() {
            let zombies =
                leftovers::settle(Duration::from_secs(2), || leftovers::zombies(self.pid));
            if !zombies.is_empty() {
                faults.push(format!("zombies: {zombies:?}"));
            }
            seen = family(self);
            let _ = kill(Pid::from_raw(self.pid), Signal::SIGTERM);
            let end = Instant::now() + STOP_LIMIT;
            loop {
                match self.child.try_wait().unwrap() {
                    Some(status) => {
                        if !status.success() {
                            faults.push(format!("after TERM the host ended with {status}"));
                        }
                        break;
                    }
                    None if Instant::now() > end => {
                        faults.push(format!(
                            "the host did not end within {STOP_LIMIT:?} of TERM"
                        ));
                        let _ = self.child.kill();
                        let _ = self.child.wait();
                        break;
                    }
                    None => std::thread::sleep(Duration::from_millis(5)),
                }
            }
        }
        let left = leftovers::settle(Duration::from_secs(3), || {
            leftovers::processes(&self.marks, &seen)
        });
        for process in &left {
            faults.push(format!(
                "left behind: {process:?}, {}",
                proc::command_line(process.pid)
            ));
            let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
        }
        let sockets = leftovers::sockets(&self.runtime_dir);
        if !sockets.is_empty() {
            faults.push(format!("socket files left: {sockets:?}"));
        }
        let log = self.log();
        if log.contains("panicked at") {
            faults.push("the log shows a panic".to_owned());
        }
        if let Some(token) = &self.token
            && token.len() >= 8
            && log.contains(token.as_str())
        {
            faults.push("the log shows the connection token".to_owned());
        }
        faults
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if self.ended {
            return;
        }
        let faults = self.end();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let tail = lines.len().saturating_sub(60);
            eprintln!("host's log (last lines):\n{}", lines[tail..].join("\n"));
            if !faults.is_empty() {
                eprintln!("and: {}", faults.join("\n"));
            }
        } else {
            assert!(
                faults.is_empty(),
                "{}\nlog:\n{}",
                faults.join("\n"),
                self.log()
            );
        }
    }
}
