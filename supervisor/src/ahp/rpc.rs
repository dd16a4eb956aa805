//! The outer JSON-RPC envelope, read by hand.
//!
//! The official untagged type takes a request whose id is a string for a notification and leaves
//! its sender waiting for ever (ahp-facts 8.1), so ids are looked at here, before anything else.

use std::borrow::Cow;

use ahp_types::errors::{ahp_error_codes, json_rpc_error_codes};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::limits::JSON_DEPTH;

/// One message of a client.
#[derive(Debug)]
pub struct Incoming<'a> {
    /// Present for a request.
    pub id: Option<u64>,
    /// The method, e.g. `initialize`.
    pub method: Cow<'a, str>,
    /// The parameters as written; `{}` if there were none.
    pub params: Cow<'a, str>,
}

/// What a message is, when it is not a request or a notification.
#[derive(Debug)]
pub enum Unusable {
    /// Not JSON, too deep, or not an object with a method: nothing to answer.
    Malformed(String),
    /// A request that cannot be served; answer with its id as written.
    Invalid {
        /// The id, whatever it is.
        raw_id: String,
        /// What is wrong.
        reason: String,
    },
    /// A response to a request of ours; we make none.
    Response,
}

#[derive(Deserialize)]
struct Outer<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

/// An `id` that is `null` is there, and wrong; serde would call it absent.
fn present<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> Incoming<'a> {
    /// Reads one message.
    ///
    /// # Errors
    /// See [`Unusable`].
    pub fn parse(text: &'a str) -> Result<Self, Unusable> {
        if deeper_than(text, JSON_DEPTH) {
            return Err(unusable(
                text,
                format!("nested deeper than {JSON_DEPTH} levels"),
            ));
        }
        let outer: Outer<'a> =
            serde_json::from_str(text).map_err(|error| unusable(text, explain(&error)))?;
        let Some(method) = outer.method else {
            return Err(if outer.id.is_some() {
                Unusable::Response
            } else {
                Unusable::Malformed("no method".to_owned())
            });
        };
        let id = match outer.id.map(RawValue::get) {
            None => None,
            Some(raw) => match raw.parse::<u64>() {
                Ok(id) => Some(id),
                Err(_) => {
                    return Err(Unusable::Invalid {
                        raw_id: raw.to_owned(),
                        reason: "a request's id must be an unsigned integer".to_owned(),
                    });
                }
            },
        };
        let params = outer.params.map_or("{}", RawValue::get);
        Ok(Self {
            id,
            method,
            params: replace_lone_surrogates(if params == "null" { "{}" } else { params }),
        })
    }
}

/// A message that is no request, with its id if it can be found: its sender waits for an answer.
fn unusable(text: &str, reason: String) -> Unusable {
    #[derive(Deserialize)]
    struct OnlyId<'a> {
        #[serde(borrow)]
        id: &'a RawValue,
    }
    match serde_json::from_str::<OnlyId<'_>>(text) {
        Ok(only) if only.id.get().len() <= 40 => Unusable::Invalid {
            raw_id: only.id.get().to_owned(),
            reason,
        },
        _ => Unusable::Malformed(reason),
    }
}

/// What is wrong with JSON, and where; never what stands there, which may have been typed.
pub(super) fn explain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let names_members_only =
        text.starts_with("missing field") || text.starts_with("duplicate field");
    if names_members_only {
        text
    } else {
        let what = if error.is_data() {
            "a value of the wrong type"
        } else {
            "not JSON"
        };
        format!("{what} at line {} column {}", error.line(), error.column())
    }
}

