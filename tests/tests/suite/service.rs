//! Under systemd: the unit, what the service manager is told, and what a stop does (field case S-35).

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nix::sys::signal::Signal;
use shellward_tests::{DEADLINE, Host, Raw, Term};

fn scripts() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap().join("scripts/systemd")
}

/// The unit's directives, by section and name.
fn directives() -> HashMap<String, String> {
    let text = fs::read_to_string(scripts().join("shellward.service")).unwrap();
    let mut section = String::new();
    let mut found = HashMap::new();
    for line in text.lines() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            section = name.strip_suffix(']').expect("a section").to_owned();
            continue;
        }
        let (name, value) = line.split_once('=').expect("a directive");
        let twice = found.insert(format!("{section}.{name}"), value.to_owned());
        assert_eq!(twice, None, "{line}");
    }
    found
}

#[test]
fn s35_the_unit_keeps_shells_over_a_restart_and_a_crash() {
    let unit = directives();
    for (name, value) in [
        ("Type", "notify"),
        ("KillMode", "process"),
        ("Delegate", "yes"),
        ("Restart", "on-failure"),
        ("RuntimeDirectory", "shellward"),
        ("RuntimeDirectoryMode", "0700"),
        ("RuntimeDirectoryPreserve", "yes"),
        ("StateDirectory", "shellward"),
        ("StateDirectoryMode", "0700"),
        ("OOMPolicy", "continue"),
    ] {
        let found = unit.get(&format!("Service.{name}"));
        assert_eq!(found.map(String::as_str), Some(value), "{name}");
    }
    let start = &unit["Service.ExecStart"];
    for words in [
        "/shellward serve ",
        " --on-exit keep",
        " --runtime-dir %t/shellward",
        " --state-dir %S/shellward",
    ] {
        assert!(start.contains(words), "{start}");
    }
    assert!(unit["Service.ExecStop"].ends_with("shellward-stop %n %t/shellward"));
    assert!(unit["Service.ExecReload"].contains("-HUP $MAINPID"));
    // Shells inherit whatever is restricted; the README beside it says what each would do to them.
    let readme = fs::read_to_string(scripts().join("README.md")).unwrap();
    let known = [
        "Type",
        "NotifyAccess",
        "ExecStart",
        "ExecReload",
        "ExecStop",
        "KillMode",
        "OOMPolicy",
        "Delegate",
        "Restart",
        "RestartSec",
        "RestartPreventExitStatus",
        "TimeoutStopSec",
        "RuntimeDirectory",
        "RuntimeDirectoryMode",
        "RuntimeDirectoryPreserve",
        "StateDirectory",
        "StateDirectoryMode",
    ];
    for name in unit.keys().filter_map(|name| name.strip_prefix("Service.")) {
        assert!(known.contains(&name), "does {name} reach shells?");
        assert!(
            !readme.contains(&format!("`{name}=`,")),
            "{name} was to be left out"
        );
    }
    for left_out in [
        "NoNewPrivileges",
        "ProtectSystem",
        "PrivateTmp",
        "SystemCallFilter",
    ] {
        assert!(readme.contains(left_out), "{left_out}");
    }
}

/// Programs named `systemctl` and `shellward` that write down how they are called, one with this
/// list of jobs, the other with this exit code.
struct Fakes(tempfile::TempDir);

