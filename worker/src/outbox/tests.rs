use super::*;
use shellward_protocol::limits::UNATTENDED_CHARS;
use shellward_protocol::{Data, FrameDecoder};

/// Takes a limited number of bytes, then would block.
struct Narrow<'a> {
    taken: &'a mut Vec<u8>,
    left: usize,
}

impl Write for Narrow<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let n = bytes.len().min(self.left);
        self.left -= n;
        self.taken.extend_from_slice(&bytes[..n]);
        Ok(n)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn offsets(bytes: &[u8]) -> Vec<u64> {
    let mut decoder = FrameDecoder::new();
    decoder.push(bytes);
    let mut found = Vec::new();
    while let Some((header, payload)) = decoder.next_frame().unwrap() {
        if let Ok(FromWorker::Output(output)) = FromWorker::decode(header, payload) {
            found.push(output.offset);
        }
    }
    found
}

fn attached() -> Outbox {
    let mut outbox = Outbox::default();
    outbox.attach(Vec::new(), 0, false).unwrap();
    let mut sink = Vec::new();
    // The empty greeting is "written whole" by a stream that takes nothing of it.
    outbox.unsent.clear();
    outbox.write_to(&mut sink).unwrap();
    outbox
}

#[test]
fn unacknowledged_output_is_sent_again_after_a_loss() {
    let mut outbox = attached();
    for text in ["one", "two", "three"] {
        outbox.output(Vec::new(), text).unwrap();
    }
    let mut first = Vec::new();
    outbox
        .write_to(Narrow {
            taken: &mut first,
            left: 100,
        })
        .unwrap();
    outbox.ack(3).unwrap();
    outbox.detach();
    outbox.attach(greeting(), 0, true).unwrap();
    let mut second = Vec::new();
    outbox.write_to(&mut second).unwrap();
    assert_eq!(offsets(&second), [3, 6]);
    outbox.ack(11).unwrap();
    assert!(outbox.unacked.is_empty());
}

#[test]
fn no_frame_has_more_cuts_than_it_may_hold() {
    let mut outbox = attached();
    let cut = Cut {
        at: 1,
        modes: shellward_protocol::Modes::default(),
    };
    let cuts = vec![cut; CUTS_MAX + 2];
    outbox.output(cuts, &"x".repeat(100)).unwrap();
    let mut bytes = Vec::new();
    outbox.write_to(&mut bytes).unwrap();
    assert_eq!(offsets(&bytes), [0], "it can be decoded");
}

#[test]
fn window_is_never_exceeded() {
    let mut outbox = attached();
    let chunk = "x".repeat(OUTPUT_CHUNK_MAX);
    for _ in 0..10 {
        outbox.output(Vec::new(), &chunk).unwrap();
    }
    assert!(!outbox.has_room());
    let mut bytes = Vec::new();
    outbox.write_to(&mut bytes).unwrap();
    assert_eq!(offsets(&bytes).len(), 8);
    assert!(!outbox.wants_write());
    outbox.ack(1).unwrap();
    assert!(!outbox.wants_write());
    outbox.ack(2 * OUTPUT_CHUNK_MAX as u64).unwrap();
    outbox.write_to(&mut bytes).unwrap();
    assert_eq!(offsets(&bytes).len(), 10);
    assert!(outbox.is_empty());
}

#[test]
fn acknowledging_what_was_not_sent_is_refused() {
    let mut outbox = attached();
    outbox.output(Vec::new(), "abc").unwrap();
    assert_eq!(outbox.ack(3), Err(AckError::NotSent { got: 3, sent: 0 }));
}

#[test]
fn counts_of_input_do_not_pile_up() {
    let mut outbox = attached();
    for total in 1..100 {
        outbox.input_taken(total).unwrap();
    }
    assert_eq!(outbox.unsent.len(), 1);
    outbox.write_to(&mut Vec::new()).unwrap();
    outbox.input_taken(99).unwrap();
    assert_eq!(outbox.unsent.len(), 1);
}

