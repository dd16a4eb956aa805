//! Frames to a worker, cut off at every byte: that connection ends, and the terminal is as it was.
//! The other direction is in `tests/tests/fault_frames.rs`.

// The lint's own exception for tests does not reach the helpers beside them.
#![allow(clippy::unwrap_used, clippy::panic)]

mod play;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use play::{PATIENCE, Worker, start};
use shellward_protocol::message::{ExitStatus, Input, Size, Terminate};
use shellward_protocol::{AttachToken, Boot, Data, Hello, Role, ToWorker};

/// Says this and goes away, and waits until the worker has noticed.
fn say(mut stream: UnixStream, bytes: &[u8]) {
    stream.write_all(bytes).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A reset is an end as well.
    stream.read_to_end(&mut Vec::new()).ok();
}

fn bytes_of(message: &ToWorker<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_hello_cut_off_at_any_byte_disturbs_nobody() {
    let worker = Worker::spawn();
    let mut link = worker.run("cat");
    let mut hello = Vec::new();
    Hello {
        oldest: 1,
        newest: 1,
        role: Role::Supervisor,
        pid: std::process::id(),
        epoch: 9,
        token: worker.token.clone(),
    }
    .encode(&mut hello)
    .unwrap();
    for cut in 0..hello.len() {
        say(worker.connect(), &hello[..cut]);
    }
    // Nobody has taken over.
    link.type_in(b"still here\n");
    link.until_output("still here\r\nstill here\r\n");
}

#[test]
fn a_start_cut_off_at_any_byte_starts_nothing() {
    let bytes = bytes_of(&ToWorker::Start(Box::new(start("printf begun; read x"))));
    for cut in 0..bytes.len() {
        let mut worker = Worker::spawn();
        say(worker.attach(1).stream, &bytes[..cut]);
        // It has nothing to keep, so it leaves, and nothing was started that could stay behind.
        let status = worker.wait(PATIENCE);
        assert!(status.success(), "cut at {cut}: {status}");
    }
}

#[test]
fn a_message_cut_off_at_any_byte_changes_nothing() {
    let worker = Worker::spawn();
    let mut link = worker.run("stty -echo; printf ready; read x; stty size; printf \"<$x>\"");
    link.until_output("ready");
    drop(link);
    for message in [
        ToWorker::Input(Input {
            seq: 1,
            data: Data::borrowed(b"never\n"),
        }),
        ToWorker::Resize(Size {
            cols: 300,
            rows: 200,
        }),
        ToWorker::Terminate(Terminate { grace_ms: 70_000 }),
    ] {
        let bytes = bytes_of(&message);
        for cut in 0..bytes.len() {
            say(worker.attach(1).stream, &bytes[..cut]);
        }
    }
    let mut link = worker.attach(1);
    link.type_in(b"once\n");
    assert_eq!(link.until_exit(), ExitStatus::Code(0));
    assert!(
        link.output.ends_with("24 80\r\n<once>"),
        "{:?}",
        link.output
    );
}

#[test]
fn a_boot_frame_cut_off_at_any_byte_starts_no_worker() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("s");
    let mut boot = Vec::new();
    Boot {
        socket: Data::borrowed(socket.as_os_str().as_bytes()),
        token: AttachToken::new([42; AttachToken::LEN]),
        supervisor_uid: nix::unistd::getuid().as_raw(),
    }
    .encode(&mut boot)
    .unwrap();
    let children: Vec<_> = (0..boot.len())
        .map(|cut| {
            let mut child = Command::new(env!("CARGO_BIN_EXE_shellward-worker"))
                .arg("run")
                .env_clear()
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            child.stdin.take().unwrap().write_all(&boot[..cut]).unwrap();
            child
        })
        .collect();
    for (cut, child) in children.into_iter().enumerate() {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{cut}");
        let words = String::from_utf8_lossy(&output.stdout);
        assert!(words.starts_with("error: "), "{cut}: {words}");
    }
    assert!(!socket.exists());
}
