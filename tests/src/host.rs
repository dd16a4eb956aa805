//! The real `shellward serve`, in a directory of its own.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::leftovers::{self, Marks};
use crate::proc::{self, Process};
use crate::{DEADLINE, unique};

/// How long a host may take from TERM to its end, with every terminal disposed.
const STOP_LIMIT: Duration = Duration::from_secs(15);

/// The folder of the binaries under test.
pub fn binaries() -> PathBuf {
    if let Some(folder) = std::env::var_os("SHELLWARD_BIN_DIR") {
        return PathBuf::from(folder);
    }
    let executable = std::env::current_exe().expect("own path");
    // target/debug/deps/test-xyz, or target/release/bench
    for name in ["dist", "debug", "release"] {
        for folder in executable.ancestors().skip(1) {
            let candidate = folder.join(name);
            if candidate.join("shellward").is_file() && candidate.join("shellward-worker").is_file()
            {
                return candidate;
            }
        }
    }
    panic!(
        "no shellward and shellward-worker beside {}; build them or set SHELLWARD_BIN_DIR",
        executable.display()
    );
}

/// What a host is started with.
pub struct HostBuilder {
    folder: TempDir,
    binaries: PathBuf,
    flags: Vec<String>,
    environment: Vec<(String, String)>,
    listen: Vec<String>,
    start_in: Option<PathBuf>,
    nofile: Option<u64>,
    prefix: Vec<String>,
}

