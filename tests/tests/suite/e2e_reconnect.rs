//! Coming back: replay, snapshots, the same client twice, dispatches into channels that are gone.

use shellward_tests::{DEADLINE, Folded, Host, ROOT, Raw, Term, Value, json, poll_for};

/// A new connection that says `reconnect` first, as VS Code does: without `channel`.
async fn reconnect(
    host: &Host,
    client_id: &str,
    last_seen: u64,
    subscriptions: &[&str],
) -> (Raw, Result<Value, shellward_tests::RpcError>) {
    let raw = Raw::connect(host).await;
    raw.become_client(client_id);
    let result = raw
        .request(
            "reconnect",
            json!({
                "clientId": client_id, "lastSeenServerSeq": last_seen,
                "subscriptions": subscriptions, "_meta": {},
            }),
        )
        .await;
    (raw, result)
}

/// The newest number the client has seen, in an action or a snapshot.
fn last_seq(raw: &Raw) -> u64 {
    raw.since(0)
        .iter()
        .flat_map(|message| {
            [
                message["params"]["serverSeq"].as_u64(),
                message["result"]["snapshot"]["fromSeq"].as_u64(),
                message["result"]["serverSeq"].as_u64(),
            ]
        })
        .flatten()
        .max()
        .expect("a number")
}

#[tokio::test]
async fn a_short_gap_is_replayed_in_order_and_then_it_is_live() {
    let host = Host::dash();
    let watcher = Raw::open(&host).await;
    let raw = Raw::open(&host).await;
    let id = raw.client_id();
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("echo before").await;
    raw.settle().await;
    let seen = last_seq(&raw);
    let mut folded = terminal.folded.clone();
    for envelope in raw.actions_since(0, &terminal.uri) {
        folded.apply_value(&envelope);
    }
    raw.close().await;

    let mut other = Term::subscribe(&watcher, &terminal.uri).await;
    other.output_of("echo in-the-gap").await;
    other
        .act(json!({"type": "terminal/titleChanged", "title": "renamed"}))
        .await;
    watcher.settle().await;

    let (back, result) = reconnect(&host, &id, seen, &[ROOT, &terminal.uri]).await;
    let result = result.unwrap();
    assert_eq!(result["type"], "replay", "{result}");
    assert_eq!(result["missing"], json!([]));
    let actions = result["actions"].as_array().expect("an array");
    let seqs: Vec<u64> = actions
        .iter()
        .map(|a| a["serverSeq"].as_u64().unwrap())
        .collect();
    assert!(seqs.iter().all(|seq| *seq > seen), "{seqs:?} after {seen}");
    assert!(seqs.windows(2).all(|pair| pair[0] < pair[1]), "{seqs:?}");
    assert!(
        actions
            .iter()
            .any(|a| a["channel"] == ROOT && a["action"]["type"] == "root/terminalsChanged"),
        "{actions:#?}"
    );
    assert!(
        actions
            .iter()
            .all(|a| a["action"]["type"] != "terminal/input"),
        "what another client typed is not replayed"
    );
    for envelope in actions
        .iter()
        .filter(|a| a["channel"] == terminal.uri.as_str())
    {
        folded.apply_value(envelope);
    }
    assert!(folded.text().contains("in-the-gap"), "{}", folded.text());
    assert_eq!(folded.state.title, "renamed");

    // Live from here, nothing twice: the fold goes on from the replay and equals a snapshot.
    other.output_of("echo live-again").await;
    back.settle().await;
    for envelope in back.actions_since(0, &terminal.uri) {
        assert!(
            envelope["serverSeq"].as_u64() > seqs.last().copied(),
            "delivered twice: {envelope}"
        );
        folded.apply_value(&envelope);
    }
    let fresh = Term::subscribe(&back, &terminal.uri).await;
    assert!(fresh.seen.contains("live-again"));
    folded.assert_equals(&fresh.folded);
    // And it is still the same client.
    let mark = back.mark();
    let seq = back
        .dispatch(
            &terminal.uri,
            json!({"type": "terminal/titleChanged", "title": "x"}),
        )
        .await;
    let echo = back
        .wait_action(mark, &terminal.uri, "terminal/titleChanged")
        .await;
    assert_eq!(echo["origin"], json!({"clientId": id, "clientSeq": seq}));
    host.stop();
}

