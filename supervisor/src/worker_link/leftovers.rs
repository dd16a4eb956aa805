//! The files of a worker that was killed. One that ends by itself removes them itself.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

/// The most entries that are removed. A worker makes about ten; whatever runs in its terminal could
/// have made more, which are left to the person who looks.
const ENTRIES: usize = 256;
/// How deep they may lie. A worker's own lie three deep.
const DEPTH: usize = 8;

/// Removes a worker's socket, its token, and the directory beside them that holds what its shell
/// starts with.
pub(super) fn remove(socket: &Path) {
    // A socket is called after its terminal's id.
    let terminal = socket.file_stem().unwrap_or_default().display();
    for path in [socket, &token_file::path(socket)] {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%terminal, %error, path = %path.display(), "a file of a dead worker cannot be removed");
            }
            _ => {}
        }
    }
    let mut name = socket.as_os_str().as_bytes().to_vec();
    name.extend_from_slice(b".d");
    let Ok(name) = CString::new(name) else {
        return;
    };
    let mut left = ENTRIES;
    match remove_entry(AT_FDCWD, &name, DEPTH, &mut left) {
        Err(error) if error != Errno::ENOENT => {
            tracing::warn!(%terminal, %error, "the files of a dead worker's shell cannot be removed");
        }
        _ => {}
    }
}

/// Removes whatever `name` is, and what is in it, by descriptors: a link is removed, never followed.
fn remove_entry(parent: impl AsFd, name: &CStr, depth: usize, left: &mut usize) -> nix::Result<()> {
    match unlinkat(&parent, name, UnlinkatFlags::NoRemoveDir) {
        Err(Errno::EISDIR) => {}
        result => return result,
    }
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut directory = Dir::openat(&parent, name, flags, Mode::empty())?;
    let depth = depth.checked_sub(1).ok_or(Errno::E2BIG)?;
    let mut names = Vec::new();
    for entry in directory.iter() {
        let name = entry?.file_name().to_owned();
        if matches!(name.as_bytes(), b"." | b"..") {
            continue;
        }
        *left = left.checked_sub(1).ok_or(Errno::E2BIG)?;
        names.push(name);
    }
    for name in &names {
        remove_entry(&directory, name, depth, left)?;
    }
    unlinkat(&parent, name, UnlinkatFlags::RemoveDir)
}

/// The file beside a worker's socket with the token that attaches to it. The directory is private,
/// and so is the file.
pub(super) mod token_file {
    use std::fs::OpenOptions;
    use std::io::{self, Read as _, Write as _};
    use std::os::unix::fs::OpenOptionsExt as _;
    use std::path::{Path, PathBuf};

    use nix::fcntl::OFlag;
    use shellward_protocol::AttachToken;
    use zeroize::Zeroizing;

    pub fn path(socket: &Path) -> PathBuf {
        socket.with_extension("token")
    }

    /// Writes a new one.
    pub fn write(socket: &Path, token: &AttachToken) -> io::Result<()> {
        let path = path(socket);
        let written = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| file.write_all(token.expose()));
        written.map_err(|error| {
            // Half a token helps nobody; if there was another one, it stays.
            if error.kind() != io::ErrorKind::AlreadyExists {
                std::fs::remove_file(&path).ok();
            }
            let kind = error.kind();
            io::Error::new(
                kind,
                format!("its token cannot be written to {}: {error}", path.display()),
            )
        })
    }

    /// Reads the one that was left.
    pub fn read(socket: &Path) -> io::Result<AttachToken> {
        let mut bytes = Zeroizing::new(Vec::new());
        OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
            .open(path(socket))?
            .take(AttachToken::LEN as u64 + 1)
            .read_to_end(&mut bytes)?;
        let token = <[u8; AttachToken::LEN]>::try_from(bytes.as_slice())
            .map_err(|_| io::Error::other("its token file has the wrong length"))?;
        Ok(AttachToken::new(token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_files_of_a_dead_worker_go_and_nothing_behind_a_link_does() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("precious"), "").unwrap();
        let socket = dir.path().join("x.sock");
        fs::write(&socket, "").unwrap();
        let own = dir.path().join("x.sock.d");
        fs::create_dir_all(own.join("a/b/c")).unwrap();
        fs::write(own.join("a/b/c/file"), "").unwrap();
        symlink(&outside, own.join("a/link")).unwrap();
        symlink(outside.join("precious"), own.join("file-link")).unwrap();
        remove(&socket);
        assert!(!socket.exists() && !own.exists());
        assert!(outside.join("precious").exists());
        // A link in its place, or nothing at all.
        symlink(&outside, &own).unwrap();
        remove(&socket);
        assert!(outside.join("precious").exists() && !own.is_symlink());
        remove(&socket);
    }

    #[test]
    fn what_is_too_much_or_too_deep_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("x.sock.d");
        fs::create_dir(&own).unwrap();
        for number in 0..=ENTRIES {
            fs::write(own.join(number.to_string()), "").unwrap();
        }
        remove(&dir.path().join("x.sock"));
        assert_eq!(fs::read_dir(&own).unwrap().count(), ENTRIES + 1);
        let deep = dir.path().join("y.sock.d");
        fs::create_dir_all(deep.join("1/2/3/4/5/6/7/8/9/10")).unwrap();
        remove(&dir.path().join("y.sock"));
        assert!(deep.join("1/2/3/4/5/6/7/8/9/10").exists());
    }
}
