//! Arming the points where the programs can be stopped, killed or made to fail.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
pub use shellward_fault_points::{Action, Plan};
use shellward_fault_points::{VARIABLE, arm, hit_file};

use crate::{DEADLINE, HostBuilder, poll_for, proc};

/// What arms the points of one host.
#[derive(Debug, Clone)]
pub struct Faults {
    directory: PathBuf,
}

/// A process that a point has stopped. Dropping it lets the process go on.
#[derive(Debug)]
pub struct Paused(pub i32);

impl Drop for Paused {
    fn drop(&mut self) {
        // It may have been killed meanwhile.
        let _ = kill(Pid::from_raw(self.0), Signal::SIGCONT);
    }
}

impl HostBuilder {
    /// With points that can be armed.
    pub fn with_faults(self) -> (Self, Faults) {
        // Beside the runtime directory, and beginning with its name: see `leftovers::Marks`.
        let mut directory = self.runtime_dir().into_os_string();
        directory.push(".faults");
        let directory = PathBuf::from(directory);
        fs::create_dir(&directory).unwrap();
        let builder = self.env(VARIABLE, directory.to_str().unwrap());
        (builder, Faults { directory })
    }
}

impl Faults {
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Has something happen at a point.
    pub fn arm(&self, point: &str, plan: impl Into<Plan>) {
        arm(&self.directory, point, plan.into()).unwrap();
    }

    /// Waits until somebody has come to the point; who.
    #[track_caller]
    pub fn wait_hit(&self, point: &str) -> i32 {
        let what =
            format!("{point} is reached (are these binaries those of scripts/build --debug?)");
        poll_for(&what, DEADLINE, || self.who_hit(point))
    }

    /// Who has come to the point, if somebody has.
    pub fn who_hit(&self, point: &str) -> Option<i32> {
        let text = fs::read_to_string(hit_file(&self.directory, point)).ok()?;
        text.parse().ok()
    }

    /// Waits until somebody stands still at a point armed with [`Action::Pause`].
    #[track_caller]
    pub fn wait_paused(&self, point: &str) -> Paused {
        let pid = self.wait_hit(point);
        poll_for(&format!("{pid} stops at {point}"), DEADLINE, || {
            proc::Process::read(pid).filter(|process| process.state == 'T')
        });
        Paused(pid)
    }

    /// Waits until whoever came to a point armed with [`Action::Kill`] is dead.
    #[track_caller]
    pub fn wait_killed(&self, point: &str) -> i32 {
        let pid = self.wait_hit(point);
        let limit = Duration::from_secs(5);
        poll_for(&format!("{pid} dies at {point}"), limit, || {
            proc::Process::read(pid)
                .is_none_or(|process| process.is_zombie())
                .then_some(())
        });
        pid
    }
}