fn told(bytes: &[u8]) -> Vec<FromWorker<'_>> {
    let mut rest = bytes;
    let mut all = Vec::new();
    while !rest.is_empty() {
        let len = u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        let (frame, behind) = rest.split_at(12 + len);
        all.extend(Some(decoded(frame).unwrap()).filter(|message| !is_greeting(message)));
        rest = behind;
    }
    all
}

/// Stands for the hello and what was kept.
fn greeting() -> Vec<u8> {
    let message = FromWorker::InputTaken(InputTaken { total: 0 });
    Frame::of(Kind::Greeting, &message).unwrap().bytes
}

fn is_greeting(message: &FromWorker<'_>) -> bool {
    matches!(message, FromWorker::InputTaken(_))
}

fn is_past(message: &FromWorker<'_>) -> bool {
    matches!(message, FromWorker::Past(_))
}

/// An outbox whose supervisor has taken so many large frames and went.
fn left(frames: usize) -> Outbox {
    let mut outbox = attached();
    for _ in 0..frames {
        outbox
            .output(Vec::new(), &"x".repeat(OUTPUT_CHUNK_MAX))
            .unwrap();
        outbox.write_to(&mut Vec::new()).unwrap();
        outbox.ack(outbox.made).unwrap();
    }
    outbox.detach();
    outbox
}

#[test]
fn past_comes_before_everything_whatever_the_socket_takes() {
    let mut outbox = left(3);
    outbox.run_free();
    outbox.output(Vec::new(), "behind").unwrap();
    outbox.attach(greeting(), 0, true).unwrap();
    let mut bytes = Vec::new();
    while outbox.wants_write() {
        let taken = &mut bytes;
        outbox.write_to(Narrow { taken, left: 999 }).unwrap();
    }
    let told = told(&bytes);
    assert!(told[..3].iter().all(is_past));
    assert!(matches!(&told[3..], [FromWorker::Output(_)]));

    // Lost on the way, it is told from the beginning.
    outbox.detach();
    outbox.attach(greeting(), 0, true).unwrap();
    let mut some = Vec::new();
    let taken = &mut some;
    outbox
        .write_to(Narrow {
            taken,
            left: 70_000,
        })
        .unwrap();
    outbox.detach();
    outbox.attach(greeting(), 0, true).unwrap();
    let mut again = Vec::new();
    outbox.write_to(&mut again).unwrap();
    assert_eq!(again, bytes);
}

#[test]
fn past_is_not_encoded_all_at_once() {
    let mut outbox = left(4);
    outbox.attach(greeting(), 0, true).unwrap();
    let mut bytes = Vec::new();
    let taken = &mut bytes;
    outbox.write_to(Narrow { taken, left: 10 }).unwrap();
    let held: usize = outbox.unsent.iter().map(|frame| frame.bytes.len()).sum();
    assert!(held <= TOLD_AT_ONCE + OUTPUT_CHUNK_MAX, "{held}");
}

#[test]
fn order_to_clear_waits_until_the_past_is_told() {
    for is_lost in [false, true] {
        let mut outbox = left(2);
        outbox.attach(greeting(), 0, true).unwrap();
        let mut bytes = Vec::new();
        let taken = &mut bytes;
        outbox.write_to(Narrow { taken, left: 10 }).unwrap();
        outbox.clear(outbox.acked).unwrap();
        assert_eq!(outbox.past.len(), 2);
        if is_lost {
            outbox.detach();
        } else {
            outbox.write_to(&mut bytes).unwrap();
            assert_eq!(told(&bytes).len(), 2);
        }
        assert_eq!(outbox.past.len(), 0);
    }
}

#[test]
fn small_output_that_nobody_takes_is_put_together_and_bounded() {
    let mut outbox = left(0);
    assert!(!outbox.has_room());
    outbox.run_free();
    for number in 0..40_000 {
        outbox
            .output(Vec::new(), &format!("{number:05}\n"))
            .unwrap();
    }
    assert!(outbox.unsent.len() < 20, "{}", outbox.unsent.len());
    assert!(outbox.weight <= UNATTENDED_CHARS && outbox.weight > UNATTENDED_CHARS - 2 * LARGE);
    outbox.attach(greeting(), 0, true).unwrap();
    assert!(!outbox.has_room());
    let mut bytes = Vec::new();
    outbox.write_to(&mut bytes).unwrap();
    let told = told(&bytes);
    let FromWorker::Lost(lost) = &told[0] else {
        panic!("{:?}", told[0]);
    };
    assert_eq!((lost.offset, lost.places), (0, lost.bytes));
    let FromWorker::Output(first) = &told[1] else {
        panic!("{:?}", told[1]);
    };
    assert_eq!(first.offset, lost.places);
    let line = format!("{:05}\n", lost.bytes / 6);
    assert!(first.data.as_slice().starts_with(line.as_bytes()));
}

