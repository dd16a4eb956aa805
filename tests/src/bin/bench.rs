//! Shellward beside a bare pty, in the same run: throughput, echo, start.
//!
//! `bench --help` lists the options; the binaries are those of `SHELLWARD_BIN_DIR`, else of
//! `target/dist`. Every number is the median of its rounds, and the
//! two sides take turns.

#![forbid(unsafe_code)]

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use shellward_tests::bare::{Bare, write_build_log, write_colours};
use shellward_tests::{Host, ROOT, unique};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

const HELP: &str = "\
Measures Shellward beside a bare pty in the same run: throughput, echo, start.

  --mib N      size of each of the two files that are printed [64]
  --rounds N   rounds of throughput and echo; the median counts [5]
  --keys N     keys per round of echo [2000]
  --starts N   terminals opened [30]
  --shell PATH what the host's terminals run [/bin/dash]; the bare pty always has dash
  --off        without shell integration
  --json       one JSON object instead of a table";

/// Where keys come with pauses.
const BETWEEN_KEYS: Duration = Duration::from_millis(5);

/// Until scrollback and buffers are full.
const FLOOD_BEGINS: Duration = Duration::from_millis(500);

struct Options {
    mib: usize,
    rounds: usize,
    keys: usize,
    starts: usize,
    shell: String,
    off: bool,
    json: bool,
}

fn options() -> Result<Options> {
    let mut options = Options {
        mib: 64,
        rounds: 5,
        keys: 2000,
        starts: 30,
        shell: "/bin/dash".to_owned(),
        off: false,
        json: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || -> Result<usize> {
            let word = words.next().context("a number is missing")?;
            Ok(word.parse::<usize>()?.max(1))
        };
        match word.as_str() {
            "--mib" => options.mib = number()?,
            "--rounds" => options.rounds = number()?,
            "--keys" => options.keys = number()?,
            "--starts" => options.starts = number()?,
            "--shell" => options.shell = words.next().context("the shell is missing")?,
            "--off" => options.off = true,
            "--json" => options.json = true,
            "--help" | "-h" => {
                println!("{HELP}");
                std::process::exit(0);
            }
            other => bail!("unknown option {other}; --help lists them"),
        }
    }
    Ok(options)
}

/// Time from Enter to the end of the shell, all output read.
fn bare_throughput(file: &Path) -> Result<Duration> {
    let mut bare = Bare::start()?;
    bare.read_until("$ ")?;
    writeln!(bare.writer, "stty -echo; echo rea''dy")?;
    bare.read_until("ready\r\n")?;
    let start = Instant::now();
    writeln!(bare.writer, "cat {}; exit", file.display())?;
    let mut buffer = vec![0; 64 << 10];
    let mut total = 0_u64;
    // The end of a pty is an error or nothing, depending on who looks.
    while let Ok(count) = bare.reader.read(&mut buffer) {
        if count == 0 {
            break;
        }
        total += count as u64;
    }
    let took = start.elapsed();
    bare.child.wait()?;
    ensure!(total >= file.metadata()?.len(), "output is missing");
    Ok(took)
}

fn bare_echo(keys: usize, pause: Duration) -> Result<Vec<Duration>> {
    let mut bare = Bare::start()?;
    bare.read_until("$ ")?;
    writeln!(bare.writer, "stty raw -echo; printf rea''dy; cat")?;
    bare.read_until("ready")?;
    let mut times = Vec::with_capacity(keys);
    let mut buffer = [0; 64];
    for _ in 0..keys {
        let start = Instant::now();
        bare.writer.write_all(b"k")?;
        ensure!(bare.reader.read(&mut buffer)? == 1, "more than one byte");
        times.push(start.elapsed());
        std::thread::sleep(pause);
    }
    bare.end()?;
    Ok(times)
}

fn bare_start() -> Result<Duration> {
    let start = Instant::now();
    let mut bare = Bare::start()?;
    let mut buffer = [0; 64];
    ensure!(bare.reader.read(&mut buffer)? > 0, "no output");
    let took = start.elapsed();
    bare.end()?;
    Ok(took)
}

