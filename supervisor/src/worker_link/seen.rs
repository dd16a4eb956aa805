//! How worker processes are, for operators.

use std::collections::HashMap;

use super::stat::Stat;

/// A process as it was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// What it has in RAM, in bytes.
    pub memory: u64,
    /// Whether it was stopped by a signal.
    pub is_stopped: bool,
}

/// Looks at each process; whoever is not there is left out. Reads files of /proc, so not for the
/// core's lock.
pub(crate) fn look_at(pids: &[u32]) -> HashMap<u32, Seen> {
    pids.iter()
        .filter_map(|pid| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let seen = Seen {
                memory: rss(&status)?,
                is_stopped: Stat::of(*pid)?.is_stopped(),
            };
            Some((*pid, seen))
        })
        .collect()
}

/// `VmRSS` of proc_pid_status(5), which is given in KiB whatever the size of a page.
fn rss(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_seen_where_there_is_one() {
        assert_eq!(
            rss("Name:\tVmRSS: 1\nVmRSS:\t    5240 kB\nx"),
            Some(5_365_760)
        );
        // A zombie has no such line.
        for nothing in ["", "Name:\tx\n", "VmRSS:\t5240\n", "VmRSS:\t-1 kB\n"] {
            assert_eq!(rss(nothing), None, "{nothing:?}");
        }
        let me = std::process::id();
        let found = look_at(&[me, u32::MAX]);
        assert_eq!(found.len(), 1);
        assert!(
            found[&me].memory > 100_000 && !found[&me].is_stopped,
            "{found:?}"
        );
    }
}