impl Fakes {
    fn new(jobs: &str, shutdown: i32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let calls = folder.path().join("calls");
        let write = |name: &str, script: String| {
            let path = folder.path().join(name);
            fs::write(
                &path,
                format!(
                    "#!/bin/sh\necho {name} \"$@\" >>{}\n{script}\n",
                    calls.display()
                ),
            )
            .unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        write(
            "systemctl",
            format!("case $* in *list-jobs*) {jobs} ;; esac"),
        );
        write("shellward", format!("exit {shutdown}"));
        Self(folder)
    }

    /// Runs `shellward-stop` as systemd would.
    fn stop(&self, manager: Option<&str>) -> (Output, Vec<String>) {
        let mut command = Command::new(scripts().join("shellward-stop"));
        command
            .args(["shellward.service", "/run/shellward"])
            .env_clear()
            .env("SHELLWARD", self.0.path().join("shellward"))
            .env("PATH", format!("{}:/usr/bin:/bin", self.0.path().display()));
        if let Some(pid) = manager {
            command.env("MANAGERPID", pid);
        }
        let output = command.output().unwrap();
        let calls = fs::read_to_string(self.0.path().join("calls")).unwrap();
        (output, calls.lines().map(str::to_owned).collect())
    }
}

const LIST: &str = "systemctl list-jobs --plain --no-legend --full shellward.service";
const SHUTDOWN: &str = "shellward shutdown --runtime-dir /run/shellward";
const KILLED: [&str; 3] = [
    LIST,
    SHUTDOWN,
    "systemctl kill --signal=KILL shellward.service",
];

#[test]
fn s35_a_stop_ends_all_and_a_restart_nothing() {
    for (jobs, shutdown, expected) in [
        // As systemctl prints them, with and without others beside.
        (
            "echo '123 shellward.service stop running'",
            0,
            &[LIST, SHUTDOWN][..],
        ),
        (
            "printf '7 x.service restart waiting\\n123 shellward.service stop running\\n'",
            0,
            &[LIST, SHUTDOWN],
        ),
        ("echo '123 shellward.service restart running'", 0, &[LIST]),
        ("echo '123 my-shellward.service stop running'", 0, &[LIST]),
        // It has ended by itself; nobody was asked to stop it.
        ("true", 0, &[LIST]),
        ("exit 1", 0, &[LIST]),
        // The supervisor leaves workers alone.
        ("echo '123 shellward.service stop running'", 1, &KILLED),
        // It does not answer, or is not there.
        ("echo '123 shellward.service stop running'", 3, &KILLED),
    ] {
        let (output, calls) = Fakes::new(jobs, shutdown).stop(None);
        assert!(output.status.success(), "{jobs}: {output:?}");
        assert_eq!(calls, expected, "{jobs}");
    }
}

#[test]
fn s35_a_users_own_service_manager_is_asked() {
    let fakes = Fakes::new("echo '123 shellward.service stop running'", 1);
    let (_, calls) = fakes.stop(Some("811"));
    let expected = [
        &LIST.replace("systemctl", "systemctl --user"),
        SHUTDOWN,
        "systemctl --user kill --signal=KILL shellward.service",
    ];
    assert_eq!(calls, expected);
    assert_eq!(fakes.stop(Some("1")).1[3], LIST);
}

/// The next thing the service manager is told.
fn told(manager: &UnixDatagram) -> String {
    let mut bytes = [0; 256];
    let length = manager.recv(&mut bytes).expect("a message in time");
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_manager_is_told_and_shells_know_nothing_of_it() {
    let builder = Host::builder().dash();
    let socket = builder.folder().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    manager.set_read_timeout(Some(DEADLINE)).unwrap();
    let mut host = builder
        .env("NOTIFY_SOCKET", socket.to_str().unwrap())
        .start();
    // `start` has seen the ready line; nothing was told before it, and nothing else.
    assert_eq!(told(&manager), "READY=1\n");
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let env = terminal.output_of("env").await;
    assert!(!env.contains("NOTIFY"), "{env}");
    let (worker, _) = host.pids(&terminal.uri);
    let environment = shellward_tests::proc::environment(worker);
    assert!(!environment.iter().any(|entry| entry.contains("NOTIFY")));
    host.signal(Signal::SIGTERM);
    assert_eq!(told(&manager), "STOPPING=1\n");
    assert!(host.wait_end().success());
    host.stop();
}

#[test]
fn a_service_manager_that_does_not_listen_stops_nobody() {
    let builder = Host::builder().dash();
    let nowhere = builder.folder().join("nowhere");
    let host = builder
        .env("NOTIFY_SOCKET", nowhere.to_str().unwrap())
        .start();
    assert!(host.cli(&["ps"]).status.success());
    host.stop();
}

/// READY comes when the host is ready, not when it listens: before the probe has answered, clients
/// wait.
#[test]
fn ready_is_told_after_the_probe_has_answered() {
    let builder = Host::builder().dash();
    let folder = builder.folder().to_owned();
    let gate = folder.join("gate");
    nix::unistd::mkfifo(&gate, nix::sys::stat::Mode::S_IRWXU).unwrap();
    // A worker program whose probe waits until the test opens the gate.
    let real = shellward_tests::builder::binaries().join("shellward-worker");
    let worker = folder.join("worker");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" != probe ] || read -r line <'{}'\nexec '{}' \"$@\"\n",
        gate.display(),
        real.display()
    );
    fs::write(&worker, script).unwrap();
    fs::set_permissions(&worker, fs::Permissions::from_mode(0o755)).unwrap();
    let socket = folder.join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    let builder = builder
        .option("--worker", worker.to_str().unwrap())
        .env("NOTIFY_SOCKET", socket.to_str().unwrap());
    let started = std::thread::spawn(move || builder.start());
    // Opening a FIFO to write waits for its reader: the probe runs now.
    let open = fs::OpenOptions::new().write(true).open(&gate).unwrap();
    manager.set_nonblocking(true).unwrap();
    assert!(manager.recv(&mut [0; 64]).is_err(), "it is not ready yet");
    std::io::Write::write_all(&mut &open, b"go\n").unwrap();
    drop(open);
    let host = started.join().unwrap();
    manager.set_nonblocking(false).unwrap();
    manager.set_read_timeout(Some(DEADLINE)).unwrap();
    assert_eq!(told(&manager), "READY=1\n");
    host.stop();
}
