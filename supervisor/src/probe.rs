//! Whether ptys work here, found out by a sacrificial worker that may die doing it.

use std::path::Path;
use std::process::Stdio;

use tokio::process::Command;
use tokio::time::timeout;

use crate::limits::PROBE_TIME;

/// Asks `shellward-worker probe`. `Err` is the reason in words.
///
/// # Errors
/// No pty could be opened, or the probe could not tell.
pub async fn probe(worker: &Path) -> Result<(), String> {
    let child = Command::new(worker)
        .arg("probe")
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("the probe cannot be started: {error}"))?;
    let output = timeout(PROBE_TIME, child.wait_with_output())
        .await
        .map_err(|_| format!("the probe took longer than {} s", PROBE_TIME.as_secs()))?
        .map_err(|error| format!("the probe cannot be waited for: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let words: String = String::from_utf8_lossy(&output.stdout)
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .filter(|c| !c.is_control())
        .take(300)
        .collect();
    Err(if words.is_empty() {
        format!("the probe ended with {}", output.status)
    } else {
        words
    })
}
