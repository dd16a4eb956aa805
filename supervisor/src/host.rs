//! The running host: the core, and the tasks that carry out its effects.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use shellward_protocol::kept::Patience;
use shellward_protocol::message::{Limit, Marks};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, Semaphore, watch};

use crate::clients_file::ClientsFile;
use crate::core::{Core, Effect, Settings};
use crate::limits::{PARALLEL_STARTS, SHUTDOWN_TIME, STOPPED_WORKER_TIME, TERMINATE_TIME};
use crate::metrics::Metrics;
use crate::probe::Verdict;
use crate::ptys::Ptys;
use crate::worker_link::{self, Workers};

/// Where the host is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It does not know yet whether ptys work, or takes terminals over; clients wait.
    Starting,
    /// Clients are served.
    Serving,
    /// It ends; no more clients are taken.
    Ending,
}

/// Everything that tasks of the host share.
#[derive(Debug)]
pub struct Host {
    core: Mutex<Core>,
    pub(crate) workers: Workers,
    /// What terminals sit on.
    pub ptys: Ptys,
    pub(crate) worker_binary: PathBuf,
    /// The directory of the workers' sockets.
    pub(crate) worker_sockets: PathBuf,
    /// Grows with every start of a supervisor over the same state directory.
    pub(crate) epoch: u64,
    pub(crate) start_slots: Semaphore,
    /// What shells get back of what we changed for ourselves.
    pub(crate) shell_limits: Vec<Limit>,
    pub(crate) shell_umask: u32,
    pub(crate) marks: Marks,
    /// Whether shells are started with our script.
    pub(crate) integrate: bool,
    /// How long terminals do without a supervisor.
    pub(crate) patience: Patience,
    clients: ClientsFile,
    reschedule: Notify,
    terminal_left: Notify,
    /// Somebody asked for an orderly end.
    pub shutdown: Notify,
    /// Where everything is counted; the core counts there, too.
    pub(crate) metrics: Arc<Metrics>,
    stage: watch::Sender<Stage>,
    /// Effects are carried out by tasks, which need the host; set once, at the start.
    this: std::sync::Weak<Host>,
}

/// What a host is made of.
#[derive(Debug)]
pub struct Parts {
    /// The operator's decisions.
    pub settings: Settings,
    /// See [`Host`].
    pub ptys: Ptys,
    /// See [`Host`].
    pub epoch: u64,
    /// Where clients are remembered.
    pub clients: ClientsFile,
    /// Path of `shellward-worker`.
    pub worker_binary: PathBuf,
    /// Directory of the workers' sockets.
    pub worker_sockets: PathBuf,
    /// Limits that shells get.
    pub shell_limits: Vec<Limit>,
    /// File mode mask that shells get.
    pub shell_umask: u32,
    /// What becomes of marks in the output.
    pub marks: Marks,
    /// Whether shells are started with our script.
    pub integrate: bool,
    /// How long terminals outlive their supervisor.
    pub orphan_timeout: Duration,
}

impl Host {
    /// A host without terminals.
    #[must_use]
    pub fn new(parts: Parts) -> Arc<Self> {
        // serverSeq must never go back, also not over a restart (design.md, "State").
        let seq = parts.epoch << 32;
        let grace = parts.settings.reattach_grace.as_millis();
        let mut core = Core::new(parts.settings, seq);
        core.restore_clients(parts.clients.load());
        Arc::new_cyclic(|this| Self {
            metrics: core.metrics(),
            stage: watch::Sender::new(Stage::Starting),
            core: Mutex::new(core),
            workers: Workers::default(),
            ptys: parts.ptys,
            worker_binary: parts.worker_binary,
            worker_sockets: parts.worker_sockets,
            epoch: parts.epoch,
            clients: parts.clients,
            start_slots: Semaphore::new(PARALLEL_STARTS),
            shell_limits: parts.shell_limits,
            shell_umask: parts.shell_umask,
            marks: parts.marks,
            integrate: parts.integrate,
            patience: Patience {
                reattach_grace_ms: u32::try_from(grace).unwrap_or(u32::MAX),
                orphan_timeout_ms: u64::try_from(parts.orphan_timeout.as_millis())
                    .unwrap_or(u64::MAX),
            },
            reschedule: Notify::new(),
            terminal_left: Notify::new(),
            shutdown: Notify::new(),
            this: this.clone(),
        })
    }

    /// Where the host is in its life.
    #[must_use]
    pub fn stage(&self) -> Stage {
        *self.stage.borrow()
    }

    /// The host is there from now on.
    pub fn set_stage(&self, stage: Stage) {
        self.stage.send_replace(stage);
    }

