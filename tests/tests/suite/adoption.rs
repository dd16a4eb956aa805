//! A supervisor that takes over what the one before it left, and what it leaves alone.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use shellward_tests::faults::Action;
use shellward_tests::proc::{self, Process};
use shellward_tests::{DEADLINE, Host, Raw, Term, Value, json, poll_for};

fn signal(pid: i32, signal: Signal) {
    kill(Pid::from_raw(pid), signal).unwrap();
}

fn is_gone(pid: i32) -> bool {
    Process::read(pid).is_none_or(|process| process.is_zombie())
}

fn unadopted(host: &Host) -> Vec<Value> {
    host.ps()["supervisor"]["unadopted"]
        .as_array()
        .unwrap()
        .clone()
}

#[tokio::test]
async fn s36_a_worker_that_does_not_answer_is_left_alone_and_taken_over_when_it_does() {
    let mut host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut silent = Term::create(&raw).await;
    let mut other = Term::create(&raw).await;
    silent.output_of("echo silent").await;
    other.output_of("echo other").await;
    let (worker, shell) = host.pids(&silent.uri);
    signal(worker, Signal::SIGSTOP);
    host.crash();
    host.start_again();
    let left = unadopted(&host);
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0]["socket"].as_str().unwrap().starts_with("w1/"));
    assert_eq!(
        left[0]["reason"],
        format!("it does not answer (process {worker})")
    );
    let table = String::from_utf8(host.cli(&["ps"]).stdout).unwrap();
    assert!(table.contains("left alone: the worker at w1/"), "{table}");
    assert!(!is_gone(worker) && !is_gone(shell), "nothing is killed");
    assert_eq!(host.ps()["terminals"].as_array().unwrap().len(), 1);
    signal(worker, Signal::SIGCONT);
    poll_for("it is taken over", 2 * DEADLINE, || {
        unadopted(&host).is_empty().then_some(())
    });
    let raw = Raw::open(&host).await;
    let mut again = Term::subscribe(&raw, &silent.uri).await;
    assert!(again.folded.text().contains("silent"));
    assert_eq!(again.output_of("echo back").await.trim(), "back");
    host.stop();
}

