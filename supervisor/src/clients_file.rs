//! The file in the runtime directory by which clients survive the host.
//!
//! It holds no secret. Written whole beside its place and renamed, so that a host that is killed
//! leaves the old one or the new one. What cannot be read is as if it were not there: its clients
//! have to initialize again, which every client can.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::core::Remembered;
use crate::limits::CLIENTS_FILE_BYTES;

/// The whole file.
#[derive(Serialize, Deserialize)]
struct Contents {
    /// Newest first.
    clients: Vec<Remembered>,
}

/// The file, and whose turn it is to write it.
#[derive(Debug)]
pub struct ClientsFile {
    path: PathBuf,
    turn: Mutex<()>,
}

impl ClientsFile {
    /// The file at this place; there may be none yet.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self {
            path,
            turn: Mutex::default(),
        }
    }

    /// What is in it.
    #[must_use]
    pub fn load(&self) -> Vec<Remembered> {
        match read(&self.path) {
            Ok(clients) => clients,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => {
                tracing::warn!(file = %self.path.display(), %error, "clients of the last host are forgotten; they have to initialize again");
                Vec::new()
            }
        }
    }

    /// Replaces it by what `clients` says when it is our turn.
    pub fn save(&self, clients: impl FnOnce() -> Vec<Remembered>) {
        // Asked inside, so that who writes last writes the newest.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = write(&self.path, clients()) {
            tracing::warn!(file = %self.path.display(), %error, "clients will not be known to the next host");
        }
    }
}

fn read(path: &Path) -> io::Result<Vec<Remembered>> {
    // Opening a pipe would wait for its other end.
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(io::Error::other("not a file"));
    }
    let mut text = String::new();
    let limit = CLIENTS_FILE_BYTES as u64 + 1;
    File::open(path)?.take(limit).read_to_string(&mut text)?;
    if text.len() > CLIENTS_FILE_BYTES {
        return Err(io::Error::other("too large"));
    }
    Ok(serde_json::from_str::<Contents>(&text)?.clients)
}

fn write(path: &Path, mut clients: Vec<Remembered>) -> io::Result<()> {
    let text = loop {
        let contents = Contents { clients };
        let text = serde_json::to_string(&contents)?;
        clients = contents.clients;
        if text.len() <= CLIENTS_FILE_BYTES || clients.is_empty() {
            break text;
        }
        clients.truncate(clients.len() / 2);
    };
    let new = path.with_extension("new");
    // A leftover of a host that was killed here, whatever it is.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Principal;
    use std::os::unix::fs::PermissionsExt as _;

    fn client(id: String, shell: Option<String>) -> Remembered {
        Remembered {
            client_id: id,
            version: "0.9.0".to_owned(),
            default_shell: shell,
            principal: Principal::Uid(7),
        }
    }

    #[test]
    fn what_was_saved_is_loaded_and_only_ours() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("clients.json");
        let file = ClientsFile::new(path.clone());
        assert_eq!(file.load(), []);
        let clients = vec![
            client("a\"".into(), Some("/bin/sh".into())),
            client("b".into(), None),
        ];
        fs::write(path.with_extension("new"), "left over").unwrap();
        file.save(|| clients.clone());
        assert_eq!(file.load(), clients);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            r#"{"clients":[{"clientId":"a\"","version":"0.9.0","defaultShell":"/bin/sh","principal":{"uid":7}},{"clientId":"b","version":"0.9.0","principal":{"uid":7}}]}"#
        );
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_cannot_be_read_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("clients.json");
        let file = ClientsFile::new(path.clone());
        for text in [
            "",
            "nonsense",
            "{}",
            r#"{"clients":[{"clientId":"a"}]}"#,
            r#"{"clients":[{"clientId":"a","version":"1.0.0","principal":"king"}]}"#,
            "\u{0}",
            &" ".repeat(CLIENTS_FILE_BYTES + 1),
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(file.load(), []);
        }
        fs::write(&path, [0xff]).unwrap();
        assert_eq!(file.load(), []);
        // Members that a later version added are ignored.
        fs::write(
            &path,
            r#"{"x":1,"clients":[{"clientId":"a","version":"1.0.0","principal":"token","y":[]}]}"#,
        )
        .unwrap();
        assert_eq!(file.load().len(), 1);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(file.load(), []);
        file.save(Vec::new);
        assert!(path.is_dir(), "and what cannot be written is no accident");
    }

    #[test]
    fn the_oldest_give_way_where_the_file_would_be_too_large() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("clients.json");
        let file = ClientsFile::new(path.clone());
        let shell = "x".repeat(4096);
        file.save(|| {
            let ids = 0..crate::limits::REMEMBERED_CLIENTS;
            ids.map(|n| client(n.to_string(), Some(shell.clone())))
                .collect()
        });
        let left = file.load();
        assert!(left.len() >= 100 && left[0].client_id == "0");
    }
}
