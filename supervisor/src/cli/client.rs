//! A small AHP client over the running supervisor's unix socket.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::plain::one_line;
use crate::ahp::names::OWN_CLIENTS;
use crate::rundir;

/// How long an answer may take: a terminal's start or end is the slowest.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// No supervisor serves us there: exit code 3.
#[derive(Debug, thiserror::Error)]
pub enum NotAvailable {
    /// Nobody listens.
    #[error("no host is running at {0}; start one with `shellward serve`")]
    Nobody(PathBuf),
    /// One is there and takes nobody, and says why.
    #[error("the host at {0} says: {1}")]
    Says(PathBuf, String),
}

/// A handshake that failed. A host that is there says in words why it takes nobody.
fn refused(socket: &Path, error: Error) -> anyhow::Error {
    let words = match &error {
        Error::Http(answer) if answer.status() == 503 => answer.body().as_deref(),
        _ => None,
    };
    match words.map(String::from_utf8_lossy) {
        Some(words) if !words.trim().is_empty() => {
            NotAvailable::Says(socket.to_owned(), one_line(words.trim())).into()
        }
        _ => anyhow::Error::from(error).context(format!(
            "what listens at {} is no shellward host",
            socket.display()
        )),
    }
}

pub(super) struct Client {
    stream: WebSocketStream<UnixStream>,
    next_id: u64,
    /// Our clientId.
    pub id: String,
}

impl Client {
    /// Connects to the supervisor of a runtime directory and shakes hands.
    pub async fn connect(runtime_dir: Option<PathBuf>) -> anyhow::Result<Self> {
        let dir = rundir::runtime_dir(runtime_dir)?;
        let socket = rundir::client_socket(&dir);
        let stream = UnixStream::connect(&socket)
            .await
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => {
                    anyhow::Error::from(NotAvailable::Nobody(socket.clone()))
                }
                _ => anyhow::Error::from(error).context(format!(
                    "cannot connect to the host at {}",
                    socket.display()
                )),
            })?;
        // A snapshot may be larger than what the library takes by default from a peer.
        let config = WebSocketConfig::default()
            .max_message_size(Some(256 << 20))
            .max_frame_size(Some(256 << 20));
        let (stream, _) = client_async_with_config("ws://localhost/", stream, Some(config))
            .await
            .map_err(|error| refused(&socket, error))?;
        let mut random = [0_u8; 8];
        getrandom::fill(&mut random).context("no random numbers")?;
        let mut client = Self {
            stream,
            next_id: 0,
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
        self.stream
            .send(Message::text(message.to_string()))
            .await
            .context("the host has closed the connection")
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
                Some(Ok(Message::Close(_))) | None => bail!("the host has closed the connection"),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error).context("the connection broke"),
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
        bail!("the host did not answer within {} s", ANSWER_TIME.as_secs())
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
        drop(self.stream.close(None).await);
    }

    /// Waits for the host to close the connection.
    pub async fn closed(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + ANSWER_TIME;
        loop {
            match self.next(deadline).await {
                Ok(Some(_)) => {}
                Ok(None) => bail!("the host did not end within {} s", ANSWER_TIME.as_secs()),
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
