//! Connections: their handshake, their subscriptions, their end.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use serde_json::json;

use super::replay::Channel;
use super::{Call, Connection, ConnectionId, Core, Effect, Principal, Remembered, TerminalKey};
use crate::ahp::params::{Initialize, Reconnect};
use crate::ahp::version::{NoVersion, negotiate};
use crate::ahp::{Profile, RpcError, names, root, rpc};
use crate::limits::SUBSCRIPTIONS;
use crate::outbox::{Close, Outbox};

/// Where the parameters stand in an envelope's text.
const ENVELOPE_HEAD: &str = r#"{"jsonrpc":"2.0","method":"action","params":"#;

impl Core {
    /// A connection was accepted, because it proved to be `principal`.
    pub fn connect(&mut self, connection: ConnectionId, principal: Principal, outbox: Arc<Outbox>) {
        self.connections.insert(
            connection,
            Connection {
                outbox,
                principal,
                client_id: None,
                subscriptions: 0,
            },
        );
    }

    /// A connection ended.
    pub fn disconnect(
        &mut self,
        connection: ConnectionId,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) {
        let Some(gone) = self.take_out(connection, now) else {
            return;
        };
        if let Some(id) = gone.client_id {
            self.clients.left(&id, connection);
        }
        effects.push(Effect::Reschedule);
    }

    /// Removes a connection from every stream; its client may come back through `reconnect`.
    fn take_out(&mut self, connection: ConnectionId, now: Instant) -> Option<Connection> {
        self.root_subscribers.remove(&connection);
        for terminal in self.terminals.values_mut() {
            terminal.remove_subscriber(connection, Some(now));
        }
        self.connections.remove(&connection)
    }

    /// Whether the handshake has succeeded.
    #[must_use]
    pub fn is_initialized(&self, connection: ConnectionId) -> bool {
        self.client_id(connection).is_some()
    }

    /// Leaves the workers as they are, for the next supervisor: nothing is sent to them any more, so
    /// that what is watched still is when its readers are sent away.
    pub fn detach(&mut self) {
        for terminal in self.terminals.values_mut() {
            if let Some(link) = &terminal.link {
                link.close();
            }
        }
    }

    /// Tells every client that the host goes.
    pub fn close_all(&mut self) {
        for connection in self.connections.values() {
            connection.outbox.close(Close::GOING_AWAY);
        }
    }

    pub(super) fn initialize(
        &mut self,
        call: &Call,
        now: Instant,
    ) -> Result<Option<String>, RpcError> {
        let params = Initialize::parse(&call.params)?;
        let (version, profile) = match negotiate(&params.protocol_versions) {
            Ok(chosen) => chosen,
            Err(NoVersion::Malformed(entry)) => {
                return Err(RpcError::invalid_params(format!(
                    "protocolVersions has {:?}; each entry is MAJOR.MINOR.PATCH",
                    entry.chars().take(40).collect::<String>()
                )));
            }
            Err(NoVersion::Unsupported) => {
                self.answer(call, Err(RpcError::unsupported_version()));
                if let Some(connection) = self.connections.get(&call.connection) {
                    connection.outbox.close(Close::VERSION);
                }
                return Ok(None);
            }
        };
        let principal = self.principal(call.connection);
        let taken = self
            .clients
            .get(&params.client_id)
            .is_some_and(|known| known.connection.is_some() && Some(known.principal) != principal);
        if taken {
            return Err(RpcError::permission_denied(
                "a client with this clientId is connected that proved itself in another way; choose another clientId",
            ));
        }
        self.attach_client(
            call.connection,
            params.client_id,
            &version,
            profile,
            None,
            now,
        );
        let snapshots = self.subscribe_all(
            call.connection,
            params.initial_subscriptions.unwrap_or_default(),
        );
        let result = json!({
            "protocolVersion": version,
            "serverSeq": self.seq,
            "serverInfo": {
                "name": "shellward",
                "version": env!("CARGO_PKG_VERSION"),
                "title": "Shellward",
            },
            "defaultDirectory": names::directory_to_uri(&self.settings.directory),
        });
        let mut text = result.to_string();
        text.truncate(text.len() - 1);
        Ok(Some(format!(
            r#"{text},"snapshots":[{}]}}"#,
            snapshots.join(",")
        )))
    }