/// As little client as there can be: what is measured is the host.
struct Client {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    next: u64,
    id: String,
}

impl Client {
    async fn open(host: &Host) -> Result<Self> {
        let (socket, _) = tokio_tungstenite::connect_async(host.url_with_token()).await?;
        let mut client = Self {
            socket,
            next: 1,
            id: format!("bench-{}", unique()),
        };
        let id = client.id.clone();
        client
            .request(
                "initialize",
                json!({"channel": ROOT, "protocolVersions": ["1.0.0"], "clientId": id}),
            )
            .await?;
        Ok(client)
    }

    async fn send(&mut self, value: Value) -> Result<()> {
        Ok(self.socket.send(Message::text(value.to_string())).await?)
    }

    async fn next_text(&mut self) -> Result<String> {
        loop {
            match self.socket.next().await.context("the host closed")?? {
                Message::Text(text) => return Ok(text.as_str().to_owned()),
                Message::Close(frame) => bail!("the host closed: {frame:?}"),
                _ => {}
            }
        }
    }

    async fn start(&mut self, method: &str, params: Value) -> Result<u64> {
        let id = self.next;
        self.next += 1;
        self.send(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
            .await?;
        Ok(id)
    }

    async fn request(&mut self, method: &str, params: Value) -> Result<Value> {
        let id = self.start(method, params).await?;
        loop {
            let message: Value = serde_json::from_str(&self.next_text().await?)?;
            if message["id"] == id && message.get("method").is_none() {
                ensure!(message.get("error").is_none(), "{method}: {message}");
                return Ok(message["result"].clone());
            }
        }
    }

    async fn terminal(&mut self) -> Result<String> {
        let uri = format!("ahp-terminal:/{}", unique());
        self.request("createTerminal", json!({"channel": uri}))
            .await?;
        self.request("subscribe", json!({"channel": uri})).await?;
        Ok(uri)
    }

    async fn input(&mut self, uri: &str, text: &str) -> Result<()> {
        self.send(json!({
            "jsonrpc": "2.0", "method": "dispatchAction",
            "params": {"channel": uri, "clientSeq": 1, "action": {"type": "terminal/input", "data": text}},
        }))
        .await
    }

    /// Receives until `text` was printed, in however many pieces.
    async fn until_text(&mut self, text: &str) -> Result<()> {
        let mut printed = String::new();
        while !printed.contains(text) {
            let message: Value = serde_json::from_str(&self.next_text().await?)?;
            let action = &message["params"]["action"];
            if action["type"] == "terminal/data" {
                printed.push_str(action["data"].as_str().unwrap_or_default());
            }
        }
        Ok(())
    }

    /// Receives until a `terminal/data` holds `needle`.
    async fn until_data(&mut self, needle: &str) -> Result<()> {
        loop {
            let text = self.next_text().await?;
            if text.contains("\"terminal/data\"") && text.contains(needle) {
                return Ok(());
            }
        }
    }

    async fn dispose(&mut self, uri: &str) -> Result<()> {
        self.request("disposeTerminal", json!({"channel": uri}))
            .await?;
        Ok(())
    }
}

async fn host_throughput(client: &mut Client, file: &Path) -> Result<Duration> {
    let uri = client.terminal().await?;
    client.input(&uri, "stty -echo; echo rea''dy\r").await?;
    client.until_text("ready\r\n").await?;
    let start = Instant::now();
    client
        .input(&uri, &format!("cat {}; exit\r", file.display()))
        .await?;
    let mut total = 0_u64;
    loop {
        match client.socket.next().await.context("the host closed")?? {
            Message::Text(text) => {
                total += text.len() as u64;
                // Only short messages are looked into.
                if text.len() < 1000 && text.contains("\"terminal/exited\"") {
                    break;
                }
            }
            Message::Close(frame) => bail!("the host closed: {frame:?}"),
            _ => {}
        }
    }
    let took = start.elapsed();
    ensure!(total >= file.metadata()?.len(), "output is missing");
    client.dispose(&uri).await?;
    Ok(took)
}

async fn host_echo(client: &mut Client, keys: usize, pause: Duration) -> Result<Vec<Duration>> {
    let uri = client.terminal().await?;
    client
        .input(&uri, "stty raw -echo; printf rea''dy; cat\r")
        .await?;
    client.until_text("ready").await?;
    let mut times = Vec::with_capacity(keys);
    for _ in 0..keys {
        let start = Instant::now();
        client.input(&uri, "k").await?;
        client.until_data("\"k\"").await?;
        times.push(start.elapsed());
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    }
    client.dispose(&uri).await?;
    Ok(times)
}

/// `yes` on a bare pty, read as fast as it comes, until the other side of `ended` is dropped.
fn bare_flood(ended: &std::sync::atomic::AtomicBool) -> Result<()> {
    let mut bare = Bare::start()?;
    bare.read_until("$ ")?;
    writeln!(bare.writer, "exec yes")?;
    let mut buffer = vec![0; 64 << 10];
    while !ended.load(std::sync::atomic::Ordering::Relaxed) {
        ensure!(bare.reader.read(&mut buffer)? > 0, "yes has ended");
    }
    bare.end()
}

async fn bare_busy_echo(keys: usize) -> Result<Vec<Duration>> {
    let ended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = std::sync::Arc::clone(&ended);
    let flood = tokio::task::spawn_blocking(move || bare_flood(&seen));
    tokio::time::sleep(FLOOD_BEGINS).await;
    let times = tokio::task::spawn_blocking(move || bare_echo(keys, BETWEEN_KEYS)).await?;
    ended.store(true, std::sync::atomic::Ordering::Relaxed);
    flood.await??;
    times
}

async fn host_busy_echo(host: &Host, client: &mut Client, keys: usize) -> Result<Vec<Duration>> {
    let mut reader = Client::open(host).await?;
    let uri = reader.terminal().await?;
    reader.input(&uri, "exec yes\r").await?;
    let flood = tokio::spawn(async move {
        loop {
            if let Err(error) = reader.next_text().await {
                return error;
            }
        }
    });
    tokio::time::sleep(FLOOD_BEGINS).await;
    let times = host_echo(client, keys, BETWEEN_KEYS).await;
    ensure!(!flood.is_finished(), "the flood's reader was closed");
    flood.abort();
    client.dispose(&uri).await?;
    times
}

async fn host_start(client: &mut Client) -> Result<Duration> {
    let uri = format!("ahp-terminal:/{}", unique());
    let start = Instant::now();
    client
        .start("createTerminal", json!({"channel": uri}))
        .await?;
    let subscribed = client.start("subscribe", json!({"channel": uri})).await?;
    loop {
        let message: Value = serde_json::from_str(&client.next_text().await?)?;
        ensure!(message.get("error").is_none(), "{message}");
        let in_snapshot = message["id"] == subscribed
            && message["result"]["snapshot"]["state"]["content"]
                .as_array()
                .is_some_and(|parts| !parts.is_empty());
        if in_snapshot || message["params"]["action"]["type"] == "terminal/data" {
            break;
        }
    }
    let took = start.elapsed();
    client.dispose(&uri).await?;
    Ok(took)
}

fn quantile(times: &[Duration], part: f64) -> f64 {
    let mut sorted: Vec<f64> = times.iter().map(Duration::as_secs_f64).collect();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    let at = (last as f64 * part).round();
    sorted.get(at as usize).copied().unwrap_or(f64::NAN)
}

fn median(values: &[Duration]) -> f64 {
    quantile(values, 0.5)
}

struct Row {
    name: &'static str,
    unit: &'static str,
    host: f64,
    bare: f64,
    target: &'static str,
}

impl Row {
    fn ratio(&self) -> f64 {
        self.host / self.bare
    }
}

async fn throughput(
    name: &'static str,
    target: &'static str,
    client: &mut Client,
    file: &Path,
    rounds: usize,
) -> Result<Row> {
    let (mut host, mut bare) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let path = PathBuf::from(file);
        bare.push(tokio::task::spawn_blocking(move || bare_throughput(&path)).await??);
        host.push(host_throughput(client, file).await?);
    }
    let mib = file.metadata()?.len() as f64 / f64::from(1 << 20);
    Ok(Row {
        name,
        unit: "MiB/s",
        host: mib / median(&host),
        bare: mib / median(&bare),
        target,
    })
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> Result<()> {
    let options = options()?;
    let mut builder = Host::builder().option("--shell", &options.shell);
    if options.off {
        builder = builder.option("--shell-integration", "off");
    }
    let host = builder.start();
    let log = host.folder().join("build.log");
    let colours = host.folder().join("colours");
    write_build_log(&log, options.mib << 20)?;
    write_colours(&colours, options.mib << 20)?;
    let mut client = Client::open(&host).await?;

    let mut rows = vec![
        throughput(
            "output, build log",
            ">= 0.75",
            &mut client,
            &log,
            options.rounds,
        )
        .await?,
        throughput(
            "output, colour CJK emoji",
            ">= 0.60",
            &mut client,
            &colours,
            options.rounds,
        )
        .await?,
    ];

    let (mut p50, mut p99) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
    for _ in 0..options.rounds {
        let keys = options.keys;
        let bare = tokio::task::spawn_blocking(move || bare_echo(keys, Duration::ZERO)).await??;
        let host = host_echo(&mut client, keys, Duration::ZERO).await?;
        p50.0.push(Duration::from_secs_f64(median(&host)));
        p50.1.push(Duration::from_secs_f64(median(&bare)));
        p99.0.push(Duration::from_secs_f64(quantile(&host, 0.99)));
        p99.1.push(Duration::from_secs_f64(quantile(&bare, 0.99)));
    }
    let micros = |times: &[Duration]| median(times) * 1e6;
    rows.push(Row {
        name: "echo p50",
        unit: "us",
        host: micros(&p50.0),
        bare: micros(&p50.1),
        target: "<= 2.5",
    });
    rows.push(Row {
        name: "echo p99",
        unit: "us",
        host: micros(&p99.0),
        bare: micros(&p99.1),
        target: "",
    });

    // With pauses, as people type: a machine that is asked without one never falls asleep.
    let (mut calm, mut busy) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
    for _ in 0..options.rounds {
        let keys = options.keys / 16;
        let of = |times: &[Duration]| Duration::from_secs_f64(median(times));
        let bare = move || bare_echo(keys, BETWEEN_KEYS);
        calm.1.push(of(&tokio::task::spawn_blocking(bare).await??));
        calm.0
            .push(of(&host_echo(&mut client, keys, BETWEEN_KEYS).await?));
        busy.1.push(of(&bare_busy_echo(keys).await?));
        busy.0
            .push(of(&host_busy_echo(&host, &mut client, keys).await?));
    }
    for (name, (host, bare)) in [
        ("echo p50, 5 ms apart", calm),
        ("the same beside yes", busy),
    ] {
        rows.push(Row {
            name,
            unit: "us",
            host: micros(&host),
            bare: micros(&bare),
            target: "",
        });
    }

    let (mut host_starts, mut bare_starts) = (Vec::new(), Vec::new());
    for _ in 0..options.starts {
        bare_starts.push(tokio::task::spawn_blocking(bare_start).await??);
        host_starts.push(host_start(&mut client).await?);
    }
    rows.push(Row {
        name: "create to first output",
        unit: "us",
        host: micros(&host_starts),
        bare: micros(&bare_starts),
        target: "<= 2",
    });

    drop(client);
    host.stop();

    if options.json {
        let rows: Vec<Value> = rows
            .iter()
            .map(|row| {
                json!({"name": row.name, "unit": row.unit, "host": row.host, "bare": row.bare,
                    "ratio": row.ratio(), "target": row.target})
            })
            .collect();
        println!(
            "{}",
            json!({"mib": options.mib, "rounds": options.rounds, "rows": rows})
        );
    } else {
        println!(
            "{:<26} {:>12} {:>12} {:>7}  {:<8} unit",
            "", "shellward", "bare pty", "ratio", "target"
        );
        for row in &rows {
            println!(
                "{:<26} {:>12.1} {:>12.1} {:>7.2}  {:<8} {}",
                row.name,
                row.host,
                row.bare,
                row.ratio(),
                row.target,
                row.unit
            );
        }
    }
    Ok(())
}
