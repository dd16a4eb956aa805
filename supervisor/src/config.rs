//! What the operator decides: flags over a TOML file over defaults.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::Deserialize;

mod choices;

pub use choices::{Claims, From, LogFormat, MarksMode, OnExit, PtyMode, Restart, ShellIntegration};

/// The flags of `shellward serve`. The configuration file has the same names as keys.
#[derive(Debug, Default, Clone, Args, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ServeArgs {
    /// Read further settings from this TOML file; its keys are these flags' names
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// Where clients connect: HOST:PORT (port 0 picks one) or unix:PATH; repeat for more. Besides,
    /// there always is unix:RUNTIME_DIR/ahp.sock, for the other commands [default: 127.0.0.1:9190]
    #[arg(long, value_name = "ADDR")]
    #[serde(default)]
    pub listen: Vec<String>,
    /// The secret that TCP clients present. Other users can see it in the process list; prefer
    /// --connection-token-file
    #[arg(long, value_name = "TOKEN", group = "token")]
    pub connection_token: Option<String>,
    /// A file with that secret, readable by you alone [default: generated in the state directory]
    #[arg(long, value_name = "FILE", group = "token")]
    pub connection_token_file: Option<PathBuf>,
    /// Let anybody on this machine connect; only possible on loopback
    #[arg(long, group = "token")]
    #[serde(default)]
    pub without_connection_token: bool,
    /// Let web pages of this origin connect, e.g. https://vscode.example; repeat for more
    #[arg(long, value_name = "ORIGIN")]
    #[serde(default)]
    pub allow_origin: Vec<String>,
    /// A name by which clients reach this host, besides its addresses and localhost; repeat for more
    #[arg(long, value_name = "NAME")]
    #[serde(default)]
    pub allow_host: Vec<String>,
    /// Where terminals start that name no directory [default: where serve was started]
    #[arg(long, value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// What terminals run [default: $SHELL, else the account's shell]
    #[arg(long, value_name = "PATH")]
    pub shell: Option<PathBuf>,
    /// Whether terminals sit on ptys [default: auto]
    #[arg(long, value_enum)]
    pub pty: Option<PtyMode>,
    /// A shared library that opens ptys (C ABI of worker/include/shellward_pty.h), by its absolute
    /// path [default: the built-in binding]
    #[arg(long, value_name = "LIB")]
    pub pty_binding: Option<PathBuf>,
    /// What becomes of the marks a shell prints about its prompts, commands and directory: strip takes
    /// them out of the output, as the protocol demands; keep leaves them in. They count either way
    /// [default: strip]
    #[arg(long, value_enum)]
    pub marks: Option<MarksMode>,
    /// Whether bash, zsh and fish are started with a script that marks their commands, so that
    /// clients are told where each begins and how it ended. Nobody's files are touched
    /// [default: auto]
    #[arg(long, value_enum)]
    pub shell_integration: Option<ShellIntegration>,
    /// A flag of every command, so it is declared with them ([`crate::cli::Cli`]).
    #[arg(skip)]
    pub runtime_dir: Option<PathBuf>,
    /// What must survive a restart goes here [default: ~/.local/state/shellward, as root
    /// /var/lib/shellward]
    #[arg(long, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// The worker program [default: shellward-worker beside this program]
    #[arg(long, value_name = "PATH")]
    pub worker: Option<PathBuf>,
    /// What happens to terminals when serve is told to end (TERM, INT). Whatever this says, they
    /// outlive a serve that is killed [default: dispose]
    #[arg(long, value_enum)]
    pub on_exit: Option<OnExit>,
    /// How long the output of a terminal that is being watched waits for the next serve when this one
    /// goes: seconds, or a number with s, m, h or d. After that it runs on, the oldest output giving
    /// way [default: 5s]
    #[arg(long, value_name = "TIME")]
    pub reattach_grace: Option<String>,
    /// How long terminals live without any serve: seconds, or a number with s, m, h or d [default: 1d]
    #[arg(long, value_name = "TIME")]
    pub orphan_timeout: Option<String>,
    /// Whether a terminal whose worker process crashes gets a new shell [default: never]
    #[arg(long, value_enum)]
    pub restart: Option<Restart>,
    /// How long an exited terminal is kept that nobody is subscribed to: seconds, or a number with
    /// s, m, h or d [default: 1h]
    #[arg(long, value_name = "TIME")]
    pub keep_exited: Option<String>,
    /// When ready, print one JSON line instead of a sentence
    #[arg(long)]
    #[serde(default)]
    pub ready_json: bool,
    /// How log lines on stderr look [default: text]
    #[arg(long, value_enum)]
    pub log: Option<LogFormat>,
    /// Who may take a terminal that a connected client holds [default: held]
    #[arg(long, value_enum)]
    pub claims: Option<Claims>,
    /// Who may type into a terminal [default: anyone]
    #[arg(long, value_enum)]
    pub input_from: Option<From>,
    /// Who may resize a terminal [default: anyone]
    #[arg(long, value_enum)]
    pub size_from: Option<From>,
}

