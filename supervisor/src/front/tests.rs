//! Connections over a pipe in this process, on a clock that stands still while anything can happen.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use shellward_protocol::message::Marks;
use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::Front;
use super::door::{Arrival, Policy};
use crate::clients_file::ClientsFile;
use crate::config::PtyMode;
use crate::core::{ConnectionId, Settings};
use crate::host::{Host, Parts, Stage};
use crate::limits::{OUTBOX_BYTES, PING_AFTER, PING_ANSWER};
use crate::ptys::Ptys;

/// A host that serves and can start nothing.
fn host() -> Arc<Host> {
    let host = Host::new(Parts {
        settings: Settings {
            directory: "/".into(),
            shell: "/bin/sh".into(),
            keep_exited: Duration::ZERO,
            claims_open: false,
            input_from_holder: false,
            size_from_holder: false,
            reattach_grace: Duration::from_secs(5),
            restart_on_crash: false,
            check_shell: |_| Ok(()),
            account: "me".into(),
            about: json!({}),
        },
        ptys: Ptys::new(PtyMode::Never, None, "/nonexistent".into()),
        epoch: 1,
        clients: ClientsFile::new("/nonexistent/clients.json".into()),
        worker_binary: "/nonexistent".into(),
        worker_sockets: "/nonexistent".into(),
        shell_limits: vec![],
        shell_umask: 0o022,
        marks: Marks::Strip,
        integrate: false,
        orphan_timeout: Duration::from_secs(60),
    });
    host.set_stage(Stage::Serving);
    host
}

/// A client that has shaken hands, over a pipe that holds `capacity` bytes each way.
async fn client(host: &Arc<Host>, capacity: usize) -> WebSocketStream<DuplexStream> {
    let (ours, theirs) = duplex(capacity);
    let front = Front::new(Arc::clone(host), Policy::default());
    let permit = Arc::new(Semaphore::new(1)).acquire_owned().await.unwrap();
    let uid = nix::unistd::geteuid().as_raw();
    tokio::spawn(front.http(theirs, ConnectionId(1), Arrival::Unix(uid), permit));
    let (mut client, _) = tokio_tungstenite::client_async("ws://localhost/", ours)
        .await
        .unwrap();
    let params = json!({"protocolVersions": ["1.0.0"], "clientId": "c"});
    let hello = json!({"id": 1, "method": "initialize", "params": params});
    client.send(Message::text(hello.to_string())).await.unwrap();
    let answer = client.next().await.unwrap().unwrap();
    let answer: Value = serde_json::from_str(answer.to_text().unwrap()).unwrap();
    assert_eq!(answer["result"]["protocolVersion"], "1.0.0");
    client
}

fn connections(host: &Host) -> usize {
    host.with_core(|core, _, _| core.gauges().connections)
}

#[tokio::test(start_paused = true)]
async fn s21_a_client_whose_cable_was_pulled_is_dropped() {
    let host = host();
    // Nothing of what is sent is read, and nobody closes: the pipe is held and not looked at.
    let client = client(&host, 1 << 16).await;
    sleep(PING_AFTER + PING_ANSWER - Duration::from_secs(1)).await;
    assert_eq!(connections(&host), 1);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(connections(&host), 0);
    assert_eq!(host.metrics.lost_connections.get(), 1);
    drop(client);
}

#[tokio::test(start_paused = true)]
async fn s21_a_client_that_answers_pings_stays() {
    let host = host();
    let mut client = client(&host, 1 << 16).await;
    let pings = tokio::spawn(async move {
        let mut pings = 0;
        let end = sleep(Duration::from_secs(3600));
        tokio::pin!(end);
        loop {
            tokio::select! {
                () = &mut end => return pings,
                // The library answers by itself while it is asked for the next message.
                message = client.next() => {
                    assert!(matches!(message, Some(Ok(Message::Ping(_)))), "{message:?}");
                    pings += 1;
                }
            }
        }
    });
    sleep(Duration::from_secs(3599)).await;
    assert_eq!(connections(&host), 1);
    assert_eq!(host.metrics.lost_connections.get(), 0);
    let pings = pings.await.unwrap();
    // No more than needed: one for each time of silence.
    assert!((115..=120).contains(&pings), "{pings}");
}

#[tokio::test(start_paused = true)]
async fn s21_a_reader_that_is_slow_but_alive_stays() {
    let host = host();
    let mut client = client(&host, 256).await;
    for id in 2..200 {
        let ping = json!({"id": id, "method": "ping"});
        client.send(Message::text(ping.to_string())).await.unwrap();
    }
    // It reads on, too slowly for its pong to be the answer to any ping, and says nothing.
    let pipe = client.get_mut();
    for _ in 0..100 {
        sleep(PING_AFTER + PING_ANSWER / 2).await;
        let mut bytes = [0; 16];
        pipe.read_exact(&mut bytes).await.unwrap();
    }
    assert_eq!(connections(&host), 1);
    // Then it does not: the socket is full, so not even the ping gets out.
    sleep(PING_AFTER + PING_ANSWER).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(connections(&host), 0);
    assert_eq!(host.metrics.lost_connections.get(), 1);
}

#[tokio::test(start_paused = true)]
async fn s21_a_reader_that_stops_is_closed_and_told_why() {
    let host = host();
    let mut client = client(&host, 1 << 16).await;
    // It asks and asks, and reads no answer: each has some 40 bytes.
    let asked = OUTBOX_BYTES / 40 + 10_000;
    for id in 2..asked + 2 {
        let ping = json!({"id": id, "method": "ping"});
        client.feed(Message::text(ping.to_string())).await.unwrap();
    }
    client.flush().await.unwrap();
    let mut answered = 0;
    let close = loop {
        match client.next().await.unwrap().unwrap() {
            Message::Close(close) => break close.unwrap(),
            _ => answered += 1,
        }
    };
    assert!(answered < asked, "{answered} of {asked}");
    assert_eq!(u16::from(close.code), 1013);
    assert!(close.reason.contains("reconnect"), "{}", close.reason);
}
