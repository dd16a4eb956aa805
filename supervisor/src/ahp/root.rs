//! The root channel: agents (none yet), the list of terminals, configuration.

use ahp_types::state::{ConfigPropertySchema, ConfigSchema, RootConfigState, RootState};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::document::InfoOut;
use super::rpc::to_json;

/// The one configuration value clients may set: the shell of the terminals they open. Each
/// connection has its own (ahp-facts 3).
pub const DEFAULT_SHELL: &str = "defaultShell";

/// A snapshot object; `state` is JSON already.
#[must_use]
pub fn snapshot_json(resource: &str, state: &str, seq: u64) -> String {
    format!(
        r#"{{"resource":{},"state":{state},"fromSeq":{seq}}}"#,
        to_json(&resource)
    )
}

/// The configuration values as one connection sees them.
#[must_use]
pub fn config_values(default_shell: &str) -> Map<String, Value> {
    let mut values = Map::new();
    values.insert(DEFAULT_SHELL.into(), json!(default_shell));
    values
}

/// Where the root state tells what a probe found out about ptys.
pub const PROBE: &str = "shellward.probe";

/// The root state as one connection sees it; `terminals` is the list as JSON.
#[must_use]
pub fn state(terminals: &str, default_shell: &str, probe: &Value) -> String {
    let property = ConfigPropertySchema {
        r#type: "string".into(),
        title: "Default Shell".into(),
        description: Some(
            "Absolute path of the shell that terminals opened by this connection run".into(),
        ),
        default: None,
        r#enum: None,
        enum_labels: None,
        enum_descriptions: None,
        read_only: None,
        items: None,
        min_items: None,
        max_items: None,
        properties: None,
        required: None,
        additional_properties: None,
    };
    let state = RootState {
        agents: Vec::new(),
        active_sessions: Some(0),
        terminals: None,
        config: Some(RootConfigState {
            schema: ConfigSchema {
                r#type: "object".into(),
                properties: [(DEFAULT_SHELL.to_owned(), property)].into(),
                required: None,
            },
            values: config_values(default_shell),
        }),
        meta: Some([(PROBE.to_owned(), probe.clone())].into_iter().collect()),
    };
    let mut text = to_json(&state);
    // The list is serialised once for everybody; everything else here is small.
    text.truncate(text.len().saturating_sub(1));
    format!(r#"{text},"terminals":{terminals}}}"#)
}

/// The root list as JSON.
#[must_use]
pub fn terminals_json(terminals: &[InfoOut]) -> String {
    to_json(&terminals)
}

/// `root/terminalsChanged`; `terminals` is the list as JSON.
#[must_use]
pub fn terminals_changed(terminals: &str) -> String {
    format!(r#"{{"type":"root/terminalsChanged","terminals":{terminals}}}"#)
}

/// `root/configChanged`.
#[must_use]
pub fn config_changed(config: &Map<String, Value>, replace: bool) -> String {
    #[derive(Serialize)]
    struct Changed<'a> {
        r#type: &'static str,
        config: &'a Map<String, Value>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        replace: bool,
    }
    to_json(&Changed {
        r#type: "root/configChanged",
        config,
        replace,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahp::reducers::{ReduceOutcome, apply_action_to_root};
    use ahp_types::actions::StateAction;

    #[test]
    fn the_official_types_read_state_and_actions() {
        let text = state("[]", "/bin/bash", &json!({"result": "works"}));
        let mut root: RootState = serde_json::from_str(&text).unwrap();
        assert_eq!(root.terminals, Some(vec![]));
        let list = r#"[{"resource":"t:/x","title":"a","claim":{"kind":"client","clientId":"c"},"lifecycle":{"status":"running"}}]"#;
        let action: StateAction = serde_json::from_str(&terminals_changed(list)).unwrap();
        assert_eq!(
            apply_action_to_root(&mut root, &action),
            ReduceOutcome::Applied
        );
        assert_eq!(root.terminals.as_ref().map(Vec::len), Some(1));
        let action: StateAction =
            serde_json::from_str(&config_changed(&config_values("/bin/zsh"), true)).unwrap();
        assert_eq!(
            apply_action_to_root(&mut root, &action),
            ReduceOutcome::Applied
        );
        let config = root.config.unwrap();
        assert_eq!(config.values[DEFAULT_SHELL], "/bin/zsh");
        assert!(config.schema.properties.contains_key(DEFAULT_SHELL));
    }
}
