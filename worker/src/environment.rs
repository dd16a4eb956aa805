//! The environment of the shell (field cases S-02, S-27): one pure function.
//!
//! What lives here: what the caller may set and what is filled in; what stays behind of the host's
//! is in `names`. What must not: looking anything up; the account is handed in.

mod names;

use std::collections::BTreeMap;

use shellward_protocol::limits::{ENV_STRING_MAX, ENV_TOTAL_MAX};
use shellward_protocol::message::Size;

use crate::escape::escaped;
use names::travels;

/// The account the shell runs as.
#[derive(Debug, Clone)]
pub(crate) struct Account {
    pub(crate) name: Vec<u8>,
    pub(crate) home: Vec<u8>,
    pub(crate) shell: Vec<u8>,
    pub(crate) is_root: bool,
}

/// Everything the environment is made of.
#[derive(Debug)]
pub(crate) struct Sources<'a> {
    /// The host's own environment, uncleaned.
    pub(crate) host: &'a [(&'a [u8], &'a [u8])],
    /// The caller's variables; they win over the host's.
    pub(crate) caller: &'a [(&'a [u8], &'a [u8])],
    /// Who the shell runs as.
    pub(crate) account: &'a Account,
    /// The shell in use.
    pub(crate) shell: &'a [u8],
    /// The size the terminal starts with.
    pub(crate) size: Size,
    /// Whether it is a terminal to the kernel, too.
    pub(crate) is_pty: bool,
}

/// Why there is no such environment; the words go to the caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EnvironmentError {
    /// The name is empty or has `=` or NUL in it.
    #[error("\"{}\" is not a name for an environment variable", escaped(.0))]
    Name(Vec<u8>),
    /// The value has NUL in it.
    #[error("the value of the environment variable {} holds a NUL byte", escaped(.0))]
    Value(Vec<u8>),
    /// The kernel would refuse it (E2BIG).
    #[error(
        "argument list too long: the variable {} has {len} bytes, the kernel takes {max}",
        escaped(name)
    )]
    LongString {
        /// Its name.
        name: Vec<u8>,
        /// Length of `NAME=value`.
        len: usize,
        /// The longest the kernel takes.
        max: usize,
    },
    /// All together are too much.
    #[error("argument list too long: the environment has {0} bytes, the limit is {ENV_TOTAL_MAX}")]
    LongTotal(usize),
}

/// Sorted, so that the same input gives the same environment.
pub(crate) type Environment = BTreeMap<Vec<u8>, Vec<u8>>;

/// What the shell gets.
pub(crate) fn build(sources: &Sources<'_>) -> Result<Environment, EnvironmentError> {
    let mut all = Environment::new();
    for (name, value) in sources.host {
        if is_name(name) && !value.contains(&0) && travels(name) {
            all.insert(name.to_vec(), value.to_vec());
        }
    }
    for (name, value) in sources.caller {
        if !is_name(name) {
            return Err(EnvironmentError::Name(name.to_vec()));
        }
        if value.contains(&0) {
            return Err(EnvironmentError::Value(name.to_vec()));
        }
        all.insert(name.to_vec(), value.to_vec());
    }
    fill(&mut all, sources);
    // The terminal's own facts win over both: nobody else knows them.
    all.insert(b"TERM".to_vec(), term(sources).to_vec());
    for (name, number) in [
        (&b"COLUMNS"[..], sources.size.cols),
        (&b"LINES"[..], sources.size.rows),
    ] {
        all.insert(name.to_vec(), number.to_string().into_bytes());
    }
    check_length(&all)?;
    Ok(all)
}

/// What the terminal calls itself.
fn term<'a>(sources: &Sources<'a>) -> &'a [u8] {
    // Without a pty, programs must not move a cursor: nothing tells them where it is.
    if !sources.is_pty {
        return b"dumb";
    }
    sources
        .host
        .iter()
        .rev()
        .find(|(name, _)| *name == b"TERM")
        .map(|(_, value)| *value)
        .filter(|value| !matches!(*value, b"" | b"dumb" | b"unknown") && !value.contains(&0))
        .unwrap_or(b"xterm-256color")
}

