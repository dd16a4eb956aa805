//! Few ptys, no ptys: hosts in a mount namespace with a devpts of their own.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use shellward_tests::{
    DEADLINE, Host, Raw, Term, Value, json, leftovers, needs_root, on_pipes, poll_for, probe, proc,
    term,
};

/// A devpts with room for six.
const SIX: &str = concat!(
    "mount -t devpts devpts /dev/pts -o newinstance,ptmxmode=0666,max=6",
    " && mount --bind /dev/pts/ptmx /dev/ptmx"
);

/// All six taken by a sleep, whose number goes to standard error, which is the log.
const TAKEN: &str = concat!(
    "(sleep 1080 4<>/dev/ptmx 5<>/dev/ptmx 6<>/dev/ptmx 7<>/dev/ptmx 8<>/dev/ptmx 9<>/dev/ptmx",
    " & echo holder $! >&2)"
);

/// A `/dev` without ptys.
const NONE: &str = concat!(
    "mount -t tmpfs tmpfs /dev -o mode=755 && mknod -m 666 /dev/null c 1 3",
    " && mknod -m 666 /dev/zero c 1 5 && mknod -m 666 /dev/urandom c 1 9"
);

/// The numbers of the ptys that are in use in the host's namespace.
fn used(host: &Host) -> BTreeSet<String> {
    fs::read_dir(format!("/proc/{}/root/dev/pts", host.pid))
        .expect("its devpts")
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name != "ptmx")
        .collect()
}

async fn dispose(raw: &Raw, uri: &str) {
    raw.request("disposeTerminal", json!({"channel": uri}))
        .await
        .unwrap();
}

fn wait_workers(host: &Host, count: usize) {
    poll_for(&format!("{count} workers"), DEADLINE, || {
        (host.workers().len() == count).then_some(())
    });
}

/// Asks for so many at once; the ones that came, and the errors of the others.
async fn ask_for(raw: &Raw, count: usize) -> (Vec<Term>, Vec<String>) {
    let mut asked = Vec::new();
    for _ in 0..count {
        let uri = term::new_uri();
        let params = term::create_params(raw, &uri, json!({}));
        asked.push((raw.start_request("createTerminal", params).await, uri));
    }
    let (mut made, mut errors) = (Vec::new(), Vec::new());
    for (id, uri) in asked {
        match raw.response(id).await {
            Ok(_) => made.push(Term::subscribe(raw, &uri).await),
            Err(error) => {
                assert_eq!(error.code, -32603, "{error:?}");
                errors.push(error.message);
                let gone = raw
                    .request("subscribe", json!({"channel": uri}))
                    .await
                    .unwrap_err();
                assert_eq!(gone.code, -32008, "no half terminal");
            }
        }
    }
    (made, errors)
}

