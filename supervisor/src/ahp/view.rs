//! A terminal as a client sees it: its snapshot and the actions after it, by the official reducer.
//! For the commands ([`crate::cli`]); the host has [`super::TerminalDocument`].

use ahp::reducers::apply_action_to_terminal;
use ahp_types::actions::ActionEnvelope;
use ahp_types::state::{
    TerminalCommandPart, TerminalContentPart, TerminalLifecycleState, TerminalState,
};
use serde_json::{Value, json};

/// A terminal that somebody subscribed to.
#[derive(Debug)]
pub struct View {
    state: TerminalState,
    /// The number of the last action in it.
    seq: u64,
    signal: Value,
}

impl View {
    /// What the result of `subscribe` shows.
    ///
    /// # Errors
    /// It is no terminal's.
    pub fn new(mut result: Value) -> Result<Self, serde_json::Error> {
        let snapshot = &mut result["snapshot"];
        Ok(Self {
            seq: snapshot["fromSeq"].as_u64().unwrap_or_default(),
            signal: snapshot["state"]["signal"].take(),
            state: serde_json::from_value(snapshot["state"].take())?,
        })
    }

    /// Takes in the parameters of an `action`; what is none, or refused, changes nothing.
    pub fn apply(&mut self, params: &Value) {
        let Ok(envelope) = serde_json::from_value::<ActionEnvelope>(params.clone()) else {
            return;
        };
        if envelope.rejection_reason.is_some() || envelope.server_seq <= self.seq {
            return;
        }
        self.seq = envelope.server_seq;
        if params["action"]["type"] == "terminal/exited" {
            self.signal = params["action"]["signal"].clone();
        }
        apply_action_to_terminal(&mut self.state, &envelope.action);
    }

    /// Everything it has printed, as far as it is kept.
    #[must_use]
    pub fn text(&self) -> String {
        let text = |part: &TerminalContentPart| match part {
            TerminalContentPart::Unclassified(part) => part.value.clone(),
            TerminalContentPart::Command(part) => part.output.clone(),
            TerminalContentPart::Unknown(_) => String::new(),
        };
        self.state.content.iter().map(text).collect()
    }

    /// Whether its shell runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self.state.lifecycle, TerminalLifecycleState::Running(_))
    }

    /// Title, state and end, as `read --json` tells them.
    #[must_use]
    pub fn report(&self) -> Value {
        let (state, exit_code) = match &self.state.lifecycle {
            TerminalLifecycleState::Running(_) => ("running", None),
            TerminalLifecycleState::Exited(exited) => ("exited", exited.exit_code),
        };
        json!({
            "title": self.state.title,
            "state": state,
            "exitCode": exit_code,
            "signal": self.signal,
        })
    }

    /// The newest command, and what it has printed.
    #[must_use]
    pub fn last_command(&self) -> Option<Command<'_>> {
        self.state.content.iter().rev().find_map(|part| match part {
            TerminalContentPart::Command(command) => Some(Command(command)),
            _ => None,
        })
    }
}

/// A command of a [`View`].
#[derive(Debug)]
pub struct Command<'a>(&'a TerminalCommandPart);

impl Command<'_> {
    /// What it has printed.
    #[must_use]
    pub fn output(&self) -> &str {
        &self.0.output
    }

    /// All but that, as `read --last-command --json` tells it.
    #[must_use]
    pub fn report(&self) -> Value {
        json!({
            "commandId": self.0.command_id,
            "commandLine": self.0.command_line,
            "exitCode": self.0.exit_code,
            "durationMs": self.0.duration_ms,
            "timestamp": self.0.timestamp,
            "isComplete": self.0.is_complete,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_follows_what_it_is_told() {
        let mut view = View::new(json!({"snapshot":{"resource":"t:/x","fromSeq":5,"state":{
            "title":"t","claim":{"kind":"client","clientId":"c"},"lifecycle":{"status":"running"},
            "content":[{"type":"unclassified","value":"$ "}]}}}))
        .unwrap();
        let mut tell = |seq: u64, action: Value| {
            view.apply(&json!({"channel":"t:/x","serverSeq":seq,"action":action}));
        };
        tell(
            5,
            json!({"type":"terminal/data","data":"in the snapshot already"}),
        );
        tell(
            6,
            json!({"type":"terminal/commandExecuted","commandId":"1","commandLine":"ls","timestamp":9}),
        );
        tell(7, json!({"type":"terminal/data","data":"a\n"}));
        tell(
            8,
            json!({"type":"terminal/commandFinished","commandId":"1","exitCode":0}),
        );
        tell(
            9,
            json!({"type":"terminal/exited","exitCode":128,"signal":"SIGHUP"}),
        );
        assert_eq!(view.text(), "$ a\n");
        assert!(!view.is_running());
        assert_eq!(
            view.report(),
            json!({"title":"t","state":"exited","exitCode":128,"signal":"SIGHUP"})
        );
        let command = view.last_command().unwrap();
        assert_eq!(command.output(), "a\n");
        assert_eq!(
            command.report(),
            json!({"commandId":"1","commandLine":"ls","exitCode":0,"durationMs":null,"timestamp":9,"isComplete":true})
        );
        assert!(View::new(json!({"snapshot":{"state":{}}})).is_err());
    }
}
