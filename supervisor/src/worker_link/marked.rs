//! Processes that a terminal's shell has started, known by a variable that they inherit.
//!
//! A worker ends everything below it. When it was killed, what it leaves becomes the child of the
//! supervisor, if that is above it, and is found there; otherwise nothing but its session and this
//! variable tells it from strangers, and a session can be left (setsid(2)).

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt as _;

use super::stat::Stat;

/// Holds the terminal's id in everything that its shell starts.
pub(super) const VARIABLE: &str = "SHELLWARD_TERMINAL";

const INIT: u32 = 1;

/// What is known of one process.
#[derive(Debug, Clone, Copy)]
struct Seen {
    parent: u32,
    /// It has the variable, and runs under our account.
    is_marked: bool,
    /// Orphans become its children.
    is_reaper: bool,
}

/// Those of the terminal with this id whose worker is gone. `reaper` was the worker's own parent, if
/// that is known, `all` are all processes.
pub(super) fn of(id: &str, reaper: Option<u32>, all: &[(u32, Stat)]) -> Vec<u32> {
    let seen: HashMap<u32, Seen> = all
        .iter()
        .filter(|(_, stat)| !stat.is_dead)
        .map(|&(pid, stat)| {
            let is_reaper = pid == INIT || Some(pid) == reaper || is_systemd(pid);
            let seen = Seen {
                parent: stat.parent,
                is_marked: is_marked(pid, id),
                is_reaper,
            };
            (pid, seen)
        })
        .collect();
    left_of(&seen, std::process::id())
}

/// The one of a user takes in the orphans of that user's services.
fn is_systemd(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name == b"systemd\n")
}

/// Whether a process of this account has inherited from the shell of this terminal.
pub(super) fn is_marked(pid: u32, id: &str) -> bool {
    let path = format!("/proc/{pid}");
    let uid = nix::unistd::geteuid().as_raw();
    std::fs::metadata(&path).is_ok_and(|found| found.uid() == uid)
        && std::fs::read(path + "/environ").is_ok_and(|environment| has_mark(&environment, id))
}

fn has_mark(environment: &[u8], id: &str) -> bool {
    environment.split(|byte| *byte == 0).any(|entry| {
        entry
            .strip_prefix(VARIABLE.as_bytes())
            .and_then(|rest| rest.strip_prefix(b"="))
            == Some(id.as_bytes())
    })
}

/// The marked ones that are orphans, and what they have started. A job of cron or at inherits the
/// variable, too, from the shell that handed it in; it has a parent of its own. This program itself
/// and what it stands below were perhaps started in such a terminal, and are spared.
fn left_of(seen: &HashMap<u32, Seen>, me: u32) -> Vec<u32> {
    let mut spared = HashSet::new();
    let mut at = me;
    while spared.insert(at)
        && let Some(process) = seen.get(&at)
    {
        at = process.parent;
    }
    let is_left = |pid: u32| {
        let mut at = pid;
        // A chain of parents is no longer than there are processes.
        for _ in 0..=seen.len() {
            match seen.get(&at) {
                Some(process) if process.is_marked => at = process.parent,
                found => return found.is_some_and(|process| process.is_reaper),
            }
        }
        false
    };
    let marked = seen.iter().filter(|(_, process)| process.is_marked);
    let mut left: Vec<u32> = marked
        .map(|(pid, _)| *pid)
        .filter(|pid| !spared.contains(pid) && is_left(*pid))
        .collect();
    left.sort_unstable();
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_the_whole_variable() {
        let environment = b"A=1\0SHELLWARD_TERMINAL=abcd2345\0B=2\0";
        assert!(has_mark(environment, "abcd2345"));
        assert!(!has_mark(environment, "abcd234"));
        assert!(!has_mark(environment, ""));
        assert!(!has_mark(b"XSHELLWARD_TERMINAL=abcd2345\0", "abcd2345"));
        assert!(!has_mark(b"A=SHELLWARD_TERMINAL=abcd2345\0", "abcd2345"));
        assert!(!has_mark(b"", "abcd2345"));
        assert!(!is_marked(std::process::id(), "abcd2345"));
    }

    #[test]
    fn only_orphans_are_found_and_never_ourselves() {
        let process = |parent, is_marked, is_reaper| Seen {
            parent,
            is_marked,
            is_reaper,
        };
        let seen = HashMap::from([
            (1, process(0, false, true)),
            // An orphan and its child.
            (10, process(1, true, false)),
            (11, process(10, true, false)),
            // A user's own init takes orphans in.
            (20, process(1, false, true)),
            (21, process(20, true, false)),
            // A job of atd.
            (30, process(1, false, false)),
            (31, process(30, true, false)),
            (32, process(31, true, false)),
            // We were started there, and have a child.
            (50, process(1, true, false)),
            (51, process(50, true, false)),
            (52, process(51, false, false)),
            // Its parent has gone meanwhile.
            (60, process(59, true, false)),
            // A circle, as a list made while processes come and go may hold.
            (80, process(81, true, false)),
            (81, process(80, true, false)),
            // Unmarked.
            (70, process(1, false, false)),
        ]);
        assert_eq!(left_of(&seen, 51), [10, 11, 21]);
        assert_eq!(left_of(&seen, 52), [10, 11, 21]);
        assert_eq!(left_of(&seen, 70), [10, 11, 21, 50, 51]);
    }
}
