//! The life of a terminal: opened, typed into, watched, resized, renamed, cleared, ended.

use shellward_tests::{
    DEADLINE, Folded, Host, ROOT, Raw, Term, Value, json, on_pipes, poll_for, proc, term,
};

/// The terminals of the root list, as a fresh subscription shows them.
async fn root_list(raw: &Raw) -> Vec<Value> {
    let result = raw
        .request("subscribe", json!({"channel": ROOT}))
        .await
        .unwrap();
    result["snapshot"]["state"]["terminals"]
        .as_array()
        .unwrap()
        .clone()
}

async fn root_entry(raw: &Raw, uri: &str) -> Option<Value> {
    root_list(raw)
        .await
        .into_iter()
        .find(|entry| entry["resource"] == uri)
}

/// `signal` beside `exitCode`, flat and in the lifecycle.
#[track_caller]
fn assert_exited(state: &Value, code: i64, signal: Option<&str>) {
    assert_eq!(state["lifecycle"]["status"], "exited", "{state}");
    assert_eq!(state["lifecycle"]["exitCode"], code, "{state}");
    assert_eq!(state["exitCode"], code, "the flat code too: {state}");
    let beside = [&state["signal"], &state["lifecycle"]["signal"]];
    match signal {
        Some(name) => assert!(
            beside.iter().any(|value| **value == name),
            "{name} in {state}"
        ),
        None => assert!(
            beside.iter().all(|value| value.is_null()),
            "a signal in {state}"
        ),
    }
}

#[tokio::test]
async fn created_subscribed_at_once_and_typed_into_it_answers() {
    let host = Host::start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let state = terminal.snapshot["state"].clone();
    assert_eq!(state["isPty"], !on_pipes());
    assert_eq!(state["title"], "bash");
    assert_eq!((&state["cols"], &state["rows"]), (&json!(80), &json!(24)));
    assert_eq!(state["lifecycle"], json!({"status": "running"}));
    assert_eq!(
        state["claim"],
        json!({"kind": "client", "clientId": raw.client_id()})
    );
    assert!(state.get("exitCode").is_none_or(Value::is_null), "{state}");
    assert_eq!(terminal.output_of("echo $((6*7))").await.trim(), "42");
    assert_eq!(
        terminal.output_of("tty | cut -c1-9").await.trim(),
        if on_pipes() { "not a tty" } else { "/dev/pts/" }
    );
    // bash is started with our integration, which is announced by an action if it was not in the
    // snapshot already; on pipes there is none.
    assert_eq!(
        terminal.folded.state.supports_command_detection,
        Some(!on_pipes())
    );
    host.stop();
}

#[tokio::test]
async fn a_second_viewer_sees_what_was_and_what_comes() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let other = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.line("echo first-$((1+1))").await;
    terminal.wait_text("first-2").await;
    let mut viewer = Term::subscribe(&other, &terminal.uri).await;
    assert!(viewer.seen.contains("first-2"), "{}", viewer.seen);
    terminal.line("echo second-$((1+2))").await;
    viewer.wait_text("second-3").await;
    // The viewer types too.
    viewer.line("echo third-$((1+3))").await;
    terminal.wait_text("third-4").await;
    viewer.wait_text("third-4").await;
    terminal.assert_equals_snapshot().await;
    viewer.assert_equals_snapshot().await;
    host.stop();
}

#[tokio::test]
async fn every_terminal_has_a_worker_of_its_own() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut workers = Vec::new();
    for _ in 0..3 {
        let mut terminal = Term::create(&raw).await;
        terminal.wait_prompt().await;
        let (worker, shell) = host.pids(&terminal.uri);
        assert_eq!(
            terminal.output_of("echo $$").await.trim(),
            shell.to_string()
        );
        assert_eq!(proc::Process::read(shell).unwrap().parent, worker);
        assert!(proc::Process::read(worker).unwrap().is_worker());
        assert_eq!(
            proc::ptys(worker).len(),
            usize::from(!on_pipes()),
            "{:?}",
            proc::descriptors(worker)
        );
        workers.push(worker);
    }
    workers.sort_unstable();
    workers.dedup();
    assert_eq!(workers.len(), 3);
    assert_eq!(proc::ptys(host.pid).len(), 0, "the supervisor holds no pty");
    host.stop();
}