/// Why the settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("the configuration file {path}: {detail}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong, with the line.
        detail: String,
    },
    /// A name of `--listen` is not known, now: it may be later.
    #[error("--listen {0:?}: no such address; write HOST:PORT, e.g. 127.0.0.1:9190, or unix:PATH")]
    NoAddress(String),
    /// A value makes no sense: wrong usage.
    #[error("--{flag} {value:?}: {reason}")]
    Value {
        /// The flag, or the key of the file.
        flag: &'static str,
        /// As given.
        value: String,
        /// What it should be.
        reason: &'static str,
    },
}

impl ServeArgs {
    fn token_choices(&self) -> usize {
        [
            self.connection_token.is_some(),
            self.connection_token_file.is_some(),
            self.without_connection_token,
        ]
        .into_iter()
        .filter(|given| *given)
        .count()
    }

    /// Fills in from the configuration file what the flags leave open.
    ///
    /// # Errors
    /// The file cannot be read, or has an unknown key.
    pub fn with_file(self) -> Result<Self, ConfigError> {
        let Some(path) = self.config.clone() else {
            return Ok(self);
        };
        let text = read_bounded(&path).map_err(|source| ConfigError::Read {
            path: path.clone(),
            source,
        })?;
        let wrong = |detail: String| ConfigError::File {
            path: path.clone(),
            detail,
        };
        let file: Self = toml::from_str(&text).map_err(|error| wrong(explain(&text, &error)))?;
        if file.token_choices() > 1 {
            return Err(wrong(
                "connection-token, connection-token-file and without-connection-token exclude each other"
                    .to_owned(),
            ));
        }
        let token_given = self.token_choices() > 0;
        let (token, token_file, no_token) = if token_given {
            (
                self.connection_token,
                self.connection_token_file,
                self.without_connection_token,
            )
        } else {
            (
                file.connection_token,
                file.connection_token_file,
                file.without_connection_token,
            )
        };
        let either =
            |flags: Vec<String>, file: Vec<String>| if flags.is_empty() { file } else { flags };
        Ok(Self {
            config: self.config,
            listen: either(self.listen, file.listen),
            connection_token: token,
            connection_token_file: token_file,
            without_connection_token: no_token,
            allow_origin: either(self.allow_origin, file.allow_origin),
            allow_host: either(self.allow_host, file.allow_host),
            directory: self.directory.or(file.directory),
            shell: self.shell.or(file.shell),
            pty: self.pty.or(file.pty),
            pty_binding: self.pty_binding.or(file.pty_binding),
            marks: self.marks.or(file.marks),
            shell_integration: self.shell_integration.or(file.shell_integration),
            runtime_dir: self.runtime_dir.or(file.runtime_dir),
            state_dir: self.state_dir.or(file.state_dir),
            worker: self.worker.or(file.worker),
            on_exit: self.on_exit.or(file.on_exit),
            reattach_grace: self.reattach_grace.or(file.reattach_grace),
            orphan_timeout: self.orphan_timeout.or(file.orphan_timeout),
            restart: self.restart.or(file.restart),
            keep_exited: self.keep_exited.or(file.keep_exited),
            ready_json: self.ready_json || file.ready_json,
            log: self.log.or(file.log),
            claims: self.claims.or(file.claims),
            input_from: self.input_from.or(file.input_from),
            size_from: self.size_from.or(file.size_from),
        })
    }
}