async fn assert_real(terminal: &mut Term) {
    assert_eq!(terminal.folded.state.is_pty, Some(true));
    let tty = terminal.output_of("tty").await;
    assert!(tty.starts_with("/dev/pts/"), "{tty}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_asked_for_where_six_are_two_freed_two_more_twenty_rounds_needs_root() {
    if !needs_root("a mount namespace of one's own") {
        return;
    }
    let host = Host::builder()
        .dash()
        .option("--pty", "auto")
        .with_mounts(SIX)
        .start();
    assert_eq!(host.ready["pty"], true, "{}", host.log());
    let raw = Raw::open(&host).await;
    let mut descriptors = None;
    for round in 0..20 {
        let (mut made, errors) = ask_for(&raw, 8).await;
        assert_eq!((made.len(), errors.len()), (6, 2), "{round}: {errors:?}");
        for error in &errors {
            assert!(error.contains("pty"), "{error}");
        }
        for terminal in &mut made {
            assert_real(terminal).await;
        }
        assert_eq!(used(&host).len(), 6);
        for terminal in made.drain(..2) {
            dispose(&raw, &terminal.uri).await;
        }
        wait_workers(&host, 4);
        let (more, errors) = ask_for(&raw, 2).await;
        assert_eq!(errors, [""; 0], "{round}");
        made.extend(more);
        for terminal in &mut made {
            assert_real(terminal).await;
        }
        for terminal in made {
            dispose(&raw, &terminal.uri).await;
        }
        wait_workers(&host, 0);
        assert_eq!(used(&host), BTreeSet::new(), "{round}");
        let now = leftovers::settle(DEADLINE, || {
            let now = proc::descriptors(host.pid);
            let most = *descriptors.get_or_insert(now.len());
            if now.len() <= most { Vec::new() } else { now }
        });
        assert!(now.is_empty(), "{round}: {now:#?}");
    }
    assert_eq!(leftovers::zombies(host.pid), []);
    assert_eq!(host.ps()["supervisor"]["pty"], true);
    host.stop();
}

/// The process that holds the six.
fn holder(host: &Host) -> Pid {
    let log = host.log();
    let number = log
        .lines()
        .find_map(|line| line.strip_prefix("holder "))
        .expect("the holder's number");
    Pid::from_raw(number.trim().parse().unwrap())
}

#[tokio::test]
async fn a_host_started_while_no_pty_was_free_serves_real_ones_once_there_are_needs_root() {
    if !needs_root("a mount namespace of one's own") {
        return;
    }
    let host = Host::builder()
        .dash()
        .option("--pty", "auto")
        .with_mounts(&format!("{SIX} && {TAKEN} && {ALL_TAKEN}"))
        .start();
    assert_eq!(host.ready["pty"], false);
    let answer = probe::assert_answer(&probe::shown(&host), "no-pty");
    assert_eq!(answer["errno"], 28, "{answer}");
    let raw = Raw::open(&host).await;
    let mut old = Term::create(&raw).await;
    assert_eq!(old.snapshot["state"]["isPty"], false);
    assert_eq!(old.output_of("echo pipes").await, "pipes\n");
    // Still none: still pipes, and one line in the log.
    let second = Term::create(&raw).await;
    assert_eq!(second.snapshot["state"]["isPty"], false);
    let sentence = answer["sentence"].as_str().unwrap();
    assert_eq!(host.log().matches(sentence).count(), 1, "{}", host.log());

    kill(holder(&host), Signal::SIGKILL).unwrap();
    poll_for("free ptys", DEADLINE, || {
        used(&host).is_empty().then_some(())
    });
    let mut fresh = Term::create(&raw).await;
    assert_real(&mut fresh).await;
    let shown = probe::assert_answer(&probe::shown(&host), "works");
    assert_eq!(probe::in_root(&raw).await, shown);
    assert_eq!(old.output_of("echo still").await, "still\n");
    assert_eq!(host.ps_entry(&old.uri)["isPty"], false);
    host.stop();
}

/// Goes on once the six are taken.
const ALL_TAKEN: &str = "while [ ! -e /dev/pts/5 ]; do sleep 0.01; done";

#[test]
fn require_where_no_pty_is_free_or_none_can_be_is_refused_needs_root() {
    if !needs_root("a mount namespace of one's own") {
        return;
    }
    for (mounts, reason) in [
        (NONE.to_owned(), "No such file"),
        (FULL.to_owned(), "No space left on device"),
    ] {
        let output = Host::builder()
            .dash()
            .option("--pty", "require")
            .with_mounts(&mounts)
            .run_to_end();
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        assert_eq!(output.stdout, b"", "no ready line");
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(words.contains(reason), "{words}");
    }
}

/// A devpts with room for one, which the shell that becomes the host has taken.
const FULL: &str = concat!(
    "mount -t devpts devpts /dev/pts -o newinstance,ptmxmode=0666,max=1",
    " && mount --bind /dev/pts/ptmx /dev/ptmx && exec 9<>/dev/ptmx"
);

#[tokio::test]
async fn a_host_without_dev_ptmx_serves_on_pipes_and_says_so_needs_root() {
    if !needs_root("a mount namespace of one's own") {
        return;
    }
    for (mounts, errno) in [(NONE, Some(2)), ("mount --bind /dev/null /dev/ptmx", None)] {
        let host = Host::builder()
            .dash()
            .option("--pty", "auto")
            .with_mounts(mounts)
            .start();
        assert_eq!(host.ready["pty"], false, "{}", host.ready);
        let answer = probe::assert_answer(&probe::shown(&host), "no-pty");
        if let Some(errno) = errno {
            assert_eq!(answer["errno"], errno, "{answer}");
        }
        let raw = Raw::open(&host).await;
        let mut terminal = Term::create(&raw).await;
        assert_eq!(terminal.snapshot["state"]["isPty"], false);
        assert_eq!(terminal.output_of("echo serves").await, "serves\n");
        host.stop();
    }
}

#[test]
fn the_probe_command_without_dev_ptmx_says_why_and_exits_3_needs_root() {
    if !needs_root("a mount namespace of one's own") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("nowhere");
    let script = format!("{NONE} && exec \"$0\" \"$@\"");
    let prefix = ["unshare", "--mount", "/bin/sh", "-c", &script];
    let plain = probe::alone(&prefix, &nowhere, &[]);
    assert_eq!(plain.status.code(), Some(3), "{plain:?}");
    let said = String::from_utf8_lossy(&plain.stdout).into_owned();
    assert!(said.contains("No such file or directory"), "{said}");
    assert!(said.contains("/dev/ptmx"), "the next step: {said}");

    let machine = probe::alone(&prefix, &nowhere, &["--json"]);
    assert_eq!(machine.status.code(), Some(3), "{machine:?}");
    let text = String::from_utf8(machine.stdout).unwrap();
    assert_eq!(text.lines().count(), 1, "one object: {text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    probe::assert_answer(&answer, "no-pty");
    assert_eq!(answer["errno"], 2);
    assert_eq!(answer["binding"], Value::Null);
    let members: Vec<&str> = answer
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect();
    assert_eq!(
        BTreeSet::from_iter(members),
        BTreeSet::from([
            "result", "sentence", "nextStep", "errno", "words", "binding"
        ])
    );
}

#[test]
fn the_probe_command_works_where_one_pty_is_left_and_not_where_none_is_needs_root() {
    if !needs_root("a mount namespace of one's own") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("nowhere");
    for (mounts, code, result) in [
        (FULL.rsplit_once(" && ").unwrap().0, 0, "works"),
        (FULL, 3, "no-pty"),
    ] {
        let script = format!("{mounts} && exec \"$0\" \"$@\"");
        let prefix = ["unshare", "--mount", "/bin/sh", "-c", &script];
        let output = probe::alone(&prefix, &nowhere, &["--json"]);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        probe::assert_answer(&answer, result);
    }
}

#[test]
fn the_probe_command_works_on_this_machine_and_leaves_nothing() {
    if on_pipes() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("nowhere");
    let output = probe::alone(&[], &nowhere, &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("ptys work"));
    assert!(!nowhere.exists(), "it made a runtime directory");
    let again = Command::new(shellward_tests::builder::binaries().join("shellward"))
        .args(["probe", "--help"])
        .output()
        .unwrap();
    assert!(again.status.success());
}
