//! Whether ptys work here, found out by a sacrificial worker that may die doing it.
//!
//! What the probe says, how it died and that it did not come back are all answers; each has a
//! sentence and a next step. The binding is loaded in the probe and in workers, never here.

use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use command_fds::CommandFdExt as _;
use command_fds::FdMapping;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use serde_json::{Map, Value, json};
use shellward_protocol::message::Trouble;
use shellward_protocol::{FrameDecoder, ProbeReport};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::time::timeout;

use crate::limits::{PROBE_TIME, PROBE_WORDS_BYTES};
use crate::signals;
use crate::worker_link::Workers;

/// Where a probe finds the pipe that its report goes to. Not stdout: a binding may print there.
const REPORT_FD: i32 = 3;

/// What is known about ptys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// They work.
    Works,
    /// None could be opened, or it carried nothing.
    NoPty(Trouble),
    /// The binding's file could not be loaded.
    BindingMissing(Trouble),
    /// It was loaded, but does not speak our ABI.
    BindingAbi(Trouble),
    /// Its file may not be trusted, or the system refused the attempt.
    Refused(Trouble),
    /// The probe died, or left without a report.
    Crashed {
        /// The signal's name, if one killed it.
        signal: Option<&'static str>,
        /// The last that it said on stderr.
        words: String,
    },
    /// The probe did not come back in time.
    Hung,
    /// Nobody asked (`--pty never`).
    Never,
}

impl Verdict {
    /// Whether terminals can sit on ptys.
    #[must_use]
    pub fn works(&self) -> bool {
        *self == Self::Works
    }

    /// The stable name of the answer.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::NoPty(_) => "no-pty",
            Self::BindingMissing(_) => "binding-missing",
            Self::BindingAbi(_) => "binding-abi",
            Self::Refused(_) => "refused",
            Self::Crashed { .. } => "crashed",
            Self::Hung => "hung",
            Self::Never => "never",
        }
    }

    fn trouble(&self) -> Option<&Trouble> {
        match self {
            Self::NoPty(trouble)
            | Self::BindingMissing(trouble)
            | Self::BindingAbi(trouble)
            | Self::Refused(trouble) => Some(trouble),
            Self::Works | Self::Crashed { .. } | Self::Hung | Self::Never => None,
        }
    }

    /// Whether it may be different a moment later: the machine had no pty, descriptor, process or
    /// memory left. Such an answer is asked for again before the next terminal.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        let passing = [
            Errno::ENOSPC,
            Errno::EAGAIN,
            Errno::EMFILE,
            Errno::ENFILE,
            Errno::ENOMEM,
        ];
        let errno = self.trouble().and_then(|trouble| trouble.errno);
        errno.is_some_and(|number| passing.contains(&Errno::from_raw(number)))
    }

    /// What is the case.
    #[must_use]
    pub fn sentence(&self) -> String {
        let with = |what: &str, trouble: &Trouble| format!("{what}: {}", trouble.words);
        match self {
            Self::Works => "ptys work".to_owned(),
            Self::NoPty(trouble) => with("no pty works here", trouble),
            Self::BindingMissing(trouble) => with("the pty binding cannot be loaded", trouble),
            Self::BindingAbi(trouble) => with("the pty binding does not fit", trouble),
            Self::Refused(trouble) => with("trying a pty was refused", trouble),
            Self::Crashed {
                signal: Some(signal),
                ..
            } => format!("the probe was killed by {signal} while it tried a pty"),
            Self::Crashed { signal: None, .. } => {
                "the probe ended without a report while it tried a pty".to_owned()
            }
            Self::Hung => format!("trying a pty took longer than {} s", PROBE_TIME.as_secs()),
            Self::Never => "ptys are switched off (--pty never)".to_owned(),
        }
    }

    /// What a person can do about it; `None` where nothing is wrong.
    #[must_use]
    pub fn next_step(&self, binding: Option<&Path>) -> Option<&'static str> {
        match self {
            Self::Works | Self::Never => None,
            Self::NoPty(_) if self.is_passing() => Some(
                "close terminals or raise the limit (kernel.pty.max, the devpts mount's max=); it is tried again before the next terminal",
            ),
            Self::NoPty(_) => Some(
                "mount devpts at /dev/pts and make /dev/ptmx usable, then run `shellward probe`",
            ),
            Self::BindingMissing(_) => Some(
                "name a shared library for this machine with --pty-binding, or leave it out to use the built-in binding; then run `shellward probe`",
            ),
            Self::BindingAbi(_) => Some(
                "build the binding against worker/include/shellward_pty.h of this version, then run `shellward probe`",
            ),
            Self::Refused(_) => Some(
                "make the file and its directories writable by their owner (you or root) alone, then run `shellward probe`",
            ),
            Self::Crashed { .. } | Self::Hung if binding.is_some() => Some(
                "repair or replace the binding, or leave out --pty-binding to use the built-in one; then run `shellward probe`",
            ),
            Self::Crashed { .. } | Self::Hung => Some(
                "look at the log for what it said, and at the machine's load; then run `shellward probe`",
            ),
        }
    }

    /// The one shape in which machines see it: `ps --json`, `probe --json`, root `_meta`.
    #[must_use]
    pub fn to_json(&self, binding: Option<&Path>) -> Value {
        let mut members = Map::new();
        members.insert("result".into(), json!(self.name()));
        members.insert("sentence".into(), json!(self.sentence()));
        members.insert("nextStep".into(), json!(self.next_step(binding)));
        members.insert("binding".into(), json!(binding));
        if let Self::Crashed { signal, words } = self {
            if let Some(signal) = signal {
                members.insert("signal".into(), json!(signal));
            }
            if !words.is_empty() {
                members.insert("words".into(), json!(words));
            }
        }
        if let Some(trouble) = self.trouble() {
            if let Some(errno) = trouble.errno {
                members.insert("errno".into(), json!(errno));
            }
            members.insert("words".into(), json!(trouble.words));
        }
        Value::Object(members)
    }

    fn from_report(report: ProbeReport) -> Self {
        let clean = |trouble: Trouble| Trouble {
            errno: trouble.errno,
            words: one_line(&trouble.words),
        };
        match report {
            ProbeReport::Works => Self::Works,
            ProbeReport::NoPty(trouble) => Self::NoPty(clean(trouble)),
            ProbeReport::BindingMissing(trouble) => Self::BindingMissing(clean(trouble)),
            ProbeReport::BindingAbi(trouble) => Self::BindingAbi(clean(trouble)),
            ProbeReport::Refused(trouble) => Self::Refused(clean(trouble)),
        }
    }
}

