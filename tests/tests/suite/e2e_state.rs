//! Snapshot and stream tell the same story, at any moment and under load; refusals change nothing.

use std::time::Duration;

use ahp::reducers::apply_action_to_root;
use ahp_types::actions::ActionEnvelope;
use ahp_types::state::RootState;
use shellward_tests::{DEADLINE, Host, Official, ROOT, Raw, Term, Value, json, on_pipes};

#[tokio::test]
async fn the_official_client_opens_types_sees_and_disposes() {
    let host = Host::start();
    let official = Official::open(&host).await;
    assert_eq!(official.welcome.protocol_version, "1.0.0");
    official.client.ping().await.unwrap();
    let mut terminal = official.create().await;
    official.line(&terminal.uri, "echo $((6*7))-answer").await;
    terminal.wait_text("42-answer").await;
    official.assert_equals_snapshot(&mut terminal).await;
    let second = Official::open(&host).await;
    let mut viewer = second.subscribe(&terminal.uri).await;
    second.line(&terminal.uri, "exit 3").await;
    viewer
        .wait("the exit", DEADLINE, |folded, _| {
            matches!(
                &folded.state.lifecycle,
                ahp_types::state::TerminalLifecycleState::Exited(exited) if exited.exit_code == Some(3)
            )
        })
        .await;
    second.assert_equals_snapshot(&mut viewer).await;
    let _: Value = official
        .client
        .request("disposeTerminal", json!({"channel": terminal.uri}))
        .await
        .unwrap();
    official.client.shutdown().await;
    second.client.shutdown().await;
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folded_state_equals_the_snapshot_under_load() {
    let host = Host::dash();
    let official = Official::open(&host).await;
    let raw = Raw::open(&host).await;
    let mut mine = official.create().await;
    let mut theirs = Term::subscribe(&raw, &mine.uri).await;
    // The load goes on until every comparison was made; about 1 MB a second, which both clients
    // can follow: the host closes one that stays behind the other.
    let stop = host.folder().join("stop");
    official
        .line(
            &mine.uri,
            &format!(
                "i=0; while [ ! -e {} ]; do i=$((i+1)); echo \"line $i ─ 漢字 🙂 xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"; [ $((i%200)) = 0 ] && sleep 0.01; done",
                stop.display()
            ),
        )
        .await;
    theirs.wait_text("line 100 ").await;
    for round in 0..30 {
        match round % 5 {
            0 => drop(
                theirs
                    .act(json!({"type": "terminal/titleChanged", "title": format!("r{round}")}))
                    .await,
            ),
            1 => drop(
                official
                    .dispatch(
                        &mine.uri,
                        json!({"type": "terminal/resized", "cols": 80 + round, "rows": 24}),
                    )
                    .await,
            ),
            2 if round == 17 => drop(theirs.act(json!({"type": "terminal/cleared"})).await),
            3 => drop(theirs.input("x").await),
            _ => {}
        }
        official.assert_equals_snapshot(&mut mine).await;
        theirs.assert_equals_snapshot().await;
    }
    std::fs::write(&stop, "").unwrap();
    theirs.input("\u{15}\recho do''ne\r").await;
    theirs.wait_text_within("done", DEADLINE * 3).await;
    mine.wait_text("done").await;
    official.assert_equals_snapshot(&mut mine).await;
    theirs.assert_equals_snapshot().await;
    assert_eq!(mine.folded.state.title, theirs.folded.state.title);
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folded_state_equals_the_snapshot_in_a_flood_that_its_only_reader_paces() {
    let host = Host::dash();
    let official = Official::open(&host).await;
    let mut terminal = official.create().await;
    official.line(&terminal.uri, "yes '─ 漢字 🙂 flood'").await;
    let newline = if on_pipes() { "\n" } else { "\r\n" };
    terminal
        .wait_text(&format!("🙂 flood{newline}─ 漢字"))
        .await;
    for round in 0..20 {
        official
            .dispatch(
                &terminal.uri,
                json!({"type": "terminal/titleChanged", "title": format!("r{round}")}),
            )
            .await;
        official.assert_equals_snapshot(&mut terminal).await;
    }
    official
        .dispatch(
            &terminal.uri,
            json!({"type": "terminal/input", "data": "\u{3}echo cal''med\r"}),
        )
        .await;
    terminal.wait_text("calmed").await;
    official.assert_equals_snapshot(&mut terminal).await;
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scrollback_keeps_the_last_200_000_characters_at_most_and_cuts_no_character() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal
        .line("yes '漢字🙂 \u{1b}[31mred\u{1b}[0m é 0123456789' | head -n 30000; echo do''ne")
        .await;
    terminal.wait_text_within("done", DEADLINE * 3).await;
    terminal.assert_equals_snapshot().await;
    let fresh = Term::subscribe(&raw, &terminal.uri).await;
    let text = fresh.seen;
    assert!(text.chars().count() <= 200_000, "{}", text.chars().count());
    assert!(text.chars().count() >= 100_000, "{}", text.chars().count());
    assert!(!text.contains('\u{fffd}'));
    assert!(
        text.starts_with("漢字🙂") || text.starts_with('\n'),
        "it starts at a line: {:?}",
        text.chars().take(40).collect::<String>()
    );
    assert!(text.contains("done"), "the end is there");
    host.stop();
}

#[tokio::test]
async fn the_root_folded_equals_its_snapshot() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let other = Raw::open(&host).await;
    let snapshot = &raw.welcome["snapshots"][0];
    let mut state: RootState = serde_json::from_value(snapshot["state"].clone()).unwrap();
    let mut terminals = Vec::new();
    for round in 0..6 {
        let terminal = Term::create_with(&other, json!({"name": format!("t{round}")})).await;
        if round % 2 == 0 {
            terminal
                .act(json!({"type": "terminal/titleChanged", "title": format!("named {round}")}))
                .await;
        }
        terminals.push(terminal);
    }
    terminals[0].line("exit 5").await;
    terminals[0].wait_exit().await;
    other
        .request("disposeTerminal", json!({"channel": terminals[1].uri}))
        .await
        .unwrap();
    let mark = raw.mark();
    let fresh = raw
        .request("subscribe", json!({"channel": ROOT}))
        .await
        .unwrap();
    let fresh = &fresh["snapshot"];
    // The last list may come after this snapshot; fold exactly what the snapshot has.
    let _ = mark;
    for envelope in raw.actions_since(0, ROOT) {
        let envelope: ActionEnvelope = serde_json::from_value(envelope).unwrap();
        if envelope.server_seq <= fresh["fromSeq"].as_u64().unwrap() {
            apply_action_to_root(&mut state, &envelope.action);
        }
    }
    let fresh: RootState = serde_json::from_value(fresh["state"].clone()).unwrap();
    assert_eq!(state, fresh);
    assert_eq!(state.terminals.unwrap().len(), 5);
    host.stop();
}

#[tokio::test]
async fn a_refusal_goes_to_the_sender_only_takes_no_number_and_is_corrected() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let other = Raw::open(&host).await;
    let mut terminal = Term::create_with(&raw, json!({"name": "n"})).await;
    terminal.wait_prompt().await;
    Term::subscribe(&other, &terminal.uri).await;
    raw.settle().await;
    let there = other.mark();
    for (action, corrective) in [
        (
            json!({"type": "terminal/resized", "cols": 0, "rows": 0}),
            Some(json!({"cols": 80, "rows": 24})),
        ),
        (
            json!({"type": "terminal/titleChanged", "title": 5}),
            Some(json!({"title": "n"})),
        ),
        (
            json!({"type": "terminal/claimed", "claim": {"kind": "robot"}}),
            Some(json!({"claim": {"kind": "client", "clientId": raw.client_id()}})),
        ),
        (json!({"type": "terminal/input", "data": 5}), None),
        (json!({"type": "terminal/input"}), None),
        (json!({"type": "terminal/data", "data": "forged"}), None),
        (json!({"type": "terminal/exited", "exitCode": 0}), None),
        (
            json!({"type": "terminal/cwdChanged", "cwd": "file:///etc"}),
            None,
        ),
        (json!({"type": "terminal/commandDetectionAvailable"}), None),
        (
            json!({"type": "terminal/commandExecuted", "commandId": "c", "commandLine": "x", "timestamp": 1}),
            None,
        ),
        (json!({"type": "terminal/unheardOf", "x": 1}), None),
    ] {
        let mark = raw.mark();
        let seq = terminal.act(action.clone()).await;
        let refusal = raw.wait_refusal(mark, &terminal.uri, seq).await;
        assert_eq!(
            refusal["origin"],
            json!({"clientId": raw.client_id(), "clientSeq": seq})
        );
        assert_eq!(refusal["action"]["type"], action["type"]);
        assert!(!refusal["rejectionReason"].as_str().unwrap().is_empty());
        if let Some(members) = corrective {
            let kind = action["type"].as_str().unwrap();
            let corrective = raw.wait_action(mark, &terminal.uri, kind).await;
            for (name, value) in members.as_object().unwrap() {
                assert_eq!(&corrective["action"][name], value, "{corrective}");
            }
            assert!(corrective.get("origin").is_none(), "{corrective}");
        }
    }
    other.settle().await;
    assert_eq!(
        other.actions_since(there, &terminal.uri),
        Vec::<Value>::new()
    );
    let late = Term::subscribe(&other, &terminal.uri).await;
    assert!(!late.seen.contains("forged"));
    assert_eq!(late.snapshot["state"]["lifecycle"]["status"], "running");
    host.stop();
}

