//! The worker role: the order of its start and of its end.
//!
//! What lives here: becoming a process of its own, reading the boot frame, listening, saying so,
//! cleaning up. What must not: what happens in between (the event loop).

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use interprocess::local_socket::{
    GenericFilePath, Listener, ListenerNonblockingMode, ListenerOptions, ToFsName,
};
use interprocess::os::unix::local_socket::ListenerOptionsExt;
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{chdir, dup2_stdin, dup2_stdout, getpid, setsid};
use shellward_protocol::frame::HEADER_LEN;
use shellward_protocol::limits::PAYLOAD_MAX;
use shellward_protocol::{Boot, FrameDecoder, WireError};

use crate::event_loop::{EventLoop, LoopError};
use crate::faults;
use crate::link::Admission;
use crate::sys;

/// The word that selects this role.
pub(crate) const ROLE: &str = "run";

/// What can go wrong outside the event loop.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    #[error("cannot {what}")]
    System {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("cannot read the boot frame")]
    Boot(#[from] WireError),
    #[error("the boot frame is not whole, or not alone")]
    BootLength,
    #[error("cannot listen on {}", path.display())]
    Listen {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Loop(#[from] LoopError),
}

fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> RunError {
    move |source| RunError::System {
        what,
        source: source.into(),
    }
}

/// Serves one terminal to its end.
pub(crate) fn run() -> Result<(), RunError> {
    match start() {
        Ok((event_loop, _socket)) => Ok(event_loop.run()?),
        Err(error) => {
            // The supervisor waits for a line; it may have gone meanwhile.
            writeln!(io::stdout(), "error: {}", crate::start::chain(&error)).ok();
            Err(error)
        }
    }
}

/// Everything up to the moment a supervisor can attach.
fn start() -> Result<(EventLoop, OwnSocket), RunError> {
    sys::die_of_faults();
    // EPERM: it is a session leader already.
    setsid().ok();
    chdir("/").map_err(system("enter /"))?;
    umask(Mode::S_IRWXG | Mode::S_IRWXO);
    // Other processes of the same user may not read the token out of this one, or its terminal.
    prctl::set_dumpable(false).map_err(system("hide from debuggers"))?;
    prctl::set_child_subreaper(true).map_err(system("become a subreaper"))?;
    let signals = take_signals()?;

    let boot = read_boot()?;
    let null = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(system("open /dev/null"))?;
    dup2_stdin(&null).map_err(system("let go of stdin"))?;

    let (listener, socket) = listen(&boot.path)?;
    faults::hit("worker.listening");
    let mut scripts = boot.path.into_os_string();
    scripts.push(".d");
    let scripts = PathBuf::from(scripts);
    let event_loop = EventLoop::new(listener, signals, boot.admission, getpid(), scripts);
    say_ready(&null)?;
    Ok((event_loop, socket))
}

/// From here on these signals are read, not delivered. PIPE is ignored by Rust's own start-up.
fn take_signals() -> Result<SignalFd, RunError> {
    let mask: SigSet = [
        Signal::SIGCHLD,
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
    ]
    .into_iter()
    .collect();
    mask.thread_block().map_err(system("block signals"))?;
    SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .map_err(system("read signals"))
}

struct Orders {
    path: PathBuf,
    admission: Admission,
}

/// The one frame on the inherited pipe. It carries the token, so it is read before anything else.
fn read_boot() -> Result<Orders, RunError> {
    let mut bytes = Vec::new();
    let max = (HEADER_LEN + PAYLOAD_MAX) as u64;
    io::stdin()
        .lock()
        .take(max)
        .read_to_end(&mut bytes)
        .map_err(system("read stdin"))?;
    let mut decoder = FrameDecoder::new();
    decoder.push(&bytes);
    let orders = {
        let (header, payload) = decoder.next_frame()?.ok_or(RunError::BootLength)?;
        let boot = Boot::decode(header, payload)?;
        Orders {
            path: PathBuf::from(OsStr::from_bytes(boot.socket.as_slice())),
            admission: Admission {
                token: boot.token,
                supervisor_uid: boot.supervisor_uid,
            },
        }
    };
    if decoder.is_empty() {
        Ok(orders)
    } else {
        Err(RunError::BootLength)
    }
}

/// Binds and listens itself: the peer credentials that a supervisor sees are those of whoever
/// called listen.
fn listen(path: &Path) -> Result<(UnixListener, OwnSocket), RunError> {
    let failed = |source| RunError::Listen {
        path: path.to_owned(),
        source,
    };
    if !path.is_absolute() {
        return Err(failed(io::Error::other("the path is not absolute")));
    }
    faults::check("worker.listen").map_err(failed)?;
    let name = path.to_fs_name::<GenericFilePath>().map_err(failed)?;
    let Listener::UdSocket(listener) = ListenerOptions::new()
        .name(name)
        // Set on the socket before it has a name, so that nobody gets in between.
        .mode(0o600)
        // Neither somebody else's file now, nor what stands there later.
        .try_overwrite(false)
        .reclaim_name(false)
        .nonblocking(ListenerNonblockingMode::Both)
        .create_sync()
        .map_err(failed)?;
    let socket = OwnSocket::new(path).map_err(failed)?;
    Ok((UnixListener::from(listener), socket))
}

fn say_ready(null: &File) -> Result<(), RunError> {
    let mut stdout = io::stdout();
    stdout
        .write_all(b"ready\n")
        .and_then(|()| stdout.flush())
        .map_err(system("say that the worker is ready"))?;
    dup2_stdout(null).map_err(system("let go of stdout"))
}

/// Beside a worker's socket: where its supervisor keeps the attach token for the next one.
const TOKEN_EXTENSION: &str = "token";

/// The socket file, removed at the end if it still is ours; the token beside it has no use then.
struct OwnSocket {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl OwnSocket {
    fn new(path: &Path) -> io::Result<Self> {
        let meta = fs::symlink_metadata(path)?;
        Ok(Self {
            path: path.to_owned(),
            device: meta.dev(),
            inode: meta.ino(),
        })
    }
}

impl Drop for OwnSocket {
    fn drop(&mut self) {
        let is_ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|meta| meta.dev() == self.device && meta.ino() == self.inode);
        if is_ours {
            // Somebody else removing it first is fine.
            fs::remove_file(&self.path).ok();
            let token = self.path.with_extension(TOKEN_EXTENSION);
            if fs::symlink_metadata(&token).is_ok_and(|meta| meta.is_file()) {
                fs::remove_file(&token).ok();
            }
        }
    }
}