    /// Waits while the host starts; where it is then.
    pub async fn started(&self) -> Stage {
        let mut stage = self.stage.subscribe();
        match stage.wait_for(|stage| *stage != Stage::Starting).await {
            Ok(stage) => *stage,
            // The sender is ours and lives as long.
            Err(_) => Stage::Ending,
        }
    }

    /// Runs `change` on the core, then carries out what it asked for.
    pub fn with_core<T>(
        &self,
        change: impl FnOnce(&mut Core, Instant, &mut Vec<Effect>) -> T,
    ) -> T {
        let mut effects = Vec::new();
        let result = {
            let mut core = self.core.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut core, Instant::now(), &mut effects)
        };
        for effect in effects {
            self.carry_out(effect);
        }
        result
    }

    fn carry_out(&self, effect: Effect) {
        let Some(host) = self.this.upgrade() else {
            return;
        };
        match effect {
            Effect::Start(plan) => {
                tokio::spawn(async move {
                    worker_link::run(Arc::clone(&host), plan).await;
                    host.worker_left();
                });
            }
            Effect::WatchEnd(key) => {
                // This worker: by then the terminal may have another.
                if let Some(control) = host.workers.control(key) {
                    tokio::spawn(async move {
                        tokio::time::sleep(TERMINATE_TIME).await;
                        control.kill.notify_one();
                    });
                }
            }
            Effect::Reschedule => self.reschedule.notify_one(),
            Effect::Shutdown => self.shutdown.notify_one(),
            Effect::Probe => {
                tokio::spawn(async move {
                    host.ask_probe().await;
                    host.with_core(|core, _, _| core.probe_answered());
                });
            }
            Effect::SaveClients => {
                // Files may be slow; who asks next waits for its turn there, not here.
                tokio::task::spawn_blocking(move || {
                    host.clients
                        .save(|| host.with_core(|core, _, _| core.clients_to_save()));
                });
            }
            Effect::Report => {
                tokio::spawn(async move {
                    host.look_at_workers().await;
                    host.with_core(|core, now, _| core.report(now));
                });
            }
        }
    }

    /// Takes over the workers that a supervisor before this one left.
    pub async fn adopt(self: &Arc<Self>) {
        worker_link::adopt_all(self).await;
    }

    /// Whoever waits for the last terminal looks again.
    pub(crate) fn worker_left(&self) {
        self.terminal_left.notify_one();
    }

    /// Asks a probe whether ptys work, and has the core say so from now on.
    pub async fn ask_probe(&self) -> Verdict {
        let verdict = self.ptys.ask(&self.workers).await;
        let report = self.ptys.report();
        self.with_core(|core, _, _| core.set_probe(verdict.works(), report));
        verdict
    }

    /// Has the core know how the workers' processes are. A read from /proc may take a moment where a
    /// machine is busy, so it is done beside everything else.
    pub async fn look_at_workers(self: &Arc<Self>) {
        let host = Arc::clone(self);
        let looked = tokio::task::spawn_blocking(move || {
            let pids = host.with_core(|core, _, _| core.worker_pids());
            let seen = worker_link::look_at(&pids);
            host.with_core(|core, _, _| core.workers_seen(seen));
        });
        if let Err(error) = looked.await {
            tracing::warn!(%error, "the workers' processes could not be looked at");
        }
    }

    /// Does what is due when its time has come. Never returns.
    pub async fn keep_time(&self) {
        loop {
            let next = self.with_core(|core, now, effects| core.due(now, effects));
            match next {
                None => self.reschedule.notified().await,
                Some(at) => {
                    tokio::select! {
                        () = tokio::time::sleep_until(at.into()) => {}
                        () = self.reschedule.notified() => {}
                    }
                }
            }
        }
    }

    /// Ends the terminals of workers that somebody stopped (SIGSTOP) and did not let go on.
    /// Returns only if signals cannot be received.
    pub async fn watch_stopped_workers(&self) {
        let mut child = match signal(SignalKind::child()) {
            Ok(child) => child,
            Err(error) => {
                tracing::warn!(%error, "stopped workers will not be noticed");
                return;
            }
        };
        while child.recv().await.is_some() {
            for (control, stop) in self.workers.newly_stopped() {
                tracing::warn!(terminal = %control.terminal, worker = control.pid, "a worker was stopped");
                tokio::spawn(async move {
                    tokio::time::sleep(STOPPED_WORKER_TIME).await;
                    Workers::end_if_stopped(&control, stop);
                });
            }
        }
    }

    /// Ends every terminal; false if some would not end in time.
    pub async fn end_terminals(&self) -> bool {
        let all = async {
            while !self.with_core(|core, _, effects| core.end_all(effects)) {
                self.terminal_left.notified().await;
            }
        };
        tokio::time::timeout(SHUTDOWN_TIME, all).await.is_ok()
    }
}
