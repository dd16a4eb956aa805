//! What a worker is given to keep about its terminal, for the supervisor that comes after this one.
//!
//! To the worker it is bytes. It comes back from a process that sits next to a shell, so it is read
//! like anything else that comes from outside.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Terminal;
use crate::ahp::{Claim, names};

/// The longest of the texts that only people read, in bytes.
const WORDS_BYTES: usize = 1024;

/// The card of one terminal. Members are only ever added, and new ones may be missing: another
/// version of this program may have written it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Card {
    pub uri: String,
    pub title: String,
    /// Whether a client chose the title.
    pub named: bool,
    claim: Value,
    /// Where it started, as a URI.
    pub cwd: String,
    /// What it runs.
    pub shell: String,
    pub created_at: String,
    #[serde(default)]
    pub restarts: u32,
    #[serde(default)]
    pub pty_reason: Option<String>,
    /// Whether it was its worker that ended, not its shell.
    #[serde(default)]
    pub crashed: bool,
    /// Bytes that came out and went in before its present worker.
    #[serde(default)]
    pub bytes_before: (u64, u64),
}

impl Card {
    /// The card of a terminal as it is now.
    pub fn of(terminal: &Terminal) -> Vec<u8> {
        let document = &terminal.document;
        let card = Self {
            uri: terminal.uri.clone(),
            title: document.title().to_owned(),
            named: terminal.named,
            claim: serde_json::to_value(document.claim().to_ahp()).unwrap_or_default(),
            cwd: document.cwd().to_owned(),
            shell: terminal.shell.to_string_lossy().into_owned(),
            created_at: terminal.created_at.clone(),
            restarts: terminal.restarts,
            pty_reason: terminal.figures.pty_reason.clone(),
            crashed: terminal.is_crashed,
            bytes_before: terminal.figures.before,
        };
        crate::ahp::rpc::to_json(&card).into_bytes()
    }

    /// Reads a card.
    ///
    /// # Errors
    /// It is none of ours, or was changed.
    pub fn read(bytes: &[u8]) -> Result<(Self, Claim), &'static str> {
        let mut card: Self =
            serde_json::from_slice(bytes).map_err(|_| "its card cannot be read")?;
        let claim = Claim::parse(&card.claim).map_err(|_| "its card has no claim")?;
        names::check_terminal_uri(&card.uri).map_err(|_| "its card has no terminal's URI")?;
        card.title = names::clean_title(&card.title).ok_or("its card has no title")?;
        let words = [Some(&card.created_at), card.pty_reason.as_ref()];
        if words
            .iter()
            .flatten()
            .any(|words| words.len() > WORDS_BYTES)
        {
            return Err("its card is too long");
        }
        Ok((card, claim))
    }
}
