//! Lengths that lie: no header and no length prefix makes the decoder reserve what it has not got.
//!
//! One test in this file: the counting allocator sees the whole process.

#![allow(clippy::unwrap_used, clippy::panic)]
#![allow(unsafe_code, reason = "a counting allocator is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use shellward_protocol::frame::HEADER_LEN;
use shellward_protocol::limits::PAYLOAD_MAX;
use shellward_protocol::message::kind;
use shellward_protocol::{Boot, FrameDecoder, FromWorker, Header, Hello, ToWorker, WIRE_VERSION};

struct Counting;

static LARGEST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LARGEST.fetch_max(size, Ordering::Relaxed);
        // SAFETY: the caller keeps the contract of `realloc`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The largest single allocation while `f` runs.
fn largest_during(f: impl FnOnce()) -> usize {
    LARGEST.store(0, Ordering::Relaxed);
    f();
    LARGEST.load(Ordering::Relaxed)
}

/// serde reserves at most this much on the word of a length prefix.
const CAUTION: usize = 2 << 20;

#[test]
fn lengths_that_lie_reserve_nothing() {
    assert!(largest_during(|| drop(std::hint::black_box(vec![1_u8; 5 << 20]))) >= 5 << 20);

    for len in [1, PAYLOAD_MAX, PAYLOAD_MAX + 1, 1 << 30, u32::MAX as usize] {
        let largest = largest_during(|| {
            let mut decoder = FrameDecoder::new();
            let head = Header {
                version: WIRE_VERSION,
                kind: kind::OUTPUT,
                len: u32::try_from(len).unwrap(),
            };
            decoder.push(&head.to_bytes());
            let frame = decoder.next_frame();
            if len > PAYLOAD_MAX {
                assert!(frame.is_err());
            } else {
                assert!(matches!(frame, Ok(None)));
            }
        });
        assert!(
            largest <= 4096,
            "a header that claims {len} bytes reserved {largest}"
        );
    }

    // Every eight bytes of a payload may be read as a length.
    for filler in [0x00, 0x01, 0x7f, 0x80, 0xff] {
        for len in 0..160 {
            for position in 0..len {
                let mut payload = vec![0_u8; len];
                for byte in &mut payload[position..] {
                    *byte = filler;
                }
                let largest = largest_during(|| {
                    for kind in [1, 2].into_iter().chain(16..=24).chain([32]).chain(64..=71) {
                        let header = Header {
                            version: WIRE_VERSION,
                            kind,
                            len: u32::try_from(len).unwrap(),
                        };
                        drop(ToWorker::decode(header, &payload));
                        drop(FromWorker::decode(header, &payload));
                        drop(Hello::decode(header, &payload));
                        drop(Boot::decode(header, &payload));
                    }
                });
                assert!(
                    largest <= CAUTION,
                    "{len} bytes of payload made the decoder reserve {largest}"
                );
            }
        }
    }

    // A stream that never ends a frame holds one frame, no more.
    let largest = largest_during(|| {
        let mut decoder = FrameDecoder::new();
        let head = Header {
            version: WIRE_VERSION,
            kind: kind::OUTPUT,
            len: u32::try_from(PAYLOAD_MAX).unwrap(),
        };
        decoder.push(&head.to_bytes());
        let piece = [0_u8; 4096];
        let mut given = 0;
        while given + piece.len() <= PAYLOAD_MAX {
            decoder.push(&piece);
            given += piece.len();
            assert!(matches!(decoder.next_frame(), Ok(None)) || given == PAYLOAD_MAX);
        }
    });
    assert!(
        largest <= 2 * (PAYLOAD_MAX + HEADER_LEN + 4096),
        "one frame took {largest} bytes"
    );
}