#[tokio::test]
async fn a_channel_that_is_gone_is_missing() {
    let host = Host::dash();
    let watcher = Raw::open(&host).await;
    let raw = Raw::open(&host).await;
    let id = raw.client_id();
    let gone = Term::create(&raw).await;
    let stays = Term::create(&raw).await;
    raw.settle().await;
    let seen = last_seq(&raw);
    raw.close().await;
    watcher
        .request("disposeTerminal", json!({"channel": gone.uri}))
        .await
        .unwrap();
    let (back, result) = reconnect(
        &host,
        &id,
        seen,
        &[&gone.uri, &stays.uri, "ahp-session:/never"],
    )
    .await;
    let result = result.unwrap();
    assert_eq!(result["type"], "replay");
    let mut missing: Vec<&str> = result["missing"]
        .as_array()
        .unwrap()
        .iter()
        .map(|uri| uri.as_str().unwrap())
        .collect();
    missing.sort_unstable();
    let mut expected = [gone.uri.as_str(), "ahp-session:/never"];
    expected.sort_unstable();
    assert_eq!(missing, expected);
    assert!(
        result["actions"]
            .as_array()
            .unwrap()
            .iter()
            .all(|a| a["channel"] != gone.uri.as_str()),
        "{result}"
    );
    // The client keeps the dead terminal open and types into it: refused, not closed.
    let mark = back.mark();
    let seq = back
        .dispatch(&gone.uri, json!({"type": "terminal/input", "data": "x"}))
        .await;
    back.wait_refusal(mark, &gone.uri, seq).await;
    back.settle().await;
    host.stop();
}

#[tokio::test]
async fn nothing_missed_is_an_empty_replay() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let id = raw.client_id();
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("echo x").await;
    raw.settle().await;
    let seen = last_seq(&raw);
    raw.close().await;
    let (_back, result) = reconnect(&host, &id, seen, &[&terminal.uri]).await;
    assert_eq!(
        result.unwrap(),
        json!({"type": "replay", "actions": [], "missing": []})
    );
    host.stop();
}

#[tokio::test]
async fn reconnect_with_a_channel_works_too() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let id = raw.client_id();
    let seen = last_seq(&raw);
    raw.close().await;
    let back = Raw::connect(&host).await;
    let result = back
        .request(
            "reconnect",
            json!({"channel": ROOT, "clientId": id, "lastSeenServerSeq": seen, "subscriptions": [ROOT]}),
        )
        .await
        .unwrap();
    assert_eq!(result["type"], "replay");
    host.stop();
}

#[tokio::test]
async fn a_gap_beyond_the_buffer_gives_snapshots_of_what_exists() {
    let host = Host::dash();
    let watcher = Raw::open(&host).await;
    let raw = Raw::open(&host).await;
    let id = raw.client_id();
    let gone = Term::create(&raw).await;
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("echo x").await;
    raw.settle().await;
    let seen = last_seq(&raw);
    raw.close().await;
    watcher
        .request("disposeTerminal", json!({"channel": gone.uri}))
        .await
        .unwrap();
    let mut other = Term::subscribe(&watcher, &terminal.uri).await;
    // More than any buffer that deserves the name "bounded" holds for one terminal.
    other
        .line("head -c 40000000 /dev/zero | tr '\\0' x | fold -w 99; echo fl''ooded")
        .await;
    other.wait_text_within("flooded", DEADLINE * 6).await;
    let (back, result) = reconnect(&host, &id, seen, &[ROOT, &terminal.uri, &gone.uri]).await;
    let result = result.unwrap();
    assert_eq!(result["type"], "snapshot", "{}", result["type"]);
    let snapshots = result["snapshots"].as_array().unwrap();
    let mut resources: Vec<&str> = snapshots
        .iter()
        .map(|s| s["resource"].as_str().unwrap())
        .collect();
    resources.sort_unstable();
    let mut expected = [ROOT, terminal.uri.as_str()];
    expected.sort_unstable();
    assert_eq!(resources, expected);
    let snapshot = snapshots
        .iter()
        .find(|s| s["resource"] == terminal.uri.as_str())
        .unwrap();
    let mut folded = Folded::new(snapshot);
    assert!(folded.text().contains("flooded"));
    // And it is subscribed.
    other.output_of("echo and-on").await;
    back.settle().await;
    for envelope in back.actions_since(0, &terminal.uri) {
        folded.apply_value(&envelope);
    }
    assert!(folded.text().contains("and-on"), "live after the snapshot");
    host.stop();
}

#[tokio::test]
async fn a_last_seen_beyond_the_counter_gives_snapshots() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let id = raw.client_id();
    let terminal = Term::create(&raw).await;
    raw.close().await;
    for last_seen in [1 << 52, u64::from(u32::MAX) << 20] {
        let (_back, result) = reconnect(&host, &id, last_seen, &[ROOT, &terminal.uri]).await;
        let result = result.unwrap();
        assert_eq!(result["type"], "snapshot", "{result}");
        assert_eq!(result["snapshots"].as_array().unwrap().len(), 2);
    }
    host.stop();
}

#[tokio::test]
async fn an_unknown_client_is_not_found_and_may_initialize() {
    let host = Host::dash();
    let (raw, result) = reconnect(&host, "never-seen", 0, &[ROOT]).await;
    assert_eq!(result.unwrap_err().code, -32008);
    let result = raw
        .initialize(&["1.0.0"])
        .await
        .expect("initialize on the same socket");
    assert_eq!(result["protocolVersion"], "1.0.0");
    host.stop();
}

