//! Who holds a terminal, and who may change that.

use shellward_tests::{Host, ROOT, Raw, Term, Value, json, term};

const SESSION: &str = "ahp-session:/s1";
/// `ahp-chat://default/` and the session's URI in base64url without padding.
const CHAT: &str = "ahp-chat://default/YWhwLXNlc3Npb246L3Mx";

fn client(raw: &Raw) -> Value {
    json!({"kind": "client", "clientId": raw.client_id()})
}

fn claimed(claim: &Value) -> Value {
    json!({"type": "terminal/claimed", "claim": claim})
}

/// Dispatches and waits for the echo, which goes to subscribers; the claim in it.
async fn take(raw: &Raw, uri: &str, claim: &Value) -> Value {
    Term::subscribe(raw, uri).await;
    let mark = raw.mark();
    let seq = raw.dispatch(uri, claimed(claim)).await;
    raw.wait_from(mark, &format!("the claim {claim}"), |message| {
        let params = &message["params"];
        (params["action"]["type"] == "terminal/claimed"
            && params["origin"] == json!({"clientId": raw.client_id(), "clientSeq": seq}))
        .then(|| {
            assert!(params.get("rejectionReason").is_none(), "refused: {params}");
            params["action"]["claim"].clone()
        })
    })
    .await
}

/// Dispatches, expects a refusal and then the claim that stays, both to the sender only.
async fn refused(raw: &Raw, watcher: &Raw, uri: &str, claim: &Value, stays: &Value) -> String {
    // What was sent before this reaches the watcher by another connection: first have all of it.
    watcher.settle().await;
    let (mark, there) = (raw.mark(), watcher.mark());
    let seq = raw.dispatch(uri, claimed(claim)).await;
    let refusal = raw.wait_refusal(mark, uri, seq).await;
    assert_eq!(refusal["action"]["type"], "terminal/claimed");
    let corrective = raw.wait_action(mark, uri, "terminal/claimed").await;
    assert_eq!(
        &corrective["action"]["claim"], stays,
        "the corrective action"
    );
    assert!(corrective.get("origin").is_none(), "{corrective}");
    watcher.settle().await;
    let mut heard = watcher.actions_since(there, uri);
    heard.retain(|envelope| envelope["action"]["type"] != "terminal/data");
    assert_eq!(heard, Vec::<Value>::new());
    refusal["rejectionReason"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn without_a_claim_the_creator_holds_it() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let uri = term::new_uri();
    raw.request("createTerminal", json!({"channel": uri}))
        .await
        .unwrap();
    let terminal = Term::subscribe(&raw, &uri).await;
    assert_eq!(terminal.snapshot["state"]["claim"], client(&raw));
    host.stop();
}

#[tokio::test]
async fn malformed_claims_and_claims_for_others_are_bad_params() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let other = Raw::open(&host).await;
    for claim in [
        json!(null),
        json!(5),
        json!("client"),
        json!([]),
        json!({}),
        json!({"kind": "robot"}),
        json!({"kind": "client"}),
        json!({"kind": "client", "clientId": 5}),
        json!({"kind": "session"}),
        json!({"kind": "session", "session": 1}),
        json!({"kind": "session", "session": SESSION, "chat": 1}),
        client(&other),
        json!({"kind": "client", "clientId": "nobody"}),
    ] {
        let error = raw
            .request(
                "createTerminal",
                json!({"channel": term::new_uri(), "claim": claim}),
            )
            .await
            .expect_err(&claim.to_string());
        assert_eq!(error.code, -32602, "{claim}: {error:?}");
    }
    assert_eq!(host.workers().len(), 0);
    host.stop();
}

