//! Frames over a worker's socket, and the handshake that opens it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use interprocess::local_socket::GenericFilePath;
use interprocess::local_socket::tokio::{Stream, prelude::*};
use shellward_protocol::message::{Command, Mode, Start};
use shellward_protocol::{
    AttachToken, Data, FrameDecoder, FromWorker, Hello, OLDEST_WIRE_VERSION, Role, ToWorker,
    WIRE_VERSION, WireError,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use shellward_protocol::limits::OUTPUT_CHUNK_MAX;

use super::marked;
use crate::core::StartPlan;
use crate::host::Host;

/// The first read, and every read after one that did not fill its buffer: an idle terminal should
/// not hold more.
const SMALL_READ: usize = 8 << 10;
/// A read during a flood: a whole output frame and the start of the next.
const LARGE_READ: usize = OUTPUT_CHUNK_MAX + (16 << 10);

/// Why a link ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("the link broke")]
    Io(#[from] io::Error),
    #[error("it sent something malformed ({0})")]
    Wire(#[from] WireError),
    #[error("it did not end when it was told to")]
    Killed,
    #[error("it broke the contract: {0}")]
    Contract(&'static str),
    #[error(
        "it refused to attach: the token beside its socket is not its own, or it has served a newer supervisor"
    )]
    Refused,
}

/// The receiving half of a link.
#[derive(Debug)]
pub(super) struct Receiver {
    stream: Arc<Stream>,
    decoder: FrameDecoder,
    wanted: usize,
}

/// The sending half of a link.
#[derive(Debug)]
pub(super) struct Sender(Arc<Stream>);

impl Sender {
    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        (&*self.0).write_all(bytes).await
    }
}

/// A connection to whoever listens at a worker's socket: our own account, no more is known yet.
#[derive(Debug)]
pub(super) struct Peer {
    stream: Stream,
    /// Who called listen there (SO_PEERCRED, unix(7)).
    pub pid: u32,
}

/// Connects to a worker's socket.
pub(super) async fn connect(socket: &Path) -> Result<Peer, LinkError> {
    let name = socket.to_fs_name::<GenericFilePath>()?;
    let stream = Stream::connect(name).await?;
    let peer = stream.peer_creds()?;
    let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok());
    match pid {
        Some(pid) if peer.euid() == Some(nix::unistd::geteuid().as_raw()) => {
            Ok(Peer { stream, pid })
        }
        _ => Err(LinkError::Contract("another account listens at its socket")),
    }
}

/// Shakes hands with a worker.
pub(super) async fn attach(
    peer: Peer,
    token: &AttachToken,
    epoch: u64,
) -> Result<(Receiver, Sender), LinkError> {
    let Peer { stream, pid } = peer;
    let stream = Arc::new(stream);
    let mut sender = Sender(Arc::clone(&stream));
    let mut receiver = Receiver {
        stream,
        decoder: FrameDecoder::new(),
        wanted: SMALL_READ,
    };
    let mut hello = Vec::new();
    Hello {
        oldest: OLDEST_WIRE_VERSION,
        newest: WIRE_VERSION,
        role: Role::Supervisor,
        pid: std::process::id(),
        epoch,
        token: token.clone(),
    }
    .encode(&mut hello)?;
    sender.send(&hello).await?;
    let answer = receiver.next_with(Hello::decode).await?;
    match answer {
        None => Err(LinkError::Refused),
        Some(answer) if answer.role != Role::Worker => Err(LinkError::Contract("it is no worker")),
        // Whoever listens there has answered itself: it is alive, and its number is its own.
        Some(answer) if answer.pid != pid => {
            Err(LinkError::Contract("another process answers at its socket"))
        }
        Some(_) => Ok((receiver, sender)),
    }
}

impl Receiver {
    /// The next frame, read by `decode`; `None` at the end.
    async fn next_with<T>(
        &mut self,
        decode: impl FnOnce(shellward_protocol::Header, &[u8]) -> Result<T, WireError>,
    ) -> Result<Option<T>, LinkError> {
        if !self.fill().await? {
            return Ok(None);
        }
        match self.decoder.next_frame()? {
            Some((header, payload)) => Ok(Some(decode(header, payload)?)),
            None => Ok(None),
        }
    }

    /// Waits until a whole frame is there; false at the end. Cancel safe: a read that is not
    /// finished has taken nothing.
    pub async fn fill(&mut self) -> Result<bool, LinkError> {
        loop {
            if self.decoder.has_frame()? {
                return Ok(true);
            }
            let space = self.decoder.space(self.wanted);
            let room = space.len();
            let got = (&*self.stream).read(space).await?;
            if got == 0 {
                return Ok(false);
            }
            self.decoder.filled(got);
            self.wanted = if got == room { LARGE_READ } else { SMALL_READ };
        }
    }

    /// The message that [`Self::fill`] waited for.
    pub fn take(&mut self) -> Result<Option<FromWorker<'_>>, LinkError> {
        match self.decoder.next_frame()? {
            Some((header, payload)) => Ok(Some(FromWorker::decode(header, payload)?)),
            None => Ok(None),
        }
    }
}

/// The frames that start a shell.
pub(super) fn start_frames(
    host: &Host,
    plan: &StartPlan,
    mode: Mode<'_>,
) -> Result<Vec<u8>, WireError> {
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    let host_env = match plan.ended {
        None => std::env::vars_os()
            .map(|(name, value)| (name.into_vec().into(), value.into_vec().into()))
            .collect(),
        // No shell is started, so nobody needs it.
        Some(_) => Vec::new(),
    };
    let mut frame = Vec::new();
    ToWorker::Start(Box::new(Start {
        mode,
        shell: Data::borrowed(plan.shell.as_os_str().as_bytes()),
        command: Command::Shell,
        cwd: Data::borrowed(plan.cwd.as_os_str().as_bytes()),
        host_env,
        caller_env: vec![(
            Data::borrowed(marked::VARIABLE.as_bytes()),
            Data::borrowed(plan.id.as_bytes()),
        )],
        size: plan.size,
        umask: host.shell_umask,
        limits: host.shell_limits.clone(),
        marks: host.marks,
        integrate: host.integrate,
        card: Data::borrowed(&plan.card),
        commands: plan.again.as_ref().map_or(0, |again| again.commands),
        reattach_grace_ms: host.patience.reattach_grace_ms,
        orphan_timeout_ms: host.patience.orphan_timeout_ms,
    }))
    .encode(&mut frame)?;
    for past in plan.again.iter().flat_map(|again| &again.past) {
        ToWorker::Past(past.clone()).encode(&mut frame)?;
    }
    Ok(frame)
}