#[tokio::test]
async fn a_resize_reaches_the_kernel_and_every_viewer() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let other = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let mut viewer = Term::subscribe(&other, &terminal.uri).await;
    assert_eq!(terminal.output_of("stty size").await.trim(), "24 80");
    let mark = raw.mark();
    let seq = terminal
        .act(json!({"type": "terminal/resized", "cols": 123, "rows": 45}))
        .await;
    let echo = raw
        .wait_action(mark, &terminal.uri, "terminal/resized")
        .await;
    assert_eq!(
        echo["origin"],
        json!({"clientId": raw.client_id(), "clientSeq": seq})
    );
    viewer
        .wait("the new size", DEADLINE, |folded, _, _| {
            (folded.state.cols == Some(123) && folded.state.rows == Some(45)).then_some(())
        })
        .await;
    assert_eq!(terminal.output_of("stty size").await.trim(), "45 123");
    let entry = host.ps_entry(&terminal.uri);
    assert_eq!((&entry["cols"], &entry["rows"]), (&json!(123), &json!(45)));
    terminal.assert_equals_snapshot().await;
    host.stop();
}

#[tokio::test]
async fn a_rename_is_echoed_with_its_origin_and_changes_the_list() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let other = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    Term::subscribe(&other, &terminal.uri).await;
    let (mark, there) = (raw.mark(), other.mark());
    let seq = terminal
        .act(json!({"type": "terminal/titleChanged", "title": "build ✓"}))
        .await;
    let origin = json!({"clientId": raw.client_id(), "clientSeq": seq});
    let mine = raw
        .wait_action(mark, &terminal.uri, "terminal/titleChanged")
        .await;
    let theirs = other
        .wait_action(there, &terminal.uri, "terminal/titleChanged")
        .await;
    assert_eq!(mine, theirs, "one envelope for all");
    assert_eq!(mine["origin"], origin);
    assert_eq!(mine["action"]["title"], "build ✓");
    let list = other
        .wait_action(there, ROOT, "root/terminalsChanged")
        .await;
    assert_eq!(list["action"]["terminals"][0]["title"], "build ✓");
    assert!(
        list.get("origin").is_none(),
        "the list is the host's own: {list}"
    );
    assert!(list["serverSeq"].as_u64() > theirs["serverSeq"].as_u64());
    terminal.assert_equals_snapshot().await;
    host.stop();
}

#[tokio::test]
async fn titles_lose_control_characters_and_end_after_200_characters() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let terminal = Term::create_with(&raw, json!({"name": "a\u{1b}]0;b\u{7}\nc\u{9b}d"})).await;
    let title = terminal.snapshot["state"]["title"].as_str().unwrap();
    assert!(!title.chars().any(char::is_control), "{title:?}");
    assert_eq!(title, "a]0;bcd");

    let long = "é".repeat(250);
    let terminal = Term::create_with(&raw, json!({"name": long})).await;
    let title = terminal.snapshot["state"]["title"].as_str().unwrap();
    assert_eq!(title.chars().count(), 200);

    let mark = raw.mark();
    terminal
        .act(json!({"type": "terminal/titleChanged", "title": format!("\u{0}x\r\n{long}")}))
        .await;
    let title = raw
        .wait_from(mark, "a title in state", |message| {
            (message["params"]["channel"] == terminal.uri.as_str()
                && message["params"]["action"]["type"] == "terminal/titleChanged")
                .then(|| {
                    message["params"]["action"]["title"]
                        .as_str()
                        .unwrap()
                        .to_owned()
                })
        })
        .await;
    assert!(
        title.starts_with('x') && title.chars().count() == 200,
        "{title:?}"
    );
    assert!(!title.chars().any(char::is_control), "{title:?}");
    let entry = root_entry(&raw, &terminal.uri).await.unwrap();
    assert_eq!(entry["title"], title.as_str());
    host.stop();
}

