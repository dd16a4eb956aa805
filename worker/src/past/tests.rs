use super::*;
use crate::frame::{Frame, decoded};
use shellward_protocol::limits::{COMMAND_LINE_MAX, OUTPUT_CHUNK_MAX};
use shellward_protocol::message::Cut;

/// A past, and how far the stream has come.
#[derive(Default)]
struct Stream {
    past: Past,
    at: u64,
}

impl Stream {
    fn print(&mut self, text: &str) {
        let chars = text.chars().count();
        let frame = Frame::output(self.at, Vec::new(), text, chars).unwrap();
        self.at += text.len() as u64;
        self.past.output(frame.bytes, chars).unwrap();
    }

    fn happen(&mut self, what: Happened<'_>) {
        self.at += 1;
        self.past.event(self.at, what);
    }

    fn start(&mut self, line: &str) {
        let line = Data::borrowed(line.as_bytes());
        self.happen(Happened::CommandStarted { line, at_ms: 1 });
    }

    fn finish(&mut self) {
        self.happen(Happened::CommandFinished {
            exit_code: Some(0),
            duration_ms: 1,
        });
    }

    /// What is told, one letter each, and the text.
    fn told(&self) -> Vec<String> {
        let mut all = Vec::new();
        let mut bytes = Vec::new();
        while self.past.encode(all.len(), &mut bytes).unwrap() {
            let FromWorker::Past(told) = decoded(&bytes).unwrap() else {
                panic!();
            };
            let words = match told {
                Told::Text { data, .. } => String::from_utf8(data.into_vec()).unwrap(),
                Told::CommandStarted(started) => {
                    format!("<{}", String::from_utf8(started.line.into_vec()).unwrap())
                }
                Told::CommandFinished(_) => ">".to_owned(),
                Told::Gap(gap) => format!("gap {}", gap.bytes),
            };
            all.push(words);
            bytes.clear();
        }
        assert_eq!(all.len(), self.past.len());
        all
    }
}

#[test]
fn keystrokes_become_one_piece() {
    let mut stream = Stream::default();
    for _ in 0..1000 {
        stream.print("x");
    }
    assert_eq!(stream.told(), ["x".repeat(1000)]);
    // A prompt's title does not hold what follows it apart, only in another piece.
    stream.happen(Happened::Title(Data::borrowed(b"t")));
    stream.print("y");
    assert_eq!(stream.told(), ["x".repeat(1000), "y".to_owned()]);
    assert_eq!(stream.past.title(), Some(&b"t"[..]));
}

#[test]
fn whole_pieces_give_way_and_never_more_than_must() {
    let mut stream = Stream::default();
    let chunk = "é".repeat(OUTPUT_CHUNK_MAX / 2);
    let mut all = 0;
    while !stream.past.is_trimmed() {
        stream.print(&chunk);
        all += OUTPUT_CHUNK_MAX / 2;
    }
    assert!(all - OUTPUT_CHUNK_MAX / 2 >= PAST_CHARS);
    for _ in 0..20 {
        stream.print(&chunk);
        stream.print("x");
        let chars: usize = stream.told().iter().map(|told| told.chars().count()).sum();
        assert!((PAST_CHARS..PAST_CHARS + OUTPUT_CHUNK_MAX / 2).contains(&chars));
        assert_eq!(chars, stream.past.chars);
    }
}

#[test]
fn open_command_keeps_its_line() {
    let mut stream = Stream::default();
    stream.start("first");
    stream.finish();
    stream.start("second");
    let chunk = "x".repeat(OUTPUT_CHUNK_MAX);
    for _ in 0..5 {
        stream.print(&chunk);
    }
    assert!(stream.past.is_trimmed());
    let told = stream.told();
    assert_eq!(told[0], "<second");
    assert_eq!(told[1].len(), OUTPUT_CHUNK_MAX);
    let commands = stream.past.commands();
    assert_eq!((commands.count, commands.first), (2, 2));
    assert_eq!(commands.newest, Newest::Running { at_ms: 1 });

    // As long as its end is told; then another one is the first.
    stream.finish();
    stream.start("third");
    assert_eq!(stream.told()[0], "<second");
    for _ in 0..4 {
        stream.print(&chunk);
    }
    assert_eq!(stream.told()[0], "<third");
    assert_eq!(stream.past.commands().first, 3);
}

