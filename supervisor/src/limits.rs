//! Every bound of the supervisor, each with its reason.

use std::time::Duration;

/// Scrollback kept per terminal, in characters (design.md).
pub const SCROLLBACK_CHARS: usize = 200_000;

/// Scrollback is trimmed when it holds this many characters, back to [`SCROLLBACK_CHARS`].
///
/// Twice as many, so that trimming moves each byte once and not once per chunk.
pub const SCROLLBACK_SLACK_CHARS: usize = 2 * SCROLLBACK_CHARS;

/// Parts of a terminal's content, besides the one that restores modes: a thousand commands and what
/// stands between them. A part costs 150 bytes in every snapshot, and a program can print marks
/// without any text, so characters alone do not bound them.
pub const CONTENT_PARTS: usize = 2048;

/// Parts are trimmed when there are this many, back to [`CONTENT_PARTS`]; see
/// [`SCROLLBACK_SLACK_CHARS`].
pub const CONTENT_SLACK_PARTS: usize = 2 * CONTENT_PARTS;

/// What restores modes has no more characters than this; they are taken from
/// [`SCROLLBACK_CHARS`]. A test holds it against every mode there is.
pub const RESTORE_CHARS: usize = 256;

/// The longest title, in characters (issue 2).
pub const TITLE_CHARS: usize = 200;

/// A program that keeps changing its title has the root list sent no more often than this: the list
/// names every terminal, and its readers did not ask to follow this one.
pub const TITLE_LIST_TIME: Duration = Duration::from_millis(100);

/// The longest URI a client may name a terminal with, in bytes. Long enough for any real one.
pub const URI_BYTES: usize = 2048;

/// The longest `clientId`, in bytes. Real ones are UUIDs.
pub const CLIENT_ID_BYTES: usize = 256;

/// Terminals on one host. Each is a process and three descriptors; a runaway script stops here.
pub const TERMINALS: usize = 1024;

/// Terminals starting at the same time: start-up is CPU work, and two cores gain nothing from more.
pub const PARALLEL_STARTS: usize = 8;

/// The largest WebSocket message a client may send, in bytes: an input of
/// `INPUT_PENDING_MAX` (1 MiB) as JSON, with escapes.
pub const MESSAGE_BYTES: usize = 2 << 20;

/// The largest HTTP request head, in bytes (field case S-32).
pub const REQUEST_HEAD_BYTES: usize = 16 << 10;

/// How long a client may take to send its request head.
pub const REQUEST_HEAD_TIME: Duration = Duration::from_secs(5);

/// How deep a client's JSON may be nested. The protocol's deepest message has fewer than 20 levels.
pub const JSON_DEPTH: usize = 64;

/// How long a socket may stay open without a successful `initialize` or `reconnect`.
pub const INITIALIZE_TIME: Duration = Duration::from_secs(10);

/// Messages that are not JSON-RPC before a connection is closed: a client that sends one by
/// mistake lives on, one that sends only such is not a client.
pub const MALFORMED_MESSAGES: u32 = 16;

/// WebSockets open at once, all listeners together. Each costs about 20 KiB when idle.
pub const SOCKETS: usize = 512;

/// Connections whose request is not answered yet, on TCP and on unix sockets each. They may be
/// strangers, so they have places of their own; each has [`REQUEST_HEAD_TIME`].
pub const ARRIVING_SOCKETS: usize = 128;

/// Channels one connection may be subscribed to.
pub const SUBSCRIPTIONS: usize = 1024;

/// Output waiting for one connection, in bytes, before it is closed as too slow; it comes back
/// through `reconnect`. A quarter of the 16 MiB that design.md allows a stopped reader to cost.
pub const OUTBOX_BYTES: usize = 4 << 20;

/// Messages that wait for a connection's writer before small output is joined: a writer that keeps
/// up takes each turn's few at once, and they are never copied for it.
pub const OUTBOX_JOIN_AFTER: usize = 8;

/// Output in a larger message than this is not joined, in bytes: its envelope of some 150 bytes is
/// less than 4 % of it, and the copy is made under the core's lock.
pub const OUTBOX_JOIN_BYTES: usize = 4 << 10;

/// Output is joined to no message that has more than this, in bytes: larger ones save nothing
/// further, and a client handles one at a time.
pub const OUTBOX_JOINED_BYTES: usize = 64 << 10;

/// A terminal whose fastest reader has this much waiting is not read further, in bytes.
pub const OUTBOX_PAUSE_BYTES: usize = 512 << 10;

/// A paused terminal is read again once that reader has no more than this waiting, in bytes.
pub const OUTBOX_RESUME_BYTES: usize = 128 << 10;

/// Envelopes kept for `reconnect`, in bytes: half a second of one busy terminal, hours of typing.
pub const REPLAY_BYTES: usize = 4 << 20;

/// Envelopes kept for `reconnect`, in number, so that tiny ones cannot grow the index.
pub const REPLAY_ENVELOPES: usize = 16_384;

/// How long after its last subscriber's connection was lost a terminal's output is still recorded
/// for `reconnect`. VS Code's ten tries take about two minutes.
pub const RECORD_AFTER_LOSS: Duration = Duration::from_secs(120);

/// Clients remembered for `reconnect`; the one unseen for longest gives way.
pub const REMEMBERED_CLIENTS: usize = 1024;

/// The file that holds them, in bytes: an entry has about 150, and a host reads no more than this
/// of a file that may be anything.
pub const CLIENTS_FILE_BYTES: usize = 1 << 20;

/// Requests that wait for one terminal which is starting or ending, or for the probe's answer, in
/// number.
pub const WAITING_REQUESTS: usize = 256;

