//! Handshake, subscriptions, reconnect.

use super::*;

#[test]
fn before_initialize_only_ping_is_served() {
    let mut bench = Bench::new();
    let a = bench.connect();
    assert_eq!(bench.ask(a, "ping", json!({}))["result"], Value::Null);
    assert!(
        bench
            .ask(a, "ping", json!({}))
            .as_object()
            .unwrap()
            .contains_key("result")
    );
    assert_eq!(
        code(&bench.ask(a, "subscribe", json!({"channel":"ahp-root://"}))),
        -32601
    );
    assert_eq!(
        code(&bench.ask(
            a,
            "initialize",
            json!({"protocolVersions":["1.0"],"clientId":"a"})
        )),
        -32602
    );
    let refused = bench.ask(
        a,
        "initialize",
        json!({"protocolVersions":["0.1.0"],"clientId":"a"}),
    );
    assert_eq!(
        (
            code(&refused),
            &refused["error"]["data"]["supportedVersions"]
        ),
        (-32005, &json!(["^1.0.0", "^0.9.0"]))
    );
    assert_eq!(bench.closed(a), Some(Close::VERSION));
}

#[test]
fn a_second_initialize_is_an_unknown_method() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    for method in ["initialize", "reconnect", "nonsense"] {
        assert_eq!(
            code(&bench.ask(
                a,
                method,
                json!({"protocolVersions":["1.0.0"],"clientId":"a"})
            )),
            -32601
        );
    }
}

#[test]
fn snapshot_and_stream_meet_without_a_gap_or_a_repeat() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    let key = bench.terminal(a, "t:/1");
    bench.output(key, "one");
    let answer = bench.ask(a, "subscribe", json!({"channel":"t:/1"}));
    let from = answer["result"]["snapshot"]["fromSeq"].as_u64().unwrap();
    assert_eq!(
        answer["result"]["snapshot"]["state"]["content"][0]["value"],
        "one"
    );
    bench.output(key, "two");
    let stream = bench.take(a);
    assert_eq!(kinds(&stream), ["terminal/data"]);
    assert!(stream[0]["params"]["serverSeq"].as_u64().unwrap() > from);
    let again = bench.ask(a, "subscribe", json!({"channel":"t:/1"}));
    assert_eq!(
        again["result"]["snapshot"]["state"]["content"][0]["value"],
        "onetwo"
    );
    bench.output(key, "three");
    assert_eq!(
        bench.take(a).len(),
        1,
        "a second subscribe does not deliver twice"
    );
    bench.send(
        a,
        json!({"method":"unsubscribe","params":{"channel":"t:/1"}}),
    );
    bench.output(key, "four");
    assert!(bench.take(a).is_empty());
}

#[test]
fn reconnect_replays_or_gives_snapshots_or_does_not_know() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    let key = bench.terminal(a, "t:/1");
    bench.ask(a, "subscribe", json!({"channel":"t:/1"}));
    let seen = bench.core.seq;
    bench.core.disconnect(a, bench.now, &mut bench.effects);
    bench.output(key, "missed");
    bench.dispatch(
        b,
        "t:/1",
        json!({"type":"terminal/titleChanged","title":"new"}),
    );
    let a2 = bench.connect();
    let ask = |bench: &mut Bench, who, last: u64| {
        bench.ask(who, "reconnect", json!({"clientId":"a","lastSeenServerSeq":last,"subscriptions":["ahp-root:","t:/1","t:/gone"]}))
    };
    let answer = ask(&mut bench, a2, seen);
    let actions = answer["result"]["actions"].as_array().unwrap();
    assert_eq!(answer["result"]["missing"], json!(["t:/gone"]));
    assert_eq!(
        actions
            .iter()
            .map(|a| a["action"]["type"].as_str().unwrap())
            .collect::<Vec<_>>(),
        [
            "terminal/data",
            "terminal/titleChanged",
            "root/terminalsChanged"
        ]
    );
    assert_eq!(
        actions[2]["channel"], "ahp-root:",
        "as this client spells it"
    );
    bench.output(key, "live");
    assert_eq!(kinds(&bench.take(a2)), ["terminal/data"]);

    let beyond = bench.core.seq + 10;
    let a3 = bench.connect();
    let answer = ask(&mut bench, a3, beyond);
    assert_eq!(
        bench.closed(a2),
        Some(Close::REPLACED),
        "the newest connection is the client"
    );
    let snapshots = answer["result"]["snapshots"].as_array().unwrap();
    assert_eq!(
        snapshots
            .iter()
            .map(|s| s["resource"].as_str().unwrap())
            .collect::<Vec<_>>(),
        ["ahp-root:", "t:/1"]
    );

    // Output that nobody was to be sent cannot be replayed.
    bench.core.disconnect(a3, bench.now, &mut bench.effects);
    let seen = bench.core.seq;
    bench.now += crate::limits::RECORD_AFTER_LOSS;
    bench.output(key, "unrecorded");
    let a4 = bench.connect();
    assert_eq!(ask(&mut bench, a4, seen)["result"]["type"], "snapshot");

    let c = bench.connect();
    let unknown = bench.ask(
        c,
        "reconnect",
        json!({"clientId":"nobody","lastSeenServerSeq":1,"subscriptions":[]}),
    );
    assert_eq!(code(&unknown), -32008);
    assert_eq!(
        bench.ask(
            c,
            "initialize",
            json!({"protocolVersions":["1.0.0"],"clientId":"c"})
        )["result"]["protocolVersion"],
        "1.0.0"
    );
}

