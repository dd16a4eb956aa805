//! `shellward probe`.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::client::{Client, NotAvailable};
use super::commands::print;
use crate::config::{PtyMode, binding};
use crate::ptys::Ptys;
use crate::worker_link::Workers;

/// The flags of `shellward probe`.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// Try this shared library, by its absolute path, whatever the running host uses
    #[arg(long, value_name = "LIB")]
    pty_binding: Option<PathBuf>,
    /// The worker program [default: shellward-worker beside this program]
    #[arg(long, value_name = "PATH")]
    worker: Option<PathBuf>,
    /// One JSON object, for machines
    #[arg(long)]
    json: bool,
}

/// Ptys do not work: exit code 3. It was said on stdout already.
#[derive(Debug, thiserror::Error)]
#[error("terminals would run on pipes here")]
pub struct NoPty;

/// Prints the answer.
///
/// # Errors
/// [`NoPty`]; a host that does not answer; a worker program that is missing.
pub async fn probe(args: ProbeArgs, runtime_dir: Option<PathBuf>) -> anyhow::Result<()> {
    let report = if args.pty_binding.is_some() || args.worker.is_some() {
        by_ourselves(&args).await?
    } else {
        match Client::connect(runtime_dir).await {
            Ok(mut client) => {
                let report = client.request("x-shellward/probe", json!({})).await?;
                client.close().await;
                report
            }
            Err(error) => match error.downcast_ref() {
                Some(NotAvailable::Nobody(_) | NotAvailable::Says(..)) => {
                    by_ourselves(&args).await?
                }
                None if error.is::<crate::rundir::DirError>() => by_ourselves(&args).await?,
                _ => return Err(error),
            },
        }
    };
    if args.json {
        print(&format!("{report}\n"))?;
    } else {
        let text = |name: &str| report[name].as_str().map(super::plain::one_line);
        let mut lines = text("sentence").unwrap_or_default();
        if let Some(step) = text("nextStep") {
            lines = format!("{lines}\n{step}");
        }
        print(&format!("{lines}\n"))?;
    }
    if report["result"] == "works" {
        Ok(())
    } else {
        Err(NoPty.into())
    }
}

async fn by_ourselves(args: &ProbeArgs) -> anyhow::Result<Value> {
    // What a crashed probe leaves behind becomes our child and is ended.
    nix::sys::prctl::set_child_subreaper(true)?;
    let worker = crate::serve::worker_binary(args.worker.as_deref())?;
    let binding = args.pty_binding.clone().map(binding).transpose()?;
    let ptys = Ptys::new(PtyMode::Auto, binding, worker);
    ptys.ask(&Workers::default()).await;
    Ok(ptys.report())
}
