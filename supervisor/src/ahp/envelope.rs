//! The text of `action` notifications.
//!
//! `serverSeq` stands last, so that an output envelope can be made before the host's counter is
//! known and finished by appending a few digits.

use std::ops::Range;

use axum::extract::ws::Utf8Bytes;
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
pub struct OutputEnvelope {
    text: String,
    /// Where its text stands, without the quotes.
    data: Range<usize>,
}

impl OutputEnvelope {
    /// `channel_json` is the channel as a JSON string, quotes included.
    #[must_use]
    pub fn new(channel_json: &str, text: &str) -> Self {
        // Plain text escapes to little more than itself; a line ends in \r\n, two escapes a line.
        let mut json = Vec::with_capacity(text.len() + text.len() / 8 + channel_json.len() + 160);
        json.extend_from_slice(br#"{"jsonrpc":"2.0","method":"action","params":{"channel":"#);
        json.extend_from_slice(channel_json.as_bytes());
        json.extend_from_slice(br#","action":{"type":"terminal/data","data":"#);
        let start = json.len() + 1;
        if serde_json::to_writer(&mut json, text).is_err() {
            json.extend_from_slice(b"\"\"");
        }
        let data = start..json.len() - 1;
        json.extend_from_slice(br#"},"serverSeq":"#);
        Self {
            text: String::from_utf8(json).unwrap_or_default(),
            data,
        }
    }

    /// The whole envelope.
    #[must_use]
    pub fn finish(mut self, seq: u64) -> OutputText {
        use std::fmt::Write as _;
        // Writing to a string cannot fail.
        if write!(self.text, "{seq}}}}}").is_err() {
            self.text.clear();
        }
        OutputText {
            text: self.text.into(),
            data: self.data,
        }
    }
}

/// A whole `terminal/data` envelope that all its readers share, and where its data stands in it: so
/// that two can become one without reading them again.
#[derive(Debug, Clone)]
pub struct OutputText {
    /// The envelope.
    pub text: Utf8Bytes,
    data: Range<usize>,
}

/// Output of one terminal that waited for one reader, joined: the data of all, the last
/// `serverSeq`.
///
/// What follows the data is the end of the last envelope; two of one channel begin alike.
#[derive(Debug)]
pub struct JoinedOutput {
    text: String,
    data: Range<usize>,
}

fn part(text: &str, range: impl std::slice::SliceIndex<str, Output = str>) -> &str {
    text.get(range).unwrap_or_default()
}

impl OutputText {
    /// This one and the next; `None` if they are not of one channel.
    #[must_use]
    pub fn join(&self, next: &Self) -> Option<JoinedOutput> {
        let mut joined = JoinedOutput {
            text: String::new(),
            data: self.data.clone(),
        };
        if !next.follows(&self.text, &self.data) {
            return None;
        }
        joined.text.reserve(self.text.len() + next.data.len());
        joined.text.push_str(&self.text);
        joined.push(next).then_some(joined)
    }

    /// Whether the envelope `text` is of the same channel: then all before the data is the same.
    fn follows(&self, text: &str, data: &Range<usize>) -> bool {
        self.data.start == data.start && part(text, ..data.start) == part(&self.text, ..data.start)
    }
}

impl JoinedOutput {
    /// Adds the next one; false, and nothing changed, if it is of another channel.
    pub fn push(&mut self, next: &OutputText) -> bool {
        if !next.follows(&self.text, &self.data) {
            return false;
        }
        self.text.truncate(self.data.end);
        self.text.push_str(part(&next.text, next.data.clone()));
        self.data.end = self.text.len();
        self.text.push_str(part(&next.text, next.data.end..));
        true
    }

    /// The envelope.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The envelope, without room to grow.
    #[must_use]
    pub fn into_text(mut self) -> Utf8Bytes {
        self.text.shrink_to_fit();
        self.text.into()
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
        let fast = OutputEnvelope::new("\"t:/x\"", text).finish(1 << 40).text;
        let envelope = params(&fast);
        assert_eq!(envelope.server_seq, 1 << 40);
        assert_eq!(data(envelope), text);
    }

    fn data(envelope: ActionEnvelope) -> String {
        match envelope.action {
            StateAction::TerminalData(data) => data.data,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn s21_joined_output_is_one_envelope_with_all_the_data_and_the_last_number() {
        let texts = ["a\"b\\", "", "\u{1b}[31m漢😀\r\n", "\u{7f}\u{0}end\"}"];
        let all: Vec<OutputText> = (9..)
            .zip(texts)
            .map(|(seq, text)| OutputEnvelope::new("\"t:/\\\"x\"", text).finish(seq))
            .collect();
        let mut joined = all[0].join(&all[1]).unwrap();
        assert!(joined.push(&all[2]) && joined.push(&all[3]));
        let whole = OutputEnvelope::new("\"t:/\\\"x\"", &texts.concat()).finish(12);
        assert_eq!(joined.as_str(), whole.text.as_str());
        assert_eq!(data(params(joined.as_str())), texts.concat());
        let before = joined.as_str().to_owned();
        for channel in ["\"t:/y\"", "\"t:/\\\"y\""] {
            let other = OutputEnvelope::new(channel, "x").finish(13);
            assert!(!joined.push(&other) && all[0].join(&other).is_none());
        }
        assert_eq!(joined.into_text().as_str(), before);
    }
}