/// The largest configuration file, in bytes; a real one has a few hundred.
const FILE_BYTES: u64 = 64 << 10;

fn read_bounded(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(FILE_BYTES + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES {
        return Err(std::io::Error::other(format!(
            "it is larger than {FILE_BYTES} bytes"
        )));
    }
    Ok(text)
}

/// What is wrong with a file, and where. Never what stands there: it may be the token.
fn explain(text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map_or(1, |span| {
        1 + text
            .as_bytes()
            .iter()
            .take(span.start)
            .filter(|byte| **byte == b'\n')
            .count()
    });
    let message = error.message();
    let names_keys_only = message.starts_with("unknown field") || message.starts_with("duplicate");
    let what = if names_keys_only {
        message
    } else {
        "this is not TOML, or the value is of the wrong type (not shown, it may be a secret)"
    };
    format!("line {line}: {what}")
}

/// One `--listen`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// `HOST:PORT`; the name is kept, because clients will use it.
    Tcp {
        /// Where to listen.
        address: SocketAddr,
        /// The name it was given by.
        host: String,
    },
    /// `unix:PATH`
    Unix(PathBuf),
}

impl Address {
    /// Reads an address; a name is looked up.
    ///
    /// # Errors
    /// It is malformed, or the name is unknown.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let wrong = |reason| ConfigError::Value {
            flag: "listen",
            value: text.to_owned(),
            reason,
        };
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() {
                Err(wrong("the path is missing; write unix:PATH"))
            } else {
                Ok(Self::Unix(PathBuf::from(path)))
            };
        }
        let host = text
            .rsplit_once(':')
            .filter(|(_, port)| port.parse::<u16>().is_ok())
            .map(|(host, _)| host)
            .ok_or_else(|| wrong("write HOST:PORT, e.g. 127.0.0.1:9190, or unix:PATH"))?;
        let address = text
            .to_socket_addrs()
            .ok()
            .and_then(|mut found| found.next())
            .ok_or_else(|| ConfigError::NoAddress(text.to_owned()))?;
        Ok(Self::Tcp {
            address,
            host: host.to_owned(),
        })
    }
}

/// Reads a length of time: seconds, or a number with `s`, `m`, `h` or `d`.
///
/// # Errors
/// It is neither.
pub fn time(flag: &'static str, text: &str) -> Result<Duration, ConfigError> {
    let digits = text.trim_end_matches(['s', 'm', 'h', 'd']);
    let unit = match text.get(digits.len()..) {
        Some("" | "s") => Some(1),
        Some("m") => Some(60),
        Some("h") => Some(3600),
        Some("d") => Some(86_400),
        _ => None,
    };
    let seconds = digits
        .parse::<u64>()
        .ok()
        .zip(unit)
        .and_then(|(number, unit)| number.checked_mul(unit));
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| ConfigError::Value {
            flag,
            value: text.to_owned(),
            reason: "write seconds, or a number with s, m, h or d, e.g. 90 or 1h",
        })
}

/// A binding's path as the worker takes it.
///
/// # Errors
/// It is not absolute: a library is never searched for.
pub fn binding(path: PathBuf) -> Result<PathBuf, ConfigError> {
    if path.is_absolute() {
        Ok(path)
    } else {
        Err(ConfigError::Value {
            flag: "pty-binding",
            value: path.display().to_string(),
            reason: "name the library by its absolute path; it is never searched for",
        })
    }
}

