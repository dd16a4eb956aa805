//! `shellward serve`: puts the parts together, runs them, and takes them apart in order.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures_util::FutureExt as _;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::stat::{Mode, umask};
use serde_json::json;
use shellward_protocol::message::{Limit, Marks};
use tokio::signal::unix::{SignalKind, signal};

use crate::clients_file::ClientsFile;
use crate::config::{
    Address, Claims, ConfigError, From, MarksMode, OnExit, PtyMode, Restart, ServeArgs,
    ShellIntegration, binding, check_shell, time,
};
use crate::core::Settings;
use crate::front::door::Policy;
use crate::front::{Front, Listener};
use crate::host::{Host, Parts, Stage};
use crate::limits::{CLOSE_TIME, ORPHAN_TIMEOUT, REATTACH_GRACE};
use crate::ptys::Ptys;
use crate::rundir::{self, RuntimeDir};
use crate::service;
use crate::token::ConnectionToken;

const DEFAULT_LISTEN: &str = "127.0.0.1:9190";
/// Said when a host ends and touches nothing any more.
const AT_ONCE: &str = "leaving at once; terminals are not touched";
const DEFAULT_KEEP_EXITED: Duration = Duration::from_secs(3600);

/// How the server was told to end.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// End the terminals first.
    Orderly,
    /// Leave the terminals to the next supervisor.
    Detach,
    /// Leave at once and touch nothing (SIGQUIT).
    AtOnce,
}

