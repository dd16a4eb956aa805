//! The harness notices what it is there to notice.

use std::os::unix::net::UnixListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};

use shellward_tests::{DEADLINE, Host, Raw, Term, json, leftovers, poll_for, proc};

/// What `stop` complains about; panics when it does not.
fn complaint(host: Host) -> String {
    let stopped = catch_unwind(AssertUnwindSafe(|| host.stop()));
    let fault = stopped.expect_err("the harness noticed nothing");
    fault
        .downcast_ref::<String>()
        .cloned()
        .expect("a message with details")
}

#[test]
fn a_process_that_is_left_is_noticed_and_ended() {
    let host = Host::dash();
    let (name, value) = host.marks().variable.split_once('=').unwrap();
    let mut left = Command::new("sleep")
        .arg("1031")
        .env(name, value)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    assert!(complaint(host).contains("left behind"));
    let status = left.wait().unwrap();
    assert!(!status.success(), "the harness ended it: {status}");
}

#[test]
fn a_host_that_does_not_start_harms_nobody() {
    let mut bystander = Command::new("sleep").arg("1032").spawn().unwrap();
    let started = catch_unwind(|| Host::builder().flag("--no-such-flag").start());
    assert!(started.is_err());
    assert!(bystander.try_wait().unwrap().is_none(), "it still runs");
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

#[test]
fn a_socket_file_that_is_left_is_noticed() {
    let host = Host::dash();
    let folder = host.runtime_dir().join("deep");
    std::fs::create_dir(&folder).unwrap();
    let _listener = UnixListener::bind(folder.join("x.sock")).unwrap();
    assert!(complaint(host).contains("socket files left"));
}

#[test]
fn an_end_that_is_not_in_order_is_noticed() {
    let host = Host::dash();
    let stopped = catch_unwind(AssertUnwindSafe(|| {
        // Somebody kills it; TERM is too late.
        host.signal(nix::sys::signal::Signal::SIGSTOP);
        host.stop();
    }));
    let fault = stopped.expect_err("a stopped host does not end on TERM");
    let fault = fault.downcast_ref::<String>().unwrap();
    assert!(fault.contains("did not end"), "{fault}");
}

#[tokio::test]
async fn marks_travel_to_the_shell_and_not_to_the_worker() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("sleep 1032 & echo x").await;
    let (worker, shell) = host.pids(&terminal.uri);
    let found = poll_for("the host, the shell and its job", DEADLINE, || {
        let found = leftovers::processes(host.marks(), &[]);
        (found.len() >= 3).then_some(found)
    });
    let pids: Vec<i32> = found.iter().map(|process| process.pid).collect();
    assert!(
        pids.contains(&shell) && pids.contains(&host.pid),
        "{found:?}"
    );
    assert!(
        proc::descendants(host.pid)
            .iter()
            .any(|process| process.pid == worker),
        "the worker is found by its parent"
    );
    raw.request("disposeTerminal", json!({"channel": terminal.uri}))
        .await
        .unwrap();
    host.stop();
}
