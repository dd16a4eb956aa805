//! Field cases of output: S-01, S-07, S-08.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use shellward_tests::{DEADLINE, Host, Raw, Term, json};

const BURST: &str = "head -c 20480 /dev/zero | tr '\\0' h; printf E''ND; exit";

#[track_caller]
fn assert_whole(text: &str) {
    let whole = format!("{}END", "h".repeat(20480));
    assert!(
        text.contains(&whole),
        "{} h, and the end is {:?}",
        text.matches('h').count(),
        text.chars()
            .rev()
            .take(60)
            .collect::<String>()
            .chars()
            .rev()
            .collect::<String>()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s01_the_end_of_the_output_is_there_and_before_the_exit_100_times() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    for _ in 0..10 {
        let mut batch = Vec::new();
        for _ in 0..10 {
            let terminal = Term::create(&raw).await;
            terminal.line(BURST).await;
            batch.push(terminal);
        }
        for mut terminal in batch {
            let mark = raw.mark();
            terminal.wait_exit().await;
            assert_whole(&terminal.seen);
            terminal.assert_equals_snapshot().await;
            raw.request("disposeTerminal", json!({"channel": terminal.uri}))
                .await
                .unwrap();
            assert!(
                raw.actions_since(mark, &terminal.uri)
                    .iter()
                    .skip_while(|a| a["action"]["type"] != "terminal/exited")
                    .all(|a| a["action"]["type"] != "terminal/data"),
                "data after the exit"
            );
        }
    }
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s01_signals_to_the_worker_during_the_read_lose_nothing() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    for _ in 0..10 {
        let mut terminal = Term::create(&raw).await;
        terminal.wait_prompt().await;
        let (worker, _) = host.pids(&terminal.uri);
        terminal.line(BURST).await;
        let exit = async {
            terminal.wait_exit().await;
        };
        let signals = async {
            loop {
                for signal in [
                    Signal::SIGWINCH,
                    Signal::SIGCONT,
                    Signal::SIGCHLD,
                    Signal::SIGURG,
                ] {
                    let _ = kill(Pid::from_raw(worker), signal);
                }
                tokio::time::sleep(std::time::Duration::from_micros(300)).await;
            }
        };
        tokio::select! {
            () = exit => {}
            () = signals => unreachable!(),
        }
        assert_whole(&terminal.seen);
        raw.request("disposeTerminal", json!({"channel": terminal.uri}))
            .await
            .unwrap();
    }
    host.stop();
}

#[tokio::test]
async fn s01_output_before_an_exec_failure_and_a_signal_is_there_too() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal
        .line("exec sh -c 'head -c 20480 /dev/zero | tr \"\\\\0\" h; printf E\"\"ND; kill -9 $$'")
        .await;
    let action = terminal.wait_exit().await;
    assert_eq!(action["signal"], "SIGKILL");
    assert_whole(&terminal.seen);
    host.stop();
}

#[tokio::test]
async fn s07_a_character_cut_in_two_arrives_whole() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    for (first, second, whole) in [
        ("\\342", "\\224\\200", "─"),
        ("\\342\\224", "\\200", "─"),
        ("\\360\\237", "\\231\\202", "🙂"),
        ("\\360\\237\\231", "\\202", "🙂"),
        ("\\303", "\\251", "é"),
    ] {
        let text = terminal
            .output_of(&format!(
                "printf 'A {first}'; sleep 0.3; printf '{second} B'"
            ))
            .await;
        assert_eq!(text, format!("A {whole} B"));
    }
    assert!(!terminal.seen.contains('\u{fffd}'));
    terminal.assert_equals_snapshot().await;
    host.stop();
}

#[tokio::test]
async fn s07_100_lines_of_200_box_characters_at_full_speed_arrive_whole() {
    let host = Host::dash();
    let file = host.folder().join("boxes");
    fs::write(&file, format!("{}\n", "─".repeat(200)).repeat(100)).unwrap();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    for _ in 0..5 {
        let text = terminal.output_of(&format!("cat {}", file.display())).await;
        let line = format!("{}{}", "─".repeat(200), terminal.newline());
        assert_eq!(text, line.repeat(100));
    }
    host.stop();
}

#[tokio::test]
async fn s07_an_incomplete_character_is_flushed_at_the_exit() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal
        .line("printf 'end''ing\\342\\224'; exec true")
        .await;
    terminal.wait_exit().await;
    assert!(
        terminal.seen.ends_with("ending\u{fffd}"),
        "{:?}",
        terminal.seen
    );
    terminal.assert_equals_snapshot().await;
    host.stop();
}

#[tokio::test]
async fn s08_random_bytes_do_not_end_the_connection() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let mut other = Term::create(&raw).await;
    for _ in 0..3 {
        terminal
            .line("head -c 65536 /dev/urandom; printf '\\030\\033c'; echo al''ive")
            .await;
        terminal.wait_text("alive").await;
        terminal.seen.clear();
    }
    assert_eq!(other.output_of("echo fine").await.trim(), "fine");
    terminal.assert_equals_snapshot().await;
    host.stop();
}

#[tokio::test]
async fn s08_invalid_bytes_become_replacement_signs_and_the_rest_stays_byte_for_byte() {
    let host = Host::dash();
    // Everything but what starts an escape sequence (ESC, and C2 for the 8-bit forms), and NUL.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut bytes = Vec::new();
    while bytes.len() < 40_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let byte = state.to_le_bytes()[0];
        if ![0x1b, 0xc2, 0x00].contains(&byte) {
            bytes.push(byte);
        }
    }
    let file = host.folder().join("bytes");
    fs::write(&file, &bytes).unwrap();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    if terminal.is_pty() {
        terminal.output_of("stty -opost -echo; echo set").await;
    }
    let text = terminal.output_of(&format!("cat {}", file.display())).await;
    let expected = String::from_utf8_lossy(&bytes);
    assert_eq!(text.len(), expected.len());
    assert!(
        text == expected,
        "the text differs at {:?}",
        text.chars().zip(expected.chars()).position(|(a, b)| a != b)
    );
    host.stop();
}

#[tokio::test]
async fn s08_escape_sequences_pass_unchanged() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    for sequence in [
        "\\033[1;31mred\\033[0m",
        "\\033[?1049h\\033[H\\033[2J\\033[?1049l",
        "\\033]0;a title\\007text",
        "\\033]8;;http://example.com\\033\\\\link\\033]8;;\\033\\\\",
        "\\033P1$r0m\\033\\\\x",
        "tab\\tcr\\rbell\\007",
        "\\033[38;2;1;2;3mtrue\\033[m",
    ] {
        let text = terminal.output_of(&format!("printf '{sequence}'")).await;
        let expected = sequence
            .replace("\\033", "\u{1b}")
            .replace("\\007", "\u{7}")
            .replace("\\t", "\t")
            .replace("\\r", "\r")
            .replace("\\\\", "\\");
        assert_eq!(text, expected);
    }
    terminal.wait_text_within("true", DEADLINE).await;
    host.stop();
}