#[tokio::test]
async fn s36_a_shutdown_names_what_it_leaves_alone_and_the_next_host_has_it() {
    let mut host = Host::dash();
    let raw = Raw::open(&host).await;
    let silent = Term::create(&raw).await;
    let (worker, shell) = host.pids(&silent.uri);
    signal(worker, Signal::SIGSTOP);
    host.crash();
    host.start_again();
    let output = host.cli(&["shutdown"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(
        words.contains("left alone") && words.contains(&format!("(process {worker})")),
        "{words}"
    );
    assert!(host.wait_end().success());
    assert!(!is_gone(worker) && !is_gone(shell));
    assert!(names_left_alone(&host, worker), "{}", host.log());
    signal(worker, Signal::SIGCONT);
    host.start_again();
    assert_eq!(host.pids(&silent.uri), (worker, shell));
    host.stop();
}

/// Whether the log says at the end of a host that this worker is left alone.
fn names_left_alone(host: &Host, worker: i32) -> bool {
    host.log().lines().any(|line| {
        line.contains("WARN this host ends") && line.contains(&format!("(process {worker})"))
    })
}

/// Eight terminals of a host that has crashed, and another one that was told to end when it had
/// found the first of them.
async fn told_to_end_while_it_takes_over(flags: &[&str]) -> (Host, Vec<(i32, i32)>) {
    let (mut builder, faults) = Host::builder().dash().with_faults();
    for flag in flags {
        builder = builder.flag(flag);
    }
    let mut host = builder.start();
    let raw = Raw::open(&host).await;
    let mut pids = Vec::new();
    for _ in 0..8 {
        pids.push(host.pids(&Term::create(&raw).await.uri));
    }
    host.crash();
    faults.arm("supervisor.adopt-attached", Action::Pause);
    host.spawn_again();
    let paused = faults.wait_paused("supervisor.adopt-attached");
    host.signal(Signal::SIGTERM);
    drop(paused);
    (host, pids)
}

#[tokio::test]
async fn a_host_that_is_told_to_end_while_it_takes_terminals_over_ends_them_all() {
    let (mut host, pids) = told_to_end_while_it_takes_over(&[]).await;
    assert!(host.wait_end().success());
    for (worker, shell) in pids {
        assert!(is_gone(worker) && is_gone(shell), "{}", host.log());
    }
    assert!(host.log().contains("INFO ending"), "{}", host.log());
    host.stop();
}

#[tokio::test]
async fn a_host_that_is_to_keep_terminals_leaves_at_once_also_while_it_takes_them_over() {
    let (mut host, pids) = told_to_end_while_it_takes_over(&["--on-exit", "keep"]).await;
    assert!(host.wait_end().success());
    assert!(
        pids.iter()
            .all(|(worker, shell)| !is_gone(*worker) && !is_gone(*shell))
    );
    host.start_again();
    assert_eq!(host.ps()["terminals"].as_array().unwrap().len(), 8);
    assert_eq!(host.cli(&["shutdown"]).status.code(), Some(0));
    assert!(host.wait_end().success());
    host.stop();
}

/// The first signal waits for a worker that does not answer, the second one does not.
#[tokio::test]
async fn an_end_while_terminals_are_taken_over_names_who_is_left_and_a_second_signal_leaves_at_once()
 {
    let mut host = Host::dash();
    let raw = Raw::open(&host).await;
    let [silent, other] = [Term::create(&raw).await, Term::create(&raw).await]
        .map(|terminal| host.pids(&terminal.uri));
    signal(silent.0, Signal::SIGSTOP);
    host.crash();
    for is_repeated in [true, false] {
        let said = host.log().matches("INFO ending").count();
        host.spawn_again();
        // Only the silent one is waited for then.
        let pid = format!("worker={}", other.0);
        poll_for("the other one is taken over", DEADLINE, || {
            let log = host.log();
            let begun = log.rmatches("a terminal is taken over").count();
            (begun > usize::from(!is_repeated) && log.contains(&pid)).then_some(())
        });
        host.signal(Signal::SIGTERM);
        poll_for("it ends", DEADLINE, || {
            (host.log().matches("INFO ending").count() > said).then_some(())
        });
        let from = Instant::now();
        if is_repeated {
            host.signal(Signal::SIGINT);
        }
        assert!(host.wait_end().success());
        assert!(!is_gone(silent.0) && !is_gone(silent.1));
        assert_eq!(is_gone(other.1), !is_repeated);
        assert_eq!(names_left_alone(&host, silent.0), !is_repeated);
        if is_repeated {
            assert!(
                from.elapsed() < Duration::from_secs(1),
                "{:?}",
                from.elapsed()
            );
            assert!(host.log().contains("leaving at once"));
        }
    }
    signal(silent.0, Signal::SIGCONT);
    host.start_again();
    host.stop();
}

/// The titles in `ps` and in the root state.
async fn titles(host: &Host) -> [Vec<String>; 2] {
    let raw = Raw::open(host).await;
    let params = json!({"channel": "ahp-root://"});
    let root = raw.request("subscribe", params).await.unwrap();
    [
        host.ps()["terminals"].clone(),
        root["snapshot"]["state"]["terminals"].clone(),
    ]
    .map(|list| {
        let list = list.as_array().unwrap().iter();
        list.map(|entry| entry["title"].as_str().unwrap().to_owned())
            .collect()
    })
}

#[tokio::test]
async fn terminals_are_listed_in_the_order_of_their_creation_also_when_taken_over_late() {
    let mut host = Host::dash();
    let names: Vec<String> = (1..=12).map(|number| format!("number {number}")).collect();
    for name in &names {
        let opened = host.cli(&["new", "--no-wait", "--name", name]);
        assert!(opened.status.success(), "{opened:?}");
    }
    let late = host.ps()["terminals"][2]["workerPid"].as_i64().unwrap();
    let late = i32::try_from(late).unwrap();
    signal(late, Signal::SIGSTOP);
    host.crash();
    host.start_again();
    let mut others = names.clone();
    others.remove(2);
    assert_eq!(titles(&host).await, [others.clone(), others]);
    signal(late, Signal::SIGCONT);
    poll_for("it is taken over", 2 * DEADLINE, || {
        unadopted(&host).is_empty().then_some(())
    });
    assert_eq!(titles(&host).await, [names.clone(), names]);
    host.stop();
}

#[tokio::test]
async fn a_stopped_worker_is_shown_as_unresponsive_also_when_it_was_taken_over() {
    let mut host = Host::dash();
    let raw = Raw::open(&host).await;
    let terminal = Term::create(&raw).await;
    for _ in 0..2 {
        let (worker, _) = host.pids(&terminal.uri);
        signal(worker, Signal::SIGSTOP);
        poll_for("unresponsive", DEADLINE, || {
            (host.ps_entry(&terminal.uri)["state"] == "unresponsive").then_some(())
        });
        signal(worker, Signal::SIGCONT);
        poll_for("running again", DEADLINE, || {
            (host.ps_entry(&terminal.uri)["state"] == "running").then_some(())
        });
        host.crash();
        host.start_again();
    }
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s39_after_a_restart_150_clients_come_back_at_once_and_a_terminal_still_answers() {
    let mut host = Host::dash();
    let first = Raw::open(&host).await;
    let terminal = Term::create(&first).await;
    let mut names = Vec::new();
    for number in 0..150 {
        let name = format!("returning-{number}");
        Raw::open_as(&host, &name).await;
        names.push(name);
    }
    let file = host.runtime_dir().join("clients.json");
    poll_for("all are remembered", DEADLINE, || {
        let text = fs::read_to_string(&file).unwrap_or_default();
        names
            .iter()
            .all(|name| text.contains(&format!("\"{name}\"")))
            .then_some(())
    });
    host.crash();
    host.start_again();
    let raw = Raw::open(&host).await;
    let mut own = Term::subscribe(&raw, &terminal.uri).await;
    own.output_of("true").await;
    let host = std::sync::Arc::new(host);
    let begun = Instant::now();
    let all: Vec<_> = names
        .into_iter()
        .map(|name| {
            let (host, uri) = (std::sync::Arc::clone(&host), terminal.uri.clone());
            tokio::spawn(async move {
                let raw = Raw::connect(&host).await;
                raw.become_client(&name);
                let params = json!({"channel": "ahp-root://", "clientId": name, "lastSeenServerSeq": 1, "subscriptions": ["ahp-root://", uri]});
                let answer = raw.request("reconnect", params).await.expect("it is known");
                assert_eq!(answer["type"], "snapshot");
                assert_eq!(answer["snapshots"].as_array().unwrap().len(), 2);
                raw
            })
        })
        .collect();
    let spawned = begun.elapsed();
    assert!(spawned < Duration::from_millis(100), "{spawned:?}");
    let mut echoes = Vec::new();
    let mut back = Vec::new();
    for one in all {
        let at = Instant::now();
        own.output_of("echo x").await;
        echoes.push(at.elapsed());
        back.push(one.await.unwrap());
    }
    echoes.sort();
    println!(
        "all back after {:?}; echo median {:?}, worst {:?}",
        begun.elapsed(),
        echoes[75],
        echoes[149]
    );
    assert!(echoes[75] < Duration::from_millis(200), "{echoes:?}");
    drop(back);
    let Ok(host) = std::sync::Arc::try_unwrap(host) else {
        panic!("all tasks have ended");
    };
    host.stop();
}

#[tokio::test]
async fn what_is_no_living_worker_of_ours_is_left_as_it_is_and_dead_ones_are_cleaned_up() {
    let mut host = Host::dash();
    let raw = Raw::open(&host).await;
    let dead = Term::create(&raw).await;
    let (worker, shell) = host.pids(&dead.uri);
    host.crash();
    signal(worker, Signal::SIGKILL);
    poll_for("its shell is hung up", DEADLINE, || {
        is_gone(shell).then_some(())
    });
    let sockets = host.runtime_dir().join("w1");
    let names = || {
        let mut names: Vec<String> = fs::read_dir(&sockets)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names().len(), 2, "{:?}", names());
    // Things that are none: a directory, a file, a link; a socket with somebody else behind it; one
    // of a worker of another time.
    fs::create_dir(sockets.join("a.sock")).unwrap();
    fs::write(sockets.join("b.sock"), "").unwrap();
    std::os::unix::fs::symlink("/nowhere", sockets.join("c.sock")).unwrap();
    let _foreign = UnixListener::bind(sockets.join("d.sock")).unwrap();
    let newer = host.runtime_dir().join("w999");
    fs::create_dir(&newer).unwrap();
    let _newer = UnixListener::bind(newer.join("e.sock")).unwrap();
    // A token beside which no worker came to be, long ago.
    let token = sockets.join("f.token");
    fs::write(&token, "x").unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    let file = fs::File::options().write(true).open(&token).unwrap();
    file.set_modified(std::time::SystemTime::now() - Duration::from_secs(3600))
        .unwrap();
    host.start_again();
    assert_eq!(names(), ["a.sock", "b.sock", "c.sock", "d.sock"]);
    let mut left: Vec<(String, String)> = unadopted(&host)
        .iter()
        .map(|one| {
            (
                one["socket"].as_str().unwrap().to_owned(),
                one["reason"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    left.sort();
    assert_eq!(left[0].0, "w1/d.sock");
    assert!(left[0].1.contains("token"), "{left:?}");
    assert_eq!(left[1].0, "w999/e.sock");
    assert!(left[1].1.contains("wire version 999"), "{left:?}");
    assert!(
        host.log()
            .contains("a worker ended while no supervisor ran"),
        "{}",
        host.log()
    );
    assert_eq!(host.ps()["terminals"], json!([]));
    fs::remove_file(sockets.join("d.sock")).unwrap();
    fs::remove_dir_all(&newer).unwrap();
    host.stop();
}

/// The process of `sleep SECONDS`.
fn sleeping(seconds: &str) -> Option<i32> {
    let line = format!("sleep {seconds}");
    let all = proc::all();
    let mut pids = all.iter().map(|process| process.pid);
    pids.find(|pid| proc::command_line(*pid).trim() == line)
}

#[tokio::test]
async fn what_a_worker_left_that_died_with_its_supervisor_is_ended_by_the_next_one() {
    let mut host = Host::start();
    let raw = Raw::open(&host).await;
    let mut doomed = Term::create(&raw).await;
    doomed.wait_prompt().await;
    let id = host.ps_entry(&doomed.uri)["id"].clone();
    assert_eq!(
        doomed.output_of("echo $SHELLWARD_TERMINAL").await.trim(),
        id.as_str().unwrap()
    );
    doomed
        .line("(trap '' HUP; exec sleep 1021) & setsid sleep 1022 & sleep 1023")
        .await;
    let mut other = Term::create(&raw).await;
    other.wait_prompt().await;
    other.line("setsid sleep 1024 &").await;
    let jobs = poll_for("all jobs", DEADLINE, || {
        Some([sleeping("1021")?, sleeping("1022")?, sleeping("1023")?])
    });
    let spared = poll_for("the other's job", DEADLINE, || sleeping("1024"));
    let (worker, shell) = host.pids(&doomed.uri);
    host.crash();
    signal(worker, Signal::SIGKILL);
    poll_for("the worker's end", DEADLINE, || {
        is_gone(worker).then_some(())
    });
    assert!(!is_gone(jobs[0]) && !is_gone(jobs[1]));
    host.start_again();
    for pid in jobs.into_iter().chain([shell]) {
        assert!(is_gone(pid), "{}", proc::command_line(pid));
    }
    assert!(!is_gone(spared));
    assert_eq!(host.ps()["terminals"].as_array().unwrap().len(), 1);
    host.stop();
    assert!(is_gone(spared));
}

#[tokio::test]
async fn a_worker_that_was_taken_over_and_is_killed_leaves_nothing_and_can_be_disposed_of() {
    let mut host = Host::start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.wait_prompt().await;
    // One job that a hang-up does not end, one in a session of its own, and one in the foreground.
    terminal
        .line("(trap '' HUP; exec sleep 1011) & setsid sleep 1013 & sleep 1012")
        .await;
    let jobs = poll_for("all jobs", DEADLINE, || {
        Some([sleeping("1011")?, sleeping("1012")?, sleeping("1013")?])
    });
    host.crash();
    host.start_again();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::subscribe(&raw, &terminal.uri).await;
    let (worker, shell) = host.pids(&terminal.uri);
    signal(worker, Signal::SIGKILL);
    let exited = terminal.wait_exit().await;
    assert_eq!(exited["exitCode"], 128, "{exited}");
    for pid in jobs.into_iter().chain([shell]) {
        poll_for("nothing is left", DEADLINE, || is_gone(pid).then_some(()));
    }
    assert_eq!(host.ps_entry(&terminal.uri)["state"], "crashed");
    terminal.assert_equals_snapshot().await;
    raw.request("disposeTerminal", json!({"channel": terminal.uri}))
        .await
        .unwrap();
    // And one that lives ends in order.
    let mut other = Term::create(&raw).await;
    other.wait_prompt().await;
    let (worker, shell) = host.pids(&other.uri);
    host.crash();
    host.start_again();
    let raw = Raw::open(&host).await;
    raw.request("disposeTerminal", json!({"channel": other.uri}))
        .await
        .unwrap();
    assert!(is_gone(worker) && is_gone(shell));
    host.stop();
}

#[tokio::test]
async fn exited_terminals_outlive_the_host_also_when_their_worker_had_died() {
    let mut host = Host::start();
    let raw = Raw::open(&host).await;
    let mut crashed = Term::create_with(&raw, json!({"name": "build", "cols": 101})).await;
    crashed.wait_prompt().await;
    assert_eq!(crashed.output_of("echo before").await.trim(), "before");
    let mut exited = Term::create(&raw).await;
    exited.wait_prompt().await;
    exited.line("exit 3").await;
    exited.wait_exit().await;
    let dead = [host.pids(&crashed.uri).0, host.pids(&exited.uri).0];
    for worker in dead {
        signal(worker, Signal::SIGKILL);
    }
    crashed.wait_exit().await;
    let another = |host: &Host, uri: &str, old: i32| {
        poll_for("another worker", DEADLINE, || {
            let worker = host.ps_entry(uri)["workerPid"].as_i64()?;
            (worker != i64::from(old)).then_some(worker)
        })
    };
    let kept = [
        another(&host, &crashed.uri, dead[0]),
        another(&host, &exited.uri, dead[1]),
    ];
    crashed.assert_equals_snapshot().await;
    let before = host.ps_entry(&crashed.uri);
    for _ in 0..2 {
        host.crash();
        host.start_again();
        let entry = host.ps_entry(&crashed.uri);
        for member in [
            "state",
            "exitCode",
            "signal",
            "title",
            "claim",
            "cols",
            "cwd",
            "id",
            "outputBytes",
            "inputBytes",
        ] {
            assert_eq!(entry[member], before[member], "{member}");
        }
        assert_eq!(
            (&entry["state"], &entry["workerPid"]),
            (&json!("crashed"), &json!(kept[0]))
        );
        assert_eq!(entry["shellPid"], Value::Null);
        let entry = host.ps_entry(&exited.uri);
        assert_eq!(
            (&entry["state"], &entry["exitCode"]),
            (&json!("exited"), &json!(3))
        );
        assert_eq!(entry["workerPid"], json!(kept[1]));
    }
    let raw = Raw::open(&host).await;
    let mut again = Term::subscribe(&raw, &crashed.uri).await;
    assert_eq!(again.folded.text(), crashed.folded.text());
    again.assert_equals_snapshot().await;
    // It can be started again like any other, and disposed of.
    let restarted = host.cli(&["restart", "build"]);
    assert!(restarted.status.success(), "{restarted:?}");
    assert!(is_gone(i32::try_from(kept[0]).unwrap()));
    let mut again = Term::subscribe(&raw, &crashed.uri).await;
    assert!(again.folded.text().contains("was killed by SIGKILL"));
    again.wait_prompt().await;
    assert_eq!(again.output_of("echo lives").await.trim(), "lives");
    raw.request("disposeTerminal", json!({"channel": exited.uri}))
        .await
        .unwrap();
    assert!(is_gone(i32::try_from(kept[1]).unwrap()));
    host.stop();
}

#[tokio::test]
async fn s35_on_exit_keep_leaves_the_shells_to_the_next_one_and_shutdown_ends_them() {
    let mut host = Host::builder().dash().option("--on-exit", "keep").start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("kept=yes").await;
    let before = host.pids(&terminal.uri);
    for _ in 0..2 {
        host.remember_family();
        host.signal(Signal::SIGTERM);
        assert!(host.wait_end().success());
        assert!(!is_gone(before.0) && !is_gone(before.1));
        host.start_again();
        assert_eq!(host.pids(&terminal.uri), before);
    }
    assert_eq!(raw.wait_closed().await.0, 1001);
    let raw = Raw::open(&host).await;
    let mut again = Term::subscribe(&raw, &terminal.uri).await;
    assert_eq!(again.output_of("echo $kept").await.trim(), "yes");
    assert!(host.cli(&["shutdown"]).status.success());
    assert!(host.wait_end().success());
    assert!(
        is_gone(before.0) && is_gone(before.1),
        "what was kept is ended"
    );
    host.stop();
}

#[tokio::test]
async fn an_upgrade_takes_over_though_the_programs_were_replaced() {
    let mut host = Host::builder().dash().own_binaries().start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("kept=yes").await;
    host.crash();
    for name in ["shellward", "shellward-worker"] {
        // As scripts/build does it: by renaming, so that what runs keeps its file.
        let path = host.folder().join("bin").join(name);
        let new = path.with_extension("new");
        fs::copy(&path, &new).unwrap();
        fs::rename(&new, &path).unwrap();
    }
    host.start_again();
    let raw = Raw::open(&host).await;
    let mut again = Term::subscribe(&raw, &terminal.uri).await;
    assert_eq!(again.output_of("echo $kept").await.trim(), "yes");
    let mut new = Term::create(&raw).await;
    assert_eq!(new.output_of("echo new").await.trim(), "new");
    host.stop();
}

#[tokio::test]
async fn without_a_supervisor_everything_ends_after_the_orphan_timeout() {
    let mut host = Host::builder()
        .dash()
        .option("--orphan-timeout", "1s")
        .start();
    let raw = Raw::open(&host).await;
    let terminal = Term::create(&raw).await;
    let (worker, shell) = host.pids(&terminal.uri);
    host.crash();
    let begun = Instant::now();
    poll_for("the end of both", DEADLINE, || {
        (is_gone(worker) && is_gone(shell)).then_some(())
    });
    assert!(
        begun.elapsed() > Duration::from_millis(900),
        "{:?}",
        begun.elapsed()
    );
    let left = fs::read_dir(host.runtime_dir().join("w1")).unwrap().count();
    assert_eq!(left, 0, "no socket and no token");
    host.start_again();
    assert_eq!(host.ps()["terminals"], json!([]));
    host.stop();
}

#[tokio::test]
async fn an_older_supervisor_and_a_wrong_token_are_refused_and_the_shell_lives() {
    let mut host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("true").await;
    let (worker, _) = host.pids(&terminal.uri);
    host.crash();
    // Somebody has lost the state directory: its count of starts begins anew.
    let epoch = host.folder().join("s/epoch");
    let counted: u64 = fs::read_to_string(&epoch).unwrap().trim().parse().unwrap();
    fs::write(&epoch, "0\n").unwrap();
    host.start_again();
    assert_eq!(counted, 1);
    let own = host.runtime_dir().join("epoch");
    assert_eq!(fs::read_to_string(&own).unwrap(), "2\n");
    assert_eq!(
        host.pids(&terminal.uri).0,
        worker,
        "the runtime directory counts, too"
    );
    host.crash();
    fs::write(&epoch, "7\n").unwrap();
    host.start_again();
    host.crash();
    fs::write(&epoch, "2\n").unwrap();
    fs::remove_file(&own).unwrap();
    host.start_again();
    let left = unadopted(&host);
    let reason = left[0]["reason"].as_str().unwrap();
    assert!(
        reason.contains("a newer supervisor") && reason.contains(&format!("(process {worker})")),
        "{reason}"
    );
    assert!(!is_gone(worker));
    host.crash();
    fs::write(&epoch, "20\n").unwrap();
    let token = fs::read_dir(host.runtime_dir().join("w1"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|kind| kind == "token"))
        .unwrap();
    let right = fs::read(&token).unwrap();
    assert_eq!(
        fs::metadata(&token).unwrap().permissions().mode() & 0o777,
        0o600
    );
    for wrong in [vec![0; right.len()], vec![1; 3], Vec::new(), vec![2; 1000]] {
        fs::write(&token, wrong).unwrap();
        host.start_again();
        assert_eq!(unadopted(&host).len(), 1);
        assert!(!is_gone(worker));
        host.crash();
    }
    fs::write(&token, right).unwrap();
    host.start_again();
    assert_eq!(host.pids(&terminal.uri).0, worker);
    host.stop();
}

#[tokio::test]
async fn clients_clear_rename_and_claim_and_the_next_supervisor_knows() {
    let mut host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("echo old").await;
    terminal.act(json!({"type": "terminal/cleared"})).await;
    terminal
        .act(json!({"type": "terminal/titleChanged", "title": "other"}))
        .await;
    let claim = json!({"kind": "session", "session": "ahp-session:/s", "chat": "ahp-chat:/c"});
    terminal
        .act(json!({"type": "terminal/claimed", "claim": claim}))
        .await;
    terminal
        .act(json!({"type": "terminal/resized", "cols": 91, "rows": 33}))
        .await;
    terminal.output_of("echo new").await;
    terminal.assert_equals_snapshot().await;
    host.crash();
    host.start_again();
    let raw = Raw::open(&host).await;
    let again = Term::subscribe(&raw, &terminal.uri).await;
    assert_eq!(again.folded.state, terminal.folded.state);
    assert!(
        !again.folded.text().contains("old"),
        "{}",
        again.folded.text()
    );
    host.stop();
}
