//! Field case S-21: readers that stop, and connections that are cut, while a terminal floods.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use shellward_tests::term::new_uri;
use shellward_tests::{Folded, Host, Lean, Raw, Term, json};
use tokio::task::JoinHandle;

/// Keys come with pauses, idle and busy: a machine that is asked without one never falls asleep.
const BETWEEN_KEYS: Duration = Duration::from_millis(10);

fn median<T: Copy + PartialOrd>(values: &[T]) -> T {
    let mut sorted = values.to_vec();
    sorted.sort_by(|a, b| a.partial_cmp(b).unwrap());
    sorted[sorted.len() / 2]
}

/// Resident memory of a process in KiB.
fn resident(pid: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.and_then(|kib| kib.parse().ok()).expect("VmRSS")
}

/// A reader that does nothing but read; the bytes it was sent.
async fn reader(host: &Host, name: &str, uri: &str) -> (JoinHandle<()>, Arc<AtomicU64>) {
    let mut lean = Lean::open(host, name).await;
    lean.request("subscribe", json!({"channel": uri})).await;
    let bytes = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&bytes);
    let task = tokio::spawn(async move {
        loop {
            let text = lean.next_text().await;
            count.fetch_add(text.len() as u64, Ordering::Relaxed);
        }
    });
    (task, bytes)
}

/// A subscriber that reads nothing at all.
async fn stopped_reader(host: &Host, name: &str, uri: &str) -> Lean {
    let mut lean = Lean::connect(host, Some(4096)).await;
    let hello = json!({"clientId": name, "protocolVersions": ["1.0.0"]});
    lean.start("initialize", hello).await;
    lean.start("subscribe", json!({"channel": uri})).await;
    lean
}

async fn echo_time(terminal: &mut Term) -> Duration {
    terminal.seen.clear();
    let start = Instant::now();
    terminal.input("k").await;
    terminal.wait_text("k").await;
    start.elapsed()
}

/// A host with a flood, a reader of it, and a neighbour.
struct Flood {
    host: Host,
    uri: String,
    neighbour: Term,
    neighbours_client: Raw,
    worker: i32,
    healthy: JoinHandle<()>,
    bytes: Arc<AtomicU64>,
}

impl Flood {
    /// A terminal where `yes` runs, its reader, and a neighbour that echoes. The time its echo takes
    /// while nothing else happens.
    async fn start() -> (Self, Duration) {
        let host = Host::dash();
        let neighbours_client = Raw::open(&host).await;
        let mut neighbour = Term::create(&neighbours_client).await;
        neighbour.start_reader("cat").await;
        let mut idle = Vec::new();
        for _ in 0..200 {
            idle.push(echo_time(&mut neighbour).await);
            tokio::time::sleep(BETWEEN_KEYS).await;
        }
        let uri = new_uri();
        let mut owner = Lean::open(&host, "owner").await;
        owner
            .request("createTerminal", json!({"channel": uri}))
            .await;
        owner.type_line(&uri, "exec yes").await;
        let (healthy, bytes) = reader(&host, "healthy", &uri).await;
        let (worker, _) = host.pids(&uri);
        let this = Self {
            host,
            uri,
            neighbour,
            neighbours_client,
            worker,
            healthy,
            bytes,
        };
        // Scrollback and what is kept for reconnect are full from here on.
        this.moved(24 << 20).await;
        (this, median(&idle))
    }

