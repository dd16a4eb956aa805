//! `shellward ps`.

use serde_json::Value;
#[cfg(test)]
use serde_json::json;

use super::client::Client;
use super::commands::{left_alone, print, report};
use super::plain::one_line;

/// Columns of `ps`.
const COLUMNS: usize = 15;

pub(super) async fn ps(client: &mut Client, as_json: bool) -> anyhow::Result<()> {
    let report = report(client).await?;
    if as_json {
        return print(&format!("{report}\n"));
    }
    let supervisor = &report["supervisor"];
    let pty = if supervisor["pty"] == true {
        "ptys work".to_owned()
    } else {
        format!(
            "terminals run on pipes: {}",
            text(&supervisor["probe"]["sentence"])
        )
    };
    let mut lines = format!(
        "shellward {}, pid {}, {}, {pty}\n",
        text(&supervisor["version"]),
        text(&supervisor["pid"]),
        supervisor["url"]
            .as_str()
            .map_or_else(|| text(&supervisor["socket"]), one_line),
    );
    let terminals = report["terminals"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    for left in supervisor["unadopted"].as_array().into_iter().flatten() {
        lines.push_str(&left_alone(left));
        lines.push('\n');
    }
    if terminals.is_empty() {
        lines.push_str("no terminals; open one with `shellward new`\n");
        return print(&lines);
    }
    let head = [
        "ID", "STATE", "UPTIME", "ON", "SIZE", "WORKER", "SHELL", "MEMORY", "OUT", "IN",
        "RESTARTS", "ACCOUNT", "TITLE", "CLAIM", "URI",
    ]
    .map(str::to_owned);
    let rows: Vec<[String; COLUMNS]> = std::iter::once(head)
        .chain(terminals.iter().map(row))
        .collect();
    let widths: Vec<usize> = (0..COLUMNS)
        .map(|column| {
            rows.iter()
                .map(|row| row[column].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        lines.push_str(cells.join("  ").trim_end());
        lines.push('\n');
    }
    print(&lines)
}

fn row(terminal: &Value) -> [String; COLUMNS] {
    let mut state = text(&terminal["state"]);
    if let Some(code) = terminal["exitCode"].as_i64() {
        state = format!("{state} {code}");
        if let Some(signal) = terminal["signal"].as_str() {
            state = format!("{state} {signal}");
        }
    }
    let claim = &terminal["claim"];
    [
        text(&terminal["id"]),
        state,
        terminal["uptimeSeconds"]
            .as_u64()
            .map_or_else(|| "-".to_owned(), uptime),
        if terminal["isPty"] == true {
            "pty"
        } else {
            "pipes"
        }
        .to_owned(),
        format!("{}x{}", text(&terminal["cols"]), text(&terminal["rows"])),
        text(&terminal["workerPid"]),
        text(&terminal["shellPid"]),
        amount(&terminal["memoryBytes"]),
        amount(&terminal["outputBytes"]),
        amount(&terminal["inputBytes"]),
        text(&terminal["restarts"]),
        text(&terminal["account"]),
        short(&text(&terminal["title"])),
        format!(
            "{} {}",
            text(&claim["kind"]),
            claim["clientId"]
                .as_str()
                .or(claim["session"].as_str())
                .map_or_else(String::new, one_line)
        ),
        text(&terminal["uri"]),
    ]
}

/// A length of time in its largest unit, so that the column stays narrow.
fn uptime(seconds: u64) -> String {
    match seconds {
        0..=59 => format!("{seconds}s"),
        60..=3599 => format!("{}m", seconds / 60),
        3600..=86_399 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// An amount of bytes in the largest unit that leaves a whole number, so that the column stays
/// narrow; powers of 1024.
fn amount(value: &Value) -> String {
    let Some(mut left) = value.as_u64() else {
        return "-".to_owned();
    };
    for unit in ["", "K", "M", "G", "T"] {
        if left < 1024 {
            return format!("{left}{unit}");
        }
        left /= 1024;
    }
    format!("{left}P")
}

/// The beginning of a long cell, so that one terminal does not make a table of any width.
fn short(text: &str) -> String {
    const WIDTH: usize = 40;
    if text.chars().count() <= WIDTH {
        return text.to_owned();
    }
    let kept: String = text.chars().take(WIDTH - 1).collect();
    format!("{kept}…")
}

/// A member as one safe line; `-` for null.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => one_line(text),
        other => one_line(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_is_told_in_a_unit_that_fits() {
        for (bytes, told) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1K"),
            (1 << 20, "1M"),
            (5 << 30, "5G"),
            (u64::MAX, "16383P"),
        ] {
            assert_eq!(amount(&json!(bytes)), told);
        }
        assert_eq!(amount(&Value::Null), "-");
    }

    #[test]
    fn a_time_is_told_in_its_largest_unit() {
        for (seconds, told) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (3599, "59m"),
            (3600, "1h"),
            (86_399, "23h"),
            (86_400, "1d"),
            (u64::MAX, "213503982334601d"),
        ] {
            assert_eq!(uptime(seconds), told);
        }
    }
}
