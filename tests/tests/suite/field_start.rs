//! Field cases of starts and ends: S-02, S-03, S-04, S-22, S-23, S-26.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use shellward_tests::{Host, ROOT, Raw, RpcError, Term, Value, json, term};

fn executable(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A shell that cannot be run: either a clear error and no trace, or a visible end.
async fn assert_start_fails(host: &Host, raw: &Raw, created: Result<Term, RpcError>, cause: &str) {
    match created {
        Ok(mut terminal) => {
            if terminal.snapshot["state"]["lifecycle"]["status"] == "running" {
                terminal.wait_exit().await;
            }
            let state = Term::subscribe(raw, &terminal.uri).await;
            let code = &state.snapshot["state"]["exitCode"];
            assert!(*code == 126 || *code == 127, "{}", state.snapshot);
            assert!(state.seen.contains(cause), "{cause:?} in {:?}", state.seen);
            assert_eq!(
                state.seen.trim().lines().count(),
                1,
                "one line: {:?}",
                state.seen
            );
            for noise in ["panicked", "fatal runtime", "abort", "RUST_BACKTRACE"] {
                assert!(!state.seen.contains(noise), "{:?}", state.seen);
            }
            raw.request("disposeTerminal", json!({"channel": terminal.uri}))
                .await
                .unwrap();
        }
        Err(error) => {
            assert!(error.message.contains(cause), "{cause:?} in {error:?}");
        }
    }
    let root = raw
        .request("subscribe", json!({"channel": ROOT}))
        .await
        .unwrap();
    assert_eq!(root["snapshot"]["state"]["terminals"], json!([]));
    host.wait_no_workers();
}

#[tokio::test]
async fn s02_a_shell_with_a_bad_interpreter_ends_with_its_reason() {
    let builder = Host::builder();
    let shell = builder.folder().join("badshell");
    executable(&shell, "#!/no/such/interp\n");
    let host = builder.option("--shell", shell.to_str().unwrap()).start();
    let raw = Raw::open(&host).await;
    let created = Term::try_create(&raw, json!({})).await;
    assert_start_fails(&host, &raw, created, "badshell").await;
    host.stop();
}

#[tokio::test]
async fn s02_a_shell_that_was_removed_ends_with_its_reason() {
    let host = Host::start();
    let raw = Raw::open(&host).await;
    let shell = host.folder().join("soongone");
    executable(&shell, "#!/bin/sh\nexec /bin/sh\n");
    let mark = raw.mark();
    raw.dispatch(
        ROOT,
        json!({"type": "root/configChanged", "config": {"defaultShell": shell.to_str().unwrap()}}),
    )
    .await;
    raw.wait_action(mark, ROOT, "root/configChanged").await;
    fs::remove_file(&shell).unwrap();
    let created = Term::try_create(&raw, json!({})).await;
    assert_start_fails(&host, &raw, created, "soongone").await;
    host.stop();
}

#[tokio::test]
async fn s02_a_shell_of_garbage_ends_with_its_reason() {
    let builder = Host::builder();
    let shell = builder.folder().join("garbage");
    executable(&shell, "\u{7f}ELF this is no program");
    let host = builder.option("--shell", shell.to_str().unwrap()).start();
    let raw = Raw::open(&host).await;
    let created = Term::try_create(&raw, json!({})).await;
    assert_start_fails(&host, &raw, created, "garbage").await;
    host.stop();
}

#[tokio::test]
async fn s02_the_longest_variable_the_kernel_takes_travels() {
    let value = "v".repeat(131_072 - "BIG=".len() - 1);
    let host = Host::builder().dash().env("BIG", &value).start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let expected = value.len().to_string();
    assert_eq!(terminal.output_of("echo ${#BIG}").await.trim(), expected);
    host.stop();
}

#[tokio::test]
async fn s03_signals_and_codes_are_told_apart() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    for (line, code, signal) in [
        ("exit 1", 1, None),
        ("exit 0", 0, None),
        ("exit 255", 255, None),
        ("exit 137", 137, None),
        ("kill -9 $$", 128, Some("SIGKILL")),
        ("exec sh -c 'kill -TERM $$'", 128, Some("SIGTERM")),
        ("exec sh -c 'kill -HUP $$'", 128, Some("SIGHUP")),
        (
            "exec sh -c 'ulimit -c 0; kill -SEGV $$'",
            128,
            Some("SIGSEGV"),
        ),
        (
            "exec sh -c 'ulimit -c 0; kill -ABRT $$'",
            128,
            Some("SIGABRT"),
        ),
    ] {
        let mut terminal = Term::create(&raw).await;
        terminal.line(line).await;
        let action = terminal.wait_exit().await;
        assert_eq!(action["exitCode"], code, "{line}: {action}");
        assert_eq!(
            action.get("signal").and_then(Value::as_str),
            signal,
            "{line}: {action}"
        );
    }
    host.stop();
}

