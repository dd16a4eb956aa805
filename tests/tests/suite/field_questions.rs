//! Questions a program asks its terminal: S-17, S-25. One answer each, from the host alone.

use std::time::Duration;

use shellward_tests::{Host, ROOT, Raw, Term, json, poll_for};

/// Types a line that asks, reads the answer up to its last character and writes it to a file.
fn asks(question: &str, end: char, file: &str) -> String {
    let question = question
        .replace('\u{1b}', "\\033")
        .replace('\u{7}', "\\007")
        .replace('$', "\\$");
    // dash has no `read -d`, so bash asks; `stty raw -echo` as S-17 has it.
    format!(
        "bash --norc -c 'old=$(stty -g); stty raw -echo; printf \"{question}\"; \
         IFS= read -r -t 5 -d \"{end}\" x; stty \"$old\"; printf \"%s{end}\" \"$x\" > {file}.new; mv {file}.new {file}'"
    )
}

fn answer(host: &Host, file: &str) -> String {
    let path = host.folder().join(file);
    poll_for("the answer", Duration::from_secs(10), || {
        std::fs::read_to_string(&path).ok()
    })
}

/// What has been asked, how the answer ends, what it is on a screen of 100 by 30.
const QUESTIONS: [(&str, char, &str); 12] = [
    ("\u{1b}[5;7H\u{1b}[6n", 'R', "\u{1b}[5;7R"),
    ("\u{1b}[5;7H\u{1b}[?6n", 'R', "\u{1b}[?5;7R"),
    ("\u{1b}[c", 'c', "\u{1b}[?62;22c"),
    ("\u{1b}[>c", 'c', "\u{1b}[>1;10;0c"),
    ("\u{1b}[5n", 'n', "\u{1b}[0n"),
    ("\u{1b}[18t", 't', "\u{1b}[8;30;100t"),
    ("\u{1b}[14t", 't', "\u{1b}[4;0;0t"),
    ("\u{1b}[?2026$p", 'y', "\u{1b}[?2026;2$y"),
    ("\u{1b}[?25l\u{1b}[?25$p", 'y', "\u{1b}[?25;2$y"),
    (
        "\u{1b}]10;?\u{7}",
        '\u{7}',
        "\u{1b}]10;rgb:cccc/cccc/cccc\u{7}",
    ),
    (
        "\u{1b}]11;?\u{7}",
        '\u{7}',
        "\u{1b}]11;rgb:0000/0000/0000\u{7}",
    ),
    (
        "\u{1b}]11;#102030\u{7}\u{1b}]11;?\u{7}",
        '\u{7}',
        "\u{1b}]11;rgb:1010/2020/3030\u{7}",
    ),
];

async fn quiet_terminal(host: &Host, raw: &Raw) -> String {
    let uri = shellward_tests::term::new_uri();
    raw.request(
        "createTerminal",
        json!({"channel": uri, "cols": 100, "rows": 30, "cwd": format!("file://{}", host.folder().display())}),
    )
    .await
    .unwrap();
    uri
}

async fn type_into(raw: &Raw, uri: &str, line: &str) {
    raw.dispatch(
        uri,
        json!({"type": "terminal/input", "data": format!("{line}\r")}),
    )
    .await;
}

#[tokio::test]
async fn s17_questions_are_answered_with_nobody_watching() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let uri = quiet_terminal(&host, &raw).await;
    for (number, (question, end, expected)) in QUESTIONS.into_iter().enumerate() {
        let file = format!("answer{number}");
        type_into(&raw, &uri, &asks(question, end, &file)).await;
        assert_eq!(answer(&host, &file), expected, "{question:?}");
    }
    // The version's number is the host's own.
    type_into(&raw, &uri, &asks("\u{1b}[>0q", ')', "version")).await;
    assert_eq!(
        answer(&host, "version"),
        format!("\u{1b}P>|shellward({})", env!("CARGO_PKG_VERSION"))
    );
    host.stop();
}

