//! The outer protocol: versions, requests, ids, subscriptions of the root.

use ahp_types::state::RootState;
use shellward_tests::{Host, ROOT, Raw, Term, Value, json, term};
use tokio_tungstenite::tungstenite::Message;

fn initialize_params(raw: &Raw, versions: Value) -> Value {
    json!({
        "channel": ROOT,
        "protocolVersions": versions,
        "clientId": raw.client_id(),
        "initialSubscriptions": [ROOT],
    })
}

#[tokio::test]
async fn initialize_with_1_0_0_gives_the_whole_result() {
    let host = Host::start();
    let raw = Raw::connect(&host).await;
    let result = raw.initialize(&["1.0.0"]).await.unwrap();
    assert_eq!(result["protocolVersion"], "1.0.0");
    let seq = result["serverSeq"].as_u64().expect("an integer serverSeq");
    assert_eq!(result["serverInfo"]["name"], "shellward");
    assert!(result["serverInfo"]["version"].is_string());
    assert!(
        result["defaultDirectory"]
            .as_str()
            .is_none_or(|uri| uri.starts_with("file:///")),
        "{result}"
    );
    let snapshots = result["snapshots"].as_array().expect("an array");
    assert_eq!(snapshots.len(), 1);
    assert_eq!(snapshots[0]["resource"], ROOT);
    assert_eq!(snapshots[0]["fromSeq"], seq);
    let state: RootState = serde_json::from_value(snapshots[0]["state"].clone()).unwrap();
    assert_eq!(state.terminals.expect("terminals"), []);
    host.stop();
}

#[tokio::test]
async fn initialize_with_0_9_0_alone_is_served_0_9_0() {
    let host = Host::start();
    let raw = Raw::connect(&host).await;
    let result = raw.initialize(&["0.9.0"]).await.unwrap();
    assert_eq!(result["protocolVersion"], "0.9.0");
    let mut terminal = Term::create(&raw).await;
    assert_eq!(
        terminal.snapshot["state"]["lifecycle"],
        json!({"status": "running"})
    );
    assert_eq!(terminal.output_of("echo $((6*7))").await.trim(), "42");
    host.stop();
}

#[tokio::test]
async fn the_highest_offered_version_wins_whatever_the_order() {
    let host = Host::start();
    for offered in [
        vec!["0.9.0", "1.0.0"],
        vec!["1.0.0", "0.9.0"],
        vec!["0.1.0", "0.9.0", "2.0.0", "1.0.0", "99.0.0"],
    ] {
        let raw = Raw::connect(&host).await;
        let result = raw.initialize(&offered).await.unwrap();
        assert_eq!(result["protocolVersion"], "1.0.0", "offered {offered:?}");
    }
    let raw = Raw::connect(&host).await;
    let result = raw.initialize(&["0.9.0", "0.9.4", "3.0.0"]).await.unwrap();
    assert_eq!(result["protocolVersion"], "0.9.4");
    let raw = Raw::connect(&host).await;
    let result = raw.initialize(&["1.0.0", "1.7.3"]).await.unwrap();
    assert_eq!(result["protocolVersion"], "1.7.3");
    host.stop();
}

#[tokio::test]
async fn versions_that_are_compared_as_text_do_not_win() {
    let host = Host::start();
    let raw = Raw::connect(&host).await;
    let result = raw.initialize(&["1.9.0", "1.10.0"]).await.unwrap();
    assert_eq!(result["protocolVersion"], "1.10.0");
    host.stop();
}

#[tokio::test]
async fn a_malformed_version_is_bad_params() {
    let host = Host::start();
    for bad in [
        json!(["1.0"]),
        json!(["01.0.0"]),
        json!(["1.0.0", "x"]),
        json!(["1.0.0", ""]),
        json!(["1.0.0", "1.0.0-rc1"]),
        json!(["1.0.0", 1]),
        json!("1.0.0"),
        json!(null),
    ] {
        let raw = Raw::connect(&host).await;
        let error = raw
            .request("initialize", initialize_params(&raw, bad.clone()))
            .await
            .expect_err(&format!("{bad} was accepted"));
        assert_eq!(error.code, -32602, "{bad}: {error:?}");
    }
    let raw = Raw::connect(&host).await;
    let error = raw
        .request(
            "initialize",
            json!({"channel": ROOT, "protocolVersions": ["1.0.0"]}),
        )
        .await
        .expect_err("no clientId");
    assert_eq!(error.code, -32602, "{error:?}");
    host.stop();
}

