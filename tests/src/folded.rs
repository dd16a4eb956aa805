//! A terminal as the official reducer makes it of a snapshot and the actions after it.

use ahp::reducers::apply_action_to_terminal;
use ahp_types::actions::{ActionEnvelope, StateAction};
use ahp_types::state::{TerminalContentPart, TerminalState};
use serde_json::Value;

/// State, and the number of the last action in it.
#[derive(Debug, Clone)]
pub struct Folded {
    pub state: TerminalState,
    pub seq: u64,
}

impl Folded {
    /// From a snapshot as it came over the wire.
    pub fn new(snapshot: &Value) -> Self {
        let state = serde_json::from_value(snapshot["state"].clone())
            .unwrap_or_else(|error| panic!("no TerminalState ({error}): {snapshot}"));
        Self {
            state,
            seq: snapshot["fromSeq"].as_u64().expect("an integer fromSeq"),
        }
    }

    /// Applies one envelope, unless the snapshot has it already or it is a refusal.
    pub fn apply_value(&mut self, envelope: &Value) {
        let envelope: ActionEnvelope = serde_json::from_value(envelope.clone())
            .unwrap_or_else(|error| panic!("no ActionEnvelope ({error}): {envelope}"));
        self.apply(&envelope);
    }

    pub fn apply(&mut self, envelope: &ActionEnvelope) {
        if envelope.rejection_reason.is_some() || envelope.server_seq <= self.seq {
            return;
        }
        assert!(
            !matches!(envelope.action, StateAction::Unknown(_)),
            "an action that the official types do not know: {envelope:?}"
        );
        apply_action_to_terminal(&mut self.state, &envelope.action);
        self.seq = envelope.server_seq;
    }

    /// Everything the terminal shows, commands included.
    pub fn text(&self) -> String {
        text_of(&self.state)
    }

    /// Compares with a snapshot taken at `self.seq` or after the last action for this channel.
    ///
    /// The snapshot may hold less of the old text: trimming has no action.
    #[track_caller]
    pub fn assert_equals(&self, fresh: &Self) {
        let mut mine = self.state.clone();
        let mut theirs = fresh.state.clone();
        mine.content = Vec::new();
        theirs.content = Vec::new();
        assert_eq!(mine, theirs, "folded state and snapshot differ");
        let (mine, theirs) = (self.text(), fresh.text());
        assert!(
            mine.ends_with(&theirs),
            "the snapshot's text is not the end of the folded text:\n…{:?}\n…{:?}",
            tail(&mine),
            tail(&theirs)
        );
        let (mine, theirs) = (mine.chars().count(), theirs.chars().count());
        assert!(theirs <= 200_000, "scrollback of {theirs} characters");
        assert!(
            theirs >= mine.min(100_000),
            "the snapshot keeps {theirs} of {mine} characters"
        );
    }
}

fn tail(text: &str) -> String {
    let from = text.chars().count().saturating_sub(200);
    text.chars().skip(from).collect()
}

pub fn text_of(state: &TerminalState) -> String {
    state
        .content
        .iter()
        .map(|part| match part {
            TerminalContentPart::Unclassified(part) => part.value.as_str(),
            TerminalContentPart::Command(part) => part.output.as_str(),
            TerminalContentPart::Unknown(part) => panic!("an unknown content part: {part}"),
        })
        .collect()
}