/// Serves until told to end; `args` are complete ([`ServeArgs::with_file`]).
///
/// # Errors
/// Something that is needed is missing or already taken; the message says what to do.
pub async fn serve(args: ServeArgs) -> anyhow::Result<()> {
    let shell_umask = umask(Mode::S_IRWXG | Mode::S_IRWXO);
    let shell_limits = raise_descriptor_limit();
    nix::sys::prctl::set_child_subreaper(true)
        .context("cannot become the parent of orphaned processes (PR_SET_CHILD_SUBREAPER)")?;

    // From here on a signal ends things in order, whatever has been begun.
    let mut signals = Signals::new()?;
    let directory = starting_directory(args.directory.as_deref())?;
    let shell = shell(args.shell.as_deref())?;
    let worker_binary = worker_binary(args.worker.as_deref())?;
    let duration = |flag, given: &Option<String>, default| match given {
        Some(text) => time(flag, text),
        None => Ok(default),
    };
    let keep_exited = duration("keep-exited", &args.keep_exited, DEFAULT_KEEP_EXITED)?;
    let reattach_grace = duration("reattach-grace", &args.reattach_grace, REATTACH_GRACE)?;
    let orphan_timeout = duration("orphan-timeout", &args.orphan_timeout, ORPHAN_TIMEOUT)?;
    let addresses = addresses(&args.listen)?;
    let runtime = RuntimeDir::open(&rundir::runtime_dir(args.runtime_dir.clone())?)?;
    let state_dir = std::path::absolute(rundir::state_dir(args.state_dir.clone())?)?;
    rundir::private_dir(&state_dir)?;
    let (token, token_file) = token(&args, &state_dir)?;
    if token.as_ref().is_some_and(ConnectionToken::is_short) {
        tracing::warn!(
            "the connection token is short enough to be guessed; use 16 random characters or more"
        );
    }
    // Before any socket is there: a state directory that cannot be written is found out here.
    let epoch = rundir::next_epoch(&state_dir, runtime.path())?;
    let (listeners, host_names) = listen(addresses, &runtime, token.is_some()).await?;
    // From here on no relative path is used; a directory that is removed must not hold us up
    // (field case S-26).
    std::env::set_current_dir("/").context("cannot change to /")?;

    let url = listeners
        .iter()
        .find_map(Listener::address)
        .map(|address| format!("ws://{address}"));
    let socket = listeners
        .iter()
        .find_map(|listener| Some(listener.path()?.to_owned()));
    let host = Host::new(Parts {
        settings: Settings {
            directory,
            shell,
            keep_exited,
            claims_open: args.claims == Some(Claims::Open),
            input_from_holder: args.input_from == Some(From::Holder),
            size_from_holder: args.size_from == Some(From::Holder),
            reattach_grace,
            restart_on_crash: args.restart == Some(Restart::OnCrash),
            check_shell,
            account: account(),
            about: json!({
                "pid": std::process::id(),
                "version": env!("CARGO_PKG_VERSION"),
                "url": url,
                "socket": socket,
                "pty": false,
                "probe": null,
            }),
        },
        epoch,
        clients: ClientsFile::new(runtime.clients_file()),
        ptys: Ptys::new(
            args.pty.unwrap_or_default(),
            args.pty_binding.clone().map(binding).transpose()?,
            worker_binary.clone(),
        ),
        worker_binary,
        worker_sockets: runtime.worker_sockets(),
        shell_limits,
        shell_umask: shell_umask.bits(),
        marks: match args.marks.unwrap_or_default() {
            MarksMode::Strip => Marks::Strip,
            MarksMode::Keep => Marks::Keep,
        },
        integrate: args.shell_integration.unwrap_or_default() == ShellIntegration::Auto,
        orphan_timeout,
    });
    let sockets: Vec<PathBuf> = listeners
        .iter()
        .filter_map(|listener| Some(listener.path()?.to_owned()))
        .collect();
    let front = Front::new(
        host.clone(),
        Policy {
            token,
            origins: args.allow_origin.clone(),
            hosts: args.allow_host.iter().cloned().chain(host_names).collect(),
        },
    );
    let mut tasks = tokio::task::JoinSet::new();
    // From now on, so that monitoring is told what is so; clients wait for the probe's answer.
    for listener in listeners {
        tasks.spawn(front.clone().serve(listener));
    }
    // Shared, because an orderly end that comes meanwhile goes on with it.
    let adoption = {
        let host = host.clone();
        async move { host.adopt().await }.shared()
    };
    let probed = tokio::select! {
        (verdict, ()) = async { tokio::join!(host.ask_probe(), adoption.clone()) } => Ok(verdict.works()),
        end = signals.wait(&host) => Err(end),
    };
    let pty = match probed {
        Ok(false) if host.ptys.mode() == PtyMode::Require => {
            host.set_stage(Stage::Ending);
            tidy(&host, &runtime, &sockets).await;
            return Err(PtyRequired(host.ptys.refusal()).into());
        }
        Ok(pty) => pty,
        Err(End::AtOnce) => {
            tracing::info!("{AT_ONCE}");
            return Ok(());
        }
        Err(End::Orderly | End::Detach) => {
            service::stopping();
            tracing::info!("ending");
            host.set_stage(Stage::Ending);
            if args.on_exit != Some(OnExit::Keep) {
                // All terminals end with this host: also those that it has not taken over yet.
                tokio::select! {
                    () = adoption => {}
                    _ = signals.wait(&host) => {
                        tracing::info!("{AT_ONCE}");
                        return Ok(());
                    }
                }
                end_terminals(&host).await;
            }
            name_left_alone(&host);
            tidy(&host, &runtime, &sockets).await;
            return Ok(());
        }
    };
    host.with_core(|core, now, effects| core.serve(now, effects));
    host.set_stage(Stage::Serving);
    tasks.spawn({
        let host = host.clone();
        async move { host.keep_time().await }
    });
    tasks.spawn({
        let host = host.clone();
        async move { host.watch_stopped_workers().await }
    });
    let announced = announce(
        args.ready_json,
        url.as_deref(),
        socket.as_deref(),
        token_file.as_deref(),
        pty,
    );
    if announced.is_ok() {
        service::ready();
    }

    let end = tokio::select! {
        end = signals.wait(&host), if announced.is_ok() => match (end, args.on_exit) {
            (End::Orderly, Some(OnExit::Keep)) => End::Detach,
            (end, _) => end,
        },
        () = host.shutdown.notified(), if announced.is_ok() => End::Orderly,
        else => End::Orderly,
    };
    service::stopping();
    if end == End::AtOnce {
        tracing::info!("{AT_ONCE}");
        return Ok(());
    }
    tracing::info!("ending");
    // Monitoring is answered to the last; clients are not taken any more.
    host.set_stage(Stage::Ending);
    if end == End::Detach {
        tracing::info!(
            "terminals run on; the next serve over this runtime directory takes them over"
        );
        host.with_core(|core, _, _| core.detach());
    } else {
        end_terminals(&host).await;
    }
    name_left_alone(&host);
    tasks.abort_all();
    while tasks.join_next().await.is_some() {}
    for socket in &sockets {
        remove_socket(socket);
    }
    host.with_core(|core, _, _| core.close_all());
    if !front.drained(CLOSE_TIME + Duration::from_millis(500)).await {
        tracing::debug!("some connections did not close in time");
    }
    tidy(&host, &runtime, &[]).await;
    announced
}

