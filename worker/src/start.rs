//! From a `Start` message to a running shell.
//!
//! What lives here: the order of checks and steps, and what each failure is called. What must
//! not: the event loop, what a pty is made of.

use std::error::Error;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{Pid, User, geteuid};
use shellward_protocol::limits::{ENV_STRING_MAX, REASON_MAX};
use shellward_protocol::message::{Command, Mode, Size, Start, StartFailed, StartFailure};

use crate::binding::LoadError;
use crate::command::{self, Plan};
use crate::environment::{self, Account, Environment, EnvironmentError, Sources};
use crate::escape::{escaped, shortened};
use crate::exec_stage::Orders;
use crate::faults;
use crate::integration::{Installed, Shell, install};
use crate::output::Output;
use crate::terminal::pipes::Pipes;
use crate::terminal::pty::{self, Program, PtyError};
use crate::terminal::{Side, Terminal};

/// Our own binary, even if its file was replaced by an update meanwhile.
pub(crate) const OWN_BINARY: &str = "/proc/self/exe";

/// Where the kernel keeps the resource number of the stack limit.
const STACK: u32 = 3;

/// Why no shell runs.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// The environment is impossible.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// The message asks for something that cannot be.
    #[error("{0}")]
    Refused(String),
    /// The pty or the process on it.
    #[error(transparent)]
    Pty(#[from] PtyError),
}

impl StartError {
    /// Whether this process cannot go on, not even to say so.
    pub(crate) fn is_fatal(&self) -> bool {
        matches!(self, Self::Pty(PtyError::Load(LoadError::Damage(_))))
    }

    /// What the supervisor is told.
    pub(crate) fn to_message(&self) -> StartFailed {
        let failure = match self {
            Self::Environment(_) | Self::Refused(_) => StartFailure::Refused,
            Self::Pty(PtyError::Open(_)) => StartFailure::NoPty,
            Self::Pty(PtyError::Spawn(cause))
                if matches!(cause.errno, Some(Errno::EAGAIN | Errno::ENOMEM)) =>
            {
                StartFailure::NoProcess
            }
            Self::Pty(_) => StartFailure::Other,
        };
        StartFailed {
            failure,
            reason: shortened(chain(self), REASON_MAX),
        }
    }
}

/// An error and its causes on one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// Starts the shell on a new pty of this size, or on pipes, or none where it has ended. A script for
/// the shell is put into the directory `scripts`, which is made for it.
pub(crate) fn start(
    start: &Start<'_>,
    size: Size,
    now: Instant,
    scripts: &Path,
) -> Result<Terminal, StartError> {
    let binding = match &start.mode {
        Mode::Pty(binding) => Some(binding.as_slice()),
        Mode::Pipes => None,
        Mode::Ended(ended) => return Ok(Terminal::ended(*ended, size, now)),
    };
    let is_pty = binding.is_some();
    let account = account();
    let shell = match start.shell.as_slice() {
        b"" => account.shell.clone(),
        shell => shell.to_vec(),
    };
    let mut plan = command::plan(&shell, &start.command);
    check_words(start, &plan)?;

    let host = pairs(&start.host_env);
    let caller = pairs(&start.caller_env);
    let mut environment = environment::build(&Sources {
        host: &host,
        caller: &caller,
        account: &account,
        shell: &shell,
        size,
        is_pty,
    })?;
    let installed = integrate(start, scripts, &mut plan, &mut environment);
    let orders = Orders {
        cwd: start.cwd.as_slice().to_vec(),
        umask: start.umask,
        limits: start.limits.clone(),
        program: plan.program,
        argv: plan.argv,
    };
    let mut argv = vec![OsString::from(OWN_BINARY)];
    argv.extend(orders.to_args());
    check_total(&argv, &environment, &orders)?;

    let program = Program {
        argv,
        environment: environment
            .into_iter()
            .map(|(name, value)| (OsString::from_vec(name), OsString::from_vec(value)))
            .collect(),
    };
    let (side, pid) = match binding {
        Some(binding) => {
            faults::check("worker.open-pty").map_err(|error| PtyError::Open(error.into()))?;
            let mut pty = pty::open(binding, size)?;
            faults::check("worker.fork").map_err(|error| PtyError::Spawn(error.into()))?;
            let pid = pty.spawn(&program)?;
            (Side::pty(pty, now), pid)
        }
        None => {
            let (pipes, pid) = Pipes::start(&program)?;
            (Side::Pipes(pipes), pid)
        }
    };
    faults::hit("worker.forked");
    let shell = i32::try_from(pid).map_err(|_| PtyError::Binding("usable process id"))?;
    let shell = Pid::from_raw(shell);
    let output = Output::new(
        is_pty,
        shell,
        size,
        start.marks,
        start.cwd.as_slice(),
        installed,
    );
    Ok(Terminal::new(side, shell, output))
}

