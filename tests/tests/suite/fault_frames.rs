//! A worker's frames, cut off at every byte: one terminal ends, and the host is as it was.
//! The other direction is in `worker/tests/frames.rs`.

use std::fs;

use shellward_tests::{Host, Raw, Term, Value, json, leftovers, proc, term};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_cut_off_at_any_byte_ends_its_own_terminal_alone() {
    let host = Host::builder()
        .dash()
        .option("--worker", env!("CARGO_BIN_EXE_fake-worker"))
        .start();
    let raw = Raw::open(&host).await;
    let plan = host.runtime_dir().join("fake-worker");
    let mut outcomes = Vec::new();
    let mut before = None;
    for cut in 0.. {
        fs::write(&plan, cut.to_string()).unwrap();
        let uri = term::new_uri();
        let params = term::create_params(&raw, &uri, json!({}));
        let outcome = match raw.request("createTerminal", params).await {
            Err(error) => {
                assert!(error.message.len() > 20, "{cut}: {error:?}");
                let gone = raw.request("subscribe", json!({"channel": uri})).await;
                assert_eq!(gone.unwrap_err().code, -32008, "{cut}: no half terminal");
                "refused"
            }
            Ok(_) => {
                let mut terminal = Term::subscribe(&raw, &uri).await;
                let code = terminal.snapshot["state"]["exitCode"].clone();
                let code = match code {
                    Value::Null => terminal.wait_exit().await["exitCode"].clone(),
                    code => code,
                };
                terminal.assert_equals_snapshot().await;
                let text = terminal.folded.text();
                raw.request("disposeTerminal", json!({"channel": uri}))
                    .await
                    .unwrap();
                match (code.as_i64(), text.contains("h\u{e9}llo\r\n")) {
                    (Some(128), false) => "started",
                    (Some(128), true) => "printed",
                    (Some(7), true) => "exited",
                    other => panic!("{cut}: {other:?}, {text:?}"),
                }
            }
        };
        host.wait_no_workers();
        if outcome == "exited" {
            outcomes.push(outcome);
            break;
        }
        let now = proc::descriptors(host.pid).len();
        let most = *before.get_or_insert(now);
        assert!(now <= most, "{cut}: {now} descriptors, not {most}");
        outcomes.push(outcome);
        assert!(cut < 1000, "it never comes to its end: {outcomes:?}");
    }
    let total = outcomes.len();
    outcomes.dedup();
    assert_eq!(outcomes, ["refused", "started", "printed", "exited"]);
    assert!(total > 100, "a greeting alone has 64 bytes: {total}");
    assert_eq!(leftovers::sockets(host.runtime_dir()).len(), 1);
    host.stop();
}
