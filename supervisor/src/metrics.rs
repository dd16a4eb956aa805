//! What the host counts, and how a scrape shows it: the Prometheus text format, version 0.0.4.
//!
//! Counters are relaxed atomics in one place that everybody shares: counting takes no lock and
//! allocates nothing, so the output path does not notice. No label names a terminal, a connection or
//! anything else a client chooses, so a scrape has the same lines for ever.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::limits::{LATENCY_BUCKETS, REFUSAL_CODES};

/// The content type of [`Metrics::render`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts one.
    pub fn one(&self) {
        self.add(1);
    }

    /// Counts `amount`.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// What was counted.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How long things took, in the buckets of [`LATENCY_BUCKETS`].
#[derive(Debug, Default)]
pub struct Histogram {
    /// One per bound, each without what the smaller ones hold, and what is above the largest.
    buckets: [Counter; LATENCY_BUCKETS.len() + 1],
    micros: Counter,
}

impl Histogram {
    /// Something took this long.
    pub fn observe(&self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let place = LATENCY_BUCKETS.partition_point(|(bound, _)| *bound < micros);
        // There is one bucket more than bounds.
        if let Some(bucket) = self.buckets.get(place) {
            bucket.one();
        }
        self.micros.add(micros);
    }

    fn render(&self, out: &mut Page, name: &str, help: &str) {
        out.head(name, help, "histogram");
        let mut count = 0;
        let bounds = LATENCY_BUCKETS.iter().map(|(_, text)| *text);
        for (bucket, bound) in self.buckets.iter().zip(bounds.chain(["+Inf"])) {
            count += bucket.get();
            out.sample(&format!("{name}_bucket"), &[("le", bound)], count);
        }
        let micros = self.micros.get();
        let sum = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
        out.sample(&format!("{name}_sum"), &[], sum);
        // The sum of what was read above, not a number of its own: it must be the same as +Inf.
        out.sample(&format!("{name}_count"), &[], count);
    }
}

/// Refused requests by their code; one place more than there are codes, for any other.
#[derive(Debug, Default)]
pub struct Refusals([Counter; REFUSAL_CODES.len() + 1]);

impl Refusals {
    /// One was refused with `code`: an HTTP status, or an error code of the protocol.
    pub fn one(&self, code: i32) {
        let known = REFUSAL_CODES.iter().position(|known| *known == code);
        if let Some(counter) = self.0.get(known.unwrap_or(REFUSAL_CODES.len())) {
            counter.one();
        }
    }

    fn render(&self, out: &mut Page, name: &str, help: &str) {
        out.head(name, help, "counter");
        let codes = REFUSAL_CODES.iter().map(i32::to_string);
        for (counter, code) in self.0.iter().zip(codes.chain(["other".to_owned()])) {
            out.sample(name, &[("code", &code)], counter.get());
        }
    }
}

/// What is so at this moment; the core knows.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Gauges {
    /// Terminals without a shell yet.
    pub starting: usize,
    /// Terminals whose shell runs.
    pub running: usize,
    /// Terminals whose shell has ended.
    pub exited: usize,
    /// Terminals whose worker ended, and not their shell; they are not among the exited ones.
    pub crashed: usize,
    /// Terminals whose worker was stopped; they are not among the running ones.
    pub unresponsive: usize,
    /// Terminals that were told to end.
    pub ending: usize,
    /// WebSockets.
    pub connections: usize,
    /// What waits for all of them, in bytes.
    pub outbox_sum: usize,
    /// What waits for the one with the most, in bytes.
    pub outbox_max: usize,
    /// Input that waits for all shells, in bytes.
    pub input_sum: usize,
    /// Input that waits for the shell with the most, in bytes.
    pub input_max: usize,
    /// Workers that a supervisor before this one left and that were not taken over.
    pub unadopted: usize,
}

/// Everything that is counted.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Worker processes that came to be.
    pub worker_starts: Counter,
    /// Worker processes that did not end as they should.
    pub worker_crashes: Counter,
    /// Terminals that could not be started.
    pub starts_failed: Counter,
    /// Shells that were started again in their terminal.
    pub worker_restarts: Counter,
    /// Workers taken over from a supervisor before this one.
    pub workers_adopted: Counter,
    /// Bytes that terminals wrote, as clients are sent them.
    pub output_bytes: Counter,
    /// Bytes that were typed and accepted.
    pub input_bytes: Counter,
    /// Connections closed for reading too slowly.
    pub slow_readers: Counter,
    /// Connections dropped because the other side had gone without a word.
    pub lost_connections: Counter,
    /// Requests that were refused.
    pub refused: Refusals,
    /// Dispatched actions that were refused.
    pub dispatches_refused: Counter,
    /// From an accepted `createTerminal` to a running shell.
    pub start: Histogram,
    /// From accepted input to the terminal's next output.
    pub echo: Histogram,
}

