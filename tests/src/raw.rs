//! A WebSocket client that shows everything and forgives nothing.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::{DEADLINE, Host, ROOT, unique};

/// What a WebSocket can run on.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

type Socket = WebSocketStream<Box<dyn Stream>>;

/// An error response.
#[derive(Debug, Clone, PartialEq)]
pub struct RpcError {
    pub code: i64,
    pub message: String,
    pub data: Value,
}

/// Why the upgrade was refused.
#[derive(Debug)]
pub enum Refused {
    /// This HTTP status.
    Status(u16),
    /// The connection ended without an answer.
    Other(String),
}

#[derive(Default)]
struct Inbox {
    messages: Vec<Value>,
    /// Why and with which code the connection ended.
    closed: Option<(u16, String)>,
    /// A rule of the protocol that the host broke.
    fault: Option<String>,
    last_seq: u64,
}

pub(crate) struct Inner {
    inbox: Mutex<Inbox>,
    arrived: Notify,
    sink: tokio::sync::Mutex<SplitSink<Socket, Message>>,
    next_id: AtomicU64,
    client_seq: AtomicI64,
    client_id: Mutex<String>,
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
        let (_, message) = self
            .find(0, &format!("the answer to request {id}"), |message| {
                (message["id"] == id && message.get("method").is_none()).then(|| message.clone())
            })
            .await;
        result_of(&message)
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

impl Inner {
    /// Waits for the first message from `from` on that `pick` takes; also where it stands.
    pub(crate) async fn find<T>(
        &self,
        from: usize,
        what: &str,
        limit: Duration,
        mut pick: impl FnMut(&Value) -> Option<T>,
    ) -> (usize, T) {
        let mut next = from;
        let looked = tokio::time::timeout(limit, async {
            loop {
                let arrived = self.arrived.notified();
                tokio::pin!(arrived);
                arrived.as_mut().enable();
                {
                    let inbox = self.inbox.lock().unwrap();
                    if let Some(fault) = &inbox.fault {
                        return Err(format!("the host broke a rule: {fault}"));
                    }
                    while let Some(message) = inbox.messages.get(next) {
                        next += 1;
                        if let Some(found) = pick(message) {
                            return Ok((next - 1, found));
                        }
                    }
                    if let Some(closed) = &inbox.closed {
                        return Err(format!("the connection ended: {closed:?}"));
                    }
                }
                arrived.await;
            }
        })
        .await;
        match looked {
            Ok(Ok(found)) => found,
            Ok(Err(why)) => panic!("while waiting for {what}: {why}; {}", self.tail(from)),
            Err(_) => panic!("not within {limit:?}: {what}; {}", self.tail(from)),
        }
    }

    fn tail(&self, from: usize) -> String {
        let inbox = self.inbox.lock().unwrap();
        let from = from.max(inbox.messages.len().saturating_sub(12));
        let lines: Vec<String> = inbox.messages[from.min(inbox.messages.len())..]
            .iter()
            .map(|message| {
                let text = message.to_string();
                text.chars().take(400).collect()
            })
            .collect();
        format!("last messages:\n  {}", lines.join("\n  "))
    }

    pub(crate) async fn notify(&self, method: &str, params: Value) {
        let text = json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string();
        let mut sink = self.sink.lock().await;
        tokio::time::timeout(DEADLINE, sink.send(Message::text(text)))
            .await
            .expect("the host reads what is sent")
            .expect("send");
    }

    pub(crate) async fn request(
        &self,
        method: &str,
        params: Value,
    ) -> (usize, Result<Value, RpcError>) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let text =
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
        self.sink
            .lock()
            .await
            .send(Message::text(text))
            .await
            .expect("send");
        let (at, message) = self
            .find(0, &format!("the answer to {method}"), DEADLINE, |message| {
                (message["id"] == id && message.get("method").is_none()).then(|| message.clone())
            })
            .await;
        (at, result_of(&message))
    }

    pub(crate) fn next_client_seq(&self) -> i64 {
        self.client_seq.fetch_add(1, Ordering::Relaxed)
    }
}

/// The result or error of a response; panics when it is neither or both.
fn result_of(message: &Value) -> Result<Value, RpcError> {
    assert_eq!(message["jsonrpc"], "2.0", "{message}");
    match (message.get("result"), message.get("error")) {
        (Some(result), None) => Ok(result.clone()),
        (None, Some(error)) => Err(RpcError {
            code: error["code"].as_i64().expect("an integer code"),
            message: error["message"].as_str().expect("a message").to_owned(),
            data: error["data"].clone(),
        }),
        _ => panic!("a response needs exactly one of result and error: {message}"),
    }
}

async fn read(inner: Arc<Inner>, mut stream: SplitStream<Socket>) {
    let mut closed = (1006, String::from("no close frame"));
    while let Some(next) = stream.next().await {
        let mut inbox = inner.inbox.lock().unwrap();
        match next {
            Ok(Message::Text(text)) => match serde_json::from_str::<Value>(&text) {
                Ok(message) => {
                    if let Err(fault) = check(&mut inbox, &message) {
                        inbox.fault.get_or_insert(fault);
                    }
                    inbox.messages.push(message);
                }
                Err(error) => {
                    inbox
                        .fault
                        .get_or_insert(format!("not JSON ({error}): {text}"));
                }
            },
            Ok(Message::Binary(_)) => {
                inbox.fault.get_or_insert("a binary frame".to_owned());
            }
            Ok(Message::Close(frame)) => {
                closed = frame.map_or((1005, String::new()), |frame| {
                    (frame.code.into(), frame.reason.to_string())
                });
            }
            Ok(_) => {}
            Err(_) => break,
        }
        drop(inbox);
        inner.arrived.notify_waiters();
    }
    inner.inbox.lock().unwrap().closed = Some(closed);
    inner.arrived.notify_waiters();
}

/// The rules that hold for every message of the host.
fn check(inbox: &mut Inbox, message: &Value) -> Result<(), String> {
    if message["method"] != "action" {
        return Ok(());
    }
    let params = &message["params"];
    let Some(seq) = params["serverSeq"].as_u64() else {
        return Err(format!("serverSeq is not an integer: {message}"));
    };
    // A refusal carries the host's present counter and takes no number of its own.
    let refusal = params.get("rejectionReason").is_some();
    if seq < inbox.last_seq || (seq == inbox.last_seq && !refusal) {
        return Err(format!(
            "serverSeq {seq} after {}: {message}",
            inbox.last_seq
        ));
    }
    inbox.last_seq = seq;
    Ok(())
}
