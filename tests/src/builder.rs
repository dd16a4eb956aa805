//! What a host is started with.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::host::Host;
use crate::leftovers::Marks;
use crate::{DEADLINE, on_pipes, unique};

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

    /// Runs the host in a mount namespace of its own, where the shell line `mounts` is run first.
    /// Needs root.
    pub fn with_mounts(self, mounts: &str) -> Self {
        let script = format!("{mounts} && exec \"$0\" \"$@\"");
        self.run_with(&["unshare", "--mount", "/bin/sh", "-c", &script])
    }

    /// Runs copies of the binaries, in the folder's `bin`.
    pub fn own_binaries(mut self) -> Self {
        let own = self.folder.path().join("bin");
        fs::create_dir(&own).unwrap();
        for name in ["shellward", "shellward-worker"] {
            fs::copy(self.binaries.join(name), own.join(name)).unwrap();
        }
        self.binaries = own;
        self
    }

    /// Runs the host as another user, with copies of the binaries that this user can reach, and
    /// with at most `processes` processes and threads if given. Needs root.
    pub fn as_user(mut self, uid: u32, processes: Option<u32>) -> Self {
        self = self.own_binaries();
        for path in [
            self.folder.path().to_owned(),
            self.folder.path().join("home"),
        ] {
            std::os::unix::fs::chown(path, Some(uid), Some(uid)).expect("root may give files away");
        }
        if let Some(limit) = processes {
            self.prefix = vec!["prlimit".into(), format!("--nproc={limit}"), "--".into()];
        }
        let id = uid.to_string();
        self.prefix.extend(
            [
                "setpriv",
                "--reuid",
                &id,
                "--regid",
                &id,
                "--clear-groups",
                "--",
            ]
            .map(str::to_owned),
        );
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
        if on_pipes() && !self.flags.iter().any(|flag| flag == "--pty") {
            words.extend(["--pty".into(), "never".into()]);
        }
        // Any suite, its ptys opened by this library: SHELLWARD_TEST_BINDING=/absolute/path.
        if let Ok(library) = std::env::var("SHELLWARD_TEST_BINDING")
            && !self.flags.iter().any(|flag| flag.starts_with("--pty"))
        {
            words.extend(["--pty-binding".into(), library]);
        }
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

    /// Starts it and does not wait for anything; for hosts that are ended before they are ready.
    pub fn spawn(&self) -> Child {
        self.command()
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("shellward")
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
        let mut command = self.command();
        command
            .env(name, value)
            .stdout(Stdio::piped())
            .stderr(append(&log));
        let child = command.spawn().expect("shellward");
        // What we started, until more is known: with 0 here, the end of a host that never was
        // would be the end of everything on the machine.
        let started = child.id().cast_signed();
        let mut host = Host {
            child,
            command,
            orphans: Vec::new(),
            binaries: self.binaries.clone(),
            runtime_dir: self.runtime_dir(),
            folder: Some(self.folder),
            url: String::new(),
            socket: String::new(),
            token: None,
            pid: started,
            ready: Value::Null,
            log,
            marks,
            ended: false,
        };
        host.wait_ready();
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
