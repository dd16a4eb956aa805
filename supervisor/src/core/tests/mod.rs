//! The rules of the core, without processes or sockets: clients are outboxes, workers are calls.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use shellward_protocol::message::{ExitStatus, Started};

use super::*;
use crate::outbox::{Close, Next};
use crate::worker_link::Seen;

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
        reattach_grace: Duration::from_secs(5),
        restart_on_crash: false,
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
        self.connect_as(Principal::Token)
    }

    fn connect_as(&mut self, principal: Principal) -> ConnectionId {
        let id = ConnectionId(self.next);
        self.next += 1;
        let outbox = Arc::new(Outbox::default());
        self.boxes.insert(id, Arc::clone(&outbox));
        self.core.connect(id, principal, outbox);
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
        if let Some(at) = self.effects.iter().position(|e| *e == Effect::Report) {
            self.effects.remove(at);
            let seen = Seen {
                memory: 4096,
                is_stopped: false,
            };
            self.core.workers_seen(HashMap::from([(41, seen)]));
            self.core.report(self.now);
        }
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
            .started(key, shell(42), self.now, &mut self.effects)
            .unwrap();
        self.take(connection);
        key
    }

    /// An exited terminal's new worker runs, which was asked for.
    fn is_kept(&mut self, key: TerminalKey) -> Ended {
        let plan = self.plan();
        assert_eq!(plan.key, key);
        let ended = plan.ended.expect("one without a shell");
        let none = Started {
            shell_pid: 0,
            is_pty: ended.was_pty,
        };
        self.core
            .started(key, none, self.now, &mut self.effects)
            .unwrap();
        ended
    }

    fn output(&mut self, key: TerminalKey, text: &str) -> Pace {
        self.core.output(key, text, &[], None, self.now)
    }
}

fn shell(shell_pid: u32) -> Started {
    Started {
        shell_pid,
        is_pty: true,
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

mod adopt;
mod commands;
mod connections;
mod dispatch;
mod figures;
mod keep;
mod restart;
mod terminals;
