//! What a dead worker leaves behind.
//!
//! A worker ends its terminal's processes itself. One that was killed cannot; the supervisor is a
//! child subreaper (prctl(2)), so whatever the shell had started becomes our child and is ended
//! here. Only children of ours are signalled, and before they are waited for, so a number cannot
//! have been given to somebody else (field case S-06).

use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use super::process::Workers;

/// Rounds of looking; each round ends one generation of processes, and the kernel takes a moment.
const ROUNDS: u32 = 200;
const ROUND_TIME: Duration = Duration::from_millis(10);

/// Ends and reaps every child of this process that is not a known worker.
pub(super) async fn sweep(workers: &Workers) {
    for _ in 0..ROUNDS {
        let left = workers.with_known(|is_known| {
            let orphans: Vec<Pid> = children()
                .filter(|pid| !is_known(*pid))
                .filter_map(|pid| i32::try_from(pid).ok())
                .map(Pid::from_raw)
                .collect();
            for pid in &orphans {
                match kill(*pid, Signal::SIGKILL) {
                    Ok(()) | Err(Errno::ESRCH) => {}
                    Err(error) => {
                        tracing::warn!(%pid, %error, "a leftover process cannot be ended")
                    }
                }
                // WNOHANG: the next round reaps what is not dead yet.
                if let Err(error) = waitpid(*pid, Some(WaitPidFlag::WNOHANG)) {
                    tracing::debug!(%pid, %error, "a leftover process was reaped by somebody else");
                }
            }
            orphans.len()
        });
        if left == 0 {
            return;
        }
        tokio::time::sleep(ROUND_TIME).await;
    }
    tracing::warn!("processes of a dead worker are still there");
}

/// The processes whose parent is this process.
pub(super) fn children() -> impl Iterator<Item = u32> {
    let me = std::process::id();
    super::stat::all()
        .filter(move |(_, stat)| stat.parent == me)
        .map(|(pid, _)| pid)
}