impl HostBuilder {
    pub fn new() -> Self {
        // Short: a socket path holds 108 bytes.
        let folder = tempfile::Builder::new()
            .prefix("sw-")
            .rand_bytes(6)
            .tempdir_in("/tmp")
            .expect("a temporary folder");
        let home = folder.path().join("home");
        fs::create_dir(&home).unwrap();
        fs::write(home.join(".bashrc"), "PS1='$ '; HISTFILE=\n").unwrap();
        fs::write(home.join(".inputrc"), "set enable-bracketed-paste off\n").unwrap();
        Self {
            folder,
            binaries: binaries(),
            flags: Vec::new(),
            environment: vec![
                ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into()),
                ("LANG".into(), "C.UTF-8".into()),
                ("SHELL".into(), "/bin/bash".into()),
                ("HOME".into(), home.display().to_string()),
                ("RUST_BACKTRACE".into(), "0".into()),
            ],
            listen: vec!["127.0.0.1:0".into()],
            start_in: None,
            nofile: None,
            prefix: Vec::new(),
        }
    }

    /// The temporary folder, to prepare files in.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn flag(mut self, flag: &str) -> Self {
        self.flags.push(flag.into());
        self
    }

    pub fn option(self, flag: &str, value: impl AsRef<str>) -> Self {
        self.flag(flag).flag(value.as_ref())
    }

    /// Uses dash, which shows no escape sequences and edits no lines.
    pub fn dash(self) -> Self {
        self.option("--shell", "/bin/dash")
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.retain(|(have, _)| have != name);
        self.environment.push((name.into(), value.into()));
        self
    }

    pub fn without_env(mut self, name: &str) -> Self {
        self.environment.retain(|(have, _)| have != name);
        self
    }

    pub fn listen(mut self, address: &str) -> Self {
        self.listen = vec![address.into()];
        self
    }

    pub fn also_listen(mut self, address: &str) -> Self {
        self.listen.push(address.into());
        self
    }

    pub fn start_in(mut self, folder: &Path) -> Self {
        self.start_in = Some(folder.to_owned());
        self
    }

    /// Limits the host's open files (`prlimit` does it, before the host starts).
    pub fn open_files(mut self, limit: u64) -> Self {
        self.nofile = Some(limit);
        self
    }

    /// Words to run the host with, such as `unshare …`.
    pub fn run_with(mut self, words: &[&str]) -> Self {
        self.prefix = words.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    pub fn runtime_dir(&self) -> PathBuf {
        self.folder.path().join("r")
    }

    fn command(&self) -> Command {
        let mut words = self.prefix.clone();
        if let Some(limit) = self.nofile {
            words.extend(["prlimit".into(), format!("--nofile={limit}"), "--".into()]);
        }
        words.push(self.binaries.join("shellward").display().to_string());
        words.push("serve".into());
        for address in &self.listen {
            words.extend(["--listen".into(), address.clone()]);
        }
        words.extend([
            "--runtime-dir".into(),
            self.runtime_dir().display().to_string(),
            "--state-dir".into(),
            self.folder.path().join("s").display().to_string(),
            "--ready-json".into(),
        ]);
        words.extend(self.flags.iter().cloned());
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .env_clear()
            .envs(self.environment.iter().cloned())
            .current_dir(
                self.start_in
                    .clone()
                    .unwrap_or_else(|| self.folder.path().to_owned()),
            )
            .stdin(Stdio::null());
        command
    }

    /// Runs it to its end; for starts that must be refused. Kills it after the deadline.
    pub fn run_to_end(self) -> Output {
        let mut child = self
            .command()
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("shellward");
        let end = Instant::now() + DEADLINE;
        let mut killed = false;
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > end {
                killed = true;
                child.kill().unwrap();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let output = child.wait_with_output().unwrap();
        assert!(
            !killed,
            "it served instead of refusing to start: {}",
            String::from_utf8_lossy(&output.stdout)
        );
        output
    }

    #[track_caller]
    pub fn start(self) -> Host {
        let marks = Marks {
            variable: format!("MARK_{}=1", unique().replace('-', "_")),
            directory: self.runtime_dir().display().to_string(),
        };
        let log = self.folder.path().join("log");
        let (name, value) = marks.variable.split_once('=').unwrap();
        let mut child = self
            .command()
            .env(name, value)
            .stdout(Stdio::piped())
            .stderr(append(&log))
            .spawn()
            .expect("shellward");
        let stdout = child.stdout.take().unwrap();
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
        let mut host = Host {
            child,
            binaries: self.binaries.clone(),
            runtime_dir: self.runtime_dir(),
            folder: Some(self.folder),
            url: String::new(),
            socket: String::new(),
            token: None,
            pid: 0,
            ready: Value::Null,
            log,
            marks,
            ended: false,
        };
        let Some(ready) = ready else {
            panic!("no ready line within {DEADLINE:?}; log:\n{}", host.log());
        };
        host.url = ready["url"].as_str().expect("url").to_owned();
        host.socket = ready["socket"].as_str().expect("socket").to_owned();
        // The host's own number may be of another namespace; what counts here is ours.
        let started = host.child.id().cast_signed();
        host.pid = std::iter::once(Process::read(started))
            .flatten()
            .chain(proc::descendants(started))
            .find(|process| process.name == "shellward")
            .expect("the host's process")
            .pid;
        host.token = ready["tokenFile"].as_str().map(|file| {
            fs::read_to_string(file)
                .expect("token file")
                .trim()
                .to_owned()
        });
        host.ready = ready;
        host
    }
}

impl Default for HostBuilder {
    fn default() -> Self {
        Self::new()
    }
}

fn append(path: &Path) -> File {
    File::options()
        .create(true)
        .append(true)
        .open(path)
        .expect("log file")
}

/// A running host. Dropping it stops it and checks that nothing is left.
pub struct Host {
    child: Child,
    binaries: PathBuf,
    runtime_dir: PathBuf,
    folder: Option<TempDir>,
    /// `ws://127.0.0.1:PORT`
    pub url: String,
    /// Path of the unix socket.
    pub socket: String,
    /// The connection token, where there is one.
    pub token: Option<String>,
    pub pid: i32,
    /// The ready line.
    pub ready: Value,
    log: PathBuf,
    marks: Marks,
    ended: bool,
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

    /// Every worker process of this host.
    pub fn workers(&self) -> Vec<Process> {
        proc::descendants(self.pid)
            .into_iter()
            .filter(|process| process.parent == self.pid && process.is_worker())
            .collect()
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
        let mut family = proc::descendants(self.pid);
        if self.child.try_wait().unwrap().is_none() {
            let zombies =
                leftovers::settle(Duration::from_secs(2), || leftovers::zombies(self.pid));
            if !zombies.is_empty() {
                faults.push(format!("zombies: {zombies:?}"));
            }
            family = proc::descendants(self.pid);
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
            leftovers::processes(&self.marks, &family)
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
