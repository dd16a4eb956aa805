//! The task that looks after one terminal's worker, from its start to its end.

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::Signal;
use shellward_protocol::FromWorker;
use shellward_protocol::kept;
use shellward_protocol::message::{Event, Mode, Output, StartFailure, Started};
use tokio::time::timeout;

use super::frames::{LinkError, Receiver, Sender, attach, connect, start_frames};
use super::process::{Pipes, Process, Worker};
use super::shown::Shown;
use super::told::Stream;
use super::{leftovers, orphans};
use crate::ahp::envelope::OutputEnvelope;
use crate::core::{Gone, Pace, Running, StartPlan, TerminalKey};
use crate::faults;
use crate::host::Host;
use crate::limits::START_TIME;
use crate::signals;

/// How long a worker may take to leave after its link has ended, before it is killed.
const LEAVE_TIME: Duration = Duration::from_secs(2);

/// Starts a terminal and stays with it to the end.
pub(crate) async fn run(host: Arc<Host>, plan: StartPlan) {
    if let Some(again) = &plan.again {
        tokio::time::sleep(again.delay).await;
    }
    let permit = host.start_slots.acquire().await;
    let key = plan.key;
    if plan.ended.is_none() && host.ptys.is_stale() {
        host.ask_probe().await;
    }
    let ended = plan.ended.map(|ended| Ok(Mode::Ended(ended)));
    let mode = match ended.unwrap_or_else(|| host.ptys.choose()) {
        Ok(mode) => mode,
        Err(reason) => {
            host.with_core(|core, now, effects| core.start_failed(key, &reason, now, effects));
            return;
        }
    };
    let worker = Worker::spawn(
        &host.workers,
        key,
        &plan.id,
        &host.worker_binary,
        &host.worker_sockets,
    );
    let (mut worker, pipes) = match worker {
        Ok(spawned) => spawned,
        Err(error) => {
            tracing::warn!(terminal = %plan.id, %error, "a worker process cannot be started");
            let reason = format!(
                "a worker process cannot be started: {error}; try again when the machine has room"
            );
            host.with_core(|core, now, effects| core.start_failed(key, &reason, now, effects));
            return;
        }
    };
    let pid = worker.control.pid;
    faults::hit("supervisor.spawned");
    host.with_core(|core, _, _| core.worker_exists(key, pid));
    let control = Arc::clone(&worker.control);
    let started = tokio::select! {
        started = timeout(START_TIME, start(&host, &plan, mode, &worker, pipes)) => {
            started.unwrap_or_else(|_| Err(StartError::Said(format!("it took longer than {} s", START_TIME.as_secs()))))
        }
        () = control.kill.notified() => Err(StartError::Said("it was stopped".to_owned())),
    };
    drop(permit);
    let link = match started {
        Err(error) => {
            let (patience, crashed) = match &error {
                StartError::Said(_) => (Duration::ZERO, false),
                StartError::Ended => (LEAVE_TIME, true),
            };
            let status = leave(&host, key, &mut worker, patience).await;
            let reason = match error {
                StartError::Said(reason) => reason,
                StartError::Ended => {
                    let gone = how_it_ended(status, control.stopped_by(), false);
                    let words = gone.map_or_else(|| "left".to_owned(), |gone| gone.words);
                    format!("its worker {words} before the shell ran")
                }
            };
            if plan.ended.is_none() {
                host.ptys.count_start(crashed);
            }
            if crashed {
                host.metrics.worker_crashes.one();
            }
            tracing::warn!(terminal = %plan.id, %reason, "a terminal could not be started");
            host.with_core(|core, now, effects| {
                core.start_failed(
                    key,
                    &format!("the terminal could not be started: {reason}"),
                    now,
                    effects,
                );
            });
            return;
        }
        Ok((receiver, sender, started)) => {
            faults::hit("supervisor.started");
            if plan.ended.is_none() {
                host.ptys.count_start(false);
                tracing::info!(terminal = %plan.id, worker = pid, shell = started.shell_pid, pty = started.is_pty, "a terminal runs");
            } else {
                tracing::info!(terminal = %plan.id, worker = pid, "an exited terminal is kept by another worker");
            }
            let running =
                host.with_core(|core, now, effects| core.started(key, started, now, effects));
            let Some(running) = running else {
                leave(&host, key, &mut worker, Duration::ZERO).await;
                return;
            };
            Link {
                key,
                receiver,
                sender,
                running,
                stream: Stream::new(started.is_pty),
            }
        }
    };
    see_out(&host, worker, link).await;
}

