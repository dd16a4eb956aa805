//! The log on stderr. It can neither fail nor block whoever writes to it.
//!
//! A full disk, a closed window or a pipe that nobody reads must not stop the host: lines go
//! through a bounded queue to a thread of their own, and what does not fit is counted and dropped.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use tracing_subscriber::fmt::MakeWriter;

use crate::config::LogFormat;

mod json;

pub use json::JsonLines;

/// Lines that may wait for stderr. A burst at the debug level is a few hundred.
const WAITING_LINES: usize = 2048;

/// The longest line, in bytes; names and reasons are bounded well below.
const LINE_BYTES: usize = 16 << 10;

/// How long the end of the program waits for the last lines.
const FLUSH_TIME: Duration = Duration::from_millis(500);

enum Item {
    Line(Vec<u8>),
    /// Answered when everything before it is written.
    Flush(SyncSender<()>),
}

/// Where log lines go.
#[derive(Clone)]
pub struct Log {
    lines: SyncSender<Item>,
    dropped: Arc<AtomicU64>,
}

/// One line on its way.
pub struct Line {
    log: Log,
    bytes: Vec<u8>,
}

impl Log {
    /// A log on `sink`, which a thread of its own writes to.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn to(sink: impl Write + Send + 'static, format: LogFormat) -> io::Result<Self> {
        let (lines, receiver) = sync_channel(WAITING_LINES);
        let dropped = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&dropped);
        std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || write_lines(sink, &receiver, &counter, format))?;
        Ok(Self { lines, dropped })
    }

    /// Waits until what was logged is written, but not for long.
    pub fn flush(&self) {
        let (done, wait) = sync_channel(1);
        let end = Instant::now() + FLUSH_TIME;
        while Instant::now() < end {
            if self.lines.try_send(Item::Flush(done.clone())).is_ok() {
                // A sink that blocks is not waited for.
                match wait.recv_timeout(end.saturating_duration_since(Instant::now())) {
                    Ok(()) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                        return;
                    }
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn write_lines(
    mut sink: impl Write,
    lines: &Receiver<Item>,
    dropped: &AtomicU64,
    format: LogFormat,
) {
    for item in lines {
        match item {
            // Nobody can be told that the log cannot be written.
            Item::Line(line) => drop(sink.write_all(&line)),
            Item::Flush(done) => drop(done.try_send(())),
        }
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            let words = format!("{lost} log lines were dropped: stderr is read too slowly");
            drop(match format {
                LogFormat::Text => writeln!(sink, "({words})"),
                LogFormat::Json => writeln!(sink, "{}", json::line("warn", &words)),
            });
        }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = LINE_BYTES.saturating_sub(self.bytes.len());
        self.bytes
            .extend_from_slice(bytes.get(..room.min(bytes.len())).unwrap_or_default());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        if !bytes.ends_with(b"\n") {
            bytes.push(b'\n');
        }
        if self.log.lines.try_send(Item::Line(bytes)).is_err() {
            self.log.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Line;

    fn make_writer(&self) -> Line {
        Line {
            log: self.clone(),
            bytes: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    #[derive(Clone, Default)]
    pub(super) struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Shared {
        pub fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    struct Broken;

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Blocks until it is let go.
    struct Stuck(Receiver<()>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.recv().ok();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn say(log: &Log, text: &str) {
        log.make_writer().write_all(text.as_bytes()).unwrap();
    }

    #[test]
    fn lines_arrive_in_order_and_bounded() {
        let sink = Shared::default();
        let log = Log::to(sink.clone(), LogFormat::Text).unwrap();
        say(&log, "one\n");
        say(&log, &"x".repeat(100_000));
        say(&log, "two");
        log.flush();
        let text = sink.text();
        let lines: Vec<usize> = text.lines().map(str::len).collect();
        assert_eq!(lines, [3, LINE_BYTES, 3]);
    }

    #[test]
    fn a_sink_that_fails_or_blocks_harms_nobody() {
        let log = Log::to(Broken, LogFormat::Text).unwrap();
        say(&log, "lost");
        log.flush();

        let (let_go, stuck) = channel();
        let log = Log::to(Stuck(stuck), LogFormat::Text).unwrap();
        for _ in 0..WAITING_LINES + 100 {
            say(&log, "x");
        }
        assert!(log.dropped.load(Ordering::Relaxed) >= 99);
        drop(let_go);
    }

    #[test]
    fn what_was_dropped_is_said_in_the_format_of_the_rest() {
        for format in [LogFormat::Text, LogFormat::Json] {
            let sink = Shared::default();
            let log = Log::to(sink.clone(), format).unwrap();
            log.dropped.fetch_add(3, Ordering::Relaxed);
            say(&log, "{}\n");
            log.flush();
            let text = sink.text();
            let said = text.lines().nth(1).unwrap();
            assert!(said.contains("3 log lines were dropped"), "{text}");
            if format == LogFormat::Json {
                let said: serde_json::Value = serde_json::from_str(said).unwrap();
                assert_eq!(said["level"], "warn");
            }
        }
    }
}
