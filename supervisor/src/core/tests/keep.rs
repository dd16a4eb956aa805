//! Exited terminals whose worker is gone.

use super::*;
use std::time::Duration;

fn gone() -> Gone {
    Gone::by("was killed by SIGKILL".into(), Some(9))
}

fn plans(bench: &Bench) -> usize {
    let starts = bench.effects.iter();
    starts.filter(|e| matches!(e, Effect::Start(_))).count()
}

#[test]
fn a_crashed_terminal_is_given_a_worker_that_keeps_what_was_shown() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    let key = bench.terminal(a, "t:/1");
    bench.ask(a, "subscribe", json!({"channel":"t:/1"}));
    bench.core.happened(
        key,
        Happened::CanDetectCommands,
        bench.now,
        &mut bench.effects,
    );
    bench.output(key, "before\r\n");
    bench.take(a);
    bench
        .core
        .worker_gone(key, Some(&gone()), bench.now, &mut bench.effects);
    assert_eq!(
        kinds(&bench.take(a)),
        ["terminal/data", "terminal/exited", "root/terminalsChanged"]
    );
    let past = bench.plan().again.unwrap().past;
    let text: Vec<u8> = past
        .iter()
        .filter_map(|past| match past {
            Past::Text { data, .. } => Some(data.as_slice()),
            _ => None,
        })
        .flatten()
        .copied()
        .collect();
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with("before\r\n") && text.contains("was killed by SIGKILL"));
    // Requests about it wait, and it is on the list as before.
    bench.send(
        a,
        json!({"id":5,"method":"disposeTerminal","params":{"channel":"t:/1"}}),
    );
    let report = bench.ask(a, "x-shellward/terminals", json!({}));
    assert_eq!(report["result"]["terminals"][0]["state"], "crashed");
    assert!(bench.take(a).is_empty());
    assert_eq!(
        bench.is_kept(key),
        Ended {
            status: ExitStatus::Signal(9),
            was_pty: true,
            can_detect: true,
        }
    );
    bench
        .core
        .worker_gone(key, None, bench.now, &mut bench.effects);
    assert_eq!(
        kinds(&bench.take(a)),
        ["root/terminalsChanged", "answer"],
        "it was disposed of"
    );
    assert!(bench.core.terminals.is_empty());
}

#[test]
fn an_exited_terminal_whose_worker_dies_changes_nothing_for_clients_and_is_kept() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    let key = bench.terminal(a, "t:/1");
    bench.ask(a, "subscribe", json!({"channel":"t:/1"}));
    bench
        .core
        .exited(key, ExitStatus::Code(3), bench.now, &mut bench.effects);
    bench.take(a);
    let worker_pid = |bench: &mut Bench| {
        let report = bench.ask(a, "x-shellward/terminals", json!({}));
        report["result"]["terminals"][0]["workerPid"].clone()
    };
    // Of one that was taken over it is not known how it ended.
    bench
        .core
        .worker_gone(key, None, bench.now, &mut bench.effects);
    assert_eq!(worker_pid(&mut bench), Value::Null);
    bench.core.worker_exists(key, 51);
    assert_eq!(bench.is_kept(key).status, ExitStatus::Code(3));
    assert_eq!(worker_pid(&mut bench), 51);
    // One that dies at once is not replaced for ever, only after a while.
    let before = plans(&bench);
    bench
        .core
        .worker_gone(key, Some(&gone()), bench.now, &mut bench.effects);
    assert_eq!(plans(&bench), before);
    assert!(bench.take(a).is_empty());
    bench.send(
        a,
        json!({"id":5,"method":"x-shellward/restartWorker","params":{"channel":"t:/1"}}),
    );
    bench
        .core
        .started(key, shell(43), bench.now, &mut bench.effects)
        .unwrap();
    bench.now += Duration::from_secs(61);
    bench
        .core
        .exited(key, ExitStatus::Code(4), bench.now, &mut bench.effects);
    bench
        .core
        .worker_gone(key, Some(&gone()), bench.now, &mut bench.effects);
    assert_eq!(bench.is_kept(key).status, ExitStatus::Code(4));
}

#[test]
fn a_host_that_ends_waits_for_the_worker_and_ends_it() {
    let mut bench = Bench::new();
    let a = bench.client("a");
    let key = bench.terminal(a, "t:/1");
    bench
        .core
        .worker_gone(key, Some(&gone()), bench.now, &mut bench.effects);
    assert!(!bench.core.end_all(&mut bench.effects));
    assert!(!bench.effects.contains(&Effect::WatchEnd(key)));
    bench.is_kept(key);
    assert!(bench.effects.contains(&Effect::WatchEnd(key)));
    bench
        .core
        .worker_gone(key, None, bench.now, &mut bench.effects);
    assert!(bench.core.end_all(&mut bench.effects));
}