#[tokio::test]
async fn malformed_reconnects_are_bad_params() {
    let host = Host::dash();
    let raw = Raw::connect(&host).await;
    for params in [
        json!({}),
        json!({"clientId": 5, "lastSeenServerSeq": 0, "subscriptions": []}),
        json!({"clientId": "x", "lastSeenServerSeq": "0", "subscriptions": []}),
        json!({"clientId": "x", "lastSeenServerSeq": 0, "subscriptions": "all"}),
    ] {
        let error = raw.request("reconnect", params.clone()).await.unwrap_err();
        assert_eq!(error.code, -32602, "{params}: {error:?}");
    }
    host.stop();
}

#[tokio::test]
async fn the_newest_socket_of_a_client_is_the_client() {
    let host = Host::dash();
    let old = Raw::open(&host).await;
    let id = old.client_id();
    let mut terminal = Term::create(&old).await;
    terminal.output_of("echo x").await;
    old.settle().await;
    let (new, result) = reconnect(&host, &id, last_seq(&old), &[ROOT, &terminal.uri]).await;
    assert_eq!(result.unwrap()["type"], "replay");
    let (code, reason) = old.wait_closed().await;
    assert!(
        code != 1006 && !reason.is_empty(),
        "closed with {code} {reason:?}"
    );
    // The claim did not go with the old socket.
    let mark = new.mark();
    let third = Raw::open(&host).await;
    let claim = json!({"kind": "client", "clientId": third.client_id()});
    let there = third.mark();
    let seq = third
        .dispatch(
            &terminal.uri,
            json!({"type": "terminal/claimed", "claim": claim}),
        )
        .await;
    third.wait_refusal(there, &terminal.uri, seq).await;
    let seq = new
        .dispatch(
            &terminal.uri,
            json!({"type": "terminal/titleChanged", "title": "mine"}),
        )
        .await;
    let echo = new
        .wait_action(mark, &terminal.uri, "terminal/titleChanged")
        .await;
    assert_eq!(echo["origin"], json!({"clientId": id, "clientSeq": seq}));

    // The same with initialize.
    let newest = Raw::open_as(&host, &id).await;
    let (code, reason) = new.wait_closed().await;
    assert!(
        code != 1006 && !reason.is_empty(),
        "closed with {code} {reason:?}"
    );
    newest.settle().await;
    host.stop();
}

/// `reconnect` over a connection that is there already.
async fn reconnect_over(raw: &Raw, client_id: &str) -> Result<Value, shellward_tests::RpcError> {
    raw.become_client(client_id);
    let params = json!({
        "clientId": client_id, "lastSeenServerSeq": 0, "subscriptions": [ROOT],
    });
    raw.request("reconnect", params).await
}

#[tokio::test]
async fn nobody_comes_back_as_somebody_else() {
    let host = Host::dash();
    let owner = Raw::open(&host).await;
    let id = owner.client_id();
    let terminal = Term::create(&owner).await;

    // The owner of the socket without the token is somebody else than who has the token.
    let thief = Raw::connect_as_user(&host).await;
    let error = reconnect_over(&thief, &id).await.unwrap_err();
    assert_eq!(error.code, -32008);
    let error = thief.initialize(&["1.0.0"]).await.unwrap_err();
    assert_eq!(error.code, -32009, "{error:?}");
    assert!(error.message.contains("clientId"), "{error:?}");
    owner.settle().await;
    // Refused is not closed: under a name of its own it is welcome.
    thief.become_client("somebody");
    thief.initialize(&["1.0.0"]).await.unwrap();
    let entry = host.ps_entry(&terminal.uri);
    assert_eq!(entry["claim"]["clientId"], id.as_str());

    // With the token it is the same client, whichever way it comes.
    let same = Raw::connect_unix(&host).await;
    reconnect_over(&same, &id).await.unwrap();
    owner.wait_closed().await;
    same.close().await;

    // Once nobody is there, the name is free; then it is the newcomer's.
    let newcomer = poll_until_initialized(&host, &id).await;
    let late = Raw::connect(&host).await;
    assert_eq!(reconnect_over(&late, &id).await.unwrap_err().code, -32008);
    assert_eq!(late.initialize(&["1.0.0"]).await.unwrap_err().code, -32009);
    newcomer.settle().await;
    host.stop();
}

/// Takes over `id` as the socket's user; the host may still be about to notice who has left.
async fn poll_until_initialized(host: &Host, id: &str) -> Raw {
    let end = std::time::Instant::now() + DEADLINE;
    loop {
        let raw = Raw::connect_as_user(host).await;
        raw.become_client(id);
        match raw.initialize(&["1.0.0"]).await {
            Ok(_) => return raw,
            Err(error) => assert_eq!(error.code, -32009),
        }
        assert!(std::time::Instant::now() < end, "{id} never became free");
    }
}

