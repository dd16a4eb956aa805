//! The connection token: who holds it may connect.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::limits::TOKEN_BYTES;

/// A secret. It has no `Debug` and no `Display`, so it cannot get into a log by accident.
pub struct ConnectionToken(Zeroizing<Vec<u8>>);

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read or made.
    #[error("cannot read or make the token file {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Other people can read it.
    #[error("the token file {0} can be read by others; run: chmod 600 {0}")]
    Readable(PathBuf),
    /// The file holds none.
    #[error(
        "the token file {0} holds no usable token (1 to {TOKEN_BYTES} visible ASCII characters); remove it to have a new one made"
    )]
    BadFile(PathBuf),
    /// Empty, too long, or not one line of visible ASCII.
    #[error("a connection token must have 1 to {TOKEN_BYTES} visible ASCII characters")]
    Unusable,
}

impl ConnectionToken {
    /// Takes a token as given; surrounding white space does not count.
    ///
    /// # Errors
    /// [`TokenError::Unusable`]
    pub fn new(text: &[u8]) -> Result<Self, TokenError> {
        let text = text.trim_ascii();
        let usable =
            !text.is_empty() && text.len() <= TOKEN_BYTES && text.iter().all(u8::is_ascii_graphic);
        if usable {
            Ok(Self(Zeroizing::new(text.to_vec())))
        } else {
            Err(TokenError::Unusable)
        }
    }

    /// Reads a token file that the operator keeps.
    ///
    /// # Errors
    /// It is missing, readable by others, or holds no usable token.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let failed = |source| TokenError::File {
            path: path.to_owned(),
            source,
        };
        let file = fs::File::open(path).map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.mode();
        if mode & 0o077 != 0 {
            return Err(TokenError::Readable(path.to_owned()));
        }
        let mut text = Zeroizing::new(Vec::new());
        file.take(TOKEN_BYTES as u64 + 16)
            .read_to_end(&mut text)
            .map_err(failed)?;
        Self::new(&text).map_err(|_| TokenError::BadFile(path.to_owned()))
    }

    /// Reads the token file, or makes it with a new random token.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_or_make(path: &Path) -> Result<Self, TokenError> {
        let failed = |source| TokenError::File {
            path: path.to_owned(),
            source,
        };
        let mut random = Zeroizing::new([0_u8; 32]);
        getrandom::fill(&mut *random).map_err(|error| failed(io::Error::other(error)))?;
        let mut text = Zeroizing::new(String::with_capacity(65));
        for byte in random.iter() {
            use std::fmt::Write as _;
            // Writing to a string cannot fail.
            if write!(text, "{byte:02x}").is_err() {
                return Err(TokenError::Unusable);
            }
        }
        if path.exists() {
            return Self::read(path);
        }
        // Written beside its place and put there whole: where the disk is full, or we are killed
        // here, no half token is left for the next start to find.
        let new = path.with_extension(format!("{}.new", std::process::id()));
        let made = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&new)
            .and_then(|mut file| {
                file.write_all(text.as_bytes())?;
                file.write_all(b"\n")?;
                fs::hard_link(&new, path)
            });
        // There is a better one, or there is none; either way it is not wanted any more.
        fs::remove_file(&new).ok();
        match made {
            Ok(()) => Self::new(text.as_bytes()),
            // Somebody with the same state directory was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Self::read(path),
            Err(error) => Err(failed(error)),
        }
    }

    /// Whether guessing it is not hopeless: fewer characters than 64 random bits need.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.0.len() < 16
    }

    /// Whether `presented` is this token, in time that depends on its length only.
    #[must_use]
    pub fn matches(&self, presented: &[u8]) -> bool {
        self.0.ct_eq(presented).into()
    }
}

impl std::fmt::Debug for ConnectionToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ConnectionToken(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_token_is_private_and_stays_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let made = ConnectionToken::read_or_make(&path).unwrap();
        let text = fs::read(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(made.matches(text.trim_ascii()));
        assert!(!made.matches(b"x") && !made.matches(b""));
        assert!(
            ConnectionToken::read_or_make(&path)
                .unwrap()
                .matches(text.trim_ascii())
        );
        assert_eq!(format!("{made:?}"), "ConnectionToken(…)");
    }

    #[test]
    fn a_readable_empty_or_strange_file_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        fs::write(&path, "secret\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(
            ConnectionToken::read(&path),
            Err(TokenError::Readable(_))
        ));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(ConnectionToken::read(&path).unwrap().matches(b"secret"));
        for bad in [
            &b""[..],
            b"  \n",
            b"a b",
            b"a\nb",
            &[b'x'; TOKEN_BYTES + 1],
            b"\xff",
        ] {
            fs::write(&path, bad).unwrap();
            assert!(
                matches!(ConnectionToken::read(&path), Err(TokenError::BadFile(_))),
                "{bad:?}"
            );
        }
    }
}
