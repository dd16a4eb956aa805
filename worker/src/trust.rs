//! Whether a file may be loaded as code: could anybody but root or this user have put it there?
//!
//! What lives here: following a path by hand and looking at every step. What must not: loading.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use crate::escape::escaped;

/// As many symbolic links as the kernel follows.
const LINKS_MAX: usize = 40;

const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Why a file is not loaded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Distrust {
    /// The path, or a link on its way, says nothing definite.
    #[error("{} is not an absolute path", show(.0))]
    NotAbsolute(PathBuf),
    /// It is a directory, a pipe, a device.
    #[error("{} is not a regular file", show(.0))]
    NotAFile(PathBuf),
    /// Its owner could change it.
    #[error("{} belongs to user {owner}, not to root or user {me}", show(path))]
    Owner { path: PathBuf, owner: u32, me: u32 },
    /// Others could change it, or what lies in it.
    #[error("{} can be written by {} (mode {mode:04o})", show(path), who(*mode))]
    Writable { path: PathBuf, mode: u32 },
    /// It is not there, or may not be looked at.
    #[error("{}: {}", show(path), crate::terminal::pty::words_of(source))]
    Unreadable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

fn show(path: &Path) -> String {
    escaped(path.as_os_str().as_bytes())
}

fn who(mode: u32) -> &'static str {
    if mode & 0o002 != 0 {
        "everybody"
    } else {
        "its group"
    }
}

/// The file that `path` leads to, free of links, if nobody but root and the user `me` can decide
/// what it is.
///
/// The answer stays true until it is used, since only those two can change any step of it.
pub(crate) fn resolve(path: &Path, me: u32) -> Result<PathBuf, Distrust> {
    if !path.is_absolute() {
        return Err(Distrust::NotAbsolute(path.to_owned()));
    }
    let mut ahead: VecDeque<OsString> = parts(path).collect();
    let mut at = PathBuf::from("/");
    let mut links = 0;
    let mut meta = look(&at)?;
    while let Some(part) = ahead.pop_front() {
        if part == ".." {
            at.pop();
            meta = look(&at)?;
            continue;
        }
        let next = at.join(&part);
        let inner = look(&next)?;
        check_directory(&at, &meta, &inner, me)?;
        if inner.is_symlink() {
            links += 1;
            if links > LINKS_MAX {
                let source = io::Error::from_raw_os_error(libc::ELOOP);
                let path = path.to_owned();
                return Err(Distrust::Unreadable { path, source });
            }
            // The link itself is as good as the directory it lies in, which was just looked at.
            let target = fs::read_link(&next).map_err(|source| Distrust::Unreadable {
                path: next.clone(),
                source,
            })?;
            if target.is_absolute() {
                at = PathBuf::from("/");
                meta = look(&at)?;
            }
            for part in parts(&target).collect::<Vec<_>>().into_iter().rev() {
                ahead.push_front(part);
            }
            continue;
        }
        at = next;
        meta = inner;
    }
    if !meta.is_file() {
        return Err(Distrust::NotAFile(at));
    }
    check_owner(&at, &meta, me)?;
    check_mode(&at, &meta)?;
    Ok(at)
}

fn parts(path: &Path) -> impl Iterator<Item = OsString> + '_ {
    path.components().filter_map(|component| match component {
        Component::Normal(part) => Some(part.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        _ => None,
    })
}

fn look(path: &Path) -> Result<Metadata, Distrust> {
    fs::symlink_metadata(path).map_err(|source| Distrust::Unreadable {
        path: path.to_owned(),
        source,
    })
}

/// Whether others could put something else in the place of `inner`, which lies in `dir`.
fn check_directory(dir: &Path, meta: &Metadata, inner: &Metadata, me: u32) -> Result<(), Distrust> {
    check_owner(dir, meta, me)?;
    // In a sticky directory only the owner of a file, or of the directory, can replace it.
    let is_kept = meta.mode() & STICKY != 0 && meta.uid() == 0 && is_trusted(inner, me);
    if is_kept {
        return Ok(());
    }
    check_mode(dir, meta)
}

