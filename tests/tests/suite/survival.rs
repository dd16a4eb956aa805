//! Nothing is lost when the supervisor dies: it is killed and started again, and whoever comes back
//! holds every number.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use shellward_tests::counting::{Counter, LINE_BYTES, Returning, Way};
use shellward_tests::{DEADLINE, Folded, Host, Raw, Term, json, poll_for};

/// A number below `bound` that differs from run to run.
fn random(bound: u64) -> u64 {
    let mut bytes = [0; 8];
    let file = std::fs::File::open("/dev/urandom").unwrap();
    std::io::Read::read_exact(&mut &file, &mut bytes).unwrap();
    u64::from_le_bytes(bytes) % bound
}

#[tokio::test]
async fn alone_a_counting_program_outlives_50_supervisors_and_no_number_is_lost() {
    let mut host = Host::builder().dash().start();
    // 2 MB/s.
    let counter = Counter::new(host.folder(), 2_000_000, None);
    let mut client = Returning::start(&host, &counter).await;
    let mut ways = Vec::new();
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(random(150))).await;
        host.crash();
        client.raw.wait_closed().await;
        host.start_again();
        ways.push(client.come_back(&host).await);
    }
    counter.end();
    client.take_to_the_end().await;
    assert!(!ways.contains(&Way::Replay), "another life: {ways:?}");
    assert!(client.held.next > 10_000, "{} numbers", client.held.next);
    println!("{} numbers over 50 supervisors, {ways:?}", client.held.next);
    host.stop();
}

#[tokio::test]
async fn alone_at_full_speed_a_supervisor_that_comes_back_in_time_loses_nothing_either() {
    let mut host = Host::builder().dash().start();
    let counter = Counter::new(host.folder(), 0, None);
    let mut client = Returning::start(&host, &counter).await;
    for _ in 0..8 {
        tokio::time::sleep(Duration::from_millis(random(60))).await;
        host.crash();
        client.raw.wait_closed().await;
        host.start_again();
        client.come_back(&host).await;
    }
    counter.end();
    client.take_to_the_end().await;
    assert!(client.held.next > 10_000, "{} numbers", client.held.next);
    host.stop();
}

/// The text of a terminal, and its size where the gap is: before, missing, after.
fn around_the_gap(text: &str) -> (&str, usize, &str) {
    let (before, rest) = text.split_once("\r\n[shellward: ").expect("a gap");
    let (bytes, after) = rest
        .split_once(" bytes of output were not kept while no supervisor ran]\r\n")
        .expect("its size");
    (before, bytes.parse().unwrap(), after)
}

/// Where in the program's output this text ends, and where it begins, by the numbers in it.
fn ends_at(text: &str) -> usize {
    let (whole, rest) = text.rsplit_once("\r\n").unwrap();
    let last = whole.rsplit_once("\r\n").map_or(whole, |(_, last)| last);
    (last[..9].parse::<usize>().unwrap() + 1) * LINE_BYTES + rest.len()
}

