//! Whatever comes in whatever order, what a supervisor is told is what happened, but for what the
//! bounds allow to be missing.

use super::*;
use proptest::prelude::*;
use shellward_protocol::kept::{Finished, Newest, Started};
use shellward_protocol::limits::PAST_CHARS;
use shellward_protocol::message::{Event, Output};
use shellward_protocol::{Data, FrameDecoder, Modes};

#[derive(Debug, Clone)]
enum Step {
    /// The terminal prints so many bytes, more or less.
    Print(usize),
    /// It prints much, and all of it arrives.
    Flow,
    /// A command starts or ends.
    Command,
    /// Something else happens.
    Other(u8),
    /// The socket takes so many bytes.
    Write(usize),
    /// Of what came, about this share is acknowledged.
    Ack(u8),
    /// The same is forgotten, too.
    Clear(u8),
    Detach,
    RunFree,
    Attach,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (1_usize..200).prop_map(Step::Print),
        2 => (1_usize..20_000).prop_map(Step::Print),
        4 => (50_000_usize..=60_000).prop_map(Step::Print),
        4 => Just(Step::Flow),
        3 => Just(Step::Command),
        1 => (0_u8..3).prop_map(Step::Other),
        2 => (1_usize..5000).prop_map(Step::Write),
        6 => Just(Step::Write(usize::MAX)),
        4 => any::<u8>().prop_map(Step::Ack),
        1 => any::<u8>().prop_map(Step::Clear),
        2 => Just(Step::Detach),
        2 => Just(Step::RunFree),
        2 => Just(Step::Attach),
    ];
    proptest::collection::vec(step, 1..150)
}

/// What was told, text frame by frame or put together.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Started(String),
    Finished(Option<i32>),
    Gap(u64),
}

/// Neighbouring text put together.
fn joined(pieces: impl IntoIterator<Item = Piece>) -> Vec<Piece> {
    let mut all: Vec<Piece> = Vec::new();
    for piece in pieces {
        match (all.last_mut(), piece) {
            (Some(Piece::Text(last)), Piece::Text(text)) => last.push_str(&text),
            (_, piece) => all.push(piece),
        }
    }
    all
}

/// What happened at one place, or was printed from it on.
#[derive(Debug, Clone)]
enum Item {
    Text(String),
    Event(Happened<'static>),
}

impl Item {
    fn places(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::Event(_) => 1,
        }
    }
}

/// One link, from the supervisor's side.
struct Seen {
    decoder: FrameDecoder,
    /// The place behind what came.
    at: u64,
    /// Places behind which it may acknowledge.
    ends: Vec<u64>,
    left_of_past: usize,
    past: Vec<Piece>,
    expected: Expected,
}

/// What a past must be made of.
#[derive(Debug, Clone, Default)]
struct Expected {
    pieces: Vec<(u64, Piece)>,
    count: u64,
    newest: Option<Piece>,
    directory: Option<Vec<u8>>,
    can_detect: bool,
}

struct Model {
    outbox: Outbox,
    stream: Vec<(u64, Item)>,
    made: u64,
    line: u64,
    is_open: bool,
    cuts: Vec<u64>,
    wire: Vec<u8>,
    link: Option<Seen>,
    expected: Expected,
    /// Frames that came on this link and were not acknowledged, with the place behind each.
    unacked: Vec<Arrived>,
    /// The same of the link that came farthest, once it is gone.
    delivered: Vec<Arrived>,
    acked: u64,
}

