//! The exec stage: this binary once more, inside the pty, as the last step before the shell.
//!
//! What lives here: putting signals, descriptors, limits, mask and directory right, then exec;
//! and the one readable line if that fails (field cases S-02, S-26, S-30). What must not: anything
//! that outlives the exec, the event loop, the protocol.
//!
//! The command line is private to this binary; both ends of it are in this file:
//! `shellward-worker exec-stage CWD UMASK LIMITS PROGRAM ARG0 ARG…`, with UMASK in octal and LIMITS
//! as `RESOURCE=SOFT:HARD,…` or empty. The environment is the shell's already.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::signal::SigSet;
use nix::sys::stat::{Mode, umask};
use nix::unistd::{chdir, execv};
use shellward_protocol::message::Limit;

use crate::escape::escaped;
use crate::sys;

/// The word that selects this role.
pub(crate) const ROLE: &str = "exec-stage";

/// Exit code when what was asked for is not there; as shells do it.
const NOT_FOUND: u8 = 127;

/// Exit code when it is there and cannot be started.
const NOT_STARTED: u8 = 126;

/// What the exec stage is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Orders {
    pub(crate) cwd: Vec<u8>,
    pub(crate) umask: u32,
    pub(crate) limits: Vec<Limit>,
    pub(crate) program: Vec<u8>,
    /// Arguments of the program, beginning with its name.
    pub(crate) argv: Vec<Vec<u8>>,
}

/// A failure and the exit code that goes with it.
#[derive(Debug, PartialEq, Eq)]
struct Failure {
    line: String,
    code: u8,
}

impl Orders {
    /// The arguments after the name of the binary.
    pub(crate) fn to_args(&self) -> Vec<OsString> {
        let limits: Vec<String> = self
            .limits
            .iter()
            .map(|limit| format!("{}={}:{}", limit.resource, limit.soft, limit.hard))
            .collect();
        let mut args = vec![
            OsString::from(ROLE),
            OsString::from_vec(self.cwd.clone()),
            OsString::from(format!("{:o}", self.umask & 0o777)),
            OsString::from(limits.join(",")),
            OsString::from_vec(self.program.clone()),
        ];
        args.extend(self.argv.iter().cloned().map(OsString::from_vec));
        args
    }

    /// Reads the arguments after the role.
    fn from_args(args: &[OsString]) -> Option<Self> {
        let [cwd, umask, limits, program, argv @ ..] = args else {
            return None;
        };
        if argv.is_empty() {
            return None;
        }
        let limits = limits.to_str()?;
        Some(Self {
            cwd: cwd.as_bytes().to_vec(),
            umask: u32::from_str_radix(umask.to_str()?, 8).ok()?,
            limits: limits
                .split(',')
                .filter(|limit| !limit.is_empty())
                .map(parse_limit)
                .collect::<Option<_>>()?,
            program: program.as_bytes().to_vec(),
            argv: argv.iter().map(|arg| arg.as_bytes().to_vec()).collect(),
        })
    }
}

fn parse_limit(text: &str) -> Option<Limit> {
    let (resource, range) = text.split_once('=')?;
    let (soft, hard) = range.split_once(':')?;
    Some(Limit {
        resource: resource.parse().ok()?,
        soft: soft.parse().ok()?,
        hard: hard.parse().ok()?,
    })
}

/// Becomes the shell; returns only if that failed.
pub(crate) fn run(args: &[OsString]) -> u8 {
    let failure = match Orders::from_args(args) {
        Some(orders) => become_shell(&orders),
        None => Failure {
            line: "the exec stage was started with wrong arguments".to_owned(),
            code: NOT_STARTED,
        },
    };
    // The terminal turns the line end into the two characters it needs; there is nobody to tell
    // if this fails.
    drop(writeln!(std::io::stderr(), "shellward: {}", failure.line));
    failure.code
}