#[test]
fn subscriptions_are_bounded_and_given_back() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    bench.core.connections.get_mut(&a).unwrap().subscriptions = crate::limits::SUBSCRIPTIONS;
    bench.terminal(a, "t:/1");
    assert_eq!(
        code(&bench.ask(a, "subscribe", json!({"channel":"t:/1"}))),
        -32600
    );
    bench.send(
        a,
        json!({"method":"unsubscribe","params":{"channel":"ahp-root://"}}),
    );
    assert_eq!(
        code(&bench.ask(a, "subscribe", json!({"channel":"t:/1"}))),
        0
    );
}

fn reconnect(bench: &mut Bench, who: ConnectionId, client_id: &str, last_seen: u64) -> Value {
    let params =
        json!({"clientId":client_id,"lastSeenServerSeq":last_seen,"subscriptions":["ahp-root://"]});
    bench.ask(who, "reconnect", params)
}

#[test]
fn a_client_id_belongs_to_who_proved_to_have_it() {
    let mut bench = Bench::new();
    let initialize = |bench: &mut Bench, who| {
        let params = json!({"protocolVersions":["1.0.0"],"clientId":"a"});
        bench.ask(who, "initialize", params)
    };
    let (token, uid) = (Principal::Token, Principal::Uid(7));
    let owner = bench.client("a");
    let seen = bench.core.seq;
    for other in [uid, Principal::Uid(8), Principal::Anybody] {
        let thief = bench.connect_as(other);
        assert_eq!(code(&reconnect(&mut bench, thief, "a", seen)), -32008);
        assert_eq!(code(&initialize(&mut bench, thief)), -32009);
        assert!(!bench.core.is_initialized(thief));
    }
    assert_eq!(bench.closed(owner), None, "nobody has replaced it");
    bench.core.disconnect(owner, bench.now, &mut bench.effects);
    // Nobody is there: the name is free, but nothing comes with it.
    bench
        .core
        .clients
        .set_default_shell("a", "/bin/other".to_owned());
    let next = bench.connect_as(uid);
    assert_eq!(code(&reconnect(&mut bench, next, "a", seen)), -32008);
    assert_eq!(code(&initialize(&mut bench, next)), 0);
    assert_eq!(bench.core.default_shell(next), "/bin/bash");
    let back = bench.connect_as(token);
    assert_eq!(code(&reconnect(&mut bench, back, "a", seen)), -32008);
    bench.core.disconnect(next, bench.now, &mut bench.effects);
    let again = bench.connect_as(uid);
    let answer = reconnect(&mut bench, again, "a", seen);
    assert_eq!(answer["result"]["type"], "replay");
}

#[test]
fn clients_of_an_earlier_host_are_given_snapshots() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    bench.dispatch(
        a,
        "ahp-root://",
        json!({"type":"root/configChanged","config":{"defaultShell":"/bin/zsh"}}),
    );
    let asked = |bench: &Bench| {
        let saves = bench.effects.iter().filter(|e| **e == Effect::SaveClients);
        saves.count()
    };
    assert_eq!(asked(&bench), 1, "once for both");
    let saved = bench.core.clients_to_save();
    let mut later = Bench::new();
    later.core.restore_clients(saved);
    // Even where its number would do: a state directory may have been lost.
    let seen = later.core.seq;
    let back = later.connect();
    let answer = reconnect(&mut later, back, "a", seen);
    assert_eq!(answer["result"]["type"], "snapshot");
    assert_eq!(later.core.default_shell(back), "/bin/zsh");
    assert_eq!(asked(&later), 0, "the file has it");
    later.core.disconnect(back, later.now, &mut later.effects);
    let again = later.connect();
    let answer = reconnect(&mut later, again, "a", seen);
    assert_eq!(answer["result"]["type"], "replay", "it is of this life now");
    let thief = later.connect_as(Principal::Anybody);
    assert_eq!(code(&reconnect(&mut later, thief, "a", seen)), -32008);
}

#[test]
fn what_comes_too_early_is_told_what_to_do_first() {
    let mut bench = Bench::new();
    let a = bench.connect();
    let answer = bench.ask(a, "listSessions", json!({}));
    let words = answer["error"]["message"].as_str().unwrap();
    for method in ["initialize", "reconnect", "ping"] {
        assert!(words.contains(method), "{words}");
    }
}