#[tokio::test]
async fn without_a_token_tcp_and_the_sockets_user_are_different() {
    let host = Host::builder()
        .dash()
        .flag("--without-connection-token")
        .start();
    let raw = Raw::open(&host).await;
    let id = raw.client_id();
    let user = Raw::connect_as_user(&host).await;
    assert_eq!(reconnect_over(&user, &id).await.unwrap_err().code, -32008);
    let again = Raw::connect(&host).await;
    reconnect_over(&again, &id).await.unwrap();
    raw.wait_closed().await;
    host.stop();
}

#[tokio::test]
async fn a_reconnected_client_keeps_its_version() {
    let host = Host::dash();
    let raw = Raw::connect(&host).await;
    let id = raw.client_id();
    let welcome = raw.initialize(&["0.9.0"]).await.unwrap();
    raw.close().await;
    let seen = welcome["serverSeq"].as_u64().unwrap();
    let (back, result) = reconnect(&host, &id, seen, &[ROOT]).await;
    assert_eq!(result.unwrap()["type"], "replay");
    let terminal = Term::create(&back).await;
    assert_eq!(
        terminal.snapshot["state"]["lifecycle"],
        json!({"status": "running"})
    );
    host.stop();
}

#[tokio::test]
async fn dispatches_into_channels_that_are_not_there_are_refused_and_nothing_closes() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let other = Raw::open(&host).await;
    let terminal = Term::create(&raw).await;
    raw.request("disposeTerminal", json!({"channel": terminal.uri}))
        .await
        .unwrap();
    let there = other.mark();
    for channel in ["ahp-terminal:/never", terminal.uri.as_str()] {
        for action in [
            json!({"type": "terminal/input", "data": "x"}),
            json!({"type": "terminal/resized", "cols": 80, "rows": 24}),
            json!({"type": "terminal/cleared"}),
            json!({"type": "terminal/titleChanged", "title": "t"}),
            json!({"type": "terminal/claimed", "claim": {"kind": "client", "clientId": raw.client_id()}}),
            json!({"type": "root/configChanged", "config": {}}),
        ] {
            let mark = raw.mark();
            let seq = raw.dispatch(channel, action.clone()).await;
            let refusal = raw.wait_refusal(mark, channel, seq).await;
            assert_eq!(refusal["action"]["type"], action["type"]);
            assert_eq!(refusal["origin"]["clientId"], raw.client_id().as_str());
        }
        let mark = raw.mark();
        for action in [
            json!({"type": "session/titleChanged", "title": "t"}),
            json!({"type": "chat/turnStarted", "turnId": "t"}),
        ] {
            raw.dispatch(channel, action).await;
        }
        raw.settle().await;
        assert!(
            raw.since(mark)
                .iter()
                .all(|message| message["method"] != "action"),
            "session and chat actions for unknown channels are met with silence"
        );
    }
    other.settle().await;
    assert_eq!(
        other.actions_since(there, "ahp-terminal:/never"),
        Vec::<Value>::new()
    );
    host.stop();
}

#[tokio::test]
async fn a_client_seq_that_repeats_is_no_duplicate() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    for word in ["echo ", "ze", "ro$((0+0))", "\r"] {
        raw.dispatch_as(
            &terminal.uri,
            0,
            json!({"type": "terminal/input", "data": word}),
        )
        .await;
    }
    terminal.wait_text("zero0").await;
    let mark = raw.mark();
    for title in ["one", "two", "three"] {
        raw.dispatch_as(
            &terminal.uri,
            0,
            json!({"type": "terminal/titleChanged", "title": title}),
        )
        .await;
    }
    raw.settle().await;
    let titles: Vec<Value> = raw
        .actions_since(mark, &terminal.uri)
        .into_iter()
        .filter(|a| a["action"]["type"] == "terminal/titleChanged")
        .map(|a| {
            assert_eq!(a["origin"]["clientSeq"], 0);
            a["action"]["title"].clone()
        })
        .collect();
    assert_eq!(titles, ["one", "two", "three"]);
    host.stop();
}

#[tokio::test]
async fn a_connection_that_breaks_leaves_nothing_behind() {
    let host = Host::dash();
    let watcher = Raw::open(&host).await;
    let before = shellward_tests::proc::descriptors(host.pid).len();
    for _ in 0..20 {
        // Dropped without a closing handshake.
        drop(Raw::open(&host).await);
    }
    watcher.settle().await;
    poll_for("the descriptors of the dead connections", DEADLINE, || {
        (shellward_tests::proc::descriptors(host.pid).len() <= before).then_some(())
    });
    host.stop();
}
