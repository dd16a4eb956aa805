//! Field cases of the door: S-27, S-28, S-29, S-32; and the token's own rules.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use shellward_tests::raw::{Refused, connect_with};
use shellward_tests::{Host, HostBuilder, ROOT, Raw, Term, json, on_pipes, proc};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

#[track_caller]
fn assert_refused(result: Result<Raw, Refused>, what: &str) {
    match result {
        Ok(_) => panic!("{what} was let in"),
        Err(Refused::Status(status)) => assert!((400..500).contains(&status), "{what}: {status}"),
        Err(Refused::Other(why)) => panic!("{what} got no HTTP answer: {why}"),
    }
}

fn with_secrets(builder: HostBuilder) -> HostBuilder {
    builder
        .env("LD_PRELOAD", "/x.so")
        .env("LD_LIBRARY_PATH", "/nowhere")
        .env("BASH_ENV", "/tmp/b")
        .env("ENV", "/tmp/e")
        .env("NODE_OPTIONS", "--require=/tmp/n")
        .env("HOST_TOKEN", "s3cret")
        .env("NOTIFY_SOCKET", "/n")
        .env("LISTEN_FDS", "1")
        .env("LISTEN_PID", "1")
        .env("LISTEN_FDNAMES", "x")
        .env("SHELLWARD_CONNECTION_TOKEN", "s3cret")
}

#[tokio::test]
async fn s27_secrets_and_loader_variables_do_not_travel() {
    let host = with_secrets(Host::builder().dash()).start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let all = terminal.output_of("env").await;
    // The one variable of ours, and the host's own do not go with it.
    let id = host.ps_entry(&terminal.uri)["id"].clone();
    let own = format!("SHELLWARD_TERMINAL={}", id.as_str().unwrap());
    assert_eq!(all.lines().filter(|line| *line == own).count(), 1, "{all}");
    let environment = all.replace(&own, "");
    for name in [
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "BASH_ENV",
        "NODE_OPTIONS",
        "HOST_TOKEN",
        "NOTIFY_SOCKET",
        "LISTEN_FDS",
        "LISTEN_PID",
        "LISTEN_FDNAMES",
        "s3cret",
        "SHELLWARD_",
    ] {
        assert!(!environment.contains(name), "{name} in {environment}");
    }
    assert!(
        !environment.lines().any(|line| line.starts_with("ENV=")),
        "{environment}"
    );
    for name in ["TERM", "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG"] {
        assert!(
            environment.lines().any(|line| line
                .strip_prefix(name)
                .is_some_and(|rest| rest.len() > 2 && rest.starts_with('='))),
            "{name} is missing in {environment}"
        );
    }
    // The worker itself shows nothing either.
    let (worker, _) = host.pids(&terminal.uri);
    let shown = format!(
        "{:?} {}",
        proc::environment(worker),
        proc::command_line(worker)
    );
    for name in ["s3cret", host.token(), "LD_PRELOAD", "NOTIFY_SOCKET"] {
        assert!(!shown.contains(name), "{name} in {shown}");
    }
    host.stop();
}

#[tokio::test]
async fn s27_what_is_missing_comes_from_the_account() {
    let host = Host::builder()
        .option("--shell", "/bin/dash")
        .without_env("PATH")
        .without_env("HOME")
        .without_env("SHELL")
        .without_env("LANG")
        .start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let account = nix::unistd::User::from_uid(nix::unistd::geteuid())
        .unwrap()
        .unwrap();
    for (name, expected) in [
        ("HOME", Some(account.dir.to_str().unwrap().to_owned())),
        ("USER", Some(account.name.clone())),
        ("LOGNAME", Some(account.name.clone())),
        ("SHELL", None),
        ("PATH", None),
        ("LANG", None),
        (
            "TERM",
            Some(if on_pipes() { "dumb" } else { "xterm-256color" }.to_owned()),
        ),
    ] {
        let value = terminal.output_of(&format!("printenv {name}")).await;
        match expected {
            Some(expected) => assert_eq!(value.trim(), expected, "{name}"),
            None => assert!(!value.trim().is_empty(), "{name} is empty"),
        }
    }
    host.stop();
}