impl Metrics {
    /// The page that a scrape gets.
    #[must_use]
    pub fn render(&self, now: &Gauges) -> String {
        let mut out = Page(String::with_capacity(8 << 10));
        let wire = shellward_protocol::WIRE_VERSION.to_string();
        let name = "shellward_build_info";
        out.head(name, "The program that answers; always 1.", "gauge");
        out.sample(
            name,
            &[("version", env!("CARGO_PKG_VERSION")), ("wire", &wire)],
            1,
        );
        let name = "shellward_terminals";
        out.head(name, "Terminals, by state.", "gauge");
        for (state, count) in [
            ("starting", now.starting),
            ("running", now.running),
            ("unresponsive", now.unresponsive),
            ("exited", now.exited),
            ("crashed", now.crashed),
            ("ending", now.ending),
        ] {
            out.sample(name, &[("state", state)], count);
        }
        for (name, help, value) in [
            ("connections", "WebSockets that are open.", now.connections),
            (
                "outbox_bytes",
                "Bytes that wait for all connections.",
                now.outbox_sum,
            ),
            (
                "outbox_max_bytes",
                "Bytes that wait for the connection with the most.",
                now.outbox_max,
            ),
            (
                "input_queue_bytes",
                "Bytes of input that wait for all shells.",
                now.input_sum,
            ),
            (
                "input_queue_max_bytes",
                "Bytes of input that wait for the shell with the most.",
                now.input_max,
            ),
            (
                "workers_unadopted",
                "Workers that were left by a supervisor before and could not be taken over.",
                now.unadopted,
            ),
        ] {
            let name = format!("shellward_{name}");
            out.head(&name, help, "gauge");
            out.sample(&name, &[], value);
        }
        for (name, help, counter) in [
            (
                "worker_starts",
                "Worker processes that were started.",
                &self.worker_starts,
            ),
            (
                "worker_crashes",
                "Worker processes that were killed, failed or broke the contract.",
                &self.worker_crashes,
            ),
            (
                "worker_restarts",
                "Shells that were started again in their terminal.",
                &self.worker_restarts,
            ),
            (
                "workers_adopted",
                "Workers that were taken over from a supervisor before.",
                &self.workers_adopted,
            ),
            (
                "starts_failed",
                "Terminals that could not be started.",
                &self.starts_failed,
            ),
            (
                "output_bytes",
                "Bytes of terminals' output, as clients are sent them.",
                &self.output_bytes,
            ),
            (
                "input_bytes",
                "Bytes typed into terminals.",
                &self.input_bytes,
            ),
            (
                "slow_readers_closed",
                "Connections closed because they read too slowly.",
                &self.slow_readers,
            ),
            (
                "connections_lost",
                "Connections dropped because the other side did not answer a ping.",
                &self.lost_connections,
            ),
            (
                "dispatches_refused",
                "Dispatched actions that were refused.",
                &self.dispatches_refused,
            ),
        ] {
            let name = format!("shellward_{name}_total");
            out.head(&name, help, "counter");
            out.sample(&name, &[], counter.get());
        }
        self.refused.render(
            &mut out,
            "shellward_requests_refused_total",
            "Refused requests, by HTTP status or by the protocol's error code.",
        );
        self.start.render(
            &mut out,
            "shellward_start_seconds",
            "From an accepted createTerminal to a running shell.",
        );
        self.echo.render(
            &mut out,
            "shellward_echo_seconds",
            "From accepted input to the next output of its terminal, whatever that is.",
        );
        out.0
    }
}

/// The text of a scrape as it is written.
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        self.line(format_args!("# HELP {name} {}\n", escaped(help, false)));
        self.line(format_args!("# TYPE {name} {kind}\n"));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let opening = if index == 0 { '{' } else { ',' };
            self.line(format_args!("{opening}{label}=\"{}\"", escaped(text, true)));
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        self.line(format_args!(" {value}\n"));
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        self.0.write_fmt(text).unwrap_or_default();
    }
}

/// Text of a HELP line, or of a label, which stands in quotes.
fn escaped(text: &str, is_label: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if is_label => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests;
