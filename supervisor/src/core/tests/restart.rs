//! A new shell in a terminal that goes on.

use super::*;
use std::time::Duration;

fn restart(uri: &str) -> Value {
    json!({"id":9,"method":"x-shellward/restartWorker","params":{"channel":uri}})
}

fn gone() -> Gone {
    Gone::by("was killed by SIGSEGV".into(), Some(11))
}

fn content(bench: &mut Bench, connection: ConnectionId, uri: &str) -> (Value, String) {
    let answer = bench.ask(connection, "subscribe", json!({"channel":uri}));
    let state = answer["result"]["snapshot"]["state"].clone();
    let text = state["content"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|part| {
            part["value"]
                .as_str()
                .or(part["output"].as_str())
                .unwrap_or("")
                .to_owned()
        })
        .collect();
    (state, text)
}

#[test]
fn a_running_terminal_is_restarted_before_the_eyes_of_its_subscribers() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    let key = bench.terminal(a, "t:/1");
    bench.ask(a, "subscribe", json!({"channel":"t:/1"}));
    bench.output(key, "before\r\n");
    bench.core.happened(
        key,
        Happened::Directory("/srv/deep".into()),
        bench.now,
        &mut bench.effects,
    );
    bench.core.happened(
        key,
        Happened::CommandStarted {
            line: "make".into(),
            timestamp: 1,
        },
        bench.now,
        &mut bench.effects,
    );
    bench.take(a);
    bench.send(a, restart("t:/1"));
    assert!(bench.effects.contains(&Effect::WatchEnd(key)));
    // Its farewell is shown, its exit is not.
    bench.output(key, "bye\r\n");
    bench
        .core
        .exited(key, ExitStatus::Code(0), bench.now, &mut bench.effects);
    bench.send(
        a,
        json!({"id":10,"method":"x-shellward/terminals","params":{}}),
    );
    bench
        .core
        .worker_gone(key, None, bench.now, &mut bench.effects);
    let plan = bench.plan();
    let again = plan.again.clone().unwrap();
    // The next worker does not know what came out before it, and the line between the shells did.
    let card: Value = serde_json::from_slice(&plan.card).unwrap();
    let total = bench.core.terminals[&key].figures.output_bytes;
    assert_eq!(card["bytesBefore"][0], total);
    assert_eq!((plan.key, plan.cwd.to_str()), (key, Some("/srv/deep")));
    assert_eq!((again.commands, again.delay), (1, Duration::ZERO));
    assert_eq!(again.past.len(), 5, "{:?}", again.past);
    bench
        .core
        .started(key, shell(43), bench.now, &mut bench.effects)
        .unwrap();
    let messages = bench.take(a);
    assert_eq!(
        kinds(&messages),
        [
            "terminal/data",
            "terminal/commandFinished",
            "terminal/data",
            "answer"
        ]
    );
    let line = messages[2]["params"]["action"]["data"].as_str().unwrap();
    assert!(line.contains("the shell was started again at 20"), "{line}");
    let (state, text) = content(&mut bench, a, "t:/1");
    assert!(text.starts_with("before\r\nbye\r\n"), "{text}");
    assert_eq!(state["lifecycle"]["status"], "running");
    assert_eq!(bench.core.terminals[&key].restarts, 1);
}

#[test]
fn an_exited_terminal_leaves_the_list_and_comes_back_running() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    let key = bench.terminal(a, "t:/1");
    bench.ask(a, "subscribe", json!({"channel":"t:/1"}));
    bench.output(key, "before");
    bench
        .core
        .exited(key, ExitStatus::Signal(9), bench.now, &mut bench.effects);
    bench.take(a);
    bench.send(a, restart("t:/1"));
    bench
        .core
        .worker_gone(key, None, bench.now, &mut bench.effects);
    bench
        .core
        .started(key, shell(43), bench.now, &mut bench.effects)
        .unwrap();
    let messages = bench.take(a);
    assert_eq!(
        kinds(&messages),
        ["root/terminalsChanged", "root/terminalsChanged", "answer"]
    );
    let list = |at: usize| &messages[at]["params"]["action"]["terminals"];
    assert_eq!(list(0), &json!([]));
    assert_eq!(list(1)[0]["lifecycle"]["status"], "running");
    assert_eq!(list(1)[0].get("exitCode"), None);
    assert_eq!(list(1)[0].get("signal"), None);
    // Who was subscribed is not any more, and sees it anew.
    bench.output(key, "new");
    assert!(bench.take(a).is_empty());
    let (state, text) = content(&mut bench, a, "t:/1");
    assert_eq!(state.get("exitCode"), None);
    assert!(
        text.starts_with("before") && text.ends_with("new"),
        "{text}"
    );
}

