//! `wait` and `read --last-command`, in dash with marks printed by hand and in bash with our script.

use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use shellward_tests::{DEADLINE, Host, Value, json, poll_for};

#[track_caller]
fn ok(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The exit code, and what was said on stderr.
fn code(output: &Output) -> (i32, String) {
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!words.contains("panicked"), "{words}");
    (output.status.code().expect("an exit code"), words)
}

/// Types a line and Enter.
fn line(host: &Host, name: &str, line: &str) {
    ok(&host.cli(&["send", "--raw", name, &format!("{line}\r")]));
}

fn start(host: &Host, words: &[&str]) -> Child {
    host.cli_command()
        .env("SHELLWARD_RUNTIME_DIR", host.runtime_dir())
        .args(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The state of the last command in `ps --json`.
fn last_command(host: &Host) -> Value {
    host.ps()["terminals"][0]["lastCommand"].clone()
}

fn wait_command(host: &Host, wanted: Value) {
    poll_for(
        &format!("the last command to be {wanted}"),
        DEADLINE,
        || (last_command(host)["isComplete"] == wanted).then_some(()),
    );
}

fn dash() -> Host {
    let host = Host::builder().dash().start();
    ok(&host.cli(&["new", "--name", "x"]));
    host
}

#[test]
fn wait_for_a_command_that_was_just_sent_or_runs_or_has_run() {
    let host = dash();
    // No sleep between the two: that is how scripts do it.
    line(
        &host,
        "x",
        "printf '\\033]133;C\\007'; sleep 0.7; printf 'out\\033]133;D;42\\007'",
    );
    let (exit, words) = code(&host.cli(&["wait", "x", "--command"]));
    assert_eq!((exit, words.as_str()), (42, ""));
    // None runs: at once, or after a moment, the last one's.
    let from = Instant::now();
    assert_eq!(
        code(&host.cli(&["wait", "x", "--command", "--no-wait"])).0,
        42
    );
    assert!(from.elapsed() < Duration::from_secs(2));
    assert_eq!(code(&host.cli(&["wait", "x", "--command"])).0, 42);
    line(
        &host,
        "x",
        "printf '\\033]133;C\\007'; read go; printf '\\033]133;D;3\\007'",
    );
    wait_command(&host, json!(false));
    let waiting = start(&host, &["wait", "x", "--command"]);
    let impatient = code(&host.cli(&["wait", "x", "--command", "--timeout", "1s"]));
    assert_eq!(impatient.0, 124);
    assert!(impatient.1.contains("1s"), "{}", impatient.1);
    // Also after a clear: the state has forgotten it, its end comes all the same.
    ok(&host.cli(&["clear", "x"]));
    line(&host, "x", "");
    assert_eq!(code(&waiting.wait_with_output().unwrap()).0, 3);
    let (exit, words) = code(&host.cli(&["read", "x", "--last-command"]));
    assert_eq!(exit, 1);
    assert!(words.contains("no longer kept"), "{words}");
    host.stop();
}

#[test]
fn a_line_that_starts_no_command_is_no_answer() {
    let host = Host::builder().option("--shell", "/bin/bash").start();
    ok(&host.cli(&["new", "--name", "x"]));
    line(&host, "x", "true");
    assert_eq!(code(&host.cli(&["wait", "x", "--command"])).0, 0);
    for typed in ["if then", "", "echo 'open"] {
        line(&host, "x", typed);
        let (exit, words) = code(&host.cli(&["wait", "x", "--command"]));
        assert_eq!(exit, 1, "{typed:?}");
        assert!(words.contains("started no command"), "{words}");
    }
    // The rest of the open quote starts one.
    line(&host, "x", "end'; (exit 4)");
    assert_eq!(
        code(&host.cli(&["wait", "x", "--command"])),
        (4, String::new())
    );
    // Nothing typed since: the last one's.
    assert_eq!(code(&host.cli(&["wait", "x", "--command"])).0, 4);
    // The shell's own end has no code as a command, but as a terminal.
    line(&host, "x", "exit 5");
    assert_eq!(
        code(&host.cli(&["wait", "x", "--command"])),
        (5, String::new())
    );
    assert_eq!(
        code(&host.cli(&["wait", "x", "--command"])),
        (5, String::new())
    );
    host.stop();
}

#[test]
fn an_exit_code_that_is_not_known_is_1_with_words() {
    let host = dash();
    for (end, wanted) in [("A", "not known"), ("D", "not known"), ("D;4711", "4711")] {
        line(
            &host,
            "x",
            &format!("printf '\\033]133;C\\007\\033]133;{end}\\007'"),
        );
        let (exit, words) = code(&host.cli(&["wait", "x", "--command"]));
        assert_eq!(exit, 1, "{end}");
        assert!(words.contains(wanted), "{words}");
    }
    host.stop();
}

#[test]
fn a_terminal_without_commands_says_what_is_missing() {
    let host = dash();
    for words in [
        &["wait", "x", "--command"][..],
        &["read", "x", "--last-command", "--json"],
    ] {
        let (exit, words) = code(&host.cli(words));
        assert_eq!(exit, 3);
        assert!(words.contains("marks"), "{words}");
    }
    line(&host, "x", "printf '\\033]133;A\\007'");
    for words in [
        &["wait", "x", "--command"][..],
        &["read", "x", "--last-command"],
    ] {
        let (exit, words) = code(&host.cli(words));
        assert_eq!(exit, 1, "{words}");
        assert!(words.contains("shellward send"), "{words}");
    }
    host.stop();
}

#[test]
fn wait_ends_with_the_terminal_and_its_exit_code() {
    let host = dash();
    let waiting = start(&host, &["wait", "x"]);
    for (given, words) in [("0", "0 s"), ("0m", "0m")] {
        let told = code(&host.cli(&["wait", "x", "--timeout", given]));
        assert_eq!(told, (124, format!("shellward: not within {words}\n")));
    }
    line(&host, "x", "exit 9");
    assert_eq!(code(&waiting.wait_with_output().unwrap()).0, 9);
    assert_eq!(code(&host.cli(&["wait", "x"])).0, 9, "it has ended already");
    // A signal: 128, and its name.
    ok(&host.cli(&["new", "--name", "y"]));
    let waiting = start(&host, &["wait", "y"]);
    line(&host, "y", "kill -9 $$");
    let (exit, words) = code(&waiting.wait_with_output().unwrap());
    assert_eq!(exit, 128);
    assert!(words.contains("SIGKILL"), "{words}");
    // Disposed: an error, and no waiting for ever.
    ok(&host.cli(&["new", "--name", "z"]));
    let waiting = start(&host, &["wait", "z"]);
    std::thread::sleep(Duration::from_millis(200));
    ok(&host.cli(&["kill", "z"]));
    let (exit, words) = code(&waiting.wait_with_output().unwrap());
    assert_eq!(exit, 1);
    assert!(words.contains("somebody disposed"), "{words}");
    assert_eq!(code(&host.cli(&["wait", "x", "--no-wait"])).0, 2);
    host.stop();
}

#[test]
fn wait_says_that_the_host_ended_if_it_did_with_3() {
    for by_shutdown in [true, false] {
        let mut host = dash();
        // Its end takes a moment: HUP and TERM do nothing.
        line(
            &host,
            "x",
            "trap '' HUP TERM; printf '\\033]133;C\\007'; sleep 1016",
        );
        wait_command(&host, json!(false));
        let waiting = [
            start(&host, &["wait", "x"]),
            start(&host, &["wait", "x", "--command"]),
        ];
        std::thread::sleep(Duration::from_millis(300));
        if by_shutdown {
            ok(&host.cli(&["shutdown"]));
        } else {
            host.signal(Signal::SIGTERM);
        }
        for child in waiting {
            let (exit, words) = code(&child.wait_with_output().unwrap());
            assert_eq!(exit, 3, "{words}");
            assert!(
                words.contains("the host ended, and its terminals with it"),
                "{words}"
            );
        }
        assert!(host.wait_end().success());
        host.stop();
    }
}

#[test]
fn whoever_waits_for_a_command_gets_its_end_also_when_the_worker_is_killed() {
    let host = dash();
    line(&host, "x", "printf '\\033]133;C\\007'; sleep 1017");
    wait_command(&host, json!(false));
    let waiting = start(&host, &["wait", "x", "--command"]);
    std::thread::sleep(Duration::from_millis(200));
    let worker = host.ps()["terminals"][0]["workerPid"].as_i64().unwrap();
    kill(
        Pid::from_raw(i32::try_from(worker).unwrap()),
        Signal::SIGKILL,
    )
    .unwrap();
    let (exit, words) = code(&waiting.wait_with_output().unwrap());
    assert_eq!(exit, 128);
    assert!(words.contains("SIGKILL"), "{words}");
    assert_eq!(code(&host.cli(&["wait", "x"])).0, 128);
    host.stop();
}

#[test]
fn the_last_command_is_told_with_its_line_output_code_and_duration() {
    let host = dash();
    line(
        &host,
        "x",
        "printf '\\033]133;B\\007make test\\n\\033]133;C\\007'; sleep 0.2; printf '\\033[31mred\\033[0m\\nplain\\n\\033]133;D;7\\007$ '",
    );
    assert_eq!(code(&host.cli(&["wait", "x", "--command"])).0, 7);
    assert_eq!(
        ok(&host.cli(&["read", "x", "--last-command"])),
        "red\nplain\n"
    );
    assert!(ok(&host.cli(&["read", "x", "--last-command", "--raw"])).contains("\u{1b}[31mred"));
    let report: Value =
        serde_json::from_str(&ok(&host.cli(&["read", "x", "--last-command", "--json"]))).unwrap();
    let entry = &host.ps()["terminals"][0];
    assert_eq!(
        (&report["uri"], &report["id"]),
        (&entry["uri"], &entry["id"])
    );
    assert_eq!(report["commandId"], entry["lastCommand"]["commandId"]);
    assert_eq!(report["commandLine"], "make test");
    assert_eq!(report["output"], "red\nplain\n");
    assert_eq!(report["exitCode"], 7);
    assert_eq!(report["isComplete"], true);
    assert!((150..20_000).contains(&report["durationMs"].as_i64().unwrap()));
    assert!(report["timestamp"].as_i64() > Some(1_600_000_000_000));
    assert_eq!(report.as_object().unwrap().len(), 9, "{report}");
    // One that runs, as far as it is.
    line(&host, "x", "printf '\\033]133;C\\007half'; sleep 1018");
    wait_command(&host, json!(false));
    let report: Value =
        serde_json::from_str(&ok(&host.cli(&["read", "x", "--last-command", "--json"]))).unwrap();
    assert_eq!(
        (
            &report["output"],
            &report["isComplete"],
            &report["exitCode"]
        ),
        (&json!("half"), &json!(false), &Value::Null)
    );
    host.stop();
}

#[test]
fn in_bash_the_exit_codes_are_the_commands_own() {
    let host = Host::start();
    ok(&host.cli(&["new", "--name", "x"]));
    for (typed, exit, printed) in [
        ("true", 0, ""),
        ("echo hi; (exit 9)", 9, "hi\n"),
        ("sleep 0.5; sh -c 'kill -TERM $$'", 143, "Terminated\n"),
    ] {
        line(&host, "x", typed);
        assert_eq!(
            code(&host.cli(&["wait", "x", "--command"])).0,
            exit,
            "{typed}"
        );
        let report: Value =
            serde_json::from_str(&ok(&host.cli(&["read", "x", "--last-command", "--json"])))
                .unwrap();
        assert_eq!(report["commandLine"], typed);
        assert_eq!(report["output"], printed, "{typed}");
    }
    host.stop();
}

/// Every `wait` that runs while the host is killed and started again, and what it comes to.
#[test]
fn a_wait_goes_on_over_a_restart_of_the_host() {
    let mut host = Host::builder().dash().start();
    let go = host.folder().join("go");
    for name in ["ends-away", "ends-later", "another-since", "shell"] {
        ok(&host.cli(&["new", "--name", name]));
    }
    let until = format!("while ! [ -e {} ]; do sleep 0.02; done", go.display());
    let command = |end: &str| format!("printf '\\033]133;C\\007'; {end}");
    let end = |code: u8| format!("printf '\\033]133;D;{code}\\007'");
    line(
        &host,
        "ends-away",
        &command(&format!("{until}; {}", end(41))),
    );
    line(
        &host,
        "ends-later",
        &command(&format!("read go; {}", end(42))),
    );
    let two = format!("{until}; {}; {}", end(43), command(&end(9)));
    line(&host, "another-since", &command(&two));
    poll_for("every command to run", DEADLINE, || {
        let ps = host.ps();
        let running = ps["terminals"].as_array().unwrap().iter();
        (running
            .filter(|t| t["lastCommand"]["isComplete"] == false)
            .count()
            == 3)
            .then_some(())
    });
    let mut waiting: Vec<(Child, i32)> =
        [("ends-away", 41), ("ends-later", 42), ("another-since", 43)]
            .map(|(name, code)| (start(&host, &["wait", name, "--command"]), code))
            .into();
    waiting.push((start(&host, &["wait", "shell"]), 7));
    waiting.push((start(&host, &["wait", "shell", "--timeout", "3s"]), 124));
    std::thread::sleep(Duration::from_millis(500));
    host.crash();
    std::fs::write(&go, "").unwrap();
    std::thread::sleep(Duration::from_millis(700));
    host.start_again();
    line(&host, "ends-later", "");
    let impatient = waiting.pop().unwrap();
    let (exit, words) = code(&impatient.0.wait_with_output().unwrap());
    assert_eq!(exit, impatient.1, "{words}");
    line(&host, "shell", "exit 7");
    for (child, wanted) in waiting {
        let (exit, words) = code(&child.wait_with_output().unwrap());
        assert_eq!((exit, words.as_str()), (wanted, ""));
    }
    host.stop();
}

#[test]
fn a_wait_ends_with_3_if_its_terminal_does_not_come_back() {
    let mut host = dash();
    let waiting = start(&host, &["wait", "x"]);
    let impatient = start(&host, &["wait", "x", "--timeout", "1s"]);
    std::thread::sleep(Duration::from_millis(300));
    let worker = host.ps()["terminals"][0]["workerPid"].as_i64().unwrap();
    host.crash();
    let worker = Pid::from_raw(i32::try_from(worker).unwrap());
    kill(worker, Signal::SIGKILL).unwrap();
    assert_eq!(code(&impatient.wait_with_output().unwrap()).0, 124);
    host.start_again();
    let (exit, words) = code(&waiting.wait_with_output().unwrap());
    assert_eq!(exit, 3, "{words}");
    assert!(words.contains("not there"), "{words}");
    host.stop();
}

#[test]
fn a_wait_for_a_host_that_stays_away_ends_with_3() {
    let mut host = dash();
    let waiting = start(&host, &["wait", "x"]);
    std::thread::sleep(Duration::from_millis(300));
    host.crash();
    let (exit, words) = code(&waiting.wait_with_output().unwrap());
    assert_eq!(exit, 3, "{words}");
    assert!(words.contains("not back after 30 s"), "{words}");
    host.start_again();
    host.stop();
}
