//! Taking over the workers that a supervisor before this one left.
//!
//! Only what is proven to be dead is cleaned up: a socket that refuses a connection has nobody
//! behind it. No answer means unknown, and nothing is removed or ended then (field case S-36): it is
//! shown to operators, and asked again.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use shellward_protocol::kept::Kept;
use shellward_protocol::message::Ack;
use shellward_protocol::{FromWorker, OLDEST_WIRE_VERSION, ToWorker, WIRE_VERSION};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::adopted::{Adopted as Process, Remains};
use super::frames::{self, LinkError};
use super::leftovers::{self, token_file};
use super::process::{self, Control, Worker};
use super::task::{Link, see_out};
use super::told::Stream;
use crate::core::Adopted;
use crate::faults;
use crate::host::Host;
use crate::limits::{ADOPT_AGAIN, ADOPT_TIME, PARALLEL_ADOPTIONS, STALE_TOKEN_TIME};
use crate::rundir;

/// Why a worker was not taken over.
#[derive(Debug, thiserror::Error)]
enum AdoptError {
    /// Nobody is behind its socket.
    #[error("it is dead")]
    Dead,
    /// It may answer later.
    #[error("it does not answer")]
    Silent,
    /// It never had a terminal.
    #[error("it has no terminal")]
    Empty,
    /// Its token is not there or cannot be read.
    #[error("its token cannot be read: {0}")]
    Token(#[source] io::Error),
    /// The system refused something.
    #[error("it cannot be looked after: {0}")]
    System(#[source] io::Error),
    /// It will not be taken over.
    #[error("{0}")]
    Link(#[from] LinkError),
    /// Another terminal has its URI by now.
    #[error("another terminal has its URI; end one of them")]
    Taken,
    /// What it says makes no sense.
    #[error("{0}")]
    Contract(&'static str),
}

/// Takes over every worker that is there. Returns when each was, or has not answered in time.
pub(crate) async fn adopt_all(host: &Arc<Host>) {
    let begun = Instant::now();
    let slots = Arc::new(Semaphore::new(PARALLEL_ADOPTIONS));
    let mut tasks = JoinSet::new();
    for (name, path) in found(host) {
        let (host, slots) = (Arc::clone(host), Arc::clone(&slots));
        tasks.spawn(async move {
            let _slot = slots.acquire().await;
            first_try(&host, name, path).await
        });
    }
    let mut count = 0;
    while let Some(adopted) = tasks.join_next().await {
        count += usize::from(adopted.unwrap_or(false));
    }
    if count > 0 {
        // Not u128, which a log in JSON shows as text.
        let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::info!(count, ms, "terminals were taken over");
    }
}

/// The sockets of workers in every wire version's directory, each with its name below the runtime
/// directory. What is no socket of ours is none of our business.
fn found(host: &Host) -> Vec<(String, PathBuf)> {
    let Some(runtime) = host.worker_sockets.parent() else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for version in names(runtime) {
        let number = version.strip_prefix('w').and_then(|text| text.parse().ok());
        let Some(number) = number.filter(|number: &u16| version == format!("w{number}")) else {
            continue;
        };
        let directory = runtime.join(&version);
        rundir::remove_lone_tokens(&directory, STALE_TOKEN_TIME);
        for name in names(&directory) {
            let path = directory.join(&name);
            let is_socket = std::fs::symlink_metadata(&path).is_ok_and(|found| {
                found.file_type().is_socket() && found.uid() == nix::unistd::geteuid().as_raw()
            });
            if !is_socket || path.extension().is_none_or(|kind| kind != "sock") {
                continue;
            }
            let name = format!("{version}/{name}");
            if (OLDEST_WIRE_VERSION..=WIRE_VERSION).contains(&number) {
                all.push((name, path));
            } else {
                let reason = format!(
                    "it speaks wire version {number}, and this program {OLDEST_WIRE_VERSION} to {WIRE_VERSION}; run the program it belongs to, or end its processes"
                );
                tracing::warn!(socket = %name, %reason, "a worker is left alone");
                host.with_core(|core, _, _| core.set_unadopted(&name, Some(reason)));
            }
        }
    }
    all
}

/// The names in a directory that are text, sorted.
fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// What became of a worker that was found.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Adopted,
    /// It is no more, and its files are gone.
    Gone,
    LeftAlone {
        may_pass: bool,
    },
}

/// Whether it was taken over. One whose obstacle may pass is asked again in the background.
async fn first_try(host: &Arc<Host>, name: String, path: PathBuf) -> bool {
    let found = attempt(host, &name, &path).await;
    if found == (Found::LeftAlone { may_pass: true }) {
        tokio::spawn(ask_again(Arc::clone(host), name, path));
    }
    found == Found::Adopted
}

async fn ask_again(host: Arc<Host>, name: String, path: PathBuf) {
    loop {
        tokio::time::sleep(ADOPT_AGAIN).await;
        if attempt(&host, &name, &path).await != (Found::LeftAlone { may_pass: true }) {
            return;
        }
    }
}

/// Tries to take a worker over, and says to operators what became of that.
async fn attempt(host: &Arc<Host>, name: &str, path: &Path) -> Found {
    let (found, reason) = match adopt(host, path).await {
        Ok((worker, link)) => {
            stay(host, worker, link);
            (Found::Adopted, None)
        }
        Err(AdoptError::Dead | AdoptError::Empty) => {
            tracing::warn!(socket = %name, "a worker ended while no supervisor ran; its terminal is gone");
            if let Some(id) = id_of(path) {
                Remains::of(id).end().await;
            }
            leftovers::remove(path);
            (Found::Gone, None)
        }
        Err(error) => {
            let reason = reason(&error, path).await;
            let may_pass = matches!(error, AdoptError::Silent | AdoptError::Taken);
            (Found::LeftAlone { may_pass }, Some(reason))
        }
    };
    let is_news = host.with_core(|core, _, _| core.set_unadopted(name, reason.clone()));
    if let (true, Some(reason)) = (is_news, reason) {
        tracing::warn!(socket = %name, %reason, "a worker is left alone");
    }
    found
}

/// Why a worker is left alone, in words, with the process that listens there.
async fn reason(error: &AdoptError, path: &Path) -> String {
    match in_time(frames::connect(path)).await {
        Ok(Ok(peer)) => format!("{error} (process {})", peer.pid),
        _ => error.to_string(),
    }
}

/// Looks after a worker that was taken over.
fn stay(host: &Arc<Host>, worker: Worker, link: Link) {
    let host = Arc::clone(host);
    tokio::spawn(async move {
        see_out(&host, worker, link).await;
        host.worker_left();
    });
}

/// Attaches to a worker and makes its terminal of what it has kept.
async fn adopt(host: &Arc<Host>, socket: &Path) -> Result<(Worker, Link), AdoptError> {
    let peer = match in_time(frames::connect(socket)).await? {
        Err(LinkError::Io(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
            return Err(AdoptError::Dead);
        }
        // It may have ended just now and taken its socket along.
        Err(LinkError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
            return Err(AdoptError::Dead);
        }
        // Its queue of connections is full (unix(7)): nobody takes them.
        Err(LinkError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
            return Err(AdoptError::Silent);
        }
        connected => connected?,
    };
    let token = token_file::read(socket).map_err(AdoptError::Token)?;
    let pid = peer.pid;
    // Before the handshake, which proves that it is the one.
    let mut process = Process::open(pid).map_err(AdoptError::System)?;
    let (mut receiver, mut sender) = in_time(frames::attach(peer, &token, host.epoch)).await??;
    faults::hit("supervisor.adopt-attached");
    let mut orders = Vec::new();
    // Nothing is acknowledged by the first, but one that has not been told to start anything yet,
    // and so has nothing to say, does not take it. Then, what this host's flags say.
    ToWorker::Ack(Ack { offset: 0 })
        .encode(&mut orders)
        .map_err(LinkError::from)?;
    ToWorker::Patience(host.patience)
        .encode(&mut orders)
        .map_err(LinkError::from)?;
    sender.send(&orders).await.map_err(LinkError::from)?;
    if !in_time(receiver.fill()).await?? {
        return Err(AdoptError::Empty);
    }
    let id = id_of(socket)
        .ok_or(AdoptError::Contract("its socket has no name"))?
        .to_owned();
    let (mut adopted, stream, shell, mut left) = match receiver.take()? {
        Some(FromWorker::Kept(kept)) => begin(id.clone(), &kept)?,
        Some(FromWorker::StartFailed(_)) => return Err(AdoptError::Empty),
        _ => return Err(AdoptError::Contract("it does not say what it has kept")),
    };
    while left > 0 {
        if !in_time(receiver.fill()).await?? {
            return Err(AdoptError::Contract("it left in the middle of its past"));
        }
        match receiver.take()? {
            Some(FromWorker::Past(past)) => adopted.past(past).map_err(AdoptError::Contract)?,
            _ => return Err(AdoptError::Contract("its past is not whole")),
        }
        left -= 1;
    }
    faults::hit("supervisor.adopt-told");
    process.has_shell(pid, shell);
    let control = Control::new(pid, &id);
    let worker = Worker {
        process: process::Process::Adopted(process),
        control: Arc::clone(&control),
        socket: socket.to_owned(),
        token,
    };
    let link = host.with_core(|core, now, effects| {
        let (key, running) = core
            .adopt(adopted, pid, now, effects)
            .ok_or(AdoptError::Taken)?;
        host.workers.adopt(key, control);
        Ok::<_, AdoptError>(Link {
            key,
            receiver,
            sender,
            running,
            stream,
        })
    });
    let link = link?;
    faults::hit("supervisor.adopted");
    tracing::info!(terminal = %id, worker = pid, shell, "a terminal is taken over");
    Ok((worker, link))
}

/// The id of the terminal, which its worker's socket is called after.
fn id_of(socket: &Path) -> Option<&str> {
    socket.file_stem()?.to_str().filter(|id| !id.is_empty())
}

fn begin(id: String, kept: &Kept<'_>) -> Result<(Adopted, Stream, u32, u32), AdoptError> {
    let adopted = Adopted::new(id, kept, Instant::now()).map_err(AdoptError::Contract)?;
    Ok((adopted, Stream::resumed(kept), kept.shell_pid, kept.past))
}

/// What comes in time; otherwise nothing is known.
async fn in_time<T>(what: impl Future<Output = T>) -> Result<T, AdoptError> {
    timeout(ADOPT_TIME, what)
        .await
        .map_err(|_: tokio::time::error::Elapsed| AdoptError::Silent)
}
