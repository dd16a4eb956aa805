//! Terminals that a supervisor before had.

use super::*;
use shellward_protocol::Data;
use shellward_protocol::kept::{self, Commands, Finished, Gap, Kept, Newest, Past, Typed};
use shellward_protocol::message::Cut;
use shellward_protocol::modes::Modes;
use std::time::Duration;

fn kept(card: Vec<u8>) -> Kept<'static> {
    Kept {
        shell_pid: 42,
        is_pty: true,
        size: Size { cols: 90, rows: 30 },
        started_ms: 0,
        card: card.into(),
        watched: true,
        typed: Typed {
            seq: 7,
            came: 70,
            taken: 60,
        },
        offset: 1000,
        trimmed: false,
        can_detect: true,
        commands: Commands {
            count: 5,
            first: 4,
            newest: Newest::Running { at_ms: 1 },
        },
        directory: Some(Data::borrowed(b"/srv/x y")),
        title: Some(Data::borrowed(b"vim\x1b")),
        past: 0,
    }
}

/// What a worker would have been given about a terminal.
fn card(named: bool) -> Vec<u8> {
    let mut bench = Bench::new();
    let a = bench.client("holder");
    let name = if named { json!("mine") } else { Value::Null };
    bench.send(
        a,
        json!({"id":1,"method":"createTerminal","params":{"channel":"t:/1","name":name}}),
    );
    bench.plan().card
}

