//! Sockets that clients come in by, and the HTTP request that becomes a WebSocket.

use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::{fs, io};

use axum::body::Body;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{FromRequestParts as _, Request};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::door::{self, Arrival, Policy, Refusal};
use super::life::{Life, Watched};
use super::{connection, watch};
use crate::core::ConnectionId;
use crate::host::{Host, Stage};
use crate::limits::{
    ARRIVING_SOCKETS, MESSAGE_BYTES, REQUEST_HEAD_BYTES, REQUEST_HEAD_TIME, SOCKETS,
    WRONG_TOKEN_DELAY, WRONG_TOKEN_SLOTS,
};

/// How long accepting pauses when the process has no descriptor left for another connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A socket that is listening.
#[derive(Debug)]
pub enum Listener {
    /// TCP.
    Tcp(TcpListener),
    /// A unix socket, and the path to remove at the end.
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Listens at a TCP address.
    ///
    /// # Errors
    /// What the system says.
    pub async fn tcp(address: SocketAddr) -> io::Result<Self> {
        Ok(Self::Tcp(TcpListener::bind(address).await?))
    }

    /// Listens at a path, for this user only. A socket that nobody listens at any more is
    /// replaced; anything else at the path is left alone (field case S-36).
    ///
    /// # Errors
    /// Somebody listens there, something else is there, or what the system says.
    pub fn unix(path: &Path) -> io::Result<Self> {
        match fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => {
                if !is_abandoned(path)? {
                    return Err(io::Error::new(
                        io::ErrorKind::AddrInUse,
                        "somebody listens there already",
                    ));
                }
                fs::remove_file(path)?;
            }
            Ok(_) => {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "there is something else, not a socket",
                ));
            }
            Err(_) => {}
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        Ok(Self::Unix(listener, path.to_owned()))
    }

    /// The TCP address in use.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(..) => None,
        }
    }

    /// The path in use.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix(_, path) => Some(path),
        }
    }
}

/// Whether nobody listens at a socket file any more: only a refused connection proves it. Does not
/// wait, as connecting does where somebody listens and has stopped accepting.
fn is_abandoned(path: &Path) -> io::Result<bool> {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let probe = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    let answer = connect(probe.as_raw_fd(), &UnixAddr::new(path)?);
    Ok(answer == Err(Errno::ECONNREFUSED))
}

/// What all listeners share.
#[derive(Debug)]
pub struct Front {
    host: Arc<Host>,
    policy: Policy,
    /// Places for requests that have not become a WebSocket yet. TCP and unix sockets have their
    /// own, so that strangers cannot keep the owner out.
    arriving: [Arc<Semaphore>; 2],
    sockets: Arc<Semaphore>,
    wrong_tokens: Semaphore,
    next_connection: AtomicU64,
    own_uid: u32,
}

impl Front {
    /// A front for `host`.
    #[must_use]
    pub fn new(host: Arc<Host>, policy: Policy) -> Arc<Self> {
        Arc::new(Self {
            host,
            policy,
            arriving: [(); 2].map(|()| Arc::new(Semaphore::new(ARRIVING_SOCKETS))),
            sockets: Arc::new(Semaphore::new(SOCKETS)),
            wrong_tokens: Semaphore::new(WRONG_TOKEN_SLOTS),
            next_connection: AtomicU64::new(1),
            own_uid: nix::unistd::geteuid().as_raw(),
        })
    }

