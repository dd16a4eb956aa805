//! A program that counts, and a client that always comes back and holds every number.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};

use crate::folded::text_of;
use crate::term::new_uri;
use crate::{DEADLINE, Folded, Host, ROOT, Raw, RpcError};

/// Digits of a number, and letters that fill its line.
const DIGITS: usize = 9;
const FILLING: &str = "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz";

/// A line as the terminal prints it, its end included, in bytes.
pub const LINE_BYTES: usize = DIGITS + FILLING.len() + 2;

/// A program that prints numbered lines until it is told to end.
pub struct Counter {
    script: PathBuf,
    end: PathBuf,
}

impl Counter {
    /// `rate` in bytes a second; 0 is as fast as it can. `at_most` lines, for ever if absent.
    pub fn new(folder: &Path, rate: usize, at_most: Option<usize>) -> Self {
        let script = folder.join("count.py");
        let end = folder.join("count.end");
        let text = format!(
            r#"
import os, sys, time
rate, most, end, filling = {rate}, {most}, {end:?}, {FILLING:?}
lines = 150 if rate else 1000
pause = lines * {LINE_BYTES} / rate if rate else 0
number, due = 0, time.monotonic()
while number < most and not os.path.exists(end):
    count = min(lines, most - number)
    text = ''.join('%0{DIGITS}d%s\n' % (n, filling) for n in range(number, number + count))
    sys.stdout.write(text)
    sys.stdout.flush()
    number += count
    due += pause
    left = due - time.monotonic()
    if left > 0:
        time.sleep(left)
print('END', number)
"#,
            most = at_most.unwrap_or(10_usize.pow(9)),
        );
        std::fs::write(&script, text).unwrap();
        Self { script, end }
    }

    /// What to type to start it.
    pub fn command(&self) -> String {
        format!("stty -echo; clear; exec python3 {}", self.script.display())
    }

    /// Has it end after its next lines.
    pub fn end(&self) {
        std::fs::write(&self.end, "").unwrap();
    }
}

/// The number of a whole line, or of the rest of one.
fn number_of(line: &str, is_whole: bool) -> Option<u64> {
    let Some(digits) = line.strip_suffix(FILLING) else {
        assert!(
            !is_whole && FILLING.ends_with(line),
            "a line that is none: {line:?}"
        );
        return None;
    };
    assert!(!is_whole || digits.len() == DIGITS, "{line:?}");
    (digits.len() == DIGITS).then(|| digits.parse().unwrap())
}

/// What a client holds of the numbers: all up to a last one, and then the beginning of a line.
#[derive(Debug, Default)]
pub struct Held {
    /// The number of the next whole line.
    pub next: u64,
    rest: String,
    /// The program's last word came.
    pub has_ended: bool,
}

impl Held {
    /// Output that goes on.
    pub fn append(&mut self, text: &str) {
        self.rest.push_str(text);
        while let Some((line, rest)) = self.rest.split_once("\r\n") {
            if line.starts_with("END ") {
                assert_eq!(line, format!("END {}", self.next));
                self.has_ended = true;
                return;
            }
            let number = number_of(line, true).unwrap();
            assert_eq!(number, self.next, "in order, none missing, none twice");
            self.next += 1;
            self.rest = rest.to_owned();
        }
    }

    /// All that is shown, anew. It may end before what was held, but not begin behind it.
    pub fn replace(&mut self, text: &str) {
        let (first, rest) = text.split_once("\r\n").unwrap_or(("", text));
        let begins_whole = first.len() == LINE_BYTES - 2;
        let from = if begins_whole {
            number_of(first, true).unwrap()
        } else {
            // The rest of a line: the one after it tells its number.
            number_of(first, false);
            let next = rest.get(..DIGITS).map(|digits| digits.parse().unwrap());
            next.unwrap_or(self.next)
        };
        assert!(
            from <= self.next,
            "the snapshot begins at {from}, and what was held ends before {}",
            self.next
        );
        self.next = from;
        self.rest.clear();
        self.append(if begins_whole { text } else { rest });
    }
}

/// How a client came back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By the actions it had missed.
    Replay,
    /// By snapshots, as the answer to `reconnect`.
    Snapshot,
    /// By `initialize` and `subscribe`: it was not known any more.
    Anew,
}

/// A client that always comes back.
pub struct Returning {
    pub raw: Raw,
    pub uri: String,
    client_id: String,
    pub held: Held,
    folded: Folded,
    /// Messages of `raw` before this were taken.
    taken: usize,
    last_seen: u64,
}

