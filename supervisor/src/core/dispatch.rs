//! `dispatchAction`: what a client may make true, and how a refusal looks.
//!
//! VS Code's root and terminal subscriptions apply a refused action all the same (ahp-facts 8.3),
//! so a refusal goes to its sender only, followed by an action that puts things right.

use std::time::Instant;

use serde_json::{Map, Value};
use shellward_protocol::limits::INPUT_PENDING_MAX;

use super::{Call, ConnectionId, Core, Effect, TerminalKey};
use crate::ahp::action::ClientAction;
use crate::ahp::claim::{Claim, may_change};
use crate::ahp::envelope::{Origin, envelope, rejection};
use crate::ahp::params::Dispatch;
use crate::ahp::{HostAction, RpcError, names, root};
use crate::worker_link::InputFull;

impl Core {
    pub(super) fn dispatch(
        &mut self,
        call: &Call,
        now: Instant,
        effects: &mut Vec<Effect>,
    ) -> Result<(), RpcError> {
        let dispatch = Dispatch::parse(&call.params)?;
        let client_id = self
            .client_id(call.connection)
            .unwrap_or_default()
            .to_owned();
        let origin = Origin {
            client_id: &client_id,
            client_seq: dispatch.client_seq,
        };
        let action = ClientAction::parse(&dispatch.action);
        if action == ClientAction::Foreign {
            return Ok(());
        }
        let sender = call.connection;
        let outcome = if names::is_root(&dispatch.channel) {
            self.dispatch_root(sender, &dispatch.channel, action, origin)
        } else {
            match self.live(&dispatch.channel) {
                None => Err("there is no such terminal".to_owned()),
                Some(key) => {
                    let outcome =
                        self.dispatch_terminal(key, sender, &action, &dispatch, origin, effects);
                    if let (Ok(()), ClientAction::Input(data)) = (&outcome, &action) {
                        self.typed(key, data, now);
                    }
                    outcome
                }
            }
        };
        match outcome {
            Ok(()) => {}
            Err(reason) => {
                self.metrics.dispatches_refused.one();
                let text = rejection(
                    &dispatch.channel,
                    &dispatch.action,
                    origin,
                    &reason,
                    self.seq,
                );
                self.send(sender, text);
                self.put_right(sender, &dispatch);
            }
        }
        Ok(())
    }

