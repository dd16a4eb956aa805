//! Field cases of input: S-09, S-18, S-19, S-20.

use std::fs;
use std::time::{Duration, Instant};

use shellward_tests::{DEADLINE, Host, Raw, Term, json, poll_for, proc};

/// Waits until the reader has ended and the shell listens again, and has it answer.
async fn assert_ok_after(terminal: &mut Term) {
    terminal.wait_text("cooked").await;
    assert_eq!(terminal.output_of("echo ok").await.trim(), "ok");
}

#[tokio::test]
async fn s09_nul_arrives_as_byte_0() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal
        .start_reader("dd bs=1 count=3 2>/dev/null | od -An -tx1")
        .await;
    terminal.input("a\u{0}b").await;
    terminal.wait_text(" 61 00 62").await;
    assert_ok_after(&mut terminal).await;
    host.stop();
}

#[tokio::test]
async fn s09_a_lone_surrogate_costs_that_message_at_most() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.wait_prompt().await;
    for data in ["x\\ud83d", "\\udc00", "\\ud83dy", "\\ude00\\ud83d"] {
        raw.send_text(format!(
            "{{\"jsonrpc\":\"2.0\",\"method\":\"dispatchAction\",\"params\":{{\"channel\":\"{}\",\"clientSeq\":50,\"action\":{{\"type\":\"terminal/input\",\"data\":\"{data}\"}}}}}}",
            terminal.uri
        ))
        .await;
    }
    raw.settle().await;
    assert!(!raw.is_closed());
    terminal.input("\u{15}\r").await;
    assert_eq!(terminal.output_of("echo ok").await.trim(), "ok");
    host.stop();
}

#[tokio::test]
async fn s09_an_emoji_behind_65535_letters_arrives_whole() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let text = format!("{}🙂{}é", "a".repeat(65535), "b".repeat(65534));
    let file = host.folder().join("typed");
    terminal
        .start_reader(&format!("head -c {} > {}", text.len(), file.display()))
        .await;
    terminal.input(&text).await;
    assert_ok_after(&mut terminal).await;
    assert!(fs::read_to_string(&file).unwrap() == text);
    host.stop();
}

/// Recognisable text of `len` bytes.
fn pattern(len: usize) -> String {
    let mut text = String::with_capacity(len + 8);
    let mut number = 0;
    while text.len() < len {
        text.push_str(&format!("{number:07x} "));
        number += 1;
    }
    text.truncate(len);
    text
}

#[tokio::test]
async fn s18_256_kib_in_one_input_arrive_whole() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let text = pattern(262_144);
    let file = host.folder().join("typed");
    terminal
        .start_reader(&format!("head -c 262144 > {}", file.display()))
        .await;
    terminal.input(&text).await;
    assert_ok_after(&mut terminal).await;
    assert!(
        fs::read_to_string(&file).unwrap() == text,
        "the text differs"
    );
    host.stop();
}

#[tokio::test]
async fn s18_256_kib_in_1000_inputs_arrive_in_order() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let text = pattern(262_144);
    let file = host.folder().join("typed");
    terminal
        .start_reader(&format!("head -c 262144 > {}", file.display()))
        .await;
    for piece in text.as_bytes().chunks(263) {
        terminal.input(std::str::from_utf8(piece).unwrap()).await;
    }
    assert_ok_after(&mut terminal).await;
    assert!(
        fs::read_to_string(&file).unwrap() == text,
        "the text differs"
    );
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s18_inputs_of_two_clients_are_not_mixed() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let other = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let viewer = Term::subscribe(&other, &terminal.uri).await;
    let file = host.folder().join("typed");
    terminal
        .start_reader(&format!("head -c 400000 > {}", file.display()))
        .await;
    let (a, b) = ("A".repeat(50_000), "B".repeat(50_000));
    tokio::join!(
        async {
            for _ in 0..4 {
                terminal.input(&a).await;
            }
        },
        async {
            for _ in 0..4 {
                viewer.input(&b).await;
            }
        },
    );
    assert_ok_after(&mut terminal).await;
    let typed = fs::read_to_string(&file).unwrap();
    assert_eq!(typed.len(), 400_000);
    for (number, block) in typed.as_bytes().chunks(50_000).enumerate() {
        assert!(
            block.iter().all(|byte| *byte == block[0]),
            "block {number} is mixed"
        );
    }
    assert_eq!(typed.matches('A').count(), 200_000);
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s18_an_echoing_cat_does_not_deadlock() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let text = pattern(900_000);
    terminal.start_reader("head -c 900000; printf e''nd").await;
    let before = terminal.seen.len();
    terminal.input(&text).await;
    terminal.wait_text_within("end", DEADLINE * 3).await;
    let echoed = &terminal.seen[before..];
    assert!(
        echoed.contains(&text),
        "{} of {} bytes came back",
        echoed.len(),
        text.len()
    );
    host.stop();
}

