//! The `shellward` program: `serve`, and the commands that talk to a running one.

use std::process::ExitCode;

use clap::Parser as _;
use shellward::cli::{Cli, Command, NoCommandDetection, NoPty, NotAvailable, WrongUsage};
use shellward::config::{ConfigError, LogFormat, ServeArgs};
use shellward::log::{JsonLines, Log};
use shellward::serve::PtyRequired;
use shellward::{cli, serve};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Serve(mut args) => {
            args.runtime_dir = cli.runtime_dir;
            serve_and_log(*args)
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
            ExitCode::from(code_of(&error))
        }
    }
}

/// The exit code that stands for an error.
fn code_of(error: &anyhow::Error) -> u8 {
    let not_available = error.is::<NotAvailable>()
        || error.is::<PtyRequired>()
        || error.is::<NoPty>()
        || error.is::<NoCommandDetection>();
    let wrong_usage =
        error.is::<WrongUsage>() || matches!(error.downcast_ref(), Some(ConfigError::Value { .. }));
    match (not_available, wrong_usage) {
        (true, _) => 3,
        (false, true) => 2,
        (false, false) => 1,
    }
}

/// Serves; what to exit with.
fn serve_and_log(args: ServeArgs) -> anyhow::Result<u8> {
    let args = args.with_file()?;
    let format = args.log.unwrap_or_default();
    let log = log_to_stderr(format)?;
    let result = runtime(true).and_then(|runtime| runtime.block_on(serve::serve(args)));
    let result = match (result, format) {
        (Err(error), LogFormat::Json) => {
            // Whoever reads the lines expects nothing else on stderr.
            tracing::error!(error = format!("{error:#}"), "the host has failed");
            Ok(code_of(&error))
        }
        (result, _) => result.map(|()| 0),
    };
    log.flush();
    result
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
fn log_to_stderr(format: LogFormat) -> anyhow::Result<Log> {
    let log = Log::to(std::io::stderr(), format)?;
    let filter = tracing_subscriber::EnvFilter::try_from_env("SHELLWARD_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_target(false)
        .with_writer(log.clone());
    match format {
        LogFormat::Text => subscriber.init(),
        LogFormat::Json => {
            subscriber.event_format(JsonLines).init();
            std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
        }
    }
    Ok(log)
}