/// Whether a file can be used as a shell.
///
/// # Errors
/// Why not, in words.
pub fn check_shell(path: &str) -> Result<(), String> {
    let file = Path::new(path);
    if !file.is_absolute() {
        return Err("a shell must be named by its absolute path".to_owned());
    }
    if !file.is_file() {
        return Err("there is no such shell on this host".to_owned());
    }
    nix::unistd::access(file, nix::unistd::AccessFlags::X_OK)
        .map_err(|_| "this file is not executable, so it cannot be the shell".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(time("x", "90").unwrap().as_secs(), 90);
        assert_eq!(time("x", "0s").unwrap().as_secs(), 0);
        assert_eq!(time("x", "2h").unwrap().as_secs(), 7200);
        assert_eq!(time("x", "1d").unwrap().as_secs(), 86_400);
        for bad in [
            "",
            "h",
            "1w",
            "1hm",
            "-1",
            "1.5h",
            "99999999999999999999",
            "18446744073709551615d",
        ] {
            assert!(time("x", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses_are_told_apart() {
        assert_eq!(
            Address::parse("unix:/a b").unwrap(),
            Address::Unix("/a b".into())
        );
        assert!(
            matches!(Address::parse("127.0.0.1:0").unwrap(), Address::Tcp { address, .. } if address.port() == 0)
        );
        assert!(
            matches!(Address::parse("[::1]:5").unwrap(), Address::Tcp { host, .. } if host == "[::1]")
        );
        for bad in ["", "unix:", "127.0.0.1", "x:y", ":", "127.0.0.1:99999"] {
            assert!(Address::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn flags_win_over_the_file_and_unknown_keys_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c.toml");
        std::fs::write(&path, "listen = [\"127.0.0.1:1\"]\nkeep-exited = \"5m\"\nwithout-connection-token = true\nclaims = \"open\"\nmarks = \"keep\"\nshell-integration = \"off\"\nlog = \"json\"\n").unwrap();
        let args = ServeArgs {
            config: Some(path.clone()),
            keep_exited: Some("1s".into()),
            connection_token: Some("t".into()),
            ..ServeArgs::default()
        };
        let merged = args.clone().with_file().unwrap();
        assert_eq!(merged.keep_exited.as_deref(), Some("1s"));
        assert_eq!(merged.listen, ["127.0.0.1:1"]);
        assert_eq!(merged.claims, Some(Claims::Open));
        assert_eq!(merged.marks, Some(MarksMode::Keep));
        assert_eq!(merged.log, Some(LogFormat::Json));
        assert_eq!(merged.shell_integration, Some(ShellIntegration::Off));
        assert!(!merged.without_connection_token);
        std::fs::write(&path, "lisen = []\n").unwrap();
        let error = args.clone().with_file().unwrap_err().to_string();
        assert!(error.contains("lisen"), "{error}");
        std::fs::write(
            &path,
            "connection-token = \"s3cret\"\nwithout-connection-token = true\n",
        )
        .unwrap();
        let error = args.clone().with_file().unwrap_err().to_string();
        assert!(
            error.contains("exclude") && !error.contains("s3cret"),
            "{error}"
        );
        for secret in [
            "connection-token = \"s3cret\n",
            "connection-token = 123s3cret\n",
            "connection-token = [\"s3cret\"]\n",
            "connection-token = 777123\n",
        ] {
            std::fs::write(&path, format!("\n{secret}")).unwrap();
            let error = args.clone().with_file().unwrap_err().to_string();
            assert!(
                error.contains("line 2") && !error.contains("s3cret") && !error.contains("777123"),
                "{error}"
            );
        }
        std::fs::write(&path, "#".repeat(100_000)).unwrap();
        assert!(args.with_file().is_err());
    }
}
