//! What is counted: by exactly what was done, and no more.

use super::*;
use crate::metrics::Gauges;

impl Bench {
    /// The value of a sample, named with its labels as it stands in a scrape.
    fn metric(&self, name: &str) -> f64 {
        let page = self.core.metrics().render(&self.core.gauges());
        page.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
            .unwrap_or_else(|| panic!("{name} in {page}"))
            .parse()
            .unwrap()
    }

    fn later(&mut self, millis: u64) {
        self.now += Duration::from_millis(millis);
    }

    fn entry(&mut self, connection: ConnectionId) -> Value {
        self.ask(connection, "x-shellward/terminals", json!({}))["result"]["terminals"][0].clone()
    }
}

fn input(data: &str) -> Value {
    json!({"type":"terminal/input","data":data})
}

#[test]
fn gauges_follow_terminals_and_connections() {
    let mut bench = Bench::new();
    assert_eq!(bench.core.gauges(), Gauges::default());
    let a = bench.client("a");
    let b = bench.client("b");
    let key = bench.terminal(a, "t:/1");
    bench.terminal(a, "t:/2");
    bench.send(
        a,
        json!({"id":1,"method":"createTerminal","params":{"channel":"t:/3"}}),
    );
    bench.take(a);
    bench.take(b);
    let mut wanted = Gauges {
        starting: 1,
        running: 2,
        connections: 2,
        ..Gauges::default()
    };
    assert_eq!(bench.core.gauges(), wanted);
    bench
        .core
        .exited(key, ExitStatus::Code(0), bench.now, &mut bench.effects);
    bench.send(
        a,
        json!({"id":2,"method":"disposeTerminal","params":{"channel":"t:/2"}}),
    );
    (wanted.running, wanted.exited, wanted.ending) = (0, 1, 1);
    bench.take(a);
    bench.take(b);
    assert_eq!(bench.core.gauges(), wanted);

    // What waits: a pushes nothing, b is sent one message.
    bench.boxes[&b].push("x".repeat(1000).into());
    bench.boxes[&a].push("x".repeat(10).into());
    (wanted.outbox_sum, wanted.outbox_max) = (1010, 1000);
    assert_eq!(bench.core.gauges(), wanted);
    bench.core.disconnect(b, bench.now, &mut bench.effects);
    (wanted.outbox_sum, wanted.outbox_max, wanted.connections) = (10, 10, 1);
    assert_eq!(bench.core.gauges(), wanted);
}

#[test]
fn bytes_are_counted_once_and_refused_ones_not_at_all() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    let key = bench.terminal(a, "t:/1");
    bench.dispatch(a, "t:/1", input("ls\r"));
    bench.dispatch(a, "t:/1", input(""));
    bench.output(key, "é漢");
    assert_eq!(bench.metric("shellward_input_bytes_total"), 3.0);
    assert_eq!(bench.metric("shellward_output_bytes_total"), 5.0);
    assert_eq!(bench.metric("shellward_dispatches_refused_total"), 0.0);
    bench.dispatch(a, "t:/1", input(&"x".repeat((1 << 20) + 1)));
    bench.dispatch(a, "t:/9", input("x"));
    bench.dispatch(
        a,
        "t:/1",
        json!({"type":"terminal/resized","cols":0,"rows":0}),
    );
    // Not for terminals; no refusal, silence.
    bench.dispatch(a, "t:/1", json!({"type":"session/x"}));
    assert_eq!(bench.metric("shellward_dispatches_refused_total"), 3.0);
    assert_eq!(bench.metric("shellward_input_bytes_total"), 3.0);
    let entry = bench.entry(a);
    assert_eq!(entry["inputBytes"], 3);
    assert_eq!(entry["outputBytes"], 5);
    // Output of a terminal that was told to end is told to nobody.
    bench.send(
        a,
        json!({"id":2,"method":"disposeTerminal","params":{"channel":"t:/1"}}),
    );
    bench.output(key, "late");
    assert_eq!(bench.metric("shellward_output_bytes_total"), 5.0);
}

#[test]
fn a_start_is_measured_from_the_accepted_request_to_the_shell() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    bench.send(
        a,
        json!({"id":1,"method":"createTerminal","params":{"channel":"t:/1"}}),
    );
    let key = bench.plan().key;
    bench.core.worker_exists(key, 41);
    assert_eq!(bench.metric("shellward_worker_starts_total"), 1.0);
    let entry = bench.entry(a);
    assert_eq!(entry["state"], "starting");
    assert!(entry.get("uptimeSeconds").is_none(), "{entry}");
    bench.later(7);
    bench
        .core
        .started(key, shell(42), bench.now, &mut bench.effects)
        .unwrap();
    assert_eq!(bench.metric("shellward_start_seconds_count"), 1.0);
    assert_eq!(bench.metric("shellward_start_seconds_sum"), 0.007);
    assert_eq!(
        bench.metric("shellward_start_seconds_bucket{le=\"0.005\"}"),
        0.0
    );
    assert_eq!(
        bench.metric("shellward_start_seconds_bucket{le=\"0.01\"}"),
        1.0
    );
    // One that fails has not started.
    bench.send(
        a,
        json!({"id":2,"method":"createTerminal","params":{"channel":"t:/2"}}),
    );
    let key = bench.plan().key;
    bench
        .core
        .start_failed(key, "no", bench.now, &mut bench.effects);
    assert_eq!(bench.metric("shellward_start_seconds_count"), 1.0);
    assert_eq!(
        bench.metric("shellward_requests_refused_total{code=\"-32603\"}"),
        1.0
    );
}