#[tokio::test]
async fn s17_a_question_cut_in_two_writes_is_one_question() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let uri = quiet_terminal(&host, &raw).await;
    for (number, (question, end, expected)) in QUESTIONS.into_iter().enumerate() {
        let file = format!("answer{number}");
        // The last character comes later than the rest.
        let (head, tail) = question.split_at(question.len() - 1);
        let line = asks(&format!("{head}CUT{tail}"), end, &file)
            .replace("CUT", "\"; sleep 0.05; printf \"");
        type_into(&raw, &uri, &line).await;
        assert_eq!(answer(&host, &file), expected, "{question:?}");
    }
    host.stop();
}

#[tokio::test]
async fn s17_with_two_watchers_there_is_one_answer_and_neither_sees_the_question() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let other = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let mut watcher = Term::subscribe(&other, &terminal.uri).await;
    let line = "bash --norc -c 'stty raw -echo; printf \"a\\033[6nb\\033[cc\"; sleep 0.5; \
                IFS= read -r -t 1 -N 100 x; stty sane; printf \"%q E\"ND \"$x\"'";
    terminal.line(line).await;
    terminal.wait_text("END").await;
    watcher.wait_text("END").await;
    for seen in [&terminal.seen, &watcher.seen] {
        let from = seen
            .rfind("abc")
            .expect("what stands between the questions");
        let shown = &seen[from..];
        assert!(
            !shown.contains('\u{1b}') || !shown.contains("[6n"),
            "{shown:?}"
        );
        assert_eq!(shown.matches("\\E[?62;22c").count(), 1, "{shown:?}");
        assert_eq!(shown.matches("R\\E").count(), 1, "{shown:?}");
    }
    host.stop();
}

#[tokio::test]
async fn s25_scrollback_holds_no_question_and_subscribing_types_nothing() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal
        .line("printf 'x\\033[6n\\033[c\\033]11;?\\007\\033P+q544e\\033\\\\y\\033[18tz'; cat > /dev/null")
        .await;
    terminal.wait_text("xyz").await;
    raw.settle().await;
    let before = terminal.seen.len();
    for _ in 0..3 {
        let late = Raw::open(&host).await;
        let state = Term::subscribe(&late, &terminal.uri).await;
        for question in [
            "\u{1b}[6n",
            "\u{1b}[c",
            "\u{1b}]11;?",
            "\u{1b}P+q544e",
            "\u{1b}[18t",
        ] {
            assert!(!state.seen.contains(question), "{question:?}");
        }
        late.request("subscribe", json!({"channel": ROOT}))
            .await
            .unwrap();
    }
    raw.settle().await;
    // Only the answers to the first questions are there, which the kernel echoes.
    assert_eq!(terminal.seen[before..].matches('R').count(), 0);
    terminal.assert_equals_snapshot().await;
    host.stop();
}

#[tokio::test]
async fn a_program_that_asks_without_end_and_never_reads_harms_nobody() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal
        .line("stty raw -echo; yes \"$(printf '\\033[6n\\033[c')\" | head -c 500000; printf E''ND")
        .await;
    terminal
        .wait_text_within("END", Duration::from_secs(30))
        .await;
    // Typing goes on: the answers that wait take nobody's place.
    terminal.input("\u{3}").await;
    raw.request("disposeTerminal", json!({"channel": terminal.uri}))
        .await
        .unwrap();
    host.stop();
}

#[tokio::test]
async fn answers_do_not_count_as_input_of_clients() {
    let host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal
        .line("stty raw -echo; for i in 1 2 3 4 5 6 7 8 9; do printf '\\033[6n'; done; sleep 0.2; stty sane; printf R''EADY")
        .await;
    terminal.wait_text("READY").await;
    // A whole megabyte may wait for the program, answers or not; none of it ends the terminal.
    terminal.line("cat > /dev/null; echo D''ONE").await;
    for _ in 0..64 {
        terminal.input(&"y\n".repeat(8 << 10)).await;
    }
    terminal.input("\n\u{4}").await;
    terminal
        .wait_text_within("DONE", Duration::from_secs(30))
        .await;
    host.stop();
}
