//! The operator's commands, against a host found by its runtime directory.

use std::process::Output;

use shellward_tests::{DEADLINE, Host, Raw, Term, Value, json, on_pipes, poll_for, proc};

#[track_caller]
fn ok(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{:?}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[track_caller]
fn fails(output: &Output, code: i32) -> String {
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{words}");
    assert!(!words.trim().is_empty(), "it says why");
    assert!(!words.contains("panicked"), "{words}");
    words
}

/// `read` until it shows `needle`.
fn read_until(host: &Host, name: &str, needle: &str) -> String {
    poll_for(&format!("{needle:?} in {name}"), DEADLINE, || {
        let text = ok(&host.cli(&["read", name]));
        text.contains(needle).then_some(text)
    })
}

#[test]
fn new_send_read_shows_hi() {
    let host = Host::builder().dash().start();
    ok(&host.cli(&["new", "--name", "build"]));
    ok(&host.cli(&["send", "build", "echo hi\\r"]));
    let text = read_until(&host, "build", "\nhi\n");
    assert!(text.contains("echo hi"), "{text}");
    host.stop();
}

#[test]
fn the_acceptance_line_works_in_a_shell_with_bash() {
    let host = Host::start();
    // The very line of the issue.
    let script =
        "shellward new --name build && shellward send build 'echo hi\\r' && shellward read build";
    let path = format!(
        "{}:/usr/bin:/bin",
        shellward_tests::builder::binaries().display()
    );
    let mut command = std::process::Command::new("/bin/sh");
    command
        .args(["-c", script])
        .env_clear()
        .env("PATH", path)
        .env("HOME", host.folder())
        .env("SHELLWARD_RUNTIME_DIR", host.runtime_dir());
    let text = ok(&command.output().unwrap());
    assert!(text.contains("\nhi\n"), "typed and printed: {text}");
    host.stop();
}

#[test]
fn the_runtime_directory_is_a_flag_before_or_after_or_a_variable() {
    let host = Host::builder().dash().start();
    let folder = host.runtime_dir().to_str().unwrap().to_owned();
    ok(&host.cli(&["ps"]));
    ok(&host
        .cli_command()
        .args(["--runtime-dir", &folder, "ps"])
        .output()
        .unwrap());
    ok(&host
        .cli_command()
        .args(["ps", "--runtime-dir", &folder])
        .output()
        .unwrap());
    // Where nobody serves: not available, in words.
    for nowhere in ["/tmp/no-such-runtime-dir", host.folder().to_str().unwrap()] {
        fails(
            &host
                .cli_command()
                .args(["--runtime-dir", nowhere, "ps"])
                .output()
                .unwrap(),
            3,
        );
    }
    host.stop();
}

#[tokio::test]
async fn ps_json_has_the_documented_members() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal =
        Term::create_with(&raw, json!({"name": "one", "cols": 100, "rows": 30})).await;
    terminal.output_of("echo x").await;
    let listing = host.ps();
    let supervisor = &listing["supervisor"];
    assert_eq!(supervisor["pid"], host.pid);
    assert!(supervisor["version"].is_string(), "{supervisor}");
    assert_eq!(supervisor["url"], host.ready["url"]);
    assert_eq!(supervisor["socket"], host.ready["socket"]);
    assert_eq!(supervisor["pty"], !on_pipes());
    assert!(supervisor.get("probe").is_some(), "{supervisor}");
    let entry = &listing["terminals"][0];
    assert_eq!(entry["uri"], terminal.uri.as_str());
    assert!(
        entry["id"].as_str().is_some_and(|id| !id.is_empty()),
        "{entry}"
    );
    assert_eq!(entry["title"], "one");
    assert_eq!(entry["state"], "running");
    assert_eq!(entry["isPty"], !on_pipes());
    assert_eq!((&entry["cols"], &entry["rows"]), (&json!(100), &json!(30)));
    assert_eq!(entry["restarts"], 0);
    assert!(
        entry["createdAt"].is_string() || entry["createdAt"].is_u64(),
        "{entry}"
    );
    for member in ["workerPid", "shellPid", "cwd", "claim", "person", "account"] {
        assert!(entry.get(member).is_some(), "{member} in {entry}");
    }
    assert!(entry.get("exitCode").is_none(), "{entry}");
    terminal.line("exit 3").await;
    terminal.wait_exit().await;
    let entry = host.ps_entry(&terminal.uri);
    assert_eq!(entry["exitCode"], 3);
    assert_eq!(entry["state"], "exited");
    host.stop();
}

