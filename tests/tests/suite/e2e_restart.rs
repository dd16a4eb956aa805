//! A new shell in a terminal that goes on: asked for by an operator, or after a crash.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use shellward_tests::{DEADLINE, Host, ROOT, Raw, Term, json, poll_for};

fn kill_worker(host: &Host, uri: &str) {
    kill(Pid::from_raw(host.pids(uri).0), Signal::SIGKILL).unwrap();
}

/// The terminal's entry once its shell was started again so often.
fn after_restart(host: &Host, uri: &str, restarts: u64) -> shellward_tests::Value {
    poll_for("the next shell", DEADLINE, || {
        let entry = host.ps_entry(uri);
        (entry["restarts"] == restarts && entry["state"] == "running").then_some(entry)
    })
}

#[tokio::test]
async fn restart_gives_a_running_terminal_a_new_shell_where_the_old_one_was() {
    let host = Host::start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create_with(&raw, json!({"name": "build", "cols": 101})).await;
    terminal.wait_prompt().await;
    terminal.line("cd /usr/share; old=yes; echo be''fore").await;
    terminal.wait_text("before\r\n").await;
    terminal.wait_prompt().await;
    // Something that only KILL ends is in the way.
    terminal.line("trap '' HUP TERM; sleep 1021").await;
    let before = poll_for("the command runs", DEADLINE, || {
        let entry = host.ps_entry(&terminal.uri);
        (entry["lastCommand"]["isComplete"] == false && entry["lastCommand"]["commandId"] == "2")
            .then_some(entry)
    });
    let mark = raw.mark();
    let restarted = host.cli(&["restart", "build"]);
    assert!(restarted.status.success(), "{restarted:?}");
    terminal
        .wait_text("the shell was started again at 20")
        .await;
    terminal.wait_prompt().await;
    let entry = host.ps_entry(&terminal.uri);
    for member in [
        "uri",
        "id",
        "title",
        "claim",
        "cols",
        "rows",
        "cwd",
        "createdAt",
    ] {
        assert_eq!(entry[member], before[member], "{member}");
    }
    assert_ne!(entry["workerPid"], before["workerPid"]);
    assert_ne!(entry["shellPid"], before["shellPid"]);
    assert_eq!(entry["restarts"], 1);
    assert_eq!(
        terminal.output_of("pwd; echo [$old]").await.trim(),
        "/usr/share\r\n[]"
    );
    for message in raw.since(mark) {
        let kind = &message["params"]["action"]["type"];
        assert_ne!(kind, "terminal/exited", "{message}");
        if kind == "root/terminalsChanged" {
            assert_eq!(
                message["params"]["action"]["terminals"]
                    .as_array()
                    .unwrap()
                    .len(),
                1
            );
        }
    }
    let text = terminal.folded.text();
    assert!(
        text.find("before\r\n") < text.find("was started again"),
        "{text}"
    );
    // The command that was ended has an end, and the next shell's have numbers of their own.
    terminal.line("false").await;
    let executed = terminal
        .wait("the next command", DEADLINE, |_, _, params| {
            let action = &params["action"];
            (action["type"] == "terminal/commandExecuted" && action["commandLine"] == "false")
                .then(|| action.clone())
        })
        .await;
    assert!(
        executed["commandId"]
            .as_str()
            .unwrap()
            .parse::<u64>()
            .unwrap()
            > 2,
        "{executed}"
    );
    raw.settle().await;
    terminal.assert_equals_snapshot().await;
    host.stop();
}

#[tokio::test]
async fn what_was_shown_before_a_restart_outlives_the_supervisor_too() {
    let mut host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("echo before-the-restart").await;
    assert!(host.cli(&["restart", &terminal.uri]).status.success());
    terminal
        .wait_text("the shell was started again at 20")
        .await;
    terminal.output_of("echo after-the-restart").await;
    raw.settle().await;
    host.crash();
    host.start_again();
    let raw = Raw::open(&host).await;
    let again = Term::subscribe(&raw, &terminal.uri).await;
    assert_eq!(again.folded.text(), terminal.folded.text());
    assert_eq!(host.ps_entry(&terminal.uri)["restarts"], 1);
    host.stop();
}

