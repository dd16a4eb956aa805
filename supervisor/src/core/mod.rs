//! The state of the host, and every rule about it. No input or output: events and messages come
//! in, messages go into outboxes and link queues, and what must be done outside comes back as
//! [`Effect`]s.
//!
//! One lock around the whole [`Core`] makes the order of `serverSeq` the order in every outbox, and
//! a snapshot and joining the stream one step (ahp-facts 1.6). Nothing in here waits, so the lock
//! is held for microseconds.

mod adopt;
mod card;
mod clients;
mod connections;
mod dispatch;
mod happened;
mod keep;
mod ops;
mod replay;
mod restart;
mod terminal;
mod terminals;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::ws::Utf8Bytes;
use shellward_protocol::kept::Past;
use shellward_protocol::message::{Ended, Size};

use serde_json::json;

use crate::ahp::envelope::{Origin, envelope};
use crate::ahp::rpc::{Incoming, reply, reply_error};
use crate::ahp::{Claim, HostAction, RpcError, names, root};
use crate::metrics::Metrics;
use crate::outbox::Outbox;
pub use adopt::Adopted;
use clients::Clients;
pub use clients::{Principal, Remembered};
pub use happened::{Happened, command_end};
use replay::{Channel, Replay};
pub use terminal::{Gone, Shared};
use terminal::{LOST, Phase, Terminal};
pub use terminals::{Pace, Running};

/// One connection, for as long as it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub u64);

/// One terminal, for as long as its URI names it. Never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TerminalKey(pub u64);

/// What the operator decided.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where terminals start that name no directory.
    pub directory: PathBuf,
    /// What terminals run whose client pushed no `defaultShell`.
    pub shell: PathBuf,
    /// How long an exited terminal that nobody is subscribed to is kept.
    pub keep_exited: Duration,
    /// `--claims open`
    pub claims_open: bool,
    /// `--input-from holder`
    pub input_from_holder: bool,
    /// `--size-from holder`
    pub size_from_holder: bool,
    /// How long a terminal that was watched waits for its readers after the host was started again.
    pub reattach_grace: Duration,
    /// `--restart on-crash`
    pub restart_on_crash: bool,
    /// Looks whether a file can be a shell; injected so that the core does no input or output.
    pub check_shell: fn(&str) -> Result<(), String>,
    /// The account that terminals run under.
    pub account: String,
    /// What `x-shellward/terminals` says about the host itself.
    pub about: serde_json::Value,
}

/// How to start a terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartPlan {
    /// The terminal.
    pub key: TerminalKey,
    /// Its short id, which names its socket.
    pub id: String,
    /// Absolute path of the shell.
    pub shell: PathBuf,
    /// Absolute path of the directory.
    pub cwd: PathBuf,
    /// The size it has from its first moment. A resize that comes while it starts waits in the
    /// terminal's record and follows.
    pub size: Size,
    /// What the next supervisor is to be told about it.
    pub card: Vec<u8>,
    /// If its shell is started again: what was before.
    pub again: Option<Again>,
    /// If no shell is started, because it has ended.
    pub ended: Option<Ended>,
}

/// What a terminal was before its shell is started again.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Again {
    /// How many commands it has had.
    pub commands: u64,
    /// What it has shown.
    pub past: Vec<Past<'static>>,
    /// How long to wait first.
    pub delay: Duration,
}

/// What must happen outside the core.
#[derive(Debug, PartialEq, Eq)]
pub enum Effect {
    /// Start a worker, and a shell if that has not ended; answer with [`Core::started`] or [`Core::start_failed`].
    Start(StartPlan),
    /// A terminal was told to end; kill its worker if [`Core::worker_gone`] does not come in time.
    WatchEnd(TerminalKey),
    /// Something may be due earlier than before: see [`Core::due`].
    Reschedule,
    /// An operator asked for an orderly end.
    Shutdown,
    /// Somebody asked whether ptys work; answer with [`Core::probe_answered`]. Not asked for again
    /// before that.
    Probe,
    /// Somebody asked for the list of terminals; look how large [`Core::worker_pids`] are and answer
    /// with [`Core::report`]. Not asked for again before that.
    Report,
    /// What is remembered of clients has changed; write [`Core::clients_to_save`]. Not asked for again
    /// before that.
    SaveClients,
}

#[derive(Debug)]
struct Connection {
    outbox: Arc<Outbox>,
    principal: Principal,
    /// Set by `initialize` or `reconnect`.
    client_id: Option<String>,
    subscriptions: usize,
}

