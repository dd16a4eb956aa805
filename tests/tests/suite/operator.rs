//! What operators and strangers do to a host by accident: logs that nobody reads, pings, messages
//! without end, names that are empty.

use std::process::Command;

use shellward_tests::raw::{Refused, connect_with};
use shellward_tests::{Host, Raw, Term, json};
use tokio_tungstenite::tungstenite::Message;

/// Opens connections and terminals, which are logged, and shows that the host still serves.
async fn assert_serves(host: Host) {
    for round in 0..600 {
        match connect_with(&host, "?tkn=x", &[("Host", "evil.example")]).await {
            Err(Refused::Status(403)) => {}
            Err(other) => panic!("round {round}: {other:?}"),
            Ok(_) => panic!("a foreign Host was let in"),
        }
    }
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    assert_eq!(terminal.output_of("echo fine").await.trim(), "fine");
    let listed = host.cli(&["ps"]);
    assert!(listed.status.success(), "{listed:?}");
    // In order, within the harness's deadline, with exit code 0.
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_cannot_be_written_harms_nobody() {
    let host = Host::builder()
        .dash()
        .env("SHELLWARD_LOG", "debug")
        .run_with(&["sh", "-c", "exec \"$@\" 2>/dev/full", "sh"])
        .start();
    assert_serves(host).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_nobody_reads_holds_nobody_up() {
    let builder = Host::builder().dash().env("SHELLWARD_LOG", "debug");
    let fifo = builder.folder().join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    // Open for reading too, by the host itself: it fills, and nobody empties it.
    let script = format!("exec \"$@\" 2<>'{}'", fifo.display());
    let host = builder.run_with(&["sh", "-c", &script, "sh"]).start();
    assert_serves(host).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pings_without_end_close_that_connection() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut sent = 0;
    for _ in 0..100_000 {
        let ping = Message::Ping(vec![b'x'; 125].into());
        if raw.is_closed() || raw.try_send(ping).await.is_err() {
            break;
        }
        sent += 1;
    }
    // The reason is lost with the socket when it is full of pings that nobody reads any more.
    let (code, reason) = raw.wait_closed().await;
    assert!([1008, 1006].contains(&code), "{code} {reason}");
    assert!(sent < 100_000, "all pings were taken");
    drop(Raw::open(&host).await);
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_over_the_limit_is_refused_with_the_code_for_it() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let text = format!(
        "{{\"method\":\"x\",\"params\":\"{}\"}}",
        "x".repeat(3 << 20)
    );
    // The host may close before it has read everything.
    let _sent = raw.try_send(Message::text(text)).await;
    let (code, reason) = raw.wait_closed().await;
    assert_eq!(code, 1009, "{reason}");
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_name_names_no_terminal_and_kill_goes_on_after_a_failure() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    Term::create_with(&raw, json!({"name": "first"})).await;
    Term::create_with(&raw, json!({"name": "second"})).await;
    let left = |host: &Host| host.ps()["terminals"].as_array().unwrap().len();
    assert!(host.cli(&["kill", "first"]).status.success());
    for words in [["kill", ""], ["clear", ""], ["read", ""]] {
        let refused = host.cli(&words);
        assert_eq!(refused.status.code(), Some(2), "{words:?}: {refused:?}");
    }
    assert_eq!(left(&host), 1, "an empty name is a prefix of everything");
    let partly = host.cli(&["kill", "none", "second"]);
    assert_eq!(partly.status.code(), Some(1));
    let said = String::from_utf8_lossy(&partly.stderr).into_owned();
    assert!(said.contains("none") && said.contains("1 of 2"), "{said}");
    assert_eq!(left(&host), 0);
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_client_sends_is_in_no_log() {
    let host = Host::builder().dash().env("SHELLWARD_LOG", "trace").start();
    let raw = Raw::open(&host).await;
    for message in [
        r#"{"method":"dispatchAction","params":"hunter2"}"#,
        r#"{"method":"dispatchAction","params":{"channel":"hunter2","clientSeq":"hunter2","action":"hunter2"}}"#,
        r#"{"method":["hunter2"]}"#,
        r#""hunter2""#,
        "hunter2",
        r#"{"id":4,"method":"createTerminal","params":["hunter2"]}"#,
        r#"{"method":"hunter2"}"#,
        r#"{"method":"createTerminal","params":{"channel":"hunter2:/x","cwd":"hunter2","claim":"hunter2"}}"#,
    ] {
        raw.send_text(message).await;
    }
    raw.settle().await;
    let log = host.log();
    assert!(!log.contains("hunter2"), "{log}");
    host.stop();
}
