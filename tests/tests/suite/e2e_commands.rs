//! Command boundaries, directories and titles, from marks that a program prints: in dash, where
//! we have no script, so that any well-formed mark is believed. Field cases S-11 to S-14, S-24.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ahp_types::state::TerminalContentPart;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use shellward_tests::{DEADLINE, Folded, Host, ROOT, Raw, Term, Value, json};

/// What a terminal was told, in order, neighbouring output put together.
#[derive(Debug, Clone, PartialEq)]
enum Told {
    Text(String),
    Start(String),
    End(Option<i64>),
    Detects,
    Exit(Option<i64>),
}

fn told(actions: &[Value]) -> Vec<Told> {
    let mut all: Vec<Told> = Vec::new();
    let mut open: Option<Value> = None;
    for envelope in actions {
        let action = &envelope["action"];
        match action["type"].as_str().unwrap() {
            "terminal/data" => {
                let text = action["data"].as_str().unwrap();
                match all.last_mut() {
                    Some(Told::Text(before)) => before.push_str(text),
                    _ => all.push(Told::Text(text.to_owned())),
                }
            }
            "terminal/commandExecuted" => {
                assert!(open.is_none(), "two commands are open: {action}");
                assert!(action["timestamp"].as_i64() > Some(1_600_000_000_000));
                open = Some(action["commandId"].clone());
                all.push(Told::Start(action["commandLine"].as_str().unwrap().into()));
            }
            "terminal/commandFinished" => {
                assert_eq!(open.take().as_ref(), Some(&action["commandId"]), "{action}");
                assert!(action["durationMs"].as_i64() >= Some(0), "{action}");
                all.push(Told::End(action["exitCode"].as_i64()));
            }
            "terminal/commandDetectionAvailable" => all.push(Told::Detects),
            "terminal/exited" => all.push(Told::Exit(action["exitCode"].as_i64())),
            _ => {}
        }
    }
    all
}

/// The same without the text before the first mark (the echo of what was typed) and after the last.
fn from_first_mark(mut all: Vec<Told>) -> Vec<Told> {
    let is_text = |told: &Told| matches!(told, Told::Text(_));
    while all.first().is_some_and(is_text) {
        all.remove(0);
    }
    while all.last().is_some_and(is_text) {
        all.pop();
    }
    all
}

fn text(text: &str) -> Told {
    Told::Text(text.into())
}

fn start(line: &str) -> Told {
    Told::Start(line.into())
}

/// A dash that prints what `script` says, and what followed.
async fn after(script: &str) -> (Host, Raw, Term, Vec<Told>) {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.wait_prompt().await;
    let mark = raw.mark();
    terminal.line(&format!("{script}; echo e''nd")).await;
    // Until nothing more comes that one might have and the other not.
    terminal.wait_text("end").await;
    terminal.wait_prompt().await;
    let all = told(&raw.actions_since(mark, &terminal.uri));
    (host, raw, terminal, all)
}

/// The folded parts are those of a fresh snapshot.
async fn same_parts(raw: &Raw, terminal: &mut Term) {
    terminal.assert_equals_snapshot().await;
    let fresh = raw
        .request("subscribe", json!({"channel": terminal.uri}))
        .await
        .unwrap();
    let fresh = Folded::new(&fresh["snapshot"]);
    assert_eq!(fresh.state.content, terminal.folded.state.content);
}

#[tokio::test]
async fn output_before_a_mark_comes_before_its_action() {
    let (host, raw, mut terminal, all) = after(
        "printf 'A\\033]133;A\\007$ \\033]133;B\\007make it\\n\\033]133;C\\007in\\nside\\033]133;D;7\\007B'",
    )
    .await;
    let at = all.iter().position(|told| *told == Told::Detects).unwrap();
    assert!(matches!(&all[at - 1], Told::Text(before) if before.ends_with('A')));
    let Told::Text(prompt) = &all[at + 1] else {
        panic!("{all:?}");
    };
    assert_eq!(prompt, "$ make it\r\n");
    assert_eq!(
        all[at + 2..at + 5],
        [start("make it"), text("in\r\nside"), Told::End(Some(7))]
    );
    assert!(matches!(&all[at + 5], Told::Text(after) if after.starts_with('B')));
    assert_eq!(all.iter().filter(|t| **t == Told::Detects).count(), 1);
    same_parts(&raw, &mut terminal).await;
    assert_eq!(terminal.folded.state.supports_command_detection, Some(true));
    host.stop();
}