/// A frame that came: the place behind it, and what it holds.
type Arrived = (u64, Vec<Piece>, Vec<Happened<'static>>);

impl Model {
    fn new() -> Self {
        Self {
            outbox: Outbox::default(),
            stream: Vec::new(),
            made: 0,
            line: 0,
            is_open: false,
            cuts: Vec::new(),
            wire: Vec::new(),
            link: None,
            expected: Expected::default(),
            unacked: Vec::new(),
            delivered: Vec::new(),
            acked: 0,
        }
    }

    fn push(&mut self, item: Item) {
        let places = item.places();
        self.stream.push((self.made, item));
        self.made += places;
    }

    fn print(&mut self, len: usize) {
        if !self.outbox.has_room() || self.outbox.room() < len {
            return;
        }
        let mut text = String::new();
        let mut cuts = Vec::new();
        let mut last = 0;
        while text.len() < len {
            text.push_str(&format!("é{}\n", self.line));
            self.line += 1;
            if text.len() >= last + 4096 {
                last = text.len();
                let place = self.made + last as u64;
                self.cuts.push(place);
                cuts.push(Cut {
                    at: u32::try_from(last).unwrap(),
                    modes: Modes(u32::try_from(place).unwrap()),
                });
            }
        }
        self.outbox.output(cuts, &text).unwrap();
        self.push(Item::Text(text));
    }

    fn happen(&mut self, what: Happened<'static>) {
        self.outbox.event(what.clone()).unwrap();
        self.push(Item::Event(what));
    }

    fn command(&mut self) {
        self.line += 1;
        self.is_open = !self.is_open;
        self.happen(if self.is_open {
            Happened::CommandStarted {
                line: Data::from(format!("command {}", self.line)),
                at_ms: self.line,
            }
        } else {
            Happened::CommandFinished {
                exit_code: i32::try_from(self.line).ok(),
                duration_ms: 0,
            }
        });
    }

    fn other(&mut self, which: u8) {
        self.line += 1;
        self.happen(match which {
            0 => Happened::CanDetectCommands,
            1 => Happened::Directory(Data::from(format!("/{}", self.line))),
            _ => Happened::Title(Data::from(format!("title {}", self.line))),
        });
    }

    fn detach(&mut self) {
        if self.link.take().is_some() {
            self.outbox.detach();
            self.wire.clear();
            let unacked = std::mem::take(&mut self.unacked);
            let end = |all: &[Arrived]| all.last().map_or(0, |(end, ..)| *end);
            if end(&unacked) > end(&self.delivered) {
                self.delivered = unacked;
            }
        }
    }

    fn attach(&mut self) {
        self.detach();
        // The greeting stands for hello and what was kept.
        let greeting = Frame::of(
            Kind::Other,
            &FromWorker::InputTaken(InputTaken { total: 7 }),
        );
        self.check_state();
        let left_of_past = self.outbox.past().len();
        self.outbox
            .attach(greeting.unwrap().bytes, 7, true)
            .unwrap();
        self.link = Some(Seen {
            decoder: FrameDecoder::new(),
            at: self.acked,
            ends: Vec::new(),
            left_of_past,
            past: Vec::new(),
            expected: self.expected.clone(),
        });
        if left_of_past == 0 {
            self.check_past();
        }
    }

    /// Whether something that was sent to a supervisor became the past instead of giving way.
    fn look_for_settled(&mut self) {
        let acked = self.outbox.acked();
        if acked > self.acked {
            assert!(self.link.is_none());
            self.unacked = self.delivered.clone();
            self.ack(acked);
            self.unacked.clear();
            assert_eq!(self.acked, acked);
        }
    }

    /// What is told besides pieces.
    fn check_state(&self) {
        let past = self.outbox.past();
        assert_eq!(self.outbox.acked(), self.acked);
        assert_eq!(past.commands().count, self.expected.count);
        let newest = match past.commands().newest {
            Newest::None => None,
            Newest::Running { at_ms } => Some(Piece::Started(format!("command {at_ms}"))),
            Newest::Finished { exit_code } => Some(Piece::Finished(exit_code)),
        };
        assert_eq!(newest, self.expected.newest);
        assert_eq!(past.directory(), self.expected.directory.as_deref());
        assert_eq!(past.can_detect(), self.expected.can_detect);
    }

    fn check_past(&mut self) {
        let link = self.link.as_ref().unwrap();
        let told = joined(link.past.clone());
        let all = joined(link.expected.pieces.iter().map(|(_, piece)| piece.clone()));
        // The open command stands before the rest, which is the end of everything.
        let is_end =
            |rest: &[Piece]| {
                let skipped = all.len().checked_sub(rest.len())?;
                let same = rest.iter().zip(&all[skipped..]).enumerate().all(
                    |(index, (told, all))| match (told, all) {
                        (Piece::Text(told), Piece::Text(all)) if index == 0 => all.ends_with(told),
                        (told, all) => told == all,
                    },
                );
                same.then_some(skipped)
            };
        let mut open = None;
        let (skipped, rest) = match (is_end(&told), told.split_first()) {
            (Some(skipped), _) => (skipped, &told[..]),
            (None, Some((Piece::Started(line), rest))) => {
                open = Some(line.clone());
                (is_end(rest).expect("the rest is the end of all"), rest)
            }
            _ => panic!("{told:?} is not the end of {all:?}"),
        };
        let open_there = all[..skipped].iter().rev().find_map(|piece| match piece {
            Piece::Started(line) => Some(Some(line.clone())),
            Piece::Finished(_) => Some(None),
            _ => None,
        });
        assert_eq!(open, open_there.flatten());
        let is_part = match (rest.first(), all.get(skipped)) {
            (Some(Piece::Text(told)), Some(Piece::Text(all))) => told.len() < all.len(),
            _ => false,
        };
        let is_short = is_part
            || all[..skipped]
                .iter()
                .any(|piece| !matches!(piece, Piece::Started(_)));
        let past = self.outbox.past();
        let chars: usize = rest
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) | Piece::Started(text) => text.chars().count(),
                _ => 0,
            })
            .sum();
        if is_short {
            assert!(chars >= PAST_CHARS);
        }
        assert!(chars < PAST_CHARS + OUTPUT_CHUNK_MAX);
        // It may be cleared meanwhile.
        if self.outbox.acked() == self.acked && self.outbox.clear_at.is_none() {
            let starts = told
                .iter()
                .filter(|piece| matches!(piece, Piece::Started(_)))
                .count() as u64;
            if past.len() > 0 || told.is_empty() {
                assert_eq!(past.is_trimmed(), is_short);
                assert_eq!(past.commands().first, past.commands().count + 1 - starts);
            }
        }
    }

    /// What the stream holds between two places.
    fn between(&self, from: u64, to: u64) -> Vec<Item> {
        let mut found = Vec::new();
        let first = self
            .stream
            .partition_point(|(at, item)| at + item.places() <= from);
        for (at, item) in &self.stream[first..] {
            if *at >= to {
                break;
            }
            match item {
                Item::Text(text) => {
                    let start = usize::try_from(from.saturating_sub(*at)).unwrap();
                    let end = usize::try_from(to - at).unwrap().min(text.len());
                    found.push(Item::Text(text[start..end].to_owned()));
                }
                event => found.push(event.clone()),
            }
        }
        found
    }

    fn write(&mut self, max: usize) {
        struct Socket<'a>(&'a mut Vec<u8>, usize);
        impl Write for Socket<'_> {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                if self.1 == 0 {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                let n = bytes.len().min(self.1);
                self.1 -= n;
                self.0.extend_from_slice(&bytes[..n]);
                Ok(n)
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        if self.link.is_none() {
            return;
        }
        self.outbox.write_to(Socket(&mut self.wire, max)).unwrap();
        let wire = std::mem::take(&mut self.wire);
        let mut decoder = std::mem::take(&mut self.link.as_mut().unwrap().decoder);
        decoder.push(&wire);
        while let Some((header, payload)) = decoder.next_frame().unwrap() {
            self.take(FromWorker::decode(header, payload).unwrap());
        }
        self.link.as_mut().unwrap().decoder = decoder;
    }

    fn take(&mut self, message: FromWorker<'_>) {
        let link = self.link.as_mut().unwrap();
        let at = link.at;
        match message {
            FromWorker::InputTaken(_) => assert_eq!(at, self.acked),
            FromWorker::Past(past) => {
                link.left_of_past = link.left_of_past.checked_sub(1).unwrap();
                link.past.push(match past {
                    Told::Text { cuts, data } => {
                        let text = String::from_utf8(data.into_vec()).unwrap();
                        assert!(
                            cuts.iter()
                                .all(|cut| text.is_char_boundary(cut.at as usize))
                        );
                        Piece::Text(text)
                    }
                    Told::CommandStarted(started) => Piece::Started(line_of(&started)),
                    Told::CommandFinished(finished) => Piece::Finished(finished.exit_code),
                    Told::Gap(gap) => Piece::Gap(gap.bytes),
                });
                if link.left_of_past == 0 {
                    self.check_past();
                }
            }
            FromWorker::Output(Output { offset, data, .. }) => {
                assert_eq!((offset, link.left_of_past), (at, 0));
                let text = String::from_utf8(data.into_vec()).unwrap();
                let end = at + text.len() as u64;
                let is = self.between(at, end);
                assert!(
                    matches!(&is[..], [Item::Text(is)] if *is == text) || {
                        let parts: Vec<&str> = is
                            .iter()
                            .map(|item| match item {
                                Item::Text(text) => text.as_str(),
                                Item::Event(what) => panic!("{what:?} is missing"),
                            })
                            .collect();
                        parts.concat() == text
                    }
                );
                self.arrived(end, vec![Piece::Text(text)], Vec::new());
            }
            FromWorker::Event(Event { offset, what }) => {
                assert_eq!((offset, link.left_of_past), (at, 0));
                let what = what.into_owned();
                let is = self.between(at, at + 1);
                assert!(matches!(&is[..], [Item::Event(is)] if *is == what));
                let piece = match &what {
                    Happened::CommandStarted { line, .. } => {
                        Some(Piece::Started(text(line.as_slice())))
                    }
                    Happened::CommandFinished { exit_code, .. } => {
                        Some(Piece::Finished(*exit_code))
                    }
                    _ => None,
                };
                self.arrived(at + 1, piece.into_iter().collect(), vec![what]);
            }
            FromWorker::Lost(lost) => {
                assert_eq!((lost.offset, at, link.left_of_past), (self.acked, at, 0));
                assert_eq!(lost.offset, at);
                self.check_lost(&lost);
                let mut pieces = Vec::new();
                let mut events = Vec::new();
                if lost.bytes > 0 {
                    pieces.push(Piece::Gap(lost.bytes));
                }
                if let Some(Finished { exit_code, .. }) = lost.finished {
                    pieces.push(Piece::Finished(exit_code));
                }
                if let Some(started) = &lost.started {
                    pieces.push(Piece::Started(line_of(started)));
                }
                if lost.can_detect {
                    events.push(Happened::CanDetectCommands);
                }
                if let Some(directory) = lost.directory {
                    events.push(Happened::Directory(directory.into_owned()));
                }
                self.arrived(lost.offset + lost.places, pieces, events);
            }
            other => panic!("{other:?}"),
        }
    }

    fn check_lost(&self, lost: &Lost<'_>) {
        let end = lost.offset + lost.places;
        assert!(lost.places > 0 && end <= self.made);
        // Nothing gave way that a supervisor was sent; it may have been told of this before.
        let is_older = |(place, ..): &Arrived| *place <= lost.offset;
        let is_this = |(place, ..): &Arrived| *place == end;
        assert!(
            self.delivered.last().is_none_or(is_older)
                || self.delivered.first().is_some_and(is_this),
            "{lost:?}"
        );
        let mut bytes = 0;
        let (mut finished, mut started, mut title) = (None, None, None);
        let mut can_detect = false;
        for item in self.between(lost.offset, end) {
            match item {
                Item::Text(text) => bytes += text.len() as u64,
                Item::Event(Happened::CommandStarted { line, .. }) => started = Some(line),
                Item::Event(Happened::CommandFinished { exit_code, .. }) => {
                    if started.take().is_none() {
                        finished = Some(exit_code);
                    }
                }
                Item::Event(Happened::Title(new)) => title = Some(new),
                Item::Event(Happened::CanDetectCommands) => can_detect = true,
                Item::Event(Happened::Directory(_)) => {}
            }
        }
        assert_eq!(lost.bytes, bytes);
        assert_eq!(lost.finished.map(|end| end.exit_code), finished);
        assert_eq!(lost.started.as_ref().map(|open| open.line.clone()), started);
        assert_eq!(lost.title, title);
        assert_eq!(lost.can_detect, can_detect);
        let modes = u64::from(lost.modes.0);
        assert!(modes == 0 || (modes <= end && self.cuts.binary_search(&modes).is_ok()));
        // Where it goes on is a place to cut, if the frame there has one.
        let rest: usize = self
            .between(end, self.made)
            .iter()
            .map(|item| match item {
                Item::Text(text) => text.chars().count(),
                Item::Event(_) => 0,
            })
            .sum();
        assert!(rest + 2 * OUTPUT_CHUNK_MAX > shellward_protocol::limits::UNATTENDED_CHARS);
    }

    fn arrived(&mut self, end: u64, pieces: Vec<Piece>, events: Vec<Happened<'static>>) {
        let link = self.link.as_mut().unwrap();
        link.at = end;
        link.ends.push(end);
        self.unacked.push((end, pieces, events));
    }

    fn some_end(&self, share: u8) -> Option<u64> {
        let ends = &self.link.as_ref()?.ends;
        ends.get(ends.len() * usize::from(share) / 256).copied()
    }

    fn ack(&mut self, offset: u64) {
        let through = self.unacked.partition_point(|(end, ..)| *end <= offset);
        for (end, pieces, events) in self.unacked.drain(..through) {
            self.acked = end;
            for piece in pieces {
                if matches!(piece, Piece::Started(_)) {
                    self.expected.count += 1;
                }
                if matches!(piece, Piece::Started(_) | Piece::Finished(_)) {
                    self.expected.newest = Some(piece.clone());
                }
                self.expected.pieces.push((end, piece));
            }

            for event in events {
                match event {
                    Happened::Directory(path) => self.expected.directory = Some(path.into_vec()),
                    Happened::CanDetectCommands => self.expected.can_detect = true,
                    _ => {}
                }
            }
        }
        let acked = self.acked;
        self.delivered.retain(|(end, ..)| *end > acked);
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Print(len) => self.print(len),
            Step::Flow => {
                for _ in 0..2 {
                    self.print(60_000);
                    self.write(usize::MAX);
                    self.step(Step::Ack(254));
                }
            }
            Step::Command => self.command(),
            Step::Other(which) => self.other(which),
            Step::Write(max) => self.write(max),
            Step::Ack(share) => {
                if let Some(end) = self.some_end(share) {
                    // Within a frame is as good as before it.
                    let offset = end - u64::from(share & 1);
                    self.outbox.ack(offset).unwrap();
                    self.ack(offset);
                }
            }
            Step::Clear(share) => {
                let offset = match self.some_end(share) {
                    Some(end) => end,
                    None if self.link.is_some() => self.acked,
                    None => return,
                };
                self.outbox.clear(offset).unwrap();
                self.ack(offset);
                self.expected.pieces.retain(|(end, _)| *end > offset);
            }
            Step::Detach => self.detach(),
            Step::RunFree => self.outbox.run_free(),
            Step::Attach => self.attach(),
        }
        self.look_for_settled();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn line_of(started: &Started<'_>) -> String {
    text(started.line.as_slice())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_untold_and_nothing_comes_twice(steps in steps()) {
        let mut model = Model::new();
        for step in steps {
            model.step(step);
        }
        // To the end of it: everything that was not told to be lost arrives.
        model.attach();
        while model.link.as_ref().unwrap().at < model.made {
            let before = model.link.as_ref().unwrap().at;
            model.write(usize::MAX);
            let at = model.link.as_ref().unwrap().at;
            prop_assert!(at > before);
            model.outbox.ack(at).unwrap();
            model.ack(at);
        }
        model.write(usize::MAX);
        model.attach();
        model.write(usize::MAX);
        prop_assert!(model.outbox.is_empty());
        prop_assert_eq!(model.outbox.weight, 0);
        prop_assert_eq!(model.acked, model.made);
    }
}
