//! Field cases of what is lost or inherited: S-05, S-06, S-30.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use shellward_tests::{
    DEADLINE, Host, ROOT, Raw, Term, json, leftovers, needs_root, poll_for, proc, term,
};

/// Descriptors of the host, once they are at most `most`.
fn wait_descriptors(host: &Host, most: usize) {
    let mut last = Vec::new();
    let settled = leftovers::settle(DEADLINE, || {
        last = proc::descriptors(host.pid);
        if last.len() <= most {
            Vec::new()
        } else {
            vec![last.len()]
        }
    });
    assert!(
        settled.is_empty(),
        "{} descriptors, not {most}: {last:#?}",
        last.len()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s05_1000_terminals_leave_no_descriptor_no_pty_no_process_and_no_memory() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    // Once before counting: whatever is opened lazily is open now.
    let terminal = Term::create(&raw).await;
    raw.request("disposeTerminal", json!({"channel": terminal.uri}))
        .await
        .unwrap();
    host.wait_no_workers();
    let before = proc::descriptors(host.pid).len();
    let mut memory = 0;
    for round in 0..100 {
        if round == 20 {
            memory = proc::memory(host.pid);
        }
        let mut batch = Vec::new();
        for _ in 0..10 {
            let uri = term::new_uri();
            let id = raw
                .start_request("createTerminal", term::create_params(&raw, &uri, json!({})))
                .await;
            batch.push((id, uri));
        }
        for (id, uri) in &batch {
            raw.response(*id).await.unwrap();
            raw.dispatch(uri, json!({"type": "terminal/input", "data": "true\r"}))
                .await;
        }
        let mut disposed = Vec::new();
        for (_, uri) in &batch {
            let params = json!({"channel": uri});
            disposed.push(raw.start_request("disposeTerminal", params).await);
        }
        for id in disposed {
            raw.response(id).await.unwrap();
        }
    }
    host.wait_no_workers();
    wait_descriptors(&host, before);
    // What is kept for `reconnect` fills up meanwhile, to 4 MiB; after 2000 terminals it is full, and
    // the next 3000 took not a page more (measured with this very loop).
    let grown = proc::memory(host.pid).saturating_sub(memory);
    eprintln!("memory: {memory} bytes after 200 terminals, {grown} more after 1000");
    assert!(grown < 6 << 20, "{grown} bytes more than {memory}");
    assert_eq!(proc::ptys(host.pid).len(), 0);
    assert_eq!(leftovers::zombies(host.pid), []);
    assert!(
        leftovers::sockets(host.runtime_dir()).len() <= 1,
        "sockets of workers that have gone: {:?}",
        leftovers::sockets(host.runtime_dir())
    );
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s05_100_starts_that_fail_leave_nothing() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let shell = host.folder().join("soongone");
    fs::write(&shell, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o755)).unwrap();
    let mark = raw.mark();
    raw.dispatch(
        ROOT,
        json!({"type": "root/configChanged", "config": {"defaultShell": shell.to_str().unwrap()}}),
    )
    .await;
    raw.wait_action(mark, ROOT, "root/configChanged").await;
    fs::remove_file(&shell).unwrap();
    let fail_once = async || {
        let uri = term::new_uri();
        let created = raw
            .request("createTerminal", term::create_params(&raw, &uri, json!({})))
            .await;
        if created.is_ok() {
            raw.request("disposeTerminal", json!({"channel": uri}))
                .await
                .unwrap();
        }
    };
    fail_once().await;
    host.wait_no_workers();
    let before = proc::descriptors(host.pid).len();
    for _ in 0..100 {
        fail_once().await;
    }
    host.wait_no_workers();
    wait_descriptors(&host, before);
    let root = raw
        .request("subscribe", json!({"channel": ROOT}))
        .await
        .unwrap();
    assert_eq!(root["snapshot"]["state"]["terminals"], json!([]));
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s05_100_clients_that_come_and_go_leave_nothing() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let terminal = Term::create(&raw).await;
    drop(Raw::open(&host).await);
    raw.settle().await;
    let before = poll_for("one connection", DEADLINE, || {
        Some(proc::descriptors(host.pid).len())
    });
    for round in 0..100 {
        let client = Raw::open(&host).await;
        Term::subscribe(&client, &terminal.uri).await;
        if round % 2 == 0 {
            client.close().await;
        }
    }
    wait_descriptors(&host, before);
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s05_without_descriptors_a_start_fails_clearly_and_works_again_when_there_is_room() {
    let host = Host::builder().dash().open_files(64).start();
    let raw = Raw::open(&host).await;
    let mut made = Vec::new();
    let mut failure = None;
    for _ in 0..100 {
        let uri = term::new_uri();
        match raw
            .request("createTerminal", term::create_params(&raw, &uri, json!({})))
            .await
        {
            Ok(_) => made.push(uri),
            Err(error) => {
                failure = Some((uri, error));
                break;
            }
        }
    }
    let (uri, error) = failure.expect("64 descriptors are not enough for 100 terminals");
    assert!(error.message.len() > 10, "{error:?}");
    assert!(made.len() >= 5, "only {} terminals", made.len());
    let gone = raw
        .request("subscribe", json!({"channel": uri}))
        .await
        .unwrap_err();
    assert_eq!(gone.code, -32008, "no half terminal");
    // The ones that are there work.
    let mut first = Term::subscribe(&raw, &made[0]).await;
    assert_eq!(first.output_of("echo fine").await.trim(), "fine");
    for uri in made.drain(..).skip(1) {
        raw.request("disposeTerminal", json!({"channel": uri}))
            .await
            .unwrap();
    }
    poll_for("one worker", DEADLINE, || {
        (host.workers().len() == 1).then_some(())
    });
    let mut again = Term::create(&raw).await;
    assert_eq!(again.output_of("echo room").await.trim(), "room");
    host.stop();
}

/// A host in a mount namespace of its own, where `mounts` was done first; `None` without root.
fn host_with_mounts(mounts: &str) -> Option<Host> {
    needs_root("a mount namespace of one's own")
        .then(|| Host::builder().dash().with_mounts(mounts).start())
}

#[tokio::test]
async fn s05_without_a_free_pty_a_start_fails_clearly_and_works_again_when_there_is_one() {
    let Some(host) = host_with_mounts(concat!(
        "mount -t devpts devpts /dev/pts -o newinstance,ptmxmode=0666,max=3",
        " && mount --bind /dev/pts/ptmx /dev/ptmx"
    )) else {
        return;
    };
    assert_eq!(host.ready["pty"], true);
    let raw = Raw::open(&host).await;
    for _ in 0..3 {
        let mut made = Vec::new();
        for _ in 0..3 {
            made.push(Term::create(&raw).await);
        }
        let error = Term::try_create(&raw, json!({}))
            .await
            .err()
            .expect("there are three ptys");
        assert!(error.message.contains("pty"), "{error:?}");
        for terminal in &mut made {
            assert_eq!(terminal.output_of("echo fine").await.trim(), "fine");
        }
        poll_for("three workers", DEADLINE, || {
            (host.workers().len() == 3).then_some(())
        });
        for terminal in made {
            raw.request("disposeTerminal", json!({"channel": terminal.uri}))
                .await
                .unwrap();
        }
        host.wait_no_workers();
    }
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s06_200_short_terminals_leave_no_zombie() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    for _ in 0..20 {
        let mut batch = Vec::new();
        for _ in 0..10 {
            let terminal = Term::create(&raw).await;
            terminal.line("sleep 0 & exit").await;
            batch.push(terminal);
        }
        for terminal in &mut batch {
            terminal.wait_exit().await;
        }
    }
    let left = leftovers::settle(Duration::from_secs(2), || leftovers::zombies(host.pid));
    assert!(left.is_empty(), "{left:?}");
    // The list does not say that any of them runs.
    let listing = host.ps();
    let terminals = listing["terminals"].as_array().unwrap();
    assert_eq!(terminals.len(), 200);
    assert!(
        terminals.iter().all(|entry| entry["exitCode"] == 0),
        "{listing}"
    );
    assert!(terminals.iter().all(|entry| entry["state"] != "running"));
    host.stop();
}

/// Needs root for the namespace; elsewhere it says so and ends.
#[tokio::test]
async fn s06_a_pid_that_is_used_again_is_not_killed() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("not run: a pid namespace of one's own needs root");
        return;
    }
    let host = Host::builder()
        .dash()
        .run_with(&[
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "/bin/sh",
            "-c",
            "echo 400 > /proc/sys/kernel/pid_max && exec \"$0\" \"$@\"",
        ])
        .start();
    let raw = Raw::open(&host).await;
    let mut burner = Term::create(&raw).await;
    // Numbers below 300 are never given out a second time.
    burner
        .output_within(
            "n=0; while [ $n -lt 310 ]; do n=$((n+1)); /bin/true; done",
            DEADLINE * 3,
        )
        .await;
    let mut old = Term::create(&raw).await;
    let pid: i32 = old.output_of("echo $$").await.trim().parse().unwrap();
    old.line("exit 5").await;
    old.wait_exit().await;
    // The other terminal starts sleeps until one has the number of the dead shell.
    let text = burner
        .output_within(
            &format!(
                "n=0; while [ $n -lt 3000 ]; do n=$((n+1)); sleep 1021 & p=$!; [ $p = {pid} ] && break; kill -9 $p; wait $p 2>/dev/null; done; echo got-$p"
            ),
            DEADLINE * 5,
        )
        .await;
    assert!(
        text.contains(&format!("got-{pid}")),
        "the number was not reached: {text}"
    );
    raw.dispatch(&old.uri, json!({"type": "terminal/input", "data": "x"}))
        .await;
    raw.dispatch(
        &old.uri,
        json!({"type": "terminal/resized", "cols": 50, "rows": 20}),
    )
    .await;
    let killed = host.cli(&["kill", &old.uri]);
    assert!(
        !String::from_utf8_lossy(&killed.stderr).contains("panicked"),
        "{killed:?}"
    );
    let _ = raw
        .request("disposeTerminal", json!({"channel": old.uri}))
        .await;
    poll_for("the end of the old worker", DEADLINE, || {
        (host.workers().len() == 1).then_some(())
    });
    let text = burner
        .output_of(&format!("kill -0 {pid} && echo survived"))
        .await;
    assert!(text.contains("survived"), "{text}");
    host.stop();
}