#[tokio::test]
async fn s03_the_shells_own_report_of_a_signal_is_left_alone() {
    let host = Host::start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let text = terminal
        .output_of("sh -c 'kill -9 $$' 2>/dev/null; echo code-$?")
        .await;
    assert!(text.contains("code-137"), "{text}");
    host.stop();
}

/// What became of a dispatch: `true` accepted, `false` refused.
async fn outcome(raw: &Raw, mark: usize, uri: &str, seq: i64) -> bool {
    raw.wait_from(mark, &format!("an answer to dispatch {seq}"), |message| {
        let params = &message["params"];
        (message["method"] == "action"
            && params["channel"] == uri
            && params["origin"]["clientSeq"] == seq)
            .then(|| params.get("rejectionReason").is_none())
    })
    .await
}

/// Every action, then the operator's commands, on one channel.
async fn touch(host: &Host, raw: &Raw, uri: &str) -> Vec<bool> {
    let own = json!({"kind": "client", "clientId": raw.client_id()});
    let mut outcomes = Vec::new();
    for action in [
        json!({"type": "terminal/input", "data": "echo x\r"}),
        json!({"type": "terminal/resized", "cols": 100, "rows": 40}),
        json!({"type": "terminal/claimed", "claim": own}),
        json!({"type": "terminal/titleChanged", "title": "late"}),
        json!({"type": "terminal/cleared"}),
    ] {
        let mark = raw.mark();
        let seq = raw.dispatch(uri, action).await;
        outcomes.push(outcome(raw, mark, uri, seq).await);
    }
    raw.settle().await;
    assert!(host.cli(&["ps"]).status.success());
    outcomes
}

#[tokio::test]
async fn s04_touching_a_terminal_that_has_just_ended_is_answered_calmly() {
    let mut host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut other = Term::create(&raw).await;
    let mut terminal = Term::create(&raw).await;
    terminal.wait_prompt().await;
    // At once: the exit and the actions race.
    terminal.line("exit 7").await;
    touch(&host, &raw, &terminal.uri).await;
    if terminal.snapshot["state"]["lifecycle"]["status"] == "running" {
        let action = terminal.wait_exit().await;
        assert_eq!(action["exitCode"], 7);
    }
    // And once it is known.
    let outcomes = touch(&host, &raw, &terminal.uri).await;
    assert!(
        !outcomes[0],
        "input into an exited terminal is refused, not swallowed"
    );
    let late = Term::subscribe(&raw, &terminal.uri).await;
    assert_eq!(late.snapshot["state"]["exitCode"], 7, "the code stays");
    assert_eq!(late.snapshot["state"]["lifecycle"]["exitCode"], 7);

    let killed = host.cli(&["kill", &terminal.uri]);
    let stderr = String::from_utf8_lossy(&killed.stderr);
    assert!(!stderr.contains("panicked"), "{stderr}");
    // `kill` may have disposed it; then both are "not found".
    let first = raw
        .request("disposeTerminal", json!({"channel": terminal.uri}))
        .await;
    assert!(first.is_ok() || first.unwrap_err().code == -32008);
    let second = raw
        .request("disposeTerminal", json!({"channel": terminal.uri}))
        .await;
    assert_eq!(second.unwrap_err().code, -32008);
    assert_eq!(other.output_of("echo fine").await.trim(), "fine");
    assert!(host.is_running());
    host.stop();
}