fn one_line(text: &str) -> String {
    text.split(|c: char| c.is_control())
        .filter(|part| !part.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Asks a probe. `workers` knows it while it lives, so that it is not taken for an orphan.
pub async fn probe(worker: &Path, binding: Option<&Path>, workers: &Workers) -> Verdict {
    match ask(worker, binding, workers).await {
        Ok(verdict) => verdict,
        Err(error) => Verdict::Refused(Trouble {
            errno: error.raw_os_error(),
            words: format!("the probe cannot be run: {error}"),
        }),
    }
}

async fn ask(worker: &Path, binding: Option<&Path>, workers: &Workers) -> io::Result<Verdict> {
    let (report, report_end) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    let mut command = Command::new(worker);
    command
        .arg("probe")
        .args(binding)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Whoever stops waiting for it, because the host ends, ends it.
        .kill_on_drop(true)
        .fd_mappings(vec![FdMapping {
            parent_fd: report_end,
            child_fd: REPORT_FD,
        }])
        .map_err(io::Error::other)?;
    let mut child = workers.spawn_probe(&mut command)?;
    // The command holds our copy of the pipe's other end.
    drop(command);
    let pid = child.id().unwrap_or_default();
    // A binding that prints must not block on us, whatever it prints.
    let said = tokio::spawn(tail(child.stdout.take(), false));
    let words = tokio::spawn(tail(child.stderr.take(), true));
    let status = match timeout(PROBE_TIME, child.wait()).await {
        Ok(status) => Some(status?),
        Err(_) => {
            child.kill().await?;
            None
        }
    };
    // Whatever it started is ended too, and with that the pipes.
    workers.probe_ended(pid).await;
    let words = words.await.unwrap_or_default();
    said.abort();
    Ok(match status {
        None => Verdict::Hung,
        Some(status) => judge(status, &read_report(report), words),
    })
}

/// The last that a stream says, bounded; nothing is kept unless `keep`.
async fn tail(stream: Option<impl AsyncRead + Unpin>, keep: bool) -> String {
    let mut kept = Vec::new();
    let mut buffer = vec![0; 16 << 10];
    if let Some(mut stream) = stream {
        while let Ok(n @ 1..) = stream.read(&mut buffer).await {
            if !keep {
                continue;
            }
            kept.extend_from_slice(buffer.get(..n).unwrap_or_default());
            let over = kept.len().saturating_sub(PROBE_WORDS_BYTES);
            kept.drain(..over);
        }
    }
    one_line(&String::from_utf8_lossy(&kept))
}

/// The report, if there is a whole one. The probe is dead, so this cannot block for long: what it
/// left behind may hold the pipe, but a report is there or never will be.
fn read_report(report: OwnedFd) -> Option<ProbeReport> {
    nix::fcntl::fcntl(&report, nix::fcntl::FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).ok()?;
    let mut bytes = vec![0; 16 << 10];
    let n = std::fs::File::from(report).read(&mut bytes).ok()?;
    let mut decoder = FrameDecoder::new();
    decoder.push(bytes.get(..n)?);
    let (header, payload) = decoder.next_frame().ok()??;
    ProbeReport::decode(header, payload).ok()
}

fn judge(status: ExitStatus, report: &Option<ProbeReport>, words: String) -> Verdict {
    if let Some(signal) = status.signal() {
        // Its own alarm and limit, set a little later than our deadline, for when we are late.
        if signal == Signal::SIGALRM as i32 || signal == Signal::SIGXCPU as i32 {
            return Verdict::Hung;
        }
        return Verdict::Crashed {
            signal: Some(signals::name(signal)),
            words,
        };
    }
    match (report, status.success()) {
        (Some(ProbeReport::Works), false) | (None, _) => Verdict::Crashed {
            signal: None,
            words,
        },
        (Some(report), _) => Verdict::from_report(report.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trouble(errno: Option<i32>) -> Trouble {
        Trouble {
            errno,
            words: "a\nb\u{1b}[31m".into(),
        }
    }

    #[test]
    fn how_a_probe_ended_is_an_answer() {
        let exit = |code: i32| ExitStatus::from_raw(code << 8);
        let works = Some(ProbeReport::Works);
        assert_eq!(judge(exit(0), &works, String::new()), Verdict::Works);
        let crashed = |signal| Verdict::Crashed {
            signal,
            words: "w".into(),
        };
        assert_eq!(
            judge(ExitStatus::from_raw(11), &works, "w".into()),
            crashed(Some("SIGSEGV"))
        );
        assert_eq!(
            judge(ExitStatus::from_raw(14), &None, String::new()),
            Verdict::Hung
        );
        assert_eq!(judge(exit(1), &works, "w".into()), crashed(None));
        assert_eq!(judge(exit(0), &None, "w".into()), crashed(None));
        let report = Some(ProbeReport::NoPty(trouble(Some(28))));
        let verdict = judge(exit(3), &report, String::new());
        assert!(verdict.is_passing());
        assert_eq!(verdict.sentence(), "no pty works here: a b [31m");
    }

    #[test]
    fn every_answer_has_a_sentence_and_trouble_a_next_step() {
        let all = [
            Verdict::Works,
            Verdict::NoPty(trouble(None)),
            Verdict::BindingMissing(trouble(None)),
            Verdict::BindingAbi(trouble(None)),
            Verdict::Refused(trouble(Some(13))),
            Verdict::Crashed {
                signal: None,
                words: String::new(),
            },
            Verdict::Hung,
            Verdict::Never,
        ];
        for verdict in all {
            let value = verdict.to_json(Some(Path::new("/b.so")));
            assert!(
                value["sentence"]
                    .as_str()
                    .is_some_and(|text| !text.is_empty())
            );
            assert_eq!(value["result"], verdict.name());
            let quiet = verdict.works() || verdict == Verdict::Never;
            assert_eq!(value["nextStep"].is_null(), quiet, "{value}");
            assert!(!verdict.is_passing());
        }
    }
}