#[tokio::test]
async fn clear_empties_the_content_for_all_and_the_shell_goes_on() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let other = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("echo old-text").await;
    let mut viewer = Term::subscribe(&other, &terminal.uri).await;
    let mark = raw.mark();
    let seq = terminal.act(json!({"type": "terminal/cleared"})).await;
    let echo = raw
        .wait_action(mark, &terminal.uri, "terminal/cleared")
        .await;
    assert_eq!(echo["origin"]["clientSeq"], seq);
    viewer
        .wait("the clear", DEADLINE, |folded, _, params| {
            (params["action"]["type"] == "terminal/cleared").then(|| {
                assert_eq!(folded.text(), "");
            })
        })
        .await;
    let fresh = Term::subscribe(&Raw::open(&host).await, &terminal.uri).await;
    assert!(!fresh.seen.contains("old-text"), "{}", fresh.seen);
    assert_eq!(terminal.output_of("echo new-text").await.trim(), "new-text");
    terminal.assert_equals_snapshot().await;
    viewer.assert_equals_snapshot().await;
    host.stop();
}

#[tokio::test]
async fn input_is_echoed_to_the_sender_only() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let other = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let mut viewer = Term::subscribe(&other, &terminal.uri).await;
    terminal.output_of("stty -echo; echo quiet").await;
    let mark = raw.mark();
    let there = other.mark();
    let seq = terminal.input("secret-password\r").await;
    let echo = raw.wait_action(mark, &terminal.uri, "terminal/input").await;
    assert_eq!(
        echo["origin"],
        json!({"clientId": raw.client_id(), "clientSeq": seq})
    );
    assert!(echo["serverSeq"].is_u64());
    terminal.output_of("echo after").await;
    viewer.wait_text("after").await;
    other.settle().await;
    assert!(
        other
            .since(there)
            .iter()
            .all(|message| message["params"]["action"]["type"] != "terminal/input"),
        "input reached another client"
    );
    host.stop();
}

#[tokio::test]
async fn a_dispatch_without_a_subscription_is_allowed() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let other = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let mark = raw.mark();
    other
        .dispatch(
            &terminal.uri,
            json!({"type": "terminal/input", "data": "echo un$((1+1))subscribed\r"}),
        )
        .await;
    terminal.wait_text("un2subscribed").await;
    other
        .dispatch(
            &terminal.uri,
            json!({"type": "terminal/resized", "cols": 90, "rows": 20}),
        )
        .await;
    raw.wait_action(mark, &terminal.uri, "terminal/resized")
        .await;
    host.stop();
}

#[tokio::test]
async fn exit_3_is_announced_once_after_the_output_and_before_the_list() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let mark = raw.mark();
    terminal.line("echo last-$((1+1)); exit 3").await;
    let action = terminal.wait_exit().await;
    assert_eq!(action["exitCode"], 3);
    assert!(action.get("signal").is_none(), "{action}");
    assert!(terminal.seen.contains("last-2"), "{}", terminal.seen);
    let list = raw
        .wait_from(mark, "the list with the exit", |message| {
            let action = &message["params"]["action"];
            (action["type"] == "root/terminalsChanged"
                && action["terminals"][0]["lifecycle"]["status"] == "exited")
                .then(|| message["params"].clone())
        })
        .await;
    assert_exited(&list["action"]["terminals"][0], 3, None);
    raw.settle().await;
    let actions = raw.actions_since(mark, &terminal.uri);
    let exits: Vec<usize> = (0..actions.len())
        .filter(|at| actions[*at]["action"]["type"] == "terminal/exited")
        .collect();
    assert_eq!(exits.len(), 1, "{actions:?}");
    assert!(
        actions[exits[0]..]
            .iter()
            .all(|envelope| envelope["action"]["type"] != "terminal/data"),
        "data after the exit"
    );
    assert!(list["serverSeq"].as_u64() > actions[exits[0]]["serverSeq"].as_u64());
    let late = Term::subscribe(&raw, &terminal.uri).await;
    assert_exited(&late.snapshot["state"], 3, None);
    terminal.assert_equals_snapshot().await;
    host.stop();
}

