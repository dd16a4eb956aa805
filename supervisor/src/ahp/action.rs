//! Actions: what a client dispatches, and what the host makes true.

use ahp_types::actions::{
    StateAction, TerminalClaimedAction, TerminalClearedAction,
    TerminalCommandDetectionAvailableAction, TerminalCommandExecutedAction,
    TerminalCommandFinishedAction, TerminalCwdChangedAction, TerminalExitedAction,
    TerminalResizedAction, TerminalTitleChangedAction,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use shellward_protocol::limits::SIZE_RANGE;
use shellward_protocol::message::Size;

use super::claim::Claim;
use super::{names, rpc};
use crate::scrollback::CommandEnd;

/// A dispatched action that can be considered.
#[derive(Debug, PartialEq)]
pub enum ClientAction {
    /// Type this.
    Input(String),
    /// Make the terminal this large.
    Resized(Size),
    /// Change who holds it.
    Claimed(Claim),
    /// Rename it; the title is clean already.
    TitleChanged(String),
    /// Empty its scrollback.
    Cleared,
    /// Change configuration values.
    RootConfig(Map<String, Value>),
    /// An action of a session or a chat: silence, as the specification asks.
    Foreign,
    /// It cannot be done, for this reason.
    Unusable(String),
}

impl ClientAction {
    /// Reads an action as a client wrote it.
    #[must_use]
    pub fn parse(raw: &str) -> Self {
        #[derive(Deserialize)]
        struct Input {
            data: String,
        }
        #[derive(Deserialize)]
        struct Kind<'a> {
            #[serde(borrow, rename = "type")]
            kind: std::borrow::Cow<'a, str>,
        }
        let Ok(Kind { kind }) = serde_json::from_str::<Kind<'_>>(raw) else {
            return Self::Unusable("an action needs a type".into());
        };
        let value = || serde_json::from_str::<Value>(raw).unwrap_or_default();
        match &*kind {
            "terminal/input" => match serde_json::from_str::<Input>(raw) {
                Ok(input) => Self::Input(input.data),
                Err(_) => Self::Unusable("terminal/input needs data, a string".into()),
            },
            "terminal/resized" => {
                let value = value();
                match (dimension(&value, "cols"), dimension(&value, "rows")) {
                    (Ok(Some(cols)), Ok(Some(rows))) => Self::Resized(Size { cols, rows }),
                    (Err(reason), _) | (_, Err(reason)) => Self::Unusable(reason),
                    _ => Self::Unusable("terminal/resized needs cols and rows".into()),
                }
            }
            "terminal/claimed" => match value().get("claim").map(Claim::parse) {
                Some(Ok(claim)) => Self::Claimed(claim),
                Some(Err(reason)) => Self::Unusable(reason),
                None => Self::Unusable("terminal/claimed needs claim".into()),
            },
            "terminal/titleChanged" => match value().get("title") {
                Some(Value::String(title)) => names::clean_title(title).map_or_else(
                    || Self::Unusable("the title has no visible characters".into()),
                    Self::TitleChanged,
                ),
                _ => Self::Unusable("terminal/titleChanged needs title, a string".into()),
            },
            "terminal/cleared" => Self::Cleared,
            "root/configChanged" => match value().get_mut("config").map(Value::take) {
                Some(Value::Object(config)) => Self::RootConfig(config),
                _ => Self::Unusable("root/configChanged needs config, an object".into()),
            },
            other if other.starts_with("terminal/") || other.starts_with("root/") => {
                let other: String = other.chars().take(100).collect();
                Self::Unusable(format!("clients cannot dispatch {other:?}"))
            }
            _ => Self::Foreign,
        }
    }
}

/// A number of columns or rows in `value[name]`; absent and null are `None`.
///
/// # Errors
/// Not an integer from 1 to 1000, in words (field case S-22).
pub fn dimension(value: &Value, name: &str) -> Result<Option<u16>, String> {
    match value.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(number) => number
            .as_u64()
            .and_then(|number| u16::try_from(number).ok())
            .filter(|number| SIZE_RANGE.contains(number))
            .map(Some)
            .ok_or_else(|| {
                format!(
                    "{name} must be an integer from {} to {}",
                    SIZE_RANGE.start(),
                    SIZE_RANGE.end()
                )
            }),
    }
}

/// Something that became true for a terminal. Output is not here: it has its own path
/// ([`super::envelope::OutputEnvelope`]).
#[derive(Debug, Clone)]
pub struct HostAction {
    pub(super) action: StateAction,
    /// The signal's name, beside the exit code (design.md, "signal death").
    pub(super) signal: Option<&'static str>,
}

impl HostAction {
    fn plain(action: StateAction) -> Self {
        Self {
            action,
            signal: None,
        }
    }

    /// `terminal/resized`
    #[must_use]
    pub fn resized(size: Size) -> Self {
        Self::plain(StateAction::TerminalResized(TerminalResizedAction {
            cols: size.cols.into(),
            rows: size.rows.into(),
        }))
    }

    /// `terminal/claimed`
    #[must_use]
    pub fn claimed(claim: &Claim) -> Self {
        Self::plain(StateAction::TerminalClaimed(TerminalClaimedAction {
            claim: claim.to_ahp(),
        }))
    }

    /// `terminal/titleChanged`
    #[must_use]
    pub fn title_changed(title: String) -> Self {
        Self::plain(StateAction::TerminalTitleChanged(
            TerminalTitleChangedAction { title },
        ))
    }

    /// `terminal/cleared`
    #[must_use]
    pub fn cleared() -> Self {
        Self::plain(StateAction::TerminalCleared(TerminalClearedAction {}))
    }

