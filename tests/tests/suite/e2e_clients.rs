//! Clients over a restart of the host: who is known, as whom, and the official client's own reconnect.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ahp::hosts::{
    Backoff, HostConfig, HostEvent, HostEventStream, HostId, MultiHostClient, ReconnectPolicy,
};
use ahp::transport::BoxedTransport;
use ahp::{ClientConfig, TransportError};
use ahp_ws::WebSocketTransport;
use nix::sys::signal::Signal;
use shellward_tests::{DEADLINE, Host, ROOT, Raw, RpcError, Value, json, poll_for};

/// What `reconnect` as `client_id` is answered.
async fn reconnect(raw: &Raw, client_id: &str, last_seen: u64) -> Result<Value, RpcError> {
    raw.become_client(client_id);
    let params = json!({
        "clientId": client_id, "lastSeenServerSeq": last_seen, "subscriptions": [ROOT, "ahp-terminal:/gone"],
    });
    raw.request("reconnect", params).await
}

fn clients_file(host: &Host) -> std::path::PathBuf {
    host.runtime_dir().join("clients.json")
}

/// Waits until the file knows what was just said; it is written beside what happens.
fn wait_saved(host: &Host, needles: &[&str]) {
    poll_for("the clients in their file", DEADLINE, || {
        let text = fs::read_to_string(clients_file(host)).unwrap_or_default();
        needles
            .iter()
            .all(|needle| text.contains(needle))
            .then_some(())
    });
}

/// Ends the supervisor and starts it again over the same directories, at another port.
fn restart(host: &mut Host, signal: Signal) {
    host.signal(signal);
    host.wait_end();
    host.start_again();
}

fn last_seen(raw: &Raw) -> u64 {
    raw.welcome["serverSeq"].as_u64().expect("a number")
}

async fn clients_survive(signal: Signal) {
    let mut host = Host::dash();
    let raw = Raw::open(&host).await;
    let id = raw.client_id();
    let config = json!({"type": "root/configChanged", "config": {"defaultShell": "/bin/bash"}});
    raw.dispatch(ROOT, config).await;
    raw.settle().await;
    let by_user = Raw::connect_as_user(&host).await;
    by_user.initialize(&["0.9.0"]).await.unwrap();
    let user_id = by_user.client_id();
    wait_saved(&host, &[&id, "/bin/bash", &user_id, "0.9.0"]);
    let mode = fs::metadata(clients_file(&host))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let text = fs::read_to_string(clients_file(&host)).unwrap();
    assert!(!text.contains(host.token()), "the token is in {text}");
    let seen = last_seen(&raw);

    restart(&mut host, signal);

    let back = Raw::connect(&host).await;
    let result = reconnect(&back, &id, seen).await.unwrap();
    assert_eq!(result["type"], "snapshot", "{result}");
    let snapshots = result["snapshots"].as_array().unwrap();
    assert_eq!(snapshots.len(), 1, "what is gone is left out: {result}");
    assert_eq!(snapshots[0]["resource"], ROOT);
    let now = snapshots[0]["fromSeq"].as_u64().unwrap();
    assert!(now > seen, "{now} after {seen}");
    let config = &snapshots[0]["state"]["config"]["values"];
    assert_eq!(config["defaultShell"], "/bin/bash", "{result}");
    // It is a whole client again, of this life now.
    back.settle().await;
    back.close().await;
    let again = Raw::connect(&host).await;
    assert_eq!(reconnect(&again, &id, now).await.unwrap()["type"], "replay");

    // Neither is a stranger known, nor does anybody come back as somebody else.
    let other = Raw::connect_as_user(&host).await;
    for name in ["never-seen", &id] {
        let error = reconnect(&other, name, seen).await.unwrap_err();
        assert_eq!(error.code, -32008, "{name}: {error:?}");
    }
    let result = reconnect(&other, &user_id, seen).await.unwrap();
    assert_eq!(result["type"], "snapshot");
    host.stop();
}

#[tokio::test]
async fn s35_clients_survive_a_host_that_is_killed() {
    clients_survive(Signal::SIGKILL).await;
}

#[tokio::test]
async fn s35_clients_survive_an_orderly_end() {
    clients_survive(Signal::SIGTERM).await;
}

#[tokio::test]
async fn s35_a_damaged_memory_of_clients_is_an_empty_one() {
    let mut host = Host::dash();
    for damage in ["nonsense", "{\"clients\":7}", ""] {
        let raw = Raw::open(&host).await;
        let id = raw.client_id();
        wait_saved(&host, &[&id]);
        let seen = last_seen(&raw);
        host.signal(Signal::SIGKILL);
        host.wait_end();
        fs::write(clients_file(&host), damage).unwrap();
        host.start_again();
        let log = host.log();
        assert!(
            log.contains("clients of the last host are forgotten"),
            "{log}"
        );
        let back = Raw::connect(&host).await;
        let error = reconnect(&back, &id, seen).await.unwrap_err();
        assert_eq!(error.code, -32008);
        back.initialize(&["1.0.0"]).await.unwrap();
        wait_saved(&host, &[&id]);
    }
    host.stop();
}

