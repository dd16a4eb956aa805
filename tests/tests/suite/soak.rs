//! `scripts/soak` in twenty seconds.

use std::time::Duration;

use shellward_tests::soak::{Options, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn alone_twenty_seconds_of_everything_leave_nothing() {
    let options = Options::lasting(Duration::from_secs(20), 20_261_130);
    let (done, lives) = run(options, |line| eprintln!("{line}")).await;
    assert!(done.supervisors_killed.get() >= 1, "{done}");
    assert!(lives.len() >= 2, "{lives:?}");
    eprintln!("{done}\n{lives:#?}");
}
