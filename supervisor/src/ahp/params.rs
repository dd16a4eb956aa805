//! Parameters of the requests we serve, read leniently: unknown members are ignored, `null` is
//! absent, a missing `channel` is the root channel where VS Code leaves it out.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use shellward_protocol::message::Size;

use super::claim::Claim;
use super::rpc::RpcError;
use super::{action, names, rpc};
use crate::limits::{CLIENT_ID_BYTES, SUBSCRIPTIONS};

/// Reads `params` as `T`.
///
/// # Errors
/// −32602 with what serde found.
fn read<'a, T: Deserialize<'a>>(params: &'a str) -> Result<T, RpcError> {
    // serde would take an array for the members in their order.
    if !params.starts_with('{') {
        return Err(RpcError::invalid_params("params must be an object"));
    }
    serde_json::from_str(params).map_err(|error| RpcError::invalid_params(rpc::explain(&error)))
}

/// The `channel` of any request or notification.
///
/// # Errors
/// −32602 without one.
pub fn channel(params: &str) -> Result<String, RpcError> {
    #[derive(Deserialize)]
    struct Channel {
        channel: String,
    }
    read::<Channel>(params).map(|params| params.channel)
}

/// Of `initialize`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Initialize {
    /// Offered versions.
    pub protocol_versions: Vec<String>,
    /// The client's own name for itself.
    pub client_id: String,
    /// Channels to subscribe to at once.
    #[serde(default)]
    pub initial_subscriptions: Option<Vec<String>>,
}

/// Of `reconnect`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reconnect {
    /// The same as at `initialize`.
    pub client_id: String,
    /// The last `serverSeq` it has seen.
    pub last_seen_server_seq: u64,
    /// The channels it was subscribed to.
    pub subscriptions: Vec<String>,
}

fn check_client(id: &str, subscriptions: &[String]) -> Result<(), RpcError> {
    if id.is_empty() || id.len() > CLIENT_ID_BYTES {
        return Err(RpcError::invalid_params(format!(
            "clientId must have 1 to {CLIENT_ID_BYTES} bytes"
        )));
    }
    if id.chars().any(char::is_control) {
        return Err(RpcError::invalid_params("clientId has control characters"));
    }
    if subscriptions.len() > SUBSCRIPTIONS {
        return Err(RpcError::invalid_params(format!(
            "more than {SUBSCRIPTIONS} subscriptions"
        )));
    }
    Ok(())
}

impl Initialize {
    /// Reads them.
    ///
    /// # Errors
    /// −32602
    pub fn parse(params: &str) -> Result<Self, RpcError> {
        let this: Self = read(params)?;
        check_client(
            &this.client_id,
            this.initial_subscriptions.as_deref().unwrap_or_default(),
        )?;
        Ok(this)
    }
}

impl Reconnect {
    /// Reads them.
    ///
    /// # Errors
    /// −32602
    pub fn parse(params: &str) -> Result<Self, RpcError> {
        let this: Self = read(params)?;
        check_client(&this.client_id, &this.subscriptions)?;
        Ok(this)
    }
}

/// Of `createTerminal`.
#[derive(Debug, PartialEq)]
pub struct CreateTerminal {
    /// The new terminal's URI.
    pub channel: String,
    /// Who holds it.
    pub claim: Claim,
    /// Title given by the client, cleaned.
    pub name: Option<String>,
    /// Where it starts, if the client says so.
    pub cwd: Option<std::path::PathBuf>,
    /// Its size.
    pub size: Size,
}