    pub(super) fn reconnect(
        &mut self,
        call: &Call,
        now: Instant,
    ) -> Result<Option<String>, RpcError> {
        let params = Reconnect::parse(&call.params)?;
        let principal = self.principal(call.connection);
        // To anybody else, whoever it belongs to is not there.
        let known = self.clients.get(&params.client_id);
        let Some(known) = known.filter(|known| Some(known.principal) == principal) else {
            return Err(RpcError::not_found(
                "this clientId is not known here any more; initialize again",
            ));
        };
        let (version, profile) = (known.version.clone(), known.profile);
        let (shell, is_restored) = (known.default_shell.clone(), known.is_restored);
        let last_seen = params.last_seen_server_seq;
        self.attach_client(
            call.connection,
            params.client_id,
            &version,
            profile,
            shell,
            now,
        );

        let mut listed = HashSet::new();
        let mut missing = Vec::new();
        let mut root_spelling = None;
        for uri in &params.subscriptions {
            if names::is_root(uri) {
                listed.insert(Channel::Root);
                root_spelling = Some(uri.clone());
            } else if let Some(key) = self.live(uri) {
                listed.insert(Channel::Terminal(key));
            } else {
                missing.push(uri);
            }
        }
        let recorded = self.terminals.iter().all(|(key, terminal)| {
            terminal.unrecorded_seq <= last_seen || !listed.contains(&Channel::Terminal(*key))
        });
        if is_restored || last_seen > self.seq || !self.replay.reaches(last_seen) || !recorded {
            let snapshots = self.subscribe_all(call.connection, params.subscriptions);
            return Ok(Some(format!(
                r#"{{"type":"snapshot","snapshots":[{}]}}"#,
                snapshots.join(",")
            )));
        }
        let canonical = format!(r#""channel":{}"#, rpc::to_json(&names::ROOT));
        let mut actions = Vec::new();
        for (channel, text) in self
            .replay
            .after(last_seen, |channel| listed.contains(&channel))
        {
            let params = text
                .as_str()
                .strip_prefix(ENVELOPE_HEAD)
                .and_then(|rest| rest.strip_suffix('}'))
                .unwrap_or_default();
            match (&root_spelling, channel) {
                (Some(spelling), Channel::Root) if spelling != names::ROOT => {
                    actions.push(params.replacen(
                        &canonical,
                        &format!(r#""channel":{}"#, rpc::to_json(spelling)),
                        1,
                    ))
                }
                _ => actions.push(params.to_owned()),
            }
        }
        let missing = rpc::to_json(&missing);
        for uri in &params.subscriptions {
            self.join(call.connection, uri);
        }
        Ok(Some(format!(
            r#"{{"type":"replay","actions":[{}],"missing":{missing}}}"#,
            actions.join(",")
        )))
    }

    /// Binds a clientId to a connection; the newest connection of a client is the client.
    fn attach_client(
        &mut self,
        connection: ConnectionId,
        client_id: String,
        version: &str,
        profile: Profile,
        default_shell: Option<String>,
        now: Instant,
    ) {
        let older = self.clients.get(&client_id);
        let older = older.and_then(|client| client.connection);
        if let Some(older) = older.and_then(|older| self.take_out(older, now)) {
            older.outbox.close(Close::REPLACED);
        }
        let Some(record) = self.connections.get_mut(&connection) else {
            return;
        };
        record.client_id = Some(client_id.clone());
        let who = Remembered {
            client_id,
            version: version.to_owned(),
            default_shell,
            principal: record.principal,
        };
        self.clients.attach(connection, who, profile);
    }

    fn principal(&self, connection: ConnectionId) -> Option<Principal> {
        Some(self.connections.get(&connection)?.principal)
    }

    /// Takes over what an earlier life of this host remembered of clients.
    pub fn restore_clients(&mut self, remembered: Vec<Remembered>) {
        self.clients.restore(remembered);
    }

    /// What the next life of this host is to remember.
    pub fn clients_to_save(&mut self) -> Vec<Remembered> {
        self.clients.save()
    }

    /// The shell that this connection's terminals run, as its `defaultShell` says.
    pub(super) fn default_shell(&self, connection: ConnectionId) -> String {
        self.client_id(connection)
            .and_then(|id| self.clients.get(id))
            .and_then(|client| client.default_shell.clone())
            .unwrap_or_else(|| self.settings.shell.to_string_lossy().into_owned())
    }

    pub(super) fn set_default_shell(&mut self, connection: ConnectionId, shell: String) {
        let Some(id) = self.client_id(connection).map(str::to_owned) else {
            return;
        };
        self.clients.set_default_shell(&id, shell);
    }

    pub(super) fn live(&self, uri: &str) -> Option<TerminalKey> {
        let key = *self.by_uri.get(uri)?;
        self.terminals.get(&key)?.is_listed().then_some(key)
    }

    pub(super) fn subscribe(
        &mut self,
        connection: ConnectionId,
        uri: &str,
    ) -> Result<Option<String>, RpcError> {
        let full = self
            .connections
            .get(&connection)
            .is_some_and(|connection| connection.subscriptions >= SUBSCRIPTIONS);
        if full {
            return Err(RpcError::invalid_request(format!(
                "this connection has {SUBSCRIPTIONS} subscriptions; unsubscribe from some first"
            )));
        }
        if !self.join(connection, uri) {
            return Err(RpcError::no_channel(uri));
        }
        let snapshot = self.snapshot(connection, uri).unwrap_or_default();
        Ok(Some(format!(r#"{{"snapshot":{snapshot}}}"#)))
    }

    /// Joins every channel that exists; their snapshots, each once.
    fn subscribe_all(&mut self, connection: ConnectionId, uris: Vec<String>) -> Vec<String> {
        let mut seen = HashSet::new();
        uris.into_iter()
            .filter(|uri| seen.insert(uri.clone()) && self.join(connection, uri))
            .collect::<Vec<_>>()
            .iter()
            .filter_map(|uri| self.snapshot(connection, uri))
            .collect()
    }

    /// Adds `connection` to a channel's stream; false if there is no such channel.
    fn join(&mut self, connection: ConnectionId, uri: &str) -> bool {
        let live = self.live(uri);
        let Some(record) = self.connections.get_mut(&connection) else {
            return false;
        };
        if names::is_root(uri) {
            if self
                .root_subscribers
                .insert(connection, uri.to_owned())
                .is_none()
            {
                record.subscriptions += 1;
            }
            return true;
        }
        match live.and_then(|key| self.terminals.get_mut(&key)) {
            None => false,
            Some(terminal) => {
                if terminal.add_subscriber(connection, &record.outbox) {
                    record.subscriptions += 1;
                }
                true
            }
        }
    }

    fn snapshot(&self, connection: ConnectionId, uri: &str) -> Option<String> {
        if names::is_root(uri) {
            let state = root::state(
                &self.root_list,
                &self.default_shell(connection),
                &self.settings.about["probe"],
            );
            return Some(root::snapshot_json(uri, &state, self.seq));
        }
        let terminal = self.terminals.get(&self.live(uri)?)?;
        Some(terminal.document.snapshot(uri, self.seq))
    }

    pub(super) fn unsubscribe(&mut self, connection: ConnectionId, uri: &str) {
        let removed = if names::is_root(uri) {
            self.root_subscribers.remove(&connection).is_some()
        } else {
            self.live(uri)
                .and_then(|key| self.terminals.get_mut(&key))
                .is_some_and(|terminal| terminal.remove_subscriber(connection, None))
        };
        if removed && let Some(connection) = self.connections.get_mut(&connection) {
            connection.subscriptions = connection.subscriptions.saturating_sub(1);
        }
    }
}
