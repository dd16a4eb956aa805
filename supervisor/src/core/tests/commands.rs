//! Command boundaries, directories and titles that programs tell.

use super::*;
use crate::limits::{CONTENT_PARTS, TITLE_LIST_TIME};
use crate::scrollback::CommandEnd;

impl Bench {
    fn happens(&mut self, key: TerminalKey, what: Happened) -> Pace {
        self.core.happened(key, what, self.now, &mut self.effects)
    }

    fn starts(&mut self, key: TerminalKey, line: &str) {
        self.happens(
            key,
            Happened::CommandStarted {
                line: line.into(),
                timestamp: 1_000,
            },
        );
    }

    fn finishes(&mut self, key: TerminalKey, exit_code: Option<i64>) {
        self.happens(
            key,
            Happened::CommandFinished(CommandEnd {
                exit_code,
                duration_ms: Some(4),
            }),
        );
    }

    fn title(&mut self, key: TerminalKey, title: &str) {
        self.happens(key, Happened::Title(title.into()));
    }

    fn content(&mut self, connection: ConnectionId) -> Value {
        self.ask(connection, "subscribe", json!({"channel":"t:/1"}))["result"]["snapshot"]["state"]
            ["content"]
            .clone()
    }

    fn report(&mut self, connection: ConnectionId) -> Value {
        self.ask(connection, "x-shellward/terminals", json!({}))["result"]["terminals"][0].clone()
    }
}

/// A client that watches a terminal without a name of its own.
fn watched() -> (Bench, ConnectionId, TerminalKey) {
    let mut bench = Bench::new();
    let a = bench.client("a");
    let key = bench.terminal(a, "t:/1");
    bench.ask(a, "subscribe", json!({"channel":"t:/1"}));
    (bench, a, key)
}

fn actions(messages: Vec<Value>) -> Vec<Value> {
    messages
        .into_iter()
        .map(|message| message["params"]["action"].clone())
        .collect()
}

#[test]
fn a_command_is_told_from_its_start_to_its_end_and_stands_in_the_state() {
    let (mut bench, a, key) = watched();
    bench.happens(key, Happened::CanDetectCommands);
    bench.output(key, "$ ");
    bench.starts(key, "echo hi");
    bench.output(key, "hi\r\n");
    assert_eq!(bench.report(a)["lastCommand"]["isComplete"], false);
    bench.finishes(key, Some(0));
    bench.output(key, "$ ");
    assert_eq!(
        bench.content(a),
        json!([
            {"type":"unclassified","value":"$ "},
            {"type":"command","commandId":"1","commandLine":"echo hi","output":"hi\r\n","timestamp":1000,"isComplete":true,"exitCode":0,"durationMs":4},
            {"type":"unclassified","value":"$ "},
        ])
    );
    let report = bench.report(a);
    assert_eq!(report["detectsCommands"], true);
    assert_eq!(
        report["lastCommand"],
        json!({"commandId":"1","isComplete":true,"exitCode":0})
    );
    bench.starts(key, "again");
    bench.finishes(key, None);
    assert_eq!(
        actions(bench.take(a)),
        [
            json!({"type":"terminal/commandExecuted","commandId":"2","commandLine":"again","timestamp":1000}),
            json!({"type":"terminal/commandFinished","commandId":"2","durationMs":4}),
        ]
    );
}

#[test]
fn s13_the_exit_and_the_death_of_the_worker_end_the_open_command_first() {
    for dies in [false, true] {
        let (mut bench, a, key) = watched();
        bench.starts(key, "sleep 9");
        bench.take(a);
        bench.now += Duration::from_secs(3);
        if dies {
            bench
                .core
                .worker_gone(key, None, bench.now, &mut bench.effects);
        } else {
            bench
                .core
                .exited(key, ExitStatus::Code(0), bench.now, &mut bench.effects);
        }
        let told = actions(bench.take(a));
        assert_eq!(
            told[0],
            json!({"type":"terminal/commandFinished","commandId":"1","durationMs":3000})
        );
        let exits: Vec<usize> = (0..told.len())
            .filter(|at| told[*at]["type"] == "terminal/exited")
            .collect();
        assert_eq!(exits, [if dies { 2 } else { 1 }], "{told:?}");
        // What outlives the shell starts nothing that nobody would end.
        bench.starts(key, "forged");
        bench.finishes(key, Some(0));
        assert!(bench.take(a).is_empty());
    }
}

#[test]
fn who_waits_gets_the_end_also_after_a_clear() {
    let (mut bench, a, key) = watched();
    bench.starts(key, "make");
    bench.dispatch(a, "t:/1", json!({"type":"terminal/cleared"}));
    bench.output(key, "later");
    bench.finishes(key, Some(2));
    let told = actions(bench.take(a));
    assert_eq!(told[1]["type"], "terminal/commandFinished");
    assert_eq!(
        bench.content(a),
        json!([{"type":"unclassified","value":"later"}])
    );
    assert_eq!(bench.report(a)["lastCommand"]["exitCode"], 2);
}

