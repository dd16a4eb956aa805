//! One worker among three dies or stops: its terminal ends with words and a code, nobody else notices.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use shellward_tests::{DEADLINE, Host, ROOT, Raw, Term, json, poll_for, proc};

/// Three terminals; the worker of the second gets `signal`.
async fn one_of_three(signal: Signal, expected: Option<&str>, limit: Duration) {
    let mut host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminals = Vec::new();
    for _ in 0..3 {
        let mut terminal = Term::create(&raw).await;
        terminal.output_of("mine=$$; echo ready").await;
        terminals.push(terminal);
    }
    let started = terminals[1]
        .output_of("sleep 1011 & (trap '' HUP TERM; exec sleep 1012) & setsid sleep 1013 & echo go")
        .await;
    assert!(started.contains("go"));
    let (worker, shell) = host.pids(&terminals[1].uri);
    let family = poll_for("three sleeps below the worker", DEADLINE, || {
        let family = proc::descendants(worker);
        (family
            .iter()
            .filter(|process| process.name == "sleep")
            .count()
            == 3)
            .then_some(family)
    });
    assert!(family.iter().any(|process| process.pid == shell));
    let supervisor = proc::Process::read(host.pid).unwrap();
    let text_before = terminals[1].seen.len();
    let mark = raw.mark();

    kill(Pid::from_raw(worker), signal).unwrap();

    let action = terminals[1]
        .wait("the end of the terminal", limit, |_, _, params| {
            (params["action"]["type"] == "terminal/exited").then(|| params["action"].clone())
        })
        .await;
    assert_eq!(action["exitCode"], 128, "{action}");
    match expected {
        Some(name) => assert_eq!(action["signal"], name, "{action}"),
        None => assert!(
            action["signal"]
                .as_str()
                .is_some_and(|name| name.starts_with("SIG")),
            "{action}"
        ),
    }
    let words = terminals[1].seen[text_before..].trim().to_owned();
    assert!(
        words.split_whitespace().count() >= 3,
        "words that say what happened: {words:?}"
    );
    let list = raw
        .wait_from(mark, "the list", |message| {
            let params = &message["params"];
            (params["channel"] == ROOT && params["action"]["type"] == "root/terminalsChanged")
                .then(|| params["action"]["terminals"].clone())
        })
        .await;
    let states: Vec<&str> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["lifecycle"]["status"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["running", "exited", "running"]);

    // The tree of the dead worker is gone, the others are as they were.
    for process in &family {
        poll_for(&format!("the end of {process:?}"), DEADLINE, || {
            (!process.is_alive()).then_some(())
        });
    }
    poll_for("the end of the worker", DEADLINE, || {
        proc::Process::read(worker).is_none().then_some(())
    });
    for index in [0, 2] {
        let (_, shell) = host.pids(&terminals[index].uri);
        let answer = terminals[index].output_of("echo $mine").await;
        assert_eq!(answer.trim(), shell.to_string());
    }
    assert!(host.is_running() && supervisor.is_alive());
    // The dead one is a terminal like any exited one.
    terminals[1].assert_equals_snapshot().await;
    let mark = raw.mark();
    let seq = terminals[1].input("x").await;
    raw.wait_refusal(mark, &terminals[1].uri, seq).await;
    raw.request("disposeTerminal", json!({"channel": terminals[1].uri}))
        .await
        .unwrap();
    // And there is room for a new one.
    let mut fresh = Term::create(&raw).await;
    assert_eq!(fresh.output_of("echo new").await.trim(), "new");
    host.stop();
}

#[tokio::test]
async fn a_worker_killed_with_9_ends_its_terminal_alone() {
    one_of_three(Signal::SIGKILL, Some("SIGKILL"), DEADLINE).await;
}

#[tokio::test]
async fn a_worker_with_a_memory_fault_ends_its_terminal_alone() {
    one_of_three(Signal::SIGSEGV, Some("SIGSEGV"), DEADLINE).await;
}

#[tokio::test]
async fn a_worker_that_aborts_ends_its_terminal_alone() {
    one_of_three(Signal::SIGABRT, Some("SIGABRT"), DEADLINE).await;
}

#[tokio::test]
async fn a_worker_that_is_stopped_ends_its_terminal_alone() {
    one_of_three(Signal::SIGSTOP, None, Duration::from_secs(15)).await;
}

#[tokio::test]
async fn a_worker_killed_during_a_flood_ends_its_terminal_and_keeps_what_was_shown() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.line("yes 0123456789").await;
    terminal
        .wait_text(&["0123456789"; 3].join(terminal.newline()))
        .await;
    let (worker, _) = host.pids(&terminal.uri);
    kill(Pid::from_raw(worker), Signal::SIGKILL).unwrap();
    let action = terminal.wait_exit().await;
    assert_eq!(
        (&action["exitCode"], &action["signal"]),
        (&json!(128), &json!("SIGKILL"))
    );
    terminal.assert_equals_snapshot().await;
    host.stop();
}

#[tokio::test]
async fn a_worker_killed_while_it_starts_leaves_no_half_terminal() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    for _ in 0..10 {
        let uri = shellward_tests::term::new_uri();
        let create = raw
            .start_request(
                "createTerminal",
                shellward_tests::term::create_params(&raw, &uri, json!({})),
            )
            .await;
        // After three that died so early, the next one is a probe's, which is another matter.
        let worker = poll_for("a worker", DEADLINE, || {
            let is_probe = |pid| proc::command_line(pid).contains("probe");
            host.workers()
                .into_iter()
                .find(|process| !is_probe(process.pid))
        });
        // It may have gone further meanwhile; either way there is one clear answer.
        let _ = kill(Pid::from_raw(worker.pid), Signal::SIGKILL);
        match raw.response(create).await {
            Ok(_) => {
                let mut terminal = Term::subscribe(&raw, &uri).await;
                if terminal.snapshot["state"]["lifecycle"]["status"] == "running" {
                    terminal.wait_exit().await;
                }
                raw.request("disposeTerminal", json!({"channel": uri}))
                    .await
                    .unwrap();
            }
            Err(error) => {
                assert!(!error.message.is_empty());
                let gone = raw
                    .request("disposeTerminal", json!({"channel": uri}))
                    .await;
                assert_eq!(gone.unwrap_err().code, -32008);
            }
        }
        host.wait_no_workers();
    }
    let root = raw
        .request("subscribe", json!({"channel": ROOT}))
        .await
        .unwrap();
    assert_eq!(root["snapshot"]["state"]["terminals"], json!([]));
    host.stop();
}

#[tokio::test]
async fn int_ends_the_host_in_order_too() {
    let mut host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("sleep 1014 & echo x").await;
    let family = proc::descendants(host.pid);
    host.signal(Signal::SIGINT);
    let status = host.wait_end();
    assert!(status.success(), "{status}");
    let (code, _) = raw.wait_closed().await;
    assert_ne!(code, 1006, "the client is told");
    for process in family {
        poll_for(&format!("the end of {process:?}"), DEADLINE, || {
            (!process.is_alive()).then_some(())
        });
    }
    host.stop();
}