#[tokio::test]
async fn s13_at_most_one_command_is_open() {
    // An end without a start, a start after a start, a prompt after a start.
    let (host, raw, mut terminal, all) = after(
        "printf '\\033]133;D;3\\007\\033]133;C\\0071\\033]133;C\\0072\\033]133;A\\0073\\033]133;D;4\\0074\\033]133;C\\0075\\033]133;D\\007'",
    )
    .await;
    assert_eq!(
        from_first_mark(all)[1..],
        [
            start(""),
            text("1"),
            Told::End(None),
            start(""),
            text("2"),
            Told::End(None),
            text("34"),
            start(""),
            text("5"),
            Told::End(None),
        ]
    );
    same_parts(&raw, &mut terminal).await;
    host.stop();
}

#[tokio::test]
async fn s13_the_end_of_the_terminal_ends_the_open_command_first() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.wait_prompt().await;
    let mark = raw.mark();
    terminal
        .line("printf '\\033]133;C\\007last words'; exit 5")
        .await;
    terminal.wait_exit().await;
    let all = from_first_mark(told(&raw.actions_since(mark, &terminal.uri)));
    assert_eq!(
        all[1..],
        [
            start(""),
            text("last words"),
            Told::End(None),
            Told::Exit(Some(5))
        ]
    );
    same_parts(&raw, &mut terminal).await;
    host.stop();
}

#[tokio::test]
async fn s13_the_death_of_the_worker_ends_the_open_command_first() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.wait_prompt().await;
    let mark = raw.mark();
    terminal
        .line("printf '\\033]133;C\\007beg''un'; sleep 1015")
        .await;
    terminal.wait_text("begun").await;
    let (worker, _) = host.pids(&terminal.uri);
    kill(Pid::from_raw(worker), Signal::SIGKILL).unwrap();
    terminal.wait_exit().await;
    let all = from_first_mark(told(&raw.actions_since(mark, &terminal.uri)));
    assert_eq!(all[1..4], [start(""), text("begun"), Told::End(None)]);
    assert!(matches!(&all[4], Told::Text(words) if words.contains("SIGKILL")));
    assert_eq!(all[5..], [Told::Exit(Some(128))]);
    same_parts(&raw, &mut terminal).await;
    host.stop();
}

/// A title comes after the output it came with, because of several only the last counts.
async fn wait_title(terminal: &mut Term, title: &str) {
    if terminal.folded.state.title != title {
        terminal
            .wait(title, DEADLINE, |folded, _, _| {
                (folded.state.title == title).then_some(())
            })
            .await;
    }
}

/// What lies in the directories of the workers' sockets.
fn workers_files(host: &Host) -> Vec<PathBuf> {
    std::fs::read_dir(host.runtime_dir())
        .unwrap()
        .flatten()
        .filter_map(|entry| std::fs::read_dir(entry.path()).ok())
        .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
        .collect()
}