/// Whether `text` nests arrays and objects deeper than `limit`, without parsing it.
fn deeper_than(text: &str, limit: usize) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in text.bytes() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => {
                depth += 1;
                if depth > limit {
                    return true;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// Replaces escapes of half a character (`\ud83d` alone) by U+FFFD.
///
/// JavaScript sends them when it cuts a string between the halves; serde_json refuses the whole
/// document for one (field case S-09).
fn replace_lone_surrogates(json: &str) -> Cow<'_, str> {
    let unit_at = |at: usize| -> Option<u16> {
        let digits = json.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let mut fixed: Option<String> = None;
    let mut copied = 0;
    let mut at = 0;
    let bytes = json.as_bytes();
    while let Some(found) = bytes
        .get(at..)
        .and_then(|rest| rest.iter().position(|b| *b == b'\\'))
    {
        at += found;
        let lone = match unit_at(at) {
            Some(0xd800..=0xdbff) => match unit_at(at + 6) {
                Some(0xdc00..=0xdfff) => {
                    at += 12;
                    continue;
                }
                _ => true,
            },
            Some(0xdc00..=0xdfff) => true,
            Some(_) => false,
            None => {
                at += 2;
                continue;
            }
        };
        if lone {
            let out = fixed.get_or_insert_with(String::new);
            out.push_str(json.get(copied..at).unwrap_or_default());
            out.push_str("\\ufffd");
            copied = at + 6;
        }
        at += 6;
    }
    match fixed {
        None => Cow::Borrowed(json),
        Some(mut out) => {
            out.push_str(json.get(copied..).unwrap_or_default());
            Cow::Owned(out)
        }
    }
}

/// Why a request is refused: a code and a sentence.
#[derive(Debug, Clone, PartialEq)]
pub struct RpcError {
    /// JSON-RPC or AHP error code.
    pub code: i32,
    /// What is wrong and what to do.
    pub message: String,
    /// The code's own data, if it has any.
    pub data: Option<serde_json::Value>,
}

impl RpcError {
    fn new(code: i32, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// −32600: not a request of this protocol.
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(json_rpc_error_codes::INVALID_REQUEST, message)
    }

    /// −32601: no such method.
    #[must_use]
    pub fn unknown_method(method: &str) -> Self {
        let method: String = method.chars().take(100).collect();
        Self::not_now(format!("this host does not serve the method {method:?}"))
    }

    /// −32601: not this method now.
    pub fn not_now(reason: impl Into<String>) -> Self {
        Self::new(json_rpc_error_codes::METHOD_NOT_FOUND, reason)
    }

    /// −32602: malformed parameters.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(json_rpc_error_codes::INVALID_PARAMS, message)
    }

    /// −32603: our side failed.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(json_rpc_error_codes::INTERNAL_ERROR, message)
    }

    /// −32003: the URI is taken.
    pub fn already_exists(message: impl Into<String>) -> Self {
        Self::new(ahp_error_codes::SESSION_ALREADY_EXISTS, message)
    }

    /// −32008: no such channel.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(ahp_error_codes::NOT_FOUND, message)
    }

    /// −32009: not for this connection.
    pub fn permission_denied(message: impl Into<String>) -> Self {
        Self::new(ahp_error_codes::PERMISSION_DENIED, message)
    }

    /// The error for a channel that does not exist: −32001 where its URI says that it would be a
    /// session, −32008 otherwise.
    #[must_use]
    pub fn no_channel(uri: &str) -> Self {
        if uri.starts_with("ahp-session:") {
            Self::new(
                ahp_error_codes::SESSION_NOT_FOUND,
                "there is no such session",
            )
        } else {
            Self::not_found("there is no such channel")
        }
    }

    /// −32005 with the versions we speak.
    #[must_use]
    pub fn unsupported_version() -> Self {
        Self {
            code: ahp_error_codes::UNSUPPORTED_PROTOCOL_VERSION,
            message: "none of the offered protocol versions is served here".to_owned(),
            data: Some(serde_json::json!({ "supportedVersions": super::version::SUPPORTED })),
        }
    }
}

#[derive(Serialize)]
struct ErrorReply<'a> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    error: ErrorBody<'a>,
}

#[derive(Serialize)]
struct ErrorBody<'a> {
    code: i32,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a serde_json::Value>,
}

