//! What clients may make true.

use super::*;

#[test]
fn typing_is_echoed_to_its_sender_only_and_never_replayed() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    bench.terminal(a, "t:/1");
    bench.ask(a, "subscribe", json!({"channel":"t:/1"}));
    bench.ask(b, "subscribe", json!({"channel":"t:/1"}));
    let seen = bench.core.seq;
    let echo = bench.dispatch(a, "t:/1", json!({"type":"terminal/input","data":"s3cret"}));
    assert_eq!(echo.len(), 1);
    assert_eq!(
        (&echo[0]["origin"], &echo[0]["serverSeq"]),
        (&json!({"clientId":"a","clientSeq":5}), &json!(seen + 1))
    );
    assert!(bench.take(b).is_empty());
    bench.core.disconnect(b, bench.now, &mut bench.effects);
    let b2 = bench.connect();
    let answer = bench.ask(
        b2,
        "reconnect",
        json!({"clientId":"b","lastSeenServerSeq":seen,"subscriptions":["t:/1"]}),
    );
    assert_eq!(
        answer["result"],
        json!({"type":"replay","actions":[],"missing":[]})
    );
}

#[test]
fn a_refusal_goes_to_its_sender_with_what_is_true() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    bench.terminal(a, "t:/1");
    bench.ask(a, "subscribe", json!({"channel":"t:/1"}));
    bench.ask(b, "subscribe", json!({"channel":"t:/1"}));
    let seq = bench.core.seq;
    let refused = bench.dispatch(
        b,
        "t:/1",
        json!({"type":"terminal/claimed","claim":{"kind":"client","clientId":"b"}}),
    );
    assert_eq!(refused.len(), 2);
    assert!(
        refused[0]["rejectionReason"]
            .as_str()
            .unwrap()
            .contains("client a")
    );
    assert_eq!(refused[0]["serverSeq"], seq, "a refusal takes no number");
    assert_eq!(refused[1]["action"]["claim"]["clientId"], "a");
    assert_eq!(refused[1]["serverSeq"], seq + 1);
    assert!(bench.take(a).is_empty());
    let sizes = bench.dispatch(
        a,
        "t:/1",
        json!({"type":"terminal/resized","cols":0,"rows":5}),
    );
    assert_eq!(
        sizes[1]["action"],
        json!({"type":"terminal/resized","cols":80,"rows":24})
    );
    let dead = bench.dispatch(a, "t:/none", json!({"type":"terminal/input","data":"x"}));
    assert!(dead.len() == 1 && dead[0]["rejectionReason"].is_string());
    assert!(
        bench
            .dispatch(
                a,
                "ahp-session:/x",
                json!({"type":"session/titleChanged","title":"x"})
            )
            .is_empty()
    );
}

#[test]
fn the_list_is_sent_only_when_it_differs() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    let key = bench.terminal(a, "t:/1");
    bench.dispatch(
        a,
        "t:/1",
        json!({"type":"terminal/titleChanged","title":"bash"}),
    );
    assert!(bench.take(a).is_empty());
    let renamed = bench.dispatch(
        a,
        "t:/1",
        json!({"type":"terminal/titleChanged","title":"new"}),
    );
    assert_eq!(renamed.len(), 1, "{renamed:?}");
    assert_eq!(renamed[0]["action"]["terminals"][0]["title"], "new");
    bench
        .core
        .exited(key, ExitStatus::Signal(9), bench.now, &mut bench.effects);
    let exit = bench.take(a);
    assert_eq!(exit[0]["params"]["action"]["terminals"][0]["exitCode"], 128);
    assert_eq!(
        exit[0]["params"]["action"]["terminals"][0]["signal"],
        "SIGKILL"
    );
}

#[test]
fn default_shell_belongs_to_the_connection_that_pushed_it() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    let echo = bench.dispatch(
        a,
        "ahp-root://",
        json!({"type":"root/configChanged","config":{"defaultShell":"/bin/dash","other":1}}),
    );
    assert_eq!(
        echo[0]["action"]["config"],
        json!({"defaultShell":"/bin/dash"})
    );
    assert!(
        bench
            .dispatch(
                a,
                "ahp-root://",
                json!({"type":"root/configChanged","config":{"defaultShell":"/bin/dash"}})
            )
            .is_empty(),
        "no echo loops"
    );
    assert!(bench.take(b).is_empty());
    let values = |bench: &mut Bench, who| {
        bench.ask(who, "subscribe", json!({"channel":"ahp-root://"}))["result"]["snapshot"]["state"]
            ["config"]["values"]
            .clone()
    };
    assert_eq!(values(&mut bench, a), json!({"defaultShell":"/bin/dash"}));
    assert_eq!(values(&mut bench, b), json!({"defaultShell":"/bin/bash"}));
    for bad in [
        json!({"defaultShell":"/x"}),
        json!({"defaultShell":7}),
        json!({"other":1}),
        json!({}),
    ] {
        let refused = bench.dispatch(
            a,
            "ahp-root://",
            json!({"type":"root/configChanged","config":bad}),
        );
        assert!(refused[0]["rejectionReason"].is_string());
        assert_eq!(
            refused[1]["action"],
            json!({"type":"root/configChanged","config":{"defaultShell":"/bin/dash"},"replace":true})
        );
    }
    bench.send(
        a,
        json!({"id":1,"method":"createTerminal","params":{"channel":"t:/1"}}),
    );
    assert_eq!(bench.plan().shell, PathBuf::from("/bin/dash"));
    bench.send(
        b,
        json!({"id":1,"method":"createTerminal","params":{"channel":"t:/2"}}),
    );
    assert_eq!(bench.plan().shell, PathBuf::from("/bin/bash"));
}

#[test]
fn input_and_size_can_be_the_holders_alone() {
    let mut bench = Bench::with(Settings {
        input_from_holder: true,
        size_from_holder: true,
        ..settings()
    });
    let (a, b) = (bench.client("a"), bench.client("b"));
    bench.terminal(a, "t:/1");
    bench.take(b);
    let input = json!({"type":"terminal/input","data":"x"});
    let size = json!({"type":"terminal/resized","cols":5,"rows":5});
    assert!(bench.dispatch(b, "t:/1", input.clone())[0]["rejectionReason"].is_string());
    assert!(bench.dispatch(b, "t:/1", size.clone())[0]["rejectionReason"].is_string());
    assert!(bench.dispatch(a, "t:/1", input.clone())[0]["rejectionReason"].is_null());
    bench.core.disconnect(a, bench.now, &mut bench.effects);
    bench.ask(b, "subscribe", json!({"channel":"t:/1"}));
    assert!(
        bench.dispatch(b, "t:/1", size)[0]["rejectionReason"].is_null(),
        "an absent holder sizes nothing"
    );
    assert!(bench.dispatch(b, "t:/1", input)[0]["rejectionReason"].is_string());
}