#[tokio::test]
async fn s30_shells_hold_their_own_pty_and_nothing_else() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let _second = Raw::open(&host).await;
    let mut terminals = Vec::new();
    for _ in 0..5 {
        let mut terminal = Term::create(&raw).await;
        terminal.wait_prompt().await;
        terminals.push(terminal);
    }
    for terminal in &mut terminals {
        // 3 is the directory that ls itself reads.
        let listed = terminal.output_of("ls /proc/self/fd").await;
        let numbers: Vec<&str> = listed.split_whitespace().collect();
        assert_eq!(numbers, ["0", "1", "2", "3"], "{}", terminal.uri);
        let tty = terminal.output_of("tty").await.trim().to_owned();
        let (worker, shell) = host.pids(&terminal.uri);
        for (number, target) in proc::descriptors(shell) {
            let target = target.to_string_lossy().into_owned();
            assert!(
                target == tty || target == "/dev/tty",
                "descriptor {number} of the shell is {target}, its terminal is {tty}"
            );
        }
        let number = tty.rsplit('/').next().unwrap().parse().unwrap();
        assert_eq!(proc::ptys(worker), [number].into());
    }
    host.stop();
}

#[tokio::test]
async fn s30_workers_hold_nothing_of_the_supervisor_or_each_other() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut held = Vec::new();
    for _ in 0..5 {
        let mut terminal = Term::create(&raw).await;
        terminal.wait_prompt().await;
        held.push(host.pids(&terminal.uri).0);
    }
    // What came with the test itself is nobody's secret, and a worker's stderr goes to the host.
    let targets = |pid: i32| -> Vec<String> {
        proc::descriptors(pid)
            .into_iter()
            .map(|(_, target)| target.to_string_lossy().into_owned())
            .collect()
    };
    let inherited = targets(std::process::id().cast_signed());
    let private = |pid: i32| -> Vec<String> {
        targets(pid)
            .into_iter()
            .filter(|target| target.contains(":[") && !target.starts_with("anon_inode"))
            .filter(|target| !inherited.contains(target))
            .collect()
    };
    let supervisor = private(host.pid);
    assert!(supervisor.iter().any(|target| target.starts_with("socket")));
    let mut seen = Vec::new();
    for worker in held {
        for target in private(worker) {
            let from_host = target.starts_with("socket") && supervisor.contains(&target);
            assert!(
                !from_host && !seen.contains(&target),
                "worker {worker} shares {target}: {:#?}",
                proc::descriptors(worker)
            );
            seen.push(target);
        }
        let open = proc::descriptors(worker);
        assert!(open.len() <= 12, "{open:#?}");
    }
    host.stop();
}

#[tokio::test]
async fn s30_the_port_can_be_bound_again_at_once() {
    let host = Host::dash();
    let address = host.address().to_owned();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal
        .output_of("(trap '' HUP; exec sleep 1022) & echo x")
        .await;
    host.stop();
    let host = Host::builder().dash().listen(&address).start();
    assert_eq!(host.address(), address);
    Raw::open(&host).await;
    host.stop();
}
