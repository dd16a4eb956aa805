//! A WebSocket client that shows everything and forgives nothing.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::wire::{Inner, Socket, read, result_of};
pub use crate::wire::{RpcError, Stream};
use crate::{DEADLINE, Host, ROOT, unique};

/// Why the upgrade was refused.
#[derive(Debug)]
pub enum Refused {
    /// This HTTP status.
    Status(u16),
    /// The connection ended without an answer.
    Other(String),
}

/// One connection. Dropping it drops the socket without a closing handshake.
pub struct Raw {
    pub(crate) inner: Arc<Inner>,
    reader: JoinHandle<()>,
    /// The result of `initialize`, if [`Raw::open`] made this.
    pub welcome: Value,
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

/// An upgrade request to the host with its token in the query.
pub async fn connect_with(
    host: &Host,
    query: &str,
    headers: &[(&str, &str)],
) -> Result<Raw, Refused> {
    let stream = TcpStream::connect(host.address()).await.expect("connect");
    upgrade(
        Box::new(stream),
        &format!("ws://{}/{query}", host.address()),
        headers,
    )
    .await
}

async fn upgrade(
    stream: Box<dyn Stream>,
    url: &str,
    headers: &[(&str, &str)],
) -> Result<Raw, Refused> {
    let mut request = url.into_client_request().expect("a request");
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        request
            .headers_mut()
            .insert(name, HeaderValue::from_str(value).unwrap());
    }
    let upgraded = tokio::time::timeout(DEADLINE, tokio_tungstenite::client_async(request, stream))
        .await
        .expect("an answer to the upgrade");
    match upgraded {
        Ok((socket, _response)) => Ok(Raw::over(socket)),
        Err(Error::Http(response)) => Err(Refused::Status(response.status().as_u16())),
        Err(other) => Err(Refused::Other(other.to_string())),
    }
}

impl Raw {
    fn over(socket: Socket) -> Self {
        let (sink, stream) = socket.split();
        let inner = Arc::new(Inner {
            inbox: Mutex::default(),
            arrived: Notify::new(),
            sink: tokio::sync::Mutex::new(sink),
            next_id: AtomicU64::new(1),
            client_seq: AtomicI64::new(1),
            client_id: Mutex::new(format!("client-{}", unique())),
        });
        let reader = tokio::spawn(read(Arc::clone(&inner), stream));
        Self {
            inner,
            reader,
            welcome: Value::Null,
        }
    }

    /// Connected, nothing said yet.
    pub async fn connect(host: &Host) -> Self {
        let query = host
            .token
            .as_ref()
            .map_or(String::new(), |token| format!("?tkn={token}"));
        connect_with(host, &query, &[]).await.expect("the upgrade")
    }

    /// The same over the unix socket.
    pub async fn connect_unix(host: &Host) -> Self {
        let stream = UnixStream::connect(&host.socket).await.expect("connect");
        let query = host
            .token
            .as_ref()
            .map_or(String::new(), |token| format!("?tkn={token}"));
        upgrade(Box::new(stream), &format!("ws://localhost/{query}"), &[])
            .await
            .expect("the upgrade")
    }

    /// Over the unix socket without the token: known by its user alone.
    pub async fn connect_as_user(host: &Host) -> Self {
        let stream = UnixStream::connect(&host.socket).await.expect("connect");
        upgrade(Box::new(stream), "ws://localhost/", &[])
            .await
            .expect("the upgrade")
    }

    /// Connected, initialized with 1.0.0, subscribed to the root.
    pub async fn open(host: &Host) -> Self {
        let mut raw = Self::connect(host).await;
        raw.welcome = raw.initialize(&["1.0.0"]).await.expect("initialize");
        raw
    }

    /// Like [`Raw::open`] with a client id of one's own.
    pub async fn open_as(host: &Host, client_id: &str) -> Self {
        let mut raw = Self::connect(host).await;
        raw.become_client(client_id);
        raw.welcome = raw.initialize(&["1.0.0"]).await.expect("initialize");
        raw
    }

    /// Sets the client id that `initialize` will send.
    pub fn become_client(&self, client_id: &str) {
        client_id.clone_into(&mut self.inner.client_id.lock().unwrap());
    }

    pub fn client_id(&self) -> String {
        self.inner.client_id.lock().unwrap().clone()
    }

    /// `initialize` with the root as the only initial subscription.
    pub async fn initialize(&self, versions: &[&str]) -> Result<Value, RpcError> {
        self.request(
            "initialize",
            json!({
                "channel": ROOT,
                "protocolVersions": versions,
                "clientId": self.client_id(),
                "clientInfo": {"name": "shellward-tests", "version": "0"},
                "initialSubscriptions": [ROOT],
            }),
        )
        .await
    }

    pub async fn send_text(&self, text: impl Into<String>) {
        let text: String = text.into();
        self.try_send(Message::text(text)).await.expect("send");
    }

    /// Sends any frame; an error means that the connection has ended.
    pub async fn try_send(&self, message: Message) -> Result<(), Error> {
        let mut sink = self.inner.sink.lock().await;
        tokio::time::timeout(DEADLINE, sink.send(message))
            .await
            .expect("the host reads what is sent")
    }

    pub async fn send(&self, value: &Value) {
        self.send_text(value.to_string()).await;
    }

    /// Sends a request and returns its id; [`Raw::response`] waits for the answer.
    pub async fn start_request(&self, method: &str, params: Value) -> u64 {
        let id = self.inner.next_id.fetch_add(1, Ordering::Relaxed);
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await;
        id
    }

