//! What operators and their tools see: `/metrics`, `/readyz`, the figures in `ps`.
//!
//! Scraped as a monitoring program does it: one plain HTTP request, one answer.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use futures_util::SinkExt;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use shellward_tests::builder::binaries;
use shellward_tests::{DEADLINE, Host, HostBuilder, ROOT, Raw, Term, Value, json, poll_for};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

const OUTPUT: &str = "shellward_output_bytes_total";
const INPUT: &str = "shellward_input_bytes_total";
const SLOW: &str = "shellward_slow_readers_closed_total";
const STARTS: &str = "shellward_worker_starts_total";
const CRASHES: &str = "shellward_worker_crashes_total";

/// A status, the head and the body of an answer.
type Answer = (u16, String, String);

/// Sends a request and reads until the host closes.
async fn ask(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin, request: &str) -> Answer {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    tokio::time::timeout(DEADLINE, stream.read_to_string(&mut answer))
        .await
        .expect("an answer")
        .unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, head.to_ascii_lowercase(), body.to_owned())
}

async fn get(address: &str, path: &str, headers: &str) -> Answer {
    let stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{headers}\r\n");
    ask(stream, &request).await
}

async fn get_unix(socket: &str, path: &str) -> Answer {
    let stream = UnixStream::connect(socket).await.unwrap();
    ask(
        stream,
        &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    )
    .await
}

/// Every sample of a scrape, by name and labels.
async fn scrape(host: &Host) -> BTreeMap<String, f64> {
    let path = format!("/metrics?tkn={}", host.token());
    let (status, head, body) = get(host.address(), &path, "").await;
    assert_eq!(status, 200, "{body}");
    assert!(
        head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"),
        "{head}"
    );
    samples(&body)
}

