//! Everything at once, for long: terminals come and go, floods, clients that come back, workers and
//! supervisors that are killed. What it looks at is what grows.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::{DEADLINE, Host, Raw, Term, leftovers, proc};

/// Growth of a supervisor's memory that is still flat, in bytes: design.md's bound where a reader
/// lags behind. What is kept for `reconnect` alone takes 4 MiB, and fills up in the beginning.
const GROWTH: u64 = 16 << 20;

/// How long, and how often what.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    pub time: Duration,
    /// After each, everything stands still and is counted.
    pub cycle: Duration,
    /// After so many cycles the supervisor is killed in the middle of the next.
    pub life: u32,
    /// The same numbers in the same order.
    pub seed: u64,
}

impl Options {
    /// Cycles and lives that suit the time.
    pub fn lasting(time: Duration, seed: u64) -> Self {
        Self {
            time,
            cycle: (time / 12).clamp(Duration::from_secs(2), Duration::from_secs(20)),
            life: if time < Duration::from_secs(120) {
                2
            } else {
                10
            },
            seed,
        }
    }
}

/// What is there while everything stands still.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// The supervisor's own memory in bytes.
    pub memory: u64,
    pub descriptors: usize,
    /// In the supervisor and everything below it.
    pub ptys: usize,
    pub workers: usize,
    pub zombies: usize,
}

impl Figures {
    fn of(host: &Host) -> Self {
        let family = proc::descendants(host.pid);
        Self {
            memory: proc::memory(host.pid),
            descriptors: proc::descriptors(host.pid).len(),
            ptys: std::iter::once(host.pid)
                .chain(family.iter().map(|process| process.pid))
                .map(|pid| proc::ptys(pid).len())
                .sum(),
            workers: host.every_worker().len(),
            zombies: leftovers::zombies(host.pid).len(),
        }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{:.1} MiB, {} descriptors, {} ptys, {} workers, {} zombies",
            self.memory as f64 / f64::from(1 << 20),
            self.descriptors,
            self.ptys,
            self.workers,
            self.zombies
        )
    }
}

/// What was done.
#[derive(Debug, Default)]
pub struct Done {
    terminals: Cell<u64>,
    floods: Cell<u64>,
    reconnects: Cell<u64>,
    workers_killed: Cell<u64>,
    pub supervisors_killed: Cell<u64>,
}

impl fmt::Display for Done {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} terminals, {} floods, {} reconnects, {} workers and {} supervisors killed",
            self.terminals.get(),
            self.floods.get(),
            self.reconnects.get(),
            self.workers_killed.get(),
            self.supervisors_killed.get()
        )
    }
}

fn count(cell: &Cell<u64>) {
    cell.set(cell.get() + 1);
}

/// The first and the last figures of each supervisor's life.
pub type Lives = Vec<(Figures, Figures)>;

struct Soak<'a> {
    host: &'a Host,
    done: &'a Done,
    /// Splitmix64: no crate, and the same numbers again for the same seed.
    random: &'a RefCell<u64>,
    until: Instant,
}

/// Runs it; panics with what is wrong, and says how it goes with `say`.
pub async fn run(options: Options, mut say: impl FnMut(&str)) -> (Done, Lives) {
    let mut host = Host::dash();
    let done = Done::default();
    let random = RefCell::new(options.seed);
    let end = Instant::now() + options.time;
    let mut lives: Lives = Vec::new();
    let mut cycles = 0;
    while Instant::now() < end {
        let soak = Soak {
            host: &host,
            done: &done,
            random: &random,
            until: Instant::now() + options.cycle,
        };
        if cycles == options.life {
            let moment = options.cycle.mul_f64(0.5 + soak.chance(100) as f64 / 250.0);
            // Whatever is on its way then, is cut off.
            let ended = tokio::time::timeout(moment, soak.everything()).await;
            assert!(ended.is_err(), "it ended by itself");
            host.crash();
            count(&done.supervisors_killed);
            host.start_again();
            clear(&host).await;
            cycles = 0;
            continue;
        }
        soak.everything().await;
        let figures = settled(&host, lives.last().filter(|_| cycles > 0));
        say(&format!("{done}; {figures}"));
        match lives.last_mut().filter(|_| cycles > 0) {
            Some(life) => life.1 = figures,
            None => lives.push((figures, figures)),
        }
        cycles += 1;
    }
    host.stop();
    for (first, last) in &lives {
        let grown = last.memory.saturating_sub(first.memory);
        assert!(grown < GROWTH, "memory: from {first} to {last}");
    }
    (done, lives)
}

/// The figures, once nothing is left of what was done.
#[track_caller]
fn settled(host: &Host, life: Option<&(Figures, Figures)>) -> Figures {
    let most = life.map_or(usize::MAX, |(first, _)| first.descriptors);
    let left = leftovers::settle(DEADLINE, || {
        let now = Figures::of(host);
        let clean = now.ptys + now.workers + now.zombies == 0 && now.descriptors <= most;
        if clean { Vec::new() } else { vec![now] }
    });
    if let Some(left) = left.first() {
        panic!("left behind: {left}; there were {most} descriptors in the beginning");
    }
    let files = leftovers::sockets(host.runtime_dir());
    assert_eq!(files, std::slice::from_ref(&host.socket), "files");
    Figures::of(host)
}

