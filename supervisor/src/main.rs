//! The `shellward` program: `serve`, and the commands that talk to a running one.

use std::process::ExitCode;

use clap::Parser as _;
use shellward::cli::{Cli, Command, NoCommandDetection, NoPty, NotAvailable};
use shellward::log::Log;
use shellward::serve::PtyRequired;
use shellward::{cli, serve};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Serve(mut args) => {
            args.runtime_dir = cli.runtime_dir;
            log_to_stderr().and_then(|log| {
                let result =
                    runtime(true).and_then(|runtime| runtime.block_on(serve::serve(*args)));
                log.flush();
                result.map(|()| 0)
            })
        }
        Command::Probe(args) => runtime(false)
            .and_then(|runtime| runtime.block_on(cli::probe(args, cli.runtime_dir)))
            .map(|()| 0),
        Command::Ops(command) => {
            runtime(false).and_then(|runtime| runtime.block_on(cli::run(command, cli.runtime_dir)))
        }
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            cli::complain(&error);
            let not_available = error.is::<NotAvailable>()
                || error.is::<PtyRequired>()
                || error.is::<NoPty>()
                || error.is::<NoCommandDetection>();
            ExitCode::from(if not_available { 3 } else { 1 })
        }
    }
}

/// Two threads for the server: one more reader than writers gain nothing (ARCHITECTURE.md).
fn runtime(server: bool) -> anyhow::Result<tokio::runtime::Runtime> {
    let mut builder = if server {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2);
        builder
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    Ok(builder.enable_all().build()?)
}

/// `SHELLWARD_LOG` chooses what is logged, e.g. `debug` or `shellward=debug`; by default, `info`.
fn log_to_stderr() -> anyhow::Result<Log> {
    let log = Log::to(std::io::stderr())?;
    let filter = tracing_subscriber::EnvFilter::try_from_env("SHELLWARD_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_target(false)
        .with_writer(log.clone())
        .init();
    Ok(log)
}
