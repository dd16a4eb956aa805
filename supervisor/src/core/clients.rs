//! Clients that may come back through `reconnect`, and who they are.
//!
//! A clientId is the client's own choice and proves nothing; it is bound to how its connection
//! proved itself, so that nobody comes back as somebody else (ahp-facts 1.2). What is remembered
//! outlives the host, without any secret.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::ConnectionId;
use crate::ahp::Profile;
use crate::ahp::names::OWN_CLIENTS;
use crate::ahp::version::negotiate;
use crate::limits::{CLIENT_ID_BYTES, REMEMBERED_CLIENTS};

/// How a connection proved itself at the door.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Principal {
    /// With the connection token.
    Token,
    /// By being this user's, on a unix socket.
    Uid(u32),
    /// Not at all: `--without-connection-token`.
    Anybody,
}

/// What a client is taken back with: one entry of the clients file. Members are only ever added.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Remembered {
    /// Its own name for itself.
    pub client_id: String,
    /// The protocol version it was given.
    pub version: String,
    /// Its configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_shell: Option<String>,
    /// How it proved itself.
    pub principal: Principal,
}

/// A client we could take back.
#[derive(Debug)]
pub(super) struct Client {
    pub version: String,
    pub profile: Profile,
    pub default_shell: Option<String>,
    pub principal: Principal,
    pub connection: Option<ConnectionId>,
    /// Whether it comes from another life of this host, of which nothing can be replayed.
    pub is_restored: bool,
    /// Grows with every coming and going.
    last_seen: u64,
}

/// Whether the file has what is known here.
#[derive(Debug, Default, PartialEq, Eq)]
enum File {
    #[default]
    Same,
    Behind,
    /// Somebody was told to write it.
    Asked,
}

/// All of them, bounded.
#[derive(Debug, Default)]
pub(super) struct Clients {
    known: HashMap<String, Client>,
    clock: u64,
    file: File,
}

impl Clients {
    pub fn get(&self, id: &str) -> Option<&Client> {
        self.known.get(id)
    }

    /// Adds those of an earlier life of this host, newest first. Who spoke a version that is not
    /// served any more is a stranger.
    pub fn restore(&mut self, remembered: Vec<Remembered>) {
        let usable = |one: &Remembered| (1..=CLIENT_ID_BYTES).contains(&one.client_id.len());
        let kept = remembered.into_iter().filter(usable);
        let mut kept: Vec<_> = kept.take(REMEMBERED_CLIENTS).collect();
        while let Some(one) = kept.pop() {
            let Ok((version, profile)) = negotiate(std::slice::from_ref(&one.version)) else {
                continue;
            };
            let client = Client {
                version,
                profile,
                default_shell: one.default_shell,
                principal: one.principal,
                connection: None,
                is_restored: true,
                last_seen: self.tick(),
            };
            self.known.insert(one.client_id, client);
        }
    }

    /// Binds a client to the connection that is it from now on. Whoever was unseen for longest
    /// gives way.
    pub fn attach(&mut self, connection: ConnectionId, who: Remembered, profile: Profile) {
        let is_same = self.known.get(&who.client_id).is_some_and(|old| {
            old.version == who.version
                && old.default_shell == who.default_shell
                && old.principal == who.principal
        });
        if !is_same && !passes_by(&who.client_id) {
            self.changed();
        }
        if self.known.len() >= REMEMBERED_CLIENTS && !self.known.contains_key(&who.client_id) {
            let gone = self
                .known
                .iter()
                .filter(|(_, one)| one.connection.is_none());
            let oldest = gone.min_by_key(|(_, one)| one.last_seen);
            if let Some(oldest) = oldest.map(|(id, _)| id.clone()) {
                self.known.remove(&oldest);
            }
        }
        let client = Client {
            version: who.version,
            profile,
            default_shell: who.default_shell,
            principal: who.principal,
            connection: Some(connection),
            is_restored: false,
            last_seen: self.tick(),
        };
        self.known.insert(who.client_id, client);
    }

    /// A connection ended; its client may come back.
    pub fn left(&mut self, id: &str, connection: ConnectionId) {
        let last_seen = self.tick();
        let is_it = |one: &Client| one.connection == Some(connection);
        if passes_by(id) && self.known.get(id).is_some_and(is_it) {
            self.known.remove(id);
        } else if let Some(client) = self.known.get_mut(id)
            && client.connection == Some(connection)
        {
            client.connection = None;
            client.last_seen = last_seen;
        }
    }