impl CreateTerminal {
    /// Reads them; `client_id` is the connection's own.
    ///
    /// # Errors
    /// −32602 with the member that is wrong.
    pub fn parse(params: &str, client_id: &str) -> Result<Self, RpcError> {
        let channel = channel(params)?;
        names::check_terminal_uri(&channel).map_err(RpcError::invalid_params)?;
        let value: Value = read(params)?;
        let claim = match value.get("claim") {
            None => Claim::Client(client_id.to_owned()),
            Some(claim) => Claim::parse(claim).map_err(RpcError::invalid_params)?,
        };
        if matches!(&claim, Claim::Client(id) if id != client_id) {
            return Err(RpcError::invalid_params(
                "a terminal can be created for one's own clientId or a session only",
            ));
        }
        let text = |name: &str| match value.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(_) => Err(RpcError::invalid_params(format!("{name} must be a string"))),
        };
        let number = |name: &str, default: u16| {
            action::dimension(&value, name)
                .map(|given| given.unwrap_or(default))
                .map_err(RpcError::invalid_params)
        };
        Ok(Self {
            claim,
            name: text("name")?.and_then(names::clean_title),
            cwd: text("cwd")?
                .map(names::directory_from_uri)
                .transpose()
                .map_err(RpcError::invalid_params)?,
            size: Size {
                cols: number("cols", 80)?,
                rows: number("rows", 24)?,
            },
            channel,
        })
    }
}

/// Of `dispatchAction`.
#[derive(Debug)]
pub struct Dispatch {
    /// The channel it is about.
    pub channel: String,
    /// The client's number for it; VS Code repeats numbers, so it identifies nothing.
    pub client_seq: i64,
    /// The action as written.
    pub action: String,
}

impl Dispatch {
    /// Reads them.
    ///
    /// # Errors
    /// −32602, which a notification cannot be told; it is logged.
    pub fn parse(params: &str) -> Result<Self, RpcError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Wire<'a> {
            channel: String,
            #[serde(default)]
            client_seq: Option<i64>,
            #[serde(borrow)]
            action: &'a RawValue,
        }
        let wire: Wire<'_> = read(params)?;
        Ok(Self {
            channel: wire.channel,
            client_seq: wire.client_seq.unwrap_or_default(),
            action: wire.action.get().to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_terminal_has_defaults() {
        let made = CreateTerminal::parse(
            &json!({"channel":"t:/x","_meta":{},"cols":null}).to_string(),
            "me",
        )
        .unwrap();
        assert_eq!(
            made,
            CreateTerminal {
                channel: "t:/x".into(),
                claim: Claim::Client("me".into()),
                name: None,
                cwd: None,
                size: Size { cols: 80, rows: 24 },
            }
        );
    }

    #[test]
    fn malformed_parameters_are_refused() {
        for bad in [
            json!({}),
            json!({"channel":1}),
            json!({"channel":"ahp-session:/x"}),
            json!({"channel":"t:/x","claim":null}),
            json!({"channel":"t:/x","claim":{"kind":"client","clientId":"other"}}),
            json!({"channel":"t:/x","cols":0}),
            json!({"channel":"t:/x","rows":1.5}),
            json!({"channel":"t:/x","name":1}),
            json!({"channel":"t:/x","cwd":"http://x/"}),
            json!({"channel":"t:/x","cwd":{}}),
        ] {
            let error = CreateTerminal::parse(&bad.to_string(), "me").unwrap_err();
            assert_eq!(error.code, -32602, "{bad}");
        }
    }

    #[test]
    fn reconnect_needs_no_channel() {
        let params = json!({"clientId":"c","lastSeenServerSeq":3,"subscriptions":["ahp-root://"],"_meta":{}});
        assert_eq!(
            Reconnect::parse(&params.to_string())
                .unwrap()
                .last_seen_server_seq,
            3
        );
        for bad in [
            json!({"clientId":"","lastSeenServerSeq":3,"subscriptions":[]}),
            json!({"clientId":"c","lastSeenServerSeq":-1,"subscriptions":[]}),
            json!({"clientId":"c","subscriptions":[]}),
        ] {
            assert!(Reconnect::parse(&bad.to_string()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_dispatch_keeps_the_action_as_written() {
        let dispatch =
            Dispatch::parse(r#"{"channel":"t:/x","clientSeq":0,"action":{"type":"a", "x":1.0}}"#)
                .unwrap();
        assert_eq!(
            (dispatch.client_seq, dispatch.action.as_str()),
            (0, r#"{"type":"a", "x":1.0}"#)
        );
        assert!(Dispatch::parse(r#"{"channel":"t:/x"}"#).is_err());
    }
}
