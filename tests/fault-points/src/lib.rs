//! Faults on purpose: named points in the programs where a test can stop, kill or fail them.
//!
//! A directory named by [`VARIABLE`] arms points: a file called after the point holds a [`Plan`].
//! Whoever reaches the point takes the file away, writes its process id into `POINT.hit`, and does
//! what the plan says. So a test waits for `POINT.hit` instead of sleeping for luck.
//!
//! The programs depend on this crate only with their feature `faults`, which `scripts/build
//! --debug` turns on and nothing else does; `scripts/check-deps` looks after that.

#![forbid(unsafe_code)]

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::OnceLock;

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, raise};

/// Names the directory. Its prefix keeps it away from shells, like every variable of ours.
pub const VARIABLE: &str = "SHELLWARD_FAULTS";

/// The most that is read of a plan: the longest one has less than half.
const PLAN_BYTES: u64 = 64;

/// What happens at a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The process stops itself (SIGSTOP) until somebody lets it go on.
    Pause,
    /// The process kills itself (SIGKILL).
    Kill,
    /// The operation fails with this error number. Points that cannot fail pass it by.
    Fail(i32),
}

/// What happens at a point, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// What.
    pub action: Action,
    /// The how many-th arrival it is for, by whatever process; 1 is the next.
    pub arrival: u32,
}

impl From<Action> for Plan {
    fn from(action: Action) -> Self {
        Self { action, arrival: 1 }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.action {
            Action::Pause => write!(out, "pause")?,
            Action::Kill => write!(out, "kill")?,
            Action::Fail(errno) => write!(out, "fail {errno}")?,
        }
        write!(out, " at {}", self.arrival)
    }
}

/// A plan that says nothing that is known.
#[derive(Debug, PartialEq, Eq)]
pub struct NoPlan;

impl FromStr for Plan {
    type Err = NoPlan;

    fn from_str(text: &str) -> Result<Self, NoPlan> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (action, rest) = match words.as_slice() {
            ["pause", rest @ ..] => (Action::Pause, rest),
            ["kill", rest @ ..] => (Action::Kill, rest),
            ["fail", errno, rest @ ..] => (Action::Fail(errno.parse().map_err(|_| NoPlan)?), rest),
            _ => return Err(NoPlan),
        };
        let arrival = match rest {
            [] => 1,
            ["at", number] => number.parse().map_err(|_| NoPlan)?,
            _ => return Err(NoPlan),
        };
        Ok(Self { action, arrival })
    }
}

/// The file that says who has taken a plan away.
#[must_use]
pub fn hit_file(directory: &Path, point: &str) -> PathBuf {
    directory.join(format!("{point}.hit"))
}

/// Arms a point; for tests.
///
/// # Errors
/// What the system says.
pub fn arm(directory: &Path, point: &str, plan: Plan) -> io::Result<()> {
    match std::fs::remove_file(hit_file(directory, point)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    put(directory, point, &plan.to_string())
}

/// A whole file at once: nobody reads half of it.
fn put(directory: &Path, name: &str, text: &str) -> io::Result<()> {
    let new = directory.join(format!(".{name}.{}", std::process::id()));
    std::fs::write(&new, text)?;
    std::fs::rename(&new, directory.join(name))
}

/// The variable for a process that is started with an empty environment otherwise.
#[must_use]
pub fn passed_on() -> Option<(&'static str, &'static Path)> {
    directory().map(|directory| (VARIABLE, directory))
}

/// A point of a program that has been reached.
pub fn hit(point: &str) {
    // One that is to fail cannot do so here.
    check(point).ok();
}

/// The same at an operation that can fail.
///
/// # Errors
/// The test wants it to.
pub fn check(point: &str) -> io::Result<()> {
    let Some(directory) = directory() else {
        return Ok(());
    };
    match take(directory, point) {
        None => Ok(()),
        Some(Action::Fail(errno)) => Err(io::Error::from_raw_os_error(errno)),
        Some(Action::Pause) => raise(Signal::SIGSTOP).map_err(io::Error::from),
        Some(Action::Kill) => raise(Signal::SIGKILL).map_err(io::Error::from),
    }
}

fn directory() -> Option<&'static Path> {
    static DIRECTORY: OnceLock<Option<PathBuf>> = OnceLock::new();
    DIRECTORY
        .get_or_init(|| std::env::var_os(VARIABLE).map(PathBuf::from))
        .as_deref()
}

/// What is to happen now. Whatever cannot be read is as good as not there: a test notices that its
/// point was never hit.
fn take(directory: &Path, point: &str) -> Option<Action> {
    let path = directory.join(point);
    let file = OpenOptions::new().read(true).write(true).open(&path).ok()?;
    // Two processes may arrive at once; the one that comes second finds the file empty.
    let mut file = Flock::lock(file, FlockArg::LockExclusive).ok()?;
    let plan = read(&file)?;
    if plan.arrival > 1 {
        let later = Plan {
            arrival: plan.arrival - 1,
            ..plan
        };
        replace(&mut file, &later.to_string()).ok()?;
        return None;
    }
    std::fs::remove_file(&path).ok()?;
    replace(&mut file, "").ok()?;
    put(
        directory,
        &format!("{point}.hit"),
        &std::process::id().to_string(),
    )
    .ok()?;
    Some(plan.action)
}

fn read(file: &File) -> Option<Plan> {
    let mut text = String::new();
    file.take(PLAN_BYTES).read_to_string(&mut text).ok()?;
    text.parse().ok()
}

fn replace(file: &mut File, text: &str) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_come_back() {
        for plan in [
            Plan::from(Action::Pause),
            Plan {
                action: Action::Kill,
                arrival: 3,
            },
            Action::Fail(28).into(),
        ] {
            assert_eq!(plan.to_string().parse(), Ok(plan));
        }
        assert_eq!("kill\n".parse(), Ok(Plan::from(Action::Kill)));
        for text in ["", "stop", "fail", "fail x", "kill 3", "kill at x"] {
            assert_eq!(text.parse::<Plan>(), Err(NoPlan), "{text}");
        }
    }

    #[test]
    fn a_plan_counts_down_and_is_taken_once() {
        let dir = tempfile::tempdir().unwrap();
        let plan = Plan {
            action: Action::Fail(11),
            arrival: 3,
        };
        assert_eq!(take(dir.path(), "here"), None);
        arm(dir.path(), "here", plan).unwrap();
        assert_eq!(take(dir.path(), "there"), None);
        assert_eq!(take(dir.path(), "here"), None);
        assert_eq!(take(dir.path(), "here"), None);
        assert!(!hit_file(dir.path(), "here").exists());
        assert_eq!(take(dir.path(), "here"), Some(Action::Fail(11)));
        let hit = std::fs::read_to_string(hit_file(dir.path(), "here")).unwrap();
        assert_eq!(hit, std::process::id().to_string());
        assert_eq!(take(dir.path(), "here"), None);
        arm(dir.path(), "here", plan).unwrap();
        assert!(!hit_file(dir.path(), "here").exists());
    }

    #[test]
    fn of_many_that_arrive_at_once_one_takes_it() {
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..50 {
            arm(dir.path(), "here", Action::Kill.into()).unwrap();
            let taken: usize = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8)
                    .map(|_| scope.spawn(|| usize::from(take(dir.path(), "here").is_some())))
                    .collect();
                threads
                    .into_iter()
                    .map(|thread| thread.join().unwrap())
                    .sum()
            });
            assert_eq!(taken, 1);
        }
    }
}
