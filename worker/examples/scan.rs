//! How fast the scanner is by itself: `cargo run --release -p shellward-worker --example scan`.
//!
//! In the worker's pieces of 64 KiB, without and with the model of the screen, best of several runs.

use std::time::Instant;

use shellward_worker::trial::scan;

const SIZE: usize = 64 << 20;
const PIECE: usize = 64 << 10;
const RUNS: u32 = 5;

fn main() {
    let fill = |unit: &str| unit.repeat(SIZE / unit.len());
    let plain =
        "2026-11-30 14:00:00 INFO compiled crate number 4711 in 12.5 s, nothing to report\r\n";
    let colour = "\u{1b}[1;32m   Compiling\u{1b}[0m 漢字 v1.2.3 \u{1b}[38;2;200;100;50mwarning\u{1b}[0m \u{1f600} done\r\n";
    let letters = "\u{1b}[31ma\u{1b}[32mb";
    let painted = "\u{1b}[12;40Hcell\u{1b}[K\u{1b}[3;1Hother \u{1b}[7mbar\u{1b}[m";
    let prompts = "\u{1b}]133;D;0\u{7}\u{1b}]133;A\u{7}user@host:~$ \u{1b}]133;B\u{7}ls\r\n\u{1b}]133;C\u{7}a b c\r\n";
    println!("{:<34}{:>12}{:>16}", "", "alone, MB/s", "and screen, MB/s");
    for (name, unit) in [
        ("plain text", plain),
        ("colour, CJK, emoji", colour),
        ("a colour for each letter", letters),
        ("a painted screen", painted),
        ("a prompt in every two lines", prompts),
    ] {
        let text = fill(unit);
        let best = |screen: Option<(u16, u16)>| {
            (0..RUNS)
                .map(|_| {
                    let start = Instant::now();
                    let scanned = scan(&text, PIECE, false, screen);
                    assert!(scanned.bytes <= text.len());
                    text.len() as f64 / start.elapsed().as_secs_f64() / 1e6
                })
                .fold(0.0, f64::max)
        };
        println!(
            "{name:<34}{:>12.0}{:>16.0}",
            best(None),
            best(Some((80, 24)))
        );
    }
}
