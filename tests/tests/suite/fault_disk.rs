//! No room left where the host keeps its files.

use std::fs;

use shellward_tests::{
    DEADLINE, Host, HostBuilder, Raw, Term, json, leftovers, needs_root, poll_for,
};

/// A host whose directory `name` is a tmpfs with these options, and what a shell does with it, as
/// `$DIR`, before the host is started. It sees the directory in its own namespace only.
fn on_tmpfs(builder: HostBuilder, name: &str, options: &str, then: &str) -> HostBuilder {
    let directory = builder.folder().join(name);
    fs::create_dir(&directory).unwrap();
    let script = format!(
        "DIR='{}'; mount -t tmpfs -o mode=700,{options} tmpfs \"$DIR\" && {then}",
        directory.display()
    );
    builder.with_mounts(&script)
}

/// Writes until the tmpfs is full, whatever its size.
const FILL: &str = "{ cat /dev/zero >\"$DIR/filler\" 2>/dev/null || true; }";

#[test]
fn a_full_state_directory_refuses_the_start_and_harms_nothing_needs_root() {
    if !needs_root("a mount namespace of one's own") {
        return;
    }
    // The first start finds no room for its token. The second has room and must not be disturbed by
    // what the first has left.
    let then = format!("{FILL} && if \"$0\" \"$@\"; then exit 9; fi; rm \"$DIR/filler\"");
    let host = on_tmpfs(Host::builder().dash(), "s", "size=16k", &then).start();
    let log = host.log();
    assert!(log.contains("No space left on device"), "{log}");
    assert!(log.contains("connection-token"), "{log}");
    assert_eq!(host.token().len(), 64);
    host.stop();

    // With a token and a count of starts: the count stays, so that serverSeq does not go back.
    let then = format!(
        "echo {} >\"$DIR/connection-token\" && chmod 600 \"$DIR/connection-token\" && echo 41 >\"$DIR/epoch\" && {FILL} \
         && if \"$0\" \"$@\"; then exit 9; fi; rm \"$DIR/filler\"",
        "0123456789abcdef".repeat(4)
    );
    let host = on_tmpfs(Host::builder().dash(), "s", "size=16k", &then).start();
    let log = host.log();
    assert!(log.contains("epoch.new"), "{log}");
    let epoch = fs::read_to_string(format!(
        "/proc/{}/root{}/epoch",
        host.pid,
        host.folder().join("s").display()
    ));
    assert_eq!(epoch.unwrap().trim(), "42");
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_runtime_directory_refuses_terminals_clearly_until_there_is_room_needs_root() {
    if !needs_root("a mount namespace of one's own") {
        return;
    }
    // A file each: the directory itself, the lock, the workers' directory, the client socket, the
    // clients and the epoch, each with its next version, and two files for each of three workers.
    let host = on_tmpfs(Host::builder().dash(), "r", "size=64k,nr_inodes=14", "true").start();
    let raw = Raw::open(&host).await;
    let mut made = Vec::new();
    let error = loop {
        match Term::try_create(&raw, json!({})).await {
            Ok(terminal) => made.push(terminal),
            Err(error) => break error,
        }
        assert!(made.len() < 8, "the directory has no room for so many");
    };
    assert!(
        error.message.contains("No space left on device"),
        "{error:?}"
    );
    assert!(made.len() >= 2, "{}", made.len());
    for terminal in &mut made {
        assert_eq!(terminal.output_of("echo fine").await.trim(), "fine");
    }
    let workers = made.len();
    poll_for("no worker of a start that failed", DEADLINE, || {
        (host.workers().len() == workers).then_some(())
    });
    let last = made.pop().unwrap();
    raw.request("disposeTerminal", json!({"channel": last.uri}))
        .await
        .unwrap();
    let mut again = Term::create(&raw).await;
    assert_eq!(again.output_of("echo room").await.trim(), "room");
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_room_for_shell_integration_the_shell_works_all_the_same_needs_root() {
    if !needs_root("a mount namespace of one's own") {
        return;
    }
    // A page each for the epoch, the clients and the worker's token; none for the scripts.
    let then = "dd if=/dev/zero of=\"$DIR/filler\" bs=4096 count=3 2>/dev/null";
    let host = on_tmpfs(Host::builder(), "r", "size=24k,nr_inodes=64", then).start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    assert_eq!(terminal.output_of("echo $((40+2))").await.trim(), "42");
    poll_for("the reason in the log", DEADLINE, || {
        let log = host.log();
        (log.contains("no shell integration") && log.contains("No space left on device"))
            .then_some(())
    });
    raw.request("disposeTerminal", json!({"channel": terminal.uri}))
        .await
        .unwrap();
    let seen = format!("/proc/{}/root{}", host.pid, host.runtime_dir().display());
    let left = leftovers::sockets(std::path::Path::new(&seen));
    assert_eq!(left.len(), 1, "{left:?}");
    host.stop();
}