    pub fn set_default_shell(&mut self, id: &str, shell: String) {
        if let Some(client) = self.known.get_mut(id) {
            client.default_shell = Some(shell);
            self.changed();
        }
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn changed(&mut self) {
        if self.file == File::Same {
            self.file = File::Behind;
        }
    }

    /// Whether somebody must be told to write the file. Not again before [`Self::save`].
    pub fn must_save(&mut self) -> bool {
        let must = self.file == File::Behind;
        if must {
            self.file = File::Asked;
        }
        must
    }

    /// What is to be written, newest first.
    pub fn save(&mut self) -> Vec<Remembered> {
        self.file = File::Same;
        let lasting = self.known.iter().filter(|(id, _)| !passes_by(id));
        let mut all: Vec<_> = lasting.collect();
        all.sort_unstable_by_key(|(_, one)| {
            std::cmp::Reverse((one.connection.is_some(), one.last_seen))
        });
        all.into_iter()
            .map(|(id, one)| Remembered {
                client_id: id.clone(),
                version: one.version.clone(),
                default_shell: one.default_shell.clone(),
                principal: one.principal,
            })
            .collect()
    }
}

/// Whether a client never comes back: it takes no place from those who may.
fn passes_by(id: &str) -> bool {
    id.starts_with(OWN_CLIENTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(id: &str) -> Remembered {
        Remembered {
            client_id: id.to_owned(),
            version: "1.0.0".to_owned(),
            default_shell: None,
            principal: Principal::Token,
        }
    }

    fn names(clients: &mut Clients) -> Vec<String> {
        let all = clients.save().into_iter();
        all.map(|one| one.client_id).collect()
    }

    #[test]
    fn our_own_commands_are_not_remembered() {
        let mut clients = Clients::default();
        clients.attach(ConnectionId(1), who("shellward-cli-1"), Profile::V10);
        assert!(!clients.must_save() && clients.get("shellward-cli-1").is_some());
        clients.attach(ConnectionId(2), who("a"), Profile::V10);
        assert!(clients.must_save());
        assert_eq!(names(&mut clients), ["a"]);
        clients.left("shellward-cli-1", ConnectionId(1));
        clients.left("a", ConnectionId(2));
        assert!(clients.get("shellward-cli-1").is_none() && clients.get("a").is_some());
    }

    #[test]
    fn the_one_unseen_for_longest_gives_way_also_after_a_restart() {
        let mut clients = Clients::default();
        for n in 0..REMEMBERED_CLIENTS {
            let connection = ConnectionId(n as u64);
            clients.attach(connection, who(&n.to_string()), Profile::V10);
            if n > 0 {
                clients.left(&n.to_string(), connection);
            }
        }
        let saved = clients.save();
        assert_eq!(saved[0].client_id, "0", "it is there");
        assert_eq!(saved[1].client_id, (REMEMBERED_CLIENTS - 1).to_string());
        let mut later = Clients::default();
        later.restore(saved.clone());
        assert_eq!(later.save(), saved, "the order survives");
        later.attach(ConnectionId(1), who("new"), Profile::V10);
        let names = names(&mut later);
        assert_eq!(names.len(), REMEMBERED_CLIENTS);
        assert_eq!(names[0], "new");
        assert!(!names.contains(&"1".to_owned()) && names.contains(&"0".to_owned()));
    }

    #[test]
    fn the_file_is_written_for_what_is_new_and_asked_for_once() {
        let mut clients = Clients::default();
        assert!(!clients.must_save());
        clients.attach(ConnectionId(1), who("a"), Profile::V10);
        assert!(clients.must_save());
        clients.set_default_shell("a", "/bin/sh".to_owned());
        assert!(!clients.must_save(), "asked for already");
        assert_eq!(clients.save()[0].default_shell.as_deref(), Some("/bin/sh"));
        clients.left("a", ConnectionId(1));
        let same = Remembered {
            default_shell: Some("/bin/sh".to_owned()),
            ..who("a")
        };
        clients.attach(ConnectionId(2), same, Profile::V10);
        assert!(
            !clients.must_save(),
            "a client that comes back is nothing new"
        );
        clients.attach(ConnectionId(3), who("a"), Profile::V10);
        assert!(clients.must_save());
    }

    #[test]
    fn entries_that_cannot_be_served_are_left_out() {
        let mut clients = Clients::default();
        let old = Remembered {
            version: "0.1.0".to_owned(),
            ..who("old")
        };
        clients.restore(vec![
            who(""),
            old,
            who(&"x".repeat(CLIENT_ID_BYTES + 1)),
            who("a"),
        ]);
        assert_eq!(names(&mut clients), ["a"]);
        assert!(clients.get("a").unwrap().is_restored);
    }
}