#[tokio::test]
async fn s27_the_hosts_own_term_and_plain_variables_travel() {
    let host = Host::builder()
        .dash()
        .env("TERM", "vt100")
        .env("EDITOR", "ed")
        .start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    assert_eq!(
        terminal.output_of("echo $TERM:$EDITOR").await.trim(),
        if on_pipes() { "dumb:ed" } else { "vt100:ed" }
    );
    host.stop();
}

#[tokio::test]
async fn s28_a_foreign_origin_is_refused_with_and_without_the_token() {
    let host = Host::start();
    let port = host.address().rsplit(':').next().unwrap().to_owned();
    let token = format!("?tkn={}", host.token());
    for origin in [
        "https://evil.example".to_owned(),
        "null".to_owned(),
        "http://127.0.0.1:1".to_owned(),
        "http://localhost.evil.example".to_owned(),
        format!("http://127.0.0.1.evil.example:{port}"),
        format!("http://evil.example:{port}"),
        "file://".to_owned(),
        "garbage".to_owned(),
    ] {
        for query in ["", token.as_str()] {
            assert_refused(
                connect_with(&host, query, &[("Origin", &origin)]).await,
                &format!("Origin {origin} with query of {} bytes", query.len()),
            );
        }
    }
    // One's own, or none at all, with the token.
    let own = format!("http://{}", host.address());
    connect_with(&host, &token, &[("Origin", &own)])
        .await
        .expect("its own origin");
    connect_with(&host, &token, &[]).await.expect("no origin");
    assert_refused(
        connect_with(&host, "", &[("Origin", &own)]).await,
        "its own origin without a token",
    );
    host.stop();
}

#[tokio::test]
async fn s28_a_foreign_host_name_is_refused() {
    let host = Host::start();
    let port = host.address().rsplit(':').next().unwrap().to_owned();
    let token = format!("?tkn={}", host.token());
    for name in [
        "evil.example".to_owned(),
        format!("evil.example:{port}"),
        format!("127.0.0.1.evil.example:{port}"),
        format!("localhost.evil.example:{port}"),
    ] {
        assert_refused(
            connect_with(&host, &token, &[("Host", &name)]).await,
            &format!("Host {name}"),
        );
    }
    for name in [format!("127.0.0.1:{port}"), format!("localhost:{port}")] {
        let raw = connect_with(&host, &token, &[("Host", &name)])
            .await
            .expect(&name);
        raw.initialize(&["1.0.0"]).await.unwrap();
    }
    host.stop();
}

#[tokio::test]
async fn s28_a_foreign_origin_is_refused_without_any_token_too() {
    let host = Host::builder().flag("--without-connection-token").start();
    assert!(host.ready["tokenFile"].is_null(), "{}", host.ready);
    assert_refused(
        connect_with(&host, "", &[("Origin", "https://evil.example")]).await,
        "a foreign origin",
    );
    assert_refused(
        connect_with(&host, "", &[("Host", "evil.example")]).await,
        "a foreign host",
    );
    Raw::open(&host).await;
    host.stop();
}

#[tokio::test]
async fn s28_no_token_no_session() {
    let host = Host::start();
    let token = host.token().to_owned();
    let longer = format!("?tkn={token}x");
    let shorter = format!("?tkn={}", &token[..token.len() - 1]);
    let other = format!("?token={token}");
    for query in ["", "?", "?tkn=", "?tkn=wrong", &longer, &shorter, &other] {
        assert_refused(connect_with(&host, query, &[]).await, "a wrong token");
    }
    for header in ["Bearer wrong", "Bearer ", "Basic Zm9v", &token] {
        assert_refused(
            connect_with(&host, "", &[("Authorization", header)]).await,
            "a wrong header",
        );
    }
    let bearer = format!("Bearer {token}");
    let raw = connect_with(&host, "", &[("Authorization", &bearer)])
        .await
        .expect("the bearer form");
    raw.initialize(&["1.0.0"]).await.unwrap();
    host.stop();
}

#[tokio::test]
async fn s28_plain_http_gets_no_shell_and_no_banner() {
    let host = Host::start();
    for request in [
        "GET / HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: HOST\r\nContent-Length: 2\r\n\r\n{}",
        "GET /../../etc/passwd HTTP/1.1\r\nHost: HOST\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: HOST\r\nOrigin: https://evil.example\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(host.address()).await.unwrap();
        let request = request.replace("HOST", host.address());
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = vec![0; 4096];
        let read = tokio::time::timeout(Duration::from_secs(5), stream.read(&mut answer))
            .await
            .expect("an answer")
            .unwrap();
        let answer = String::from_utf8_lossy(&answer[..read]).to_lowercase();
        assert!(answer.starts_with("http/1.1 4"), "{request:?}: {answer}");
        assert!(!answer.contains("access-control-allow-origin"), "{answer}");
    }
    host.stop();
}