/// A worker's link, from where its terminal is known to the core.
#[derive(Debug)]
pub(super) struct Link {
    pub key: TerminalKey,
    pub receiver: Receiver,
    pub sender: Sender,
    pub running: Running,
    pub stream: Stream,
}

/// Stays with a worker to its end.
pub(super) async fn see_out(host: &Host, mut worker: Worker, link: Link) {
    let key = link.key;
    let control = Arc::clone(&worker.control);
    let terminal = &control.terminal;
    let end = look_after(host, &mut worker, link).await;
    let violation = match end {
        Ok(()) | Err(LinkError::Io(_)) => None,
        Err(error) => {
            tracing::warn!(%terminal, %error, "a worker is ended");
            Some(error)
        }
    };
    let patience = if violation.is_some() {
        Duration::ZERO
    } else {
        LEAVE_TIME
    };
    let status = leave(host, key, &mut worker, patience).await;
    let gone = how_it_ended(status, control.stopped_by(), violation.is_some());
    tracing::info!(%terminal, worker = control.pid, how = gone.as_ref().map_or("in order", |gone| &gone.words), "a worker has ended");
    faults::hit("supervisor.worker-gone");
    host.with_core(|core, now, effects| core.worker_gone(key, gone.as_ref(), now, effects));
}

/// Why no shell runs.
#[derive(Debug)]
enum StartError {
    /// Somebody said so.
    Said(String),
    /// The worker ended without a word; how is seen when it is waited for.
    Ended,
}

impl From<String> for StartError {
    fn from(words: String) -> Self {
        Self::Said(words)
    }
}

/// Everything from the first byte on the worker's pipe to the shell's process id.
async fn start(
    host: &Host,
    plan: &StartPlan,
    mode: Mode<'_>,
    worker: &Worker,
    pipes: Pipes,
) -> Result<(Receiver, Sender, Started), StartError> {
    worker
        .boot(pipes)
        .await
        .map_err(|error| format!("the worker does not listen: {error}"))?;
    faults::hit("supervisor.booted");
    let attached = async {
        let peer = connect(&worker.socket).await?;
        if peer.pid != worker.control.pid {
            return Err(LinkError::Contract("somebody else listens at its socket"));
        }
        attach(peer, &worker.token, host.epoch).await
    };
    let (mut receiver, mut sender) = attached
        .await
        .map_err(|error| format!("the worker cannot be attached: {error}"))?;
    faults::hit("supervisor.attached");
    let frames = start_frames(host, plan, mode)
        .map_err(|error| format!("the environment cannot be passed on: {error}"))?;
    if sender.send(&frames).await.is_err() {
        return Err(StartError::Ended);
    }
    faults::hit("supervisor.start-sent");
    match receiver.fill().await {
        Ok(true) => {}
        Ok(false) | Err(LinkError::Io(_)) => return Err(StartError::Ended),
        Err(error) => return Err(error.to_string().into()),
    }
    match receiver.take() {
        Ok(Some(FromWorker::Started(started))) => Ok((receiver, sender, started)),
        Ok(Some(FromWorker::StartFailed(failed))) => Err(StartError::Said(match failed.failure {
            StartFailure::NoPty => format!(
                "no pty can be opened: {}; dispose terminals or raise kernel.pty.max",
                failed.reason
            ),
            StartFailure::NoProcess => format!(
                "no process can be started: {}; try again when the machine has room",
                failed.reason
            ),
            StartFailure::Refused | StartFailure::Other => failed.reason,
        })),
        Ok(_) => Err("the worker broke the contract".to_owned().into()),
        Err(error) => Err(error.to_string().into()),
    }
}

