//! What each command does.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use serde_json::{Value, json};
use shellward_protocol::limits::INPUT_PENDING_MAX;
use tokio::time::Instant;

use super::client::{Client, directory_uri};
use super::plain::one_line;
use super::read::read;
use super::target::{Listed, find};
use super::wait::wait;
use super::{New, Ops, escapes};

/// `read` and `wait --command` take a terminal for quiet after this long without output.
pub(super) const QUIET: Duration = Duration::from_millis(250);
/// Said of a terminal that tells commands apart and has seen none.
pub(super) const NO_COMMAND_YET: &str =
    "no command has run in this terminal yet; type one with `shellward send`";
/// They wait no longer than this for quiet, and `new` for the shell's first output.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Runs a command against the supervisor of a runtime directory; what to exit with.
///
/// # Errors
/// [`super::NotAvailable`] without a supervisor; what the host refused, in its words.
pub async fn run(command: Ops, runtime_dir: Option<PathBuf>) -> anyhow::Result<u8> {
    let mut client = Client::connect(runtime_dir).await?;
    let result = carry_out(&mut client, command).await;
    client.close().await;
    result
}

async fn carry_out(client: &mut Client, command: Ops) -> anyhow::Result<u8> {
    let done: anyhow::Result<()> = match command {
        Ops::Ps { json } => ps(client, json).await,
        Ops::New(new) => open(client, new).await,
        Ops::Send {
            terminal,
            text,
            raw,
        } => {
            let data = match text.as_str() {
                "-" if !raw => from_stdin()?,
                _ if raw => text,
                _ => escapes::unescape(&text).map_err(|reason| anyhow!(reason))?,
            };
            act(
                client,
                &terminal,
                json!({"type": "terminal/input", "data": data}),
            )
            .await
        }
        Ops::Read(args) => read(client, &args).await,
        Ops::Kill { terminals } => {
            let mut failed = 0;
            for name in &terminals {
                if let Err(error) = end(client, name).await {
                    super::complain(&error);
                    failed += 1;
                }
            }
            if failed > 0 {
                bail!("{failed} of {} could not be ended", terminals.len());
            }
            Ok(())
        }
        Ops::Rename { terminal, title } => {
            act(
                client,
                &terminal,
                json!({"type": "terminal/titleChanged", "title": title}),
            )
            .await
        }
        Ops::Clear { terminal } => {
            act(client, &terminal, json!({"type": "terminal/cleared"})).await
        }
        Ops::Wait(args) => return wait(client, &args).await,
        Ops::Shutdown => {
            client.request("x-shellward/shutdown", json!({})).await?;
            client.closed().await
        }
    };
    done.map(|()| 0)
}

pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader has seen enough (`shellward read x | head`).
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to stdout"),
    }
}

fn from_stdin() -> anyhow::Result<String> {
    let mut text = String::new();
    std::io::stdin()
        .take(INPUT_PENDING_MAX + 1)
        .read_to_string(&mut text)
        .context("cannot read text from stdin")?;
    Ok(text)
}

async fn end(client: &mut Client, name: &str) -> anyhow::Result<()> {
    let terminal = locate(client, name).await?;
    client
        .request("disposeTerminal", json!({"channel": terminal.uri}))
        .await
        .with_context(|| format!("cannot end {name}"))?;
    Ok(())
}

async fn report(client: &mut Client) -> anyhow::Result<Value> {
    client.request("x-shellward/terminals", json!({})).await
}

/// A terminal's entry in the host's report.
pub(super) async fn entry(client: &mut Client, uri: &str) -> anyhow::Result<Value> {
    let report = report(client).await?;
    report["terminals"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|entry| entry["uri"] == uri)
        .cloned()
        .ok_or_else(|| anyhow!("the terminal is there no more"))
}

pub(super) async fn locate(client: &mut Client, name: &str) -> anyhow::Result<Listed> {
    let mut report = report(client).await?;
    let listed: Vec<Listed> = serde_json::from_value(report["terminals"].take())?;
    find(name, &listed)
        .cloned()
        .map_err(|reason| anyhow!(reason))
}

async fn act(client: &mut Client, name: &str, action: Value) -> anyhow::Result<()> {
    let terminal = locate(client, name).await?;
    // A dispatch is answered to subscribers of the channel.
    client
        .request("subscribe", json!({"channel": terminal.uri}))
        .await?;
    client.dispatch(&terminal.uri, action).await
}

async fn open(client: &mut Client, new: New) -> anyhow::Result<()> {
    let uri = format!(
        "ahp-terminal:/{}",
        client.id.trim_start_matches("shellward-cli-")
    );
    let mut params = json!({"channel": uri, "cols": new.cols, "rows": new.rows});
    if let Some(name) = &new.name {
        params["name"] = json!(name);
    }
    if let Some(cwd) = &new.cwd {
        params["cwd"] = json!(directory_uri(cwd)?);
    }
    client.request("createTerminal", params).await?;
    let id = locate(client, &uri).await?.id;
    if !new.no_wait {
        first_output(client, &uri).await?;
    }
    if new.json {
        print(&format!("{}\n", json!({"uri": uri, "id": id})))
    } else {
        print(&format!("{id}\n"))
    }
}

/// Waits until a new terminal has shown something, so that what is sent next is not typed ahead of
/// the shell's prompt. A shell that shows nothing is no error.
async fn first_output(client: &mut Client, uri: &str) -> anyhow::Result<()> {
    let result = client.request("subscribe", json!({"channel": uri})).await?;
    let state = &result["snapshot"]["state"];
    let shown = |content: &Value| content.as_array().is_some_and(|parts| !parts.is_empty());
    if shown(&state["content"]) || state["lifecycle"]["status"] != "running" {
        return Ok(());
    }
    let deadline = Instant::now() + PATIENCE;
    while let Some(message) = client.next(deadline).await? {
        let kind = &message["params"]["action"]["type"];
        if kind == "terminal/data" || kind == "terminal/exited" {
            break;
        }
    }
    Ok(())
}

/// Columns of `ps`.
const COLUMNS: usize = 10;

async fn ps(client: &mut Client, as_json: bool) -> anyhow::Result<()> {
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
    if terminals.is_empty() {
        lines.push_str("no terminals; open one with `shellward new`\n");
        return print(&lines);
    }
    let head = [
        "ID", "STATE", "UPTIME", "ON", "SIZE", "WORKER", "SHELL", "TITLE", "CLAIM", "URI",
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