/// `--pty require` where ptys do not work: exit code 3.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PtyRequired(String);

async fn end_terminals(host: &Host) {
    if !host.end_terminals().await {
        tracing::warn!("some terminals did not end in time");
    }
}

/// Workers that were not taken over run on when this host has ended: whoever wanted everything to end
/// must hear of them.
fn name_left_alone(host: &Host) {
    for (socket, reason) in host.with_core(|core, _, _| core.unadopted().clone()) {
        tracing::warn!(%socket, %reason, "this host ends, and a worker that it left alone does not");
    }
}

/// Leaves nothing behind: no socket, no process of a probe or of a dead worker.
async fn tidy(host: &Host, runtime: &RuntimeDir, sockets: &[PathBuf]) {
    for socket in sockets {
        remove_socket(socket);
    }
    host.workers.sweep_all().await;
    runtime.clean();
}

fn remove_socket(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::debug!(%error, "a client socket was gone already");
    }
}

/// The signals that mean something to `serve` (design.md, "Signals to `serve`").
struct Signals {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
    quit: tokio::signal::unix::Signal,
    hup: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        let on = |kind| signal(kind).context("cannot receive signals");
        Ok(Self {
            term: on(SignalKind::terminate())?,
            int: on(SignalKind::interrupt())?,
            quit: on(SignalKind::quit())?,
            hup: on(SignalKind::hangup())?,
        })
    }

    async fn wait(&mut self, host: &Arc<Host>) -> End {
        loop {
            tokio::select! {
                _ = self.term.recv() => return End::Orderly,
                _ = self.int.recv() => return End::Orderly,
                _ = self.quit.recv() => return End::AtOnce,
                _ = self.hup.recv() => {
                    tracing::info!("HUP: asking again whether ptys work");
                    // Beside us: it may hang for its whole time, and a signal must not wait for it.
                    let host = Arc::clone(host);
                    tokio::spawn(async move { host.ask_probe().await });
                }
            }
        }
    }
}

/// Raises our own limit of descriptors; returns what shells are to have instead.
fn raise_descriptor_limit() -> Vec<Limit> {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return Vec::new();
    };
    if let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        tracing::debug!(%error, "the limit of descriptors stays");
    }
    vec![Limit {
        resource: Resource::RLIMIT_NOFILE as u32,
        soft,
        hard,
    }]
}

fn starting_directory(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let directory = match given {
        Some(path) => std::path::absolute(path)?,
        None => match std::env::current_dir() {
            Ok(path) => path,
            Err(error) => {
                tracing::warn!(%error, "the current directory is gone; terminals start in /");
                PathBuf::from("/")
            }
        },
    };
    if given.is_some() && !directory.is_dir() {
        bail!(
            "--directory {}: there is no such directory",
            directory.display()
        );
    }
    Ok(directory)
}

/// `--shell`, else `$SHELL`, else the account's shell, else /bin/sh.
fn shell(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(path) = given {
        check_shell(&path.to_string_lossy())
            .map_err(|reason| anyhow::anyhow!("--shell {}: {reason}", path.display()))?;
        return Ok(path.to_owned());
    }
    let account = nix::unistd::User::from_uid(nix::unistd::geteuid())
        .ok()
        .flatten();
    [
        std::env::var_os("SHELL").map(PathBuf::from),
        account.map(|user| user.shell),
    ]
    .into_iter()
    .flatten()
    .find(|path| check_shell(&path.to_string_lossy()).is_ok())
    .map_or_else(|| Ok(PathBuf::from("/bin/sh")), Ok)
}