impl Returning {
    /// Opens a terminal and starts the program in it.
    pub async fn start(host: &Host, counter: &Counter) -> Self {
        let raw = Raw::open(host).await;
        let uri = new_uri();
        raw.request("createTerminal", json!({"channel": uri}))
            .await
            .unwrap();
        let snapshot = raw
            .request("subscribe", json!({"channel": uri}))
            .await
            .unwrap();
        let mut this = Self {
            client_id: raw.client_id(),
            folded: Folded::new(&snapshot["snapshot"]),
            last_seen: snapshot["snapshot"]["fromSeq"].as_u64().unwrap(),
            taken: raw.mark(),
            raw,
            uri,
            held: Held::default(),
        };
        let line = format!("{}\r", counter.command());
        let action = json!({"type": "terminal/input", "data": line});
        this.raw.dispatch(&this.uri, action).await;
        // Up to where `clear` has cleared: nothing of the shell's own is held.
        let first = format!("{:0DIGITS$}", 0);
        let uri = this.uri.clone();
        let mut seen = this.folded.text();
        this.raw
            .wait_from(0, "the first number", |message| {
                let params = &message["params"];
                if params["channel"] == uri.as_str() && params["action"]["type"] == "terminal/data"
                {
                    seen.push_str(params["action"]["data"].as_str().unwrap());
                }
                seen.contains(&first).then_some(())
            })
            .await;
        this.take();
        this
    }

    /// Takes in what has arrived.
    pub fn take(&mut self) {
        let end = self.raw.mark();
        for message in self.raw.since(self.taken) {
            let params = &message["params"];
            if message["method"] == "action" {
                self.fold(params);
            }
        }
        self.taken = end;
    }

    fn fold(&mut self, envelope: &Value) {
        let seq = envelope["serverSeq"].as_u64().unwrap();
        self.last_seen = self.last_seen.max(seq);
        if envelope["channel"] != self.uri.as_str() || seq <= self.folded.seq {
            return;
        }
        self.folded.apply_value(envelope);
        if envelope["action"]["type"] == "terminal/data" {
            let data = envelope["action"]["data"].as_str().unwrap();
            self.hold(data);
        }
    }

    fn hold(&mut self, data: &str) {
        if self.held.next > 0 || !self.held.rest.is_empty() {
            self.held.append(data);
            return;
        }
        // The program has not begun: what the shell shows is none of ours.
        let text = self.folded.text();
        let first = format!("{:0DIGITS$}{}", 0, &FILLING[..4]);
        if let Some(at) = text.find(&first) {
            self.held.append(&text[at..]);
        }
    }

    fn snapshot(&mut self, snapshot: &Value) {
        assert_eq!(snapshot["resource"], self.uri.as_str());
        self.folded = Folded::new(snapshot);
        self.last_seen = self.last_seen.max(self.folded.seq);
        let text = text_of(&self.folded.state);
        let from = text
            .find(&format!("{:0DIGITS$}{}", 0, &FILLING[..4]))
            .unwrap_or_default();
        self.held.replace(&text[from..]);
    }

    /// Comes back to the host after the connection has ended.
    pub async fn come_back(&mut self, host: &Host) -> Way {
        self.take();
        let raw = Raw::connect(host).await;
        raw.become_client(&self.client_id);
        let params = json!({
            "channel": ROOT,
            "clientId": self.client_id,
            "lastSeenServerSeq": self.last_seen,
            "subscriptions": [ROOT, self.uri],
        });
        let answer = raw.request("reconnect", params).await;
        self.raw = raw;
        self.taken = 0;
        let way = match answer {
            Ok(result) if result["type"] == "replay" => {
                assert_eq!(result["missing"], json!([]));
                for envelope in result["actions"].as_array().unwrap() {
                    self.fold(envelope);
                }
                Way::Replay
            }
            Ok(result) => {
                let uri = self.uri.clone();
                let snapshots = result["snapshots"].as_array().unwrap();
                let snapshot = snapshots.iter().find(|s| s["resource"] == uri.as_str());
                self.snapshot(snapshot.expect("the terminal is still there"));
                Way::Snapshot
            }
            Err(RpcError { code: -32008, .. }) => {
                self.raw.initialize(&["1.0.0"]).await.unwrap();
                let params = json!({"channel": self.uri});
                let result = self.raw.request("subscribe", params).await.unwrap();
                // It is a new life of the host, but its numbers go on.
                self.snapshot(&result["snapshot"]);
                Way::Anew
            }
            Err(error) => panic!("reconnect: {error:?}"),
        };
        self.take();
        way
    }

    /// Takes in until the program's last word has come.
    pub async fn take_to_the_end(&mut self) {
        let end = tokio::time::Instant::now() + 3 * DEADLINE;
        loop {
            self.take();
            if self.held.has_ended {
                return;
            }
            assert!(
                tokio::time::Instant::now() < end,
                "the last number is not there; held up to {}",
                self.held.next
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The state as the reducer has made it.
    pub fn folded(&self) -> &Folded {
        &self.folded
    }
}
