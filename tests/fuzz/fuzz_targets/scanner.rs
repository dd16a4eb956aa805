//! Whatever a program prints, in whatever pieces: the scanner and the model of the screen take it,
//! and it comes out the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shellward_worker::trial::scan;

fuzz_target!(|input: (u8, u8, u8, String)| {
    let (step, cols, rows, text) = input;
    let whole = scan(&text, usize::MAX, true, None);
    let pieces = scan(
        &text,
        usize::from(step),
        true,
        Some((u16::from(cols).max(1), u16::from(rows).max(1))),
    );
    assert_eq!(whole, pieces);
    assert!(whole.bytes <= text.len());
});
