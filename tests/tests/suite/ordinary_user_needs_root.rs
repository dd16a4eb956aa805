//! The host as an ordinary user, where the kernel says no. Becoming that user needs root: without
//! it these tests say so and check nothing.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::time::{Duration, Instant};

use shellward_tests::{DEADLINE, Host, Raw, Term, json, poll_for, term};

/// A user of our own: its process count is the host's and nobody else's.
fn uid(test: u32) -> Option<u32> {
    if nix::unistd::geteuid().is_root() {
        return Some(64_100 + test);
    }
    eprintln!("not run: becoming another user needs root");
    None
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_works_and_belongs_to_the_user_as_root_only() {
    let Some(uid) = uid(0) else { return };
    let host = Host::builder().dash().as_user(uid, None).start();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    assert_eq!(terminal.output_of("id -u").await.trim(), uid.to_string());
    let tty = terminal.output_of("tty").await;
    let owner = fs::metadata(tty.trim()).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&owner), uid);
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s05_at_the_process_limit_starts_fail_clearly_and_work_again_as_root_only() {
    let Some(uid) = uid(1) else { return };
    let host = Host::builder().dash().as_user(uid, Some(24)).start();
    let raw = Raw::open(&host).await;
    let mut made = Vec::new();
    let mut refused = Vec::new();
    for _ in 0..20 {
        let uri = term::new_uri();
        match raw
            .request("createTerminal", term::create_params(&raw, &uri, json!({})))
            .await
        {
            Ok(_) => made.push(uri),
            Err(error) => refused.push((uri, error)),
        }
    }
    assert!(
        made.len() >= 5,
        "only {} terminals in 24 processes",
        made.len()
    );
    assert!(!refused.is_empty(), "20 terminals in 24 processes");
    for (uri, error) in &refused {
        assert!(error.message.contains("process"), "{error:?}");
        let gone = raw.request("subscribe", json!({"channel": uri})).await;
        assert_eq!(gone.unwrap_err().code, -32008, "no half terminal");
    }
    let workers = made.len();
    poll_for("no worker of a start that failed", DEADLINE, || {
        (host.workers().len() == workers).then_some(())
    });
    for uri in made.drain(1..) {
        raw.request("disposeTerminal", json!({"channel": uri}))
            .await
            .unwrap();
    }
    let mut again = Term::create(&raw).await;
    assert_eq!(again.output_of("echo fine").await.trim(), "fine");
    let mut first = Term::subscribe(&raw, &made[0]).await;
    assert_eq!(first.output_of("echo there").await.trim(), "there");
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s26_a_directory_that_may_not_be_entered_ends_with_127_as_root_only() {
    let Some(uid) = uid(2) else { return };
    let builder = Host::builder().dash().as_user(uid, None);
    let closed = builder.folder().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o644)).unwrap();
    chown(&closed, Some(uid), Some(uid)).unwrap();
    let host = builder.start();
    let raw = Raw::open(&host).await;
    let cwd = closed.to_str().unwrap();
    let mut terminal = Term::create_with(&raw, json!({"cwd": cwd})).await;
    if terminal.snapshot["state"]["lifecycle"]["status"] == "running" {
        terminal.wait_exit().await;
    }
    let late = Term::subscribe(&raw, &terminal.uri).await;
    assert_eq!(late.snapshot["state"]["exitCode"], 127, "{}", late.snapshot);
    assert!(
        late.seen.contains("cannot enter") && late.seen.contains("closed"),
        "{}",
        late.seen
    );
    host.stop();
}

/// A start-up file that takes about a tenth of a second of a core.
const BUSY_RC: &str = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; PS1='$ '; HISTFILE=\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alone_s39_150_terminals_at_once_under_a_process_limit_as_root_only() {
    let Some(uid) = uid(3) else { return };
    let builder = Host::builder();
    fs::write(builder.folder().join("home/.bashrc"), BUSY_RC).unwrap();
    // Room for about 120 workers with their shells.
    let host = builder.as_user(uid, Some(250)).start();
    let watcher = Raw::open(&host).await;
    let mut old = Term::create_with(&watcher, json!({})).await;
    old.start_reader("cat").await;
    let raw = Raw::open(&host).await;
    let began = Instant::now();
    let mut asked = Vec::new();
    for _ in 0..150 {
        let uri = term::new_uri();
        let params = term::create_params(&raw, &uri, json!({}));
        asked.push((raw.start_request("createTerminal", params).await, uri));
    }
    let answers = async {
        let (mut made, mut refused) = (Vec::new(), Vec::new());
        for (id, uri) in asked {
            match raw.response_within(id, Duration::from_secs(60)).await {
                Ok(_) => made.push(uri),
                Err(error) => refused.push((uri, error)),
            }
        }
        (made, refused, began.elapsed())
    };
    // Somebody goes on typing, until long after the last one was answered: their start-up files
    // still run then.
    let mut echoes = Vec::new();
    let typing = async {
        while echoes.len() < 50 || began.elapsed() < Duration::from_secs(5) {
            let at = Instant::now();
            let from = old.seen.len();
            old.input("x").await;
            old.wait("an echo", Duration::from_secs(20), |_, seen, _| {
                (seen.len() > from).then_some(())
            })
            .await;
            echoes.push(at.elapsed());
        }
    };
    let ((made, refused, took), ()) = tokio::join!(answers, typing);
    echoes.sort();
    let (median, worst) = (echoes[echoes.len() / 2], echoes[echoes.len() - 1]);
    eprintln!(
        "{} made, {} refused in {took:?}; echo median {median:?}, worst {worst:?} of {}",
        made.len(),
        refused.len(),
        echoes.len()
    );
    assert!(median < Duration::from_millis(200), "{median:?}");
    assert!(made.len() >= 60, "only {} in 250 processes", made.len());
    assert!(!refused.is_empty(), "150 terminals in 250 processes");
    for (uri, error) in &refused {
        assert!(error.message.contains("process"), "{error:?}");
        let gone = raw.request("subscribe", json!({"channel": uri})).await;
        assert_eq!(gone.unwrap_err().code, -32008, "no half terminal");
    }
    let workers = made.len() + 1;
    poll_for("a worker of each that was made", DEADLINE, || {
        (host.workers().len() == workers).then_some(())
    });
    let listing = host.ps();
    let running = |entry: &&shellward_tests::Value| entry["state"] == "running";
    let terminals = listing["terminals"].as_array().unwrap();
    assert_eq!(terminals.iter().filter(running).count(), workers);
    let mut disposed = Vec::new();
    for uri in made {
        let params = json!({"channel": uri});
        disposed.push(raw.start_request("disposeTerminal", params).await);
    }
    for id in disposed {
        raw.response_within(id, Duration::from_secs(30))
            .await
            .unwrap();
    }
    let mut again = Term::create(&raw).await;
    assert_eq!(again.output_of("echo fine").await.trim(), "fine");
    host.stop();
}
