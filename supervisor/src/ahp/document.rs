//! One terminal's state: what the official reducer makes of the actions that were sent.
//!
//! The content alone does not go through the reducer, which knows no bound; [`Scrollback`] holds it,
//! and a test below proves that both tell the same.

use ahp::reducers::apply_action_to_terminal;
use ahp_types::actions::StateAction;
use ahp_types::state::{
    TerminalCommandPart, TerminalContentPart, TerminalExitedLifecycleState, TerminalInfo,
    TerminalLifecycleState, TerminalRunningLifecycleState, TerminalState, TerminalUnclassifiedPart,
};
use serde::Serialize;
use shellward_protocol::Modes;
use shellward_protocol::kept::Past;
use shellward_protocol::message::{Cut, Size};

use super::action::HostAction;
use super::claim::Claim;
use super::rpc::to_json;
use crate::scrollback::{Command, CommandEnd, Scrollback};

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
        if let Some(claim) = claim {
            self.claim = claim.clone();
        }
        match &action.action {
            StateAction::TerminalCommandExecuted(executed) => {
                self.state.supports_command_detection = Some(true);
                self.scrollback.start_command(Command {
                    id: executed.command_id.clone(),
                    line: executed.command_line.clone(),
                    timestamp: executed.timestamp,
                    end: None,
                });
                return;
            }
            StateAction::TerminalCommandFinished(finished) => {
                let end = CommandEnd {
                    exit_code: finished.exit_code,
                    duration_ms: finished.duration_ms,
                };
                self.scrollback.finish_command(&finished.command_id, end);
                return;
            }
            StateAction::TerminalCleared(_) => self.scrollback.clear(),
            StateAction::TerminalExited(_) => self.signal = action.signal,
            _ => {}
        }
        apply_action_to_terminal(&mut self.state, &action.action);
    }

    /// Appends output that is being sent.
    pub fn append(&mut self, text: &str, cuts: &[Cut]) {
        self.scrollback.push(text, cuts);
    }

    /// Older output than the first that will come gave way already.
    pub fn begin_trimmed(&mut self) {
        self.scrollback.begin_trimmed();
    }

    /// The modes in force at its end, as far as they were told.
    #[must_use]
    pub fn modes(&self) -> Modes {
        self.scrollback.modes()
    }

    /// What was shown, for a worker to keep.
    #[must_use]
    pub fn past(&self) -> Vec<Past<'static>> {
        self.scrollback.past()
    }

    /// A new shell runs in it. Nothing tells that to those who have seen the exit.
    pub fn run_again(&mut self) {
        self.state.lifecycle = TerminalLifecycleState::Running(TerminalRunningLifecycleState {});
        self.signal = None;
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

    /// Whether commands are told apart.
    #[must_use]
    pub fn detects_commands(&self) -> bool {
        self.state.supports_command_detection == Some(true)
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
        state.content = self.content();
        let state = to_json(&StateOut {
            state: &state,
            exit_code: self.exit().map(|(code, _)| code),
            signal: self.signal,
        });
        super::root::snapshot_json(resource, &state, seq)
    }

    fn content(&self) -> Vec<TerminalContentPart> {
        let visible = self.scrollback.visible();
        let unclassified =
            |value| TerminalContentPart::Unclassified(TerminalUnclassifiedPart { value });
        let restore = (!visible.restore.is_empty()).then(|| unclassified(visible.restore));
        let parts = visible
            .parts
            .into_iter()
            .map(|(command, text)| match command {
                None => unclassified(text.to_owned()),
                Some(command) => TerminalContentPart::Command(TerminalCommandPart {
                    command_id: command.id.clone(),
                    command_line: command.line.clone(),
                    output: text.to_owned(),
                    timestamp: command.timestamp,
                    is_complete: command.end.is_some(),
                    exit_code: command.end.and_then(|end| end.exit_code),
                    duration_ms: command.end.and_then(|end| end.duration_ms),
                }),
            });
        restore.into_iter().chain(parts).collect()
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
    use crate::limits::SCROLLBACK_CHARS;
    use ahp_types::actions::TerminalDataAction;
    use ahp_types::state::Snapshot;
    use proptest::prelude::*;
    use serde_json::Value;
    use shellward_protocol::Modes;

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
        /// Data again and again, to get over the bounds.
        Flood(String, usize),
        Clear,
        Title(String),
        Cwd(String),
        Size(u16, u16),
        Exit(i64),
        Detects,
        Executed(String, i64),
        /// The end of the newest command, or of one that never was.
        Finished(bool, Option<i64>, Option<i64>),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => "[ -~\u{1b}\r\n漢😀]{0,40}".prop_map(Step::Data),
            1 => Just(Step::Clear),
            1 => "[a-z]{1,5}".prop_map(Step::Title),
            1 => "file:///[a-z]{1,5}".prop_map(Step::Cwd),
            1 => (1_u16..1000, 1_u16..1000).prop_map(|(c, r)| Step::Size(c, r)),
            1 => (0_i64..255).prop_map(Step::Exit),
            1 => Just(Step::Detects),
            3 => ("[a-z\n漢]{0,20}", 0_i64..1 << 50).prop_map(|(line, at)| Step::Executed(line, at)),
            3 => (any::<bool>(), any::<Option<i64>>(), any::<Option<i64>>())
                .prop_map(|(known, code, ms)| Step::Finished(known, code, ms)),
        ]
    }

    fn flood() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => step(),
            1 => ("[a-z漢]{1,30}\n", 1_usize..2500).prop_map(|(line, times)| Step::Flood(line, times)),
        ]
    }

    /// Takes a step in a document and, by the actions as they are sent, in the official state.
    fn take(step: Step, ours: &mut TerminalDocument, official: &mut TerminalState, ids: &mut u32) {
        let mut data = |data: String| {
            let cuts: Vec<Cut> = data
                .match_indices('\n')
                .map(|(at, _)| Cut {
                    at: u32::try_from(at + 1).unwrap(),
                    modes: Modes(1 << 18),
                })
                .collect();
            ours.append(&data, &cuts);
            let action = StateAction::TerminalData(TerminalDataAction { data });
            apply_action_to_terminal(official, &action);
        };
        let action = match step {
            Step::Data(text) => return data(text),
            Step::Flood(line, times) => {
                for _ in 0..20 {
                    data(line.repeat(times / 20));
                }
                return;
            }
            Step::Clear => HostAction::cleared(),
            Step::Title(title) => HostAction::title_changed(title),
            Step::Cwd(cwd) => HostAction::cwd_changed(cwd),
            Step::Size(cols, rows) => HostAction::resized(Size { cols, rows }),
            Step::Exit(code) => HostAction::exited(code, None),
            Step::Detects => HostAction::command_detection_available(),
            Step::Executed(line, timestamp) => {
                *ids += 1;
                HostAction::command_executed(ids.to_string(), line, timestamp)
            }
            Step::Finished(known, exit_code, duration_ms) => {
                let id = if known {
                    ids.to_string()
                } else {
                    "none".into()
                };
                let end = CommandEnd {
                    exit_code,
                    duration_ms,
                };
                HostAction::command_finished(id, end)
            }
        };
        ours.apply(&action, None);
        let sent: StateAction = serde_json::from_str(&action.to_json()).unwrap();
        assert!(!matches!(sent, StateAction::Unknown(_)), "{sent:?}");
        apply_action_to_terminal(official, &sent);
    }

    proptest! {
        #[test]
        fn the_document_is_what_the_official_reducer_makes_of_it(steps in proptest::collection::vec(step(), 0..40)) {
            let mut ours = document();
            let mut official = snapshot_state(&ours);
            let mut ids = 0;
            for step in steps {
                take(step, &mut ours, &mut official, &mut ids);
            }
            prop_assert_eq!(snapshot_state(&ours), official);
        }
    }

    fn text(part: &TerminalContentPart) -> &str {
        match part {
            TerminalContentPart::Unclassified(part) => &part.value,
            TerminalContentPart::Command(part) => &part.output,
            TerminalContentPart::Unknown(part) => panic!("{part:?}"),
        }
    }

    fn without_text(mut part: TerminalContentPart) -> TerminalContentPart {
        match &mut part {
            TerminalContentPart::Unclassified(part) => part.value.clear(),
            TerminalContentPart::Command(part) => part.output.clear(),
            TerminalContentPart::Unknown(part) => panic!("{part:?}"),
        }
        part
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn s24_a_trimmed_document_is_the_end_of_it_after_a_part_that_restores_the_modes(steps in proptest::collection::vec(flood(), 0..80)) {
            let mut ours = document();
            let mut official = snapshot_state(&ours);
            let mut ids = 0;
            for step in steps {
                take(step, &mut ours, &mut official, &mut ids);
            }
            let mut seen = snapshot_state(&ours);
            let whole: usize = official.content.iter().map(|part| text(part).chars().count()).sum();
            let mut content = std::mem::take(&mut seen.content);
            let restored = content.first().map(text) == Some("\u{1b}[?2004h");
            if restored {
                content.remove(0);
            }
            let mut theirs = std::mem::take(&mut official.content);
            prop_assert_eq!(seen, official);
            let shown: usize = content.iter().map(|part| text(part).chars().count()).sum();
            prop_assert!(shown <= SCROLLBACK_CHARS);
            prop_assert!(whole == shown || restored, "{whole} {shown}");
            // Parts from the front are gone, and the first that is left lacks its beginning.
            theirs.drain(..theirs.len() - content.len());
            if let (Some(first), Some(theirs)) = (content.first_mut(), theirs.first_mut()) {
                prop_assert!(text(theirs).ends_with(text(first)));
                (*first, *theirs) = (without_text(first.clone()), without_text(theirs.clone()));
            }
            prop_assert_eq!(content, theirs);
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