/// A request or notification, wherever it waited.
#[derive(Debug, Clone)]
struct Call {
    connection: ConnectionId,
    id: Option<u64>,
    method: String,
    params: String,
}

/// The state of the host.
#[derive(Debug)]
pub struct Core {
    settings: Settings,
    /// The last `serverSeq` given out.
    seq: u64,
    next_key: u64,
    connections: HashMap<ConnectionId, Connection>,
    clients: Clients,
    terminals: BTreeMap<TerminalKey, Terminal>,
    by_uri: HashMap<String, TerminalKey>,
    /// Subscribers of the root channel, each with the spelling it used.
    root_subscribers: HashMap<ConnectionId, String>,
    /// The root list as it was sent last, as JSON.
    root_list: String,
    /// When a title that a program changed may be sent with the root list again.
    title_list_due: Option<Instant>,
    /// Whether one waits for that.
    title_list_waits: bool,
    replay: Replay,
    /// Who waits for the answer of the probe that was asked for.
    probe_askers: Vec<Call>,
    /// Who waits for the list of terminals.
    report_askers: Vec<Call>,
    /// Workers that were not taken over, by their sockets, and why.
    unadopted: BTreeMap<String, String>,
    /// Until when clients of an earlier life count as connected.
    returning_until: Option<Instant>,
    metrics: Arc<Metrics>,
    shutting_down: bool,
}

impl Core {
    /// A host without terminals; `serverSeq` goes on after `seq`.
    #[must_use]
    pub fn new(settings: Settings, seq: u64) -> Self {
        Self {
            settings,
            seq,
            next_key: 0,
            connections: HashMap::new(),
            clients: Clients::default(),
            terminals: BTreeMap::new(),
            by_uri: HashMap::new(),
            root_subscribers: HashMap::new(),
            root_list: "[]".to_owned(),
            title_list_due: None,
            title_list_waits: false,
            replay: Replay::new(seq),
            probe_askers: Vec::new(),
            report_askers: Vec::new(),
            unadopted: BTreeMap::new(),
            returning_until: None,
            metrics: Arc::default(),
            shutting_down: false,
        }
    }