#[tokio::test]
async fn restart_of_an_exited_terminal_takes_it_off_the_list_and_puts_it_back() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("echo before").await;
    terminal.line("exit 3").await;
    terminal.wait_exit().await;
    let mark = raw.mark();
    raw.request(
        "x-shellward/restartWorker",
        json!({"channel": terminal.uri}),
    )
    .await
    .unwrap();
    let lists: Vec<_> = raw
        .actions_since(mark, ROOT)
        .into_iter()
        .map(|params| params["action"]["terminals"].clone())
        .collect();
    assert_eq!(lists.len(), 2, "{lists:?}");
    assert_eq!(lists[0], json!([]));
    assert_eq!(lists[1][0]["resource"], terminal.uri.as_str());
    assert_eq!(lists[1][0]["lifecycle"]["status"], "running");
    let mut again = Term::subscribe(&raw, &terminal.uri).await;
    assert!(again.folded.text().contains("before"));
    assert_eq!(again.snapshot["state"].get("exitCode"), None);
    assert_eq!(again.output_of("echo alive").await.trim(), "alive");
    again.assert_equals_snapshot().await;
    host.stop();
}

#[tokio::test]
async fn s04_restart_of_what_never_was_or_is_ending_is_answered_calmly() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut other = Term::create(&raw).await;
    let restart = |uri: &str| raw.request("x-shellward/restartWorker", json!({"channel": uri}));
    assert_eq!(
        restart("ahp-terminal:/never-was").await.unwrap_err().code,
        -32008
    );
    assert_eq!(restart(ROOT).await.unwrap_err().code, -32008);
    let output = host.cli(&["restart", "never-was"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    // Asked for twice at once, and while it is disposed of: each gets one answer.
    let terminal = Term::create(&raw).await;
    let first = raw
        .start_request(
            "x-shellward/restartWorker",
            json!({"channel": terminal.uri}),
        )
        .await;
    let second = raw
        .start_request(
            "x-shellward/restartWorker",
            json!({"channel": terminal.uri}),
        )
        .await;
    let disposal = raw
        .start_request("disposeTerminal", json!({"channel": terminal.uri}))
        .await;
    let late = raw
        .start_request(
            "x-shellward/restartWorker",
            json!({"channel": terminal.uri}),
        )
        .await;
    assert!(raw.response(first).await.is_ok());
    assert!(raw.response(second).await.is_ok());
    assert!(raw.response(disposal).await.is_ok());
    assert_eq!(raw.response(late).await.unwrap_err().code, -32008);
    assert_eq!(other.output_of("echo fine").await.trim(), "fine");
    host.stop();
}

#[tokio::test]
async fn after_a_crash_the_shell_is_started_again_and_not_the_third_time() {
    let host = Host::builder()
        .dash()
        .option("--restart", "on-crash")
        .start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("echo first").await;
    for restarts in 1..=2 {
        kill_worker(&host, &terminal.uri);
        after_restart(&host, &terminal.uri, restarts);
        assert_eq!(terminal.output_of("echo alive").await.trim(), "alive");
    }
    kill_worker(&host, &terminal.uri);
    let exited = terminal.wait_exit().await;
    assert_eq!(exited["signal"], "SIGKILL");
    let text = terminal.folded.text();
    assert!(
        text.contains("was killed by SIGKILL; its shell is started again"),
        "{text}"
    );
    assert!(
        text.contains("is not started again, because this was the 3rd time in 60 s"),
        "{text}"
    );
    assert_eq!(host.ps_entry(&terminal.uri)["state"], "crashed");
    terminal.assert_equals_snapshot().await;
    // An operator may still.
    assert!(host.cli(&["restart", &terminal.uri]).status.success());
    let mut again = Term::subscribe(&raw, &terminal.uri).await;
    assert_eq!(again.output_of("echo alive").await.trim(), "alive");
    host.stop();
}

#[tokio::test]
async fn the_time_that_the_old_worker_had_to_end_is_not_the_new_ones() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("true").await;
    assert!(host.cli(&["restart", &terminal.uri]).status.success());
    terminal.wait_text("was started again").await;
    let new = host.pids(&terminal.uri);
    // An old worker that had not ended by then would be killed after 4 s.
    tokio::time::sleep(std::time::Duration::from_millis(4500)).await;
    assert_eq!(terminal.output_of("echo alive").await.trim(), "alive");
    assert_eq!(host.pids(&terminal.uri), new);
    host.stop();
}

#[tokio::test]
async fn a_shutdown_in_the_middle_of_a_restart_leaves_nothing() {
    let mut host = Host::builder()
        .dash()
        .option("--restart", "on-crash")
        .start();
    let raw = Raw::open(&host).await;
    let terminal = Term::create(&raw).await;
    let other = Term::create(&raw).await;
    kill_worker(&host, &terminal.uri);
    raw.start_request("x-shellward/restartWorker", json!({"channel": other.uri}))
        .await;
    raw.settle().await;
    host.signal(Signal::SIGTERM);
    assert!(host.wait_end().success());
    host.stop();
}