/// Puts our script in front of the shell's own start-up files, if there is one for it. Without it
/// the terminal works all the same.
fn integrate(
    start: &Start<'_>,
    scripts: &Path,
    plan: &mut Plan,
    environment: &mut Environment,
) -> Option<Installed> {
    if !start.integrate || start.mode == Mode::Pipes || start.command != Command::Shell {
        return None;
    }
    let shell = Shell::of(&plan.program)?;
    install(shell, scripts, &mut plan.argv, environment)
        .inspect_err(|error| {
            let words = format!("no shell integration in {}: {error}", scripts.display());
            crate::log(&words);
        })
        .ok()
}

fn pairs<'a>(
    variables: &'a [(shellward_protocol::Data<'a>, shellward_protocol::Data<'a>)],
) -> Vec<(&'a [u8], &'a [u8])> {
    variables
        .iter()
        .map(|(name, value)| (name.as_slice(), value.as_slice()))
        .collect()
}

/// What the kernel or the exec stage would only refuse in ways nobody can read.
fn check_words(start: &Start<'_>, plan: &Plan) -> Result<(), StartError> {
    let refuse = |reason: String| Err(StartError::Refused(reason));
    for (what, path) in [
        ("shell", plan.program.as_slice()),
        ("directory", start.cwd.as_slice()),
    ] {
        if !path.starts_with(b"/") {
            return refuse(format!("the {what} \"{}\" is not absolute", escaped(path)));
        }
        if path.contains(&0) {
            return refuse(format!("the name of the {what} holds a NUL byte"));
        }
    }
    for word in &plan.argv {
        if word.contains(&0) {
            return refuse("the command holds a NUL byte".to_owned());
        }
        if word.len() >= ENV_STRING_MAX {
            return refuse(format!(
                "argument list too long: the command has {} bytes, the kernel takes {}",
                word.len(),
                ENV_STRING_MAX - 1
            ));
        }
    }
    Ok(())
}

/// Refuses what execve would refuse with E2BIG: through the binding that error is lost, and the
/// child aborts with words on the terminal (field case S-02).
fn check_total(
    argv: &[OsString],
    environment: &Environment,
    orders: &Orders,
) -> Result<(), StartError> {
    let mut stack = getrlimit(Resource::RLIMIT_STACK).map_or(8 << 20, |(soft, _)| soft);
    for limit in orders.limits.iter().filter(|limit| limit.resource == STACK) {
        stack = stack.min(limit.soft);
    }
    // execve(2): a quarter of the stack limit, at most 6 MiB, at least 32 pages; strings, their
    // ends and a pointer to each. One page is left for what the kernel itself puts there.
    let max = (stack / 4).clamp(128 << 10, 6 << 20) - (4 << 10);
    let pointer = size_of::<usize>() as u64;
    let args = argv.iter().map(|arg| arg.as_bytes().len() as u64 + 1);
    let variables = environment
        .iter()
        .map(|(name, value)| (name.len() + value.len() + 2) as u64);
    let total: u64 = args.chain(variables).map(|len| len + pointer).sum();
    if total > max {
        return Err(StartError::Refused(format!(
            "argument list too long: command and environment have {total} bytes, the kernel takes {max}"
        )));
    }
    Ok(())
}

