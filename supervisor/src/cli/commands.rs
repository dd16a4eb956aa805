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
use super::ps::ps;
use super::read::read;
use super::target::{Listed, find};
use super::wait::wait;
use super::{New, Ops};
use crate::ahp::names::OWN_CLIENTS;

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
/// [`super::WrongUsage`]; [`super::NotAvailable`] without a supervisor; what the host refused, in its words.
pub async fn run(command: Ops, runtime_dir: Option<PathBuf>) -> anyhow::Result<u8> {
    let command = command.checked()?;
    let mut client = Client::connect(runtime_dir.clone()).await?;
    let result = carry_out(&mut client, command, runtime_dir).await;
    client.close().await;
    result
}

async fn carry_out(
    client: &mut Client,
    command: Ops,
    runtime_dir: Option<PathBuf>,
) -> anyhow::Result<u8> {
    let done: anyhow::Result<()> = match command {
        Ops::Ps { json } => ps(client, json).await,
        Ops::New(new) => open(client, new).await,
        Ops::Send {
            terminal,
            text,
            raw,
        } => {
            let data = if raw { text } else { from_stdin()? };
            act(
                client,
                &terminal,
                json!({"type": "terminal/input", "data": data}),
            )
            .await
        }
        Ops::Read(args) => read(client, &args).await,
        Ops::Kill { terminals } => for_each(client, &terminals, "ended", Deed::End).await,
        Ops::Restart { terminals } => {
            for_each(client, &terminals, "started again", Deed::Restart).await
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
        Ops::Wait(args) => return wait(client, &args, runtime_dir.as_deref()).await,
        Ops::Shutdown => {
            let answer = client.request("x-shellward/shutdown", json!({})).await?;
            let left = answer["left"].as_array().map_or(&[][..], Vec::as_slice);
            for worker in left {
                super::say(&left_alone(worker));
            }
            client.closed().await?;
            return Ok(u8::from(!left.is_empty()));
        }
    };
    done.map(|()| 0)
}

/// A worker that the host leaves alone, and why.
pub(super) fn left_alone(worker: &Value) -> String {
    let text = |name: &str| one_line(worker[name].as_str().unwrap_or("?"));
    format!(
        "left alone: the worker at {}: {}",
        text("socket"),
        text("reason")
    )
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

/// What is done to several terminals at once.
#[derive(Debug, Clone, Copy)]
enum Deed {
    End,
    Restart,
}

/// Does it to each, complaining about those that fail.
async fn for_each(
    client: &mut Client,
    names: &[String],
    done: &str,
    deed: Deed,
) -> anyhow::Result<()> {
    let mut failed = 0;
    for name in names {
        if let Err(error) = do_to(client, name, deed).await {
            super::complain(&error);
            failed += 1;
        }
    }
    if failed > 0 {
        bail!("{failed} of {} could not be {done}", names.len());
    }
    Ok(())
}

async fn do_to(client: &mut Client, name: &str, deed: Deed) -> anyhow::Result<()> {
    let terminal = locate(client, name).await?;
    let (method, what) = match deed {
        Deed::End => ("disposeTerminal", "end"),
        Deed::Restart => ("x-shellward/restartWorker", "restart"),
    };
    client
        .request(method, json!({"channel": terminal.uri}))
        .await
        .with_context(|| format!("cannot {what} {name}"))?;
    Ok(())
}

pub(super) async fn report(client: &mut Client) -> anyhow::Result<Value> {
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
        client.id.trim_start_matches(OWN_CLIENTS)
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
