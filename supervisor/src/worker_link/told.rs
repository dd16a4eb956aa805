//! What a worker has told so far, and whether it may tell what it tells now.
//!
//! Its words are data (ARCHITECTURE.md): the order of the stream, UTF-8 and sense are checked here,
//! and what does not hold ends that terminal alone.

use shellward_protocol::kept::{Kept, Lost, Newest};
use shellward_protocol::limits::{ACK_BYTES, ACK_FRAMES};
use shellward_protocol::message::{Event, Happened as Told, Output};

use crate::core::{Happened, command_end};

/// A worker's stream so far.
#[derive(Debug)]
pub(super) struct Stream {
    is_pty: bool,
    offset: u64,
    acknowledged: u64,
    /// Frames since then.
    frames: usize,
    exited: bool,
    detects: bool,
    command_open: bool,
}

type Checked<T> = Result<T, &'static str>;

impl Stream {
    pub fn new(is_pty: bool) -> Self {
        Self {
            is_pty,
            offset: 0,
            acknowledged: 0,
            frames: 0,
            exited: false,
            detects: false,
            command_open: false,
        }
    }

    /// The stream of a terminal that was taken over.
    pub fn resumed(kept: &Kept<'_>) -> Self {
        Self {
            is_pty: kept.is_pty,
            offset: kept.offset,
            acknowledged: kept.offset,
            frames: 0,
            exited: false,
            detects: kept.can_detect,
            command_open: matches!(kept.commands.newest, Newest::Running { .. }),
        }
    }

    /// Where it is.
    pub fn place(&self) -> u64 {
        self.offset
    }

    /// A stretch that gave way while no supervisor was there: what happened in it, in order.
    pub fn lost(&mut self, lost: &Lost<'_>) -> Checked<Vec<Happened>> {
        if lost.offset != self.offset {
            return Err("its output has a hole beside the one it tells of");
        }
        self.offset = match self.offset.checked_add(lost.places) {
            Some(offset) if lost.places > 0 && lost.bytes <= lost.places => offset,
            _ => return Err("it tells of a hole that makes no sense"),
        };
        self.frames += 1;
        let mut events = Vec::new();
        if lost.can_detect {
            self.on_a_pty()?;
            self.detects = true;
            events.push(Happened::CanDetectCommands);
        }
        if let Some(end) = &lost.finished {
            if !std::mem::replace(&mut self.command_open, false) {
                return Err("a command finished that had not started");
            }
            let end = command_end(end.exit_code, end.duration_ms)?;
            events.push(Happened::CommandFinished(end));
        }
        if let Some(path) = &lost.directory {
            events.push(Happened::directory(path.as_slice())?);
        }
        if let Some(title) = &lost.title {
            events.push(Happened::title(title.as_slice())?);
        }
        if let Some(started) = &lost.started {
            if std::mem::replace(&mut self.command_open, true) {
                return Err("a command started before the former had finished");
            }
            events.push(Happened::started(started.line.as_slice(), started.at_ms)?);
        }
        Ok(events)
    }

    /// The text of a piece of output.
    pub fn output<'a>(&mut self, output: &'a Output<'_>) -> Checked<&'a str> {
        if output.offset != self.offset {
            return Err("its output has a hole");
        }
        let text =
            std::str::from_utf8(output.data.as_slice()).map_err(|_| "its output is not UTF-8")?;
        if text.is_empty() {
            return Err("it sent empty output");
        }
        self.offset += text.len() as u64;
        self.frames += 1;
        Ok(text)
    }

    /// An event as the core takes it.
    pub fn event(&mut self, event: Event<'_>) -> Checked<Happened> {
        if event.offset != self.offset {
            return Err("its events have a hole");
        }
        self.offset += 1;
        self.frames += 1;
        match event.what {
            Told::CanDetectCommands => {
                self.on_a_pty()?;
                if std::mem::replace(&mut self.detects, true) {
                    return Err("it found out twice that it can detect commands");
                }
                Ok(Happened::CanDetectCommands)
            }
            Told::CommandStarted { line, at_ms } => {
                self.on_a_pty()?;
                if std::mem::replace(&mut self.command_open, true) {
                    return Err("a command started before the former had finished");
                }
                Happened::started(line.as_slice(), at_ms)
            }
            Told::CommandFinished {
                exit_code,
                duration_ms,
            } => {
                self.on_a_pty()?;
                if !std::mem::replace(&mut self.command_open, false) {
                    return Err("a command finished that had not started");
                }
                command_end(exit_code, duration_ms).map(Happened::CommandFinished)
            }
            Told::Directory(path) => Happened::directory(path.as_slice()),
            Told::Title(title) => Happened::title(title.as_slice()),
        }
    }

    /// The exit, which comes once.
    pub fn exit(&mut self) -> Checked<()> {
        if std::mem::replace(&mut self.exited, true) {
            return Err("it announced two exits");
        }
        Ok(())
    }

    /// What to acknowledge now, if a stride is full.
    pub fn acknowledge(&mut self) -> Option<u64> {
        let is_due = self.offset - self.acknowledged >= ACK_BYTES || self.frames >= ACK_FRAMES;
        is_due.then(|| {
            self.acknowledged = self.offset;
            self.frames = 0;
            self.offset
        })
    }

    fn on_a_pty(&self) -> Checked<()> {
        if self.is_pty {
            Ok(())
        } else {
            Err("it tells commands apart on pipes")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scrollback::CommandEnd;
    use shellward_protocol::Data;
    use shellward_protocol::kept;

    fn tell(stream: &mut Stream, what: Told<'_>) -> Checked<Happened> {
        stream.event(Event {
            offset: stream.offset,
            what,
        })
    }

    fn started(line: &[u8]) -> Told<'_> {
        Told::CommandStarted {
            line: Data::borrowed(line),
            at_ms: 7,
        }
    }

    const FINISHED: Told<'_> = Told::CommandFinished {
        exit_code: Some(3),
        duration_ms: 5,
    };