#[tokio::test]
async fn a_session_claim_without_a_chat_is_completed() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let terminal = Term::create_with(
        &raw,
        json!({"claim": {"kind": "session", "session": SESSION}}),
    )
    .await;
    let complete = json!({"kind": "session", "session": SESSION, "chat": CHAT});
    assert_eq!(terminal.snapshot["state"]["claim"], complete);
    let root = raw
        .request("subscribe", json!({"channel": ROOT}))
        .await
        .unwrap();
    assert_eq!(root["snapshot"]["state"]["terminals"][0]["claim"], complete);
    // A URI whose base64 would need padding and has characters of the url alphabet.
    let session = "ahp-session:/ü?>";
    let terminal = Term::create_with(
        &raw,
        json!({"claim": {"kind": "session", "session": session}}),
    )
    .await;
    assert_eq!(
        terminal.snapshot["state"]["claim"]["chat"],
        "ahp-chat://default/YWhwLXNlc3Npb246L8O8Pz4"
    );
    host.stop();
}

#[tokio::test]
async fn a_session_claim_with_everything_is_kept_as_it_is() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let claim = json!({"kind": "session", "session": SESSION, "chat": "ahp-chat:/c", "turnId": "t", "toolCallId": "k"});
    let terminal = Term::create_with(&raw, json!({"claim": claim})).await;
    assert_eq!(terminal.snapshot["state"]["claim"], claim);
    host.stop();
}

#[tokio::test]
async fn the_holder_hands_it_to_another_connected_client() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let other = Raw::open(&host).await;
    let terminal = Term::create(&raw).await;
    Term::subscribe(&other, &terminal.uri).await;
    let there = other.mark();
    assert_eq!(
        take(&raw, &terminal.uri, &client(&other)).await,
        client(&other)
    );
    let heard = other
        .wait_action(there, &terminal.uri, "terminal/claimed")
        .await;
    assert_eq!(heard["action"]["claim"], client(&other));
    let list = other
        .wait_action(there, ROOT, "root/terminalsChanged")
        .await;
    assert_eq!(list["action"]["terminals"][0]["claim"], client(&other));
    // Now the first one may not take it back by itself.
    let why = refused(&raw, &other, &terminal.uri, &client(&raw), &client(&other)).await;
    assert!(
        why.contains(&other.client_id()),
        "it names the holder: {why}"
    );
    host.stop();
}

#[tokio::test]
async fn the_holder_hands_it_to_a_session() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let terminal = Term::create(&raw).await;
    let claim = take(
        &raw,
        &terminal.uri,
        &json!({"kind": "session", "session": SESSION}),
    )
    .await;
    assert_eq!(
        claim,
        json!({"kind": "session", "session": SESSION, "chat": CHAT})
    );
    host.stop();
}

#[tokio::test]
async fn while_another_connected_client_holds_it_a_claim_is_refused() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let other = Raw::open(&host).await;
    let terminal = Term::create(&raw).await;
    Term::subscribe(&other, &terminal.uri).await;
    for claim in [
        client(&other),
        json!({"kind": "session", "session": SESSION}),
        json!({"kind": "client", "clientId": "nobody"}),
    ] {
        refused(&other, &raw, &terminal.uri, &claim, &client(&raw)).await;
    }
    // Malformed ones and one for a client that is not connected: from the holder too.
    for claim in [
        json!({"kind": "robot"}),
        json!(null),
        json!({"kind": "client", "clientId": "nobody"}),
    ] {
        refused(&raw, &other, &terminal.uri, &claim, &client(&raw)).await;
    }
    host.stop();
}

#[tokio::test]
async fn anyone_takes_what_a_client_that_has_gone_holds() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let other = Raw::open(&host).await;
    let terminal = Term::create(&raw).await;
    let uri = terminal.uri.clone();
    raw.close().await;
    assert_eq!(take(&other, &uri, &client(&other)).await, client(&other));
    host.stop();
}