#[tokio::test]
async fn no_common_version_names_the_supported_ones_and_closes() {
    let host = Host::start();
    for offered in [json!(["0.1.0", "2.0.0"]), json!([])] {
        let raw = Raw::connect(&host).await;
        let error = raw
            .request("initialize", initialize_params(&raw, offered.clone()))
            .await
            .expect_err("nothing in common");
        assert_eq!(error.code, -32005, "{offered}: {error:?}");
        let supported = error.data["supportedVersions"]
            .as_array()
            .unwrap_or_else(|| panic!("supportedVersions in {error:?}"));
        assert!(
            supported
                .iter()
                .any(|version| version.as_str().is_some_and(|v| v.contains("1.0"))),
            "{error:?}"
        );
        raw.wait_closed().await;
    }
    host.stop();
}

#[tokio::test]
async fn ping_works_before_initialize_and_without_params() {
    let host = Host::start();
    let raw = Raw::connect(&host).await;
    assert_eq!(
        raw.request("ping", json!({"channel": ROOT})).await,
        Ok(Value::Null)
    );
    raw.send(&json!({"jsonrpc": "2.0", "id": 900, "method": "ping"}))
        .await;
    assert_eq!(raw.response(900).await, Ok(Value::Null));
    raw.initialize(&["1.0.0"]).await.unwrap();
    raw.send(&json!({"jsonrpc": "2.0", "id": 901, "method": "ping"}))
        .await;
    assert_eq!(raw.response(901).await, Ok(Value::Null));
    host.stop();
}

#[tokio::test]
async fn a_void_result_is_a_null_that_is_there() {
    let host = Host::start();
    let raw = Raw::connect(&host).await;
    raw.send(&json!({"jsonrpc": "2.0", "id": 7, "method": "ping", "params": {"channel": ROOT}}))
        .await;
    raw.response(7).await.unwrap();
    let answer = raw.since(0).remove(0);
    let members: Vec<&String> = answer.as_object().unwrap().keys().collect();
    assert_eq!(members.len(), 3, "{answer}");
    assert_eq!(answer.get("result"), Some(&Value::Null));
    host.stop();
}

#[tokio::test]
async fn other_methods_before_initialize_are_unknown() {
    let host = Host::start();
    let raw = Raw::connect(&host).await;
    for (method, params) in [
        ("subscribe", json!({"channel": ROOT})),
        ("listSessions", json!({"channel": ROOT})),
        (
            "createTerminal",
            term::create_params(&raw, "ahp-terminal:/early", json!({})),
        ),
    ] {
        let error = raw.request(method, params).await.expect_err(method);
        assert_eq!(error.code, -32601, "{method}: {error:?}");
    }
    // A dispatch before the handshake does nothing; the connection holds.
    raw.dispatch(
        ROOT,
        json!({"type": "root/configChanged", "config": {"defaultShell": "/bin/dash"}}),
    )
    .await;
    let welcome = raw.initialize(&["1.0.0"]).await.unwrap();
    assert_ne!(
        welcome["snapshots"][0]["state"]["config"]["values"]["defaultShell"],
        "/bin/dash"
    );
    host.stop();
}

#[tokio::test]
async fn an_unknown_method_is_answered_as_such() {
    let host = Host::start();
    let raw = Raw::open(&host).await;
    for method in [
        "noSuchMethod",
        "shutdown",
        "vscode/getThing",
        "resourceRead",
        "createResourceWatch",
        "",
    ] {
        let error = raw
            .request(method, json!({"channel": ROOT}))
            .await
            .expect_err(method);
        assert_eq!(error.code, -32601, "{method}: {error:?}");
    }
    host.stop();
}

#[tokio::test]
async fn a_second_initialize_is_unknown_and_changes_nothing() {
    let host = Host::start();
    let raw = Raw::open(&host).await;
    let error = raw.initialize(&["0.9.0"]).await.expect_err("a second one");
    assert_eq!(error.code, -32601, "{error:?}");
    let error = raw
        .request(
            "reconnect",
            json!({"channel": ROOT, "clientId": raw.client_id(), "lastSeenServerSeq": 0, "subscriptions": []}),
        )
        .await
        .expect_err("a reconnect on a live connection");
    assert_eq!(error.code, -32601, "{error:?}");
    raw.settle().await;
    host.stop();
}

