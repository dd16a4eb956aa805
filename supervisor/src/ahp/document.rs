//! One terminal's state: what the official reducer makes of the actions that were sent.
//!
//! Output alone does not go through the reducer, which knows no bound; [`Scrollback`] holds it, and
//! a test below proves that both tell the same.

use ahp::reducers::apply_action_to_terminal;
use ahp_types::actions::StateAction;
use ahp_types::state::{
    TerminalContentPart, TerminalExitedLifecycleState, TerminalInfo, TerminalLifecycleState,
    TerminalRunningLifecycleState, TerminalState, TerminalUnclassifiedPart,
};
use serde::Serialize;
use shellward_protocol::message::Size;

use super::action::HostAction;
use super::claim::Claim;
use super::rpc::to_json;
use crate::scrollback::Scrollback;

/// A terminal as clients see it.
#[derive(Debug)]
pub struct TerminalDocument {
    /// Everything but the content.
    state: TerminalState,
    scrollback: Scrollback,
    signal: Option<&'static str>,
    claim: Claim,
}

/// The protocol's terminal state, and the flat exit members (design.md: every version parses both).
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct StateOut<'a> {
    #[serde(flatten)]
    state: &'a TerminalState,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<&'static str>,
}

/// An entry of the root list.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InfoOut {
    #[serde(flatten)]
    info: TerminalInfo,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<&'static str>,
}

impl TerminalDocument {
    /// A terminal that has printed nothing yet.
    #[must_use]
    pub fn new(title: String, claim: Claim, cwd_uri: String, size: Size, is_pty: bool) -> Self {
        Self {
            state: TerminalState {
                title,
                cwd: Some(cwd_uri),
                cols: Some(size.cols.into()),
                rows: Some(size.rows.into()),
                content: Vec::new(),
                lifecycle: TerminalLifecycleState::Running(TerminalRunningLifecycleState {}),
                claim: claim.to_ahp(),
                supports_command_detection: Some(false),
                is_pty: Some(is_pty),
            },
            scrollback: Scrollback::default(),
            signal: None,
            claim,
        }
    }

    /// Applies an action that is being sent.
    pub fn apply(&mut self, action: &HostAction, claim: Option<&Claim>) {
        if matches!(action.action, StateAction::TerminalCleared(_)) {
            self.scrollback.clear();
        }
        if matches!(action.action, StateAction::TerminalExited(_)) {
            self.signal = action.signal;
        }
        if let Some(claim) = claim {
            self.claim = claim.clone();
        }
        apply_action_to_terminal(&mut self.state, &action.action);
    }

    /// Appends output that is being sent.
    pub fn append(&mut self, text: &str, cuts: &[u32]) {
        self.scrollback.push(text, cuts);
    }

    /// The claim in force.
    #[must_use]
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// The title in force.
    #[must_use]
    pub fn title(&self) -> &str {
        &self.state.title
    }

    /// The directory, as a URI.
    #[must_use]
    pub fn cwd(&self) -> &str {
        self.state.cwd.as_deref().unwrap_or_default()
    }

    /// The size in force.
    #[must_use]
    pub fn size(&self) -> Size {
        let number = |n: Option<i64>| n.and_then(|n| u16::try_from(n).ok()).unwrap_or(1);
        Size {
            cols: number(self.state.cols),
            rows: number(self.state.rows),
        }
    }

    /// Says what it sits on, before anybody has seen it.
    pub fn set_pty(&mut self, is_pty: bool) {
        self.state.is_pty = Some(is_pty);
    }

    /// Whether it sits on a pty.
    #[must_use]
    pub fn is_pty(&self) -> bool {
        self.state.is_pty == Some(true)
    }

    /// Exit code and signal, once it has exited.
    #[must_use]
    pub fn exit(&self) -> Option<(i64, Option<&'static str>)> {
        match &self.state.lifecycle {
            TerminalLifecycleState::Exited(TerminalExitedLifecycleState { exit_code }) => {
                Some((exit_code.unwrap_or_default(), self.signal))
            }
            TerminalLifecycleState::Running(_) => None,
        }
    }

