//! What the tests stand on: the real host, started and checked; clients of both kinds; `/proc`.
//!
//! Nothing here sleeps for luck. Waiting is for an event, with a deadline.

#![forbid(unsafe_code)]

pub mod bare;
pub mod binding;
pub mod builder;
pub mod counting;
pub mod faults;
pub mod folded;
pub mod host;
pub mod lean;
pub mod leftovers;
pub mod official;
pub mod probe;
pub mod proc;
pub mod raw;
pub mod session;
pub mod soak;
pub mod term;
mod wire;

use std::time::{Duration, Instant};

pub use builder::HostBuilder;
pub use folded::Folded;
pub use host::Host;
pub use lean::Lean;
pub use official::Official;
pub use raw::{Raw, RpcError};
pub use serde_json::{Value, json};
pub use term::Term;

/// How long an event may take that has no limit of its own.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// The root channel.
pub const ROOT: &str = "ahp-root://";

/// Whether this run of the suite has its hosts serve on pipes (`SHELLWARD_TEST_PTY=never`).
///
/// Which tests take part in such a run is said in `.config/nextest.toml`, profile `pipes`.
pub fn on_pipes() -> bool {
    std::env::var_os("SHELLWARD_TEST_PTY").is_some_and(|mode| mode == "never")
}

/// Whether the test may go on; where it may not, says so.
pub fn needs_root(what: &str) -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("not run: {what} needs root");
    }
    root
}

/// Asks `check` until it answers, and panics with `what` after `limit`.
///
/// For things that announce themselves to nobody (`/proc`, files).
#[track_caller]
pub fn poll_for<T>(what: &str, limit: Duration, mut check: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + limit;
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A name that no other test uses.
pub fn unique() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let nanos = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos());
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("{:x}-{:x}-{count}", std::process::id(), nanos)
}