#[tokio::test]
async fn request_ids_that_are_not_unsigned_integers_are_invalid_requests() {
    let host = Host::start();
    for id in [
        json!("7"),
        json!(-7),
        json!(7.5),
        json!(null),
        json!([7]),
        json!(true),
    ] {
        let raw = Raw::open(&host).await;
        let mark = raw.mark();
        raw.send(
            &json!({"jsonrpc": "2.0", "id": id, "method": "subscribe", "params": {"channel": ROOT}}),
        )
        .await;
        // An error without an id the client can match, or the end of the connection; never silence.
        let error = raw
            .wait_from(mark, &format!("the refusal of id {id}"), |message| {
                message.get("error").cloned()
            })
            .await;
        assert_eq!(error["code"], -32600, "id {id}: {error}");
        assert!(
            raw.since(mark)
                .iter()
                .all(|message| message.get("result").is_none()),
            "id {id} was served"
        );
    }
    host.stop();
}

#[tokio::test]
async fn the_largest_id_comes_back_unchanged() {
    let host = Host::start();
    let raw = Raw::open(&host).await;
    raw.send(
        &json!({"jsonrpc": "2.0", "id": u64::MAX, "method": "ping", "params": {"channel": ROOT}}),
    )
    .await;
    assert_eq!(raw.response(u64::MAX).await, Ok(Value::Null));
    raw.send(&json!({"jsonrpc": "2.0", "id": 0, "method": "ping", "params": {"channel": ROOT}}))
        .await;
    assert_eq!(raw.response(0).await, Ok(Value::Null));
    host.stop();
}

#[tokio::test]
async fn text_that_is_not_json_does_not_disturb_the_host() {
    let host = Host::start();
    let other = Raw::open(&host).await;
    for garbage in [
        "", "{", "nonsense", "[1,2", "\u{0}", "[]", "42", "null", "\"x\"", "{}",
    ] {
        let raw = Raw::open(&host).await;
        raw.send_text(garbage).await;
        // Refused, ignored or closed: the host decides. It must serve the next one.
        let ping =
            json!({"jsonrpc": "2.0", "id": 5, "method": "ping", "params": {"channel": ROOT}});
        if raw.try_send(Message::text(ping.to_string())).await.is_ok() {
            let answer = raw.response_or_end(5).await;
            assert!(
                answer.is_none() || answer == Some(Ok(Value::Null)),
                "{garbage:?}: {answer:?}"
            );
        }
        other.settle().await;
    }
    host.stop();
}

#[tokio::test]
async fn a_channel_that_is_missing_is_bad_params() {
    let host = Host::start();
    let raw = Raw::open(&host).await;
    for (method, params) in [
        ("subscribe", json!({})),
        ("subscribe", json!({"channel": 5})),
        (
            "createTerminal",
            json!({"claim": {"kind": "client", "clientId": raw.client_id()}}),
        ),
        ("disposeTerminal", json!({})),
    ] {
        let error = raw.request(method, params.clone()).await.expect_err(method);
        assert_eq!(error.code, -32602, "{method} {params}: {error:?}");
    }
    host.stop();
}

#[tokio::test]
async fn unknown_members_are_ignored_everywhere() {
    let host = Host::start();
    let raw = Raw::connect(&host).await;
    let result = raw
        .request(
            "initialize",
            json!({
                "channel": ROOT, "protocolVersions": ["1.0.0"], "clientId": raw.client_id(),
                "clientInfo": {"name": "vscode-editor-window", "title": "T", "extra": [1]},
                "initialSubscriptions": [ROOT], "locale": "en", "capabilities": {"x": {}},
                "_meta": {"vscode.machineId": "m"}, "flowControl": {"receive": {"windowBytes": 5}},
            }),
        )
        .await
        .unwrap();
    assert_eq!(result["protocolVersion"], "1.0.0");
    let uri = term::new_uri();
    raw.request(
        "createTerminal",
        json!({
            "channel": uri, "future": {"a": 1}, "_meta": {},
            "claim": {"kind": "client", "clientId": raw.client_id(), "extra": true},
            "name": null, "cwd": null, "cols": null, "rows": null,
        }),
    )
    .await
    .unwrap();
    let result = raw
        .request(
            "subscribe",
            json!({"channel": uri, "delivery": {"maxLatencyMs": 0, "z": 1}, "view": {"turns": 3}, "flowControl": {}}),
        )
        .await
        .unwrap();
    assert!(
        result.get("flowControl").is_none(),
        "not in 1.0.0: {result}"
    );
    let mark = raw.mark();
    raw.notify(
        "dispatchAction",
        json!({"channel": uri, "clientSeq": 1, "extra": 1,
            "action": {"type": "terminal/titleChanged", "title": "named", "extra": {"b": 2}}}),
    )
    .await;
    let echo = raw.wait_action(mark, &uri, "terminal/titleChanged").await;
    assert_eq!(echo["action"]["title"], "named");
    host.stop();
}