    /// A message of a client.
    pub fn message(
        &mut self,
        connection: ConnectionId,
        message: &Incoming<'_>,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let call = Call {
            connection,
            id: message.id,
            method: message.method.to_string(),
            params: message.params.to_string(),
        };
        self.call(call, now, effects);
        if self.clients.must_save() {
            effects.push(Effect::SaveClients);
        }
    }

    fn call(&mut self, call: Call, now: Instant, effects: &mut Vec<Effect>) {
        let initialized = match self.connections.get(&call.connection) {
            None => return,
            Some(connection) => connection.client_id.is_some(),
        };
        let outcome = match call.method.as_str() {
            "ping" => Ok(Some("null".to_owned())),
            "initialize" if !initialized => self.initialize(&call, now),
            "reconnect" if !initialized => self.reconnect(&call, now),
            _ if !initialized => Err(RpcError::not_now(
                "initialize or reconnect first; before that only ping is served",
            )),
            "initialize" | "reconnect" => {
                Err(RpcError::not_now("this connection is initialized already"))
            }
            "subscribe"
            | "unsubscribe"
            | "createTerminal"
            | "disposeTerminal"
            | "dispatchAction"
            | "x-shellward/restartWorker" => match crate::ahp::params::channel(&call.params) {
                Err(error) => Err(error),
                Ok(channel) => {
                    if let Some(key) = self.by_uri.get(&channel).copied()
                        && let Some(terminal) = self.terminals.get_mut(&key)
                        && !matches!(terminal.phase, Phase::Live)
                    {
                        match terminal.wait(call) {
                            Ok(()) => return,
                            Err(refused) => {
                                self.busy(&refused);
                                return;
                            }
                        }
                    }
                    self.channel_call(&call, &channel, now, effects)
                }
            },
            "listSessions" => Ok(Some(r#"{"items":[]}"#.to_owned())),
            "x-shellward/terminals" => self.ask_report(&call, effects),
            "x-shellward/shutdown" => {
                effects.push(Effect::Shutdown);
                Ok(Some(json!({ "left": self.left_alone() }).to_string()))
            }
            "x-shellward/probe" => self.ask_probe(&call, effects),
            other => Err(RpcError::unknown_method(other)),
        };
        self.answer(&call, outcome);
    }

    /// A call about one channel that is neither starting nor ending.
    fn channel_call(
        &mut self,
        call: &Call,
        channel: &str,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) -> Result<Option<String>, RpcError> {
        match call.method.as_str() {
            "subscribe" => self.subscribe(call.connection, channel),
            "unsubscribe" => {
                self.unsubscribe(call.connection, channel);
                effects.push(Effect::Reschedule);
                Ok(Some("null".to_owned()))
            }
            "createTerminal" => self.create_terminal(call, now, effects),
            "disposeTerminal" => self.dispose_terminal(call, channel, effects),
            "x-shellward/restartWorker" => self.restart_terminal(call, channel, now, effects),
            _ => {
                self.dispatch(call, now, effects)?;
                Ok(Some("null".to_owned()))
            }
        }
    }

    /// Answers a request; `Ok(None)` is answered later, and a notification never.
    fn answer(&self, call: &Call, outcome: Result<Option<String>, RpcError>) {
        if let Err(error) = &outcome {
            self.metrics.refused.one(error.code);
        }
        let Some(id) = call.id else {
            if let Err(error) = outcome {
                // No method and no reason: both may repeat what the client wrote.
                tracing::debug!(
                    connection = call.connection.0,
                    code = error.code,
                    "a notification was refused"
                );
            }
            return;
        };
        match outcome {
            Ok(None) => {}
            Ok(Some(result)) => self.send(call.connection, reply(id, &result)),
            Err(error) => self.send(call.connection, reply_error(&id.to_string(), &error)),
        }
    }

    fn busy(&self, call: &Call) {
        self.answer(
            call,
            Err(RpcError::internal(
                "too many requests wait for this terminal to start or end; try again when it has",
            )),
        );
    }

    fn send(&self, connection: ConnectionId, text: String) {
        if let Some(connection) = self.connections.get(&connection) {
            connection.outbox.push(text.into());
        }
    }

    fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    fn client_id(&self, connection: ConnectionId) -> Option<&str> {
        self.connections.get(&connection)?.client_id.as_deref()
    }

    /// Whether a client is connected, or may be about to come back to a host that was started again.
    fn is_connected(&self, client_id: &str) -> bool {
        self.clients.get(client_id).is_some_and(|client| {
            client.connection.is_some() || (client.is_restored && self.returning_until.is_some())
        })
    }

    /// From now on clients are served. What those of an earlier life hold stays theirs for a while.
    pub fn serve(&mut self, now: Instant, effects: &mut Vec<Effect>) {
        self.returning_until = now.checked_add(self.settings.reattach_grace);
        effects.push(Effect::Reschedule);
    }

    /// Makes something true for a terminal and tells its subscribers.
    fn emit(
        &mut self,
        key: TerminalKey,
        action: &HostAction,
        claim: Option<&Claim>,
        origin: Option<Origin<'_>>,
    ) {
        let seq = self.next_seq();
        let Some(terminal) = self.terminals.get_mut(&key) else {
            return;
        };
        terminal.document.apply(action, claim);
        let text: Utf8Bytes = envelope(&terminal.uri, &action.to_json(), origin, seq).into();
        for (_, outbox) in &terminal.subscribers {
            outbox.push(text.clone());
        }
        self.replay.push(seq, Channel::Terminal(key), text);
    }

    /// The terminals in the order of their creation, oldest first: the order of every list. Keys alone
    /// do not tell it, because terminals are taken over in any order.
    fn by_age(&self) -> Vec<&Terminal> {
        let mut all: Vec<_> = self.terminals.iter().collect();
        all.sort_unstable_by_key(|(key, terminal)| (terminal.created, **key));
        all.into_iter().map(|(_, terminal)| terminal).collect()
    }

    /// Sends the root list if it differs from what was sent last.
    fn root_list_changed(&mut self) {
        self.title_list_waits = false;
        let list = root::terminals_json(
            &self
                .by_age()
                .into_iter()
                .filter(|terminal| terminal.is_listed())
                .map(|terminal| terminal.document.info(&terminal.uri))
                .collect::<Vec<_>>(),
        );
        if list == self.root_list {
            return;
        }
        self.root_list = list;
        let seq = self.next_seq();
        let action = root::terminals_changed(&self.root_list);
        let canonical: Utf8Bytes = envelope(names::ROOT, &action, None, seq).into();
        for (connection, spelling) in &self.root_subscribers {
            if let Some(connection) = self.connections.get(connection) {
                connection.outbox.push(if spelling == names::ROOT {
                    canonical.clone()
                } else {
                    envelope(spelling, &action, None, seq).into()
                });
            }
        }
        self.replay.push(seq, Channel::Root, canonical);
    }
}

#[cfg(test)]
mod tests;