#[test]
fn three_terminals_are_three_workers_and_killing_one_leaves_two() {
    let host = Host::builder().dash().start();
    for name in ["a", "b", "c"] {
        ok(&host.cli(&["new", "--name", name]));
        ok(&host.cli(&["send", name, "echo up-$((1+1))\\r"]));
        read_until(&host, name, "up-2");
    }
    let listing = host.ps();
    let workers: Vec<i64> = listing["terminals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["workerPid"].as_i64().unwrap())
        .collect();
    assert_eq!(workers.len(), 3);
    let victim = nix::unistd::Pid::from_raw(i32::try_from(workers[1]).unwrap());
    nix::sys::signal::kill(victim, nix::sys::signal::Signal::SIGKILL).unwrap();
    poll_for("two running", DEADLINE, || {
        let listing = host.ps();
        let running = listing["terminals"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|entry| entry["state"] == "running")
            .count();
        (running == 2).then_some(())
    });
    for name in ["a", "c"] {
        ok(&host.cli(&["send", name, "echo still-$((1+2))\\r"]));
        read_until(&host, name, "still-3");
    }
    let table = ok(&host.cli(&["ps"]));
    for name in ["a", "b", "c", "SIGKILL"] {
        assert!(table.contains(name), "{name} in\n{table}");
    }
    host.stop();
}

#[tokio::test]
async fn send_understands_its_escapes() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create_with(&raw, json!({"name": "t"})).await;
    // On pipes Enter is a newline, together with one that follows.
    let (count, enter) = if on_pipes() {
        (11, "0a")
    } else {
        (12, "0d 0a")
    };
    terminal
        .start_reader(&format!(
            "dd bs=1 count={count} 2>/dev/null | od -An -tx1 -w99"
        ))
        .await;
    ok(&host.cli(&["send", "t", "a\\r\\n\\t\\e\\x41\\x7f\\x00\\\\\\u{e9}"]));
    ok(&host.cli(&["send", "t", "z"]));
    terminal
        .wait_text(&format!(" 61 {enter} 09 1b 41 7f 00 5c c3 a9 7a"))
        .await;
    host.stop();
}

#[tokio::test]
async fn a_terminal_is_named_by_uri_id_prefix_or_title() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let terminal = Term::create_with(&raw, json!({"name": "named"})).await;
    let id = host.ps_entry(&terminal.uri)["id"]
        .as_str()
        .unwrap()
        .to_owned();
    for name in [
        terminal.uri.as_str(),
        id.as_str(),
        &id[..id.len() - 1],
        "named",
    ] {
        ok(&host.cli(&["read", name]));
    }
    fails(&host.cli(&["read", "no-such-terminal"]), 1);
    // Two with the same title: not unambiguous, and it says so.
    Term::create_with(&raw, json!({"name": "named"})).await;
    let words = fails(&host.cli(&["read", "named"]), 1);
    assert!(words.contains("named"), "{words}");
    host.stop();
}

#[tokio::test]
async fn rename_clear_and_kill_do_what_they_say() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create_with(&raw, json!({"name": "old"})).await;
    terminal.output_of("echo remember-me").await;
    ok(&host.cli(&["rename", "old", "new name"]));
    terminal
        .wait("the title", DEADLINE, |folded, _, _| {
            (folded.state.title == "new name").then_some(())
        })
        .await;
    assert!(ok(&host.cli(&["read", "new name"])).contains("remember-me"));
    ok(&host.cli(&["clear", "new name"]));
    terminal
        .wait("the clear", DEADLINE, |_, _, params| {
            (params["action"]["type"] == "terminal/cleared").then_some(())
        })
        .await;
    assert!(!ok(&host.cli(&["read", "new name"])).contains("remember-me"));
    let (worker, shell) = host.pids(&terminal.uri);
    let family: Vec<proc::Process> = [worker, shell]
        .iter()
        .filter_map(|pid| proc::Process::read(*pid))
        .collect();
    ok(&host.cli(&["kill", "new name"]));
    for process in family {
        poll_for(&format!("the end of {process:?}"), DEADLINE, || {
            (!process.is_alive()).then_some(())
        });
    }
    host.stop();
}