    fn dispatch_terminal(
        &mut self,
        key: TerminalKey,
        sender: ConnectionId,
        action: &ClientAction,
        dispatch: &Dispatch,
        origin: Origin<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<(), String> {
        let Some(terminal) = self.terminals.get(&key) else {
            return Err("there is no such terminal".to_owned());
        };
        let running = match terminal.document.exit() {
            Some(_) => Err("the terminal has exited".to_owned()),
            None => terminal
                .link
                .clone()
                .ok_or_else(|| "the terminal has ended".to_owned()),
        };
        let claim = terminal.document.claim();
        match action {
            ClientAction::Input(data) => {
                if self.settings.input_from_holder {
                    self.holds(claim, origin.client_id, false)?;
                }
                let link = running?;
                if data.len() as u64 > INPUT_PENDING_MAX {
                    return Err(format!(
                        "an input may have {INPUT_PENDING_MAX} bytes at most; send it in pieces"
                    ));
                }
                let refuse = |full: InputFull| {
                    format!(
                        "{} bytes of input wait for the program, and this would be too many; send it later",
                        full.0
                    )
                };
                link.admits(data.len()).map_err(refuse)?;
                // To the sender alone: what is typed may be a password (design.md).
                let seq = self.next_seq();
                let text = envelope(&dispatch.channel, &dispatch.action, Some(origin), seq);
                self.send(sender, text);
                // Last, because the task that is woken last runs first, and this one is waited for.
                link.input(data.as_bytes()).map_err(refuse)?;
            }
            ClientAction::Resized(size) => {
                if self.settings.size_from_holder {
                    self.holds(claim, origin.client_id, true)?;
                }
                running?.resize(*size);
                self.emit(key, &HostAction::resized(*size), None, Some(origin));
            }
            ClientAction::Claimed(wanted) => {
                may_change(
                    claim,
                    wanted,
                    origin.client_id,
                    |id| self.is_connected(id),
                    self.settings.claims_open,
                )?;
                self.emit(
                    key,
                    &HostAction::claimed(wanted),
                    Some(wanted),
                    Some(origin),
                );
                self.note(key);
                // An exited terminal that no session holds any more can be forgotten.
                effects.push(Effect::Reschedule);
                self.root_list_changed();
            }
            ClientAction::TitleChanged(title) => {
                if let Some(terminal) = self.terminals.get_mut(&key) {
                    terminal.named = true;
                }
                self.emit(
                    key,
                    &HostAction::title_changed(title.clone()),
                    None,
                    Some(origin),
                );
                self.note(key);
                self.root_list_changed();
            }
            ClientAction::Cleared => {
                if let Some(link) = &terminal.link {
                    link.clear(terminal.place);
                }
                self.emit(key, &HostAction::cleared(), None, Some(origin));
            }
            ClientAction::Unusable(reason) => return Err(reason.clone()),
            ClientAction::RootConfig(_) | ClientAction::Foreign => {
                return Err("this action belongs to the root channel".to_owned());
            }
        }
        Ok(())
    }

    /// Has the worker note what has changed.
    fn note(&self, key: TerminalKey) {
        if let Some(terminal) = self.terminals.get(&key) {
            terminal.note();
        }
    }

    /// Whether `actor` is the holder, or (`unless_away`) the holder is not connected.
    fn holds(&self, claim: &Claim, actor: &str, unless_away: bool) -> Result<(), String> {
        match claim {
            Claim::Client(holder) if holder == actor => Ok(()),
            Claim::Client(holder) if unless_away && !self.is_connected(holder) => Ok(()),
            Claim::Session { .. } if unless_away => Ok(()),
            other => Err(format!("{} holds this terminal", other.describe())),
        }
    }

    fn dispatch_root(
        &mut self,
        sender: ConnectionId,
        channel: &str,
        action: ClientAction,
        origin: Origin<'_>,
    ) -> Result<(), String> {
        let config = match action {
            ClientAction::RootConfig(config) => config,
            ClientAction::Unusable(reason) => return Err(reason),
            _ => return Err("this action belongs to a terminal".to_owned()),
        };
        let Some(value) = config.get(root::DEFAULT_SHELL) else {
            return Err("the schema advertises none of these values".to_owned());
        };
        let Value::String(shell) = value else {
            return Err("defaultShell must be the absolute path of a shell".to_owned());
        };
        if *shell == self.default_shell(sender) {
            // Saying so would start loops between clients that answer echoes (ahp-facts 8.16).
            return Ok(());
        }
        (self.settings.check_shell)(shell)?;
        self.set_default_shell(sender, shell.clone());
        let mut accepted = Map::new();
        accepted.insert(root::DEFAULT_SHELL.to_owned(), value.clone());
        let seq = self.next_seq();
        let text = envelope(
            channel,
            &root::config_changed(&accepted, false),
            Some(origin),
            seq,
        );
        self.send(sender, text);
        Ok(())
    }

    /// After a refusal: what is true, for the sender, if it follows the channel.
    fn put_right(&mut self, sender: ConnectionId, dispatch: &Dispatch) {
        let kind = serde_json::from_str::<Value>(&dispatch.action)
            .ok()
            .and_then(|action| action.get("type")?.as_str().map(str::to_owned))
            .unwrap_or_default();
        let truth = if names::is_root(&dispatch.channel) {
            let follows = self.root_subscribers.contains_key(&sender);
            (follows && kind == "root/configChanged").then(|| {
                root::config_changed(&root::config_values(&self.default_shell(sender)), true)
            })
        } else {
            self.live(&dispatch.channel)
                .and_then(|key| self.terminals.get(&key))
                .filter(|terminal| {
                    terminal
                        .subscribers
                        .iter()
                        .any(|(known, _)| *known == sender)
                })
                .and_then(|terminal| {
                    let document = &terminal.document;
                    match kind.as_str() {
                        "terminal/resized" => Some(HostAction::resized(document.size())),
                        "terminal/claimed" => Some(HostAction::claimed(document.claim())),
                        "terminal/titleChanged" => {
                            Some(HostAction::title_changed(document.title().to_owned()))
                        }
                        _ => None,
                    }
                })
                .map(|action| action.to_json())
        };
        if let Some(action) = truth {
            let seq = self.next_seq();
            let text = envelope(&dispatch.channel, &action, None, seq);
            self.send(sender, text);
        }
    }
}
