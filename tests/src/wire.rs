//! What a raw connection has received and what it waits for.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::DEADLINE;

/// What a WebSocket can run on.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

pub(crate) type Socket = WebSocketStream<Box<dyn Stream>>;

/// An error response.
#[derive(Debug, Clone, PartialEq)]
pub struct RpcError {
    pub code: i64,
    pub message: String,
    pub data: Value,
}

#[derive(Default)]
pub(crate) struct Inbox {
    pub(crate) messages: Vec<Value>,
    /// Why and with which code the connection ended.
    pub(crate) closed: Option<(u16, String)>,
    /// A rule of the protocol that the host broke.
    pub(crate) fault: Option<String>,
    pub(crate) last_seq: u64,
}

pub(crate) struct Inner {
    pub(crate) inbox: Mutex<Inbox>,
    pub(crate) arrived: Notify,
    pub(crate) sink: tokio::sync::Mutex<SplitSink<Socket, Message>>,
    pub(crate) next_id: AtomicU64,
    pub(crate) client_seq: AtomicI64,
    pub(crate) client_id: Mutex<String>,
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
pub(crate) fn result_of(message: &Value) -> Result<Value, RpcError> {
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

pub(crate) async fn read(inner: Arc<Inner>, mut stream: SplitStream<Socket>) {
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