fn account() -> String {
    let uid = nix::unistd::geteuid();
    nix::unistd::User::from_uid(uid)
        .ok()
        .flatten()
        .map_or_else(|| uid.to_string(), |user| user.name)
}

pub(crate) fn worker_binary(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    let path = match given {
        Some(path) => std::path::absolute(path)?,
        None => std::env::current_exe()
            .context("cannot find this program's own path; give --worker")?
            .with_file_name("shellward-worker"),
    };
    if nix::unistd::access(&path, nix::unistd::AccessFlags::X_OK).is_err() {
        bail!(
            "the worker program {} is missing or not executable; build both with scripts/build, or give --worker",
            path.display()
        );
    }
    Ok(path)
}

/// The token clients must present, and the file it can be read from.
fn token(
    args: &ServeArgs,
    state_dir: &Path,
) -> anyhow::Result<(Option<ConnectionToken>, Option<PathBuf>)> {
    if args.without_connection_token {
        return Ok((None, None));
    }
    if let Some(text) = &args.connection_token {
        return Ok((Some(ConnectionToken::new(text.as_bytes())?), None));
    }
    if let Some(path) = &args.connection_token_file {
        return Ok((
            Some(ConnectionToken::read(path)?),
            Some(std::path::absolute(path)?),
        ));
    }
    let path = state_dir.join("connection-token");
    Ok((Some(ConnectionToken::read_or_make(&path)?), Some(path)))
}

/// Where to listen, each address with its text.
fn addresses(given: &[String]) -> Result<Vec<(String, Address)>, ConfigError> {
    let default = [DEFAULT_LISTEN.to_owned()];
    let texts = if given.is_empty() { &default } else { given };
    let with_text = |text: &String| Ok((text.clone(), Address::parse(text)?));
    texts.iter().map(with_text).collect()
}

async fn listen(
    addresses: Vec<(String, Address)>,
    runtime: &RuntimeDir,
    has_token: bool,
) -> anyhow::Result<(Vec<Listener>, Vec<String>)> {
    let mut listeners = Vec::new();
    let mut names = Vec::new();
    for (text, address) in addresses {
        match address {
            Address::Tcp { address, host } => {
                if !has_token && !address.ip().is_loopback() {
                    bail!(
                        "--listen {text}: listening beyond this machine needs a connection token; leave out --without-connection-token"
                    );
                }
                let listener = Listener::tcp(address).await.with_context(|| {
                    format!("cannot listen at {text}; choose another --listen HOST:PORT (port 0 picks a free one)")
                })?;
                listeners.push(listener);
                // A name is one of ours; an unspecified address is nobody's.
                if host.parse::<std::net::IpAddr>().is_err() && !host.starts_with('[') {
                    names.push(host);
                }
            }
            Address::Unix(path) => listeners.push(unix(&std::path::absolute(path)?)?),
        }
    }
    // The ops commands find the host here, whatever else it listens on.
    let own = runtime.client_socket();
    if !listeners
        .iter()
        .any(|listener| listener.path() == Some(&own))
    {
        listeners.insert(0, unix(&own)?);
    }
    Ok((listeners, names))
}

fn unix(path: &Path) -> anyhow::Result<Listener> {
    Listener::unix(path).with_context(|| format!("cannot listen at unix:{}", path.display()))
}

/// Tells that clients can connect, in one line on stdout.
fn announce(
    as_json: bool,
    url: Option<&str>,
    socket: Option<&Path>,
    token_file: Option<&Path>,
    pty: bool,
) -> anyhow::Result<()> {
    let line = if as_json {
        json!({
            "url": url,
            "socket": socket,
            "tokenFile": token_file,
            "pid": std::process::id(),
            "pty": pty,
        })
        .to_string()
    } else {
        let place = url.map_or_else(
            || socket.map_or_else(String::new, |path| format!("unix:{}", path.display())),
            str::to_owned,
        );
        let token = token_file.map_or_else(String::new, |path| {
            format!(" (token in {})", path.display())
        });
        format!("shellward listening on {place}{token}")
    };
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .context("cannot write to stdout")
}
