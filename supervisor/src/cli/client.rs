//! A small AHP client over the running supervisor's unix socket.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::plain::one_line;
use crate::ahp::names::OWN_CLIENTS;
use crate::rundir;

/// Connecting, the handshake and `initialize` may take this long. The host does all of it in
/// milliseconds; one that has just started answers 503 meanwhile.
const CONNECT_TIME: Duration = Duration::from_secs(10);
/// How long an answer may take: a restart, the slowest, takes 20 s on a machine that is busy.
const ANSWER_TIME: Duration = Duration::from_secs(60);
/// A goodbye changes nothing; it may take this long.
const GOODBYE_TIME: Duration = Duration::from_secs(1);

/// No supervisor serves us there: exit code 3.
#[derive(Debug, thiserror::Error)]
pub enum NotAvailable {
    /// Nobody listens.
    #[error("no host is running at {0}; start one with `shellward serve`")]
    Nobody(PathBuf),
    /// One is there and takes nobody, and says why.
    #[error("the host at {0} says: {1}")]
    Says(PathBuf, String),
    /// One is there and says nothing: it was stopped, or hangs.
    #[error("{0} does not answer; it hangs, or was stopped")]
    Silent(String),
    /// The connection ended in mid-air.
    #[error("the connection to the host is lost: {0}")]
    Lost(String),
    /// It ended in order.
    #[error("the host ended, and its terminals with it")]
    Ended,
    /// It was lost, and what was waited for is not to be found again.
    #[error("{0}")]
    NotBack(String),
}

/// A handshake that failed. A host that is there says in words why it takes nobody.
fn refused(socket: &Path, error: &Error) -> anyhow::Error {
    let words = match error {
        Error::Http(answer) if answer.status() == 503 => answer.body().as_deref(),
        // It has ended meanwhile.
        Error::Io(_)
        | Error::ConnectionClosed
        | Error::Protocol(ProtocolError::HandshakeIncomplete) => {
            return NotAvailable::Lost(error.to_string()).into();
        }
        _ => None,
    };
    match words.map(String::from_utf8_lossy) {
        Some(words) if !words.trim().is_empty() => {
            NotAvailable::Says(socket.to_owned(), one_line(words.trim())).into()
        }
        // The library's errors have their causes in their own text.
        _ => anyhow!(
            "what listens at {} is no shellward host: {error}",
            socket.display()
        ),
    }
}

pub(super) struct Client {
    stream: WebSocketStream<UnixStream>,
    next_id: u64,
    /// Which host this is, for people.
    host: String,
    /// Our clientId.
    pub id: String,
}

