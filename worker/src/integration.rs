//! Shell integration: our own scripts, put where a shell reads them at its start.
//!
//! What lives here: which shells, the files, how the shell is told to read them, the nonce. What
//! must not: the marks that the scripts print (`output`).
//!
//! A script's marks carry a nonce of this terminal. It is handed over through a FIFO beside the
//! script, which gives it to the first reader and then to nobody: so it is in no file, argument or
//! environment, where what the shell starts could find it (field case S-16).

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use crate::environment::Environment;

const BASH: &str = include_str!("integration/scripts/shellward.bash");
const ZSH: &str = include_str!("integration/scripts/shellward.zsh");
const FISH: &str = include_str!("integration/scripts/shellward.fish");

/// What marks of our own script carry.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Nonce(String);

impl Nonce {
    fn random() -> io::Result<Self> {
        let mut random = [0_u8; 16];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        Ok(Self(
            random.iter().map(|byte| format!("{byte:02x}")).collect(),
        ))
    }

    pub(crate) fn matches(&self, word: &str) -> bool {
        self.0 == word
    }

    #[cfg(test)]
    pub(crate) fn of(word: &str) -> Self {
        Self(word.to_owned())
    }
}

impl std::fmt::Debug for Nonce {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Nonce")
    }
}

/// A shell we have a script for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Shell {
    /// By the name of its program.
    pub(crate) fn of(program: &[u8]) -> Option<Self> {
        match Path::new(std::ffi::OsStr::from_bytes(program))
            .file_name()?
            .as_bytes()
        {
            b"bash" => Some(Self::Bash),
            b"zsh" => Some(Self::Zsh),
            b"fish" => Some(Self::Fish),
            _ => None,
        }
    }
}

/// A script in its place. The files go with it.
#[derive(Debug)]
pub(crate) struct Installed {
    pub(crate) nonce: Nonce,
    dir: PathBuf,
    /// Held open, so that the nonce waits in it.
    _fifo: File,
}

impl Drop for Installed {
    fn drop(&mut self) {
        // Somebody else removing it first is fine.
        std::fs::remove_dir_all(&self.dir).ok();
    }
}

/// Puts the script of `shell` into the new directory `dir`, and adds to what the shell is started
/// with so that it reads it.
pub(crate) fn install(
    shell: Shell,
    dir: &Path,
    argv: &mut Vec<Vec<u8>>,
    environment: &mut Environment,
) -> io::Result<Installed> {
    DirBuilder::new().mode(0o700).create(dir)?;
    // From here on the directory is removed, whatever happens.
    let mut installed = Installed {
        nonce: Nonce::random()?,
        dir: dir.to_owned(),
        _fifo: File::open("/dev/null")?,
    };
    installed._fifo = fill(&dir.join("nonce"), &installed.nonce)?;
    let path = dir.as_os_str().as_bytes();
    match shell {
        Shell::Bash => {
            let file = dir.join("bash");
            write(&file, &[BASH.as_bytes()])?;
            argv.extend([b"--rcfile".to_vec(), file.as_os_str().as_bytes().to_vec()]);
        }
        Shell::Zsh => {
            let before = environment.get(&b"ZDOTDIR"[..]);
            let header = match before {
                Some(value) => [
                    b"__shellward_zdotdir_set=1\n__shellward_zdotdir=".to_vec(),
                    quoted(value, b"'\\''", b"\\"),
                    b"\n".to_vec(),
                ]
                .concat(),
                None => b"__shellward_zdotdir_set=0\n".to_vec(),
            };
            write(&dir.join(".zshenv"), &[&header, ZSH.as_bytes()])?;
            environment.insert(b"ZDOTDIR".to_vec(), path.to_vec());
        }
        Shell::Fish => {
            let before = environment.get(&b"XDG_DATA_DIRS"[..]).cloned();
            let header = match &before {
                Some(value) => [
                    b"set -g __shellward_xdg ".to_vec(),
                    quoted(value, b"\\'", b"\\\\"),
                    b"\n".to_vec(),
                ]
                .concat(),
                None => Vec::new(),
            };
            let scripts = dir.join("fish/vendor_conf.d");
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&scripts)?;
            write(&scripts.join("shellward.fish"), &[&header, FISH.as_bytes()])?;
            let others = before.unwrap_or_else(|| b"/usr/local/share:/usr/share".to_vec());
            environment.insert(b"XDG_DATA_DIRS".to_vec(), [path, b":", &others].concat());
        }
    }
    Ok(installed)
}

fn fill(path: &Path, nonce: &Nonce) -> io::Result<File> {
    mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR)?;
    let mut fifo = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open(path)?;
    fifo.write_all(nonce.0.as_bytes())?;
    // fish has no time-out for reading. If another script has read ours, it finds an empty line and
    // does without.
    fifo.write_all(b"\n\n\n\n\n")?;
    Ok(fifo)
}

fn write(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    for part in parts {
        file.write_all(part)?;
    }
    Ok(())
}