#[tokio::test]
async fn kill_9_is_code_128_and_sigkill_in_action_state_and_list() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.line("kill -9 $$").await;
    let action = terminal.wait_exit().await;
    assert_eq!(action["exitCode"], 128, "{action}");
    assert_eq!(action["signal"], "SIGKILL", "{action}");
    raw.settle().await;
    let late = Term::subscribe(&raw, &terminal.uri).await;
    assert_exited(&late.snapshot["state"], 128, Some("SIGKILL"));
    assert_exited(
        &root_entry(&raw, &terminal.uri).await.unwrap(),
        128,
        Some("SIGKILL"),
    );
    let entry = host.ps_entry(&terminal.uri);
    assert_eq!(
        (&entry["exitCode"], &entry["signal"]),
        (&json!(128), &json!("SIGKILL"))
    );
    host.stop();
}

#[tokio::test]
async fn an_exited_terminal_stays_readable_until_it_is_disposed() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.line("echo remembered-$((1+1)); exit").await;
    terminal.wait_exit().await;
    raw.notify("unsubscribe", json!({"channel": terminal.uri}))
        .await;
    let other = Raw::open(&host).await;
    let late = Term::subscribe(&other, &terminal.uri).await;
    assert!(late.seen.contains("remembered-2"), "{}", late.seen);
    assert_exited(&late.snapshot["state"], 0, None);
    let uri = terminal.uri.clone();
    assert_eq!(
        other
            .request("disposeTerminal", json!({"channel": uri}))
            .await,
        Ok(Value::Null)
    );
    let error = other
        .request("subscribe", json!({"channel": uri}))
        .await
        .unwrap_err();
    assert_eq!(error.code, -32008);
    assert_eq!(root_list(&other).await, Vec::<Value>::new());
    host.stop();
}

#[tokio::test]
async fn keep_exited_forgets_one_that_nobody_watches() {
    let host = Host::builder().dash().option("--keep-exited", "1").start();
    let raw = Raw::open(&host).await;
    let mut watched = Term::create(&raw).await;
    let mut left = Term::create(&raw).await;
    watched.line("exit").await;
    watched.wait_exit().await;
    left.line("exit").await;
    left.wait_exit().await;
    let mark = raw.mark();
    raw.notify("unsubscribe", json!({"channel": left.uri}))
        .await;
    let list = raw.wait_action(mark, ROOT, "root/terminalsChanged").await;
    let uris: Vec<&str> = list["action"]["terminals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["resource"].as_str().unwrap())
        .collect();
    assert_eq!(uris, [watched.uri.as_str()], "the watched one stays");
    let error = raw
        .request("subscribe", json!({"channel": left.uri}))
        .await
        .unwrap_err();
    assert_eq!(error.code, -32008);
    let other = Raw::open(&host).await;
    Term::subscribe(&other, &watched.uri).await;
    host.stop();
}

#[tokio::test]
async fn dispose_ends_the_shell_and_everything_it_started() {
    let host = Host::start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    // A background job, a stopped one, one deaf to HUP and TERM, and two that left the session.
    let started = terminal
        .output_of(concat!(
            "sleep 1001 & sleep 1002 & kill -STOP $!; ",
            "(trap '' HUP TERM INT QUIT; exec sleep 1003) & ",
            "setsid sleep 1004 & (setsid sh -c 'trap \"\" HUP TERM; sleep 1005 & sleep 1006' &) ; ",
            "echo started"
        ))
        .await;
    assert!(started.contains("started"), "{started}");
    let (worker, shell) = host.pids(&terminal.uri);
    // The stopped one may not have become a sleep yet.
    let family = poll_for("five sleeps and a stopped job", DEADLINE, || {
        let family = proc::descendants(worker);
        let jobs = family
            .iter()
            .filter(|process| process.name == "sleep" || process.state == 'T')
            .count();
        (jobs == 6).then_some(family)
    });
    let worker = proc::Process::read(worker).unwrap();
    let mark = raw.mark();
    let disposed = raw
        .request("disposeTerminal", json!({"channel": terminal.uri}))
        .await;
    assert_eq!(disposed, Ok(Value::Null));
    let list = raw.wait_action(mark, ROOT, "root/terminalsChanged").await;
    assert_eq!(list["action"]["terminals"], json!([]));
    for process in family.iter().chain([&worker]) {
        poll_for(&format!("the end of {process:?}"), DEADLINE, || {
            (!process.is_alive()).then_some(())
        });
    }
    assert!(family.iter().any(|process| process.pid == shell));
    let error = raw
        .request("disposeTerminal", json!({"channel": terminal.uri}))
        .await
        .unwrap_err();
    assert_eq!(error.code, -32008, "a second dispose: {error:?}");
    host.stop();
}

#[tokio::test]
async fn a_disposed_uri_can_be_used_again() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut first = Term::create(&raw).await;
    first.output_of("echo of-the-first").await;
    let uri = first.uri.clone();
    raw.request("disposeTerminal", json!({"channel": uri}))
        .await
        .unwrap();
    raw.request("createTerminal", term::create_params(&raw, &uri, json!({})))
        .await
        .unwrap();
    let mut second = Term::subscribe(&raw, &uri).await;
    assert_eq!(second.output_of("echo new").await.trim(), "new");
    assert!(!second.seen.contains("of-the-first"), "{}", second.seen);
    host.stop();
}