/// Passes messages both ways until the link ends.
async fn look_after(host: &Host, worker: &mut Worker, link: Link) -> Result<(), LinkError> {
    let Link {
        key,
        mut receiver,
        mut sender,
        running,
        mut stream,
    } = link;
    let link = Arc::clone(&running.link);
    let writer = tokio::spawn(async move {
        let mut frames = Vec::new();
        while let Ok(true) = link.next(&mut frames).await {
            // A broken link is noticed by the reader, which knows what to do.
            if sender.send(&frames).await.is_err() {
                break;
            }
            frames.clear();
            frames.shrink_to(16 << 10);
        }
    });
    let mut shown = Shown::default();
    let result = loop {
        if let Some(offset) = shown.due(&running.shared, || {
            host.with_core(|core, _, _| core.marks(key))
        }) {
            running.link.ack(offset);
        }
        let filled = tokio::select! {
            filled = receiver.fill() => filled,
            () = running.shared.resume.notified(), if shown.waits() => continue,
            () = worker.control.kill.notified() => {
                break Err(LinkError::Killed);
            }
        };
        match filled {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
        let handled = receiver
            .take()
            .and_then(|message| handle(host, key, worker, &running, &mut stream, message));
        let pace = match handled {
            Err(error) => break Err(error),
            Ok(pace) => {
                if let Some(offset) = stream.acknowledge() {
                    shown.wait(offset);
                }
                pace
            }
        };
        match pace {
            Pace::Go => {}
            Pace::Pause => {
                if let Err(error) = wait_for_readers(host, key, worker, &running).await {
                    break Err(error);
                }
            }
        }
    };
    running.link.close();
    writer.abort();
    result
}

/// Waits until one of the terminal's readers has caught up: the fastest paces the shell.
async fn wait_for_readers(
    host: &Host,
    key: TerminalKey,
    worker: &Worker,
    running: &Running,
) -> Result<(), LinkError> {
    while host.with_core(|core, _, _| core.pace(key)) == Pace::Pause {
        tokio::select! {
            () = running.shared.resume.notified() => {}
            () = worker.control.kill.notified() => return Err(LinkError::Killed),
        }
    }
    Ok(())
}

fn handle(
    host: &Host,
    key: TerminalKey,
    worker: &mut Worker,
    running: &Running,
    stream: &mut Stream,
    message: Option<FromWorker<'_>>,
) -> Result<Pace, LinkError> {
    let pace = match message {
        None => Pace::Go,
        Some(FromWorker::Output(output)) => {
            let pace = take_output(host, key, running, stream, &output)?;
            faults::hit("supervisor.output-taken");
            pace
        }
        Some(FromWorker::Event(event)) => take_event(host, key, stream, event)?,
        Some(FromWorker::InputTaken(taken)) => {
            running
                .link
                .taken(taken.total)
                .map_err(LinkError::Contract)?;
            Pace::Go
        }
        Some(FromWorker::Exited(exited)) => {
            stream.exit().map_err(LinkError::Contract)?;
            worker.shell_ended();
            faults::hit("supervisor.exit-received");
            host.with_core(|core, now, effects| core.exited(key, exited.status, now, effects));
            faults::hit("supervisor.exit-taken");
            Pace::Go
        }
        Some(FromWorker::Lost(lost)) => {
            let events = stream.lost(&lost).map_err(LinkError::Contract)?;
            let gap = kept::Gap {
                bytes: lost.bytes,
                modes: lost.modes,
            };
            host.with_core(|core, now, effects| {
                core.heard(key, stream.place());
                core.lost(key, gap, events, now, effects)
            })
        }
        Some(
            FromWorker::Started(_)
            | FromWorker::StartFailed(_)
            | FromWorker::Kept(_)
            | FromWorker::Past(_),
        ) => {
            return Err(LinkError::Contract("it announced two starts"));
        }
    };
    Ok(pace)
}

/// The output path: checked and serialised outside the core's lock, numbered and shared inside.
fn take_output(
    host: &Host,
    key: TerminalKey,
    running: &Running,
    stream: &mut Stream,
    output: &Output<'_>,
) -> Result<Pace, LinkError> {
    let text = stream.output(output).map_err(LinkError::Contract)?;
    let rendered = running
        .shared
        .is_recorded()
        .then(|| OutputEnvelope::new(&running.shared.channel_json, text));
    let place = stream.place();
    Ok(host.with_core(|core, now, _| {
        core.heard(key, place);
        core.output(key, text, &output.cuts, rendered, now)
    }))
}

fn take_event(
    host: &Host,
    key: TerminalKey,
    stream: &mut Stream,
    event: Event<'_>,
) -> Result<Pace, LinkError> {
    let what = stream.event(event).map_err(LinkError::Contract)?;
    let place = stream.place();
    Ok(host.with_core(|core, now, effects| {
        core.heard(key, place);
        core.happened(key, what, now, effects)
    }))
}

/// Waits for the worker's end, killing it if it takes longer than `patience`, and for the end of
/// whatever it left behind.
async fn leave(
    host: &Host,
    key: TerminalKey,
    worker: &mut Worker,
    patience: Duration,
) -> Option<ExitStatus> {
    let status = match timeout(patience, worker.wait()).await {
        Ok(status) => status,
        Err(_) => {
            if let Err(error) = worker.kill() {
                tracing::debug!(terminal = %worker.control.terminal, %error, "the worker has ended meanwhile");
            }
            worker.wait().await
        }
    };
    host.workers.forget(key);
    if !status.is_some_and(|status| status.success()) {
        match &worker.process {
            Process::Child(_) => orphans::sweep(&host.workers).await,
            Process::Adopted(adopted) => adopted.remains(&worker.control.terminal).end().await,
        }
        leftovers::remove(&worker.socket);
    }
    status
}

/// The end of a worker in words; `None` if it left as it should, or as far as one can know.
fn how_it_ended(
    status: Option<ExitStatus>,
    stopped_by: Option<i32>,
    violation: bool,
) -> Option<Gone> {
    use std::os::unix::process::ExitStatusExt as _;
    if let Some(signal) = stopped_by {
        let name = signals::name(signal);
        let words = format!("was stopped by {name}, did not go on, and was ended");
        return Some(Gone::by(words, Some(signal)));
    }
    if violation {
        let words = "broke the contract and was ended".to_owned();
        return Some(Gone::by(words, Some(Signal::SIGKILL as i32)));
    }
    match status {
        Some(status) if status.success() => None,
        Some(status) => Some(match (status.signal(), status.code()) {
            (Some(signal), _) => {
                let words = format!("was killed by {}", signals::name(signal));
                Gone::by(words, Some(signal))
            }
            (None, code) => {
                let words = format!("failed with exit code {}", code.unwrap_or(-1));
                Gone::by(words, None)
            }
        }),
        // One that was taken over: only its parent could know.
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shellward_protocol::message::ExitStatus as ShellEnd;
    use std::os::unix::process::ExitStatusExt as _;

    #[test]
    fn the_end_of_a_worker_has_words() {
        let raw = |status| Some(ExitStatus::from_raw(status));
        assert_eq!(how_it_ended(raw(0), None, false), None);
        assert_eq!(how_it_ended(None, None, false), None);
        assert_eq!(
            how_it_ended(raw(9), None, false).unwrap().status,
            ShellEnd::Signal(9)
        );
        assert_eq!(
            how_it_ended(raw(11), None, false).unwrap().words,
            "was killed by SIGSEGV"
        );
        assert_eq!(
            how_it_ended(raw(0x0100), None, false).unwrap().words,
            "failed with exit code 1"
        );
        assert_eq!(
            how_it_ended(raw(9), Some(19), false).unwrap().status,
            ShellEnd::Signal(19)
        );
    }
}