#[tokio::test]
async fn a_killed_worker_leaves_no_file_of_its_shells_script() {
    use std::os::unix::fs::PermissionsExt as _;
    // A bash by its name that never reads the script it is given, whose files lie there therefore.
    let builder = Host::builder();
    let shell = builder.folder().join("bash");
    std::fs::write(&shell, "#!/bin/sh\nexec sleep 1016\n").unwrap();
    std::fs::set_permissions(&shell, std::fs::Permissions::from_mode(0o755)).unwrap();
    let precious = builder.folder().join("precious");
    std::fs::create_dir(&precious).unwrap();
    std::fs::write(precious.join("file"), "").unwrap();
    let host = builder.option("--shell", shell.to_str().unwrap()).start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let directory = workers_files(&host)
        .into_iter()
        .find(|path| path.extension().is_some_and(|end| end == "d"))
        .expect("the directory of its files");
    assert!(directory.is_dir(), "{directory:?}");
    std::os::unix::fs::symlink(&precious, directory.join("link")).unwrap();
    let (worker, _) = host.pids(&terminal.uri);
    kill(Pid::from_raw(worker), Signal::SIGKILL).unwrap();
    terminal.wait_exit().await;
    // The worker that keeps the terminal has a socket and a token, no more.
    let files = workers_files(&host);
    let is_of_a_script = |path: &PathBuf| path.extension().is_some_and(|end| end == "d");
    assert!(!files.iter().any(is_of_a_script), "{files:?}");
    assert!(precious.join("file").exists(), "what a link leads to stays");
    raw.request("disposeTerminal", json!({"channel": terminal.uri}))
        .await
        .unwrap();
    assert_eq!(workers_files(&host), Vec::<PathBuf>::new());
    // One that is disposed removes them itself.
    let terminal = Term::create(&raw).await;
    assert!(!workers_files(&host).is_empty());
    raw.request("disposeTerminal", json!({"channel": terminal.uri}))
        .await
        .unwrap();
    assert_eq!(workers_files(&host), Vec::<PathBuf>::new());
    host.stop();
}

#[tokio::test]
async fn a_snapshot_in_the_middle_of_a_command_is_what_was_sent() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.wait_prompt().await;
    terminal
        .line("printf '\\033]133;B\\007ls -l\\n\\033]133;C\\007ha''lf'; read go; printf 'whole\\033]133;D;0\\007'; echo do''ne")
        .await;
    terminal.wait_text("half").await;
    same_parts(&raw, &mut terminal).await;
    let late = Raw::open(&host).await;
    let mut other = Term::subscribe(&late, &terminal.uri).await;
    match other.folded.state.content.last() {
        Some(TerminalContentPart::Command(part)) => {
            assert_eq!(
                (part.command_line.as_str(), part.is_complete),
                ("ls -l", false)
            );
            assert!(part.output.starts_with("half"), "{part:?}");
        }
        part => panic!("{part:?}"),
    }
    terminal.line("").await;
    terminal.wait_text("done").await;
    other.wait_text("done").await;
    terminal.wait_prompt().await;
    other.wait_prompt().await;
    assert_eq!(other.folded.state.content, terminal.folded.state.content);
    same_parts(&raw, &mut terminal).await;
    // After a clear in the middle its output is nobody's, and its end is told all the same.
    terminal
        .line(
            "printf '\\033]133;C\\007a'; read go; printf 'rest\\033]133;D;6\\007'; echo fin''ished",
        )
        .await;
    terminal
        .wait("the start", DEADLINE, |_, _, params| {
            (params["action"]["type"] == "terminal/commandExecuted").then_some(())
        })
        .await;
    let mark = raw.mark();
    terminal.act(json!({"type": "terminal/cleared"})).await;
    raw.wait_action(mark, &terminal.uri, "terminal/cleared")
        .await;
    terminal.line("").await;
    terminal.wait_text("finished").await;
    terminal.wait_prompt().await;
    raw.wait_action(mark, &terminal.uri, "terminal/commandFinished")
        .await;
    same_parts(&raw, &mut terminal).await;
    host.stop();
}

