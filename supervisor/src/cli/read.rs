//! `shellward read`.

use anyhow::{Context as _, bail};
use clap::Args;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::NoCommandDetection;
use super::client::Client;
use super::commands::{NO_COMMAND_YET, PATIENCE, QUIET, entry, locate, print};
use super::plain::plain;
use crate::ahp::view::View;

/// The flags of `shellward read`.
#[derive(Debug, Args)]
pub struct Read {
    /// The terminal
    pub terminal: String,
    /// Only the last command's output, also while it runs
    #[arg(long)]
    pub last_command: bool,
    /// With all escape sequences; do not print this to a terminal you care about
    #[arg(long, conflicts_with = "json")]
    pub raw: bool,
    /// One JSON object, for machines
    #[arg(long)]
    pub json: bool,
    /// Do not wait
    #[arg(long)]
    pub no_wait: bool,
}

pub(super) async fn read(client: &mut Client, args: &Read) -> anyhow::Result<()> {
    let terminal = locate(client, &args.terminal).await?;
    let result = client
        .request("subscribe", json!({"channel": terminal.uri}))
        .await?;
    let mut view = View::new(result).context("the host sent no terminal")?;
    let give_up = Instant::now() + PATIENCE;
    while !args.no_wait && view.is_running() {
        let Some(message) = client.next(give_up.min(Instant::now() + QUIET)).await? else {
            break;
        };
        let params = &message["params"];
        if message["method"] == "action" && params["channel"] == terminal.uri.as_str() {
            view.apply(params);
        }
    }
    let (printed, mut report, name) = if args.last_command {
        match view.last_command() {
            Some(command) => (command.output().to_owned(), command.report(), "output"),
            None => return Err(no_command(client, &terminal.uri).await?),
        }
    } else {
        (view.text(), view.report(), "text")
    };
    if args.json {
        report["uri"] = json!(terminal.uri);
        report["id"] = json!(terminal.id);
        report[name] = json!(plain(&printed));
        return print(&format!("{report}\n"));
    }
    if args.raw {
        return print(&printed);
    }
    let mut text = plain(&printed);
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    print(&text)
}

/// Why there is no last command to show.
async fn no_command(client: &mut Client, uri: &str) -> anyhow::Result<anyhow::Error> {
    let entry = entry(client, uri).await?;
    if entry["lastCommand"] != Value::Null {
        bail!(
            "the last command's output is no longer kept: it was cleared, or the terminal has printed too much since"
        );
    }
    if entry["detectsCommands"] == true {
        bail!("{NO_COMMAND_YET}");
    }
    Ok(NoCommandDetection.into())
}