    pub async fn request(&self, method: &str, params: Value) -> Result<Value, RpcError> {
        let id = self.start_request(method, params).await;
        self.response(id).await
    }

    /// The answer to a request; checks that it is one.
    pub async fn response(&self, id: u64) -> Result<Value, RpcError> {
        self.response_within(id, DEADLINE).await
    }

    pub async fn response_within(&self, id: u64, limit: Duration) -> Result<Value, RpcError> {
        let what = format!("the answer to request {id}");
        let (_, message) = self
            .inner
            .find(0, &what, limit, |message| {
                (message["id"] == id && message.get("method").is_none()).then(|| message.clone())
            })
            .await;
        result_of(&message)
    }

    /// The answer to a request; `None` when the host ends the connection instead.
    pub async fn response_or_end(&self, id: u64) -> Option<Result<Value, RpcError>> {
        tokio::time::timeout(DEADLINE, async {
            loop {
                let arrived = self.inner.arrived.notified();
                tokio::pin!(arrived);
                arrived.as_mut().enable();
                {
                    let inbox = self.inner.inbox.lock().unwrap();
                    let answer = inbox
                        .messages
                        .iter()
                        .find(|message| message["id"] == id && message.get("method").is_none());
                    if let Some(answer) = answer {
                        return Some(result_of(answer));
                    }
                    if inbox.closed.is_some() {
                        return None;
                    }
                }
                arrived.await;
            }
        })
        .await
        .expect("an answer or the end of the connection")
    }

    pub async fn notify(&self, method: &str, params: Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}))
            .await;
    }

    /// Dispatches an action; returns its `clientSeq`.
    pub async fn dispatch(&self, channel: &str, action: Value) -> i64 {
        let seq = self.inner.client_seq.fetch_add(1, Ordering::Relaxed);
        self.dispatch_as(channel, seq, action).await;
        seq
    }

    pub async fn dispatch_as(&self, channel: &str, client_seq: i64, action: Value) {
        self.notify(
            "dispatchAction",
            json!({"channel": channel, "clientSeq": client_seq, "action": action}),
        )
        .await;
    }

    /// Where the messages that come from now on begin.
    pub fn mark(&self) -> usize {
        self.inner.inbox.lock().unwrap().messages.len()
    }

    /// Every message from `mark` on.
    pub fn since(&self, mark: usize) -> Vec<Value> {
        self.inner.inbox.lock().unwrap().messages[mark..].to_vec()
    }

    /// The `params` of every action on `channel` from `mark` on.
    pub fn actions_since(&self, mark: usize, channel: &str) -> Vec<Value> {
        self.since(mark)
            .into_iter()
            .filter(|message| {
                message["method"] == "action" && message["params"]["channel"] == channel
            })
            .map(|message| message["params"].clone())
            .collect()
    }

    /// Waits for the first message from `mark` on that `pick` takes.
    pub async fn wait_from<T>(
        &self,
        mark: usize,
        what: &str,
        pick: impl FnMut(&Value) -> Option<T>,
    ) -> T {
        self.find(mark, what, pick).await.1
    }

    /// Waits for an action of this type on `channel`; its envelope.
    pub async fn wait_action(&self, mark: usize, channel: &str, kind: &str) -> Value {
        self.wait_from(mark, &format!("{kind} on {channel}"), |message| {
            let params = &message["params"];
            (message["method"] == "action"
                && params["channel"] == channel
                && params["action"]["type"] == kind
                && params.get("rejectionReason").is_none())
            .then(|| params.clone())
        })
        .await
    }

    /// Waits for the refusal of the dispatch with this `clientSeq`; its envelope.
    pub async fn wait_refusal(&self, mark: usize, channel: &str, client_seq: i64) -> Value {
        self.wait_from(
            mark,
            &format!("refusal of {client_seq} on {channel}"),
            |message| {
                let params = &message["params"];
                (message["method"] == "action"
                    && params["channel"] == channel
                    && params["origin"]["clientSeq"] == client_seq
                    && params["rejectionReason"].is_string())
                .then(|| params.clone())
            },
        )
        .await
    }

    /// Everything the host had to say before now has arrived when this returns.
    pub async fn settle(&self) {
        let answer = self.request("ping", json!({"channel": ROOT})).await;
        assert_eq!(answer, Ok(Value::Null), "ping");
    }

    /// Waits until the connection ends; the code and reason of the close frame (1006 without one).
    pub async fn wait_closed(&self) -> (u16, String) {
        self.wait_closed_within(DEADLINE).await
    }

    pub async fn wait_closed_within(&self, limit: Duration) -> (u16, String) {
        tokio::time::timeout(limit, async {
            loop {
                let arrived = self.inner.arrived.notified();
                tokio::pin!(arrived);
                arrived.as_mut().enable();
                if let Some(closed) = self.inner.inbox.lock().unwrap().closed.clone() {
                    return closed;
                }
                arrived.await;
            }
        })
        .await
        .unwrap_or_else(|_| panic!("the connection was not closed within {limit:?}"))
    }

    pub fn is_closed(&self) -> bool {
        self.inner.inbox.lock().unwrap().closed.is_some()
    }

    /// Closes with a handshake.
    pub async fn close(self) {
        if self.try_send(Message::Close(None)).await.is_ok() {
            self.wait_closed().await;
        }
    }

    async fn find<T>(
        &self,
        mark: usize,
        what: &str,
        pick: impl FnMut(&Value) -> Option<T>,
    ) -> (usize, T) {
        self.inner.find(mark, what, DEADLINE, pick).await
    }
}
