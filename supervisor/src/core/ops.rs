//! What operators see: the answer to `x-shellward/terminals`, which is `ps --json`, and the numbers
//! of this moment.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};

use super::terminal::{Newest, Open};
use super::{Call, Core, Effect, Phase, Terminal, TerminalKey};
use crate::ahp::RpcError;
use crate::limits::WAITING_REQUESTS;
use crate::metrics::{Gauges, Metrics};
use crate::worker_link::Seen;

impl Core {
    /// What a probe found out about ptys, as everybody is told from now on.
    pub fn set_probe(&mut self, works: bool, report: Value) {
        self.settings.about["pty"] = json!(works);
        self.settings.about["probe"] = report;
    }

    /// The answer to `GET /healthz`: the host serves, and what terminals sit on.
    #[must_use]
    pub fn health(&self) -> String {
        let about = &self.settings.about;
        json!({ "status": "ok", "pty": about["pty"], "probe": about["probe"] }).to_string()
    }

    /// Asks a probe for somebody; who comes while one is asked waits for the same answer.
    pub(super) fn ask_probe(
        &mut self,
        call: &Call,
        effects: &mut Vec<Effect>,
    ) -> Result<Option<String>, RpcError> {
        let too_many = "too many requests wait for the probe's answer; try again when it has come";
        ask_once(
            &mut self.probe_askers,
            call,
            too_many,
            Effect::Probe,
            effects,
        )
    }

    /// The probe that was asked for has answered ([`Self::set_probe`]).
    pub fn probe_answered(&mut self) {
        let report = self.settings.about["probe"].to_string();
        for asker in std::mem::take(&mut self.probe_askers) {
            self.answer(&asker, Ok(Some(report.clone())));
        }
    }

    /// Asks how large the workers are, which is read outside the lock; who comes meanwhile gets the
    /// same answer, which tells what is so when it is given.
    pub(super) fn ask_report(
        &mut self,
        call: &Call,
        effects: &mut Vec<Effect>,
    ) -> Result<Option<String>, RpcError> {
        let too_many =
            "too many requests wait for the list of terminals; try again when it has come";
        ask_once(
            &mut self.report_askers,
            call,
            too_many,
            Effect::Report,
            effects,
        )
    }

    /// The workers' processes.
    #[must_use]
    pub fn worker_pids(&self) -> Vec<u32> {
        self.terminals
            .values()
            .filter_map(|terminal| terminal.worker_pid)
            .collect()
    }

    /// The workers' processes as they were found just now.
    pub fn workers_seen(&mut self, seen: HashMap<u32, Seen>) {
        for terminal in self.terminals.values_mut() {
            let seen = terminal.worker_pid.and_then(|pid| seen.get(&pid));
            terminal.is_unresponsive = seen.is_some_and(|seen| seen.is_stopped);
            terminal.figures.memory = seen.map(|seen| seen.memory);
        }
    }

    /// Why a worker that a supervisor before this one left, by its socket, was not taken over, or
    /// that this is so no more. Whether that is news.
    pub fn set_unadopted(&mut self, socket: &str, reason: Option<String>) -> bool {
        let before = match &reason {
            Some(reason) => self.unadopted.insert(socket.to_owned(), reason.clone()),
            None => self.unadopted.remove(socket),
        };
        before != reason
    }

    /// These workers, by their sockets, and why.
    #[must_use]
    pub fn unadopted(&self) -> &BTreeMap<String, String> {
        &self.unadopted
    }

    /// These workers, as operators see them: `[{"socket","reason"}]`.
    pub(super) fn left_alone(&self) -> Value {
        self.unadopted
            .iter()
            .map(|(socket, reason)| json!({ "socket": socket, "reason": reason }))
            .collect()
    }

    /// Answers who asked for the list of terminals, after [`Self::workers_seen`].
    pub fn report(&mut self, now: Instant) {
        let report = self.terminals_report(now);
        for asker in std::mem::take(&mut self.report_askers) {
            self.answer(&asker, Ok(Some(report.clone())));
        }
    }