#[tokio::test]
async fn a_memory_of_clients_that_cannot_be_written_harms_nobody() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    wait_saved(&host, &[&raw.client_id()]);
    // A directory cannot be replaced by a file.
    fs::remove_file(clients_file(&host)).unwrap();
    fs::create_dir(clients_file(&host)).unwrap();
    let other = Raw::open(&host).await;
    poll_for("a warning", DEADLINE, || {
        host.log()
            .contains("clients will not be known to the next host")
            .then_some(())
    });
    other.settle().await;
    raw.settle().await;
    fs::remove_dir(clients_file(&host)).unwrap();
    // Whoever comes next is written with all the others.
    let third = Raw::open(&host).await;
    wait_saved(
        &host,
        &[&raw.client_id(), &other.client_id(), &third.client_id()],
    );
    host.stop();
}

/// The official client's connection that looks after itself, to wherever `address` leads.
async fn supervised(address: &Arc<Mutex<String>>) -> (MultiHostClient, HostEventStream, HostId) {
    let address = Arc::clone(address);
    let factory = move |_: HostId| {
        let url = address.lock().unwrap().clone();
        async move {
            let transport = WebSocketTransport::connect(&url)
                .await
                .map_err(|error| TransportError::Io(error.to_string()))?;
            Ok(BoxedTransport::new(transport))
        }
    };
    let policy = ReconnectPolicy {
        backoff: Backoff::Constant {
            delay: Duration::from_millis(50),
        },
        ..ReconnectPolicy::exponential()
    };
    let client = MultiHostClient::new();
    let events = client.host_events();
    let id = HostId::from("shellward");
    let config = HostConfig::new(id.clone(), "Shellward", factory)
        .with_client_config(ClientConfig {
            default_request_timeout: Some(DEADLINE),
            ..ClientConfig::default()
        })
        .with_reconnect_policy(policy);
    client.add_host(config).await.expect("a host");
    (client, events, id)
}

/// Waits until the official client says that it is connected for this time.
async fn connected(events: &mut HostEventStream, times: u64) {
    let waited = tokio::time::timeout(DEADLINE, async {
        loop {
            if let HostEvent::Connected { generation, .. } = events.recv().await.expect("events")
                && generation == times
            {
                return;
            }
        }
    });
    waited.await.expect("the official client is connected");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s35_the_official_client_comes_back_by_itself() {
    let mut host = Host::dash();
    let address = Arc::new(Mutex::new(host.url_with_token()));
    let (client, mut events, id) = supervised(&address).await;
    connected(&mut events, 1).await;
    let handle = client.host(&id).await.expect("known");
    let client_id = handle.client_id.clone();
    let before = handle.server_seq;
    wait_saved(&host, &[&client_id]);

    for times in 2..5 {
        restart(&mut host, Signal::SIGKILL);
        *address.lock().unwrap() = host.url_with_token();
        connected(&mut events, times).await;
        // It did not fall back to `initialize`: nothing was refused.
        assert_eq!(refusals(&host).await, 0, "reconnects were refused");
    }

    let handle = client.host(&id).await.expect("known");
    assert_eq!(handle.client_id, client_id);
    assert!(handle.server_seq >= before + (3 << 32), "{handle:?}");
    assert_eq!(handle.subscriptions, [ROOT]);
    // And its subscription is live: the list that it mirrors has what somebody creates now.
    let raw = Raw::open(&host).await;
    let terminal = shellward_tests::Term::create(&raw).await;
    let listed = async {
        loop {
            let handle = client.host(&id).await.expect("known");
            let list = handle.terminals.unwrap_or_default();
            if list.iter().any(|info| info.resource == terminal.uri) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(DEADLINE, listed)
        .await
        .expect("the new terminal in the official client's root state");
    client.remove_host(&id).await.expect("removed");
    host.stop();
}

/// Requests that the host refused because it did not know something.
async fn refusals(host: &Host) -> u64 {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::UnixStream::connect(&host.socket).await.unwrap();
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).await.unwrap();
    let line = page
        .lines()
        .find(|line| line.starts_with("shellward_requests_refused_total{code=\"-32008\"}"));
    let number = line.and_then(|line| line.rsplit_once(' '));
    number.and_then(|(_, n)| n.parse().ok()).expect("a number")
}
