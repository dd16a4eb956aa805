//! Everything at once, for long, with a verdict in numbers. `scripts/soak` builds and runs it.

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use anyhow::Context as _;
use shellward_tests::soak::{Options, run};

const USAGE: &str = "usage: soak [--seconds N] [--seed N]";

fn main() -> anyhow::Result<()> {
    let mut seconds = 30 * 60;
    let mut seed = std::time::UNIX_EPOCH.elapsed()?.as_secs();
    let mut args = std::env::args().skip(1);
    while let Some(flag) = args.next() {
        let number = args.next().and_then(|value| value.parse().ok());
        match flag.as_str() {
            "--seconds" => seconds = number.context(USAGE)?,
            "--seed" => seed = number.context(USAGE)?,
            _ => anyhow::bail!(USAGE),
        }
    }
    let options = Options::lasting(Duration::from_secs(seconds), seed);
    println!("{options:?}");
    let start = Instant::now();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    // A fault panics with what is wrong, and the exit code says so.
    let (done, lives) = runtime.block_on(run(options, |line| {
        println!("{:7.1} s: {line}", start.elapsed().as_secs_f64());
    }));
    println!("\n{done} in {:.0} s", start.elapsed().as_secs_f64());
    for (number, (first, last)) in lives.iter().enumerate() {
        println!(
            "supervisor {}: from {first}\n{:>14} {last}",
            number + 1,
            "to"
        );
    }
    println!("verdict: sound");
    Ok(())
}
