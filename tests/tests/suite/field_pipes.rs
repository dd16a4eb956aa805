//! Field case S-38, and what a terminal without a pseudoterminal promises beside it.
//!
//! What holds on pipes and ptys alike is not repeated here: those tests run on both, see the
//! profile `pipes` in `.config/nextest.toml`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::stat::Mode;
use shellward_tests::{
    DEADLINE, Host, HostBuilder, Raw, Term, Value, json, poll_for, probe, proc, term,
};

/// A host whose terminals are on pipes by order.
fn builder() -> HostBuilder {
    Host::builder().option("--pty", "never")
}

fn start() -> Host {
    builder().dash().start()
}

/// A pipe with a name, on which a job of a shell waits for the test.
fn fifo(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
    path
}

/// Lets the job go on that reads the first line of `fifo`.
fn release(fifo: &Path) {
    fs::write(fifo, "go\n").unwrap();
}

/// The process below `root` with this command line, once it is there.
fn started(root: i32, command: &str) -> proc::Process {
    poll_for(command, DEADLINE, || {
        proc::descendants(root)
            .into_iter()
            .find(|process| proc::command_line(process.pid).trim() == command)
    })
}

fn gone_within(process: &proc::Process, limit: Duration) {
    poll_for(&format!("the end of {process:?}"), limit, || {
        (!process.is_alive()).then_some(())
    });
}

/// What became of a dispatch: `true` accepted, `false` refused.
async fn accepted(raw: &Raw, mark: usize, uri: &str, seq: i64) -> bool {
    raw.wait_from(mark, &format!("an answer to dispatch {seq}"), |message| {
        let params = &message["params"];
        (message["method"] == "action"
            && params["channel"] == uri
            && params["origin"]["clientSeq"] == seq)
            .then(|| params.get("rejectionReason").is_none())
    })
    .await
}

#[track_caller]
fn assert_flags(state: &Value) {
    assert_eq!(state["isPty"], false, "{state}");
    assert_eq!(state["supportsCommandDetection"], false, "{state}");
    for part in state["content"].as_array().unwrap() {
        assert_eq!(part["type"], "unclassified", "{state}");
    }
    assert!(state["content"].as_array().unwrap().len() <= 1, "{state}");
}