fn text(text: &'static str) -> Past<'static> {
    Past::Text {
        cuts: vec![],
        data: Data::borrowed(text.as_bytes()),
    }
}

fn started(line: &'static str) -> Past<'static> {
    Past::CommandStarted(kept::Started {
        line: Data::borrowed(line.as_bytes()),
        at_ms: 3,
    })
}

fn adopt(bench: &mut Bench, kept: &Kept<'_>, past: Vec<Past<'static>>) -> (TerminalKey, Running) {
    let mut adopted = Adopted::new("abcdefgh".into(), kept, bench.now).unwrap();
    for past in past {
        adopted.past(past).unwrap();
    }
    bench
        .core
        .adopt(adopted, 41, bench.now, &mut bench.effects)
        .unwrap()
}

fn subscribe(bench: &mut Bench, connection: ConnectionId) -> Value {
    let answer = bench.ask(connection, "subscribe", json!({"channel":"t:/1"}));
    answer["result"]["snapshot"]["state"].clone()
}

#[test]
fn everything_is_back() {
    let mut bench = Bench::new();
    let past = vec![
        text("$ "),
        started("ls"),
        text("out"),
        Past::CommandFinished(Finished {
            exit_code: Some(3),
            duration_ms: 9,
        }),
        Past::Gap(Gap {
            bytes: 12,
            modes: Modes::default().with_private(2004, true),
        }),
        started("make"),
        text("making"),
    ];
    let (key, running) = adopt(&mut bench, &kept(card(false)), past);
    assert_eq!(running.link.waiting_input(), 10);
    let a = bench.client("a");
    let state = subscribe(&mut bench, a);
    assert_eq!(state["title"], "vim");
    assert_eq!(state["cwd"], "file:///srv/x%20y");
    assert_eq!((&state["cols"], &state["rows"]), (&json!(90), &json!(30)));
    assert_eq!(state["claim"], json!({"kind":"client","clientId":"holder"}));
    assert_eq!(state["supportsCommandDetection"], true);
    let gap = "\u{1b}[?2004h\r\n[shellward: 12 bytes of output were not kept while no supervisor ran]\r\n";
    assert_eq!(
        state["content"],
        json!([
            {"type":"unclassified","value":"$ "},
            {"type":"command","commandId":"4","commandLine":"ls","output":"out","timestamp":3,"isComplete":true,"exitCode":3,"durationMs":9},
            {"type":"unclassified","value":gap},
            {"type":"command","commandId":"5","commandLine":"make","output":"making","timestamp":3,"isComplete":false},
        ])
    );
    // What runs ends, and the next one has the next number.
    let end = Happened::CommandFinished(crate::scrollback::CommandEnd {
        exit_code: Some(0),
        duration_ms: Some(1),
    });
    bench.core.happened(key, end, bench.now, &mut bench.effects);
    let next = Happened::CommandStarted {
        line: "next".into(),
        timestamp: 1,
    };
    bench
        .core
        .happened(key, next, bench.now, &mut bench.effects);
    let ids: Vec<Value> = bench
        .take(a)
        .iter()
        .map(|m| m["params"]["action"]["commandId"].clone())
        .collect();
    assert_eq!(ids, [json!("5"), json!("6")]);
}

#[test]
fn a_title_that_a_client_chose_stays_and_a_damaged_card_is_refused() {
    let mut bench = Bench::new();
    adopt(&mut bench, &kept(card(true)), vec![]);
    let a = bench.client("a");
    assert_eq!(subscribe(&mut bench, a)["title"], "mine");
    // Twice the same URI cannot be.
    let again = Adopted::new("zzzzzzzz".into(), &kept(card(true)), bench.now).unwrap();
    assert!(
        bench
            .core
            .adopt(again, 43, bench.now, &mut bench.effects)
            .is_none()
    );
    let whole = String::from_utf8(card(true)).unwrap();
    for bad in [
        String::new(),
        "{}".into(),
        whole.replace("t:/1", "ahp-root://"),
        whole.replace("\"client\"", "\"other\""),
        whole.replace("mine", "\\u0007"),
        whole.replace("/bin/bash", &"x".repeat(5)).replace(
            "\"createdAt\":\"",
            &format!("\"createdAt\":\"{}", "9".repeat(2000)),
        ),
    ] {
        assert!(
            Adopted::new(
                "abcdefgh".into(),
                &kept(bad.clone().into_bytes()),
                bench.now
            )
            .is_err(),
            "{bad}"
        );
    }
    let mut directory = kept(card(true));
    directory.directory = Some(Data::borrowed(b"relative"));
    assert!(Adopted::new("abcdefgh".into(), &directory, bench.now).is_err());
}

#[test]
fn much_output_waits_for_a_reader_and_little_does_not() {
    let mut bench = Bench::new();
    let (key, _) = adopt(&mut bench, &kept(card(false)), vec![]);
    let much = "x".repeat(crate::limits::HOLD_BYTES);
    assert_eq!(bench.output(key, "little"), Pace::Go);
    assert_eq!(bench.output(key, &much), Pace::Pause);
    assert_eq!(bench.core.pace(key), Pace::Pause);
    let a = bench.client("a");
    subscribe(&mut bench, a);
    assert_eq!(bench.core.pace(key), Pace::Go, "somebody reads");
    // Nobody comes: it goes on.
    let mut bench = Bench::new();
    let (key, running) = adopt(&mut bench, &kept(card(false)), vec![]);
    assert_eq!(bench.output(key, &much), Pace::Pause);
    let at = bench.core.due(bench.now, &mut bench.effects).unwrap();
    assert_eq!(at, bench.now + Duration::from_secs(5));
    assert!(running.shared.resume.notified().now_or_never().is_none());
    bench.now = at;
    assert_eq!(bench.core.due(bench.now, &mut bench.effects), None);
    assert!(running.shared.resume.notified().now_or_never().is_some());
    assert_eq!(bench.output(key, &much), Pace::Go);
    // One that nobody watched never waits.
    let mut bench = Bench::new();
    let unwatched = Kept {
        watched: false,
        ..kept(card(false))
    };
    let (key, _) = adopt(&mut bench, &unwatched, vec![]);
    assert_eq!(bench.output(key, &much), Pace::Go);
}

#[test]
fn what_a_client_of_an_earlier_life_holds_stays_its_own_for_a_while() {
    let mut bench = Bench::new();
    bench.core.restore_clients(vec![Remembered {
        client_id: "holder".into(),
        version: "1.0.0".into(),
        default_shell: None,
        principal: Principal::Token,
    }]);
    adopt(&mut bench, &kept(card(false)), vec![]);
    bench.core.serve(bench.now, &mut bench.effects);
    let a = bench.client("a");
    let take = json!({"type":"terminal/claimed","claim":{"kind":"client","clientId":"a"}});
    let refused = bench.dispatch(a, "t:/1", take.clone());
    assert!(
        refused[0]["rejectionReason"]
            .as_str()
            .unwrap()
            .contains("holder")
    );
    bench.now += Duration::from_secs(5);
    bench.core.due(bench.now, &mut bench.effects);
    let taken = bench.dispatch(a, "t:/1", take);
    assert_eq!(taken[0].get("rejectionReason"), None, "{taken:?}");
}

#[test]
fn a_gap_is_shown_and_the_modes_behind_it_are_put_right() {
    let mut bench = Bench::new();
    let (key, _) = adopt(&mut bench, &kept(card(false)), vec![started("old")]);
    let a = bench.client("a");
    subscribe(&mut bench, a);
    let modes = Modes::default().with_private(1049, true);
    let cut = Cut {
        at: 1,
        modes: Modes::default().with_private(2004, true),
    };
    bench.core.output(key, "x", &[cut], None, bench.now);
    bench.take(a);
    let gap = Gap { bytes: 40, modes };
    let end = crate::scrollback::CommandEnd {
        exit_code: None,
        duration_ms: Some(2),
    };
    let events = vec![
        Happened::CommandFinished(end),
        Happened::Directory("/tmp".into()),
        Happened::CommandStarted {
            line: "vim".into(),
            timestamp: 4,
        },
    ];
    let pace = bench
        .core
        .lost(key, gap, events, bench.now, &mut bench.effects);
    assert_eq!(pace, Pace::Go);
    let messages = bench.take(a);
    assert_eq!(
        kinds(&messages),
        [
            "terminal/data",
            "terminal/commandFinished",
            "terminal/cwdChanged",
            "terminal/commandExecuted"
        ]
    );
    assert_eq!(
        messages[0]["params"]["action"]["data"],
        "\u{1b}[?2004l\u{1b}[?1049h\r\n[shellward: 40 bytes of output were not kept while no supervisor ran]\r\n"
    );
    assert_eq!(bench.core.terminals[&key].document.modes(), modes);
}

#[test]
fn what_a_restarted_shell_is_given_makes_the_same_content_again() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    let key = bench.terminal(a, "t:/1");
    let now = bench.now;
    let modes = Modes::default().with_private(2004, true);
    for round in 0..900 {
        let line = format!("{}é\n", "long line ".repeat(40));
        let cut = Cut {
            at: u32::try_from(line.len()).unwrap(),
            modes,
        };
        bench.core.output(key, &line, &[cut], None, now);
        if round % 3 == 0 {
            let start = Happened::CommandStarted {
                line: format!("c{round}"),
                timestamp: round,
            };
            bench.core.happened(key, start, now, &mut bench.effects);
        } else {
            let end = crate::scrollback::CommandEnd {
                exit_code: Some(round),
                duration_ms: Some(round),
            };
            bench
                .core
                .happened(key, Happened::CommandFinished(end), now, &mut bench.effects);
        }
    }
    let terminal = &bench.core.terminals[&key];
    let (past, count) = (terminal.document.past(), terminal.commands.count());
    let before = subscribe(&mut bench, a)["content"].clone();
    let starts = past
        .iter()
        .filter(|past| matches!(past, Past::CommandStarted(_)))
        .count() as u64;
    let mut other = Bench::new();
    let mut kept = kept(card(false));
    kept.commands = Commands {
        count,
        first: count + 1 - starts,
        newest: Newest::Finished { exit_code: None },
    };
    adopt(&mut other, &kept, past);
    let b = other.client("b");
    let after = subscribe(&mut other, b)["content"].clone();
    assert!(before.as_array().unwrap().len() > 100 && before.to_string().contains("[?2004h"));
    assert_eq!(before, after);
}

#[test]
fn lists_are_in_the_order_of_creation_whatever_the_order_of_adoption() {
    let mut bench = Bench::new();
    // Fewer digits of a second are no earlier time, and what is no time comes after all that are.
    let created = [
        "2026-01-01T00:00:00.5Z",
        "2026-01-01T00:00:00.25Z",
        "2026-01-01T00:00:00Z",
        "some day",
        "2026-01-01T00:00:00.75Z",
    ];
    for (number, at) in created.iter().enumerate() {
        let mut card: Value = serde_json::from_slice(&card(false)).unwrap();
        card["uri"] = json!(format!("t:/{number}"));
        card["createdAt"] = json!(at);
        adopt(&mut bench, &kept(card.to_string().into_bytes()), vec![]);
    }
    let a = bench.client("a");
    bench.terminal(a, "t:/new");
    let wanted = ["t:/2", "t:/1", "t:/0", "t:/4", "t:/3", "t:/new"];
    let uris = |list: &Value, member: &str| -> Vec<String> {
        let list = list.as_array().unwrap().iter();
        list.map(|entry| entry[member].as_str().unwrap().to_owned())
            .collect()
    };
    let report = bench.ask(a, "x-shellward/terminals", json!({}))["result"].clone();
    assert_eq!(uris(&report["terminals"], "uri"), wanted);
    assert_eq!(report["terminals"][2]["createdAt"], created[0]);
    let root = bench.ask(a, "subscribe", json!({"channel":"ahp-root://"}));
    let state = &root["result"]["snapshot"]["state"];
    assert_eq!(uris(&state["terminals"], "resource"), wanted);
}

#[test]
fn a_terminal_that_is_taken_over_while_the_host_ends_ends_too() {
    let mut bench = Bench::new();
    assert!(bench.core.end_all(&mut bench.effects));
    let (key, _) = adopt(&mut bench, &kept(card(false)), vec![]);
    assert!(bench.effects.contains(&Effect::WatchEnd(key)));
    assert!(!bench.core.end_all(&mut bench.effects), "it is waited for");
}