/// The text of a successful response; `result` is JSON already. A void method's is `null`.
#[must_use]
pub fn reply(id: u64, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

/// The text of an error response; `raw_id` is the id as the client wrote it.
#[must_use]
pub fn reply_error(raw_id: &str, error: &RpcError) -> String {
    let id = RawValue::from_string(raw_id.to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned());
    to_json(&ErrorReply {
        jsonrpc: "2.0",
        id: &id,
        error: ErrorBody {
            code: error.code,
            message: &error.message,
            data: error.data.as_ref(),
        },
    })
}

/// Serialises what cannot fail: our own types, with string keys only.
pub(crate) fn to_json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| {
        tracing::error!(%error, "a message could not be serialised");
        "null".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_has_an_unsigned_integer_id() {
        let message = Incoming::parse(r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#).unwrap();
        assert_eq!(
            (message.id, &*message.method, &*message.params),
            (Some(7), "ping", "{}")
        );
        for id in [
            "\"a\"",
            "-1",
            "1.5",
            "1e3",
            "{}",
            "18446744073709551616",
            "null",
        ] {
            let text = format!(r#"{{"id":{id},"method":"ping"}}"#);
            match Incoming::parse(&text) {
                Err(Unusable::Invalid { raw_id, .. }) => assert_eq!(raw_id, id),
                other => panic!("{id}: {other:?}"),
            }
        }
    }

    #[test]
    fn other_messages_are_told_apart() {
        assert!(matches!(
            Incoming::parse("nonsense"),
            Err(Unusable::Malformed(_))
        ));
        assert!(matches!(Incoming::parse("[]"), Err(Unusable::Malformed(_))));
        assert!(matches!(Incoming::parse("{}"), Err(Unusable::Malformed(_))));
        assert!(matches!(
            Incoming::parse(r#"{"id":1,"result":null}"#),
            Err(Unusable::Response)
        ));
        let notification = Incoming::parse(r#"{"method":"x","params":null}"#).unwrap();
        assert_eq!((notification.id, &*notification.params), (None, "{}"));
    }

    #[test]
    fn depth_is_counted_outside_strings_only() {
        let deep = |n: usize| {
            format!(
                r#"{{"method":"x","params":{}{}}}"#,
                "[".repeat(n),
                "]".repeat(n)
            )
        };
        assert!(Incoming::parse(&deep(JSON_DEPTH - 1)).is_ok());
        assert!(matches!(
            Incoming::parse(&deep(JSON_DEPTH)),
            Err(Unusable::Malformed(_))
        ));
        assert!(matches!(
            Incoming::parse(&deep(100_000)),
            Err(Unusable::Malformed(_))
        ));
        let text = format!(
            r#"{{"method":"x","params":{{"a":"{}\"{}"}}}}"#,
            "[".repeat(100),
            "{".repeat(100)
        );
        assert!(Incoming::parse(&text).is_ok());
    }

    #[test]
    fn whoever_waits_for_an_answer_gets_one_that_quotes_nothing() {
        let deep = format!(
            r#"{{"id":5,"method":"x","params":{}{}}}"#,
            "[".repeat(100),
            "]".repeat(100)
        );
        for text in [
            r#"{"jsonrpc":"2.0","id":5,"method":7}"#,
            r#"{"id":5,"method":"\ud83d"}"#,
            r#"{"id":5,"method":["s3cret"]}"#,
            &deep,
        ] {
            match Incoming::parse(text) {
                Err(Unusable::Invalid { raw_id, reason }) => {
                    assert_eq!(raw_id, "5");
                    assert!(!reason.contains("s3cret"), "{reason}");
                }
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn half_a_character_becomes_a_replacement_sign() {
        for (given, wanted) in [
            (r#"{"d":"x\ud83d"}"#, r#"{"d":"x\ufffd"}"#),
            (r#"{"d":"\ude00x"}"#, r#"{"d":"\ufffdx"}"#),
            (r#"{"d":"\ud83d\ude00"}"#, r#"{"d":"\ud83d\ude00"}"#),
            (
                r#"{"d":"\ud83d\ud83d\ude00"}"#,
                r#"{"d":"\ufffd\ud83d\ude00"}"#,
            ),
            (r#"{"d":"\\ud83d"}"#, r#"{"d":"\\ud83d"}"#),
            (r#"{"d":"\\\ud83d"}"#, r#"{"d":"\\\ufffd"}"#),
            (r#"{"d":"é\u00e9"}"#, r#"{"d":"é\u00e9"}"#),
        ] {
            assert_eq!(replace_lone_surrogates(given), wanted);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_a_panic(text in ".*") {
            prop_assert!(Incoming::parse(&text).is_ok() || Incoming::parse(&text).is_err());
        }

        #[test]
        fn any_string_with_surrogates_parses_after_replacement(units in proptest::collection::vec(any::<u16>(), 0..40)) {
            let escaped: String = units.iter().map(|u| format!("\\u{u:04x}")).collect();
            let json = format!("\"{escaped}\"");
            let text: String = serde_json::from_str(&replace_lone_surrogates(&json)).unwrap();
            prop_assert_eq!(text, String::from_utf16_lossy(&units));
        }
    }

    #[test]
    fn an_error_carries_the_id_as_it_was_written() {
        let text = reply_error("\"abc\"", &RpcError::invalid_request("x"));
        assert_eq!(
            text,
            r#"{"jsonrpc":"2.0","id":"abc","error":{"code":-32600,"message":"x"}}"#
        );
        assert_eq!(
            reply(3, "null"),
            r#"{"jsonrpc":"2.0","id":3,"result":null}"#
        );
    }
}