#[test]
fn an_echo_is_measured_from_the_first_input_that_waits() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    let key = bench.terminal(a, "t:/1");
    let count = "shellward_echo_seconds_count";
    bench.output(key, "prompt");
    assert_eq!(bench.metric(count), 0.0, "nothing was typed");
    bench.dispatch(a, "t:/1", input("a"));
    bench.later(2);
    bench.dispatch(a, "t:/1", input("b"));
    bench.later(2);
    bench.output(key, "a");
    bench.output(key, "b");
    assert_eq!(bench.metric(count), 1.0);
    assert_eq!(bench.metric("shellward_echo_seconds_sum"), 0.004);
    // Refused input waits for nothing.
    bench.dispatch(a, "t:/1", input(&"x".repeat((1 << 20) + 1)));
    bench.dispatch(a, "t:/1", input(""));
    bench.output(key, "c");
    assert_eq!(bench.metric(count), 1.0);
}

#[test]
fn uptime_ends_with_the_shell_and_memory_is_the_workers() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    let key = bench.terminal(a, "t:/1");
    bench.core.worker_exists(key, 41);
    assert_eq!(bench.core.worker_pids(), [41]);
    bench.later(61_900);
    let entry = bench.entry(a);
    assert_eq!(entry["uptimeSeconds"], 61);
    // The bench says so of process 41.
    assert_eq!(entry["memoryBytes"], 4096);
    assert!(entry.get("ptyReason").is_none(), "{entry}");
    bench
        .core
        .exited(key, ExitStatus::Code(0), bench.now, &mut bench.effects);
    bench
        .core
        .worker_gone(key, None, bench.now, &mut bench.effects);
    bench.later(60_000);
    let entry = bench.entry(a);
    assert_eq!(entry["uptimeSeconds"], 61);
    assert!(entry.get("memoryBytes").is_none(), "{entry}");
    assert_eq!(bench.metric("shellward_worker_crashes_total"), 0.0);
}

#[test]
fn a_terminal_on_pipes_says_why() {
    let mut bench = Bench::new();
    bench
        .core
        .set_probe(false, json!({"sentence":"no pty works here"}));
    let a = bench.client("a");
    bench.send(
        a,
        json!({"id":1,"method":"createTerminal","params":{"channel":"t:/1"}}),
    );
    let key = bench.plan().key;
    let started = Started {
        shell_pid: 42,
        is_pty: false,
    };
    bench
        .core
        .started(key, started, bench.now, &mut bench.effects);
    // Later answers of the probe change nothing for what runs.
    bench.core.set_probe(true, json!({"sentence":"ptys work"}));
    bench.take(a);
    assert_eq!(bench.entry(a)["ptyReason"], "no pty works here");
}

#[test]
fn a_worker_that_ends_before_its_shell_is_a_crash_and_one_that_ends_after_it_is_not() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    let gone = Gone::by("was killed by SIGKILL".into(), Some(9));
    for (uri, how, exits, crashes) in [
        ("t:/1", Some(&gone), false, 1.0),
        ("t:/2", None, true, 1.0),
        ("t:/3", None, false, 2.0),
    ] {
        let key = bench.terminal(a, uri);
        if exits {
            bench
                .core
                .exited(key, ExitStatus::Code(0), bench.now, &mut bench.effects);
        }
        bench
            .core
            .worker_gone(key, how, bench.now, &mut bench.effects);
        assert_eq!(
            bench.metric("shellward_worker_crashes_total"),
            crashes,
            "{uri}"
        );
    }
}

#[test]
fn refusals_are_counted_by_their_code_answered_or_not() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    bench.ask(a, "nonsense", json!({}));
    bench.send(a, json!({"method":"nonsense"}));
    bench.ask(a, "subscribe", json!({"channel":"t:/none"}));
    bench.ask(a, "ping", json!({}));
    for (code, count) in [("-32601", 2.0), ("-32008", 1.0), ("other", 0.0)] {
        assert_eq!(
            bench.metric(&format!(
                "shellward_requests_refused_total{{code=\"{code}\"}}"
            )),
            count,
            "{code}"
        );
    }
}

#[test]
fn the_list_of_terminals_is_made_once_for_all_who_wait() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    let b = bench.client("b");
    let ask = json!({"id":5,"method":"x-shellward/terminals","params":{}});
    bench.take(b);
    for client in [a, b, a] {
        bench.send(client, ask.clone());
    }
    bench.send(b, json!({"method":"x-shellward/terminals"}));
    let asked = |bench: &Bench| {
        bench
            .effects
            .iter()
            .filter(|effect| **effect == Effect::Report)
            .count()
    };
    assert_eq!(asked(&bench), 1);
    assert!(bench.take(a).is_empty());
    bench.core.report(bench.now);
    assert_eq!((bench.take(a).len(), bench.take(b).len()), (2, 1));
    bench.core.report(bench.now);
    assert!(bench.take(a).is_empty(), "answered once");
    for _ in 0..=crate::limits::WAITING_REQUESTS {
        bench.send(a, ask.clone());
    }
    let refused = bench.take(a);
    assert_eq!(refused.len(), 1);
    assert_eq!(code(&refused[0]), -32603);
}