#[test]
fn gap_takes_nothing_of_the_window() {
    let mut outbox = left(0);
    outbox.run_free();
    for _ in 0..100 {
        outbox
            .output(Vec::new(), &"x".repeat(OUTPUT_CHUNK_MAX))
            .unwrap();
    }
    // It grows as long as nobody was sent it.
    outbox.attach(greeting(), 0, false).unwrap();
    outbox.detach();
    outbox.run_free();
    let chunk = "x".repeat(OUTPUT_CHUNK_MAX);
    outbox.output(Vec::new(), &chunk).unwrap();
    outbox.attach(greeting(), 0, false).unwrap();
    let mut bytes = Vec::new();
    outbox.write_to(&mut bytes).unwrap();
    {
        let told = told(&bytes);
        let FromWorker::Lost(lost) = &told[0] else {
            panic!("{:?}", told[0]);
        };
        assert_eq!((lost.offset, lost.bytes), (0, 99 * OUTPUT_CHUNK_MAX as u64));
        assert_eq!(told.len(), 3);
    }
    assert!(outbox.has_room());
    // Then, with the first of what stands behind it, it is the past.
    outbox.detach();
    outbox.run_free();
    outbox.output(Vec::new(), &chunk).unwrap();
    assert_eq!((outbox.past.len(), outbox.unsent.len()), (2, 2));
    outbox.attach(greeting(), 0, false).unwrap();
    bytes.clear();
    outbox.write_to(&mut bytes).unwrap();
    assert_eq!(
        offsets(&bytes),
        [100, 101].map(|frames| frames * OUTPUT_CHUNK_MAX as u64)
    );
    outbox.ack(outbox.made).unwrap();
    assert_eq!(outbox.past.len(), 4);
}

#[test]
fn what_a_supervisor_was_sent_does_not_give_way() {
    let mut outbox = attached();
    outbox.output(Vec::new(), "shown\r\n").unwrap();
    outbox.write_to(Vec::new()).unwrap();
    // One byte of this is not sent.
    outbox.output(Vec::new(), "cut off").unwrap();
    let narrow = Narrow {
        taken: &mut Vec::new(),
        left: outbox.unsent[0].bytes.len() - 1,
    };
    outbox.write_to(narrow).unwrap();
    outbox.detach();
    outbox.run_free();
    assert_eq!(outbox.acked, 0, "there is room for all");
    for _ in 0..100 {
        outbox.output(Vec::new(), &"x".repeat(4096)).unwrap();
    }
    assert_eq!((outbox.acked, outbox.past.len()), (7, 1));
    assert_eq!(outbox.lost.as_ref().map(|lost| lost.offset), Some(7));
}

#[test]
fn events_that_nobody_takes_are_bounded_like_output() {
    let mut outbox = left(0);
    outbox.run_free();
    for number in 0..100 {
        outbox
            .event(Happened::CommandStarted {
                line: Data::from(vec![b'y'; 60_000]),
                at_ms: number,
            })
            .unwrap();
        outbox
            .event(Happened::CommandFinished {
                exit_code: None,
                duration_ms: 0,
            })
            .unwrap();
    }
    let held: usize = outbox.unsent.iter().map(|frame| frame.bytes.len()).sum();
    assert!(held <= UNATTENDED_CHARS);
    assert_eq!(outbox.weight, held);
    for _ in 0..FRAMES_WINDOW + 100 {
        outbox.event(Happened::CanDetectCommands).unwrap();
    }
    assert!(outbox.unsent.len() <= FRAMES_WINDOW);
}
