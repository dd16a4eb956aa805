//! `root/configChanged`: the shell a client prefers, and everything else clients push.

use std::fs;

use shellward_tests::{Host, ROOT, Raw, Term, Value, json};

fn config(raw: &Raw) -> &Value {
    &raw.welcome["snapshots"][0]["state"]["config"]
}

fn changed(config: Value) -> Value {
    json!({"type": "root/configChanged", "config": config})
}

async fn config_now(raw: &Raw) -> Value {
    raw.request("subscribe", json!({"channel": ROOT}))
        .await
        .unwrap()["snapshot"]["state"]["config"]
        .clone()
}

#[tokio::test]
async fn the_schema_advertises_the_default_shell() {
    let host = Host::start();
    let raw = Raw::open(&host).await;
    let config = config(&raw);
    assert_eq!(config["schema"]["type"], "object");
    let property = &config["schema"]["properties"]["defaultShell"];
    assert_eq!(property["type"], "string");
    assert!(property["title"].is_string(), "{property}");
    assert!(config["values"].is_object());
    let _typed: ahp_types::state::RootConfigState = serde_json::from_value(config.clone()).unwrap();
    host.stop();
}

#[tokio::test]
async fn a_default_shell_is_for_the_connection_that_pushed_it() {
    let host = Host::start();
    let raw = Raw::open(&host).await;
    let other = Raw::open(&host).await;
    let (mark, there) = (raw.mark(), other.mark());
    let seq = raw
        .dispatch(ROOT, changed(json!({"defaultShell": "/bin/dash"})))
        .await;
    let echo = raw.wait_action(mark, ROOT, "root/configChanged").await;
    assert_eq!(echo["action"]["config"]["defaultShell"], "/bin/dash");
    assert_eq!(
        echo["origin"],
        json!({"clientId": raw.client_id(), "clientSeq": seq})
    );
    assert_eq!(
        config_now(&raw).await["values"]["defaultShell"],
        "/bin/dash"
    );

    let mut mine = Term::create(&raw).await;
    assert_eq!(mine.snapshot["state"]["title"], "dash");
    assert_eq!(
        mine.output_of("readlink /proc/$$/exe").await.trim(),
        "/usr/bin/dash"
    );
    let mut theirs = Term::create(&other).await;
    assert_eq!(theirs.snapshot["state"]["title"], "bash");
    assert_eq!(
        theirs.output_of("readlink /proc/$$/exe").await.trim(),
        "/usr/bin/bash"
    );

    other.settle().await;
    assert!(
        other
            .actions_since(there, ROOT)
            .iter()
            .all(|envelope| envelope["action"]["type"] != "root/configChanged"),
        "another connection saw it"
    );
    assert_ne!(
        config_now(&other).await["values"]["defaultShell"],
        "/bin/dash"
    );
    let third = Raw::open(&host).await;
    assert_ne!(config(&third)["values"]["defaultShell"], "/bin/dash");
    host.stop();
}

#[tokio::test]
async fn a_default_shell_that_cannot_be_run_is_refused_and_corrected() {
    let host = Host::start();
    let raw = Raw::open(&host).await;
    let other = Raw::open(&host).await;
    let plain = host.folder().join("plain");
    fs::write(&plain, "not executable").unwrap();
    let there = other.mark();
    for shell in [
        json!("/no/such/shell"),
        json!("dash"),
        json!("./dash"),
        json!(""),
        json!(plain.to_str().unwrap()),
        json!("/tmp"),
        json!(5),
        json!(["/bin/dash"]),
        json!("/bin/dash\u{0}x"),
    ] {
        let before = config_now(&raw).await["values"].clone();
        let mark = raw.mark();
        let seq = raw
            .dispatch(ROOT, changed(json!({"defaultShell": shell})))
            .await;
        let refusal = raw.wait_refusal(mark, ROOT, seq).await;
        assert_eq!(refusal["action"]["type"], "root/configChanged", "{shell}");
        let corrective = raw.wait_action(mark, ROOT, "root/configChanged").await;
        assert_eq!(
            corrective["action"]["replace"], true,
            "{shell}: {corrective}"
        );
        assert_eq!(
            corrective["action"]["config"], before,
            "{shell}: {corrective}"
        );
        assert!(corrective.get("origin").is_none(), "{corrective}");
        assert_eq!(config_now(&raw).await["values"], before, "{shell}");
    }
    other.settle().await;
    assert_eq!(other.actions_since(there, ROOT), Vec::<Value>::new());
    let terminal = Term::create(&raw).await;
    assert_eq!(terminal.snapshot["state"]["title"], "bash");
    host.stop();
}