#[test]
fn new_prints_what_names_the_terminal_and_takes_a_directory_and_json() {
    let host = Host::builder().dash().start();
    let printed = ok(&host.cli(&["new", "--name", "x"]));
    let word = printed
        .split_whitespace()
        .next()
        .expect("a name is printed")
        .to_owned();
    ok(&host.cli(&["read", &word]));
    let printed = ok(&host.cli(&["new", "--name", "y", "--json"]));
    let value: Value = serde_json::from_str(&printed).expect("JSON");
    let uri = value["uri"].as_str().expect("uri").to_owned();
    assert_eq!(host.ps_entry(&uri)["title"], "y");
    host.stop();
}

#[test]
fn read_prints_plain_text_or_with_raw_the_bytes_and_names_an_exited_terminal_too() {
    let host = Host::builder().dash().start();
    ok(&host.cli(&["new", "--name", "x"]));
    ok(&host.cli(&[
        "send",
        "x",
        "printf '\\\\033[31mré''d\\\\033[0m'; exit 4\\r",
    ]));
    let text = read_until(&host, "x", "réd");
    assert!(!text.contains('\u{1b}'), "plain text: {text:?}");
    let raw = ok(&host.cli(&["read", "--raw", "x"]));
    assert!(raw.contains("\u{1b}[31mréd\u{1b}[0m"), "{raw:?}");
    poll_for("the exit", DEADLINE, || {
        (host.ps()["terminals"][0]["exitCode"] == 4).then_some(())
    });
    assert!(ok(&host.cli(&["read", "x"])).contains("réd"));
    fails(&host.cli(&["send", "x", "echo\\r"]), 1);
    host.stop();
}

#[test]
fn shutdown_ends_the_host_and_everything_in_it() {
    let mut host = Host::builder().dash().start();
    ok(&host.cli(&["new", "--name", "x"]));
    let family = proc::descendants(host.pid);
    assert!(!family.is_empty());
    ok(&host.cli(&["shutdown"]));
    let status = host.wait_end();
    assert!(status.success(), "{status}");
    for process in family {
        poll_for(&format!("the end of {process:?}"), DEADLINE, || {
            (!process.is_alive()).then_some(())
        });
    }
    fails(&host.cli(&["ps"]), 3);
    host.stop();
}

#[test]
fn wrong_usage_is_code_2_and_help_is_help() {
    let host = Host::builder().dash().start();
    for words in [
        vec!["nonsense"],
        vec!["send"],
        vec!["read", "--no-such-flag", "x"],
        vec![],
    ] {
        fails(&host.cli(&words), 2);
    }
    let help = ok(&host.cli(&["--help"]));
    for command in [
        "serve", "ps", "new", "read", "send", "wait", "kill", "rename", "clear", "shutdown",
    ] {
        assert!(help.contains(command), "{command} in\n{help}");
        let own = ok(&host.cli(&[command, "--help"]));
        assert!(own.len() > 100, "{command} --help: {own}");
    }
    ok(&host.cli(&["--version"]));
    host.stop();
}