#[tokio::test]
async fn s24_a_late_subscriber_of_trimmed_output_gets_the_modes_first() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.wait_prompt().await;
    terminal
        .line("printf '\\033[?1049h\\033[?2004h\\033[?1003h\\033]133;C\\007'; seq 1 70000; echo do''ne")
        .await;
    terminal
        .wait_text_within("done", Duration::from_secs(30))
        .await;
    terminal.wait_prompt().await;
    let late = Raw::open(&host).await;
    let other = Term::subscribe(&late, &terminal.uri).await;
    let content = &other.folded.state.content;
    match content.as_slice() {
        [
            TerminalContentPart::Unclassified(modes),
            TerminalContentPart::Command(command),
        ] => {
            assert_eq!(modes.value, "\u{1b}[?1049h\u{1b}[?1003h\u{1b}[?2004h");
            let first = command.output.lines().next().unwrap();
            assert!(first.parse::<u32>().is_ok(), "not a whole line: {first:?}");
            let all = match terminal.folded.state.content.last() {
                Some(TerminalContentPart::Command(command)) => &command.output,
                part => panic!("{part:?}"),
            };
            assert!(all.ends_with(&command.output));
            let count = modes.value.chars().count() + command.output.chars().count();
            assert!((150_000..=200_000).contains(&count), "{count}");
        }
        parts => panic!("{} parts", parts.len()),
    }
    // A clear leaves nothing to put right.
    let mark = raw.mark();
    terminal.act(json!({"type": "terminal/cleared"})).await;
    raw.wait_action(mark, &terminal.uri, "terminal/cleared")
        .await;
    let other = Term::subscribe(&late, &terminal.uri).await;
    assert!(other.folded.state.content.is_empty());
    host.stop();
}

#[tokio::test]
async fn a_directory_report_alone_announces_nothing_and_marks_can_be_kept() {
    let host = Host::builder().dash().option("--marks", "keep").start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let shown = terminal
        .output_of("printf 'a\\033]7;file:///usr\\007b'")
        .await;
    assert_eq!(shown, "a\u{1b}]7;file:///usr\u{7}b");
    assert_eq!(
        terminal.folded.state.supports_command_detection,
        Some(false)
    );
    assert_eq!(terminal.folded.state.cwd.as_deref(), Some("file:///usr"));
    let mark = raw.mark();
    let shown = terminal
        .output_of("printf 'a\\033]133;C\\007b\\033]133;D;1\\007'")
        .await;
    assert_eq!(shown, "a\u{1b}]133;C\u{7}b\u{1b}]133;D;1\u{7}");
    let all = told(&raw.actions_since(mark, &terminal.uri));
    assert!(all.contains(&Told::End(Some(1))), "{all:?}");
    host.stop();
}

#[tokio::test]
async fn on_pipes_commands_are_not_told_apart() {
    let host = Host::builder().dash().option("--pty", "never").start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create_with(&raw, json!({"name": "p"})).await;
    let mark = raw.mark();
    terminal
        .output_of("printf '\\033]133;A\\007\\033]133;C\\007x\\033]133;D;1\\007'")
        .await;
    let all = told(&raw.actions_since(mark, &terminal.uri));
    assert!(
        all.iter().all(|told| matches!(told, Told::Text(_))),
        "{all:?}"
    );
    for words in [
        &["wait", "p", "--command"][..],
        &["read", "p", "--last-command"],
    ] {
        let output = host.cli(words);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(words.contains("pipes"), "{words}");
    }
    host.stop();
}

#[tokio::test]
async fn s11_a_program_names_a_terminal_that_nobody_named() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let mut named = Term::create_with(&raw, json!({"name": "mine"})).await;
    let mark = raw.mark();
    // The middle byte of the sign is 0x9C, which is no end of the sequence.
    terminal
        .output_of("printf '\\033]0;\\342\\234\\263 hi\\033\\\\OK'")
        .await;
    wait_title(&mut terminal, "\u{2733} hi").await;
    raw.wait_from(mark, "the title in the list", |message| {
        let action = &message["params"]["action"];
        (action["type"] == "root/terminalsChanged"
            && action["terminals"][0]["title"] == "\u{2733} hi")
            .then_some(())
    })
    .await;
    let mark = raw.mark();
    terminal
        .output_of("printf '\\033]0;\\342\\234\\263 hi\\007'")
        .await;
    named.output_of("printf '\\033]2;theirs\\007'").await;
    for (uri, title) in [(&terminal.uri, "\u{2733} hi"), (&named.uri, "mine")] {
        assert_eq!(host.ps_entry(uri)["title"], title);
        assert!(
            raw.actions_since(mark, uri)
                .iter()
                .all(|envelope| envelope["action"]["type"] != "terminal/titleChanged")
        );
    }
    terminal
        .act(json!({"type": "terminal/titleChanged", "title": "chosen"}))
        .await;
    terminal.output_of("printf '\\033]0;other\\007'").await;
    terminal.output_of("sleep 0.1").await;
    assert_eq!(terminal.folded.state.title, "chosen");
    host.stop();
}