    /// A snapshot object for the channel as the subscriber spells it.
    #[must_use]
    pub fn snapshot(&self, resource: &str, seq: u64) -> String {
        let mut state = self.state.clone();
        let visible = self.scrollback.visible();
        if !visible.is_empty() {
            state.content.push(TerminalContentPart::Unclassified(
                TerminalUnclassifiedPart {
                    value: visible.to_owned(),
                },
            ));
        }
        let state = to_json(&StateOut {
            state: &state,
            exit_code: self.exit().map(|(code, _)| code),
            signal: self.signal,
        });
        super::root::snapshot_json(resource, &state, seq)
    }

    /// This terminal's entry in the root list.
    #[must_use]
    pub fn info(&self, resource: &str) -> InfoOut {
        InfoOut {
            info: TerminalInfo {
                resource: resource.to_owned(),
                title: self.state.title.clone(),
                claim: self.state.claim.clone(),
                lifecycle: self.state.lifecycle.clone(),
            },
            exit_code: self.exit().map(|(code, _)| code),
            signal: self.signal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahp_types::actions::TerminalDataAction;
    use ahp_types::state::Snapshot;
    use proptest::prelude::*;
    use serde_json::Value;

    fn document() -> TerminalDocument {
        TerminalDocument::new(
            "bash".into(),
            Claim::Client("c".into()),
            "file:///".into(),
            Size { cols: 80, rows: 24 },
            true,
        )
    }

    fn snapshot_state(document: &TerminalDocument) -> TerminalState {
        let value: Value = serde_json::from_str(&document.snapshot("t:/x", 5)).unwrap();
        let snapshot: Snapshot = serde_json::from_value(value.clone()).unwrap();
        assert_eq!((snapshot.resource.as_str(), snapshot.from_seq), ("t:/x", 5));
        serde_json::from_value(value["state"].clone()).unwrap()
    }

    #[derive(Debug, Clone)]
    enum Step {
        Data(String),
        Clear,
        Title(String),
        Size(u16, u16),
        Exit(i64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => "[ -~\u{1b}\r\n漢😀]{1,40}".prop_map(Step::Data),
            1 => Just(Step::Clear),
            1 => "[a-z]{1,5}".prop_map(Step::Title),
            1 => (1_u16..1000, 1_u16..1000).prop_map(|(c, r)| Step::Size(c, r)),
            1 => (0_i64..255).prop_map(Step::Exit),
        ]
    }

    proptest! {
        #[test]
        fn the_document_is_what_the_official_reducer_makes_of_it(steps in proptest::collection::vec(step(), 0..30)) {
            let mut ours = document();
            let mut official = snapshot_state(&ours);
            for step in steps {
                let action = match step {
                    Step::Data(data) => {
                        ours.append(&data, &[]);
                        apply_action_to_terminal(&mut official, &StateAction::TerminalData(TerminalDataAction { data }));
                        continue;
                    }
                    Step::Clear => HostAction::cleared(),
                    Step::Title(title) => HostAction::title_changed(title),
                    Step::Size(cols, rows) => HostAction::resized(Size { cols, rows }),
                    Step::Exit(code) => HostAction::exited(code, None),
                };
                ours.apply(&action, None);
                let sent: StateAction = serde_json::from_str(&action.to_json()).unwrap();
                apply_action_to_terminal(&mut official, &sent);
            }
            prop_assert_eq!(snapshot_state(&ours), official);
        }
    }

    #[test]
    fn an_exit_is_told_in_both_forms() {
        let mut document = document();
        document.apply(&HostAction::exited(128, Some("SIGKILL")), None);
        let value: Value = serde_json::from_str(&document.snapshot("t:/x", 0)).unwrap();
        let info = serde_json::to_value(document.info("t:/x")).unwrap();
        for state in [&value["state"], &info] {
            assert_eq!(
                state["lifecycle"],
                serde_json::json!({"status":"exited","exitCode":128})
            );
            assert_eq!(state["exitCode"], 128);
            assert_eq!(state["signal"], "SIGKILL");
        }
        assert_eq!(document.exit(), Some((128, Some("SIGKILL"))));
    }
}
