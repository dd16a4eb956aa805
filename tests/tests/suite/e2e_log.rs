//! The log as JSON: every line an object, one id through all lines that concern one connection or
//! one terminal, and no secret in any.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use shellward_tests::raw::{Refused, connect_with};
use shellward_tests::{DEADLINE, Host, Raw, Term, Value, json, poll_for};

fn lines(host: &Host) -> Vec<Value> {
    host.log()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_line_of_the_json_log_is_an_object_and_what_concerns_one_carries_its_id() {
    let host = Host::builder()
        .dash()
        .option("--log", "json")
        .env("SHELLWARD_LOG", "shellward=debug")
        .start();
    let token = host.token().to_owned();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("stty -echo; echo x").await;
    terminal.line("pass''word-hunter2").await;
    terminal.output_of("echo y").await;
    raw.send_text("hunter2").await;
    raw.notify("hunter2", json!({"hunter2": 1})).await;
    raw.notify(
        "createTerminal",
        json!({"channel": "ahp-session:/hunter2", "name": 5}),
    )
    .await;
    raw.settle().await;
    let killed = Term::create(&raw).await;
    let ids = [&terminal.uri, &killed.uri]
        .map(|uri| host.ps_entry(uri)["id"].as_str().unwrap().to_owned());
    kill(Pid::from_raw(host.pids(&killed.uri).0), Signal::SIGKILL).unwrap();
    raw.request("disposeTerminal", json!({"channel": terminal.uri}))
        .await
        .unwrap();
    match connect_with(&host, "?tkn=hunter2", &[]).await {
        Err(Refused::Status(401)) => {}
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("a wrong token was let in"),
    }
    raw.close().await;
    // The ends of both are told a moment after they are seen.
    poll_for("the ends in the log", DEADLINE, || {
        let lines = lines(&host);
        let created = lines.iter().find(|line| line["terminal"] == ids[1])?;
        let ended =
            |line: &&Value| line["terminal"] == ids[1] && line["message"] == "a worker has ended";
        let left = |line: &&Value| {
            line["connection"] == created["connection"] && line["message"] == "disconnected"
        };
        lines.iter().find(ended)?;
        lines.iter().find(left).map(drop)
    });

    let log = host.log();
    assert!(!log.contains("hunter2") && !log.contains(&token), "{log}");
    let mut creator = None;
    for line in lines(&host) {
        for member in ["ts", "level", "message"] {
            assert!(line[member].is_string(), "{member} in {line}");
        }
        let level = line["level"].as_str().unwrap();
        assert!(
            ["error", "warn", "info", "debug"].contains(&level),
            "{line}"
        );
        let message = line["message"].as_str().unwrap();
        let about_connection = message.contains("connect")
            || message.contains("closing")
            || message.contains("notification")
            || message.contains("not understood");
        if about_connection {
            assert!(line["connection"].is_u64(), "{line}");
        }
        let about_terminal = message.contains("a terminal") || message.contains("a worker");
        if about_terminal {
            let id = line["terminal"].as_str().unwrap_or_default();
            assert!(ids.iter().any(|known| known == id), "{line}");
        }
        if message == "a terminal is created" {
            creator = line["connection"].as_u64();
        }
    }
    // One terminal from its creation to its end, one connection from its first line to its last.
    let of = |name: &str, id: &Value| -> Vec<String> {
        lines(&host)
            .iter()
            .filter(|line| line[name] == *id)
            .map(|line| line["message"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        of("terminal", &json!(ids[0])),
        [
            "a terminal is created",
            "a terminal runs",
            "a terminal is disposed of",
            "a worker has ended"
        ]
    );
    let mine = of("connection", &json!(creator.expect("who created it")));
    assert_eq!(mine.first().map(String::as_str), Some("connected"));
    assert_eq!(mine.last().map(String::as_str), Some("disconnected"));
    assert!(mine.len() >= 6, "{mine:?}");
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_and_what_is_typed_are_in_no_json_log_at_any_level() {
    let builder = Host::builder().dash().env("SHELLWARD_LOG", "trace");
    let file = builder.folder().join("config.toml");
    fs::write(&file, "log = \"json\"\n").unwrap();
    let host = builder.option("--config", file.to_str().unwrap()).start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("stty -echo; echo x").await;
    terminal.line("pass''word-hunter2").await;
    terminal.output_of("echo y").await;
    let log = host.log();
    // Connected, created, runs; on pipes there is no probe that says anything.
    assert!(lines(&host).len() >= 3, "{log}");
    assert!(!log.contains("word-hunter2") && !log.contains(host.token()));
    host.stop();
}

#[test]
fn a_json_host_that_cannot_start_says_so_in_json() {
    let output = Host::builder()
        .option("--log", "json")
        .option("--directory", "/no/such/directory")
        .run_to_end();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    let last: Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(last["level"], "error");
    assert!(
        last["error"]
            .as_str()
            .unwrap()
            .contains("/no/such/directory"),
        "{last}"
    );
    for line in said.lines() {
        let _: Value = serde_json::from_str(line).unwrap();
    }
    let unknown = Host::builder().option("--log", "xml").run_to_end();
    assert_eq!(unknown.status.code(), Some(2));
}

#[tokio::test]
async fn a_takeover_is_told_in_json_with_numbers_that_are_numbers() {
    let mut host = Host::builder().dash().option("--log", "json").start();
    let raw = Raw::open(&host).await;
    Term::create(&raw).await;
    host.crash();
    host.start_again();
    let lines = lines(&host);
    let told = lines
        .iter()
        .find(|line| line["message"] == "terminals were taken over")
        .expect("it is told");
    assert_eq!(told["count"], 1);
    assert!(told["ms"].is_u64(), "{told}");
    host.stop();
}
