//! The processes below this worker, and signals to them (field case S-06).
//!
//! What lives here: finding descendants through /proc, and signalling only what is proven to be
//! one. What must not: when and why; the event loop decides.
//!
//! The worker is a child subreaper: whatever the shell starts, however it daemonises, has a chain
//! of parents that leads here. So "no children" means "no descendants".

use std::collections::HashMap;
use std::fs;

use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::sys::PidFd;

/// A parent chain longer than this is a loop we ran into while it changed.
const DEPTH_MAX: usize = 10_000;

/// What `/proc/<pid>/stat` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    parent: i32,
    /// Its process group.
    group: i32,
    /// In clock ticks after boot; with the number it names a process for good.
    started: u64,
    /// Ended already, waiting for its parent.
    is_dead: bool,
}

/// A process as it was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Seen {
    pid: i32,
    started: u64,
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.pid.fmt(f)
    }
}

/// Every living process below `ancestor`.
pub(crate) fn descendants(ancestor: Pid) -> Vec<Seen> {
    descendants_where(ancestor, |_| true)
}

/// Interrupts what runs in the foreground of a shell without a terminal: everything below
/// `ancestor` in the process group that `shell` leads.
///
/// Not the whole group by its number: a shell that reads commands from a pipe is in the group of
/// what it starts and would end, too. `spares_shell` is false where the shell runs one command
/// line, or has become that command. Background jobs of such a shell ignore the signal anyway.
pub(crate) fn interrupt(ancestor: Pid, shell: Pid, spares_shell: bool) {
    for seen in descendants_where(ancestor, |stat| stat.group == shell.as_raw()) {
        if seen.pid != shell.as_raw() || !spares_shell {
            signal(ancestor, seen, &[Signal::SIGINT]);
        }
    }
}

fn descendants_where(ancestor: Pid, wanted: impl Fn(&Stat) -> bool) -> Vec<Seen> {
    let ancestor = ancestor.as_raw();
    let Ok(proc) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let all: HashMap<i32, Stat> = proc
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, read_stat(pid)?)))
        .collect();
    let mut found: Vec<Seen> = all
        .iter()
        .filter(|(_, stat)| !stat.is_dead && wanted(stat))
        .filter(|(pid, _)| leads_to(**pid, ancestor, |pid| all.get(&pid).map(|stat| stat.parent)))
        .map(|(pid, stat)| Seen {
            pid: *pid,
            started: stat.started,
        })
        .collect();
    // Parents before their children, so that a supervisor inside the tree is told first.
    found.sort_unstable_by_key(|seen| (seen.started, seen.pid));
    found
}

/// Sends `signals` to `seen`, if it still is the process that was seen and still below `ancestor`.
/// Says whether they were sent.
pub(crate) fn signal(ancestor: Pid, seen: Seen, signals: &[Signal]) -> bool {
    let Ok(handle) = PidFd::open(Pid::from_raw(seen.pid)) else {
        return false;
    };
    // From here on the handle means one process. Whether it is the right one is checked now, not
    // before: a number read earlier may have been given to somebody else in between.
    let is_same =
        read_stat(seen.pid).is_some_and(|stat| stat.started == seen.started && !stat.is_dead);
    let is_ours = leads_to(seen.pid, ancestor.as_raw(), |pid| {
        read_stat(pid).map(|stat| stat.parent)
    });
    if !is_same || !is_ours {
        return false;
    }
    // One that fails (the process just ended, or runs as another user) does not stop the next.
    signals
        .iter()
        .fold(false, |sent, signal| handle.send(*signal).is_ok() | sent)
}

fn leads_to(pid: i32, ancestor: i32, parent_of: impl Fn(i32) -> Option<i32>) -> bool {
    let mut at = pid;
    for _ in 0..DEPTH_MAX {
        match parent_of(at) {
            Some(parent) if parent == ancestor => return true,
            Some(parent) if parent > 0 => at = parent,
            _ => return false,
        }
    }
    false
}

fn read_stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// Reads a stat line. The second field is the program's name in brackets and may hold anything,
/// brackets and line ends too; the last closing bracket ends it.
fn parse_stat(line: &[u8]) -> Option<Stat> {
    let after_name = memchr::memrchr(b')', line)? + 1;
    let rest = std::str::from_utf8(line.get(after_name..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    // proc(5): the parent is field 4, the group field 5, the start time field 22.
    let started = fields.nth(16)?.parse().ok()?;
    Some(Stat {
        parent,
        group,
        started,
        is_dead: matches!(state, "Z" | "X" | "x"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn name_with_brackets_does_not_shift_the_fields() {
        let line = b"42 (a) Z 1 (b\n) S 7 41 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 0 0";
        assert_eq!(
            parse_stat(line),
            Some(Stat {
                parent: 7,
                group: 41,
                started: 12345,
                is_dead: false
            })
        );
        assert_eq!(parse_stat(b""), None);
        assert_eq!(parse_stat(b"1 (x) S"), None);
    }

    #[test]
    fn parent_loop_ends() {
        assert!(!leads_to(5, 1, |pid| Some(if pid == 5 { 6 } else { 5 })));
    }

    #[test]
    fn child_is_found_and_a_stranger_is_not_signalled() {
        let mut child = Command::new("/bin/sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let me = nix::unistd::getpid();
        let seen = descendants(me)
            .into_iter()
            .find(|seen| seen.pid == pid)
            .unwrap();
        // Seen with another start time: somebody else has the number now.
        let other = Seen {
            started: seen.started + 1,
            ..seen
        };
        assert!(!signal(me, other, &[Signal::SIGKILL]));
        // Not below the child itself.
        assert!(!signal(Pid::from_raw(pid), seen, &[Signal::SIGKILL]));
        assert!(child.try_wait().unwrap().is_none());
        assert!(signal(me, seen, &[Signal::SIGKILL]));
        child.wait().unwrap();
        assert!(!descendants(me).iter().any(|seen| seen.pid == pid));
    }
}