#[test]
fn values_that_make_no_sense_are_code_2_whether_or_not_a_host_runs() {
    let mut host = Host::dash();
    for is_running in [true, false] {
        for (words, said) in [
            (&["wait", "x", "--timeout", "abc"][..], "--timeout"),
            (&["wait", "x", "--timeout", "1x"], "--timeout"),
            (&["wait", "x", "--timeout", "1.5"], "--timeout"),
            (&["wait", "x", "--timeout", ""], "--timeout"),
            (&["send", "x", "bad\\q"], "--raw"),
            (&["read", ""], "name"),
            (&["wait", ""], "name"),
            (&["send", "", "x"], "name"),
            (&["rename", "", "x"], "name"),
            (&["clear", ""], "name"),
            (&["kill", "x", ""], "name"),
            (&["restart", ""], "name"),
            (&["serve", "--listen", "foo"], "--listen"),
            (&["serve", "--listen", "localhost:70000"], "--listen"),
            (&["serve", "--listen", "unix:"], "--listen"),
            (&["serve", "--keep-exited", "1w"], "--keep-exited"),
            (&["probe", "--pty-binding", "a.so"], "--pty-binding"),
        ] {
            let told = fails(&host.cli(words), 2);
            assert!(told.contains(said), "{words:?}: {told}");
        }
        if is_running {
            ok(&host.cli(&["shutdown"]));
            assert!(host.wait_end().success());
        }
    }
    // What is not wrong in itself: no terminal of this name, no host.
    fails(&host.cli(&["wait", "x", "--timeout", "1"]), 3);
    host.stop();
}

#[test]
fn without_ready_json_serve_prints_one_line_for_people() {
    // A second host on a runtime directory of its own, started by hand.
    let host = Host::builder().dash().start();
    let folder = host.folder().join("second");
    let mut command = host.cli_command();
    let mut child = command
        .args(["serve", "--listen", "127.0.0.1:0", "--runtime-dir"])
        .arg(folder.join("r"))
        .arg("--state-dir")
        .arg(folder.join("s"))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(child.stdout.as_mut().unwrap()),
        &mut line,
    )
    .unwrap();
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(
        line.starts_with("shellward listening on ws://127.0.0.1:") && line.contains("(token in "),
        "{line}"
    );
    host.stop();
}

#[test]
fn a_second_host_on_the_same_runtime_directory_is_refused_and_harms_nothing() {
    let host = Host::builder().dash().start();
    let mut command = host.cli_command();
    let output = command
        .args(["serve", "--listen", "127.0.0.1:0", "--runtime-dir"])
        .arg(host.runtime_dir())
        .arg("--state-dir")
        .arg(host.folder().join("s2"))
        .output()
        .unwrap();
    fails(&output, 1);
    ok(&host.cli(&["ps"]));
    host.stop();
}

#[test]
fn an_unknown_key_in_the_configuration_is_named() {
    let builder = Host::builder().dash();
    let file = builder.folder().join("c.toml");
    std::fs::write(&file, "keep-exited = \"5m\"\nno-such-key = 1\n").unwrap();
    let output = builder
        .option("--config", file.to_str().unwrap())
        .run_to_end();
    let code = output.status.code();
    assert!(code == Some(1) || code == Some(2), "{output:?}");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("no-such-key"), "{words}");
}

#[test]
fn the_configuration_file_has_the_flags_names() {
    let builder = Host::builder();
    let file = builder.folder().join("c.toml");
    std::fs::write(&file, "shell = \"/bin/dash\"\nclaims = \"open\"\n").unwrap();
    let host = builder.option("--config", file.to_str().unwrap()).start();
    ok(&host.cli(&["new"]));
    assert_eq!(host.ps()["terminals"][0]["title"], "dash");
    host.stop();
}

#[test]
fn a_host_that_does_not_answer_is_3_and_named() {
    use nix::sys::signal::Signal;
    let host = Host::builder().dash().start();
    host.signal(Signal::SIGSTOP);
    let from = std::time::Instant::now();
    let words = [&["ps"][..], &["new"], &["wait", "x"], &["probe"]].map(|command| {
        let mut child = host.cli_command();
        child
            .env("SHELLWARD_RUNTIME_DIR", host.runtime_dir())
            .args(command)
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    });
    for child in words {
        let words = fails(&child.wait_with_output().unwrap(), 3);
        assert!(words.contains("does not answer"), "{words}");
        assert!(words.contains(&format!("pid {}", host.pid)), "{words}");
    }
    let took = from.elapsed().as_secs();
    assert!((9..25).contains(&took), "{took} s");
    host.signal(Signal::SIGCONT);
    host.stop();
}