#[tokio::test]
async fn s04_touching_a_terminal_that_never_was_is_answered_calmly() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let uri = "ahp-terminal:/never-was";
    assert_eq!(touch(&host, &raw, uri).await, [false; 5]);
    let error = raw
        .request("disposeTerminal", json!({"channel": uri}))
        .await
        .unwrap_err();
    assert_eq!(error.code, -32008);
    for words in [
        ["kill", "never-was"],
        ["clear", "never-was"],
        ["read", "never-was"],
    ] {
        let output = host.cli(&words);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {output:?}");
        assert!(!output.stderr.is_empty(), "{words:?} says why");
    }
    host.stop();
}

const BAD_SIZES: [(&str, &str); 14] = [
    ("0", "0"),
    ("0", "24"),
    ("80", "0"),
    ("-1", "24"),
    ("80", "-1"),
    ("1.5", "24"),
    ("80", "24.5"),
    ("1001", "24"),
    ("80", "1001"),
    ("65536", "65536"),
    ("65616", "24"),
    ("2147483648", "24"),
    ("\"80\"", "24"),
    ("\"NaN\"", "24"),
];

#[tokio::test]
async fn s22_sizes_that_make_no_sense_create_nothing() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    for (cols, rows) in BAD_SIZES {
        let size: Value =
            serde_json::from_str(&format!("{{\"cols\":{cols},\"rows\":{rows}}}")).unwrap();
        let error = raw
            .request(
                "createTerminal",
                term::create_params(&raw, &term::new_uri(), size.clone()),
            )
            .await
            .expect_err(&size.to_string());
        assert_eq!(error.code, -32602, "{size}: {error:?}");
    }
    assert_eq!(host.workers().len(), 0);
    host.stop();
}

#[tokio::test]
async fn s22_sizes_that_make_no_sense_change_nothing() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let other = Raw::open(&host).await;
    let mut terminal = Term::create_with(&raw, json!({"cols": 90, "rows": 30})).await;
    Term::subscribe(&other, &terminal.uri).await;
    let there = other.mark();
    let mut sizes: Vec<Value> = BAD_SIZES
        .iter()
        .map(|(cols, rows)| {
            serde_json::from_str(&format!("{{\"cols\":{cols},\"rows\":{rows}}}")).unwrap()
        })
        .collect();
    sizes.extend([
        json!({"cols": null, "rows": null}),
        json!({"cols": 80}),
        json!({"rows": 24}),
        json!({}),
    ]);
    for size in sizes {
        let mut action = size.clone();
        action["type"] = json!("terminal/resized");
        let mark = raw.mark();
        let seq = terminal.act(action).await;
        raw.wait_refusal(mark, &terminal.uri, seq).await;
        let corrective = raw
            .wait_action(mark, &terminal.uri, "terminal/resized")
            .await;
        assert_eq!(
            (&corrective["action"]["cols"], &corrective["action"]["rows"]),
            (&json!(90), &json!(30)),
            "{size}"
        );
    }
    assert_eq!(terminal.output_of("stty size").await.trim(), "30 90");
    other.settle().await;
    assert!(
        other
            .actions_since(there, &terminal.uri)
            .iter()
            .all(|envelope| envelope["action"]["type"] != "terminal/resized")
    );
    terminal.assert_equals_snapshot().await;
    // The smallest and the largest are sizes.
    for (cols, rows) in [(1, 1), (1000, 1000)] {
        let mark = raw.mark();
        terminal
            .act(json!({"type": "terminal/resized", "cols": cols, "rows": rows}))
            .await;
        raw.wait_action(mark, &terminal.uri, "terminal/resized")
            .await;
    }
    host.stop();
}

#[tokio::test]
async fn s23_a_resize_while_the_terminal_starts_is_not_lost() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    for _ in 0..10 {
        let uri = term::new_uri();
        let create = raw
            .start_request(
                "createTerminal",
                term::create_params(&raw, &uri, json!({"cols": 100, "rows": 30})),
            )
            .await;
        raw.dispatch(
            &uri,
            json!({"type": "terminal/resized", "cols": 110, "rows": 40}),
        )
        .await;
        raw.dispatch(
            &uri,
            json!({"type": "terminal/resized", "cols": 124, "rows": 31}),
        )
        .await;
        assert_eq!(raw.response(create).await, Ok(Value::Null));
        let mut terminal = Term::subscribe(&raw, &uri).await;
        assert_eq!(terminal.output_of("stty size").await.trim(), "31 124");
        assert_eq!(terminal.folded.state.cols, Some(124));
        assert_eq!(terminal.folded.state.rows, Some(31));
        raw.request("disposeTerminal", json!({"channel": uri}))
            .await
            .unwrap();
    }
    host.stop();
}