/// Completes what every program expects to find.
fn fill(all: &mut Environment, sources: &Sources<'_>) {
    let account = sources.account;
    // Those of sbin only for root, as login(1) does it.
    let path: &[u8] = if account.is_root {
        b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    } else {
        b"/usr/local/bin:/usr/bin:/bin"
    };
    let defaults: [(&[u8], &[u8]); 6] = [
        (b"HOME", &account.home),
        (b"USER", &account.name),
        (b"LOGNAME", &account.name),
        (b"SHELL", sources.shell),
        (b"PATH", path),
        (b"LANG", b"C.UTF-8"),
    ];
    for (name, value) in defaults {
        if all.get(name).is_none_or(Vec::is_empty) {
            all.insert(name.to_vec(), value.to_vec());
        }
    }
}

fn check_length(all: &Environment) -> Result<(), EnvironmentError> {
    let mut total = 0;
    for (name, value) in all {
        // The name, an equals sign, the value and a NUL.
        let len = name.len() + value.len() + 2;
        if len > ENV_STRING_MAX {
            return Err(EnvironmentError::LongString {
                name: name.clone(),
                len: len - 1,
                max: ENV_STRING_MAX - 1,
            });
        }
        total += len;
    }
    if total > ENV_TOTAL_MAX {
        return Err(EnvironmentError::LongTotal(total));
    }
    Ok(())
}

fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && !name.contains(&b'=') && !name.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account() -> Account {
        Account {
            name: b"ada".to_vec(),
            home: b"/home/ada".to_vec(),
            shell: b"/bin/sh".to_vec(),
            is_root: false,
        }
    }

    fn made(
        host: &[(&str, &str)],
        caller: &[(&str, &str)],
    ) -> Result<BTreeMap<String, String>, EnvironmentError> {
        made_on(true, host, caller)
    }

    fn made_on(
        is_pty: bool,
        host: &[(&str, &str)],
        caller: &[(&str, &str)],
    ) -> Result<BTreeMap<String, String>, EnvironmentError> {
        let bytes = |pairs: &[(&str, &str)]| -> Vec<(Vec<u8>, Vec<u8>)> {
            pairs
                .iter()
                .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
                .collect()
        };
        let (host, caller) = (bytes(host), bytes(caller));
        fn view(pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<(&[u8], &[u8])> {
            pairs
                .iter()
                .map(|(name, value)| (name.as_slice(), value.as_slice()))
                .collect()
        }
        let all = build(&Sources {
            host: &view(&host),
            caller: &view(&caller),
            account: &account(),
            shell: b"/bin/zsh",
            size: Size {
                cols: 120,
                rows: 40,
            },
            is_pty,
        })?;
        Ok(all
            .into_iter()
            .map(|(name, value)| {
                (
                    String::from_utf8(name).unwrap(),
                    String::from_utf8(value).unwrap(),
                )
            })
            .collect())
    }

    #[test]
    fn empty_host_gives_a_complete_environment() {
        let all = made(&[], &[]).unwrap();
        let expected = [
            ("COLUMNS", "120"),
            ("HOME", "/home/ada"),
            ("LANG", "C.UTF-8"),
            ("LINES", "40"),
            ("LOGNAME", "ada"),
            ("PATH", "/usr/local/bin:/usr/bin:/bin"),
            ("SHELL", "/bin/zsh"),
            ("TERM", "xterm-256color"),
            ("USER", "ada"),
        ];
        let expected: BTreeMap<String, String> = expected
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn what_must_not_travel_stays_behind() {
        for name in [
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "DYLD_INSERT_LIBRARIES",
            "GCONV_PATH",
            "BASH_ENV",
            "ENV",
            "PROMPT_COMMAND",
            "SHELLOPTS",
            "BASHOPTS",
            "BASH_FUNC_ls%%",
            "NODE_OPTIONS",
            "PYTHONSTARTUP",
            "PERL5OPT",
            "RUBYOPT",
            "NOTIFY_SOCKET",
            "LISTEN_FDS",
            "LISTEN_PID",
            "WATCHDOG_USEC",
            "INVOCATION_ID",
            "JOURNAL_STREAM",
            "MAINPID",
            "SYSTEMD_EXEC_PID",
            "CREDENTIALS_DIRECTORY",
            "MEMORY_PRESSURE_WATCH",
            "SHELLWARD_RUNTIME_DIR",
            "TERM_PROGRAM",
            "TERM_PROGRAM_VERSION",
            "TMUX",
            "TMUX_PANE",
            "STY",
            "VTE_VERSION",
            "WT_SESSION",
            "KITTY_WINDOW_ID",
            "ALACRITTY_SOCKET",
            "WINDOWID",
            "VSCODE_IPC_HOOK",
            "SUDO_COMMAND",
            "PWD",
            "OLDPWD",
            "SHLVL",
            "_",
            "HOST_TOKEN",
            "GITHUB_TOKEN",
            "npm_config__password",
            "DB_PASSWD",
            "CLIENT_SECRET",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_ACCESS_KEY_ID",
            "OPENAI_API_KEY",
            "MY_API_KEY_2",
            "SIGNING_KEY",
            "APIKEY",
            "GOOGLE_APPLICATION_CREDENTIALS",
            "GPG_PASSPHRASE",
        ] {
            let all = made(&[(name, "x")], &[]).unwrap();
            assert_eq!(all.get(name), None, "{name}");
        }
    }

    #[test]
    fn what_people_miss_travels() {
        for name in [
            "SSH_AUTH_SOCK",
            "DISPLAY",
            "EDITOR",
            "KEYBOARD",
            "LC_ALL",
            "TOKENIZERS",
            "LDFLAGS",
            "XDG_RUNTIME_DIR",
            "DBUS_SESSION_BUS_ADDRESS",
            "TZ",
            "http_proxy",
        ] {
            let all = made(&[(name, "x")], &[]).unwrap();
            assert_eq!(all.get(name).map(String::as_str), Some("x"), "{name}");
        }
    }

    #[test]
    fn the_caller_wins_over_the_host_and_is_not_cleaned() {
        let all = made(
            &[("EDITOR", "vi"), ("HOME", "/root")],
            &[("EDITOR", "ed"), ("MY_TOKEN", "t"), ("LD_PRELOAD", "/x.so")],
        )
        .unwrap();
        assert_eq!(all["EDITOR"], "ed");
        assert_eq!(all["MY_TOKEN"], "t");
        assert_eq!(all["LD_PRELOAD"], "/x.so");
        assert_eq!(all["HOME"], "/root");
    }

    #[test]
    fn terminal_type_is_the_hosts_if_it_has_a_useful_one() {
        for (host, expected) in [
            ("", "xterm-256color"),
            ("dumb", "xterm-256color"),
            ("unknown", "xterm-256color"),
            ("screen-256color", "screen-256color"),
        ] {
            let all = made(&[("TERM", host)], &[("TERM", "vt52"), ("LINES", "3")]).unwrap();
            assert_eq!(all["TERM"], expected);
            assert_eq!(all["LINES"], "40");
        }
    }

    #[test]
    fn terminal_type_on_pipes_is_dumb_whatever_others_say() {
        let all = made_on(false, &[("TERM", "xterm")], &[("TERM", "vt52")]).unwrap();
        assert_eq!(all["TERM"], "dumb");
        assert_eq!(
            (all["COLUMNS"].as_str(), all["LINES"].as_str()),
            ("120", "40")
        );
    }

    #[test]
    fn invalid_names_are_dropped_from_the_host_and_refused_from_the_caller() {
        for name in ["", "A=B", "A\0B"] {
            assert!(made(&[(name, "x")], &[]).is_ok());
            assert_eq!(
                made(&[], &[(name, "x")]),
                Err(EnvironmentError::Name(name.as_bytes().to_vec()))
            );
        }
        assert_eq!(made(&[("A", "x\0")], &[]).unwrap().get("A"), None);
        assert_eq!(
            made(&[], &[("A", "x\0")]),
            Err(EnvironmentError::Value(b"A".to_vec()))
        );
    }

    #[test]
    fn longest_string_is_the_kernels() {
        // `X=` and the NUL take three bytes.
        let fits = "v".repeat(ENV_STRING_MAX - 3);
        assert!(made(&[], &[("X", &fits)]).is_ok());
        let over = "v".repeat(ENV_STRING_MAX - 2);
        let error = made(&[], &[("X", &over)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "argument list too long: the variable X has 131072 bytes, the kernel takes 131071"
        );
    }

    #[test]
    fn total_is_bounded() {
        let value = "v".repeat(100_000);
        let names: Vec<String> = (0..11).map(|n| format!("V{n}")).collect();
        let many: Vec<(&str, &str)> = names
            .iter()
            .map(|name| (name.as_str(), value.as_str()))
            .collect();
        assert!(matches!(
            made(&[], &many),
            Err(EnvironmentError::LongTotal(_))
        ));
    }
}