#[test]
fn calls_wait_while_it_restarts_and_a_failed_start_leaves_it_exited() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    let key = bench.terminal(a, "t:/1");
    bench.ask(a, "subscribe", json!({"channel":"t:/1"}));
    bench.send(a, restart("t:/1"));
    bench.send(
        a,
        json!({"id":11,"method":"disposeTerminal","params":{"channel":"t:/1"}}),
    );
    bench
        .core
        .worker_gone(key, None, bench.now, &mut bench.effects);
    bench.take(a);
    bench
        .core
        .start_failed(key, "no pty", bench.now, &mut bench.effects);
    let messages = bench.take(a);
    assert_eq!(
        kinds(&messages),
        [
            "terminal/data",
            "terminal/exited",
            "root/terminalsChanged",
            "answer"
        ]
    );
    assert_eq!(code(&messages[3]), -32603);
    // Another worker would keep it; that does not start either.
    bench
        .core
        .start_failed(key, "no processes", bench.now, &mut bench.effects);
    let messages = bench.take(a);
    assert_eq!(kinds(&messages), ["root/terminalsChanged", "answer"]);
    assert_eq!(code(&messages[1]), 0);
    assert!(bench.core.terminals.is_empty());
    assert_eq!(
        code(&bench.ask(a, "x-shellward/restartWorker", json!({"channel":"t:/1"}))),
        -32008
    );
}

#[test]
fn a_crash_starts_the_shell_again_twice_and_then_says_why_not() {
    let mut bench = Bench::with(Settings {
        restart_on_crash: true,
        ..settings()
    });
    let a = bench.client("a");
    let key = bench.terminal(a, "t:/1");
    bench.ask(a, "subscribe", json!({"channel":"t:/1"}));
    let mut delays = Vec::new();
    for _ in 0..2 {
        bench
            .core
            .worker_gone(key, Some(&gone()), bench.now, &mut bench.effects);
        delays.push(bench.plan().again.unwrap().delay);
        bench
            .core
            .started(key, shell(43), bench.now, &mut bench.effects)
            .unwrap();
        bench.now += Duration::from_secs(20);
    }
    assert!(delays[0] < delays[1], "{delays:?}");
    assert!(!kinds(&bench.take(a)).contains(&"terminal/exited".to_owned()));
    bench
        .core
        .worker_gone(key, Some(&gone()), bench.now, &mut bench.effects);
    let messages = bench.take(a);
    assert!(kinds(&messages).contains(&"terminal/exited".to_owned()));
    assert!(
        messages.iter().any(|m| m["params"]["action"]["data"]
            .as_str()
            .is_some_and(|text| text.contains("3rd time in 60 s"))),
        "{messages:?}"
    );
    let report = bench.ask(a, "x-shellward/terminals", json!({}));
    let terminal = &report["result"]["terminals"][0];
    assert_eq!(
        (&terminal["state"], &terminal["restarts"]),
        (&json!("crashed"), &json!(2))
    );
    // An operator may try again, and the count begins anew.
    bench.is_kept(key);
    bench.send(a, restart("t:/1"));
    bench
        .core
        .worker_gone(key, None, bench.now, &mut bench.effects);
    bench
        .core
        .started(key, shell(44), bench.now, &mut bench.effects)
        .unwrap();
    bench
        .core
        .worker_gone(key, Some(&gone()), bench.now, &mut bench.effects);
    assert!(bench.plan().again.is_some());
    // One that was long ago does not count.
    let mut bench = Bench::with(Settings {
        restart_on_crash: true,
        ..settings()
    });
    let a = bench.client("a");
    let key = bench.terminal(a, "t:/1");
    for _ in 0..5 {
        bench
            .core
            .worker_gone(key, Some(&gone()), bench.now, &mut bench.effects);
        bench
            .core
            .started(key, shell(43), bench.now, &mut bench.effects)
            .unwrap();
        bench.now += Duration::from_secs(40);
    }
    assert_eq!(bench.core.terminals[&key].exited_at, None);
}