/// Ends what a supervisor has taken over from one that was killed: everything that was left.
async fn clear(host: &Host) {
    let raw = Raw::open(host).await;
    let listing = host.ps();
    for entry in listing["terminals"].as_array().unwrap() {
        let params = json!({"channel": entry["uri"]});
        raw.request("disposeTerminal", params).await.unwrap();
    }
    let left = leftovers::settle(DEADLINE, || host.every_worker());
    assert!(left.is_empty(), "workers of a dead supervisor: {left:?}");
}

impl Soak<'_> {
    /// A number below `limit`.
    fn chance(&self, limit: u64) -> u64 {
        let mut state = self.random.borrow_mut();
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    fn goes_on(&self) -> bool {
        Instant::now() < self.until
    }

    async fn everything(&self) {
        tokio::join!(
            self.come_and_go(),
            self.come_and_go(),
            self.flood(),
            self.come_back(),
            self.kill_workers()
        );
    }

    async fn create(&self, raw: &Raw) -> Term {
        count(&self.done.terminals);
        Term::create(raw).await
    }

    async fn dispose(&self, raw: &Raw, terminal: &Term) {
        raw.request("disposeTerminal", json!({"channel": terminal.uri}))
            .await
            .unwrap();
    }

    /// Terminals that are made, used and ended in one way or another.
    async fn come_and_go(&self) {
        while self.goes_on() {
            // A client keeps every message; a new one now and then.
            let raw = Raw::open(self.host).await;
            for _ in 0..10 {
                let mut terminal = self.create(&raw).await;
                let number = self.chance(1000);
                let said = terminal
                    .output_of(&format!("sleep 1041 & echo $(({number}+1))"))
                    .await;
                assert_eq!(
                    said.trim().lines().next(),
                    Some((number + 1).to_string().as_str())
                );
                match self.chance(3) {
                    0 => {
                        terminal.line("exit 3").await;
                        assert_eq!(terminal.wait_exit().await["exitCode"], 3);
                        self.dispose(&raw, &terminal).await;
                    }
                    1 => {
                        terminal.assert_equals_snapshot().await;
                        self.dispose(&raw, &terminal).await;
                    }
                    _ => self.dispose(&raw, &terminal).await,
                }
            }
        }
    }

    /// Output as fast as it comes, with two readers.
    async fn flood(&self) {
        while self.goes_on() {
            let raw = Raw::open(self.host).await;
            let mut terminal = self.create(&raw).await;
            let second = Raw::open(self.host).await;
            Term::subscribe(&second, &terminal.uri).await;
            let lines = 20_000 + self.chance(200_000);
            let shown = terminal
                .output_within(&format!("seq 1 {lines}"), Duration::from_secs(60))
                .await;
            assert!(shown.trim().ends_with(&lines.to_string()));
            terminal.assert_equals_snapshot().await;
            self.dispose(&raw, &terminal).await;
            count(&self.done.floods);
        }
    }

    /// A client whose connection breaks and who comes back, over and over.
    async fn come_back(&self) {
        let owner = Raw::open(self.host).await;
        let mut terminal = self.create(&owner).await;
        let id = format!("back-{}", crate::unique());
        let mut client = Raw::open_as(self.host, &id).await;
        let mut watched = Term::subscribe(&client, &terminal.uri).await;
        while self.goes_on() {
            let said = format!("here-{}", self.chance(1 << 40));
            terminal.output_of(&format!("echo {said}")).await;
            watched.wait_text(&said).await;
            watched.assert_equals_snapshot().await;
            let seen = watched.folded.seq;
            drop(client);
            terminal.output_of("echo meanwhile").await;
            client = Raw::connect(self.host).await;
            client.become_client(&id);
            let params = json!({
                "clientId": id, "lastSeenServerSeq": seen, "subscriptions": [terminal.uri],
            });
            client.request("reconnect", params).await.unwrap();
            watched = Term::subscribe(&client, &terminal.uri).await;
            assert!(watched.seen.contains(&said));
            count(&self.done.reconnects);
        }
        self.dispose(&owner, &terminal).await;
    }

    async fn kill_workers(&self) {
        let raw = Raw::open(self.host).await;
        while self.goes_on() {
            let mut terminal = self.create(&raw).await;
            let (worker, _) = self.host.pids(&terminal.uri);
            terminal.line("sleep 1042 & yes").await;
            tokio::time::sleep(Duration::from_millis(self.chance(200))).await;
            kill(Pid::from_raw(worker), Signal::SIGKILL).unwrap();
            let exit = terminal.wait_exit().await;
            assert_eq!(
                (&exit["exitCode"], &exit["signal"]),
                (&json!(128), &json!("SIGKILL"))
            );
            self.dispose(&raw, &terminal).await;
            count(&self.done.workers_killed);
            tokio::time::sleep(Duration::from_millis(300 + self.chance(700))).await;
        }
    }
}