#[tokio::test]
async fn a_refusal_carries_the_counter_as_it_is() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let terminal = Term::create(&raw).await;
    let mark = raw.mark();
    let first = terminal
        .act(json!({"type": "terminal/input", "data": 5}))
        .await;
    let first = raw.wait_refusal(mark, &terminal.uri, first).await;
    let second = terminal
        .act(json!({"type": "terminal/input", "data": 5}))
        .await;
    let second = raw.wait_refusal(mark, &terminal.uri, second).await;
    // Between them only the prompt may have come; a refusal itself takes no number.
    let taken = raw
        .since(mark)
        .iter()
        .filter(|message| message["method"] == "action")
        .filter(|message| message["params"].get("rejectionReason").is_none())
        .count();
    let difference = second["serverSeq"].as_u64().unwrap() - first["serverSeq"].as_u64().unwrap();
    assert!(
        difference <= taken as u64,
        "{difference} numbers for {taken} actions"
    );
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_viewers_see_the_same() {
    let host = Host::dash();
    let owner = Raw::open(&host).await;
    let mut terminal = Term::create(&owner).await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        let raw = Raw::open(&host).await;
        let viewer = Term::subscribe(&raw, &terminal.uri).await;
        clients.push((raw, viewer));
    }
    terminal.line("seq 1 20000; echo do''ne").await;
    terminal.wait_text_within("done", DEADLINE * 2).await;
    for (_raw, viewer) in &mut clients {
        viewer.wait_text_within("done", DEADLINE * 2).await;
        viewer.assert_equals_snapshot().await;
        let newline = viewer.newline();
        let numbers =
            (1..=20000).all(|n| n % 997 != 0 || viewer.seen.contains(&format!("\n{n}{newline}")));
        assert!(numbers, "numbers are missing");
    }
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_with_a_latency_of_its_own_still_gets_everything() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    for latency in [0, 50, 1000] {
        let result = raw
            .request(
                "subscribe",
                json!({"channel": terminal.uri, "delivery": {"maxLatencyMs": latency}}),
            )
            .await
            .unwrap();
        assert!(result["snapshot"].is_object());
        let text = terminal
            .output_within("seq 1 500", Duration::from_secs(10))
            .await;
        assert_eq!(text.lines().last(), Some("500"), "{latency}");
    }
    host.stop();
}
