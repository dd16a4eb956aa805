//! What terminals sit on: ptys as long as the probe says that they work, else pipes.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use serde_json::Value;
use shellward_protocol::Data;
use shellward_protocol::message::Mode;

use crate::config::PtyMode;
use crate::limits::CRASHES_AT_START;
use crate::probe::{Verdict, probe};
use crate::worker_link::Workers;

/// The operator's wish, the binding, and the last answer of a probe.
#[derive(Debug)]
pub struct Ptys {
    mode: PtyMode,
    binding: Option<PathBuf>,
    worker: PathBuf,
    verdict: Mutex<Verdict>,
    /// One probe at a time; who waits for it takes its answer.
    probing: tokio::sync::Mutex<()>,
    /// Probes that were begun, so that a waiter knows whether one answered meanwhile.
    answers: AtomicU32,
    crashes_at_start: AtomicU32,
}

impl Ptys {
    /// Nothing asked yet.
    #[must_use]
    pub fn new(mode: PtyMode, binding: Option<PathBuf>, worker: PathBuf) -> Self {
        Self {
            mode,
            binding,
            worker,
            verdict: Mutex::new(Verdict::Never),
            probing: tokio::sync::Mutex::default(),
            answers: AtomicU32::new(0),
            crashes_at_start: AtomicU32::new(0),
        }
    }

    /// The last answer.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.verdict
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The last answer in the shape for machines.
    #[must_use]
    pub fn report(&self) -> Value {
        self.verdict().to_json(self.binding.as_deref())
    }

    /// The operator's wish.
    #[must_use]
    pub fn mode(&self) -> PtyMode {
        self.mode
    }

    /// What to do about the last answer.
    #[must_use]
    pub fn next_step(&self) -> Option<&'static str> {
        self.verdict().next_step(self.binding.as_deref())
    }

    /// Asks a probe, unless ptys are switched off; logs an answer that is new. Who comes while
    /// another asks gets that answer.
    pub async fn ask(&self, workers: &Workers) -> Verdict {
        if self.mode == PtyMode::Never {
            return Verdict::Never;
        }
        let before = self.answers.load(Ordering::Acquire);
        let _one_at_a_time = self.probing.lock().await;
        if self.answers.load(Ordering::Acquire) != before {
            return self.verdict();
        }
        let verdict = probe(&self.worker, self.binding.as_deref(), workers).await;
        self.answers.fetch_add(1, Ordering::Release);
        self.crashes_at_start.store(0, Ordering::Relaxed);
        let known = std::mem::replace(
            &mut *self.verdict.lock().unwrap_or_else(PoisonError::into_inner),
            verdict.clone(),
        );
        if known != verdict {
            let sentence = verdict.sentence();
            match verdict.next_step(self.binding.as_deref()) {
                None => tracing::info!("probe: {sentence}"),
                Some(step) if self.mode == PtyMode::Require => {
                    tracing::error!("probe: {sentence}; terminals will not start; {step}")
                }
                Some(step) => tracing::warn!("probe: {sentence}; terminals run on pipes; {step}"),
            }
            if let Verdict::Crashed { words, .. } = &verdict
                && !words.is_empty()
            {
                tracing::warn!("probe said: {words}");
            }
        }
        verdict
    }

    /// Whether the next terminal should wait for another answer.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.mode != PtyMode::Never
            && (self.verdict().is_passing()
                || self.crashes_at_start.load(Ordering::Relaxed) >= CRASHES_AT_START)
    }

    /// A worker died before its shell ran (`true`), or a shell runs (`false`).
    pub fn count_start(&self, crashed: bool) {
        if crashed {
            self.crashes_at_start.fetch_add(1, Ordering::Relaxed);
        } else {
            self.crashes_at_start.store(0, Ordering::Relaxed);
        }
    }

    /// What the next terminal sits on.
    ///
    /// # Errors
    /// Ptys are required and do not work: the sentence and the next step.
    pub fn choose(&self) -> Result<Mode<'static>, String> {
        let verdict = self.verdict();
        match (self.mode, verdict.works()) {
            (PtyMode::Never, _) | (PtyMode::Auto, false) => Ok(Mode::Pipes),
            (_, true) => Ok(Mode::Pty(
                self.binding
                    .as_deref()
                    .map_or_else(Data::default, path_data),
            )),
            (PtyMode::Require, false) => Err(self.refusal()),
        }
    }

    /// Why nothing starts where ptys are required.
    #[must_use]
    pub fn refusal(&self) -> String {
        let step = self
            .next_step()
            .map_or_else(String::new, |step| format!("; {step}"));
        format!(
            "ptys are required (--pty require), but {}{step}",
            self.verdict().sentence()
        )
    }
}

fn path_data(path: &Path) -> Data<'static> {
    use std::os::unix::ffi::OsStrExt as _;
    path.as_os_str().as_bytes().to_vec().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use shellward_protocol::message::Trouble;

    fn ptys(mode: PtyMode, verdict: Verdict) -> Ptys {
        let ptys = Ptys::new(mode, Some("/b.so".into()), "/w".into());
        *ptys.verdict.lock().unwrap() = verdict;
        ptys
    }

    #[test]
    fn what_a_terminal_sits_on() {
        let no_pty = |errno| {
            Verdict::NoPty(Trouble {
                errno,
                words: "w".into(),
            })
        };
        let pty = Mode::Pty(b"/b.so".to_vec().into());
        assert_eq!(
            ptys(PtyMode::Auto, Verdict::Works).choose(),
            Ok(pty.clone())
        );
        assert_eq!(ptys(PtyMode::Require, Verdict::Works).choose(), Ok(pty));
        assert_eq!(ptys(PtyMode::Auto, no_pty(None)).choose(), Ok(Mode::Pipes));
        assert_eq!(
            ptys(PtyMode::Never, Verdict::Never).choose(),
            Ok(Mode::Pipes)
        );
        assert!(
            ptys(PtyMode::Require, no_pty(None))
                .choose()
                .unwrap_err()
                .contains("require")
        );
        assert!(ptys(PtyMode::Auto, no_pty(Some(28))).is_stale());
        assert!(!ptys(PtyMode::Auto, no_pty(Some(2))).is_stale());
        assert!(!ptys(PtyMode::Auto, Verdict::Hung).is_stale());
    }

    #[test]
    fn three_crashes_in_a_row_make_the_answer_stale() {
        let ptys = ptys(PtyMode::Auto, Verdict::Works);
        for crashed in [true, true, false, true, true] {
            ptys.count_start(crashed);
            assert!(!ptys.is_stale());
        }
        ptys.count_start(true);
        assert!(ptys.is_stale());
    }
}