    /// Accepts connections. Never returns.
    pub async fn serve(self: Arc<Self>, listener: Listener) {
        let [tcp, unix] = &self.arriving;
        let places = match listener {
            Listener::Tcp(_) => tcp,
            Listener::Unix(..) => unix,
        };
        loop {
            let Ok(permit) = Arc::clone(places).acquire_owned().await else {
                return;
            };
            let accepted = match &listener {
                Listener::Tcp(tcp) => tcp.accept().await.and_then(|(stream, _)| {
                    stream.set_nodelay(true)?;
                    let id = self.next_id();
                    let arrival = Arrival::Tcp(stream.local_addr()?);
                    tokio::spawn(Arc::clone(&self).http(stream, id, arrival, permit));
                    Ok(())
                }),
                Listener::Unix(unix, _) => unix.accept().await.and_then(|(stream, _)| {
                    let id = self.next_id();
                    let arrival = Arrival::Unix(stream.peer_cred()?.uid());
                    tokio::spawn(Arc::clone(&self).http(stream, id, arrival, permit));
                    Ok(())
                }),
            };
            if let Err(error) = accepted {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }

    /// Every connection has a number from its first moment, so that what is logged of it before it
    /// becomes a WebSocket can be told together with the rest.
    fn next_id(&self) -> ConnectionId {
        ConnectionId(self.next_connection.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether every connection has gone, waiting at most `patience`.
    pub async fn drained(&self, patience: Duration) -> bool {
        let all = u32::try_from(SOCKETS).unwrap_or(u32::MAX);
        tokio::time::timeout(patience, self.sockets.acquire_many(all))
            .await
            .is_ok()
    }

    pub(super) async fn http<S>(
        self: Arc<Self>,
        stream: S,
        id: ConnectionId,
        arrival: Arrival,
        permit: OwnedSemaphorePermit,
    ) where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let life = Life::new();
        let stream = Watched::new(stream, Arc::clone(&life));
        let front = Arc::clone(&self);
        let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
            let (front, life) = (Arc::clone(&front), Arc::clone(&life));
            async move {
                Ok::<_, std::convert::Infallible>(
                    front
                        .request(request.map(Body::new), id, arrival, life)
                        .await,
                )
            }
        });
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(REQUEST_HEAD_TIME)
            .max_buf_size(REQUEST_HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
            .await;
        if let Err(error) = served {
            tracing::debug!(connection = id.0, %error, "a request was not finished");
        }
        drop(permit);
    }

    /// Answers one HTTP request. Nothing of the request is logged: it may hold the token.
    async fn request(
        self: Arc<Self>,
        request: Request,
        id: ConnectionId,
        arrival: Arrival,
        life: Arc<Life>,
    ) -> Response {
        let (mut parts, _body) = request.into_parts();
        // A client says these once; two could be read differently by a proxy in front.
        if [header::HOST, header::ORIGIN, header::AUTHORIZATION]
            .iter()
            .any(|name| parts.headers.get_all(name).iter().nth(1).is_some())
        {
            return self.refuse(StatusCode::BAD_REQUEST, "a header stands there twice");
        }
        let text = |name: header::HeaderName| {
            parts
                .headers
                .get(name)
                .and_then(|value| value.to_str().ok())
        };
        // Headers that are not text are not absent: they are foreign.
        let origin = parts
            .headers
            .get(header::ORIGIN)
            .map(|value| value.to_str().unwrap_or("?"));
        let asked = door::Request {
            host: text(header::HOST),
            origin,
            query: parts.uri.query(),
            authorization: text(header::AUTHORIZATION),
        };
        let principal = match door::admit(&self.policy, arrival, self.own_uid, &asked) {
            Ok(principal) => principal,
            Err(refusal) => return self.turn_away(id, refusal).await,
        };
        let upgrade = match WebSocketUpgrade::from_request_parts(&mut parts, &()).await {
            Ok(upgrade) => upgrade,
            Err(_) => {
                let watched = if parts.method == Method::GET {
                    watch::answer(&self.host, parts.uri.path()).await
                } else {
                    None
                };
                return watched.unwrap_or_else(|| {
                    self.refuse(
                        StatusCode::UPGRADE_REQUIRED,
                        "this is an Agent Host Protocol host: connect with a WebSocket",
                    )
                });
            }
        };
        if self.host.started().await == Stage::Ending {
            return self.refuse(StatusCode::SERVICE_UNAVAILABLE, "the host is shutting down");
        }
        let Ok(permit) = Arc::clone(&self.sockets).try_acquire_owned() else {
            return self.refuse(
                StatusCode::SERVICE_UNAVAILABLE,
                "this host has as many connections as it takes; close some",
            );
        };
        let host = Arc::clone(&self.host);
        // The defaults are 64 MiB messages and 128 KiB read up front (style-anchors part 5).
        upgrade
            .max_message_size(MESSAGE_BYTES)
            .max_frame_size(MESSAGE_BYTES)
            .read_buffer_size(8 << 10)
            .write_buffer_size(64 << 10)
            .on_upgrade(move |socket| async move {
                connection::run(host, id, principal, socket, life).await;
                drop(permit);
            })
    }

    /// Refuses whom the door does not admit.
    async fn turn_away(&self, id: ConnectionId, refusal: Refusal) -> Response {
        tracing::warn!(connection = id.0, reason = %refusal, "a connection was refused");
        if refusal == Refusal::Token {
            // Only who is wrong waits, so that guessing keeps nobody else out.
            let Ok(_slot) = self.wrong_tokens.try_acquire() else {
                return self.refuse(
                    StatusCode::TOO_MANY_REQUESTS,
                    "too many wrong tokens; try again in a second",
                );
            };
            tokio::time::sleep(WRONG_TOKEN_DELAY).await;
        }
        let status = StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::FORBIDDEN);
        self.refuse(status, &refusal.to_string())
    }

    /// A refusal in words; the connection ends with it.
    fn refuse(&self, status: StatusCode, words: &str) -> Response {
        self.host.metrics.refused.one(status.as_u16().into());
        let headers = [(header::CONNECTION, "close")];
        (status, headers, format!("{words}\n")).into_response()
    }
}