#[tokio::test]
async fn a_pushed_shell_survives_a_refused_one() {
    let host = Host::start();
    let raw = Raw::open(&host).await;
    let mark = raw.mark();
    raw.dispatch(ROOT, changed(json!({"defaultShell": "/bin/dash"})))
        .await;
    raw.wait_action(mark, ROOT, "root/configChanged").await;
    let mark = raw.mark();
    let seq = raw
        .dispatch(ROOT, changed(json!({"defaultShell": "/nope"})))
        .await;
    raw.wait_refusal(mark, ROOT, seq).await;
    let corrective = raw.wait_action(mark, ROOT, "root/configChanged").await;
    assert_eq!(corrective["action"]["config"]["defaultShell"], "/bin/dash");
    let terminal = Term::create(&raw).await;
    assert_eq!(terminal.snapshot["state"]["title"], "dash");
    host.stop();
}

#[tokio::test]
async fn what_vs_code_pushes_on_connect_is_survived() {
    let host = Host::start();
    let raw = Raw::open(&host).await;
    let other = Raw::open(&host).await;
    let there = other.mark();
    for config in [
        json!({"telemetryLevel": "all"}),
        json!({"chat.tools.terminal.autoApprove": {"rm": false, "/^ls/": {"approve": true}}}),
        json!({"workspaceTrust": {"enabled": true, "trustedUris": ["file:///x"]}}),
        json!({"globalAutoApprove": false}),
        json!({"nested": {"deep": [[[[1]]]]}}),
        json!({"": null}),
        json!({}),
        json!({"defaultShell": null}),
        json!(null),
        json!("text"),
    ] {
        raw.dispatch_as(ROOT, 0, changed(config)).await;
    }
    raw.notify("dispatchAction", json!({"channel": ROOT, "clientSeq": 0}))
        .await;
    raw.notify(
        "dispatchAction",
        json!({"channel": ROOT, "action": {"type": "root/configChanged"}}),
    )
    .await;
    raw.settle().await;
    other.settle().await;
    assert!(!raw.is_closed());
    let mut terminal = Term::create(&raw).await;
    assert_eq!(terminal.snapshot["state"]["title"], "bash");
    assert_eq!(terminal.output_of("echo fine").await.trim(), "fine");
    assert!(
        other
            .actions_since(there, ROOT)
            .iter()
            .all(|envelope| envelope["action"]["config"].get("defaultShell").is_none()),
    );
    host.stop();
}

#[tokio::test]
async fn host_actions_on_the_root_are_not_for_clients() {
    let host = Host::start();
    let raw = Raw::open(&host).await;
    let other = Raw::open(&host).await;
    let terminal = Term::create(&raw).await;
    let there = other.mark();
    for action in [
        json!({"type": "root/terminalsChanged", "terminals": []}),
        json!({"type": "root/agentsChanged", "agents": []}),
        json!({"type": "root/activeSessionsChanged", "activeSessions": 3}),
        json!({"type": "root/unheardOf"}),
    ] {
        let mark = raw.mark();
        let seq = raw.dispatch(ROOT, action.clone()).await;
        let refusal = raw.wait_refusal(mark, ROOT, seq).await;
        assert_eq!(refusal["action"]["type"], action["type"]);
    }
    other.settle().await;
    assert_eq!(other.actions_since(there, ROOT), Vec::<Value>::new());
    let root = other
        .request("subscribe", json!({"channel": ROOT}))
        .await
        .unwrap();
    assert_eq!(
        root["snapshot"]["state"]["terminals"][0]["resource"],
        terminal.uri.as_str()
    );
    host.stop();
}
