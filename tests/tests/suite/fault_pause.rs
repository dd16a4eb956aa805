//! A process stands still at a point for a while: others do not wait for it, and it goes on as if
//! nothing had been.

use shellward_tests::faults::Action;
use shellward_tests::{Host, Raw, Term, Value, json, term};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_whose_start_takes_long_holds_nobody_up() {
    let (builder, faults) = Host::builder().dash().with_faults();
    let host = builder.start();
    let raw = Raw::open(&host).await;
    let mut other = Term::create(&raw).await;
    for point in [
        "worker.listening",
        "worker.attached",
        "worker.forked",
        "worker.started",
    ] {
        faults.arm(point, Action::Pause);
        let uri = term::new_uri();
        let params = term::create_params(&raw, &uri, json!({}));
        let create = raw.start_request("createTerminal", params).await;
        let paused = faults.wait_paused(point);
        // On the same connection, and one more terminal.
        assert_eq!(other.output_of("echo fine").await.trim(), "fine");
        let third = Term::create(&raw).await;
        drop(paused);
        assert_eq!(raw.response(create).await, Ok(Value::Null), "{point}");
        let mut slow = Term::subscribe(&raw, &uri).await;
        assert_eq!(slow.output_of("echo here").await.trim(), "here");
        for uri in [&uri, &third.uri] {
            raw.request("disposeTerminal", json!({"channel": uri}))
                .await
                .unwrap();
        }
    }
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_supervisor_that_stands_still_between_sending_and_acknowledging_sends_nothing_twice() {
    let (builder, faults) = Host::builder().dash().with_faults();
    let host = builder.start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("true").await;
    for round in 1..=3 {
        faults.arm("supervisor.output-taken", Action::Pause);
        let last = format!("end-of-{round}");
        terminal
            .line(&format!("seq 1 2000; echo end-of-''{round}"))
            .await;
        drop(faults.wait_paused("supervisor.output-taken"));
        let from = terminal.seen.len();
        terminal.wait_text(&last).await;
        let shown = terminal.seen[from..]
            .lines()
            .filter_map(|line| line.parse::<u32>().ok());
        assert!(shown.eq(1..=2000), "{round}");
        terminal.assert_equals_snapshot().await;
    }
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_stands_still_when_it_is_to_end_is_ended() {
    let (builder, faults) = Host::builder().dash().with_faults();
    let host = builder.start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    terminal.output_of("sleep 1051 & true").await;
    faults.arm("worker.terminating", Action::Pause);
    let params = json!({"channel": terminal.uri});
    assert_eq!(
        raw.request("disposeTerminal", params).await,
        Ok(Value::Null)
    );
    assert!(faults.who_hit("worker.terminating").is_some());
    host.wait_no_workers();
    host.stop();
}
