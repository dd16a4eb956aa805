//! One terminal as one raw connection sees it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::wire::Inner;
use crate::{DEADLINE, Folded, Raw, RpcError, unique};

/// A subscribed terminal, folded as its actions arrive.
pub struct Term {
    inner: Arc<Inner>,
    pub uri: String,
    /// The snapshot it began with.
    pub snapshot: Value,
    pub folded: Folded,
    /// The text of the snapshot and of every `terminal/data` since; `terminal/cleared` leaves it.
    pub seen: String,
    next: usize,
}

/// A terminal URI that nobody has.
pub fn new_uri() -> String {
    format!("ahp-terminal:/{}", unique())
}

/// What `createTerminal` needs at least, under `uri`.
pub fn create_params(raw: &Raw, uri: &str, more: Value) -> Value {
    let mut params = json!({
        "channel": uri,
        "claim": {"kind": "client", "clientId": raw.client_id()},
    });
    let Value::Object(more) = more else {
        panic!("an object of members, not {more}");
    };
    for (name, value) in more {
        params[name] = value;
    }
    params
}

impl Term {
    /// Creates one and subscribes to it.
    pub async fn create(raw: &Raw) -> Self {
        Self::create_with(raw, json!({})).await
    }

    /// The same with further members of `createTerminal`.
    pub async fn create_with(raw: &Raw, more: Value) -> Self {
        Self::try_create(raw, more).await.expect("createTerminal")
    }

    pub async fn try_create(raw: &Raw, more: Value) -> Result<Self, RpcError> {
        let uri = new_uri();
        let created = raw
            .request("createTerminal", create_params(raw, &uri, more))
            .await?;
        assert_eq!(created, Value::Null, "the result of createTerminal");
        Ok(Self::subscribe(raw, &uri).await)
    }

    pub async fn subscribe(raw: &Raw, uri: &str) -> Self {
        let inner = Arc::clone(&raw.inner);
        let (at, result) = inner.request("subscribe", json!({"channel": uri})).await;
        let snapshot = result.expect("subscribe")["snapshot"].clone();
        assert_eq!(snapshot["resource"], uri, "the resource, byte for byte");
        let folded = Folded::new(&snapshot);
        Self {
            seen: folded.text(),
            folded,
            inner,
            uri: uri.to_owned(),
            snapshot,
            next: at + 1,
        }
    }

    /// Types text.
    pub async fn input(&self, text: &str) -> i64 {
        self.act(json!({"type": "terminal/input", "data": text}))
            .await
    }

    /// Types a line and Enter.
    pub async fn line(&self, line: &str) {
        self.input(&format!("{line}\r")).await;
    }

    pub async fn act(&self, action: Value) -> i64 {
        let seq = self.inner.next_client_seq();
        self.inner
            .notify(
                "dispatchAction",
                json!({"channel": self.uri, "clientSeq": seq, "action": action}),
            )
            .await;
        seq
    }

    /// Folds what arrives until `pick` takes an envelope of this terminal.
    pub async fn wait<T>(
        &mut self,
        what: &str,
        limit: Duration,
        mut pick: impl FnMut(&Folded, &str, &Value) -> Option<T>,
    ) -> T {
        let Self {
            inner,
            uri,
            folded,
            seen,
            next,
            ..
        } = self;
        let (at, found) = inner
            .find(*next, what, limit, |message| {
                let params = &message["params"];
                if message["method"] != "action" || params["channel"] != uri.as_str() {
                    return None;
                }
                if params["action"]["type"] == "terminal/data"
                    && params["serverSeq"].as_u64() > Some(folded.seq)
                {
                    seen.push_str(params["action"]["data"].as_str().expect("data is text"));
                }
                folded.apply_value(params);
                pick(folded, seen, params)
            })
            .await;
        *next = at + 1;
        found
    }

    /// Whether its shell sits on a pseudoterminal.
    pub fn is_pty(&self) -> bool {
        self.folded.state.is_pty != Some(false)
    }