// ---- what the host says ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn healthz_says_what_terminals_sit_on_to_who_may_come_in() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let host = Host::builder().option("--pty", "never").start();
    let token = host.token().to_owned();
    let get = async |query: &str| {
        let mut stream = tokio::net::TcpStream::connect(host.address())
            .await
            .unwrap();
        let head = format!(
            "GET /healthz{query} HTTP/1.1\r\nHost: {}\r\n\r\n",
            host.address()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    assert!(get("").await.starts_with("HTTP/1.1 401 "));
    let answer = get(&format!("?tkn={token}")).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    let health: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(health["status"], "ok");
    assert_eq!(health["pty"], false);
    assert_eq!(health["probe"]["result"], "never");
    host.stop();
}

#[tokio::test]
async fn never_is_said_in_the_ready_line_ps_root_and_state() {
    let host = start();
    assert_eq!(host.ready["pty"], false, "{}", host.ready);
    let supervisor = host.ps()["supervisor"].clone();
    assert_eq!(supervisor["pty"], false, "{supervisor}");
    let shown = probe::assert_answer(&probe::shown(&host), "never");
    let raw = Raw::open(&host).await;
    assert_eq!(
        raw.welcome["snapshots"][0]["state"]["_meta"]["shellward.probe"],
        shown
    );
    let mut terminal = Term::create(&raw).await;
    assert_flags(&terminal.snapshot["state"]);
    terminal.output_of("echo x").await;
    let late = Term::subscribe(&raw, &terminal.uri).await;
    assert_flags(&late.snapshot["state"]);
    assert_eq!(host.ps_entry(&terminal.uri)["isPty"], false);
    let plain = host.cli(&["ps"]);
    let plain = String::from_utf8(plain.stdout).unwrap();
    assert!(plain.contains("pipes"), "{plain}");
    host.stop();
}

#[test]
fn the_configuration_file_has_pty_and_the_probe_command_says_never() {
    let builder = Host::builder().dash();
    let file = builder.folder().join("c.toml");
    fs::write(&file, "pty = \"never\"\n").unwrap();
    let host = builder.option("--config", file.to_str().unwrap()).start();
    assert_eq!(host.ready["pty"], false);
    let asked = host.cli(&["probe", "--json"]);
    assert_eq!(asked.status.code(), Some(3), "{asked:?}");
    let answer: Value = serde_json::from_slice(&asked.stdout).unwrap();
    probe::assert_answer(&answer, "never");
    host.stop();
    let output = Host::builder().option("--pty", "sometimes").run_to_end();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn never_does_not_probe_and_does_not_load_the_binding() {
    let builder = builder().dash();
    let library = shellward_tests::binding::install("abort_in_constructor", builder.folder());
    let host = builder
        .option("--pty-binding", library.to_str().unwrap())
        .start();
    probe::assert_answer(&probe::shown(&host), "never");
    let folder = host.folder().to_owned();
    assert!(
        !folder.join("loaded").exists(),
        "something loaded the binding"
    );
    host.stop();
}

#[tokio::test]
async fn marks_on_pipes_announce_nothing_and_make_no_parts() {
    let host = start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let mark = raw.mark();
    let text = terminal
        .output_of(concat!(
            "printf '\\033]133;A\\007\\033]133;B\\007\\033]133;C\\007inside\\033]133;D;0\\007'; ",
            "printf '\\033]633;A\\007\\033]633;C\\007too\\033]633;D;1\\007'"
        ))
        .await;
    assert!(text.contains("inside") && text.contains("too"), "{text:?}");
    raw.settle().await;
    for envelope in raw.actions_since(mark, &terminal.uri) {
        let kind = envelope["action"]["type"].as_str().unwrap();
        assert!(!kind.starts_with("terminal/command"), "{envelope}");
    }
    let late = Term::subscribe(&raw, &terminal.uri).await;
    assert_flags(&late.snapshot["state"]);
    terminal.assert_equals_snapshot().await;
    host.stop();
}

// ---- the process ----

#[tokio::test]
async fn the_shell_leads_a_group_of_its_own_and_knows_no_terminal() {
    let host = start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let (worker, shell) = host.pids(&terminal.uri);
    assert_eq!(
        terminal.output_of("echo $$").await.trim(),
        shell.to_string()
    );
    let group = |pid: i32| {
        nix::unistd::getpgid(Some(nix::unistd::Pid::from_raw(pid)))
            .unwrap()
            .as_raw()
    };
    assert_eq!(group(shell), shell);
    assert_ne!(group(worker), shell);
    assert_eq!(terminal.output_of("echo $TERM").await.trim(), "dumb");
    assert_eq!(terminal.output_of("tty; echo $?").await, "not a tty\n1\n");
    // No controlling terminal either.
    let text = terminal
        .output_of("(: < /dev/tty) 2>/dev/null; echo $?")
        .await;
    assert_ne!(text.trim(), "0");
    host.stop();
}

#[tokio::test]
async fn shells_hold_three_pipes_of_their_own_and_nothing_else() {
    let host = start();
    let raw = Raw::open(&host).await;
    let mut seen = BTreeSet::new();
    for _ in 0..5 {
        let mut terminal = Term::create(&raw).await;
        // 3 is the directory that ls itself reads.
        let listed = terminal.output_of("ls /proc/self/fd").await;
        let numbers: Vec<&str> = listed.split_whitespace().collect();
        assert_eq!(numbers, ["0", "1", "2", "3"]);
        let (worker, shell) = host.pids(&terminal.uri);
        let held = proc::descriptors(shell);
        assert_eq!(held.len(), 3, "{held:?}");
        for (number, target) in held {
            let target = target.to_string_lossy().into_owned();
            assert!(target.starts_with("pipe:["), "{number} is {target}");
            assert!(seen.insert(target.clone()), "{target} is shared");
        }
        assert_eq!(proc::ptys(worker).len(), 0);
    }
    host.stop();
}

#[tokio::test]
async fn bash_on_pipes_answers_without_noise() {
    let host = builder().start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.line("echo on''e; echo tw''o >&2; exit 6").await;
    let action = terminal.wait_exit().await;
    assert_eq!(action["exitCode"], 6);
    // No prompt, no complaint about job control; the two lines come from two pipes.
    assert!(
        terminal.seen == "one\ntwo\n" || terminal.seen == "two\none\n",
        "{:?}",
        terminal.seen
    );
    host.stop();
}

#[tokio::test]
async fn sizes_are_kept_and_reported_and_nothing_is_signalled() {
    let host = start();
    let raw = Raw::open(&host).await;
    let other = Raw::open(&host).await;
    let mut terminal = Term::create_with(&raw, json!({"cols": 100, "rows": 30})).await;
    let state = &terminal.snapshot["state"];
    assert_eq!((&state["cols"], &state["rows"]), (&json!(100), &json!(30)));
    let mut viewer = Term::subscribe(&other, &terminal.uri).await;
    terminal
        .output_of("trap 'echo wi''nch' WINCH; echo set")
        .await;
    let mark = raw.mark();
    let seq = terminal
        .act(json!({"type": "terminal/resized", "cols": 123, "rows": 45}))
        .await;
    let echo = raw
        .wait_action(mark, &terminal.uri, "terminal/resized")
        .await;
    assert_eq!(
        echo["origin"],
        json!({"clientId": raw.client_id(), "clientSeq": seq})
    );
    viewer
        .wait("the new size", DEADLINE, |folded, _, _| {
            (folded.state.cols == Some(123) && folded.state.rows == Some(45)).then_some(())
        })
        .await;
    let entry = host.ps_entry(&terminal.uri);
    assert_eq!((&entry["cols"], &entry["rows"]), (&json!(123), &json!(45)));
    let late = Term::subscribe(&other, &terminal.uri).await;
    let state = &late.snapshot["state"];
    assert_eq!((&state["cols"], &state["rows"]), (&json!(123), &json!(45)));
    assert_eq!(terminal.output_of("echo calm").await, "calm\n");
    assert!(!terminal.seen.contains("winch"), "{:?}", terminal.seen);
    terminal.assert_equals_snapshot().await;
    host.stop();
}

#[tokio::test]
async fn a_resize_while_the_terminal_starts_is_not_lost_on_pipes_either() {
    let host = start();
    let raw = Raw::open(&host).await;
    for _ in 0..10 {
        let uri = term::new_uri();
        let create = raw
            .start_request(
                "createTerminal",
                term::create_params(&raw, &uri, json!({"cols": 100, "rows": 30})),
            )
            .await;
        raw.dispatch(
            &uri,
            json!({"type": "terminal/resized", "cols": 124, "rows": 31}),
        )
        .await;
        assert_eq!(raw.response(create).await, Ok(Value::Null));
        let mut terminal = Term::subscribe(&raw, &uri).await;
        assert_eq!(terminal.output_of("echo up").await, "up\n");
        assert_eq!(
            (terminal.folded.state.cols, terminal.folded.state.rows),
            (Some(124), Some(31))
        );
        raw.request("disposeTerminal", json!({"channel": uri}))
            .await
            .unwrap();
    }
    host.stop();
}

// ---- input ----

#[tokio::test]
async fn s38_what_is_typed_is_not_echoed() {
    let host = start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.line("echo on''ly-this").await;
    terminal.wait_text("only-this\n").await;
    terminal.line("exit").await;
    terminal.wait_exit().await;
    assert_eq!(terminal.seen, "only-this\n");
    terminal.assert_equals_snapshot().await;
    host.stop();
}

#[tokio::test]
async fn s38_a_carriage_return_becomes_a_newline_and_nothing_else_changes() {
    let host = start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal
        .line("printf rea''dy; head -c 12 | od -An -tx1; printf e''nd")
        .await;
    terminal.wait_text("ready").await;
    // Return and newline together are one end of a line.
    terminal
        .input("a\rb\n\r\u{0}\u{1b}\u{7f}\u{1a}c\r\nd")
        .await;
    terminal.wait_text("end").await;
    assert_eq!(
        terminal.seen,
        "ready 61 0a 62 0a 0a 00 1b 7f 1a 63 0a 64\nend"
    );
    host.stop();
}

#[tokio::test]
async fn s38_control_c_ends_the_whole_foreground_within_a_second_and_the_shell_lives() {
    let host = start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    for (line, commands) in [
        ("sleep 1060", vec!["sleep 1060"]),
        ("sleep 1061 | sleep 1062", vec!["sleep 1061", "sleep 1062"]),
        (
            "sh -c 'sh -c \"sleep 1063; true\"; true'",
            vec!["sleep 1063"],
        ),
    ] {
        let (_, shell) = host.pids(&terminal.uri);
        terminal.line(&format!("{line}; echo code-$?")).await;
        for command in &commands {
            started(shell, command);
        }
        let family = proc::descendants(shell);
        terminal.input("\u{3}").await;
        for process in &family {
            gone_within(process, Duration::from_secs(1));
        }
        terminal.wait_text("code-130\n").await;
        terminal.seen.clear();
        assert_eq!(
            terminal.output_of("echo $$").await.trim(),
            shell.to_string()
        );
    }
    host.stop();
}

#[tokio::test]
async fn s38_control_c_reaches_bash_s_children_and_not_bash() {
    let host = builder().start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let (_, shell) = host.pids(&terminal.uri);
    terminal.line("sleep 1064; echo co''de-$?").await;
    let sleep = started(shell, "sleep 1064");
    terminal.input("\u{3}").await;
    gone_within(&sleep, Duration::from_secs(1));
    assert_eq!(
        terminal.output_of("echo $$").await.trim(),
        shell.to_string()
    );
    host.stop();
}

#[tokio::test]
async fn s38_a_program_may_catch_the_interrupt() {
    let host = start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let (_, shell) = host.pids(&terminal.uri);
    terminal
        .line("sh -c 'trap \"echo cau\"\"ght; exit 7\" INT; echo read\"\"y; sleep 1065; exit 8'; echo code-$?")
        .await;
    terminal.wait_text("ready").await;
    started(shell, "sleep 1065");
    terminal.input("\u{3}").await;
    terminal.wait_text("caught\ncode-7\n").await;
    host.stop();
}

#[tokio::test]
async fn s38_control_c_without_a_child_is_nothing_to_the_shell() {
    let host = start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("true").await;
    for _ in 0..3 {
        terminal.input("\u{3}").await;
    }
    assert_eq!(terminal.output_of("echo ok").await, "ok\n");
    // In the middle of a line too.
    terminal.input("echo l\u{3}eft\r").await;
    terminal.wait_text("left\n").await;
    let (_, shell) = host.pids(&terminal.uri);
    assert!(proc::Process::read(shell).unwrap().is_alive());
    host.stop();
}

#[tokio::test]
async fn s38_control_c_with_a_background_job_leaves_the_shell_alone() {
    for host in [start(), builder().start()] {
        let raw = Raw::open(&host).await;
        let mut terminal = Term::create(&raw).await;
        let (_, shell) = host.pids(&terminal.uri);
        assert_eq!(terminal.output_of("sleep 1071 & echo up").await, "up\n");
        started(shell, "sleep 1071");
        for _ in 0..3 {
            terminal.input("\u{3}").await;
        }
        assert_eq!(
            terminal.output_of("echo $$").await.trim(),
            shell.to_string()
        );
        host.stop();
    }
}

#[tokio::test]
async fn s38_control_c_overtakes_input_that_nobody_reads() {
    let host = start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let (_, shell) = host.pids(&terminal.uri);
    terminal.line("sleep 1066").await;
    let sleep = started(shell, "sleep 1066");
    // More than a pipe holds.
    let mark = raw.mark();
    let seq = terminal.input(&":\r".repeat(150_000)).await;
    assert!(accepted(&raw, mark, &terminal.uri, seq).await);
    terminal.input("\u{3}").await;
    gone_within(&sleep, Duration::from_secs(1));
    assert_eq!(terminal.output_of("echo ok").await, "ok\n");
    host.stop();
}

#[tokio::test]
async fn s38_control_d_ends_a_cat_after_what_is_pending() {
    let host = start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal
        .line("printf rea''dy; cat; printf do''ne; exit 3")
        .await;
    terminal.wait_text("ready").await;
    terminal.input("hi\r").await;
    terminal.input("\u{4}").await;
    let action = terminal.wait_exit().await;
    assert_eq!(action["exitCode"], 3);
    assert_eq!(terminal.seen, "readyhi\ndone");
    host.stop();
}

#[tokio::test]
async fn s38_control_d_ends_an_idle_shell() {
    let host = start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("true").await;
    terminal.input("\u{4}").await;
    let action = terminal.wait_exit().await;
    assert_eq!(action["exitCode"], 0);
    host.stop();
}

#[tokio::test]
async fn s38_control_d_waits_for_more_than_a_pipe_holds_and_what_follows_it_is_lost() {
    let host = start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let gate = fifo(host.folder(), "gate");
    let file = host.folder().join("typed");
    terminal
        .line(&format!(
            "printf rea''dy; read go < {}; cat > {}; exit 5",
            gate.display(),
            file.display()
        ))
        .await;
    terminal.wait_text("ready").await;
    let text = "0123456789abcdef".repeat(30_000);
    terminal.input(&format!("{text}\u{4}lost")).await;
    let mark = raw.mark();
    let seq = terminal.input("lost too").await;
    accepted(&raw, mark, &terminal.uri, seq).await;
    release(&gate);
    let action = terminal.wait_exit().await;
    assert_eq!(action["exitCode"], 5);
    let typed = fs::read_to_string(&file).unwrap();
    assert!(typed == text, "{} of {} bytes", typed.len(), text.len());
    host.stop();
}

// ---- output ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s38_a_million_bytes_pass_a_pipe_of_64_k() {
    let host = start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let text = terminal
        .output_of("head -c 1000000 /dev/zero | tr '\\0' x")
        .await;
    assert!(
        text.len() == 1_000_000 && text.bytes().all(|byte| byte == b'x'),
        "{} bytes",
        text.len()
    );
    let text = terminal
        .output_of("(head -c 1000000 /dev/zero | tr '\\0' y) >&2; sleep 0")
        .await;
    assert!(text.matches('y').count() <= 1_000_000);
    terminal.assert_equals_snapshot().await;
    host.stop();
}

#[tokio::test]
async fn s38_output_comes_in_the_order_of_its_arrival() {
    let host = start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    // The test lets every piece arrive before the next is written.
    terminal
        .line("printf a; head -c 1 >/dev/null; printf b >&2; head -c 1 >/dev/null; printf c; head -c 1 >/dev/null; printf d >&2")
        .await;
    for text in ["a", "ab", "abc", "abcd"] {
        terminal.wait_text(text).await;
        assert_eq!(terminal.seen, text);
        terminal.input("n").await;
    }
    host.stop();
}

#[tokio::test]
async fn s38_fifty_times_three_pieces_are_all_there_each_stream_in_its_order() {
    let host = start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal
        .line("n=0; while [ $n -lt 50 ]; do n=$((n+1)); printf \"a$n,\"; printf \"b$n;\" >&2; printf \"c$n,\"; done; exit")
        .await;
    terminal.wait_exit().await;
    // Pieces are told apart by their ends: no piece is cut, whichever way they mix.
    let mut pieces: Vec<&str> = terminal.seen.split_inclusive([',', ';']).collect();
    assert_eq!(pieces.len(), 150, "{}", terminal.seen);
    let errors: Vec<String> = (1..=50).map(|n| format!("b{n};")).collect();
    let normal: Vec<String> = (1..=50)
        .flat_map(|n| [format!("a{n},"), format!("c{n},")])
        .collect();
    let seen: Vec<&str> = pieces
        .iter()
        .filter(|piece| piece.ends_with(';'))
        .copied()
        .collect();
    assert_eq!(seen, errors);
    pieces.retain(|piece| piece.ends_with(','));
    assert_eq!(pieces, normal);
    host.stop();
}

#[tokio::test]
async fn s38_an_unfinished_line_arrives_at_once_and_a_program_s_own_buffer_does_not() {
    let host = start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let (_, shell) = host.pids(&terminal.uri);
    terminal.line("printf at-on''ce; sleep 1067").await;
    terminal.wait_text("at-once").await;
    started(shell, "sleep 1067");
    terminal.input("\u{3}").await;
    // What a C library holds back on a pipe is the program's affair; the documents say so.
    let gate = fifo(host.folder(), "gate");
    let perl = format!(
        "perl -e 'print \"he\".\"ld\\n\"; syswrite STDOUT, \"sho\".\"wn\\n\"; open F, \"{}\"; <F>; print \"la\".\"st\\n\"'",
        gate.display()
    );
    terminal.seen.clear();
    terminal.line(&format!("{perl}; echo e''nd")).await;
    terminal.wait_text("shown\n").await;
    assert_eq!(terminal.seen, "shown\n");
    release(&gate);
    terminal.wait_text("end\n").await;
    assert_eq!(terminal.seen, "shown\nheld\nlast\nend\n");
    host.stop();
}

#[tokio::test]
async fn s07_each_stream_has_a_decoder_of_its_own() {
    let host = start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let next = "head -c 1 >/dev/null";
    terminal
        .line(&format!(
            "printf 'A \\342'; {next}; printf 'E\\360\\237' >&2; {next}; printf '\\224\\200 B'; {next}; printf '\\231\\202F' >&2"
        ))
        .await;
    for text in ["A ", "A E", "A E─ B", "A E─ B🙂F"] {
        terminal.wait_text(text).await;
        assert_eq!(terminal.seen, text);
        terminal.input("n").await;
    }
    terminal.assert_equals_snapshot().await;
    host.stop();
}

#[tokio::test]
async fn s07_both_decoders_are_flushed_at_the_exit() {
    let host = start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal
        .line("printf 'out\\342\\224'; printf 'err\\360\\237' >&2; exec true")
        .await;
    terminal.wait_exit().await;
    assert_eq!(
        terminal.seen.matches('\u{fffd}').count(),
        2,
        "{:?}",
        terminal.seen
    );
    assert!(
        terminal.seen.contains("out") && terminal.seen.contains("err"),
        "{:?}",
        terminal.seen
    );
    terminal.assert_equals_snapshot().await;
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s01_both_streams_are_whole_and_before_the_exit() {
    let host = start();
    let raw = Raw::open(&host).await;
    for _ in 0..20 {
        let mut terminal = Term::create(&raw).await;
        terminal
            .line("(head -c 204800 /dev/zero | tr '\\0' e >&2) & head -c 204800 /dev/zero | tr '\\0' h; wait; exit")
            .await;
        terminal.wait_exit().await;
        assert_eq!(terminal.seen.len(), 409_600);
        assert_eq!(terminal.seen.matches('h').count(), 204_800);
        terminal.assert_equals_snapshot().await;
        raw.request("disposeTerminal", json!({"channel": terminal.uri}))
            .await
            .unwrap();
    }
    host.stop();
}

// ---- the end ----

#[tokio::test]
async fn alone_without_a_job_the_exit_does_not_wait_out_the_second() {
    let host = start();
    let raw = Raw::open(&host).await;
    let mut quickest = Duration::MAX;
    for _ in 0..5 {
        let mut terminal = Term::create(&raw).await;
        terminal.output_of("true").await;
        let start = Instant::now();
        terminal.line("exit").await;
        terminal.wait_exit().await;
        quickest = quickest.min(start.elapsed());
    }
    assert!(quickest < Duration::from_millis(500), "{quickest:?}");
    host.stop();
}

#[tokio::test]
async fn alone_a_job_that_holds_the_pipes_delays_the_exit_by_a_second_at_most() {
    let host = start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let (worker, _) = host.pids(&terminal.uri);
    let shown = terminal.output_of("sleep 1068 & echo up").await;
    assert_eq!(shown, "up\n");
    let job = started(worker, "sleep 1068");
    let start = Instant::now();
    terminal.line("exit 4").await;
    let action = terminal.wait_exit().await;
    let took = start.elapsed();
    assert_eq!(action["exitCode"], 4);
    assert!(took < Duration::from_millis(1500), "{took:?}");
    assert!(job.is_alive(), "the job goes on");
    raw.request("disposeTerminal", json!({"channel": terminal.uri}))
        .await
        .unwrap();
    gone_within(&job, DEADLINE);
    host.stop();
}

#[tokio::test]
async fn what_a_job_writes_after_the_exit_still_arrives_and_no_closed_pipe_kills_it() {
    let host = start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let (worker, _) = host.pids(&terminal.uri);
    let (first, second) = (fifo(host.folder(), "first"), fifo(host.folder(), "second"));
    let result = host.folder().join("result");
    terminal
        .line(&format!(
            "(read go < {}; echo late-out; echo late-err >&2; read go < {}; head -c 300000 /dev/zero | tr '\\0' z; echo code-$? > {}; exec sleep 1069) & exit 2",
            first.display(),
            second.display(),
            result.display()
        ))
        .await;
    let action = terminal.wait_exit().await;
    assert_eq!(action["exitCode"], 2);
    assert!(!terminal.seen.contains("late"), "{}", terminal.seen);
    release(&first);
    terminal.wait_text("late-out\n").await;
    terminal.wait_text("late-err\n").await;
    release(&second);
    let whole = "z".repeat(300_000);
    terminal.wait_text(&whole).await;
    let job = started(worker, "sleep 1069");
    assert_eq!(fs::read_to_string(&result).unwrap(), "code-0\n");
    terminal.assert_equals_snapshot().await;
    // Announced once, and the state keeps it.
    let exits = raw
        .actions_since(0, &terminal.uri)
        .iter()
        .filter(|envelope| envelope["action"]["type"] == "terminal/exited")
        .count();
    assert_eq!(exits, 1);
    let late = Term::subscribe(&raw, &terminal.uri).await;
    assert_eq!(late.snapshot["state"]["exitCode"], 2);
    assert!(late.seen.ends_with(&"z".repeat(100_000)));
    assert!(job.is_alive());
    raw.request("disposeTerminal", json!({"channel": terminal.uri}))
        .await
        .unwrap();
    gone_within(&job, DEADLINE);
    host.stop();
}

#[tokio::test]
async fn a_job_that_never_stops_writing_does_not_hold_the_exit_up() {
    let host = start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let (worker, _) = host.pids(&terminal.uri);
    terminal.line("yes 0123456789 & exit 3").await;
    let start = Instant::now();
    let action = terminal.wait_exit().await;
    assert_eq!(action["exitCode"], 3);
    assert!(start.elapsed() < Duration::from_secs(3));
    let job = started(worker, "yes 0123456789");
    let before = terminal.seen.len();
    terminal
        .wait("more", DEADLINE, |_, seen, _| {
            (seen.len() > before + 100_000).then_some(())
        })
        .await;
    raw.request("disposeTerminal", json!({"channel": terminal.uri}))
        .await
        .unwrap();
    gone_within(&job, DEADLINE);
    host.stop();
}

#[tokio::test]
async fn a_terminal_that_is_forgotten_takes_its_job_along() {
    let host = builder().dash().option("--keep-exited", "1").start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let (worker, _) = host.pids(&terminal.uri);
    terminal.output_of("sleep 1072 & echo up").await;
    let job = started(worker, "sleep 1072");
    terminal.line("exit").await;
    terminal.wait_exit().await;
    assert!(job.is_alive());
    let mark = raw.mark();
    raw.notify("unsubscribe", json!({"channel": terminal.uri}))
        .await;
    raw.wait_action(mark, shellward_tests::ROOT, "root/terminalsChanged")
        .await;
    gone_within(&job, DEADLINE);
    host.stop();
}

#[tokio::test]
async fn a_job_that_ends_itself_after_the_exit_leaves_nothing() {
    let host = start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let (worker, _) = host.pids(&terminal.uri);
    let gate = fifo(host.folder(), "gate");
    terminal
        .line(&format!(
            "(read go < {}; printf by''e) & exit 1",
            gate.display()
        ))
        .await;
    terminal.wait_exit().await;
    release(&gate);
    terminal.wait_text("bye").await;
    poll_for("the end of the job", DEADLINE, || {
        proc::descendants(worker).is_empty().then_some(())
    });
    terminal.assert_equals_snapshot().await;
    raw.request("disposeTerminal", json!({"channel": terminal.uri}))
        .await
        .unwrap();
    host.wait_no_workers();
    host.stop();
}

#[tokio::test]
async fn a_shell_that_closed_its_streams_is_still_watched_to_its_end() {
    let host = start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let gate = fifo(host.folder(), "gate");
    terminal.output_of("true").await;
    terminal
        .line(&format!(
            "exec >/dev/null 2>&1; read go < {}; exit 9",
            gate.display()
        ))
        .await;
    // It is blocked in opening the other end until this is done.
    release(&gate);
    let action = terminal.wait_exit().await;
    assert_eq!(action["exitCode"], 9);
    host.stop();
}
