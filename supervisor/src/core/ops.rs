//! What operators see: the answer to `x-shellward/terminals`, which is `ps --json`.

use serde_json::{Value, json};

use super::terminal::{Newest, Open};
use super::{Call, Core, Effect, Phase, Terminal};
use crate::ahp::RpcError;
use crate::limits::WAITING_REQUESTS;

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
        if call.id.is_none() {
            // A notification waits for nothing.
            return Ok(None);
        }
        if self.probe_askers.len() >= WAITING_REQUESTS {
            return Err(RpcError::internal(
                "too many requests wait for the probe's answer; try again when it has come",
            ));
        }
        if self.probe_askers.is_empty() {
            effects.push(Effect::Probe);
        }
        self.probe_askers.push(call.clone());
        Ok(None)
    }

    /// The probe that was asked for has answered ([`Self::set_probe`]).
    pub fn probe_answered(&mut self) {
        let report = self.settings.about["probe"].to_string();
        for asker in std::mem::take(&mut self.probe_askers) {
            self.answer(&asker, Ok(Some(report.clone())));
        }
    }

    /// `{"supervisor":{…},"terminals":[…]}`; members are only ever added (design.md).
    pub(super) fn terminals_report(&self) -> String {
        let terminals: Vec<Value> = self
            .terminals
            .values()
            .map(|terminal| self.terminal_report(terminal))
            .collect();
        json!({ "supervisor": self.settings.about, "terminals": terminals }).to_string()
    }

    fn terminal_report(&self, terminal: &Terminal) -> Value {
        let document = &terminal.document;
        let size = document.size();
        let state = match terminal.phase {
            Phase::Starting { .. } => "starting",
            Phase::Ending { .. } => "ending",
            Phase::Live if document.exit().is_some() => "exited",
            Phase::Live => "running",
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
            "restarts": 0,
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
