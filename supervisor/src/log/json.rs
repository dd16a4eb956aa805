//! A log line as one JSON object: `{"ts":…,"level":…,"message":…,…}`, then the fields of the line.
//!
//! A formatter of our own, because a line that is too long must still be JSON: texts are cut to
//! what fits, and members that do not fit at all are left out and said to be.

use std::fmt::{self, Write as _};

use shellward_protocol::text::boundary;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::LINE_BYTES;

/// What stands behind the fields where some of them were cut or left out.
const TRUNCATED: &str = r#","truncated":true"#;

/// Formats events for `--log json`.
#[derive(Debug, Clone, Copy)]
pub struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut members = Members::default();
        event.record(&mut members);
        let level = event.metadata().level().as_str().to_ascii_lowercase();
        writeln!(writer, "{}", members.line(&now(), &level))
    }
}

/// This moment, to the microsecond.
fn now() -> String {
    format!("{:.6}", jiff::Timestamp::now())
}

/// A line that no event stands behind.
pub(super) fn line(level: &str, message: &str) -> String {
    let members = Members {
        message: message.to_owned(),
        ..Members::default()
    };
    members.line(&now(), level)
}

/// The fields of one event.
#[derive(Debug, Default)]
struct Members {
    message: String,
    /// Name and value in JSON, in order.
    others: Vec<(String, Value)>,
}

#[derive(Debug)]
enum Value {
    /// Numbers and truth values, as JSON.
    Plain(String),
    Text(String),
}

impl Members {
    fn line(&self, ts: &str, level: &str) -> String {
        let mut out = format!(r#"{{"ts":"{ts}","level":"{level}","message":"#);
        // With the brace and the line's end.
        let room = LINE_BYTES - TRUNCATED.len() - 2;
        let mut truncated = !push_text(&mut out, &self.message, room);
        for (name, value) in &self.others {
            let before = out.len();
            out.push(',');
            // Names are ours and short.
            let mut whole = push_text(&mut out, name, room);
            out.push(':');
            whole &= match value {
                Value::Text(text) => push_text(&mut out, text, room),
                Value::Plain(json) => {
                    out.push_str(json);
                    true
                }
            };
            if out.len() > room {
                out.truncate(before);
                whole = false;
            }
            truncated |= !whole;
        }
        if truncated {
            out.push_str(TRUNCATED);
        }
        out.push('}');
        out
    }

    fn add(&mut self, field: &Field, value: Value) {
        let name = match (field.name(), value) {
            ("message", Value::Text(text)) => {
                self.message = text;
                return;
            }
            // Ours come first and stay unique.
            (name @ ("ts" | "level" | "message" | "truncated"), value) => {
                (format!("{name}_"), value)
            }
            (name, value) => (name.to_owned(), value),
        };
        self.others.push(name);
    }
}

/// Appends `text` as a JSON string that ends before `room`, as much of it as fits; whether all did.
/// Where not even an empty one fits, `out` grows beyond `room`.
fn push_text(out: &mut String, text: &str, room: usize) -> bool {
    let mut kept = text.up_to(LINE_BYTES);
    loop {
        let json = crate::ahp::rpc::to_json(&kept);
        if kept.is_empty() || out.len() + json.len() <= room {
            out.push_str(&json);
            return kept.len() == text.len();
        }
        kept = kept.up_to(kept.len() / 2);
    }
}

trait Cut {
    /// At most `most` bytes of it, whole characters.
    fn up_to(&self, most: usize) -> &str;
}

impl Cut for str {
    fn up_to(&self, most: usize) -> &str {
        self.get(..boundary(self, most)).unwrap_or_default()
    }
}

impl Visit for Members {
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, Value::Plain(value.to_string()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, Value::Plain(value.to_string()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, Value::Plain(value.to_string()));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, Value::Text(value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let mut text = String::new();
        // A value that cannot be written is logged as far as it could.
        write!(text, "{value:?}").unwrap_or_default();
        self.add(field, Value::Text(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::Log;
    use crate::log::tests::Shared;

    /// What is logged while `act` runs, each line as JSON.
    fn logged(act: impl FnOnce()) -> Vec<serde_json::Value> {
        let sink = Shared::default();
        let log = Log::to(sink.clone(), crate::config::LogFormat::Json).unwrap();
        let subscriber = tracing_subscriber::fmt()
            .event_format(JsonLines)
            .with_writer(log.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, act);
        log.flush();
        let text = sink.text();
        assert!(text.is_empty() || text.ends_with('\n'));
        text.lines()
            .map(|line| {
                assert!(line.len() < LINE_BYTES, "{} bytes", line.len());
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
            })
            .collect()
    }

    #[test]
    fn a_line_is_an_object_with_its_fields() {
        let lines = logged(|| {
            tracing::info!(connection = 7_u64, terminal = %"abc", pty = true, n = -1, "it \"runs\"\n\u{1b}[0m");
            tracing::warn!(error = ?Some("x"), ratio = 0.5, level = "mine", "two {}", 2);
            tracing::error!(a = 1);
        });
        let ts = lines[0]["ts"].as_str().unwrap();
        assert!(
            ts.parse::<jiff::Timestamp>().is_ok() && ts.len() == 27,
            "{ts}"
        );
        assert_eq!(lines[0]["level"], "info");
        assert_eq!(lines[0]["message"], "it \"runs\"\n\u{1b}[0m");
        assert_eq!(lines[0]["connection"], 7);
        assert_eq!(lines[0]["terminal"], "abc");
        assert_eq!(lines[0]["pty"], true);
        assert_eq!(lines[0]["n"], -1);
        assert!(lines[0].get("truncated").is_none());
        assert_eq!(lines[1]["level"], "warn");
        assert_eq!(lines[1]["message"], "two 2");
        assert_eq!(lines[1]["error"], "Some(\"x\")");
        assert_eq!(lines[1]["level_"], "mine");
        assert_eq!(lines[1]["ratio"], "0.5");
        assert_eq!(lines[2]["message"], "");
        assert_eq!(lines[2]["a"], 1);
    }

    #[test]
    fn a_line_that_is_too_long_is_still_json() {
        let long = "é\u{1}\"".repeat(100_000);
        let lines = logged(|| {
            tracing::info!(a = %long, b = %"kept or not", "{long}");
            tracing::info!(a = %long, "short");
            tracing::info!(
                a = 1, b = %long, c = %long, d = %long, e = 5,
                "many"
            );
        });
        assert_eq!(lines.len(), 3);
        for line in &lines {
            assert_eq!(line["truncated"], true);
            let kept = line["a"].as_str().unwrap_or_default();
            assert!(long.starts_with(kept));
        }
        assert!(lines[1]["a"].as_str().unwrap().len() > 2000);
        assert_eq!(lines[1]["message"], "short");
        assert_eq!(lines[2]["a"], 1);
    }

    #[test]
    fn every_length_around_the_bound_gives_a_line_within_it() {
        for bytes in LINE_BYTES - 200..LINE_BYTES + 10 {
            let members = Members {
                message: "x".repeat(bytes),
                others: vec![
                    ("n".to_owned(), Value::Plain("1".to_owned())),
                    ("t".to_owned(), Value::Text("\u{1}y".to_owned())),
                ],
            };
            let line = members.line(&now(), "info");
            assert!(line.len() < LINE_BYTES, "{bytes}: {}", line.len());
            let _: serde_json::Value = serde_json::from_str(&line).unwrap();
        }
    }
}