impl Client {
    /// Connects to the supervisor of a runtime directory and shakes hands.
    pub async fn connect(runtime_dir: Option<PathBuf>) -> anyhow::Result<Self> {
        let dir = rundir::runtime_dir(runtime_dir)?;
        let socket = rundir::client_socket(&dir);
        let mut host = format!("the host at {}", socket.display());
        let deadline = Instant::now() + CONNECT_TIME;
        let stream = match timeout_at(deadline, UnixStream::connect(&socket)).await {
            Err(_) => return Err(NotAvailable::Silent(host).into()),
            Ok(connected) => connected.map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => {
                    anyhow::Error::from(NotAvailable::Nobody(socket.clone()))
                }
                // So many wait for it to take them that the system keeps no more.
                std::io::ErrorKind::WouldBlock => {
                    anyhow::Error::from(NotAvailable::Silent(host.clone()))
                }
                _ => anyhow::Error::from(error).context(format!(
                    "cannot connect to the host at {}",
                    socket.display()
                )),
            })?,
        };
        if let Some(pid) = stream.peer_cred().ok().and_then(|peer| peer.pid()) {
            host = format!("{host} (pid {pid})");
        }
        match timeout_at(deadline, Self::shake_hands(stream, &socket, host.clone())).await {
            Err(_) => Err(NotAvailable::Silent(host).into()),
            Ok(client) => client,
        }
    }

    async fn shake_hands(stream: UnixStream, socket: &Path, host: String) -> anyhow::Result<Self> {
        // A snapshot may be larger than what the library takes by default from a peer.
        let config = WebSocketConfig::default()
            .max_message_size(Some(256 << 20))
            .max_frame_size(Some(256 << 20));
        let (stream, _) = client_async_with_config("ws://localhost/", stream, Some(config))
            .await
            .map_err(|error| refused(socket, &error))?;
        let mut random = [0_u8; 8];
        getrandom::fill(&mut random).context("no random numbers")?;
        let mut client = Self {
            stream,
            next_id: 0,
            host,
            id: format!("{OWN_CLIENTS}{:016x}", u64::from_le_bytes(random)),
        };
        let params = json!({
            "channel": "ahp-root://",
            "protocolVersions": ["1.0.0"],
            "clientId": client.id,
            "clientInfo": { "name": "shellward", "version": env!("CARGO_PKG_VERSION") },
        });
        client.request("initialize", params).await?;
        Ok(client)
    }

    async fn send(&mut self, message: &Value) -> anyhow::Result<()> {
        let sent = self.stream.send(Message::text(message.to_string()));
        match timeout(ANSWER_TIME, sent).await {
            Ok(sent) => sent.map_err(|error| NotAvailable::Lost(error.to_string()).into()),
            Err(_) => Err(self.silent()),
        }
    }

    fn silent(&self) -> anyhow::Error {
        NotAvailable::Silent(self.host.clone()).into()
    }

    /// The next message, or `None` if none comes before `deadline`.
    pub async fn next(&mut self, deadline: Instant) -> anyhow::Result<Option<Value>> {
        loop {
            let Ok(message) = timeout_at(deadline, self.stream.next()).await else {
                return Ok(None);
            };
            match message {
                Some(Ok(Message::Text(text))) => {
                    return Ok(Some(
                        serde_json::from_str(text.as_str()).context("the host sent no JSON")?,
                    ));
                }
                Some(Ok(Message::Close(_))) | None => {
                    return Err(NotAvailable::Lost("the host has closed it".to_owned()).into());
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(NotAvailable::Lost(error.to_string()).into()),
            }
        }
    }

    /// Waits for the first message that `wanted` makes something of.
    async fn wait_for<T>(&mut self, wanted: impl Fn(&Value) -> Option<T>) -> anyhow::Result<T> {
        let deadline = Instant::now() + ANSWER_TIME;
        while let Some(message) = self.next(deadline).await? {
            if let Some(found) = wanted(&message) {
                return Ok(found);
            }
        }
        Err(self.silent())
    }

    /// Makes a request and waits for its result.
    pub async fn request(&mut self, method: &str, params: Value) -> anyhow::Result<Value> {
        self.next_id += 1;
        let id = self.next_id;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await?;
        let answer = self
            .wait_for(|message| (message["id"] == id).then(|| message.clone()))
            .await?;
        match answer.get("error") {
            None => Ok(answer["result"].clone()),
            Some(error) => bail!(
                "{}",
                error["message"].as_str().unwrap_or("the host refused")
            ),
        }
    }

    /// Dispatches an action and waits until the host has made it true.
    pub async fn dispatch(&mut self, channel: &str, action: Value) -> anyhow::Result<()> {
        self.next_id += 1;
        let seq = self.next_id;
        let params = json!({"channel": channel, "clientSeq": seq, "action": action});
        self.send(&json!({"jsonrpc": "2.0", "method": "dispatchAction", "params": params}))
            .await?;
        let own = self.id.clone();
        let refused = self
            .wait_for(|message| {
                let params = &message["params"];
                let ours = params["origin"]["clientId"] == own.as_str()
                    && params["origin"]["clientSeq"] == seq;
                ours.then(|| params["rejectionReason"].as_str().map(str::to_owned))
            })
            .await?;
        match refused {
            None => Ok(()),
            Some(reason) => bail!("{reason}"),
        }
    }

    /// Says goodbye; the result of the command stands whether or not the host hears it.
    pub async fn close(mut self) {
        drop(timeout(GOODBYE_TIME, self.stream.close(None)).await);
    }

    /// Waits for the host to close the connection.
    pub async fn closed(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + ANSWER_TIME;
        loop {
            match self.next(deadline).await {
                Ok(Some(_)) => {}
                Ok(None) => bail!(
                    "{} did not end within {} s",
                    self.host,
                    ANSWER_TIME.as_secs()
                ),
                Err(_) => return Ok(()),
            }
        }
    }
}

/// A path as a person gave it, as an absolute `file:` URI.
pub(super) fn directory_uri(path: &Path) -> anyhow::Result<String> {
    Ok(crate::ahp::names::directory_to_uri(&std::path::absolute(
        path,
    )?))
}
