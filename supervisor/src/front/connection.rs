//! One WebSocket: a reader that hands messages to the core, a writer that empties the outbox.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::time::{Instant, timeout_at};

use super::life::Life;
use crate::ahp::RpcError;
use crate::ahp::rpc::{Incoming, Unusable, reply_error};
use crate::core::{ConnectionId, Principal};
use crate::host::Host;
use crate::limits::{CLOSE_TIME, INITIALIZE_TIME, MALFORMED_MESSAGES, PING_TIME, PINGS};
use crate::outbox::{Close, Next, Outbox};

/// Serves a connection to its end.
pub(super) async fn run(
    host: Arc<Host>,
    id: ConnectionId,
    principal: Principal,
    socket: WebSocket,
    life: Arc<Life>,
) {
    let outbox = Arc::new(Outbox::default());
    host.with_core(|core, _, _| core.connect(id, principal, Arc::clone(&outbox)));
    tracing::debug!(connection = id.0, "connected");
    let (sink, stream) = socket.split();
    tokio::select! {
        () = read(&host, id, stream, &outbox) => {}
        () = write(id, sink, &outbox, &life) => {}
        () = give_up(&outbox) => {}
        () = life.lost() => {
            host.metrics.lost_connections.one();
            tracing::info!(connection = id.0, "dropped: the other side is gone and did not say so");
        }
    }
    if outbox.was_too_slow() {
        host.metrics.slow_readers.one();
        tracing::info!(connection = id.0, "closed: it read too slowly");
    }
    // Terminals must not pause for somebody who has left.
    outbox.close(Close::GOING_AWAY);
    host.with_core(|core, now, effects| core.disconnect(id, now, effects));
    tracing::debug!(connection = id.0, "disconnected");
}

/// Hands messages to the core until the other side closes or breaks the rules. When we close, it
/// goes on until the writer has said so.
async fn read(host: &Host, id: ConnectionId, mut stream: SplitStream<WebSocket>, outbox: &Outbox) {
    let deadline = Instant::now() + INITIALIZE_TIME;
    let mut initialized = false;
    let mut malformed = 0;
    let mut pings = Pings::new(Instant::now());
    loop {
        let received = if initialized {
            stream.next().await
        } else {
            match timeout_at(deadline, stream.next()).await {
                Ok(received) => received,
                Err(_) => {
                    outbox.close(Close::SILENT);
                    return std::future::pending().await;
                }
            }
        };
        let close = match received {
            None | Some(Ok(Message::Close(_))) => return,
            Some(Err(error)) if is_too_big(&error) => Some(Close::TOO_BIG),
            Some(Err(error)) => {
                tracing::debug!(connection = id.0, %error, "the connection broke");
                return;
            }
            Some(Ok(Message::Text(text))) => {
                if !take(host, id, &text, outbox) {
                    malformed += 1;
                }
                (malformed >= MALFORMED_MESSAGES).then_some(Close::NOT_A_CLIENT)
            }
            Some(Ok(Message::Binary(_))) => Some(Close::BINARY),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {
                (!pings.allow(Instant::now())).then_some(Close::PINGS)
            }
        };
        if let Some(close) = close {
            outbox.close(close);
            return std::future::pending().await;
        }
        initialized = initialized || host.with_core(|core, _, _| core.is_initialized(id));
    }
}

fn is_too_big(error: &axum::Error) -> bool {
    use std::error::Error as _;
    use tokio_tungstenite::tungstenite::Error;
    let inner = error.source().and_then(|source| source.downcast_ref());
    matches!(inner, Some(Error::Capacity(_)))
}

/// How many pings are left to a connection.
struct Pings {
    left: u32,
    since: Instant,
}

impl Pings {
    fn new(now: Instant) -> Self {
        Self {
            left: PINGS,
            since: now,
        }
    }

    fn allow(&mut self, now: Instant) -> bool {
        let earned = now.duration_since(self.since).as_millis() / PING_TIME.as_millis();
        if let Ok(earned @ 1..) = u32::try_from(earned) {
            self.left = self.left.saturating_add(earned).min(PINGS);
            self.since = now;
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                true
            }
            None => false,
        }
    }
}

/// False if the message was no JSON-RPC at all.
fn take(host: &Host, id: ConnectionId, text: &Utf8Bytes, outbox: &Outbox) -> bool {
    match Incoming::parse(text) {
        Ok(message) => {
            host.with_core(|core, now, effects| core.message(id, &message, now, effects));
            true
        }
        Err(Unusable::Response) => true,
        Err(Unusable::Invalid { raw_id, reason }) => {
            let error = RpcError::invalid_request(reason);
            host.metrics.refused.one(error.code);
            outbox.push(reply_error(&raw_id, &error).into());
            true
        }
        // There is no id to answer with, and no client reads an answer without one.
        Err(Unusable::Malformed(error)) => {
            tracing::debug!(connection = id.0, %error, "a message was not understood");
            false
        }
    }
}

/// A client that reads nothing does not read that it is closed either.
async fn give_up(outbox: &Outbox) {
    outbox.closing().await;
    tokio::time::sleep(CLOSE_TIME).await;
}

/// Sends what is in the outbox until it says that the connection is closed.
async fn write(
    id: ConnectionId,
    mut sink: SplitSink<WebSocket, Message>,
    outbox: &Outbox,
    life: &Life,
) {
    loop {
        let next = tokio::select! {
            next = outbox.next() => next,
            () = life.ping_wanted() => {
                if sink.send(Message::Ping(Bytes::new())).await.is_err() {
                    return;
                }
                continue;
            }
        };
        match next {
            Next::Send(messages) => {
                for message in messages {
                    let bytes = message.len();
                    if sink.feed(Message::Text(message)).await.is_err() {
                        return;
                    }
                    outbox.sent(bytes);
                }
                if sink.flush().await.is_err() {
                    return;
                }
            }
            Next::Close(close) => {
                let frame = Message::Close(Some(CloseFrame {
                    code: close.code,
                    reason: close.reason.into(),
                }));
                tracing::debug!(
                    connection = id.0,
                    code = close.code,
                    reason = close.reason,
                    "closing a connection"
                );
                if let Err(error) = sink.send(frame).await {
                    tracing::debug!(connection = id.0, %error, "the other side had gone");
                }
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_come_in_bursts_and_are_earned_back() {
        let start = Instant::now();
        let mut pings = Pings::new(start);
        assert_eq!(
            (0..1000).filter(|_| pings.allow(start)).count(),
            PINGS as usize
        );
        let later = start + 4 * PING_TIME;
        assert_eq!((0..1000).filter(|_| pings.allow(later)).count(), 4);
        let mut calm = Pings::new(start);
        assert!((0..1000).all(|n| calm.allow(start + n * PING_TIME)));
    }
}