fn is_trusted(meta: &Metadata, me: u32) -> bool {
    meta.uid() == 0 || meta.uid() == me
}

fn check_owner(path: &Path, meta: &Metadata, me: u32) -> Result<(), Distrust> {
    if is_trusted(meta, me) {
        return Ok(());
    }
    Err(Distrust::Owner {
        path: path.to_owned(),
        owner: meta.uid(),
        me,
    })
}

fn check_mode(path: &Path, meta: &Metadata) -> Result<(), Distrust> {
    if meta.mode() & WRITABLE_BY_OTHERS == 0 {
        return Ok(());
    }
    Err(Distrust::Writable {
        path: path.to_owned(),
        mode: meta.mode() & 0o7777,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn me() -> u32 {
        nix::unistd::geteuid().as_raw()
    }

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A directory with a file in it that may be loaded; /tmp is sticky and root's.
    fn place() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        mode(dir.path(), 0o755);
        let file = dir.path().join("lib.so");
        fs::write(&file, "x").unwrap();
        mode(&file, 0o644);
        (dir, file)
    }

    fn refusal(path: &Path) -> String {
        resolve(path, me()).unwrap_err().to_string()
    }

    #[test]
    fn own_file_in_a_sticky_directory_of_root_is_trusted() {
        let (_dir, file) = place();
        assert_eq!(resolve(&file, me()).unwrap(), file.canonicalize().unwrap());
    }

    #[test]
    fn writable_file_is_named() {
        let (_dir, file) = place();
        mode(&file, 0o666);
        assert!(refusal(&file).ends_with("lib.so can be written by everybody (mode 0666)"));
        mode(&file, 0o664);
        assert!(refusal(&file).ends_with("lib.so can be written by its group (mode 0664)"));
    }

    #[test]
    fn writable_directory_above_is_named() {
        let (dir, file) = place();
        let inner = dir.path().join("inner");
        fs::create_dir(&inner).unwrap();
        let moved = inner.join("lib.so");
        fs::rename(&file, &moved).unwrap();
        mode(dir.path(), 0o777);
        let words = refusal(&moved);
        assert!(words.starts_with(dir.path().to_str().unwrap()), "{words}");
        assert!(words.contains("written by everybody"), "{words}");
        // Sticky, but its owner decides: only root's are accepted.
        mode(dir.path(), 0o1777);
        assert_eq!(resolve(&moved, me()).is_ok(), me() == 0);
        mode(dir.path(), 0o755);
        mode(&inner, 0o775);
        assert!(refusal(&moved).contains("inner can be written by its group"));
    }

    #[test]
    fn every_step_of_a_link_is_looked_at() {
        let (dir, file) = place();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        let (first, second) = (dir.path().join("first"), open.join("second"));
        symlink(&second, &first).unwrap();
        symlink("../lib.so", &second).unwrap();
        mode(&open, 0o755);
        assert_eq!(resolve(&first, me()).unwrap(), file.canonicalize().unwrap());
        mode(&open, 0o777);
        assert!(refusal(&first).contains("open can be written by everybody"));
    }

    #[test]
    fn link_in_a_circle_ends() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("a");
        symlink("a", &link).unwrap();
        assert!(refusal(&link).contains("symbolic links"));
    }

    #[test]
    fn what_is_no_file_and_no_absolute_path_is_refused() {
        assert_eq!(
            refusal(Path::new("lib.so")),
            "lib.so is not an absolute path"
        );
        assert_eq!(
            refusal(Path::new("/dev/null")),
            "/dev/null is not a regular file"
        );
        assert_eq!(
            refusal(Path::new("/usr/lib")),
            "/usr/lib is not a regular file"
        );
        assert_eq!(
            refusal(Path::new("/no/such/lib.so")),
            "/no: No such file or directory"
        );
    }

    #[test]
    fn file_of_somebody_else_is_refused() {
        let (_dir, file) = place();
        if me() == 0 {
            std::os::unix::fs::chown(&file, Some(1234), None).unwrap();
            assert!(refusal(&file).ends_with("belongs to user 1234, not to root or user 0"));
        } else {
            assert!(resolve(&file, me() + 1).is_err());
        }
    }
}