    /// How the end of a line that a program prints looks to the reader.
    pub fn newline(&self) -> &'static str {
        if self.is_pty() { "\r\n" } else { "\n" }
    }

    /// Waits for the first prompt, root's or anybody's; on pipes, where there is none, for the
    /// shell's first answer.
    pub async fn wait_prompt(&mut self) {
        if !self.is_pty() {
            self.output_of("true").await;
            return;
        }
        let prompted = |seen: &str| seen.ends_with("# ") || seen.ends_with("$ ");
        if !prompted(&self.seen) {
            let what = format!("a prompt in {}", self.uri);
            self.wait(&what, DEADLINE, |_, seen, _| prompted(seen).then_some(()))
                .await;
        }
    }

    /// Waits until everything seen so far, from the snapshot on, contains `needle`.
    pub async fn wait_text(&mut self, needle: &str) {
        self.wait_text_within(needle, DEADLINE).await;
    }

    pub async fn wait_text_within(&mut self, needle: &str, limit: Duration) {
        if self.seen.contains(needle) {
            return;
        }
        let mut from = self.seen.len();
        let what = format!("{needle:?} in {}", self.uri);
        self.wait(&what, limit, |_, seen, _| {
            // Only what is new can complete it.
            let mut start = from.saturating_sub(needle.len());
            while !seen.is_char_boundary(start) {
                start -= 1;
            }
            from = seen.len();
            seen[start..].contains(needle).then_some(())
        })
        .await;
    }

    /// Waits for `terminal/exited`; its action.
    pub async fn wait_exit(&mut self) -> Value {
        self.wait("terminal/exited", DEADLINE, |_, _, params| {
            (params["action"]["type"] == "terminal/exited").then(|| params["action"].clone())
        })
        .await
    }

    /// Starts a command that reads bytes as they are typed, and waits until it does; on a pty the
    /// line discipline is out of the way meanwhile. When the command has ended, `cooked` is
    /// printed and the shell listens again.
    pub async fn start_reader(&mut self, command: &str) {
        let (raw, sane) = if self.is_pty() {
            ("stty raw -echo; ", "stty sane; ")
        } else {
            ("", "")
        };
        self.line(&format!(
            "{raw}printf rea''dy; {command}; {sane}echo coo''ked"
        ))
        .await;
        self.wait_text("ready").await;
    }

    /// Runs a command line in the shell and returns what it printed, line ends as the pty made
    /// them. On pipes nothing is echoed. Works while the terminal echoes what is typed, because the markers are typed in two
    /// halves.
    pub async fn output_of(&mut self, command: &str) -> String {
        self.output_within(command, DEADLINE).await
    }

    pub async fn output_within(&mut self, command: &str, limit: Duration) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mark = COUNT.fetch_add(1, Ordering::Relaxed);
        let (begin, end) = (format!("<<{mark}:"), format!(":{mark}>>"));
        self.line(&format!(
            "printf '<''<{mark}:'; {command}; printf ':{mark}>''>\\n'"
        ))
        .await;
        let from = self.seen.len();
        self.wait_text_within(&end, limit).await;
        let seen = &self.seen[from..];
        let start = seen.find(&begin).expect("the first marker") + begin.len();
        let stop = seen[start..].find(&end).expect("the last marker") + start;
        seen[start..stop].to_owned()
    }

    /// Compares the folded state with a fresh snapshot, at this moment.
    ///
    /// The snapshot's answer stands behind every envelope it contains, so folding up to the answer
    /// gives the same moment.
    pub async fn assert_equals_snapshot(&mut self) {
        let (at, result) = self
            .inner
            .request("subscribe", json!({"channel": self.uri}))
            .await;
        let snapshot = result.expect("subscribe")["snapshot"].clone();
        self.fold_until(at).await;
        let fresh = Folded::new(&snapshot);
        assert!(
            fresh.seq >= self.folded.seq,
            "fromSeq {} is before an action that was delivered, {}",
            fresh.seq,
            self.folded.seq
        );
        self.folded.assert_equals(&fresh);
    }

    /// Folds the messages before number `end`.
    async fn fold_until(&mut self, end: usize) {
        let mut at = self.next;
        let Self {
            inner,
            uri,
            folded,
            seen,
            ..
        } = self;
        if at < end {
            inner
                .find(at, "messages that are there", DEADLINE, |message| {
                    let params = &message["params"];
                    if message["method"] == "action" && params["channel"] == uri.as_str() {
                        if params["action"]["type"] == "terminal/data"
                            && params["serverSeq"].as_u64() > Some(folded.seq)
                        {
                            seen.push_str(params["action"]["data"].as_str().expect("data"));
                        }
                        folded.apply_value(params);
                    }
                    at += 1;
                    (at >= end).then_some(())
                })
                .await;
        }
        self.next = self.next.max(end);
    }
}