#[tokio::test]
async fn a_flood_of_titles_does_not_flood_the_list() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.wait_prompt().await;
    let mark = raw.mark();
    let from = Instant::now();
    terminal
        .output_of("i=0; while [ $i -lt 5000 ]; do printf '\\033]0;t%d\\007.' $i; i=$((i+1)); done")
        .await;
    raw.wait_from(mark, "the last title in the list", |message| {
        let action = &message["params"]["action"];
        (action["type"] == "root/terminalsChanged" && action["terminals"][0]["title"] == "t4999")
            .then_some(())
    })
    .await;
    wait_title(&mut terminal, "t4999").await;
    let lists = raw.actions_since(mark, ROOT).len() as u128;
    let allowed = from.elapsed().as_millis() / 100 + 2;
    assert!(lists <= allowed, "{lists} lists, {allowed} allowed");
    host.stop();
}

/// Every byte that is no letter or digit, percent-encoded.
fn encoded(path: &Path) -> String {
    path.as_os_str()
        .as_bytes()
        .iter()
        .map(|byte| match byte {
            b'/' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => char::from(*byte).to_string(),
            other => format!("%{other:02X}"),
        })
        .collect()
}

fn decoded(uri: &str) -> PathBuf {
    let path = uri.strip_prefix("file://").expect("a file URI");
    let mut bytes = Vec::new();
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits: Vec<u8> = rest.by_ref().take(2).collect();
            let digits = std::str::from_utf8(&digits).unwrap();
            bytes.push(u8::from_str_radix(digits, 16).unwrap());
        } else {
            assert!(byte.is_ascii_graphic() && !b"#?\"".contains(&byte), "{uri}");
            bytes.push(byte);
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

#[tokio::test]
async fn s14_directories_with_awkward_names_lead_back_and_foreign_ones_change_nothing() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    for name in [
        &b"a b"[..],
        b"a#b",
        b"a%20b",
        b"a%0Ab",
        b"a'\"$b",
        b"a\xffb",
        b"a?b",
        "漢😀".as_bytes(),
    ] {
        let directory = host.folder().join(OsString::from_vec(name.to_vec()));
        std::fs::create_dir(&directory).unwrap();
        let host_part = if name.len() % 2 == 0 { "" } else { "localhost" };
        // printf's own percent signs are out of the way.
        terminal
            .output_of(&format!(
                "printf '\\033]7;file://{host_part}%s\\007' '{}'",
                encoded(&directory)
            ))
            .await;
        let cwd = terminal.folded.state.cwd.clone().unwrap();
        assert_eq!(decoded(&cwd), directory, "{cwd}");
        assert_eq!(host.ps_entry(&terminal.uri)["cwd"], cwd);
    }
    let before = terminal.folded.state.cwd.clone();
    let mark = raw.mark();
    for payload in [
        "file://otherhost/etc",
        "file:///x%00y",
        "file:///x%0ay",
        "http://h/x",
        "",
        "relative",
    ] {
        terminal
            .output_of(&format!("printf '\\033]7;%s\\007' '{payload}'"))
            .await;
        assert_eq!(terminal.folded.state.cwd, before, "{payload}");
    }
    assert!(
        raw.actions_since(mark, &terminal.uri)
            .iter()
            .all(|envelope| envelope["action"]["type"] != "terminal/cwdChanged")
    );
    host.stop();
}
