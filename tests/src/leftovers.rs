//! After a host has gone, nothing of it may be left.

use std::collections::HashMap;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::proc::{self, Process};

/// What is to be looked for.
#[derive(Debug, Clone)]
pub struct Marks {
    /// `NAME=1`, in the environment of the host and so of every shell.
    pub variable: String,
    /// The runtime directory, on the command lines of the host and maybe of workers; what arms
    /// faults lies beside it and begins alike, and is in the environment of all of them.
    pub directory: String,
}

/// Processes that carry one of the marks, or were seen below the host.
pub fn processes(marks: &Marks, seen: &[Process]) -> Vec<Process> {
    let mut found: HashMap<i32, Process> = HashMap::new();
    let me = std::process::id().cast_signed();
    for process in proc::all() {
        if process.is_zombie() || process.pid == me {
            continue;
        }
        let marked = proc::environment(process.pid)
            .iter()
            .any(|entry| *entry == marks.variable || entry.contains(&marks.directory))
            || proc::command_line(process.pid).contains(&marks.directory)
            || seen
                .iter()
                .any(|old| old.pid == process.pid && old.started == process.started);
        if marked {
            found.insert(process.pid, process);
        }
    }
    found.into_values().collect()
}

/// Socket files below `directory`, and directories of what a worker's shell starts with.
pub fn sockets(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(directory) else {
        return found;
    };
    for entry in entries.flatten() {
        let Ok(kind) = entry.file_type() else {
            continue;
        };
        let is_shells = entry.path().extension().is_some_and(|end| end == "d");
        if kind.is_socket() || is_shells {
            found.push(entry.path().display().to_string());
        } else if kind.is_dir() {
            found.extend(sockets(&entry.path()));
        }
    }
    found
}

/// Zombies that the host or one of its workers should have reaped.
pub fn zombies(host: i32) -> Vec<Process> {
    let family = proc::descendants(host);
    family
        .iter()
        .filter(|process| {
            process.is_zombie()
                && (process.parent == host
                    || family
                        .iter()
                        .any(|other| other.pid == process.parent && other.is_worker()))
        })
        .cloned()
        .collect()
}

/// Waits until `list` is empty; what is still in it after `limit` otherwise.
pub fn settle<T>(limit: Duration, mut list: impl FnMut() -> Vec<T>) -> Vec<T> {
    let end = Instant::now() + limit;
    loop {
        let left = list();
        if left.is_empty() || Instant::now() >= end {
            return left;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