#[test]
fn listening_beyond_loopback_without_a_token_is_refused() {
    for address in ["0.0.0.0:0", "[::]:0"] {
        let output = Host::builder()
            .listen(address)
            .flag("--without-connection-token")
            .run_to_end();
        let code = output.status.code();
        assert!(code == Some(1) || code == Some(2), "{address}: {output:?}");
        let words = String::from_utf8_lossy(&output.stderr).to_lowercase();
        assert!(words.contains("token"), "{address}: {words}");
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}

#[tokio::test]
async fn the_generated_token_is_long_private_and_kept() {
    let host = Host::start();
    let file = host.ready["tokenFile"].as_str().unwrap().to_owned();
    let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "{file}");
    assert!(
        host.token().len() >= 32,
        "{} characters",
        host.token().len()
    );
    let runtime = fs::metadata(host.runtime_dir())
        .unwrap()
        .permissions()
        .mode()
        & 0o777;
    assert_eq!(runtime, 0o700);
    let other = Host::start();
    assert_ne!(host.token(), other.token());
    other.stop();
    host.stop();
}

#[tokio::test]
async fn a_token_given_by_flag_or_file_is_the_token() {
    let host = Host::builder()
        .option("--connection-token", "given-by-flag-123")
        .start();
    connect_with(&host, "?tkn=given-by-flag-123", &[])
        .await
        .expect("by flag");
    assert_refused(
        connect_with(&host, "?tkn=wrong", &[]).await,
        "another token",
    );
    host.stop();
    let builder = Host::builder();
    let file = builder.folder().join("token");
    fs::write(&file, "given-by-file-123\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let host = builder
        .option("--connection-token-file", file.to_str().unwrap())
        .start();
    connect_with(&host, "?tkn=given-by-file-123", &[])
        .await
        .expect("by file");
    host.stop();
    let output = Host::builder()
        .option("--connection-token-file", "/no/such/file")
        .run_to_end();
    assert_ne!(output.status.code(), Some(0));
}

#[tokio::test]
async fn s29_the_token_is_nowhere_even_at_the_most_talkative_level() {
    let host = Host::builder()
        .dash()
        .env("RUST_LOG", "trace")
        .env("SHELLWARD_LOG", "trace")
        .start();
    let token = host.token().to_owned();
    let bearer = format!("Bearer {token}");
    let near = format!("{token}-near-miss");
    let raw = Raw::open(&host).await;
    let _second = connect_with(&host, "", &[("Authorization", &bearer)])
        .await
        .expect("bearer");
    for (query, headers) in [
        (format!("?tkn={near}"), vec![]),
        (format!("?x=1&tkn={near}&y=%zz"), vec![]),
        (
            String::new(),
            vec![("Sec-WebSocket-Protocol", near.as_str())],
        ),
        (
            format!("?tkn={token}"),
            vec![("Origin", "https://evil.example")],
        ),
        (format!("?tkn={token}"), vec![("Host", "evil.example")]),
    ] {
        assert_refused(connect_with(&host, &query, &headers).await, "it");
    }
    // In the first message, as text that is no JSON, in params of a wrong type, as a client id.
    let third = Raw::connect(&host).await;
    third.send_text(format!("{{\"tkn\": \"{token}\"")).await;
    raw.request("createTerminal", json!({"channel": token, "claim": token}))
        .await
        .unwrap_err();
    raw.request(&token, json!({"channel": token}))
        .await
        .unwrap_err();
    raw.dispatch(&token, json!({"type": token})).await;
    raw.settle().await;
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("echo x").await;
    let (worker, shell) = host.pids(&terminal.uri);

    let log = host.log();
    assert!(!log.contains(&token), "the token is in the log");
    assert!(
        log.lines().count() > 3,
        "the log at level trace is empty; is another variable needed?"
    );
    for pid in [host.pid, worker, shell] {
        let shown = format!("{:?} {}", proc::environment(pid), proc::command_line(pid));
        assert!(!shown.contains(&token), "{pid}: {shown}");
    }
    for words in [vec!["ps"], vec!["ps", "--json"]] {
        let output = host.cli(&words);
        let shown = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(
            output.status.success() && !shown.contains(&token),
            "{shown}"
        );
    }
    host.stop();
}

#[tokio::test]
async fn s29_what_is_typed_is_not_in_the_log() {
    let host = Host::builder()
        .dash()
        .env("RUST_LOG", "trace")
        .env("SHELLWARD_LOG", "trace")
        .start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("stty -echo; echo x").await;
    terminal.line("pass''word-hunter2").await;
    terminal.output_of("echo y").await;
    assert!(
        !host.log().contains("word-hunter2"),
        "typed text is in the log"
    );
    host.stop();
}

/// A raw `cat` whose echo is timed.
async fn neighbour(raw: &Raw) -> Term {
    let mut terminal = Term::create(raw).await;
    terminal.start_reader("cat").await;
    terminal
}

async fn assert_echo_is_quick(terminal: &mut Term, when: &str) {
    for _ in 0..5 {
        terminal.seen.clear();
        let start = Instant::now();
        terminal.input("k").await;
        terminal.wait_text("k").await;
        let took = start.elapsed();
        assert!(took < Duration::from_millis(200), "{when}: {took:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s32_a_header_without_end_is_cut_off() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut cat = neighbour(&raw).await;
    let mut stream = TcpStream::connect(host.address()).await.unwrap();
    let head = format!(
        "GET /?tkn={} HTTP/1.1\r\nHost: {}\r\nX-Long: ",
        host.token(),
        host.address()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut sent = 0_usize;
    let piece = [b'a'; 4096];
    let closed = loop {
        let mut answer = [0; 512];
        match tokio::time::timeout(Duration::from_secs(5), stream.write_all(&piece)).await {
            Ok(Ok(())) => sent += piece.len(),
            Ok(Err(_)) => break true,
            Err(_) => break true,
        }
        if let Ok(read) = stream.try_read(&mut answer) {
            let text = String::from_utf8_lossy(&answer[..read]).into_owned();
            assert!(read == 0 || text.starts_with("HTTP/1.1 4"), "{text}");
            break true;
        }
        if sent > 20 << 20 {
            break false;
        }
    };
    assert!(closed, "20 MB of header were read");
    assert!(sent < 4 << 20, "{sent} bytes of header were read");
    assert_echo_is_quick(&mut cat, "after the header").await;
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s32_sockets_that_never_initialize_are_closed_and_disturb_nobody() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut cat = neighbour(&raw).await;
    let mut silent = Vec::new();
    let mut turned_away = 0;
    for _ in 0..200 {
        let query = format!("?tkn={}", host.token());
        match connect_with(&host, &query, &[]).await {
            Ok(socket) => silent.push(socket),
            Err(_) => turned_away += 1,
        }
    }
    assert!(silent.len() + turned_away == 200 && silent.len() >= 10);
    assert_echo_is_quick(&mut cat, "beside silent sockets").await;
    for socket in &silent {
        socket.wait_closed_within(Duration::from_secs(60)).await;
    }
    assert_echo_is_quick(&mut cat, "after them").await;
    Raw::open(&host).await;
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s32_a_message_of_64_mib_ends_that_connection_only() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut cat = neighbour(&raw).await;
    let offender = Raw::open(&host).await;
    let text = format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":\"x\",\"params\":\"{}\"}}",
        "m".repeat(64 << 20)
    );
    let sent = offender.try_send(Message::text(text)).await;
    if sent.is_ok() {
        offender.wait_closed().await;
    }
    assert_echo_is_quick(&mut cat, "after the message").await;
    let status = fs::read_to_string(format!("/proc/{}/status", host.pid)).unwrap();
    let peak: u64 = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap();
    assert!(peak < 64 << 10, "the host grew to {peak} KiB");
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s32_fragments_without_end_end_that_connection_only() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut cat = neighbour(&raw).await;
    let offender = Raw::open(&host).await;
    let piece = vec![b'f'; 64 << 10];
    let mut sent = 0_u64;
    loop {
        let opcode = if sent == 0 {
            Data::Text
        } else {
            Data::Continue
        };
        let frame = Frame::message(piece.clone(), OpCode::Data(opcode), false);
        if offender.try_send(Message::Frame(frame)).await.is_err() || offender.is_closed() {
            break;
        }
        sent += piece.len() as u64;
        assert!(sent < 256 << 20, "{sent} bytes of one message were taken");
    }
    assert_echo_is_quick(&mut cat, "after the fragments").await;
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s32_json_100_000_deep_harms_nobody() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut cat = neighbour(&raw).await;
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        for place in ["params", "_meta", "action"] {
            let offender = Raw::open(&host).await;
            let deep = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
            let text = match place {
                "params" => format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":77,\"method\":\"ping\",\"params\":{deep}}}"
                ),
                "_meta" => format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":77,\"method\":\"ping\",\"params\":{{\"channel\":\"{ROOT}\",\"_meta\":{deep}}}}}"
                ),
                _ => format!(
                    "{{\"jsonrpc\":\"2.0\",\"method\":\"dispatchAction\",\"params\":{{\"channel\":\"{ROOT}\",\"clientSeq\":1,\"action\":{{\"type\":\"root/configChanged\",\"config\":{deep}}}}}}}"
                ),
            };
            offender.send_text(text).await;
            assert_echo_is_quick(&mut cat, "beside deep JSON").await;
        }
    }
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s32_10_000_subscribes_to_one_uri_are_answered_or_end_that_connection() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut cat = neighbour(&raw).await;
    let offender = Raw::open(&host).await;
    let mut last = 0;
    for number in 1000..11_000_u64 {
        if offender.is_closed() {
            break;
        }
        let text = json!({"jsonrpc": "2.0", "id": number, "method": "subscribe",
            "params": {"channel": cat.uri}});
        if offender
            .try_send(Message::text(text.to_string()))
            .await
            .is_err()
        {
            break;
        }
        last = number;
    }
    assert_echo_is_quick(&mut cat, "beside 10000 subscribes").await;
    let served = last > 0
        && offender
            .response_or_end(last)
            .await
            .is_some_and(|answer| answer.is_ok());
    if served {
        // Still one subscription.
        let mark = offender.mark();
        cat.act(json!({"type": "terminal/titleChanged", "title": "once"}))
            .await;
        offender
            .wait_action(mark, &cat.uri, "terminal/titleChanged")
            .await;
        offender.settle().await;
        assert_eq!(
            offender
                .actions_since(mark, &cat.uri)
                .iter()
                .filter(|envelope| envelope["action"]["type"] == "terminal/titleChanged")
                .count(),
            1
        );
    }
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s29_guessing_tokens_is_slow_and_does_not_keep_the_owner_out() {
    let host = Host::dash();
    let started = Instant::now();
    let guesses = futures_util::future::join_all((0..60).map(|guess| {
        let host = &host;
        async move {
            let refused = connect_with(host, &format!("?tkn=guess{guess}"), &[]).await;
            match refused {
                Err(Refused::Status(status)) => (status, started.elapsed()),
                Err(Refused::Other(why)) => panic!("{why}"),
                Ok(_) => panic!("a wrong token was let in"),
            }
        }
    }));
    let owner = async { Raw::connect_unix(&host).await.initialize(&["1.0.0"]).await };
    let (guesses, owner) = tokio::join!(guesses, owner);
    owner.expect("the owner comes in by the unix socket meanwhile");
    let judged = guesses.iter().filter(|(status, _)| *status == 401).count();
    let turned_away = guesses.iter().filter(|(status, _)| *status == 429).count();
    assert_eq!(judged + turned_away, 60, "{guesses:?}");
    // Sixteen are judged at a time, each for a quarter of a second.
    let rounds = started.elapsed().as_millis() / 250 + 1;
    assert!(
        judged as u128 <= 16 * rounds,
        "{judged} guesses judged in {rounds} rounds"
    );
    assert!(turned_away > 0, "60 guesses at once were all judged");
    let quickest = guesses
        .iter()
        .filter(|(status, _)| *status == 401)
        .map(|(_, time)| *time)
        .min();
    assert!(
        quickest.unwrap() >= Duration::from_millis(250),
        "{quickest:?}"
    );
    drop(Raw::open(&host).await);
    host.stop();
}
