use super::*;
use shellward_protocol::FrameDecoder;

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
    let mut greeting = Vec::new();
    FromWorker::InputTaken(InputTaken { total: 0 })
        .encode(&mut greeting)
        .unwrap();
    outbox.attach(greeting, 0, true).unwrap();
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
