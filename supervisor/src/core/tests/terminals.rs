//! Start, output, exit, dispose.

use super::*;

#[test]
fn a_terminal_is_answered_when_its_shell_runs_and_waiting_calls_follow_in_order() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    bench.send(
        a,
        json!({"id":1,"method":"createTerminal","params":{"channel":"t:/1","cols":100,"rows":30}}),
    );
    bench.send(
        a,
        json!({"id":2,"method":"subscribe","params":{"channel":"t:/1"}}),
    );
    bench.send(a, json!({"method":"dispatchAction","params":{"channel":"t:/1","clientSeq":1,"action":{"type":"terminal/resized","cols":124,"rows":31}}}));
    bench.send(a, json!({"id":3,"method":"ping","params":{}}));
    let early = bench.take(a);
    assert_eq!(
        early.iter().map(|m| m["id"].clone()).collect::<Vec<_>>(),
        [json!(3)],
        "a slow start holds up nothing else"
    );
    let key = bench.plan().key;
    bench
        .core
        .started(key, shell(42), bench.now, &mut bench.effects)
        .unwrap();
    let after = bench.take(a);
    assert_eq!(
        kinds(&after),
        [
            "root/terminalsChanged",
            "answer",
            "answer",
            "terminal/resized"
        ]
    );
    assert_eq!((&after[1]["id"], &after[2]["id"]), (&json!(1), &json!(2)));
    assert_eq!(after[2]["result"]["snapshot"]["state"]["title"], "bash");
    assert_eq!(
        Some(bench.core.terminals[&key].document.size()).map(|s| (s.cols, s.rows)),
        Some((124, 31))
    );
}

#[test]
fn a_start_that_fails_leaves_nothing() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    bench.send(
        a,
        json!({"id":1,"method":"createTerminal","params":{"channel":"t:/1"}}),
    );
    bench.send(
        a,
        json!({"id":2,"method":"subscribe","params":{"channel":"t:/1"}}),
    );
    let key = bench.plan().key;
    bench
        .core
        .start_failed(key, "no pty", bench.now, &mut bench.effects);
    let messages = bench.take(a);
    assert_eq!(
        messages.iter().map(code).collect::<Vec<_>>(),
        [-32603, -32008]
    );
    assert!(bench.core.terminals.is_empty() && bench.core.by_uri.is_empty());
    bench.terminal(a, "t:/1");
}

#[test]
fn a_taken_uri_is_refused_also_while_it_starts() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    let b = bench.client("b");
    bench.send(
        a,
        json!({"id":1,"method":"createTerminal","params":{"channel":"t:/1"}}),
    );
    bench.send(
        b,
        json!({"id":1,"method":"createTerminal","params":{"channel":"t:/1"}}),
    );
    let key = bench.plan().key;
    bench
        .core
        .started(key, shell(42), bench.now, &mut bench.effects)
        .unwrap();
    assert_eq!(
        bench.take(b).iter().map(code).max_by_key(|c| -c),
        Some(-32003)
    );
}

#[test]
fn a_disposed_terminal_is_answered_when_nothing_runs_any_more() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    let key = bench.terminal(a, "t:/1");
    bench.ask(a, "subscribe", json!({"channel":"t:/1"}));
    bench.send(
        a,
        json!({"id":1,"method":"disposeTerminal","params":{"channel":"t:/1"}}),
    );
    assert_eq!(kinds(&bench.take(a)), ["root/terminalsChanged"]);
    assert!(bench.effects.contains(&Effect::WatchEnd(key)));
    bench.output(key, "late");
    bench
        .core
        .exited(key, ExitStatus::Code(0), bench.now, &mut bench.effects);
    bench.send(
        a,
        json!({"id":2,"method":"disposeTerminal","params":{"channel":"t:/1"}}),
    );
    bench.send(
        a,
        json!({"id":3,"method":"createTerminal","params":{"channel":"t:/1"}}),
    );
    assert!(bench.take(a).is_empty());
    bench
        .core
        .worker_gone(key, None, bench.now, &mut bench.effects);
    let answers = bench.take(a);
    assert_eq!(answers[0], json!({"jsonrpc":"2.0","id":1,"result":null}));
    assert_eq!(code(&answers[1]), -32008);
    assert_ne!(bench.plan().key, key, "the URI names a new terminal");
}

#[test]
fn a_worker_that_dies_ends_its_terminal_with_words_and_a_code() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    let key = bench.terminal(a, "t:/1");
    bench.ask(a, "subscribe", json!({"channel":"t:/1"}));
    let gone = Gone::by("was killed by SIGSEGV".into(), Some(11));
    bench
        .core
        .worker_gone(key, Some(&gone), bench.now, &mut bench.effects);
    let messages = bench.take(a);
    assert_eq!(
        kinds(&messages),
        ["terminal/data", "terminal/exited", "root/terminalsChanged"]
    );
    assert!(
        messages[0]["params"]["action"]["data"]
            .as_str()
            .unwrap()
            .contains("SIGSEGV")
    );
    assert_eq!(
        messages[1]["params"]["action"],
        json!({"type":"terminal/exited","exitCode":128,"signal":"SIGSEGV"})
    );
    bench
        .core
        .start_failed(key, "no processes", bench.now, &mut bench.effects);
    for action in [
        json!({"type":"terminal/input","data":"x"}),
        json!({"type":"terminal/resized","cols":5,"rows":5}),
    ] {
        assert!(
            bench.dispatch(a, "t:/1", action)[0]["rejectionReason"]
                .as_str()
                .unwrap()
                .contains("exited")
        );
    }
    assert_eq!(
        bench.ask(a, "disposeTerminal", json!({"channel":"t:/1"}))["result"],
        Value::Null
    );
    assert_eq!(
        code(&bench.ask(a, "disposeTerminal", json!({"channel":"t:/1"}))),
        -32008
    );
}