#[tokio::test]
async fn anyone_takes_for_itself_what_a_session_holds_and_narrows_it() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let other = Raw::open(&host).await;
    let third = Raw::open(&host).await;
    let full = json!({"kind": "session", "session": SESSION, "chat": CHAT, "turnId": "t", "toolCallId": "k"});
    let terminal = Term::create_with(&raw, json!({"claim": full})).await;
    let narrow = json!({"kind": "session", "session": SESSION, "chat": CHAT});
    assert_eq!(take(&other, &terminal.uri, &narrow).await, narrow);
    // Not for somebody else.
    refused(&other, &raw, &terminal.uri, &client(&third), &narrow).await;
    assert_eq!(
        take(&other, &terminal.uri, &client(&other)).await,
        client(&other)
    );
    host.stop();
}

#[tokio::test]
async fn of_two_that_claim_at_once_one_wins() {
    let host = Host::dash();
    let owner = Raw::open(&host).await;
    let terminal = Term::create(&owner).await;
    let uri = terminal.uri.clone();
    let (one, two) = (Raw::open(&host).await, Raw::open(&host).await);
    owner.close().await;
    Term::subscribe(&one, &uri).await;
    Term::subscribe(&two, &uri).await;
    let marks = (one.mark(), two.mark());
    let first = one.dispatch(&uri, claimed(&client(&one))).await;
    let second = two.dispatch(&uri, claimed(&client(&two))).await;
    let outcome = |raw: &Raw, mark: usize, seq: i64| {
        raw.since(mark).iter().find_map(|message| {
            (message["params"]["origin"] == json!({"clientId": raw.client_id(), "clientSeq": seq}))
                .then(|| message["params"].get("rejectionReason").is_none())
        })
    };
    one.settle().await;
    two.settle().await;
    let won = [
        outcome(&one, marks.0, first),
        outcome(&two, marks.1, second),
    ];
    assert!(
        won == [Some(true), Some(false)] || won == [Some(false), Some(true)],
        "{won:?}"
    );
    let watcher = Raw::open(&host).await;
    let late = Term::subscribe(&watcher, &uri).await;
    let holder = if won[0] == Some(true) { &one } else { &two };
    assert_eq!(late.snapshot["state"]["claim"], client(holder));
    host.stop();
}

#[tokio::test]
async fn with_claims_open_anyone_takes_it() {
    let host = Host::builder().dash().option("--claims", "open").start();
    let raw = Raw::open(&host).await;
    let other = Raw::open(&host).await;
    let terminal = Term::create(&raw).await;
    assert_eq!(
        take(&other, &terminal.uri, &client(&other)).await,
        client(&other)
    );
    host.stop();
}

#[tokio::test]
async fn by_default_anyone_types_and_sizes_and_the_flags_restrict_it_to_the_holder() {
    let host = Host::builder()
        .dash()
        .option("--input-from", "holder")
        .option("--size-from", "holder")
        .start();
    let raw = Raw::open(&host).await;
    let other = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let viewer = Term::subscribe(&other, &terminal.uri).await;
    let mark = other.mark();
    let seq = viewer.input("echo in$((1+1))truder\r").await;
    let refusal = other.wait_refusal(mark, &terminal.uri, seq).await;
    assert!(
        refusal["rejectionReason"]
            .as_str()
            .unwrap()
            .contains(&raw.client_id()),
        "it names the holder: {refusal}"
    );
    let mark = other.mark();
    let seq = viewer
        .act(json!({"type": "terminal/resized", "cols": 20, "rows": 5}))
        .await;
    other.wait_refusal(mark, &terminal.uri, seq).await;
    let corrective = other
        .wait_action(mark, &terminal.uri, "terminal/resized")
        .await;
    assert_eq!(
        (&corrective["action"]["cols"], &corrective["action"]["rows"]),
        (&json!(80), &json!(24))
    );
    if terminal.is_pty() {
        assert_eq!(terminal.output_of("stty size").await.trim(), "24 80");
    }
    assert!(!terminal.seen.contains("in2truder"));
    host.stop();
}
