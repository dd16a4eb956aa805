//! The runtime directory (sockets, lock) and the state directory (token, epoch).

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;
use shellward_protocol::WIRE_VERSION;

use crate::limits::SOCKET_PATH_BYTES;

/// Names the runtime directory for `serve` and for the commands that look for it.
pub const RUNTIME_DIR_VARIABLE: &str = "SHELLWARD_RUNTIME_DIR";

/// The longest name that is put below the runtime directory: `/w1/ID.sock`.
const LONGEST_NAME: usize = "/w65535/abcdefgh.sock".len();

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirError {
    /// The system said no.
    #[error("cannot {action} {path}")]
    Io {
        /// What was attempted.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// How often hosts have started is written there and cannot be read.
    #[error(
        "cannot read the epoch file {path}; make it readable, or remove it: the count then goes on from the epoch file of the other directory (state or runtime); if there is none either it starts over, clients of the host before get snapshots, and its terminals, if they still run, are not taken over"
    )]
    Epoch {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Somebody else could change it.
    #[error(
        "{0} must be a directory that belongs to this user and that nobody else can enter (mode 700); choose another one"
    )]
    NotPrivate(PathBuf),
    /// unix(7) limits the paths of sockets.
    #[error(
        "{path} is {over} bytes too long for the sockets in it; choose a shorter --runtime-dir"
    )]
    TooLong {
        /// The directory.
        path: PathBuf,
        /// By how much.
        over: usize,
    },
    /// Another supervisor serves it.
    #[error(
        "another supervisor serves {0}; end it with `shellward shutdown`, or give this one its own --runtime-dir"
    )]
    Taken(PathBuf),
    /// There is no place for it.
    #[error("{0} is not set and there is no {1}; give --{2}")]
    Unknown(&'static str, &'static str, &'static str),
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> DirError {
    let path = path.to_owned();
    move |source| DirError::Io {
        action,
        path,
        source,
    }
}

/// Where the runtime directory is: as given, SHELLWARD_RUNTIME_DIR, or the default of design.md.
///
/// # Errors
/// Nothing says where.
pub fn runtime_dir(given: Option<PathBuf>) -> Result<PathBuf, DirError> {
    if let Some(path) = given.or_else(|| variable(RUNTIME_DIR_VARIABLE)) {
        return Ok(path);
    }
    if geteuid().is_root() {
        return Ok(PathBuf::from("/run/shellward"));
    }
    variable("XDG_RUNTIME_DIR")
        .map(|dir| dir.join("shellward"))
        .ok_or(DirError::Unknown(
            "XDG_RUNTIME_DIR",
            "other default",
            "runtime-dir",
        ))
}

/// Where the state directory is: as given, or the default for this user.
///
/// # Errors
/// Nothing says where.
pub fn state_dir(given: Option<PathBuf>) -> Result<PathBuf, DirError> {
    if let Some(path) = given {
        return Ok(path);
    }
    if geteuid().is_root() {
        return Ok(PathBuf::from("/var/lib/shellward"));
    }
    variable("XDG_STATE_HOME")
        .or_else(|| variable("HOME").map(|home| home.join(".local/state")))
        .map(|dir| dir.join("shellward"))
        .ok_or(DirError::Unknown("HOME", "XDG_STATE_HOME", "state-dir"))
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// Makes `path` if it is missing and makes sure that it is private to this user.
///
/// # Errors
/// It cannot be made, or it is not private.
pub fn private_dir(path: &Path) -> Result<(), DirError> {
    if let Some(parent) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)
            .map_err(io_error("make the directory", parent))?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(io_error("make the directory", path)(error));
        }
        _ => {}
    }
    // Not through a link: whoever owns the link could turn it.
    let found = fs::symlink_metadata(path).map_err(io_error("look at", path))?;
    if !found.is_dir() || found.uid() != geteuid().as_raw() || found.mode() & 0o077 != 0 {
        return Err(DirError::NotPrivate(path.to_owned()));
    }
    Ok(())
}

/// A runtime directory that this process alone serves, until it is dropped or the process ends.
#[derive(Debug)]
pub struct RuntimeDir {
    path: PathBuf,
    _lock: Flock<File>,
}

