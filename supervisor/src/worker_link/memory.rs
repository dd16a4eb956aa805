//! How large worker processes are, for operators.

use std::collections::HashMap;

/// The memory that each process has in RAM, in bytes; whoever is not there is left out. Reads files
/// of /proc, so not for the core's lock.
pub(crate) fn resident(pids: &[u32]) -> HashMap<u32, u64> {
    pids.iter()
        .filter_map(|pid| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            Some((*pid, rss(&status)?))
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
    fn the_size_of_a_process_is_read_where_there_is_one() {
        assert_eq!(
            rss("Name:\tVmRSS: 1\nVmRSS:\t    5240 kB\nx"),
            Some(5_365_760)
        );
        // A zombie has no such line.
        for nothing in ["", "Name:\tx\n", "VmRSS:\t5240\n", "VmRSS:\t-1 kB\n"] {
            assert_eq!(rss(nothing), None, "{nothing:?}");
        }
        let me = std::process::id();
        let found = resident(&[me, u32::MAX]);
        assert_eq!(found.len(), 1);
        assert!(found[&me] > 100_000, "{found:?}");
    }
}