#[tokio::test]
async fn s23_typing_while_the_terminal_starts_is_not_lost() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let uri = term::new_uri();
    let create = raw
        .start_request("createTerminal", term::create_params(&raw, &uri, json!({})))
        .await;
    raw.dispatch(
        &uri,
        json!({"type": "terminal/input", "data": "echo ear$((1+1))ly\r"}),
    )
    .await;
    assert_eq!(raw.response(create).await, Ok(Value::Null));
    let mut terminal = Term::subscribe(&raw, &uri).await;
    terminal.wait_text("ear2ly").await;
    host.stop();
}

#[tokio::test]
async fn s26_a_directory_that_is_not_there_ends_with_127_and_its_name() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let file = host.folder().join("a-file");
    fs::write(&file, "x").unwrap();
    let missing = host.folder().join("not here");
    for (cwd, name) in [(&missing, "not here"), (&file, "a-file")] {
        let mut terminal = Term::create_with(&raw, json!({"cwd": cwd.to_str().unwrap()})).await;
        if terminal.snapshot["state"]["lifecycle"]["status"] == "running" {
            terminal.wait_exit().await;
        }
        let late = Term::subscribe(&raw, &terminal.uri).await;
        assert_eq!(late.snapshot["state"]["exitCode"], 127, "{}", late.snapshot);
        assert!(late.seen.contains(name), "{:?} names {name}", late.seen);
        assert_eq!(
            late.seen.trim().lines().count(),
            1,
            "no shell ran: {:?}",
            late.seen
        );
    }
    host.stop();
}

#[tokio::test]
async fn s26_a_directory_with_an_invalid_byte_in_its_name_is_entered() {
    use std::os::unix::ffi::OsStrExt;
    let host = Host::dash();
    let folder = host
        .folder()
        .join(std::ffi::OsStr::from_bytes(b"bad\xffname"));
    fs::create_dir(&folder).unwrap();
    let raw = Raw::open(&host).await;
    let cwd = format!("file://{}/bad%FFname", host.folder().display());
    let mut terminal = Term::create_with(&raw, json!({"cwd": cwd})).await;
    let bytes = terminal.output_of("pwd | od -An -c | tr -d ' \\n'").await;
    assert!(bytes.contains("bad377name"), "{bytes}");
    assert_eq!(terminal.snapshot["state"]["cwd"], cwd.as_str());
    host.stop();
}

#[tokio::test]
async fn s26_a_host_whose_start_directory_was_removed_still_opens_terminals() {
    let builder = Host::builder().dash();
    let folder = builder.folder().join("soon-gone");
    fs::create_dir(&folder).unwrap();
    let host = builder.start_in(&folder).start();
    fs::remove_dir(&folder).unwrap();
    let own = fs::read_link(format!("/proc/{}/cwd", host.pid)).unwrap();
    assert!(
        !own.to_string_lossy().contains("soon-gone"),
        "the host stands in {}",
        own.display()
    );
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create_with(&raw, json!({"cwd": "/tmp"})).await;
    assert_eq!(terminal.output_of("pwd").await.trim(), "/tmp");
    // Without a directory: a shell somewhere that state.cwd names, or a visible end that names it.
    let mut terminal = Term::create(&raw).await;
    let state = &terminal.snapshot["state"];
    let cwd = state["cwd"].as_str().expect("cwd").to_owned();
    if cwd.ends_with("soon-gone") {
        if state["lifecycle"]["status"] == "running" {
            terminal.wait_exit().await;
        }
        terminal.wait_text("soon-gone").await;
    } else {
        let pwd = terminal.output_of("pwd").await;
        assert_eq!(format!("file://{}", pwd.trim()), cwd);
    }
    host.stop();
}