#[test]
fn nothing_happens_in_a_terminal_that_ends() {
    let (mut bench, a, key) = watched();
    bench.starts(key, "make");
    bench.send(
        a,
        json!({"id":1,"method":"disposeTerminal","params":{"channel":"t:/1"}}),
    );
    bench.take(a);
    bench.finishes(key, Some(0));
    bench.title(key, "late");
    assert!(bench.take(a).is_empty());
}

#[test]
fn s14_a_directory_becomes_a_uri_that_leads_back_to_it() {
    use std::os::unix::ffi::OsStringExt as _;
    let (mut bench, a, key) = watched();
    for name in [
        &b"/a b"[..],
        b"/a#b",
        b"/a%20b",
        b"/a%0Ab",
        b"/a\xffb",
        b"/\xe6\xbc\xa2",
        b"/a?b",
    ] {
        let path = PathBuf::from(std::ffi::OsString::from_vec(name.to_vec()));
        bench.happens(key, Happened::Directory(path.clone()));
        bench.happens(key, Happened::Directory(path.clone()));
        let told = actions(bench.take(a));
        assert_eq!(told.len(), 1, "said once: {told:?}");
        let uri = told[0]["cwd"].as_str().unwrap();
        assert_eq!(names::directory_from_uri(uri), Ok(path));
        assert_eq!(bench.report(a)["cwd"], uri);
    }
}

#[test]
fn a_program_names_the_terminal_until_a_client_does() {
    let (mut bench, a, key) = watched();
    bench.title(key, "vim \u{1b}[1m\u{202e}x\u{7}");
    let told = actions(bench.take(a));
    assert_eq!(
        told[0],
        json!({"type":"terminal/titleChanged","title":"vim [1mx"})
    );
    assert_eq!(told[1]["terminals"][0]["title"], "vim [1mx");
    bench.title(key, "vim [1mx");
    bench.title(key, "\u{7}\n");
    assert!(bench.take(a).is_empty(), "nothing new");
    bench.dispatch(
        a,
        "t:/1",
        json!({"type":"terminal/titleChanged","title":"mine"}),
    );
    bench.title(key, "again");
    assert!(bench.take(a).is_empty(), "a client has named it");
    bench.send(
        a,
        json!({"id":1,"method":"createTerminal","params":{"channel":"t:/2","name":"named"}}),
    );
    let named = bench.plan().key;
    bench
        .core
        .started(named, shell(43), bench.now, &mut bench.effects)
        .unwrap();
    bench.take(a);
    bench.title(named, "other");
    assert!(bench.take(a).is_empty());
}

#[test]
fn a_flood_of_titles_sends_the_list_now_and_then_and_at_last_the_last() {
    let (mut bench, a, key) = watched();
    for number in 0..1000 {
        bench.title(key, &format!("title {number}"));
    }
    let lists = |messages: Vec<Value>| {
        actions(messages)
            .into_iter()
            .filter(|action| action["type"] == "root/terminalsChanged")
            .collect::<Vec<_>>()
    };
    assert_eq!(lists(bench.take(a)).len(), 1);
    let due = bench.core.due(bench.now, &mut bench.effects).unwrap();
    assert_eq!(due, bench.now + TITLE_LIST_TIME);
    bench.now = due;
    assert_eq!(bench.core.due(due, &mut bench.effects), None);
    let told = lists(bench.take(a));
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["terminals"][0]["title"], "title 999");
    assert_eq!(bench.core.due(due, &mut bench.effects), None);
}

#[test]
fn what_nobody_watches_is_not_recorded_and_a_reconnect_says_so() {
    let (mut bench, a, key) = watched();
    let b = bench.client("b");
    bench.terminal(b, "t:/2");
    bench.ask(b, "subscribe", json!({"channel":"t:/2"}));
    let seen = bench.core.seq;
    bench.ask(a, "unsubscribe", json!({"channel":"t:/1"}));
    for _ in 0..CONTENT_PARTS {
        bench.starts(key, "x");
        bench.finishes(key, Some(0));
    }
    bench.core.disconnect(b, bench.now, &mut bench.effects);
    let b = bench.connect();
    let answer = bench.ask(
        b,
        "reconnect",
        json!({"clientId":"b","lastSeenServerSeq":seen,"subscriptions":["t:/2"]}),
    );
    assert_eq!(
        answer["result"]["type"], "replay",
        "a flood elsewhere evicts nothing"
    );
    bench.core.disconnect(b, bench.now, &mut bench.effects);
    let b = bench.connect();
    let answer = bench.ask(
        b,
        "reconnect",
        json!({"clientId":"b","lastSeenServerSeq":seen,"subscriptions":["t:/1"]}),
    );
    assert_eq!(answer["result"]["type"], "snapshot");
}

#[test]
fn a_reader_that_does_not_keep_up_with_marks_pauses_the_terminal_too() {
    let (mut bench, a, key) = watched();
    let line = "x".repeat(64 << 10);
    let mut told = 0;
    loop {
        let start = Happened::CommandStarted {
            line: line.clone(),
            timestamp: 0,
        };
        if bench.happens(key, start) == Pace::Pause {
            break;
        }
        bench.finishes(key, None);
        told += 1;
        assert!(told < 100);
    }
    assert_eq!(bench.core.pace(key), Pace::Pause);
    bench.take(a);
    assert_eq!(bench.core.pace(key), Pace::Go);
}