    #[test]
    fn commands_come_one_after_the_other() {
        let mut stream = Stream::new(true);
        assert!(tell(&mut stream, FINISHED).is_err());
        let mut stream = Stream::new(true);
        assert!(tell(&mut stream, Told::CanDetectCommands).is_ok());
        for _ in 0..2 {
            assert_eq!(
                tell(&mut stream, started(b"a\nb")),
                Ok(Happened::CommandStarted {
                    line: "a\nb".into(),
                    timestamp: 7
                })
            );
            assert_eq!(
                tell(&mut stream, FINISHED),
                Ok(Happened::CommandFinished(CommandEnd {
                    exit_code: Some(3),
                    duration_ms: Some(5)
                }))
            );
        }
        assert_eq!(stream.offset, 5);
        assert!(tell(&mut stream, Told::CanDetectCommands).is_err());
        let mut stream = Stream::new(true);
        assert!(tell(&mut stream, started(b"")).is_ok());
        assert!(tell(&mut stream, started(b"")).is_err());
    }

    #[test]
    fn what_happened_in_a_gap_is_told_in_order_and_must_make_sense() {
        let open = |line| kept::Started {
            line: Data::borrowed(line),
            at_ms: 7,
        };
        let lost = || Lost {
            offset: 0,
            places: 10,
            bytes: 5,
            modes: shellward_protocol::Modes::default(),
            can_detect: true,
            finished: Some(kept::Finished {
                exit_code: Some(3),
                duration_ms: 5,
            }),
            started: Some(open(b"vim")),
            directory: Some(Data::borrowed(b"/a")),
            title: Some(Data::borrowed(b"t")),
        };
        let mut stream = Stream::new(true);
        assert!(stream.lost(&lost()).is_err(), "no command was open");
        let mut stream = Stream::new(true);
        stream.command_open = true;
        let events = stream.lost(&lost()).unwrap();
        assert_eq!(events.len(), 5);
        assert_eq!(events[0], Happened::CanDetectCommands);
        assert_eq!(events[2], Happened::Directory("/a".into()));
        let last = Happened::CommandStarted {
            line: "vim".into(),
            timestamp: 7,
        };
        assert_eq!(events[4], last);
        assert_eq!(stream.place(), 10);
        for bad in [
            Lost {
                offset: 1,
                ..lost()
            },
            Lost {
                places: 0,
                bytes: 0,
                ..lost()
            },
            Lost {
                bytes: 11,
                ..lost()
            },
            Lost {
                title: Some(Data::borrowed(b"\xff")),
                ..lost()
            },
            Lost {
                directory: Some(Data::borrowed(b"a")),
                ..lost()
            },
            Lost {
                started: Some(open(b"\xff")),
                ..lost()
            },
            Lost {
                started: Some(kept::Started {
                    at_ms: 1 << 53,
                    ..open(b"x")
                }),
                ..lost()
            },
        ] {
            let mut stream = Stream::new(true);
            stream.command_open = true;
            assert!(stream.lost(&bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn on_pipes_nothing_tells_commands_apart() {
        for what in [Told::CanDetectCommands, started(b"x"), FINISHED] {
            assert!(tell(&mut Stream::new(false), what).is_err());
        }
        assert!(tell(&mut Stream::new(false), Told::Title(Data::borrowed(b"x"))).is_ok());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let long = |at_ms| Told::CommandStarted {
            line: Data::borrowed(b""),
            at_ms,
        };
        for bad in [
            started(b"\xff"),
            Told::Title(Data::borrowed(b"\xff")),
            Told::Directory(Data::borrowed(b"")),
            Told::Directory(Data::borrowed(b"a/b")),
            Told::Directory(Data::borrowed(b"/a\nb")),
            Told::Directory(Data::borrowed(b"/a\x7f")),
            Told::Directory(Data::borrowed(b"/a\0")),
            long(1 << 53),
            long(u64::MAX),
        ] {
            assert!(
                tell(&mut Stream::new(true), bad.clone()).is_err(),
                "{bad:?}"
            );
        }
        assert!(tell(&mut Stream::new(true), long((1 << 53) - 1)).is_ok());
        let mut stream = Stream::new(true);
        assert!(
            tell(&mut stream, Told::Directory(Data::borrowed(b"/a\xff"))).is_ok(),
            "a name need not be UTF-8"
        );
    }

    #[test]
    fn the_stream_has_no_holes_and_events_are_acknowledged_like_bytes() {
        let mut stream = Stream::new(true);
        let output = |offset, data| Output {
            offset,
            cuts: vec![],
            data: Data::borrowed(data),
        };
        assert_eq!(stream.output(&output(0, "漢".as_bytes())), Ok("漢"));
        assert!(stream.output(&output(2, b"x")).is_err());
        assert!(stream.output(&output(3, b"")).is_err());
        assert!(stream.output(&output(3, b"\xff")).is_err());
        let title = || Told::Title(Data::borrowed(b"t"));
        assert!(
            stream
                .event(Event {
                    offset: 9,
                    what: title()
                })
                .is_err()
        );
        let mut acknowledged = Vec::new();
        for _ in 0..2 * ACK_FRAMES {
            assert!(tell(&mut stream, title()).is_ok());
            acknowledged.extend(stream.acknowledge());
        }
        // By their number: they take little of the window in bytes.
        assert_eq!(acknowledged.len(), 2);
        assert_eq!(acknowledged[1] - acknowledged[0], ACK_FRAMES as u64);
        assert!(stream.exit().is_ok() && stream.exit().is_err());
    }
}
