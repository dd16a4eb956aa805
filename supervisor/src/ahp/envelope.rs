//! The text of `action` notifications.
//!
//! `serverSeq` stands last, so that an output envelope can be made before the host's counter is
//! known and finished by appending a few digits.

use serde::Serialize;

use super::rpc::to_json;

/// Who dispatched the action that an envelope echoes.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Origin<'a> {
    /// The dispatching client.
    pub client_id: &'a str,
    /// The number it gave its dispatch.
    pub client_seq: i64,
}

/// One `action` notification. `action` is JSON already.
#[must_use]
pub fn envelope(channel: &str, action: &str, origin: Option<Origin<'_>>, seq: u64) -> String {
    let origin = origin.map_or_else(String::new, |origin| {
        format!(r#","origin":{}"#, to_json(&origin))
    });
    format!(
        r#"{{"jsonrpc":"2.0","method":"action","params":{{"channel":{},"action":{action}{origin},"serverSeq":{seq}}}}}"#,
        to_json(&channel)
    )
}

/// The answer to a refused dispatch, for its sender only.
#[must_use]
pub fn rejection(
    channel: &str,
    action: &str,
    origin: Origin<'_>,
    reason: &str,
    seq: u64,
) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"action","params":{{"channel":{},"action":{action},"origin":{},"rejectionReason":{},"serverSeq":{seq}}}}}"#,
        to_json(&channel),
        to_json(&origin),
        to_json(&reason)
    )
}

/// A `terminal/data` envelope that lacks only its `serverSeq`.
///
/// The one place where output is serialised: once per chunk, whatever the number of readers.
#[derive(Debug)]
pub struct OutputEnvelope(String);

impl OutputEnvelope {
    /// `channel_json` is the channel as a JSON string, quotes included.
    #[must_use]
    pub fn new(channel_json: &str, text: &str) -> Self {
        // Plain text escapes to little more than itself; a line ends in \r\n, two escapes a line.
        let mut json = Vec::with_capacity(text.len() + text.len() / 8 + channel_json.len() + 160);
        json.extend_from_slice(br#"{"jsonrpc":"2.0","method":"action","params":{"channel":"#);
        json.extend_from_slice(channel_json.as_bytes());
        json.extend_from_slice(br#","action":{"type":"terminal/data","data":"#);
        if serde_json::to_writer(&mut json, text).is_err() {
            json.extend_from_slice(b"\"\"");
        }
        json.extend_from_slice(br#"},"serverSeq":"#);
        Self(String::from_utf8(json).unwrap_or_default())
    }

    /// The whole envelope.
    #[must_use]
    pub fn finish(mut self, seq: u64) -> String {
        use std::fmt::Write as _;
        // Writing to a string cannot fail.
        if write!(self.0, "{seq}}}}}").is_err() {
            self.0.clear();
        }
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ahp_types::actions::{ActionEnvelope, StateAction};
    use serde_json::Value;

    fn params(text: &str) -> ActionEnvelope {
        let message: Value = serde_json::from_str(text).unwrap();
        assert_eq!(message["method"], "action");
        serde_json::from_value(message["params"].clone()).unwrap()
    }

    #[test]
    fn the_official_type_reads_every_envelope() {
        let origin = Origin {
            client_id: "c\"1",
            client_seq: 4,
        };
        let plain = params(&envelope(
            "t:/\"x",
            r#"{"type":"terminal/cleared"}"#,
            None,
            9,
        ));
        assert_eq!(
            (plain.channel.as_str(), plain.server_seq, plain.origin),
            ("t:/\"x", 9, None)
        );
        let echo = params(&envelope(
            "t:/x",
            r#"{"type":"terminal/cleared"}"#,
            Some(origin),
            10,
        ));
        assert_eq!(
            echo.origin.map(|o| (o.client_id, o.client_seq)),
            Some(("c\"1".into(), 4))
        );
        let refused = params(&rejection(
            "t:/x",
            r#"{"type":"terminal/cleared"}"#,
            origin,
            "no\n",
            10,
        ));
        assert_eq!(refused.rejection_reason.as_deref(), Some("no\n"));
    }

    #[test]
    fn an_output_envelope_equals_the_plain_one() {
        let text = "a\u{1b}[31m\"\\\r\n\u{0}漢😀\u{7f}\u{2028}";
        let fast = OutputEnvelope::new("\"t:/x\"", text).finish(1 << 40);
        let envelope = params(&fast);
        assert_eq!(envelope.server_seq, 1 << 40);
        match envelope.action {
            StateAction::TerminalData(data) => assert_eq!(data.data, text),
            other => panic!("{other:?}"),
        }
    }
}