fn begins_at(text: &str) -> usize {
    let (first, rest) = text.split_once("\r\n").unwrap();
    rest[..9].parse::<usize>().unwrap() * LINE_BYTES - 2 - first.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alone_what_gave_way_while_nobody_was_there_is_a_gap_of_the_right_size() {
    let lines = 600_000;
    let mut host = Host::builder()
        .dash()
        .option("--reattach-grace", "0s")
        .start();
    let counter = Counter::new(host.folder(), 0, Some(lines));
    let mut client = Returning::start(&host, &counter).await;
    poll_for("much output", DEADLINE, || {
        client.take();
        (client.held.next > 10_000).then_some(())
    });
    host.crash();
    // The program runs to its end without anybody.
    let name = "count.py";
    poll_for("the program's end", 6 * DEADLINE, || {
        let all = shellward_tests::proc::all();
        let running = all.iter().any(|process| {
            let line = shellward_tests::proc::command_line(process.pid);
            line.contains(name) && line.contains(&host.folder().display().to_string())
        });
        (!running).then_some(())
    });
    host.start_again();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::subscribe(&raw, &client.uri).await;
    if terminal.folded.state.lifecycle != exited() {
        terminal.wait_exit().await;
    }
    let text = terminal.folded.text();
    let (before, missing, after) = around_the_gap(&text);
    let after = after.split_once("END ").expect("the last word").0;
    assert!(before.len() > 20_000, "{} before", before.len());
    assert!(after.len() > 100_000, "{} after", after.len());
    assert_eq!(ends_at(before) + missing, begins_at(after));
    assert_eq!(ends_at(after), lines * LINE_BYTES);
    assert_eq!(terminal.folded.state.title, "dash");
    // The same to the next one.
    host.crash();
    host.start_again();
    let raw = Raw::open(&host).await;
    let again = Term::subscribe(&raw, &client.uri).await;
    assert_eq!(around_the_gap(&again.folded.text()).1, missing);
    host.stop();
}

#[tokio::test]
async fn what_was_shown_stays_however_little_it_was_and_however_much_follows() {
    let mut host = Host::builder().dash().start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let done = host.folder().join("done");
    let go = host.folder().join("go");
    terminal
        .line(&format!(
            "seq -f 'before %.0f' 400; until [ -e {} ]; do sleep 0.02; done; seq -f 'while %.0f' 40000; touch {}",
            go.display(),
            done.display()
        ))
        .await;
    terminal.wait_text("before 400\r\n").await;
    raw.request("unsubscribe", json!({"channel": terminal.uri}))
        .await
        .unwrap();
    host.crash();
    std::fs::write(&go, "").unwrap();
    poll_for("the end of it", DEADLINE, || done.exists().then_some(()));
    host.start_again();
    let raw = Raw::open(&host).await;
    let mut again = Term::subscribe(&raw, &terminal.uri).await;
    again.wait_text("while 40000\r\n").await;
    let text = again.folded.text();
    let (before, missing, after) = around_the_gap(&text);
    assert!(
        before.contains("before 1\r\n") && before.ends_with("before 400\r\n"),
        "{before}"
    );
    let whole: String = (1..=40_000).map(|n| format!("while {n}\r\n")).collect();
    let (after, _) = after.split_at(after.rfind("while 40000\r\n").unwrap() + 13);
    assert!(whole.ends_with(after));
    assert_eq!(missing + after.len(), whole.len());
    host.stop();
}

fn exited() -> ahp_types::state::TerminalLifecycleState {
    serde_json::from_value(json!({"status": "exited", "exitCode": 0})).unwrap()
}

#[tokio::test]
async fn alone_200_terminals_are_taken_over_within_5_s() {
    let mut host = Host::builder().dash().start();
    let raw = Raw::open(&host).await;
    let mut uris = Vec::new();
    for _ in 0..200 {
        let terminal = Term::create(&raw).await;
        uris.push(terminal.uri);
    }
    raw.dispatch(
        &uris[7],
        json!({"type": "terminal/input", "data": "echo seven; exit 7\r"}),
    )
    .await;
    raw.wait_action(0, &uris[7], "terminal/exited").await;
    host.crash();
    let begun = Instant::now();
    host.start_again();
    let took = begun.elapsed();
    println!("ready after {took:?} with 200 terminals");
    assert!(took < Duration::from_secs(5), "{took:?}");
    let listing = host.ps();
    assert_eq!(listing["terminals"].as_array().unwrap().len(), 200);
    let states = |state: &str| {
        let terminals = host.ps()["terminals"].as_array().unwrap().clone();
        terminals.iter().filter(|t| t["state"] == state).count()
    };
    poll_for("one exited", DEADLINE, || {
        (states("exited") == 1).then_some(())
    });
    assert_eq!(states("running"), 199);
    assert_eq!(host.ps_entry(&uris[7])["exitCode"], 7);
    let raw = Raw::open(&host).await;
    let mut terminal = Term::subscribe(&raw, &uris[123]).await;
    assert_eq!(terminal.output_of("echo alive").await.trim(), "alive");
    host.stop();
}

#[tokio::test]
async fn alone_of_24_terminals_20_workers_are_killed_at_once_and_4_do_not_notice() {
    let host = Host::builder().dash().start();
    let raw = Raw::open(&host).await;
    let mut terminals = Vec::new();
    for _ in 0..24 {
        let mut terminal = Term::create(&raw).await;
        terminal.output_of("true").await;
        terminals.push(terminal);
    }
    let pids: Vec<i32> = terminals.iter().map(|t| host.pids(&t.uri).0).collect();
    let begun = Instant::now();
    for pid in &pids[..20] {
        kill(Pid::from_raw(*pid), Signal::SIGKILL).unwrap();
    }
    assert!(begun.elapsed() < Duration::from_millis(100));
    for terminal in &mut terminals[..20] {
        let exited = terminal.wait_exit().await;
        assert_eq!(exited["signal"], "SIGKILL", "{exited}");
        assert!(terminal.folded.text().contains("was killed by SIGKILL"));
    }
    for terminal in &mut terminals[20..] {
        assert_eq!(terminal.output_of("echo alive").await.trim(), "alive");
        terminal.assert_equals_snapshot().await;
    }
    host.stop();
}

#[tokio::test]
async fn everything_of_a_terminal_is_there_again_and_nothing_is_typed_or_shown_twice() {
    let mut host = Host::start();
    let raw = Raw::open(&host).await;
    let mut terminal =
        Term::create_with(&raw, json!({"name": "mine", "cols": 100, "rows": 30})).await;
    terminal.wait_prompt().await;
    terminal.line("cd /usr/share; echo be''fore").await;
    terminal.wait_text("before\r\n").await;
    let mut other = Term::create(&raw).await;
    other.wait_prompt().await;
    terminal
        .line("echo star''ted; cat > /dev/null; echo end''ed; (exit 4)")
        .await;
    terminal.wait_text("started\r\n").await;
    raw.settle().await;
    let before = Term::subscribe(&raw, &terminal.uri).await;
    let ps_before = host.ps_entry(&terminal.uri);
    let (_, other_shell) = host.pids(&other.uri);
    host.crash();
    // One ends while nobody is there.
    kill(Pid::from_raw(other_shell), Signal::SIGKILL).unwrap();
    host.start_again();
    let raw = Raw::open_as(&host, &raw.client_id()).await;
    let mut after = Term::subscribe(&raw, &terminal.uri).await;
    let state = |folded: &Folded| folded.state.clone();
    assert_eq!(
        state(&before.folded),
        state(&after.folded),
        "title, size, claim, directory, content"
    );
    let entry = host.ps_entry(&terminal.uri);
    for member in [
        "uri",
        "id",
        "title",
        "cwd",
        "cols",
        "claim",
        "createdAt",
        "workerPid",
        "shellPid",
        "lastCommand",
        "isPty",
        "account",
    ] {
        assert_eq!(entry[member], ps_before[member], "{member}");
    }
    // The command that ran ends, and the next has the next number.
    after.input("\u{4}").await;
    after.wait_text("ended\r\n").await;
    let ended = after
        .wait("the command's end", DEADLINE, |_, _, params| {
            (params["action"]["type"] == "terminal/commandFinished")
                .then(|| params["action"].clone())
        })
        .await;
    assert_eq!(ended["exitCode"], 4, "{ended}");
    assert_eq!(ended["commandId"], ps_before["lastCommand"]["commandId"]);
    after.assert_equals_snapshot().await;
    assert_eq!(after.folded.text().matches("before\r\n").count(), 1);
    let exit = poll_for("the other's end", DEADLINE, || {
        let entry = host.ps_entry(&other.uri);
        (entry["state"] == "exited").then_some(entry)
    });
    assert_eq!(
        (&exit["exitCode"], &exit["signal"]),
        (&json!(128), &json!("SIGKILL"))
    );
    host.stop();
}

#[tokio::test]
async fn no_snapshot_is_larger_for_having_outlived_a_supervisor() {
    let mut host = Host::dash();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    let line = "i=0; while [ $i -lt 12000 ]; do echo \"$i abcdefghijklmnopqrstuvwxyz0123456789\"; i=$((i+1)); done; echo do''ne";
    terminal.line(line).await;
    terminal.wait_text_within("done\r\n", 3 * DEADLINE).await;
    let size = |folded: &Folded| folded.text().chars().count();
    for life in 0..3 {
        let raw = Raw::open(&host).await;
        let fresh = Term::subscribe(&raw, &terminal.uri).await;
        let chars = size(&fresh.folded);
        assert!(
            (150_000..=200_000).contains(&chars),
            "{chars} in life {life}"
        );
        host.crash();
        host.start_again();
    }
    host.stop();
}