fn samples(body: &str) -> BTreeMap<String, f64> {
    body.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a sample");
            (name.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

/// Scrapes until `name` is `wanted`: some things are counted a moment after they are seen.
async fn wait_metric(host: &Host, name: &str, wanted: f64) -> BTreeMap<String, f64> {
    let end = Instant::now() + DEADLINE;
    loop {
        let now = scrape(host).await;
        if now[name] == wanted {
            return now;
        }
        assert!(
            Instant::now() < end,
            "{name} is {} and not {wanted}",
            now[name]
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn state(name: &str) -> String {
    format!("shellward_terminals{{state=\"{name}\"}}")
}

fn refused(code: &str) -> String {
    format!("shellward_requests_refused_total{{code=\"{code}\"}}")
}

// ---- the door ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn monitoring_comes_in_by_the_same_door_as_clients() {
    let host = Host::dash();
    let (address, token) = (host.address(), host.token());
    for path in ["/metrics", "/readyz", "/healthz"] {
        let with_token = format!("{path}?tkn={token}");
        for (path, headers, status) in [
            (path, String::new(), 401),
            (&format!("{path}?tkn=wrong"), String::new(), 401),
            (&with_token, "Origin: https://evil.example\r\n".into(), 403),
            (&with_token, "Host: evil.example\r\n".into(), 400),
            (&with_token, String::new(), 200),
            (path, format!("Authorization: Bearer {token}\r\n"), 200),
        ] {
            let (got, head, body) = get(address, path, &headers).await;
            assert_eq!(got, status, "{path} {headers}");
            if status == 200 {
                assert!(head.contains("cache-control: no-store"), "{head}");
            } else {
                assert!(
                    !body.contains("shellward_") && !body.contains("status"),
                    "{body}"
                );
            }
        }
        let stream = TcpStream::connect(address).await.unwrap();
        let foreign = format!("GET {with_token} HTTP/1.1\r\nHost: evil.example\r\n\r\n");
        assert_eq!(ask(stream, &foreign).await.0, 403);
        let stream = TcpStream::connect(address).await.unwrap();
        let post = format!("POST {with_token} HTTP/1.1\r\nHost: {address}\r\n\r\n");
        assert_eq!(ask(stream, &post).await.0, 426, "only GET");
        // On the unix socket the peer is who counts.
        assert_eq!(get_unix(&host.socket, path).await.0, 200);
    }
    let now = scrape(&host).await;
    // Three paths each.
    assert_eq!(now[&refused("401")], 6.0);
    assert_eq!(now[&refused("403")], 6.0);
    assert_eq!(now[&refused("400")], 3.0);
    assert_eq!(now[&refused("426")], 3.0);
    host.stop();
}

// ---- the numbers ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_numbers_move_by_exactly_what_was_done() {
    let host = Host::dash();
    let before = scrape(&host).await;
    for (name, value) in &before {
        let wanted = f64::from(u8::from(name.starts_with("shellward_build_info")));
        assert_eq!(*value, wanted, "{name} of a new host");
    }
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let mut typed = 0;
    for text in ["echo 'é漢'\r", "ls /\r"] {
        terminal.input(text).await;
        typed += text.len();
    }
    let quiet = "stty -echo; echo th''ere\r";
    terminal.input(quiet).await;
    typed += quiet.len();
    terminal.wait_text("there").await;
    terminal.wait_prompt().await;
    let second = Term::create(&raw).await;
    let other = Raw::open(&host).await;

    let now = scrape(&host).await;
    assert_eq!(now["shellward_connections"], 2.0);
    assert_eq!(now[&state("running")], 2.0);
    assert_eq!(now[STARTS], 2.0);
    assert_eq!(now["shellward_start_seconds_count"], 2.0);
    assert!(now["shellward_start_seconds_sum"] > 0.0005);
    assert_eq!(now[INPUT], typed as f64);
    let echoes = now["shellward_echo_seconds_count"];
    assert!((1.0..=3.0).contains(&echoes), "{echoes}");
    for name in ["start", "echo"] {
        let inf = format!("shellward_{name}_seconds_bucket{{le=\"+Inf\"}}");
        assert_eq!(now[&inf], now[&format!("shellward_{name}_seconds_count")]);
    }
    // The second shows its prompt when it likes; nothing else writes.
    let entries = [&terminal, &second].map(|terminal| host.ps_entry(&terminal.uri));
    assert_eq!(entries[0]["outputBytes"], terminal.seen.len());
    assert_eq!(entries[0]["inputBytes"], typed);
    assert_eq!(entries[1]["inputBytes"], 0);
    let deadline = Instant::now() + DEADLINE;
    loop {
        let all: u64 = [&terminal, &second]
            .map(|terminal| {
                host.ps_entry(&terminal.uri)["outputBytes"]
                    .as_u64()
                    .unwrap()
            })
            .iter()
            .sum();
        let now = scrape(&host).await[OUTPUT];
        if now == all as f64 {
            break;
        }
        assert!(Instant::now() < deadline, "{OUTPUT} is {now} and not {all}");
    }

    // Refusals: a request with each of three codes, and two dispatches.
    raw.request("nonsense", json!({})).await.unwrap_err();
    raw.request("createTerminal", json!({"channel": second.uri}))
        .await
        .unwrap_err();
    raw.request("subscribe", json!({"channel": "ahp-terminal:/none"}))
        .await
        .unwrap_err();
    raw.send_text(r#"{"id":"a string","method":"ping"}"#).await;
    for action in [
        json!({"type": "terminal/resized", "cols": 0, "rows": 0}),
        json!({"type": "terminal/input", "data": "x".repeat((1 << 20) + 1)}),
    ] {
        let mark = raw.mark();
        let seq = raw.dispatch(&second.uri, action).await;
        raw.wait_refusal(mark, &second.uri, seq).await;
    }
    // An end in order, a crash, and one that is disposed of.
    terminal.line("exit 3").await;
    terminal.wait_exit().await;
    let now = scrape(&host).await;
    for code in ["-32601", "-32003", "-32008", "-32600"] {
        assert_eq!(now[&refused(code)], 1.0, "{code}");
    }
    assert_eq!(now["shellward_dispatches_refused_total"], 2.0);
    assert_eq!(now[&state("exited")], 1.0);
    assert_eq!(now[INPUT], (typed + "exit 3\r".len()) as f64);
    assert_eq!(now[CRASHES], 0.0);
    kill(Pid::from_raw(host.pids(&second.uri).0), Signal::SIGKILL).unwrap();
    let now = wait_metric(&host, CRASHES, 1.0).await;
    assert_eq!(now[&state("exited")], 1.0);
    assert_eq!(now[&state("crashed")], 1.0);
    assert_eq!(host.ps_entry(&second.uri)["state"], "crashed");
    raw.request("disposeTerminal", json!({"channel": second.uri}))
        .await
        .unwrap();
    other.close().await;
    let now = wait_metric(&host, "shellward_connections", 1.0).await;
    assert_eq!(now[&state("exited")], 1.0);
    assert_eq!(now[&state("crashed")], 0.0);
    // The crashed one was given another worker.
    assert_eq!(now[STARTS], 3.0);
    host.stop();
}

/// A subscriber of `uri` that will read nothing from now on.
async fn stopped_reader(host: &Host, uri: &str) -> WebSocketStream<TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let stream = socket
        .connect(host.address().parse().unwrap())
        .await
        .unwrap();
    let (mut client, _) = tokio_tungstenite::client_async(host.url_with_token(), stream)
        .await
        .unwrap();
    for message in [
        json!({"id": 1, "method": "initialize", "params": {"channel": ROOT, "clientId": "stopped", "protocolVersions": ["1.0.0"]}}),
        json!({"id": 2, "method": "subscribe", "params": {"channel": uri}}),
    ] {
        client
            .send(Message::text(message.to_string()))
            .await
            .unwrap();
    }
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_reader_shows_in_the_queue_and_then_among_the_closed() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let stopped = stopped_reader(&host, &terminal.uri).await;
    wait_metric(&host, "shellward_connections", 2.0).await;
    // Less than closes it, more than its socket takes: our kernel buffers up to 4 MiB.
    let mut peak = 0.0_f64;
    let end = Instant::now() + 2 * DEADLINE;
    loop {
        terminal
            .output_of("head -c 300000 /dev/zero | tr '\\0' x | fold -w 100")
            .await;
        let now = scrape(&host).await;
        peak = peak.max(now["shellward_outbox_max_bytes"]);
        assert!(now["shellward_outbox_bytes"] >= now["shellward_outbox_max_bytes"]);
        if now["shellward_slow_readers_closed_total"] == 1.0 {
            break;
        }
        assert!(
            Instant::now() < end,
            "not closed; at most {peak} bytes waited"
        );
    }
    assert!(peak > 500_000.0, "{peak}");
    let now = wait_metric(&host, "shellward_connections", 1.0).await;
    assert_eq!(now[SLOW], 1.0);
    assert!(now["shellward_outbox_max_bytes"] < 500_000.0, "{now:?}");
    drop(stopped);
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alone_a_scrape_is_fast_while_twenty_terminals_flood() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut uris = Vec::new();
    for _ in 0..20 {
        let terminal = Term::create(&raw).await;
        terminal.line("yes flood").await;
        raw.request("unsubscribe", json!({"channel": terminal.uri}))
            .await
            .unwrap();
        uris.push(terminal.uri);
    }
    // The flood is there before anything is measured.
    poll_for("output of every terminal", DEADLINE, || {
        let listed = host.ps();
        let terminals = listed["terminals"].as_array().unwrap();
        terminals
            .iter()
            .all(|terminal| terminal["outputBytes"].as_u64() > Some(100_000))
            .then_some(())
    });
    // Beside each scrape the plainest request, which waits for a thread and the lock like any other:
    // how long that takes is the machine's, and the build's.
    let (mut scrapes, mut plain) = (Vec::new(), Vec::new());
    let mut last = scrape(&host).await[OUTPUT];
    let health = format!("/healthz?tkn={}", host.token());
    for _ in 0..30 {
        let begun = Instant::now();
        let now = scrape(&host).await;
        scrapes.push(begun.elapsed());
        assert!(now[OUTPUT] >= last);
        last = now[OUTPUT];
        let begun = Instant::now();
        get(host.address(), &health, "").await;
        plain.push(begun.elapsed());
    }
    scrapes.sort();
    plain.sort();
    let words = format!(
        "during a flood, in the middle and at most: a scrape {:?} {:?}, /healthz {:?} {:?}",
        scrapes[15], scrapes[29], plain[15], plain[29]
    );
    eprintln!("{words}");
    assert!(
        scrapes[15] < 2 * plain[15] + Duration::from_millis(50),
        "{words}"
    );
    assert!(scrapes[29] < Duration::from_secs(5), "{words}");
    let now = scrape(&host).await;
    assert!(now[OUTPUT] > 20.0 * 100_000.0);
    host.stop();
}

// ---- ready ----

/// A worker whose probe takes a moment.
fn slow_probe(builder: HostBuilder) -> HostBuilder {
    let path = builder.folder().join("slow-worker");
    let worker = binaries().join("shellward-worker");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = probe ] && sleep 1\nexec '{}' \"$@\"\n",
        worker.display()
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    builder.option("--worker", path.to_str().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ready_is_said_when_the_probe_has_answered_and_not_before() {
    let builder = slow_probe(Host::builder().option("--pty", "auto"));
    let socket = builder.runtime_dir().join("ahp.sock");
    let socket = socket.to_str().unwrap().to_owned();
    let watch = tokio::spawn(async move {
        while UnixStream::connect(&socket).await.is_err() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let (first, _, body) = get_unix(&socket, "/readyz").await;
        let alive = get_unix(&socket, "/healthz").await.0;
        let counts = get_unix(&socket, "/metrics").await.0;
        // A client that comes now is served when the host is ready, as ever.
        let stream = UnixStream::connect(&socket).await.unwrap();
        let begun = Instant::now();
        tokio_tungstenite::client_async("ws://localhost/", stream)
            .await
            .expect("the upgrade");
        let waited = begun.elapsed();
        let last = get_unix(&socket, "/readyz").await;
        (first, body, alive, counts, waited, last)
    });
    let host = tokio::task::spawn_blocking(|| builder.start())
        .await
        .unwrap();
    let (first, body, alive, counts, waited, last) = watch.await.unwrap();
    assert_eq!((first, alive, counts), (503, 200, 200));
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["status"], "starting");
    assert!(body["reason"].as_str().unwrap().contains("probe"), "{body}");
    assert!(waited > Duration::from_millis(300), "{waited:?}");
    assert_eq!((last.0, last.2.as_str()), (200, r#"{"status":"ready"}"#));
    assert!(last.1.contains("content-type: application/json"));
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_host_that_ends_says_so_and_takes_nobody() {
    let mut host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    // Its end takes until it is killed.
    terminal.output_of("trap '' HUP TERM; echo x").await;
    let ready = format!("/readyz?tkn={}", host.token());
    assert_eq!(get(host.address(), &ready, "").await.0, 200);
    host.signal(Signal::SIGTERM);
    let end = Instant::now() + DEADLINE;
    let body = loop {
        match get(host.address(), &ready, "").await {
            (503, _, body) => break body,
            (200, ..) => assert!(Instant::now() < end, "it is still ready"),
            other => panic!("{other:?}"),
        }
    };
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["status"], "ending");
    let metrics = format!("/metrics?tkn={}", host.token());
    let (status, _, page) = get(host.address(), &metrics, "").await;
    assert_eq!((status, samples(&page)[&state("ending")]), (200, 1.0));
    let refused = host.cli(&["ps"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(3), "{said}");
    assert!(said.contains("shutting down"), "{said}");
    assert!(host.wait_end().success());
    assert_eq!(raw.wait_closed().await.0, 1001);
    host.stop();
}

// ---- ps ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ps_has_the_figures_of_each_terminal() {
    let host = Host::builder().dash().option("--pty", "never").start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("echo hi").await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let entry = host.ps_entry(&terminal.uri);
    let uptime = entry["uptimeSeconds"].as_u64().unwrap();
    assert!((1..30).contains(&uptime), "{entry}");
    let memory = entry["memoryBytes"].as_u64().unwrap();
    assert!((200 << 10..64 << 20).contains(&memory), "{entry}");
    let worker = entry["workerPid"].as_i64().unwrap();
    let status = fs::read_to_string(format!("/proc/{worker}/status")).unwrap();
    assert!(status.contains("VmRSS:"), "{status}");
    assert_eq!(entry["outputBytes"], terminal.seen.len());
    assert!(entry["inputBytes"].as_u64() > Some(10), "{entry}");
    assert!(
        entry["ptyReason"].as_str().unwrap().contains("--pty never"),
        "{entry}"
    );
    let table = String::from_utf8(host.cli(&["ps"]).stdout).unwrap();
    let head = table.lines().nth(1).unwrap();
    assert_eq!(
        head.split_whitespace().collect::<Vec<_>>(),
        [
            "ID", "STATE", "UPTIME", "ON", "SIZE", "WORKER", "SHELL", "MEMORY", "OUT", "IN",
            "RESTARTS", "ACCOUNT", "TITLE", "CLAIM", "URI"
        ]
    );
    let row: Vec<&str> = table.lines().nth(2).unwrap().split_whitespace().collect();
    assert!(row[2].ends_with('s'), "{row:?}");

    // Its worker stays, for the next supervisor; if it dies another takes its place, and what was
    // counted stays.
    terminal.line("exit").await;
    terminal.wait_exit().await;
    assert_eq!(host.ps_entry(&terminal.uri)["workerPid"], worker);
    kill(
        Pid::from_raw(i32::try_from(worker).unwrap()),
        Signal::SIGKILL,
    )
    .unwrap();
    let entry = poll_for("another worker", DEADLINE, || {
        let entry = host.ps_entry(&terminal.uri);
        let another = entry["workerPid"].as_i64().filter(|pid| *pid != worker);
        another.map(|_| entry)
    });
    assert_eq!(entry["state"], "exited", "{entry}");
    assert!(entry["memoryBytes"].is_u64(), "{entry}");
    assert!(entry["shellPid"].is_null(), "{entry}");
    assert!(entry["uptimeSeconds"].as_u64() >= Some(uptime), "{entry}");
    assert_eq!(entry["outputBytes"], terminal.seen.len());
    host.stop();
    let host = Host::builder().dash().option("--pty", "auto").start();
    let raw = Raw::open(&host).await;
    let terminal = Term::create(&raw).await;
    assert!(host.ps_entry(&terminal.uri).get("ptyReason").is_none());
    host.stop();
}