#[test]
fn an_exited_terminal_is_forgotten_when_nobody_looks_unless_a_session_holds_it() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    let watched = bench.terminal(a, "t:/watched");
    let left = bench.terminal(a, "t:/left");
    bench.send(a, json!({"id":1,"method":"createTerminal","params":{"channel":"t:/held","claim":{"kind":"session","session":"ahp-session:/s"}}}));
    let held = bench.plan().key;
    bench
        .core
        .started(held, shell(1), bench.now, &mut bench.effects)
        .unwrap();
    bench.ask(a, "subscribe", json!({"channel":"t:/watched"}));
    for key in [watched, left, held] {
        bench
            .core
            .exited(key, ExitStatus::Code(0), bench.now, &mut bench.effects);
        bench
            .core
            .worker_gone(key, None, bench.now, &mut bench.effects);
        bench
            .core
            .start_failed(key, "no processes", bench.now, &mut bench.effects);
    }
    let due = bench
        .core
        .forget_exited(bench.now, &mut bench.effects)
        .unwrap();
    assert_eq!(due, bench.now + Duration::from_secs(60));
    bench.now = due;
    assert_eq!(bench.core.forget_exited(due, &mut bench.effects), None);
    let mut left: Vec<&str> = bench.core.by_uri.keys().map(String::as_str).collect();
    left.sort_unstable();
    assert_eq!(left, ["t:/held", "t:/watched"]);
    bench.core.disconnect(a, bench.now, &mut bench.effects);
    bench.core.forget_exited(due, &mut bench.effects);
    assert_eq!(bench.core.by_uri.keys().collect::<Vec<_>>(), ["t:/held"]);
}

#[test]
fn the_fastest_reader_paces_the_shell() {
    let mut bench = Bench::new();
    let (a, b) = (bench.client("a"), bench.client("b"));
    let key = bench.terminal(a, "t:/1");
    bench.ask(a, "subscribe", json!({"channel":"t:/1"}));
    bench.ask(b, "subscribe", json!({"channel":"t:/1"}));
    let chunk = "x".repeat(64 << 10);
    let mut sent = 0;
    while bench.output(key, &chunk) == Pace::Go {
        sent += 1;
        bench.take(a);
        assert!(sent < 1000, "one slow reader alone must not pause it");
        if sent == 20 {
            break;
        }
    }
    while bench.output(key, &chunk) == Pace::Go {
        sent += 1;
        assert!(sent < 100);
    }
    assert_eq!(bench.core.pace(key), Pace::Pause);
    bench.take(a);
    assert_eq!(bench.core.pace(key), Pace::Go);
    bench.core.disconnect(a, bench.now, &mut bench.effects);
    bench.core.disconnect(b, bench.now, &mut bench.effects);
    for _ in 0..200 {
        assert_eq!(
            bench.output(key, &chunk),
            Pace::Go,
            "nobody watches: it runs free"
        );
    }
}

#[test]
fn what_waits_for_a_start_is_bounded() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    bench.send(
        a,
        json!({"id":1,"method":"createTerminal","params":{"channel":"t:/1"}}),
    );
    for id in 0..crate::limits::WAITING_REQUESTS as u64 + 10 {
        bench.send(
            a,
            json!({"id":100 + id,"method":"subscribe","params":{"channel":"t:/1"}}),
        );
    }
    assert_eq!(
        bench.take(a).iter().map(code).collect::<Vec<_>>(),
        [-32603; 10]
    );
}

#[test]
fn at_shutdown_every_terminal_ends_also_one_that_is_starting() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    let live = bench.terminal(a, "t:/1");
    bench.send(
        a,
        json!({"id":1,"method":"createTerminal","params":{"channel":"t:/2"}}),
    );
    let starting = bench.plan().key;
    assert!(!bench.core.end_all(&mut bench.effects));
    bench
        .core
        .started(starting, shell(9), bench.now, &mut bench.effects)
        .unwrap();
    for key in [live, starting] {
        assert!(bench.effects.contains(&Effect::WatchEnd(key)));
        bench
            .core
            .worker_gone(key, None, bench.now, &mut bench.effects);
    }
    assert!(bench.core.end_all(&mut bench.effects));
    assert!(code(&bench.ask(a, "createTerminal", json!({"channel":"t:/3"}))) != 0);
}

#[test]
fn one_probe_answers_everybody_who_asked_meanwhile_and_who_waits_is_bounded() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    let most = crate::limits::WAITING_REQUESTS as u64;
    for id in 0..most + 3 {
        bench.send(
            a,
            json!({"id":100 + id,"method":"x-shellward/probe","params":{}}),
        );
    }
    let probes = |bench: &Bench| {
        bench
            .effects
            .iter()
            .filter(|e| **e == Effect::Probe)
            .count()
    };
    assert_eq!(probes(&bench), 1);
    assert_eq!(
        bench.take(a).iter().map(code).collect::<Vec<_>>(),
        [-32603; 3]
    );
    bench.core.set_probe(true, json!({"result":"works"}));
    bench.core.probe_answered();
    let answers = bench.take(a);
    assert_eq!(answers.len() as u64, most);
    assert!(
        answers
            .iter()
            .all(|answer| answer["result"]["result"] == "works")
    );
    bench.send(a, json!({"id":7,"method":"x-shellward/probe","params":{}}));
    assert_eq!(probes(&bench), 2, "asked again after the answer");
}