#[tokio::test]
async fn initial_subscriptions_that_do_not_exist_are_left_out() {
    let host = Host::start();
    let first = Raw::open(&host).await;
    let terminal = Term::create(&first).await;
    let raw = Raw::connect(&host).await;
    let result = raw
        .request(
            "initialize",
            json!({
                "channel": ROOT, "protocolVersions": ["1.0.0"], "clientId": raw.client_id(),
                "initialSubscriptions": ["ahp-terminal:/nope", terminal.uri, "ahp-session:/nope", ROOT, "not a uri"],
            }),
        )
        .await
        .unwrap();
    let mut resources: Vec<&str> = result["snapshots"]
        .as_array()
        .unwrap()
        .iter()
        .map(|snapshot| snapshot["resource"].as_str().unwrap())
        .collect();
    resources.sort_unstable();
    let mut expected = [ROOT, terminal.uri.as_str()];
    expected.sort_unstable();
    assert_eq!(resources, expected);
    // The subscription is live.
    let mark = raw.mark();
    terminal
        .act(json!({"type": "terminal/titleChanged", "title": "t"}))
        .await;
    raw.wait_action(mark, &terminal.uri, "terminal/titleChanged")
        .await;
    host.stop();
}

#[tokio::test]
async fn initialize_without_subscriptions_gives_an_empty_array() {
    let host = Host::start();
    let raw = Raw::connect(&host).await;
    let result = raw
        .request(
            "initialize",
            json!({"channel": ROOT, "protocolVersions": ["1.0.0"], "clientId": raw.client_id()}),
        )
        .await
        .unwrap();
    assert_eq!(result["snapshots"], json!([]));
    // Nothing of the root comes to it.
    let mark = raw.mark();
    Term::create(&raw).await;
    raw.settle().await;
    assert_eq!(raw.actions_since(mark, ROOT), Vec::<Value>::new());
    host.stop();
}

#[tokio::test]
async fn the_short_root_uri_is_the_root_and_comes_back_byte_for_byte() {
    let host = Host::start();
    let raw = Raw::connect(&host).await;
    let result = raw
        .request(
            "initialize",
            json!({
                "channel": "ahp-root:", "protocolVersions": ["1.0.0"], "clientId": raw.client_id(),
                "initialSubscriptions": ["ahp-root:"],
            }),
        )
        .await
        .unwrap();
    assert_eq!(result["snapshots"][0]["resource"], "ahp-root:");
    let mark = raw.mark();
    Term::create(&raw).await;
    raw.wait_action(mark, "ahp-root:", "root/terminalsChanged")
        .await;

    let other = Raw::connect(&host).await;
    other
        .request(
            "initialize",
            json!({"channel": ROOT, "protocolVersions": ["1.0.0"], "clientId": other.client_id()}),
        )
        .await
        .unwrap();
    let result = other
        .request("subscribe", json!({"channel": "ahp-root:"}))
        .await
        .unwrap();
    assert_eq!(result["snapshot"]["resource"], "ahp-root:");
    host.stop();
}

#[tokio::test]
async fn a_second_subscribe_gives_a_fresh_snapshot_and_no_double_delivery() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.wait_prompt().await;
    let again = Term::subscribe(&raw, &terminal.uri).await;
    assert_eq!(again.folded.text(), terminal.folded.text());
    raw.request("subscribe", json!({"channel": ROOT}))
        .await
        .unwrap();
    let mark = raw.mark();
    terminal
        .act(json!({"type": "terminal/titleChanged", "title": "once"}))
        .await;
    terminal.output_of("echo x").await;
    raw.settle().await;
    let titles = raw
        .actions_since(mark, &terminal.uri)
        .iter()
        .filter(|envelope| envelope["action"]["type"] == "terminal/titleChanged")
        .count();
    assert_eq!(titles, 1);
    let lists = raw.actions_since(mark, ROOT).len();
    assert_eq!(lists, 1, "root actions after one title change");
    host.stop();
}

#[tokio::test]
async fn unsubscribe_ends_the_delivery_to_that_connection_only() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let other = Raw::open(&host).await;
    let terminal = Term::create(&raw).await;
    let mut seen = Term::subscribe(&other, &terminal.uri).await;
    raw.notify("unsubscribe", json!({"channel": terminal.uri}))
        .await;
    raw.settle().await;
    let mark = raw.mark();
    terminal.line("echo $((20+3))still").await;
    seen.wait_text("23still").await;
    raw.settle().await;
    let heard: Vec<Value> = raw
        .actions_since(mark, &terminal.uri)
        .into_iter()
        // The echo of one's own input comes to the sender whether subscribed or not.
        .filter(|envelope| envelope["action"]["type"] != "terminal/input")
        .collect();
    assert_eq!(heard, Vec::<Value>::new());
    // Twice, and of something that is not there: no harm.
    raw.notify("unsubscribe", json!({"channel": terminal.uri}))
        .await;
    raw.notify("unsubscribe", json!({"channel": "ahp-terminal:/nope"}))
        .await;
    raw.notify("unsubscribe", json!({})).await;
    raw.settle().await;
    host.stop();
}