fn become_shell(orders: &Orders) -> Failure {
    sys::default_all_signals();
    // Blocked signals would stay blocked in the shell and everything it starts.
    SigSet::empty().thread_set_mask().ok();
    if sys::close_from(3).is_err() {
        // Before Linux 5.9. The binding has closed what it knew of.
        close_each();
    }
    for limit in &orders.limits {
        if let Err(error) = sys::set_limit(limit.resource, limit.soft, limit.hard) {
            return Failure {
                line: format!("cannot set resource limit {}: {error}", limit.resource),
                code: NOT_STARTED,
            };
        }
    }
    umask(Mode::from_bits_truncate(orders.umask));
    if let Err(errno) = chdir(OsStr::from_bytes(&orders.cwd)) {
        return Failure {
            line: format!("cannot enter {}: {}", escaped(&orders.cwd), errno.desc()),
            code: NOT_FOUND,
        };
    }
    let c_string = |bytes: &Vec<u8>| CString::new(bytes.clone());
    let argv: Result<Vec<CString>, _> = orders.argv.iter().map(c_string).collect();
    // An argument cannot hold NUL: that is how arguments end.
    let (Ok(program), Ok(argv)) = (c_string(&orders.program), argv) else {
        return failure(&orders.program, Errno::EINVAL, None);
    };
    let Err(errno) = execv(&program, &argv);
    let missing = if errno == Errno::ENOENT {
        missing_interpreter(Path::new(OsStr::from_bytes(&orders.program)))
    } else {
        None
    };
    failure(&orders.program, errno, missing.as_deref())
}

fn failure(program: &[u8], errno: Errno, missing_interpreter: Option<&[u8]>) -> Failure {
    let program = escaped(program);
    let line = match missing_interpreter {
        Some(interpreter) => format!(
            "cannot start {program}: its interpreter {} is missing",
            escaped(interpreter)
        ),
        None => format!("cannot start {program}: {}", errno.desc()),
    };
    let code = if errno == Errno::ENOENT {
        NOT_FOUND
    } else {
        NOT_STARTED
    };
    Failure { line, code }
}

/// The interpreter that a script names, or a word for the loader of a program. The kernel reports
/// a missing one as if the file itself were missing, which sends people looking in the wrong place.
fn missing_interpreter(path: &Path) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    // The kernel looks at the first 256 bytes, too. A FIFO would make the open hang.
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    File::open(path)
        .ok()?
        .take(256)
        .read_to_end(&mut head)
        .ok()?;
    let Some(line) = head.strip_prefix(b"#!") else {
        return Some(b"(the program loader)".to_vec());
    };
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    // A script written elsewhere names `/bin/sh\r`: a carriage return is no space to the kernel,
    // and escaping makes it visible.
    let interpreter = line
        .split(|byte| *byte == b'\n')
        .next()?
        .split(is_space)
        .find(|word| !word.is_empty())?;
    Some(interpreter.to_vec())
}

fn close_each() {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else {
        return;
    };
    let numbers: Vec<i32> = open
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2)
        .collect();
    for number in numbers {
        nix::unistd::close(number).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn script(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        file
    }

    #[test]
    fn orders_survive_the_command_line() {
        let orders = Orders {
            cwd: b"/tmp/a b\xff".to_vec(),
            umask: 0o027,
            limits: vec![
                Limit {
                    resource: 7,
                    soft: 1024,
                    hard: u64::MAX,
                },
                Limit {
                    resource: 3,
                    soft: 1,
                    hard: 2,
                },
            ],
            program: b"/bin/sh".to_vec(),
            argv: vec![b"sh".to_vec(), b"-c".to_vec(), b"".to_vec()],
        };
        let args = orders.to_args();
        assert_eq!(args[0], ROLE);
        assert_eq!(Orders::from_args(&args[1..]), Some(orders.clone()));
        let none = Orders {
            limits: Vec::new(),
            ..orders
        };
        assert_eq!(Orders::from_args(&none.to_args()[1..]), Some(none));
    }

    #[test]
    fn malformed_orders_are_refused() {
        let args: Vec<OsString> = ["/", "22", "7=x:1", "/bin/sh", "sh"]
            .map(OsString::from)
            .to_vec();
        assert_eq!(Orders::from_args(&args), None);
        assert_eq!(Orders::from_args(&args[..4]), None);
        assert_eq!(Orders::from_args(&[]), None);
    }

    #[test]
    fn missing_interpreter_is_named() {
        for (text, expected) in [
            ("#!/no/such/interp\n", "/no/such/interp"),
            ("#! /no/such/interp -x\nrest", "/no/such/interp"),
            ("#!/bin/sh\r\necho", "/bin/sh\r"),
        ] {
            let found = missing_interpreter(script(text).path()).unwrap();
            assert_eq!(found, expected.as_bytes(), "{text:?}");
        }
        assert_eq!(missing_interpreter(Path::new("/no/such/file")), None);
        assert_eq!(missing_interpreter(Path::new("/")), None);
    }

    #[test]
    fn failures_have_the_codes_of_a_shell() {
        let lost = failure(b"/x\x1b", Errno::ENOENT, None);
        assert_eq!(
            lost.line,
            "cannot start /x\\u{1b}: No such file or directory"
        );
        assert_eq!(lost.code, 127);
        assert_eq!(failure(b"/x", Errno::EACCES, None).code, 126);
    }
}