/// The account this worker runs as; without an entry, what works anywhere.
fn account() -> Account {
    let uid = geteuid();
    let user = User::from_uid(uid).ok().flatten();
    let or = |value: Option<&[u8]>, default: &[u8]| {
        value
            .filter(|value| !value.is_empty())
            .unwrap_or(default)
            .to_vec()
    };
    Account {
        name: or(
            user.as_ref().map(|user| user.name.as_bytes()),
            uid.to_string().as_bytes(),
        ),
        home: or(
            user.as_ref().map(|user| user.dir.as_os_str().as_bytes()),
            b"/",
        ),
        shell: or(
            user.as_ref().map(|user| user.shell.as_os_str().as_bytes()),
            b"/bin/sh",
        ),
        is_root: uid.is_root(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shellward_protocol::Data;
    use shellward_protocol::message::Marks;

    fn message() -> Start<'static> {
        Start {
            mode: Mode::Pipes,
            shell: Data::borrowed(b"/bin/sh"),
            command: Command::Shell,
            cwd: Data::borrowed(b"/"),
            host_env: Vec::new(),
            caller_env: Vec::new(),
            size: Size { cols: 80, rows: 24 },
            umask: 0o022,
            limits: Vec::new(),
            marks: Marks::Strip,
            integrate: false,
            card: Data::default(),
            commands: 0,
            reattach_grace_ms: 0,
            orphan_timeout_ms: 60_000,
        }
    }

    fn refusal(start_message: &Start<'_>) -> StartFailed {
        let Err(error) = start(
            start_message,
            start_message.size,
            Instant::now(),
            Path::new("/nonexistent"),
        ) else {
            panic!("it started");
        };
        error.to_message()
    }

    #[test]
    fn impossible_requests_are_refused_before_anything_starts() {
        let nul = Data::borrowed(b"a\0b");
        for (start, words) in [
            (
                Start {
                    shell: Data::borrowed(b"bash"),
                    ..message()
                },
                "the shell \"bash\" is not absolute",
            ),
            (
                Start {
                    cwd: Data::borrowed(b""),
                    ..message()
                },
                "the directory \"\" is not absolute",
            ),
            (
                Start {
                    command: Command::Line(nul.clone()),
                    ..message()
                },
                "the command holds a NUL byte",
            ),
            (
                Start {
                    caller_env: vec![(nul.clone(), nul)],
                    ..message()
                },
                "\"a\\u{0}b\" is not a name for an environment variable",
            ),
        ] {
            let failed = refusal(&start);
            assert_eq!(failed.failure, StartFailure::Refused);
            assert_eq!(failed.reason, words);
        }
    }

    #[test]
    fn too_long_command_is_refused_with_the_reason() {
        let line = "x".repeat(ENV_STRING_MAX);
        let failed = refusal(&Start {
            command: Command::Line(Data::borrowed(line.as_bytes())),
            ..message()
        });
        assert!(
            failed.reason.starts_with("argument list too long"),
            "{}",
            failed.reason
        );
    }

    #[test]
    fn many_small_variables_are_refused_too() {
        let names: Vec<String> = (0..200_000).map(|n| n.to_string()).collect();
        let failed = refusal(&Start {
            caller_env: names
                .iter()
                .map(|name| (Data::borrowed(name.as_bytes()), Data::default()))
                .collect(),
            ..message()
        });
        assert!(
            failed.reason.starts_with("argument list too long"),
            "{}",
            failed.reason
        );
    }

    #[test]
    fn reasons_name_the_cause() {
        let cause = crate::terminal::pty::Cause {
            words: "No space left on device".to_owned(),
            errno: Some(Errno::ENOSPC),
        };
        let failed = StartError::from(PtyError::Open(cause)).to_message();
        assert_eq!(failed.failure, StartFailure::NoPty);
        assert_eq!(failed.reason, "cannot open a pty: No space left on device");
    }
}