impl RuntimeDir {
    /// Makes and locks the directory.
    ///
    /// # Errors
    /// It is too long, not private, or another supervisor's.
    pub fn open(path: &Path) -> Result<Self, DirError> {
        let path = std::path::absolute(path).map_err(io_error("find", path))?;
        let length = path.as_os_str().len() + LONGEST_NAME;
        if length > SOCKET_PATH_BYTES {
            return Err(DirError::TooLong {
                over: length - SOCKET_PATH_BYTES,
                path,
            });
        }
        private_dir(&path)?;
        let lock_path = path.join("lock");
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock_path)
            .map_err(io_error("open", &lock_path))?;
        // The kernel drops the lock with its holder, so a crash leaves nothing to clean up.
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock)
            .map_err(|_| DirError::Taken(path.clone()))?;
        let this = Self { path, _lock: lock };
        private_dir(&this.worker_sockets())?;
        Ok(this)
    }

    /// Where the workers' sockets are: a directory for each wire version.
    #[must_use]
    pub fn worker_sockets(&self) -> PathBuf {
        self.path.join(format!("w{WIRE_VERSION}"))
    }

    /// The client socket inside.
    #[must_use]
    pub fn client_socket(&self) -> PathBuf {
        client_socket(&self.path)
    }

    /// Where clients are remembered. It stays at an orderly end: they come back to the next host.
    #[must_use]
    pub fn clients_file(&self) -> PathBuf {
        self.path.join("clients.json")
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes what is in it, at an orderly end. The directory and its lock stay: removing a lock
    /// file that somebody is about to lock would let two hold it.
    pub fn clean(&self) {
        let sockets = self.worker_sockets();
        // None is being started any more.
        remove_lone_tokens(&sockets, Duration::ZERO);
        if let Err(error) = fs::remove_dir(&sockets) {
            tracing::debug!(%error, "the directory of the workers' sockets stays");
        }
    }
}

/// Removes the tokens of workers that were killed before they had a socket: those beside which there
/// is none although they are as old as this.
pub(crate) fn remove_lone_tokens(sockets: &Path, age: Duration) {
    for entry in fs::read_dir(sockets).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_token = path.extension().is_some_and(|kind| kind == "token");
        if !is_token || path.with_extension("sock").symlink_metadata().is_ok() {
            continue;
        }
        // A clock that was set back since says nothing of its age: it is taken for new.
        let written = entry.metadata().and_then(|found| found.modified());
        let is_old = written.is_ok_and(|at| at.elapsed().unwrap_or_default() >= age);
        if is_old && let Err(error) = fs::remove_file(&path) {
            tracing::debug!(%error, "a token without a worker stays");
        }
    }
}

/// The client socket of a runtime directory.
#[must_use]
pub fn client_socket(runtime_dir: &Path) -> PathBuf {
    runtime_dir.join("ahp.sock")
}

/// Counts this start: the larger of the numbers in the `epoch` files of both directories, plus one,
/// written back before anybody sees it. Clients know the state directory's, workers the runtime
/// directory's; either may be lost or be another one than before.
///
/// # Errors
/// A file cannot be read or replaced.
pub fn next_epoch(state_dir: &Path, runtime_dir: &Path) -> Result<u64, DirError> {
    let last = read_epoch(state_dir)?.max(read_epoch(runtime_dir)?);
    // Below 2^21, so that epoch × 2^32 stays an exact JavaScript number (2^53).
    let epoch = (last % ((1 << 21) - 1)) + 1;
    for directory in [state_dir, runtime_dir] {
        write_epoch(directory, epoch)?;
    }
    Ok(epoch)
}

fn read_epoch(directory: &Path) -> Result<u64, DirError> {
    let path = directory.join("epoch");
    let mut bytes = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(32).read_to_end(&mut bytes));
    match read {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(source) => return Err(DirError::Epoch { path, source }),
    }
    // A damaged file (an empty one, after the machine lost its power) must not make serverSeq go
    // back: the hours since 1970 are far ahead of any count of starts.
    let text = std::str::from_utf8(&bytes).ok();
    let last = text.and_then(|text| text.trim().parse::<u64>().ok());
    Ok(last.unwrap_or_else(|| hours_of(SystemTime::now())))
}