#[tokio::test]
async fn a_terminal_outlives_the_connection_that_made_it() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("X=kept; echo set").await;
    let uri = terminal.uri.clone();
    raw.close().await;
    let other = Raw::open(&host).await;
    let mut again = Term::subscribe(&other, &uri).await;
    assert_eq!(again.output_of("echo $X").await.trim(), "kept");
    host.stop();
}

#[tokio::test]
async fn the_list_changes_only_when_something_in_it_did() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mark = raw.mark();
    let mut terminal = Term::create_with(&raw, json!({"name": "n"})).await;
    terminal.output_of("echo x").await;
    terminal
        .act(json!({"type": "terminal/resized", "cols": 99, "rows": 33}))
        .await;
    terminal.act(json!({"type": "terminal/cleared"})).await;
    terminal
        .act(json!({"type": "terminal/titleChanged", "title": "n"}))
        .await;
    let own = json!({"kind": "client", "clientId": raw.client_id()});
    terminal
        .act(json!({"type": "terminal/claimed", "claim": own}))
        .await;
    terminal.output_of("cd /; echo y").await;
    raw.settle().await;
    let lists = raw.actions_since(mark, ROOT);
    assert_eq!(lists.len(), 1, "only the creation changed it: {lists:#?}");
    let mark = raw.mark();
    raw.request("disposeTerminal", json!({"channel": terminal.uri}))
        .await
        .unwrap();
    raw.settle().await;
    assert_eq!(raw.actions_since(mark, ROOT).len(), 1);
    host.stop();
}

#[tokio::test]
async fn a_background_job_that_holds_the_pty_does_not_hold_the_exit_up() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal
        .line("(trap '' HUP; exec sleep 1007) & exit 4")
        .await;
    let action = terminal.wait_exit().await;
    assert_eq!(action["exitCode"], 4);
    host.stop();
}

#[tokio::test]
async fn control_c_interrupts_the_command_and_not_the_shell() {
    let host = Host::start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("echo ready").await;
    terminal.line("echo going-$((1+1)); sleep 1008").await;
    terminal.wait_text("going-2").await;
    let (_, shell) = host.pids(&terminal.uri);
    poll_for("the sleep", DEADLINE, || {
        proc::descendants(shell)
            .iter()
            .any(|process| process.name == "sleep")
            .then_some(())
    });
    terminal.input("\u{3}").await;
    terminal.line("echo code-$?").await;
    terminal.wait_text("code-130").await;
    host.stop();
}

#[tokio::test]
async fn the_snapshot_shape_is_one_the_official_types_read() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("echo x").await;
    let snapshot = raw
        .request("subscribe", json!({"channel": terminal.uri}))
        .await
        .unwrap();
    let folded = Folded::new(&snapshot["snapshot"]);
    assert!(folded.text().contains('x'));
    let typed: ahp_types::commands::SubscribeResult = serde_json::from_value(snapshot).unwrap();
    assert!(matches!(
        typed.snapshot.unwrap().state,
        ahp_types::state::SnapshotState::Terminal(_)
    ));
    host.stop();
}
