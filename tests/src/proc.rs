//! Reading `/proc`.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::PathBuf;

/// One process, told apart from a later one with the same number by its start time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    /// `R`, `S`, `T`, `Z`…
    pub state: char,
    /// Clock ticks since boot.
    pub started: u64,
    /// User and system time in clock ticks.
    pub ticks: u64,
    /// At most 15 characters.
    pub name: String,
}

impl Process {
    /// `None` when there is no such process.
    pub fn read(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let open = stat.find('(')?;
        let close = stat.rfind(')')?;
        let fields: Vec<&str> = stat[close + 1..].split_whitespace().collect();
        Some(Self {
            pid,
            name: stat[open + 1..close].to_owned(),
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            ticks: fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }

    pub fn is_zombie(&self) -> bool {
        self.state == 'Z' || self.state == 'X'
    }

    /// Whether this very process still runs (a zombie does not).
    pub fn is_alive(&self) -> bool {
        Self::read(self.pid).is_some_and(|now| now.started == self.started && !now.is_zombie())
    }

    pub fn is_worker(&self) -> bool {
        self.name.starts_with("shellward-worke")
    }
}

/// Every process of the machine.
pub fn all() -> Vec<Process> {
    fs::read_dir("/proc")
        .expect("/proc")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Process::read)
        .collect()
}

/// Everything below `root`, itself left out.
pub fn descendants(root: i32) -> Vec<Process> {
    assert!(root > 1, "everything is below process {root}");
    let all = all();
    let mut family = HashSet::from([root]);
    let mut found = Vec::new();
    loop {
        let before = found.len();
        for process in &all {
            if family.contains(&process.parent) && family.insert(process.pid) {
                found.push(process.clone());
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// What the descriptors of a process point at; empty when it is gone.
pub fn descriptors(pid: i32) -> Vec<(i32, PathBuf)> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let number = entry.file_name().to_str()?.parse().ok()?;
            Some((number, fs::read_link(entry.path()).ok()?))
        })
        .collect()
}

/// The numbers of the ptys whose master a process holds.
pub fn ptys(pid: i32) -> BTreeSet<u32> {
    descriptors(pid)
        .iter()
        .filter(|(_, target)| {
            let target = target.to_string_lossy();
            target == "/dev/ptmx" || target == "/dev/pts/ptmx"
        })
        .filter_map(|(number, _)| {
            let info = fs::read_to_string(format!("/proc/{pid}/fdinfo/{number}")).ok()?;
            info.lines()
                .find_map(|line| line.strip_prefix("tty-index:"))?
                .trim()
                .parse()
                .ok()
        })
        .collect()
}

/// The memory of a process that is its own, in bytes: what would be free without it.
pub fn memory(pid: i32) -> u64 {
    fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
        .unwrap_or_default()
        .lines()
        .filter(|line| line.starts_with("Private_"))
        .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
        .sum::<u64>()
        << 10
}

/// The environment a process was started with.
pub fn environment(pid: i32) -> Vec<String> {
    fs::read(format!("/proc/{pid}/environ"))
        .unwrap_or_default()
        .split(|byte| *byte == 0)
        .filter(|entry| !entry.is_empty())
        .map(|entry| String::from_utf8_lossy(entry).into_owned())
        .collect()
}

/// The command line of a process, its words separated by spaces.
pub fn command_line(pid: i32) -> String {
    String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default())
        .replace('\0', " ")
}