#[test]
fn pieces_are_bounded_in_number() {
    let mut stream = Stream::default();
    for number in 0..PAST_FRAMES {
        stream.start(&number.to_string());
        stream.print("x");
        stream.finish();
    }
    let told = stream.told();
    assert!(told.len() <= PAST_FRAMES && told.len() > PAST_FRAMES - 4);
    let commands = stream.past.commands();
    assert_eq!(commands.count, PAST_FRAMES as u64);
    let first = told.iter().find_map(|told| told.strip_prefix('<')).unwrap();
    assert_eq!(first, (commands.first - 1).to_string());
}

#[test]
fn long_command_lines_are_bounded_like_text() {
    let mut stream = Stream::default();
    let line = "y".repeat(COMMAND_LINE_MAX);
    for _ in 0..100 {
        stream.start(&line);
        stream.finish();
    }
    let chars: usize = stream.told().iter().map(String::len).sum();
    assert!(chars < PAST_CHARS + 2 * COMMAND_LINE_MAX, "{chars}");
    assert_eq!(stream.past.commands().count, 100);
}

#[test]
fn what_was_lost_stands_in_its_place() {
    let mut stream = Stream::default();
    stream.start("one");
    stream.print("before");
    stream.past.lost(Lost {
        offset: stream.at,
        places: 100,
        bytes: 90,
        modes: Modes(8),
        can_detect: true,
        finished: Some(Finished {
            exit_code: None,
            duration_ms: 0,
        }),
        started: Some(Started {
            line: Data::borrowed(b"nine"),
            at_ms: 9,
        }),
        directory: Some(Data::borrowed(b"/d")),
        title: None,
    });
    stream.at += 100;
    stream.print("after");
    let expected = ["<one", "before", "gap 90", ">", "<nine", "after"];
    assert_eq!(stream.told(), expected);
    assert_eq!(stream.past.modes(), Modes(8));
    assert!(stream.past.can_detect());
    assert_eq!(stream.past.directory(), Some(&b"/d"[..]));
    let commands = stream.past.commands();
    assert_eq!((commands.count, commands.first), (2, 1));
    assert_eq!(commands.newest, Newest::Running { at_ms: 9 });
}

#[test]
fn what_is_cleared_is_forgotten_up_to_its_place() {
    let mut stream = Stream::default();
    stream.start("make");
    stream.print("one\n");
    let place = stream.at;
    stream.print("two\n");
    stream.finish();
    stream.past.clear(place);
    assert_eq!(stream.told(), ["two\n", ">"]);
    let commands = stream.past.commands();
    assert_eq!((commands.count, commands.first), (1, 2));
    assert_eq!(commands.newest, Newest::Finished { exit_code: Some(0) });
    stream.past.clear(stream.at);
    assert!(stream.told().is_empty() && !stream.past.is_trimmed());
    stream.start("next");
    assert_eq!(stream.past.commands().first, 2);
}

#[test]
fn text_that_is_none_is_refused() {
    let mut past = Past::default();
    let text = |bytes: &'static [u8], at| Told::Text {
        cuts: vec![Cut {
            at,
            modes: Modes(3),
        }],
        data: Data::borrowed(bytes),
    };
    assert_eq!(past.seed(text(b"a\xff", 1)), Err(NoText));
    assert_eq!(past.seed(text("é".as_bytes(), 1)), Err(NoText));
    assert_eq!(past.seed(text(b"a", 2)), Err(NoText));
    assert_eq!(past.len(), 0);
    past.seed(text("é".as_bytes(), 2)).unwrap();
    assert_eq!((past.len(), past.modes()), (1, Modes(3)));
}
