//! The rules of the core, without processes or sockets: clients are outboxes, workers are calls.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use shellward_protocol::message::ExitStatus;

use super::*;
use crate::outbox::{Close, Next};

struct Bench {
    core: Core,
    now: Instant,
    effects: Vec<Effect>,
    boxes: HashMap<ConnectionId, Arc<Outbox>>,
    next: u64,
}

fn settings() -> Settings {
    Settings {
        directory: "/srv".into(),
        shell: "/bin/bash".into(),
        keep_exited: Duration::from_secs(60),
        claims_open: false,
        input_from_holder: false,
        size_from_holder: false,
        check_shell: |path| {
            if path.starts_with("/bin/") {
                Ok(())
            } else {
                Err("no such shell".into())
            }
        },
        account: "me".into(),
        about: json!({}),
    }
}

impl Bench {
    fn new() -> Self {
        Self::with(settings())
    }

    fn with(settings: Settings) -> Self {
        Self {
            core: Core::new(settings, 1 << 32),
            now: Instant::now(),
            effects: vec![],
            boxes: HashMap::new(),
            next: 1,
        }
    }

    fn connect(&mut self) -> ConnectionId {
        let id = ConnectionId(self.next);
        self.next += 1;
        let outbox = Arc::new(Outbox::default());
        self.boxes.insert(id, Arc::clone(&outbox));
        self.core.connect(id, outbox);
        id
    }

    fn send(&mut self, connection: ConnectionId, message: Value) {
        let text = message.to_string();
        let message = Incoming::parse(&text).unwrap();
        self.core
            .message(connection, &message, self.now, &mut self.effects);
    }

    /// Everything that waits for a connection.
    fn take(&self, connection: ConnectionId) -> Vec<Value> {
        match self.boxes[&connection].next().now_or_never() {
            Some(Next::Send(messages)) => messages
                .iter()
                .map(|text| {
                    self.boxes[&connection].sent(text.len());
                    serde_json::from_str(text.as_str()).unwrap()
                })
                .collect(),
            _ => vec![],
        }
    }

    fn closed(&self, connection: ConnectionId) -> Option<Close> {
        self.take(connection);
        match self.boxes[&connection].next().now_or_never() {
            Some(Next::Close(close)) => Some(close),
            _ => None,
        }
    }

    /// Makes a request and gives its answer and what came before it.
    fn ask(&mut self, connection: ConnectionId, method: &str, params: Value) -> Value {
        self.send(
            connection,
            json!({"jsonrpc":"2.0","id":77,"method":method,"params":params}),
        );
        self.take(connection)
            .into_iter()
            .find(|m| m["id"] == 77)
            .unwrap_or(Value::Null)
    }

    fn client(&mut self, name: &str) -> ConnectionId {
        let id = self.connect();
        let answer = self.ask(id, "initialize", json!({"channel":"ahp-root://","protocolVersions":["1.0.0"],"clientId":name,"initialSubscriptions":["ahp-root://"]}));
        assert_eq!(answer["result"]["protocolVersion"], "1.0.0");
        id
    }

    fn dispatch(&mut self, connection: ConnectionId, channel: &str, action: Value) -> Vec<Value> {
        self.send(connection, json!({"method":"dispatchAction","params":{"channel":channel,"clientSeq":5,"action":action}}));
        self.take(connection)
            .into_iter()
            .map(|m| m["params"].clone())
            .collect()
    }

    fn plan(&mut self) -> StartPlan {
        self.effects
            .iter()
            .rev()
            .find_map(|effect| match effect {
                Effect::Start(plan) => Some(plan.clone()),
                _ => None,
            })
            .unwrap()
    }

    /// Creates a terminal and lets its shell run.
    fn terminal(&mut self, connection: ConnectionId, uri: &str) -> TerminalKey {
        self.send(
            connection,
            json!({"id":1,"method":"createTerminal","params":{"channel":uri}}),
        );
        let key = self.plan().key;
        self.core
            .started(key, 42, self.now, &mut self.effects)
            .unwrap();
        self.take(connection);
        key
    }

    fn output(&mut self, key: TerminalKey, text: &str) -> Pace {
        self.core.output(key, text, &[], None, self.now)
    }
}

fn code(answer: &Value) -> i64 {
    answer["error"]["code"].as_i64().unwrap_or(0)
}

fn kinds(messages: &[Value]) -> Vec<String> {
    messages
        .iter()
        .map(|m| {
            m["params"]["action"]["type"]
                .as_str()
                .or(m["id"].as_u64().map(|_| "answer"))
                .unwrap_or("?")
                .to_owned()
        })
        .collect()
}

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
        .started(key, 42, bench.now, &mut bench.effects)
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
        bench.core.size_of(key).map(|s| (s.cols, s.rows)),
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
        .started(key, 42, bench.now, &mut bench.effects)
        .unwrap();
    assert_eq!(
        bench.take(b).iter().map(code).max_by_key(|c| -c),
        Some(-32003)
    );
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
    let gone = Gone {
        words: "was killed by SIGSEGV".into(),
        signal: Some("SIGSEGV"),
    };
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
        .started(held, 1, bench.now, &mut bench.effects)
        .unwrap();
    bench.ask(a, "subscribe", json!({"channel":"t:/watched"}));
    for key in [watched, left, held] {
        bench
            .core
            .exited(key, ExitStatus::Code(0), bench.now, &mut bench.effects);
        bench
            .core
            .worker_gone(key, None, bench.now, &mut bench.effects);
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
        .started(starting, 9, bench.now, &mut bench.effects)
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