fn write_epoch(directory: &Path, epoch: u64) -> Result<(), DirError> {
    let path = directory.join("epoch");
    let new = directory.join("epoch.new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)
        .map_err(io_error("write", &new))?;
    writeln!(file, "{epoch}").map_err(io_error("write", &new))?;
    fs::rename(&new, &path).map_err(io_error("replace", &path))
}

/// Hours since 1970: they stay below 2^21 until the year 2209.
fn hours_of(now: SystemTime) -> u64 {
    now.duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |elapsed| elapsed.as_secs() / 3600)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn the_epoch_only_grows() {
        let dir = tempfile::tempdir().unwrap();
        let run = tempfile::tempdir().unwrap();
        let next_epoch = |state| next_epoch(state, run.path());
        assert_eq!(next_epoch(dir.path()).unwrap(), 1);
        assert_eq!(next_epoch(dir.path()).unwrap(), 2);
        let other = tempfile::tempdir().unwrap();
        assert_eq!(
            next_epoch(other.path()).unwrap(),
            3,
            "another state directory"
        );
        assert_eq!(next_epoch(dir.path()).unwrap(), 4);
        fs::remove_file(run.path().join("epoch")).unwrap();
        // More starts than one every half hour for ten years.
        let many = 10 * 365 * 48;
        for damage in [
            &b"rubbish"[..],
            b"",
            b"-1",
            b"99999999999999999999999",
            b"\xff\xfe",
        ] {
            fs::remove_file(run.path().join("epoch")).ok();
            fs::write(dir.path().join("epoch"), damage).unwrap();
            let epoch = next_epoch(dir.path()).unwrap();
            assert!(epoch > many, "{damage:?}: {epoch}");
            assert_eq!(next_epoch(dir.path()).unwrap(), epoch + 1);
        }
    }

    #[test]
    fn an_epoch_that_cannot_be_read_says_what_to_do() {
        let [state, run] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        fs::create_dir(state.path().join("epoch")).unwrap();
        let error = next_epoch(state.path(), run.path()).unwrap_err();
        assert!(matches!(error, DirError::Epoch { .. }));
        let words = error.to_string();
        let path = state.path().join("epoch").display().to_string();
        for said in [&path, "remove it", "snapshots"] {
            assert!(words.contains(said), "{words}");
        }
    }

    #[test]
    fn the_clock_counts_only_where_the_file_is_damaged_and_may_say_anything() {
        let at = |seconds: i64| {
            let span = Duration::from_secs(seconds.unsigned_abs());
            if seconds < 0 {
                SystemTime::UNIX_EPOCH - span
            } else {
                SystemTime::UNIX_EPOCH + span
            }
        };
        assert_eq!(hours_of(at(-1)), 0);
        assert_eq!(hours_of(at(0)), 0);
        assert_eq!(hours_of(at(1_796_000_000)), 498_888);
        assert!(hours_of(at(1_i64 << 32)) < (1 << 21) - 1);
        // With a file, no clock is looked at: there is none in what follows.
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("epoch"), "41\n").unwrap();
        let run = tempfile::tempdir().unwrap();
        assert_eq!(next_epoch(dir.path(), run.path()).unwrap(), 42);
    }

    #[test]
    fn one_supervisor_serves_a_runtime_directory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let first = RuntimeDir::open(&path).unwrap();
        assert!(matches!(RuntimeDir::open(&path), Err(DirError::Taken(_))));
        drop(first);
        assert!(RuntimeDir::open(&path).is_ok());
    }

    #[test]
    fn a_directory_that_others_can_enter_or_turn_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(
            RuntimeDir::open(&path),
            Err(DirError::NotPrivate(_))
        ));
        let link = dir.path().join("link");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        symlink(&path, &link).unwrap();
        assert!(matches!(
            RuntimeDir::open(&link),
            Err(DirError::NotPrivate(_))
        ));
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(RuntimeDir::open(&file).is_err());
        let long = dir.path().join("x".repeat(100));
        assert!(matches!(
            RuntimeDir::open(&long),
            Err(DirError::TooLong { .. })
        ));
    }
}
