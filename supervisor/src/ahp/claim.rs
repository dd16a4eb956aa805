//! Who holds a terminal, and who may change that.

use ahp_types::state::{TerminalClaim, TerminalClientClaim, TerminalSessionClaim};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

/// Who holds a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// A connected client, by its id.
    Client(String),
    /// A session and a chat inside it, perhaps narrowed to one turn or tool call.
    Session {
        /// Session URI.
        session: String,
        /// Chat URI.
        chat: String,
        /// Turn inside the chat.
        turn_id: Option<String>,
        /// Tool call inside the turn.
        tool_call_id: Option<String>,
    },
}

/// The chat VS Code computes for a session instead of asking for it (ahp-facts 4.1).
#[must_use]
pub fn default_chat(session: &str) -> String {
    format!("ahp-chat://default/{}", URL_SAFE_NO_PAD.encode(session))
}

impl Claim {
    /// Reads a claim as a client sent it. A session claim without `chat` is completed.
    ///
    /// # Errors
    /// What is malformed, in words.
    pub fn parse(value: &Value) -> Result<Self, String> {
        let text = |name: &str| -> Result<Option<String>, String> {
            match value.get(name) {
                None | Some(Value::Null) => Ok(None),
                Some(Value::String(text))
                    if !text.is_empty() && text.len() <= crate::limits::URI_BYTES =>
                {
                    Ok(Some(text.clone()))
                }
                Some(_) => Err(format!(
                    "claim.{name} must be a non-empty string of at most {} bytes",
                    crate::limits::URI_BYTES
                )),
            }
        };
        if !value.is_object() {
            return Err(
                "claim must be an object such as {\"kind\":\"client\",\"clientId\":\"…\"}".into(),
            );
        }
        match text("kind")?.as_deref() {
            Some("client") => text("clientId")?
                .map(Self::Client)
                .ok_or_else(|| "a client claim needs clientId".to_owned()),
            Some("session") => {
                let session = text("session")?.ok_or("a session claim needs session")?;
                let chat = text("chat")?.unwrap_or_else(|| default_chat(&session));
                Ok(Self::Session {
                    session,
                    chat,
                    turn_id: text("turnId")?,
                    tool_call_id: text("toolCallId")?,
                })
            }
            _ => Err("claim.kind must be \"client\" or \"session\"".into()),
        }
    }

    /// The protocol's type.
    #[must_use]
    pub fn to_ahp(&self) -> TerminalClaim {
        match self {
            Self::Client(client_id) => TerminalClaim::Client(TerminalClientClaim {
                client_id: client_id.clone(),
            }),
            Self::Session {
                session,
                chat,
                turn_id,
                tool_call_id,
            } => TerminalClaim::Session(TerminalSessionClaim {
                session: session.clone(),
                chat: chat.clone(),
                turn_id: turn_id.clone(),
                tool_call_id: tool_call_id.clone(),
            }),
        }
    }

    /// For people: `client NAME` or `session URI`.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Client(id) => format!("client {id}"),
            Self::Session { session, .. } => format!("session {session}"),
        }
    }
}

/// Whether `actor` may change a terminal's claim from `current` to `wanted` (design.md, "who may
/// change a claim"). `open` is `--claims open`.
///
/// # Errors
/// The reason for the refusal; it names the holder.
pub fn may_change(
    current: &Claim,
    wanted: &Claim,
    actor: &str,
    connected: impl Fn(&str) -> bool,
    open: bool,
) -> Result<(), String> {
    let for_itself = matches!(wanted, Claim::Client(id) if id == actor);
    match current {
        Claim::Client(holder) if holder == actor => match wanted {
            Claim::Client(other) if other != actor && !connected(other) => Err(format!(
                "client {other} is not connected, so it cannot be handed the terminal"
            )),
            _ => Ok(()),
        },
        Claim::Client(holder) if connected(holder) && !open => Err(format!(
            "client {holder} holds this terminal and is connected"
        )),
        Claim::Client(holder) => {
            if for_itself {
                Ok(())
            } else {
                Err(format!(
                    "client {holder} holds this terminal; it can be claimed for oneself only"
                ))
            }
        }
        Claim::Session { session, chat, .. } => {
            let narrows = matches!(wanted, Claim::Session { session: s, chat: c, .. } if s == session && c == chat);
            if for_itself || narrows {
                Ok(())
            } else {
                Err(format!(
                    "session {session} holds this terminal; it can be claimed for oneself or narrowed only"
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn client(id: &str) -> Claim {
        Claim::Client(id.into())
    }

    fn session(s: &str, turn: Option<&str>) -> Claim {
        Claim::Session {
            session: s.into(),
            chat: default_chat(s),
            turn_id: turn.map(Into::into),
            tool_call_id: None,
        }
    }

    #[test]
    fn claims_are_read_and_completed() {
        assert_eq!(
            Claim::parse(&json!({"kind":"client","clientId":"a"})),
            Ok(client("a"))
        );
        assert_eq!(
            Claim::parse(&json!({"kind":"session","session":"ahp-session:/u","more":1})),
            Ok(session("ahp-session:/u", None))
        );
        assert_eq!(
            default_chat("ahp-session:/u"),
            "ahp-chat://default/YWhwLXNlc3Npb246L3U"
        );
        for bad in [
            json!(null),
            json!("x"),
            json!([]),
            json!({}),
            json!({"kind":"client"}),
            json!({"kind":"client","clientId":1}),
            json!({"kind":"client","clientId":""}),
            json!({"kind":"session"}),
            json!({"kind":"session","session":"s","chat":3}),
            json!({"kind":"other","clientId":"a"}),
        ] {
            assert!(Claim::parse(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_table_of_who_may_change_a_claim() {
        // current, wanted, may with --claims held, may with --claims open; actor is "me", "on" is
        // connected, "off" is not.
        let rows = [
            (client("me"), client("me"), true, true),
            (client("me"), client("on"), true, true),
            (client("me"), client("off"), false, false),
            (client("me"), session("s", None), true, true),
            (client("on"), client("me"), false, true),
            (client("on"), client("on"), false, false),
            (client("on"), session("s", None), false, false),
            (client("off"), client("me"), true, true),
            (client("off"), client("on"), false, false),
            (client("off"), session("s", None), false, false),
            (session("s", None), client("me"), true, true),
            (session("s", None), client("on"), false, false),
            (session("s", None), session("s", Some("t")), true, true),
            (session("s", None), session("other", None), false, false),
        ];
        for (current, wanted, held, open) in rows {
            for (mode, expected) in [(false, held), (true, open)] {
                let got = may_change(&current, &wanted, "me", |id| id == "on" || id == "me", mode);
                assert_eq!(
                    got.is_ok(),
                    expected,
                    "{current:?} -> {wanted:?} open={mode}: {got:?}"
                );
            }
        }
    }
}
