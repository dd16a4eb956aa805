//! A client that keeps nothing, for floods: messages are handed out as they come.

use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::{TcpSocket, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use crate::{DEADLINE, Host};

/// One connection. Dropping it cuts it: no closing handshake.
pub struct Lean {
    socket: WebSocketStream<TcpStream>,
    next_id: u64,
    /// The newest number that was handed out.
    pub last_seq: u64,
}

/// What counts of an output envelope.
#[derive(Deserialize)]
struct Notification {
    params: Envelope,
}

/// What an action says, as far as floods go.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Envelope {
    pub channel: String,
    pub action: Action,
    pub server_seq: u64,
}

#[derive(Debug, Deserialize)]
pub struct Action {
    /// Of `terminal/data`.
    pub data: Option<String>,
}

impl Lean {
    /// Connected; nothing said yet. The system keeps at most about `receive_buffer` bytes for it, if
    /// given.
    pub async fn connect(host: &Host, receive_buffer: Option<u32>) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        if let Some(bytes) = receive_buffer {
            socket.set_recv_buffer_size(bytes).unwrap();
        }
        let address = host.address().parse().unwrap();
        let stream = socket.connect(address).await.expect("connect");
        let (socket, _) = tokio_tungstenite::client_async(host.url_with_token(), stream)
            .await
            .expect("the upgrade");
        Self {
            socket,
            next_id: 1,
            last_seq: 0,
        }
    }

    /// Connected and initialized, subscribed to nothing.
    pub async fn open(host: &Host, client_id: &str) -> Self {
        let mut this = Self::connect(host, None).await;
        let welcome = this.initialize(client_id).await;
        this.last_seq = welcome["serverSeq"].as_u64().expect("a number");
        this
    }

    pub async fn initialize(&mut self, client_id: &str) -> Value {
        let params = json!({"clientId": client_id, "protocolVersions": ["1.0.0"]});
        self.request("initialize", params).await
    }

    /// Says something and waits for nothing.
    pub async fn start(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(message).await;
        id
    }

    async fn send(&mut self, message: Value) {
        let message = Message::text(message.to_string());
        tokio::time::timeout(DEADLINE, self.socket.send(message))
            .await
            .expect("the host reads what is sent")
            .expect("send");
    }

    /// The result of a request; what comes before it is passed over.
    pub async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.start(method, params).await;
        loop {
            let text = self.next_text().await;
            if text.starts_with(r#"{"jsonrpc":"2.0","method""#) {
                continue;
            }
            let answer: Value = serde_json::from_str(&text).expect("JSON");
            if answer["id"] == id {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    pub async fn type_line(&mut self, uri: &str, line: &str) {
        let action = json!({"type": "terminal/input", "data": format!("{line}\r")});
        let params = json!({"channel": uri, "clientSeq": 1, "action": action});
        self.send(json!({"jsonrpc": "2.0", "method": "dispatchAction", "params": params}))
            .await;
    }

    pub async fn next_text(&mut self) -> String {
        loop {
            let message = tokio::time::timeout(DEADLINE, self.socket.next())
                .await
                .expect("a message in time")
                .expect("the connection holds")
                .expect("a message");
            if let Message::Text(text) = message {
                return text.as_str().to_owned();
            }
        }
    }

    /// The next action; its number must be greater than every one before.
    pub async fn next_action(&mut self) -> Envelope {
        loop {
            let text = self.next_text().await;
            if text.starts_with(r#"{"jsonrpc":"2.0","method":"action""#) {
                let notification: Notification = serde_json::from_str(&text).expect("an action");
                self.saw(notification.params.server_seq);
                return notification.params;
            }
        }
    }

    /// Notes the number of an action.
    pub fn saw(&mut self, seq: u64) {
        assert!(seq > self.last_seq, "{seq} after {}", self.last_seq);
        self.last_seq = seq;
    }
}