#[tokio::test]
async fn subscribe_to_an_unknown_channel_names_the_right_error() {
    let host = Host::start();
    let raw = Raw::open(&host).await;
    for (uri, code) in [
        ("ahp-terminal:/nope", -32008),
        ("agenthost-terminal:/nope", -32008),
        ("anything:else", -32008),
        ("ahp-session:/nope", -32001),
    ] {
        let error = raw
            .request("subscribe", json!({"channel": uri}))
            .await
            .expect_err(uri);
        assert_eq!(error.code, code, "{uri}: {error:?}");
    }
    host.stop();
}

#[tokio::test]
async fn list_sessions_is_empty() {
    let host = Host::start();
    let raw = Raw::open(&host).await;
    let result = raw
        .request("listSessions", json!({"channel": ROOT}))
        .await
        .unwrap();
    assert_eq!(result, json!({"items": []}));
    host.stop();
}

#[tokio::test]
async fn notifications_that_nobody_knows_are_ignored() {
    let host = Host::start();
    let raw = Raw::open(&host).await;
    raw.notify(
        "setClientManagedSettingsPermissions",
        json!({"permissions": [1, 2]}),
    )
    .await;
    raw.notify("nothing/known", json!({"channel": ROOT})).await;
    raw.send(&json!({"jsonrpc": "2.0", "method": "alsoNothing"}))
        .await;
    raw.send(&json!({"jsonrpc": "2.0", "id": 4711, "result": null}))
        .await;
    let mark = raw.mark();
    raw.settle().await;
    assert_eq!(raw.since(mark).len(), 1, "only the answer to ping");
    host.stop();
}

#[tokio::test]
async fn the_same_protocol_is_on_the_unix_socket() {
    let host = Host::dash();
    let mut raw = Raw::connect_unix(&host).await;
    raw.welcome = raw.initialize(&["1.0.0"]).await.unwrap();
    let mut terminal = Term::create(&raw).await;
    assert_eq!(terminal.output_of("echo $((40+2))").await.trim(), "42");
    let tcp = Raw::open(&host).await;
    let mut same = Term::subscribe(&tcp, &terminal.uri).await;
    same.wait_text("42").await;
    host.stop();
}

#[tokio::test]
async fn requests_about_one_channel_are_answered_in_their_order() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let uri = term::new_uri();
    let mark = raw.mark();
    let create = raw
        .start_request("createTerminal", term::create_params(&raw, &uri, json!({})))
        .await;
    let subscribe = raw
        .start_request("subscribe", json!({"channel": uri}))
        .await;
    let dispose = raw
        .start_request("disposeTerminal", json!({"channel": uri}))
        .await;
    let gone = raw
        .start_request("subscribe", json!({"channel": uri}))
        .await;
    assert_eq!(raw.response(create).await, Ok(Value::Null));
    assert!(raw.response(subscribe).await.unwrap()["snapshot"].is_object());
    assert_eq!(raw.response(dispose).await, Ok(Value::Null));
    assert_eq!(raw.response(gone).await.unwrap_err().code, -32008);
    let order: Vec<u64> = raw
        .since(mark)
        .iter()
        .filter(|message| message.get("method").is_none())
        .filter_map(|message| message["id"].as_u64())
        .collect();
    assert_eq!(order, [create, subscribe, dispose, gone]);
    host.stop();
}

#[tokio::test]
async fn error_texts_show_no_paths_of_the_host() {
    let host = Host::start();
    let raw = Raw::open(&host).await;
    let folder = host.folder().display().to_string();
    for (method, params) in [
        ("subscribe", json!({"channel": "ahp-terminal:/nope"})),
        (
            "createTerminal",
            json!({"channel": term::new_uri(), "claim": 5}),
        ),
        ("initialize", json!({})),
        ("noSuchMethod", json!({})),
    ] {
        let error = raw.request(method, params).await.expect_err(method);
        assert!(!error.message.is_empty(), "{method} without a message");
        assert!(!error.message.contains(&folder), "{error:?}");
        assert!(!error.message.contains(".rs:"), "{error:?}");
    }
    host.stop();
}