    /// Where everything is counted.
    #[must_use]
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// What is so at this moment.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let mut gauges = Gauges {
            connections: self.connections.len(),
            ..Gauges::default()
        };
        for terminal in self.terminals.values() {
            match state(terminal) {
                State::Starting => gauges.starting += 1,
                State::Running => gauges.running += 1,
                State::Unresponsive => gauges.unresponsive += 1,
                State::Exited => gauges.exited += 1,
                State::Crashed => gauges.crashed += 1,
                State::Ending => gauges.ending += 1,
            }
            if let Some(link) = &terminal.link {
                let waiting = usize::try_from(link.waiting_input()).unwrap_or(usize::MAX);
                gauges.input_sum = gauges.input_sum.saturating_add(waiting);
                gauges.input_max = gauges.input_max.max(waiting);
            }
        }
        gauges.unadopted = self.unadopted.len();
        for connection in self.connections.values() {
            let waiting = connection.outbox.waiting();
            gauges.outbox_sum += waiting;
            gauges.outbox_max = gauges.outbox_max.max(waiting);
        }
        gauges
    }

    /// Something was typed into a terminal and accepted.
    pub(super) fn typed(&mut self, key: TerminalKey, data: &str, now: Instant) {
        if data.is_empty() {
            // Nothing will answer that.
            return;
        }
        let bytes = data.len() as u64;
        self.metrics.input_bytes.add(bytes);
        if let Some(terminal) = self.terminals.get_mut(&key) {
            terminal.figures.typed(bytes, now);
            terminal.commands.typed(data);
        }
    }

    /// `{"supervisor":{…},"terminals":[…]}`; members are only ever added (design.md).
    fn terminals_report(&self, now: Instant) -> String {
        let terminals: Vec<Value> = self
            .by_age()
            .into_iter()
            .map(|terminal| {
                let mut report = self.terminal_report(terminal);
                if let Some(members) = report.as_object_mut() {
                    let figures = &terminal.figures;
                    let end = terminal.exited_at.unwrap_or(now);
                    if let Some(uptime) = figures.uptime(end) {
                        members.insert("uptimeSeconds".into(), json!(uptime.as_secs()));
                    }
                    if let Some(bytes) = figures.memory {
                        members.insert("memoryBytes".into(), json!(bytes));
                    }
                    members.insert("outputBytes".into(), json!(figures.output_bytes));
                    members.insert("inputBytes".into(), json!(figures.input_bytes));
                    if let Some(reason) = &figures.pty_reason {
                        members.insert("ptyReason".into(), json!(reason));
                    }
                }
                report
            })
            .collect();
        let mut about = self.settings.about.clone();
        about["unadopted"] = self.left_alone();
        about["ending"] = json!(self.shutting_down);
        json!({ "supervisor": about, "terminals": terminals }).to_string()
    }

    fn terminal_report(&self, terminal: &Terminal) -> Value {
        let document = &terminal.document;
        let size = document.size();
        let state = match state(terminal) {
            State::Starting => "starting",
            State::Running => "running",
            State::Unresponsive => "unresponsive",
            State::Exited => "exited",
            State::Crashed => "crashed",
            State::Ending => "ending",
        };
        let mut report = json!({
            "uri": terminal.uri,
            "id": terminal.id,
            "title": document.title(),
            "state": state,
            "isPty": document.is_pty(),
            "workerPid": terminal.worker_pid,
            "shellPid": terminal.shell_pid,
            "cwd": document.cwd(),
            "cols": size.cols,
            "rows": size.rows,
            "claim": document.claim().to_ahp(),
            "person": null,
            "account": self.settings.account,
            "createdAt": terminal.created_at,
            "restarts": terminal.restarts,
            "detectsCommands": document.detects_commands(),
            "lineTyped": terminal.commands.line_typed,
            "lastCommand": match &terminal.commands.newest {
                Newest::None => Value::Null,
                Newest::Running(Open { id, .. }) => {
                    json!({ "commandId": id, "isComplete": false, "exitCode": null })
                }
                Newest::Finished { id, exit_code } => {
                    json!({ "commandId": id, "isComplete": true, "exitCode": exit_code })
                }
            },
        });
        if let (Some((code, signal)), Some(members)) = (document.exit(), report.as_object_mut()) {
            members.insert("exitCode".into(), json!(code));
            if let Some(signal) = signal {
                members.insert("signal".into(), json!(signal));
            }
        }
        report
    }
}

/// Makes `call` wait among `askers` for an answer that `effect` brings; it is asked for once, however
/// many wait.
fn ask_once(
    askers: &mut Vec<Call>,
    call: &Call,
    too_many: &str,
    effect: Effect,
    effects: &mut Vec<Effect>,
) -> Result<Option<String>, RpcError> {
    if call.id.is_none() {
        // A notification waits for nothing.
        return Ok(None);
    }
    if askers.len() >= WAITING_REQUESTS {
        return Err(RpcError::internal(too_many));
    }
    if askers.is_empty() {
        effects.push(effect);
    }
    askers.push(call.clone());
    Ok(None)
}

/// Where a terminal is in its life, as operators see it.
enum State {
    Starting,
    Running,
    /// Its worker was stopped.
    Unresponsive,
    Exited,
    /// It exited because its worker ended.
    Crashed,
    Ending,
}

fn state(terminal: &Terminal) -> State {
    match terminal.phase {
        Phase::Starting { .. } | Phase::Restarting { .. } => State::Starting,
        Phase::Ending { .. } => State::Ending,
        Phase::Live | Phase::Keeping => match terminal.end {
            Some(_) if terminal.is_crashed => State::Crashed,
            Some(_) => State::Exited,
            None if terminal.is_unresponsive => State::Unresponsive,
            None => State::Running,
        },
    }
}
