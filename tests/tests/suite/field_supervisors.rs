//! Two supervisors, or none (field case S-36); places that are somebody else's.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use shellward_tests::{
    DEADLINE, Host, HostBuilder, Raw, Term, leftovers, needs_root, poll_for, proc,
};

/// `serve` in these directories; its standard output is a pipe.
fn serve(folder: &Path, name: &str) -> Child {
    Command::new(shellward_tests::builder::binaries().join("shellward"))
        .args([
            "serve",
            "--shell",
            "/bin/dash",
            "--listen",
            "127.0.0.1:0",
            "--runtime-dir",
        ])
        .arg(folder.join("r"))
        .arg("--state-dir")
        .arg(folder.join(name))
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("shellward")
}

/// What it says when it is ready; empty if it ends instead.
fn ready(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    line
}

fn term(child: &Child) {
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).unwrap();
}

#[test]
fn s36_of_two_started_at_the_same_instant_exactly_one_serves_fifty_times() {
    let folder = tempfile::Builder::new()
        .prefix("sw-")
        .tempdir_in("/tmp")
        .unwrap();
    for round in 0..50 {
        let mut both = [serve(folder.path(), "s1"), serve(folder.path(), "s2")];
        let lines = both.each_mut().map(ready);
        let serving = lines
            .iter()
            .filter(|line| line.contains("listening"))
            .count();
        assert_eq!(serving, 1, "{round}: {lines:?}");
        for (child, line) in both.iter_mut().zip(&lines) {
            if line.is_empty() {
                assert_eq!(child.wait().unwrap().code(), Some(1), "{round}");
                let mut words = String::new();
                child
                    .stderr
                    .as_mut()
                    .unwrap()
                    .read_to_string(&mut words)
                    .unwrap();
                assert!(
                    words.contains("another supervisor serves"),
                    "{round}: {words}"
                );
                assert!(words.contains("shellward shutdown"), "what to do: {words}");
            } else {
                // The one that serves does so, whatever the other has looked at.
                let socket = folder.path().join("r/ahp.sock");
                UnixStream::connect(&socket).unwrap_or_else(|error| panic!("{round}: {error}"));
                term(child);
                assert!(child.wait().unwrap().success(), "{round}");
                assert!(!socket.exists());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s36_a_supervisor_that_is_stopped_is_not_taken_for_dead() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("mine=$$").await;
    let (worker, shell) = host.pids(&terminal.uri);
    let files = leftovers::sockets(host.runtime_dir());
    host.signal(Signal::SIGSTOP);
    poll_for("it stands still", DEADLINE, || {
        proc::Process::read(host.pid).filter(|process| process.state == 'T')
    });
    let mut second = serve(host.folder(), "s2");
    assert_eq!(ready(&mut second), "");
    assert_eq!(second.wait().unwrap().code(), Some(1));
    // Nothing was killed or unlinked.
    assert_eq!(leftovers::sockets(host.runtime_dir()), files);
    assert!(proc::Process::read(worker).is_some());
    host.signal(Signal::SIGCONT);
    assert_eq!(
        terminal.output_of("echo $mine").await.trim(),
        shell.to_string()
    );
    host.stop();
}

/// A start that must be refused because of what is at the client socket's path; its words.
fn refused(builder: HostBuilder) -> String {
    let output = builder.run_to_end();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A host to be, with its runtime directory, and the path of its client socket.
fn with_runtime_dir() -> (HostBuilder, std::path::PathBuf) {
    let builder = Host::builder().dash();
    fs::create_dir(builder.runtime_dir()).unwrap();
    fs::set_permissions(builder.runtime_dir(), fs::Permissions::from_mode(0o700)).unwrap();
    let socket = builder.runtime_dir().join("ahp.sock");
    (builder, socket)
}

#[test]
fn s36_what_is_no_abandoned_socket_is_left_alone() {
    // Kept open in the tests' own folder, to look at them after the host's has gone.
    let elsewhere = tempfile::Builder::new()
        .prefix("sw-")
        .tempdir_in("/tmp")
        .unwrap();
    let target = elsewhere.path().join("target");
    fs::write(&target, "precious").unwrap();

    let (builder, socket) = with_runtime_dir();
    fs::create_dir(&socket).unwrap();
    assert!(refused(builder).contains("ahp.sock"));

    let (builder, socket) = with_runtime_dir();
    symlink(&target, &socket).unwrap();
    assert!(refused(builder).contains("there is something else"));
    assert_eq!(fs::read_to_string(&target).unwrap(), "precious");

    // A link to a socket that nobody listens at is no socket either.
    let stale = elsewhere.path().join("stale");
    drop(UnixListener::bind(&stale).unwrap());
    let (builder, socket) = with_runtime_dir();
    symlink(&stale, &socket).unwrap();
    assert!(refused(builder).contains("there is something else"));
    assert!(stale.exists());

    // Somebody listens; somebody does so and takes nobody any more; somebody takes datagrams.
    let (builder, socket) = with_runtime_dir();
    let _listener = UnixListener::bind(&socket).unwrap();
    assert!(refused(builder).contains("somebody listens"));

    let (builder, socket) = with_runtime_dir();
    let full = UnixListener::bind(&socket).unwrap();
    nix::sys::socket::listen(&full, nix::sys::socket::Backlog::new(1).unwrap()).unwrap();
    let _waiting = fill(&socket);
    assert!(refused(builder).contains("somebody listens"));

    let (builder, socket) = with_runtime_dir();
    let _datagrams = UnixDatagram::bind(&socket).unwrap();
    assert!(refused(builder).contains("somebody listens"));
}

/// Connects until there is no room for one more to wait.
fn fill(socket: &Path) -> Vec<std::os::fd::OwnedFd> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect};
    use std::os::fd::AsRawFd;
    let address = UnixAddr::new(socket).unwrap();
    let mut waiting = Vec::new();
    loop {
        let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
        let client =
            nix::sys::socket::socket(AddressFamily::Unix, SockType::Stream, flags, None).unwrap();
        if connect(client.as_raw_fd(), &address).is_err() {
            return waiting;
        }
        waiting.push(client);
    }
}

#[test]
fn s36_an_abandoned_socket_does_not_stop_the_next_start() {
    let (builder, socket) = with_runtime_dir();
    drop(UnixListener::bind(&socket).unwrap());
    assert!(socket.exists());
    let host = builder.start();
    assert!(host.cli(&["ps"]).status.success());
    host.stop();

    // The same after a crash, over and over.
    let mut host = Host::dash();
    for _ in 0..5 {
        host.crash();
        let found = fs::symlink_metadata(&host.socket).unwrap();
        assert!(found.file_type().is_socket());
        host.start_again();
        assert!(host.cli(&["ps"]).status.success());
    }
    host.stop();
}

#[test]
fn a_directory_that_somebody_else_has_made_is_refused_and_left_alone_needs_root() {
    if !needs_root("giving a directory away") {
        return;
    }
    // Once for the runtime directory, once for the state directory.
    for name in ["r", "s"] {
        let builder = Host::builder().dash();
        let directory = builder.folder().join(name);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("theirs"), "").unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
        chown(&directory, Some(64_199), Some(64_199)).unwrap();
        let child = builder.spawn();
        let status = wait(child);
        assert_eq!(status.code(), Some(1));
        let left: Vec<_> = fs::read_dir(&directory).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "{left:?}");
        let words = refused(builder);
        assert!(words.contains(directory.to_str().unwrap()), "{words}");
        assert!(words.contains("belongs to this user"), "{words}");
    }
}

fn wait(mut child: Child) -> std::process::ExitStatus {
    poll_for(
        "the end of a refused start",
        Duration::from_secs(10),
        || child.try_wait().unwrap(),
    )
}