/// In single quotes, with what the shell takes for a quote and a backslash inside them.
fn quoted(value: &[u8], quote: &[u8], backslash: &[u8]) -> Vec<u8> {
    let mut text = vec![b'\''];
    for byte in value {
        match byte {
            b'\'' => text.extend_from_slice(quote),
            b'\\' => text.extend_from_slice(backslash),
            other => text.push(*other),
        }
    }
    text.push(b'\'');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::os::unix::fs::PermissionsExt as _;

    fn installed(
        shell: Shell,
        variables: &[(&str, &str)],
    ) -> (Installed, Vec<String>, Environment, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let mut argv = vec![b"shell".to_vec()];
        let mut environment: Environment = variables
            .iter()
            .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
            .collect();
        let installed = install(shell, &dir.path().join("x.d"), &mut argv, &mut environment);
        let argv = argv
            .into_iter()
            .map(|word| String::from_utf8(word).unwrap());
        (installed.unwrap(), argv.collect(), environment, dir)
    }

    fn read(installed: &Installed, file: &str) -> String {
        let path = installed.dir.join(file);
        let mode = path.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{file} is nobody else's");
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn every_shell_is_told_where_its_script_is_and_nothing_secret() {
        let (bash, argv, environment, _bash) = installed(Shell::Bash, &[]);
        assert_eq!(
            argv[1..],
            [
                "--rcfile".to_owned(),
                bash.dir.join("bash").display().to_string()
            ]
        );
        assert_eq!(environment.len(), 0);
        assert_eq!(read(&bash, "bash"), BASH);

        let (zsh, argv, environment, _zsh) = installed(Shell::Zsh, &[]);
        assert_eq!(argv.len(), 1);
        assert_eq!(environment[&b"ZDOTDIR"[..]], zsh.dir.as_os_str().as_bytes());
        assert!(read(&zsh, ".zshenv").starts_with("__shellward_zdotdir_set=0\n"));

        let (fish, argv, environment, _fish) = installed(Shell::Fish, &[]);
        assert_eq!(argv.len(), 1);
        let dirs = format!("{}:/usr/local/share:/usr/share", fish.dir.display());
        assert_eq!(environment[&b"XDG_DATA_DIRS"[..]], dirs.as_bytes());
        assert_eq!(read(&fish, "fish/vendor_conf.d/shellward.fish"), FISH);
        for installed in [&bash, &zsh, &fish] {
            let secret = installed.nonce.0.as_bytes();
            assert_eq!(secret.len(), 32);
            let is_in = |bytes: &[u8]| bytes.windows(32).any(|window| window == secret);
            assert!(!environment.values().any(|value| is_in(value)));
            assert_eq!(format!("{:?}", installed.nonce), "Nonce");
        }
    }

    #[test]
    fn what_a_variable_was_is_quoted_for_the_shell() {
        let value = "/a'b\\c d$e";
        let (zsh, _, _, _zsh) = installed(Shell::Zsh, &[("ZDOTDIR", value)]);
        let header = "__shellward_zdotdir_set=1\n__shellward_zdotdir='/a'\\''b\\c d$e'\n";
        assert!(read(&zsh, ".zshenv").starts_with(header));
        let (fish, _, environment, _fish) = installed(Shell::Fish, &[("XDG_DATA_DIRS", value)]);
        let header = "set -g __shellward_xdg '/a\\'b\\\\c d$e'\n";
        assert!(read(&fish, "fish/vendor_conf.d/shellward.fish").starts_with(header));
        let dirs = format!("{}:{value}", fish.dir.display());
        assert_eq!(environment[&b"XDG_DATA_DIRS"[..]], dirs.as_bytes());
    }

    #[test]
    fn the_secret_is_given_once_and_the_files_go_with_their_owner() {
        let (bash, _, _, _above) = installed(Shell::Bash, &[]);
        let dir = bash.dir.clone();
        let mut fifo = OpenOptions::new()
            .read(true)
            .custom_flags(nix::libc::O_NONBLOCK)
            .open(dir.join("nonce"))
            .unwrap();
        let mut bytes = [0; 100];
        let n = fifo.read(&mut bytes).unwrap();
        let text = std::str::from_utf8(&bytes[..n]).unwrap();
        assert_eq!(text.trim_end(), bash.nonce.0);
        assert!(text.ends_with("\n\n"), "a second reader does not wait");
        assert!(fifo.read(&mut bytes).is_err(), "and gets nothing");
        drop(bash);
        assert!(!dir.exists());
    }

    #[test]
    fn a_directory_that_is_there_already_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("mine"), "x").unwrap();
        let result = install(
            Shell::Bash,
            dir.path(),
            &mut Vec::new(),
            &mut Environment::new(),
        );
        assert!(result.is_err());
        assert!(dir.path().join("mine").exists());
    }

    #[test]
    fn shells_are_known_by_their_program() {
        assert_eq!(Shell::of(b"/usr/bin/zsh"), Some(Shell::Zsh));
        assert_eq!(Shell::of(b"/bin/bash"), Some(Shell::Bash));
        assert_eq!(Shell::of(b"/x/fish"), Some(Shell::Fish));
        for other in [&b"/bin/sh"[..], b"/bin/rbash", b"/bin/dash", b"/", b""] {
            assert_eq!(Shell::of(other), None);
        }
    }
}