/// How long one key takes to come back from a raw `cat`.
async fn echo_time(terminal: &mut Term) -> Duration {
    terminal.seen.clear();
    let start = Instant::now();
    terminal.input("k").await;
    terminal.wait_text("k").await;
    start.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s19_a_stalled_reader_costs_nothing_and_disturbs_nobody() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut stalled = Term::create(&raw).await;
    let neighbour_client = Raw::open(&host).await;
    let mut neighbour = Term::create(&neighbour_client).await;
    neighbour.start_reader("cat").await;
    stalled.start_reader("sleep 600").await;
    let (worker, _) = host.pids(&stalled.uri);

    // 1 MiB, which is as much as may wait; then more of it.
    let mark = raw.mark();
    let mut refused = None;
    let piece = "p".repeat(64 << 10);
    for count in 0..40 {
        let seq = stalled.input(&piece).await;
        let accepted = raw
            .wait_from(mark, &format!("an answer to input {count}"), |message| {
                (message["params"]["origin"]["clientSeq"] == seq)
                    .then(|| message["params"].get("rejectionReason").is_none())
            })
            .await;
        if !accepted {
            refused = Some(count);
            break;
        }
    }
    let refused = refused.expect("input without end was accepted");
    assert!(
        (8..=20).contains(&refused),
        "refused after {refused} times 64 KiB"
    );

    // The measure is processor time over one second.
    let ticks = |pid: i32| proc::Process::read(pid).expect("it runs").ticks;
    let (before, supervisor) = (ticks(worker), ticks(host.pid));
    let start = Instant::now();
    let mut slowest = Duration::ZERO;
    let mut echoes = 0;
    while start.elapsed() < Duration::from_secs(1) {
        slowest = slowest.max(echo_time(&mut neighbour).await);
        echoes += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let used = ticks(worker) - before;
    assert!(
        used <= 5,
        "{used} ticks of 100 for a worker whose reader sleeps"
    );
    assert!(ticks(host.pid) - supervisor <= 30, "the supervisor spins");
    assert!(echoes >= 10);
    assert!(
        slowest < Duration::from_millis(100),
        "the slowest of {echoes} echoes: {slowest:?}"
    );

    let start = Instant::now();
    raw.request("disposeTerminal", json!({"channel": stalled.uri}))
        .await
        .unwrap();
    poll_for("the end of the worker", DEADLINE, || {
        proc::Process::read(worker).is_none().then_some(())
    });
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    host.stop();
}

#[tokio::test]
async fn s20_a_line_beyond_the_kernels_limit_harms_nothing() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal
        .line("stty -echo; printf rea''dy; head -n 1 | wc -c; stty echo")
        .await;
    terminal.wait_text("ready").await;
    terminal.input(&format!("{}\r", "l".repeat(5000))).await;
    // What the kernel keeps of a line in canonical mode, and the newline.
    terminal.wait_text("4096").await;
    assert_eq!(terminal.output_of("echo ok").await.trim(), "ok");
    host.stop();
}

#[tokio::test]
async fn s20_a_long_line_at_a_shell_with_line_editing_is_not_shortened() {
    let host = Host::start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("echo ready").await;
    let long = "w".repeat(6000);
    let text = terminal.output_of(&format!("x={long}; echo ${{#x}}")).await;
    assert!(text.contains("6000"), "{text}");
    host.stop();
}