/// Requests that wait for a terminal which is starting or ending, in bytes.
pub const WAITING_BYTES: usize = 2 << 20;

/// From fork to the shell's start. The slowest start seen under load took 0.4 s.
pub const START_TIME: Duration = Duration::from_secs(15);

/// How long HUP and TERM may take before KILL when a terminal is disposed, in milliseconds.
pub const TERMINATE_GRACE_MS: u32 = 400;

/// How long a worker may take to end its terminal before it is killed itself.
pub const TERMINATE_TIME: Duration = Duration::from_secs(4);

/// How long a stopped worker (SIGSTOP) may stay stopped before its terminal is ended.
pub const STOPPED_WORKER_TIME: Duration = Duration::from_secs(5);

/// A terminal that was watched when the former supervisor went does not wait for its readers with
/// this much output, in bytes: less than the scrollback holds, so that whoever comes back still finds
/// it in the snapshot.
pub const HOLD_BYTES: usize = SCROLLBACK_CHARS / 2;

/// How long a worker that was found may take to answer, at each step. A busy machine takes longer
/// than a quiet one, but nobody is served before all were asked (field case S-36: no answer means
/// unknown).
pub const ADOPT_TIME: Duration = Duration::from_secs(3);

/// How often a worker that did not answer is asked again, in the background.
pub const ADOPT_AGAIN: Duration = Duration::from_secs(5);

/// A token beside which no socket appears for this long is nobody's: [`START_TIME`], generously.
pub const STALE_TOKEN_TIME: Duration = Duration::from_secs(60);

/// Workers that are taken over at the same time: each may bring a scrollback along, twice.
pub const PARALLEL_ADOPTIONS: usize = 16;

/// How long output that was watched waits for the next supervisor, unless `--reattach-grace` says
/// otherwise (issue 5).
pub const REATTACH_GRACE: Duration = Duration::from_secs(5);

/// How long terminals outlive their supervisor, unless `--orphan-timeout` says otherwise (issue 5).
pub const ORPHAN_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// How long a terminal waits before its shell is started again after a crash, the first time and
/// each further time within [`CRASH_TIME`]. One more crash ends it (issue 5: three in a minute).
pub const CRASH_DELAYS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];

/// How long a crash is remembered for [`CRASH_DELAYS`].
pub const CRASH_TIME: Duration = Duration::from_secs(60);

/// How long an orderly shutdown may take altogether.
pub const SHUTDOWN_TIME: Duration = Duration::from_secs(8);

/// How long the probe may take (design.md).
pub const PROBE_TIME: Duration = Duration::from_secs(3);

/// What is kept of a probe's stderr, in bytes: a loader's message is one line.
pub const PROBE_WORDS_BYTES: usize = 1024;

/// Workers that die one after the other before their shell runs, until the probe is asked again.
pub const CRASHES_AT_START: u32 = 3;

/// The longest line taken from a worker's log pipe, in bytes (OpenSSH does the same).
pub const WORKER_LOG_LINE_BYTES: usize = 4096;

/// Wrong tokens answered at the same time, each after [`WRONG_TOKEN_DELAY`]; more are turned away
/// at once. A right one is never held up (field case S-29; a guess at 256 random bits is hopeless,
/// and a token of one's own should be as long).
pub const WRONG_TOKEN_SLOTS: usize = 16;

/// How long a wrong token waits for its answer.
pub const WRONG_TOKEN_DELAY: Duration = Duration::from_millis(250);

/// How long a closing connection may take to send what is left.
pub const CLOSE_TIME: Duration = Duration::from_secs(2);

/// Pings one connection may send in a burst; one more is allowed every [`PING_TIME`]. Each is
/// answered by the WebSocket library, outside the bounds of the outbox.
pub const PINGS: u32 = 64;

/// See [`PINGS`]. Clients ping every few seconds.
pub const PING_TIME: Duration = Duration::from_millis(250);

/// How long nothing comes from a client, and its socket takes nothing, until it is asked with a
/// WebSocket ping whether it is there. Clients that have something to fear (VS Code) ask us every 5 s.
pub const PING_AFTER: Duration = Duration::from_secs(30);

/// How long it may take to answer, or its socket to take something: four times the longest round
/// trip seen on mobile networks. After both times a connection that was lost is dropped.
pub const PING_ANSWER: Duration = Duration::from_secs(20);

/// The longest connection token, in bytes.
pub const TOKEN_BYTES: usize = 1024;

/// A unix socket path's length limit in bytes, without the final NUL (unix(7), `sun_path`).
pub const SOCKET_PATH_BYTES: usize = 107;

/// The bounds of what is measured in time, in microseconds, and as a scrape shows them. From an echo
/// without a pause (0.1 ms in a quiet host) to a start that is about to be given up.
pub const LATENCY_BUCKETS: [(u64, &str); 15] = [
    (100, "0.0001"),
    (250, "0.00025"),
    (500, "0.0005"),
    (1_000, "0.001"),
    (2_500, "0.0025"),
    (5_000, "0.005"),
    (10_000, "0.01"),
    (25_000, "0.025"),
    (50_000, "0.05"),
    (100_000, "0.1"),
    (250_000, "0.25"),
    (500_000, "0.5"),
    (1_000_000, "1"),
    (5_000_000, "5"),
    (15_000_000, "15"),
];

/// The codes that refused requests are told apart by: every one this host gives. Whatever else there
/// may be is counted as `other`, so that a scrape has the same lines for ever.
pub const REFUSAL_CODES: [i32; 15] = [
    400, 401, 403, 426, 429, 503, -32600, -32601, -32602, -32603, -32001, -32003, -32005, -32008,
    -32009,
];