    /// Waits until the healthy reader was sent so much more.
    async fn moved(&self, bytes: u64) {
        let (since, from) = (Instant::now(), self.bytes.load(Ordering::Relaxed));
        while self.bytes.load(Ordering::Relaxed) < from + bytes {
            assert!(since.elapsed() < Duration::from_secs(60), "yes is slow");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn memory(&self) -> u64 {
        resident(self.host.pid) + resident(self.worker)
    }

    /// What the healthy reader was sent a second, over a moment in which the neighbour types.
    async fn rate(&mut self, echoes: &mut Vec<Duration>) -> f64 {
        let (start, from) = (Instant::now(), self.bytes.load(Ordering::Relaxed));
        while start.elapsed() < Duration::from_millis(200) {
            echoes.push(echo_time(&mut self.neighbour).await);
            tokio::time::sleep(BETWEEN_KEYS).await;
        }
        let moved = self.bytes.load(Ordering::Relaxed) - from;
        moved as f64 / start.elapsed().as_secs_f64()
    }

    fn stop(self) {
        assert!(!self.healthy.is_finished(), "the healthy reader was closed");
        self.healthy.abort();
        drop(self.neighbours_client);
        self.host.stop();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s21_a_stopped_reader_slows_nobody() {
    let (mut flood, idle) = Flood::start().await;
    // Moments with and without take turns, and each pair is one measure: what else the machine does
    // hits both. More of them where it does much.
    let (mut ratios, mut busy) = (Vec::new(), Vec::new());
    for pair in 0..80 {
        let mut without = 0.0;
        let mut with = 0.0;
        for second in [false, true] {
            // Every other pair the other way round, so that a trend hits both as well.
            if second == (pair % 2 == 0) {
                let name = format!("stopped-{pair}");
                let stopped = stopped_reader(&flood.host, &name, &flood.uri).await;
                // It is subscribed, and what it was sent first is written.
                flood.moved(256 << 10).await;
                with = flood.rate(&mut busy).await;
                drop(stopped);
            } else {
                without = flood.rate(&mut Vec::new()).await;
            }
        }
        ratios.push(with / without);
        if pair >= 19 && median(&ratios) >= 0.9 {
            break;
        }
    }
    let (ratio, busy) = (median(&ratios), median(&busy));
    eprintln!(
        "the healthy reader keeps {ratio:.3} of its rate ({} pairs); echo {idle:?} idle, {busy:?} busy",
        ratios.len()
    );
    assert!(ratio >= 0.9, "{ratios:.2?}");
    assert!(
        busy <= (2 * idle).max(Duration::from_millis(15)),
        "echo: {idle:?} idle, {busy:?} with a flood and a stopped reader"
    );
    flood.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s21_a_stopped_reader_costs_a_bounded_amount_of_memory() {
    let (flood, _) = Flood::start().await;
    let closed = || flood.host.log().matches("it read too slowly").count();
    let before = flood.memory();
    let mut peak = before;
    // It is closed in the end, and comes back to stop again.
    for times in 0..4 {
        let name = format!("stopped-{times}");
        let stopped = stopped_reader(&flood.host, &name, &flood.uri).await;
        let since = Instant::now();
        while closed() == times {
            assert!(since.elapsed() < Duration::from_secs(60), "never closed");
            peak = peak.max(flood.memory());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        drop(stopped);
    }
    let grown = peak - before;
    eprintln!("{before} KiB with a healthy reader, at most {grown} KiB more with a stopped one");
    assert!(grown <= 16 << 10, "{before} KiB, then {peak} KiB");
    flood.stop();
}

/// Checks that text is the lines 1, 2, 3, … and nothing else.
struct Lines {
    /// What is expected next is byte `at` of the line with this number.
    number: u64,
    line: String,
    at: usize,
    newline: &'static str,
}

impl Lines {
    fn from(number: u64, newline: &'static str) -> Self {
        Self {
            number,
            line: format!("{number}{newline}"),
            at: 0,
            newline,
        }
    }

    fn position(&self) -> (u64, usize) {
        (self.number, self.at)
    }

    #[track_caller]
    fn feed(&mut self, mut text: &str) {
        while !text.is_empty() {
            let rest = &self.line[self.at..];
            let count = rest.len().min(text.len());
            assert!(
                text.is_char_boundary(count) && text[..count] == rest[..count],
                "expected {rest:?} of line {} and got {:?}",
                self.number,
                text.chars().take(60).collect::<String>()
            );
            text = &text[count..];
            self.at += count;
            if self.at == self.line.len() {
                *self = Self::from(self.number + 1, self.newline);
            }
        }
    }

    /// The text of a snapshot, which begins with a line or before the first one.
    #[track_caller]
    fn of_snapshot(text: &str, newline: &'static str) -> Self {
        let (mut lines, text) = match after_begin(text, newline) {
            Some(rest) => (Self::from(1, newline), rest),
            None => {
                let number = text.split_once(newline).and_then(|(n, _)| n.parse().ok());
                let number = number.unwrap_or_else(|| panic!("begins with {:?}", &text[..40]));
                (Self::from(number, newline), text)
            }
        };
        lines.feed(text);
        lines
    }
}

/// What follows the word that is printed before the first line.
fn after_begin<'a>(text: &'a str, newline: &str) -> Option<&'a str> {
    text.split_once("<begin>")?.1.strip_prefix(newline)
}

/// Cuts a reader's connection `cuts` times while `command` prints numbered lines, every tenth time
/// for so long that no replay reaches back.
async fn cut_and_resume(command: &str, cuts: usize, long_gap: u64) {
    let host = Host::dash();
    let uri = new_uri();
    let mut lean = Lean::open(&host, "cut").await;
    lean.request("createTerminal", json!({"channel": uri}))
        .await;
    let subscribed = lean.request("subscribe", json!({"channel": uri})).await;
    let is_pty = subscribed["snapshot"]["state"]["isPty"] != false;
    let newline = if is_pty { "\r\n" } else { "\n" };
    let mut lines = Lines::from(1, newline);
    lean.type_line(
        &uri,
        &format!("stty -echo 2>/dev/null; printf '<be''gin>\\n'; {command}"),
    )
    .await;
    let mut seen = String::new();
    loop {
        let envelope = lean.next_action().await;
        seen.push_str(envelope.action.data.as_deref().unwrap_or(""));
        if let Some(rest) = after_begin(&seen, newline) {
            lines.feed(rest);
            break;
        }
    }
    let (watcher, watched) = reader(&host, "watcher", &uri).await;

    let (mut replays, mut snapshots) = (0, 0);
    for cut in 0..cuts {
        // A few messages; how many is different every time.
        for _ in 0..1 + cut % 7 {
            let envelope = lean.next_action().await;
            assert_eq!(envelope.channel, uri);
            lines.feed(envelope.action.data.as_deref().expect("data"));
        }
        let last_seen = lean.last_seq;
        let old = lean;
        // One in three is not cut before the client comes back: two transports overlap.
        let overlapping = (cut % 3 == 2).then_some(old);
        if cut % 10 == 9 {
            let from = watched.load(Ordering::Relaxed);
            let since = Instant::now();
            while watched.load(Ordering::Relaxed) < from + long_gap {
                assert!(since.elapsed() < Duration::from_secs(30), "it stands still");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
        lean = Lean::connect(&host, None).await;
        lean.last_seq = last_seen;
        let params = json!({
            "clientId": "cut", "lastSeenServerSeq": last_seen, "subscriptions": [uri],
        });
        let result = lean.request("reconnect", params).await;
        drop(overlapping);
        if result["type"] == "replay" {
            replays += 1;
            assert_eq!(result["missing"], json!([]));
            for action in result["actions"].as_array().expect("actions") {
                assert_eq!(action["channel"], uri.as_str());
                lean.saw(action["serverSeq"].as_u64().expect("a number"));
                lines.feed(action["action"]["data"].as_str().expect("data"));
            }
        } else {
            snapshots += 1;
            assert_eq!(result["snapshots"].as_array().expect("snapshots").len(), 1);
            let folded = Folded::new(&result["snapshots"][0]);
            let fresh = Lines::of_snapshot(&folded.text(), newline);
            assert!(
                fresh.position() >= lines.position(),
                "the snapshot ends before what was seen"
            );
            lines = fresh;
            assert!(folded.seq >= lean.last_seq);
            lean.last_seq = folded.seq;
        }
    }
    eprintln!(
        "{cuts} cuts: {replays} replays, {snapshots} snapshots, {} lines",
        lines.number
    );
    assert!(snapshots >= cuts / 10 && replays >= cuts / 4);
    assert!(!watcher.is_finished(), "the watcher was closed");
    watcher.abort();
    host.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s21_a_connection_cut_200_times_in_a_flood_loses_and_repeats_nothing() {
    cut_and_resume("exec seq 999999999999", 200, 6 << 20).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s21_a_connection_cut_in_small_output_loses_and_repeats_nothing() {
    cut_and_resume("i=0; while :; do i=$((i+1)); echo $i; done", 30, 6 << 20).await;
}
