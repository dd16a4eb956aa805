//! The official client of the protocol, as a terminal user would use it.

use std::time::Duration;

use ahp::{Client, ClientConfig, SessionSubscription, SubscriptionEvent};
use ahp_types::actions::{ActionEnvelope, StateAction};
use ahp_types::commands::{InitializeResult, SubscribeResult};
use ahp_ws::WebSocketTransport;
use futures_util::FutureExt;
use serde_json::{Value, json};

use crate::{DEADLINE, Folded, Host, ROOT, term, unique};

pub struct Official {
    pub client: Client,
    pub client_id: String,
    pub welcome: InitializeResult,
}

/// A terminal, folded from the official client's events.
pub struct OfficialTerm {
    pub uri: String,
    pub folded: Folded,
    events: SessionSubscription,
}

impl Official {
    pub async fn open(host: &Host) -> Self {
        let transport = WebSocketTransport::connect(&host.url_with_token())
            .await
            .expect("connect");
        let config = ClientConfig {
            default_request_timeout: Some(DEADLINE),
            // Its ring loses events silently when it is full.
            subscription_buffer: 1 << 16,
        };
        let client = Client::connect(transport, config).await.expect("client");
        let client_id = format!("official-{}", unique());
        let welcome = client
            .initialize(
                client_id.clone(),
                vec!["1.0.0".into(), "0.9.0".into()],
                vec![ROOT.into()],
            )
            .await
            .expect("initialize");
        Self {
            client,
            client_id,
            welcome,
        }
    }

    pub async fn create(&self) -> OfficialTerm {
        let uri = term::new_uri();
        let _: Value = self
            .client
            .request(
                "createTerminal",
                json!({
                    "channel": uri,
                    "claim": {"kind": "client", "clientId": self.client_id},
                }),
            )
            .await
            .expect("createTerminal");
        self.subscribe(&uri).await
    }

    pub async fn subscribe(&self, uri: &str) -> OfficialTerm {
        let (result, events) = self
            .client
            .subscribe(uri.to_owned())
            .await
            .expect("subscribe");
        OfficialTerm {
            uri: uri.to_owned(),
            folded: folded(&result),
            events,
        }
    }

    pub async fn dispatch(&self, uri: &str, action: Value) -> i64 {
        let action: StateAction = serde_json::from_value(action).expect("an action");
        assert!(!matches!(action, StateAction::Unknown(_)));
        self.client
            .dispatch(uri.to_owned(), action)
            .await
            .expect("dispatch")
            .client_seq
    }

    pub async fn line(&self, uri: &str, line: &str) {
        self.dispatch(
            uri,
            json!({"type": "terminal/input", "data": format!("{line}\r")}),
        )
        .await;
    }

    /// Folds everything that a fresh snapshot contains, and compares.
    pub async fn assert_equals_snapshot(&self, term: &mut OfficialTerm) {
        let result: SubscribeResult = self
            .client
            .request("subscribe", json!({"channel": term.uri}))
            .await
            .expect("subscribe");
        let fresh = folded(&result);
        // The client hands out events in the order of the wire, where they stand before the answer.
        // Unconstrained: a task's budget must not look like an empty queue.
        while let Some(event) = tokio::task::unconstrained(term.events.recv()).now_or_never() {
            let SubscriptionEvent::Action(envelope) = event.expect("the client runs") else {
                continue;
            };
            if envelope.server_seq > fresh.seq {
                // One too far for the comparison: it belongs to the next one.
                term.folded.assert_equals(&fresh);
                term.folded.apply(&envelope);
                return;
            }
            term.folded.apply(&envelope);
        }
        term.folded.assert_equals(&fresh);
    }
}

fn folded(result: &SubscribeResult) -> Folded {
    let snapshot = result.snapshot.as_ref().expect("a snapshot");
    Folded::new(&serde_json::to_value(snapshot).expect("JSON"))
}

impl OfficialTerm {
    /// Folds events until `done`.
    pub async fn wait(
        &mut self,
        what: &str,
        limit: Duration,
        mut done: impl FnMut(&Folded, &ActionEnvelope) -> bool,
    ) {
        let waited = tokio::time::timeout(limit, async {
            loop {
                let event = self.events.recv().await.expect("the connection holds");
                if let SubscriptionEvent::Action(envelope) = event {
                    self.folded.apply(&envelope);
                    if done(&self.folded, &envelope) {
                        return;
                    }
                }
            }
        })
        .await;
        assert!(
            waited.is_ok(),
            "not within {limit:?}: {what}; the terminal shows {:?}",
            self.folded
                .text()
                .chars()
                .rev()
                .take(300)
                .collect::<String>()
                .chars()
                .rev()
                .collect::<String>()
        );
    }

    pub async fn wait_text(&mut self, needle: &str) {
        if self.folded.text().contains(needle) {
            return;
        }
        // Only what is new can complete it.
        let mut seen = self.folded.text();
        let keep = |seen: &mut String| {
            let mut from = seen.len().saturating_sub(needle.len());
            while !seen.is_char_boundary(from) {
                from -= 1;
            }
            seen.drain(..from);
        };
        keep(&mut seen);
        self.wait(needle, DEADLINE, |_, envelope| {
            if let StateAction::TerminalData(data) = &envelope.action {
                seen.push_str(&data.data);
                let found = seen.contains(needle);
                keep(&mut seen);
                return found;
            }
            false
        })
        .await;
    }
}