    /// `terminal/exited`
    #[must_use]
    pub fn exited(exit_code: i64, signal: Option<&'static str>) -> Self {
        Self {
            action: StateAction::TerminalExited(TerminalExitedAction {
                exit_code: Some(exit_code),
            }),
            signal,
        }
    }

    /// `terminal/cwdChanged`; `cwd` is a `file:` URI.
    #[must_use]
    pub fn cwd_changed(cwd: String) -> Self {
        Self::plain(StateAction::TerminalCwdChanged(TerminalCwdChangedAction {
            cwd,
        }))
    }

    /// `terminal/commandDetectionAvailable`
    #[must_use]
    pub fn command_detection_available() -> Self {
        Self::plain(StateAction::TerminalCommandDetectionAvailable(
            TerminalCommandDetectionAvailableAction {},
        ))
    }

    /// `terminal/commandExecuted`; `timestamp` in milliseconds since 1970.
    #[must_use]
    pub fn command_executed(command_id: String, command_line: String, timestamp: i64) -> Self {
        Self::plain(StateAction::TerminalCommandExecuted(
            TerminalCommandExecutedAction {
                command_id,
                command_line,
                timestamp,
            },
        ))
    }

    /// `terminal/commandFinished`
    #[must_use]
    pub fn command_finished(command_id: String, end: CommandEnd) -> Self {
        Self::plain(StateAction::TerminalCommandFinished(
            TerminalCommandFinishedAction {
                command_id,
                exit_code: end.exit_code,
                duration_ms: end.duration_ms,
            },
        ))
    }

    /// The action as it goes out.
    #[must_use]
    pub fn to_json(&self) -> String {
        match self.signal {
            None => rpc::to_json(&self.action),
            Some(signal) => {
                let mut value = serde_json::to_value(&self.action).unwrap_or_default();
                if let Some(members) = value.as_object_mut() {
                    members.insert("signal".into(), json!(signal));
                }
                rpc::to_json(&value)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_actions_are_read_and_bad_ones_say_why() {
        let size = |cols, rows| ClientAction::Resized(Size { cols, rows });
        let parse = |value: Value| ClientAction::parse(&value.to_string());
        assert_eq!(
            parse(json!({"type":"terminal/input","data":"a\u{0}"})),
            ClientAction::Input("a\0".into())
        );
        assert_eq!(
            parse(json!({"type":"terminal/resized","cols":1,"rows":1000})),
            size(1, 1000)
        );
        assert_eq!(
            parse(json!({"type":"terminal/cleared","more":1})),
            ClientAction::Cleared
        );
        assert_eq!(
            parse(json!({"type":"terminal/titleChanged","title":"a\nb"})),
            ClientAction::TitleChanged("ab".into())
        );
        assert_eq!(
            parse(json!({"type":"session/titleChanged","title":1})),
            ClientAction::Foreign
        );
        assert_eq!(
            parse(json!({"type":"chat/turnStarted"})),
            ClientAction::Foreign
        );
        for bad in [
            json!({}),
            json!(7),
            json!({"type":5}),
            json!({"type":"terminal/input"}),
            json!({"type":"terminal/input","data":1}),
            json!({"type":"terminal/resized"}),
            json!({"type":"terminal/resized","cols":80}),
            json!({"type":"terminal/titleChanged","title":"\n"}),
            json!({"type":"terminal/titleChanged"}),
            json!({"type":"terminal/claimed"}),
            json!({"type":"terminal/claimed","claim":null}),
            json!({"type":"root/configChanged"}),
            json!({"type":"root/configChanged","config":[]}),
            json!({"type":"terminal/data","data":"x"}),
            json!({"type":"terminal/exited"}),
            json!({"type":"root/terminalsChanged","terminals":[]}),
        ] {
            assert!(
                matches!(parse(bad.clone()), ClientAction::Unusable(_)),
                "{bad}"
            );
        }
    }

    #[test]
    fn s22_only_integers_from_1_to_1000_are_sizes() {
        for bad in [
            json!(0),
            json!(-1),
            json!(1.5),
            json!(80.0),
            json!(1001),
            json!(65_536),
            json!(2_147_483_648_u64),
            json!("80"),
            json!("NaN"),
            json!([80]),
        ] {
            assert!(dimension(&json!({"cols": bad}), "cols").is_err(), "{bad}");
        }
        assert_eq!(dimension(&json!({"cols":null}), "cols"), Ok(None));
        assert_eq!(dimension(&json!({"cols":1000}), "cols"), Ok(Some(1000)));
    }

    #[test]
    fn a_signal_stands_beside_the_exit_code() {
        assert_eq!(
            serde_json::from_str::<Value>(&HostAction::exited(128, Some("SIGKILL")).to_json())
                .unwrap(),
            json!({"type":"terminal/exited","exitCode":128,"signal":"SIGKILL"})
        );
        assert_eq!(
            HostAction::exited(3, None).to_json(),
            r#"{"type":"terminal/exited","exitCode":3}"#
        );
    }

    #[test]
    fn what_a_command_does_not_tell_is_left_out() {
        let finished = |exit_code, duration_ms| {
            let end = CommandEnd {
                exit_code,
                duration_ms,
            };
            HostAction::command_finished("1".into(), end).to_json()
        };
        assert_eq!(
            finished(Some(-1), Some(12)),
            r#"{"type":"terminal/commandFinished","commandId":"1","exitCode":-1,"durationMs":12}"#
        );
        assert_eq!(
            finished(None, None),
            r#"{"type":"terminal/commandFinished","commandId":"1"}"#
        );
        assert_eq!(
            HostAction::command_executed("1".into(), "a\nb".into(), 5).to_json(),
            r#"{"type":"terminal/commandExecuted","commandId":"1","commandLine":"a\nb","timestamp":5}"#
        );
    }
}
