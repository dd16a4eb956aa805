//! Plays the supervisor for a real worker process.

// Each test binary uses a part of it.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus as ProcessStatus, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getuid};
use shellward_protocol::kept::{self, Kept, Lost, Past};
use shellward_protocol::message::{
    Ack, Command as TerminalCommand, Event, ExitStatus, Happened, Input, Marks, Mode, Size, Start,
    StartFailed, Terminate,
};
use shellward_protocol::{
    AttachToken, Boot, Data, FrameDecoder, FromWorker, Hello, Role, ToWorker,
};

/// Nothing here takes this long unless it is broken.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub const SIZE: Size = Size { cols: 80, rows: 24 };

/// A worker process and where it listens.
pub struct Worker {
    child: Child,
    pub socket: PathBuf,
    pub token: AttachToken,
    _dir: tempfile::TempDir,
}

impl Worker {
    pub fn spawn() -> Self {
        Self::spawn_for(getuid().as_raw())
    }

    /// A worker that lets only this user attach.
    pub fn spawn_for(supervisor_uid: u32) -> Self {
        Self::spawn_with(supervisor_uid, Stdio::inherit())
    }

    /// A worker that writes its log there.
    pub fn spawn_logging_to(log: Stdio) -> Self {
        Self::spawn_with(getuid().as_raw(), log)
    }

    fn spawn_with(supervisor_uid: u32, log: Stdio) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let token = AttachToken::new([42; AttachToken::LEN]);
        let mut child = Command::new(env!("CARGO_BIN_EXE_shellward-worker"))
            .arg("run")
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut boot = Vec::new();
        Boot {
            socket: Data::borrowed(socket.as_os_str().as_bytes()),
            token: token.clone(),
            supervisor_uid,
        }
        .encode(&mut boot)
        .unwrap();
        child.stdin.take().unwrap().write_all(&boot).unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n");
        Self {
            child,
            socket,
            token,
            _dir: dir,
        }
    }

    /// Fails unless it does not wake up for a whole second, sooner or later.
    pub fn comes_to_rest(&self) {
        let switches = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
            let line = status
                .lines()
                .find(|line| line.starts_with("voluntary_ctxt_switches"))
                .unwrap();
            line.rsplit('\t').next().unwrap().parse::<u64>().unwrap()
        };
        let mut before = switches();
        eventually(PATIENCE, "it rests for a second", || {
            std::thread::sleep(Duration::from_secs(1));
            let now = switches();
            let rests = now == before;
            before = now;
            rests
        });
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.socket).unwrap()
    }

    pub fn attach(&self, epoch: u64) -> Link {
        self.attach_with(self.token.clone(), epoch).unwrap()
    }

    /// Says hello; `None` if the worker hangs up.
    pub fn attach_with(&self, token: AttachToken, epoch: u64) -> Option<Link> {
        let mut link = Link::new(self.connect());
        let mut bytes = Vec::new();
        Hello {
            oldest: 1,
            newest: 1,
            role: Role::Supervisor,
            pid: std::process::id(),
            epoch,
            token,
        }
        .encode(&mut bytes)
        .unwrap();
        // One that is refused by its user id is hung up on before it says anything.
        link.stream.write_all(&bytes).ok()?;
        let hello = link.frame(PATIENCE, |header, payload| {
            Hello::decode(header, payload).unwrap()
        })?;
        assert_eq!(hello.role, Role::Worker);
        assert_eq!(hello.pid, self.pid());
        assert_eq!(hello.epoch, epoch);
        assert_eq!(hello.token.expose(), &[0; AttachToken::LEN]);
        Some(link)
    }

    /// Attaches and starts a shell with this line.
    pub fn run(&self, line: &str) -> Link {
        let mut link = self.attach(1);
        link.start(&start(line));
        link
    }

    /// The same on pipes.
    pub fn pipe(&self, line: &str) -> Link {
        let mut link = self.attach(1);
        link.start(&Start {
            mode: Mode::Pipes,
            ..start(line)
        });
        link
    }

    /// A shell on pipes that reads commands.
    pub fn pipe_shell(&self, shell: &str) -> Link {
        let mut link = self.attach(1);
        link.start(&Start {
            mode: Mode::Pipes,
            shell: Data::borrowed(shell.as_bytes()),
            command: TerminalCommand::Shell,
            ..start("")
        });
        link
    }

    /// Waits for the end of the worker process.
    pub fn wait(&mut self, patience: Duration) -> ProcessStatus {
        let mut status = None;
        eventually(patience, "the worker exits", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid().try_into().unwrap()), signal).unwrap();
    }

    /// User and system time so far.
    pub fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
        let ticks: u64 = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_ascii_whitespace()
            .skip(11)
            .take(2)
            .map(|field| field.parse::<u64>().unwrap())
            .sum();
        Duration::from_millis(ticks * 10)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            self.signal(Signal::SIGTERM);
            let until = Instant::now() + Duration::from_secs(8);
            while Instant::now() < until && self.child.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(5));
            }
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}

pub fn start(line: &str) -> Start<'_> {
    Start {
        mode: Mode::Pty(Data::default()),
        shell: Data::borrowed(b"/bin/sh"),
        command: TerminalCommand::Line(Data::borrowed(line.as_bytes())),
        cwd: Data::borrowed(b"/"),
        host_env: vec![(
            Data::borrowed(b"PATH"),
            Data::borrowed(b"/usr/local/bin:/usr/bin:/bin"),
        )],
        caller_env: Vec::new(),
        size: SIZE,
        umask: 0o022,
        limits: Vec::new(),
        marks: Marks::Strip,
        integrate: false,
        card: Data::default(),
        commands: 0,
        reattach_grace_ms: 5000,
        orphan_timeout_ms: 60_000,
    }
}

/// The supervisor's end of a link. Acknowledges output as it comes, unless told not to.
pub struct Link {
    pub stream: UnixStream,
    decoder: FrameDecoder,
    pub acks: bool,
    seq: u64,
    pub output: String,
    offset: u64,
    pub taken: u64,
    pub shell_pid: u32,
    pub is_pty: bool,
    pub exits: Vec<ExitStatus>,
    /// Each with how much output came before it.
    pub events: Vec<(usize, Happened<'static>)>,
    pub failed: Option<StartFailed>,
    pub cuts: Vec<usize>,
    pub kept: Option<Kept<'static>>,
    pub past: Vec<Past<'static>>,
    pub lost: Vec<Lost<'static>>,
}

impl Link {
    fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            decoder: FrameDecoder::new(),
            acks: true,
            seq: 0,
            output: String::new(),
            offset: 0,
            taken: 0,
            shell_pid: 0,
            is_pty: false,
            exits: Vec::new(),
            events: Vec::new(),
            failed: None,
            cuts: Vec::new(),
            kept: None,
            past: Vec::new(),
            lost: Vec::new(),
        }
    }

    pub fn send(&mut self, message: &ToWorker<'_>) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes).unwrap();
        self.stream.write_all(&bytes).unwrap();
    }

    pub fn start(&mut self, start: &Start<'_>) {
        self.send(&ToWorker::Start(Box::new(start.clone())));
    }

    pub fn type_in(&mut self, data: &[u8]) {
        self.seq += 1;
        let seq = self.seq;
        let data = Data::borrowed(data);
        self.send(&ToWorker::Input(Input { seq, data }));
    }

    pub fn terminate(&mut self, grace: Duration) {
        let grace_ms = u32::try_from(grace.as_millis()).unwrap();
        self.send(&ToWorker::Terminate(Terminate { grace_ms }));
    }

    /// Ends what has ended anyway: the worker leaves.
    pub fn dismiss(&mut self) {
        self.terminate(Duration::ZERO);
    }

    /// Waits for everything that is told first when a running terminal is attached to.
    pub fn until_kept(&mut self) -> Kept<'static> {
        self.until("what was kept", |link| {
            link.kept
                .as_ref()
                .is_some_and(|kept| link.past.len() == kept.past as usize)
        });
        self.kept.clone().unwrap()
    }

    /// The text of the past, and then of what came since.
    pub fn all_text(&self) -> String {
        let mut all: String = self.past.iter().filter_map(past_text).collect();
        all.push_str(&self.output);
        all
    }

    /// The next frame; `None` at the end of the stream.
    fn frame<T>(
        &mut self,
        patience: Duration,
        take: impl FnOnce(shellward_protocol::Header, &[u8]) -> T,
    ) -> Option<T> {
        let until = Instant::now() + patience;
        loop {
            // The borrow checker does not see that a returned frame ends the loop.
            if let Some((header, payload)) = self
                .decoder
                .next_frame()
                .unwrap()
                .map(|(header, payload)| (header, payload.to_vec()))
            {
                return Some(take(header, &payload));
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "nothing came; so far: {:?}", self.output);
            self.stream.set_read_timeout(Some(left)).unwrap();
            match self.stream.read(self.decoder.space(64 << 10)) {
                Ok(0) => return None,
                Ok(n) => self.decoder.filled(n),
                Err(error) => match error.kind() {
                    std::io::ErrorKind::ConnectionReset => return None,
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::Interrupted => {}
                    _ => panic!("reading the link: {error}"),
                },
            }
        }
    }

    /// Takes one message into account; false at the end of the stream.
    pub fn step(&mut self) -> bool {
        let mut frame = None;
        self.frame(PATIENCE, |header, payload| {
            frame = Some((header, payload.to_vec()));
        });
        let Some((header, payload)) = frame else {
            return false;
        };
        match FromWorker::decode(header, &payload).unwrap() {
            FromWorker::Started(started) => {
                self.is_pty = started.is_pty;
                self.shell_pid = started.shell_pid;
            }
            FromWorker::Kept(kept) => {
                assert!(
                    self.kept.is_none() && self.offset == 0,
                    "it comes first, once"
                );
                self.shell_pid = kept.shell_pid;
                self.is_pty = kept.is_pty;
                self.offset = kept.offset;
                self.seq = kept.typed.seq;
                self.taken = kept.typed.taken;
                self.kept = Some(owned(*kept));
            }
            FromWorker::Past(past) => self.past.push(owned_past(past)),
            FromWorker::Lost(lost) => {
                assert_eq!(lost.offset, self.offset, "it is missing where it would be");
                assert!(lost.places > 0);
                self.offset += lost.places;
                self.lost.push(owned_lost(*lost));
                if self.acks {
                    self.ack();
                }
            }
            FromWorker::StartFailed(failed) => self.failed = Some(failed),
            FromWorker::Output(output) => {
                self.assert_told();
                assert_eq!(output.offset, self.offset, "output is in order");
                let text = std::str::from_utf8(output.data.as_slice()).unwrap();
                assert!(!text.is_empty());
                for cut in &output.cuts {
                    assert!(text.is_char_boundary(cut.at as usize));
                    self.cuts.push(self.output.len() + cut.at as usize);
                }
                self.offset += text.len() as u64;
                self.output.push_str(text);
                if self.acks {
                    self.ack();
                }
            }
            FromWorker::InputTaken(taken) => {
                assert!(taken.total > self.taken);
                self.taken = taken.total;
            }
            FromWorker::Exited(exited) => self.exits.push(exited.status),
            FromWorker::Event(Event { offset, what }) => {
                self.assert_told();
                assert_eq!(offset, self.offset, "events are in order");
                self.offset += 1;
                self.events.push((self.output.len(), what.into_owned()));
            }
        }
        true
    }

    fn assert_told(&self) {
        let told = self.kept.as_ref().map_or(0, |kept| kept.past as usize);
        assert_eq!(self.past.len(), told, "the past comes first");
    }

    /// Where in the stream this link is.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Acknowledges everything that came.
    pub fn ack(&mut self) {
        let offset = self.offset;
        let mut bytes = Vec::new();
        ToWorker::Ack(Ack { offset }).encode(&mut bytes).unwrap();
        // The worker may have left meanwhile.
        self.stream.write_all(&bytes).ok();
    }

    pub fn until(&mut self, what: &str, mut done: impl FnMut(&Self) -> bool) {
        while !done(self) {
            assert!(self.step(), "ended before {what}: {:?}", self.output);
        }
    }

    pub fn until_output(&mut self, text: &str) {
        self.until(text, |link| link.output.contains(text));
    }

    /// Reads to the announcement of the exit.
    pub fn until_exit(&mut self) -> ExitStatus {
        self.until("the exit", |link| !link.exits.is_empty());
        self.exits[0]
    }

    /// Reads to the end of the stream.
    pub fn until_end(&mut self) {
        while self.step() {}
    }
}

/// The text in a piece of the past.
pub fn past_text<'a>(past: &'a Past<'_>) -> Option<&'a str> {
    match past {
        Past::Text { data, .. } => Some(std::str::from_utf8(data.as_slice()).unwrap()),
        _ => None,
    }
}

fn owned_past(past: Past<'_>) -> Past<'static> {
    match past {
        Past::Text { cuts, data } => Past::Text {
            cuts,
            data: data.into_owned(),
        },
        Past::CommandStarted(started) => Past::CommandStarted(started.into_owned()),
        Past::CommandFinished(finished) => Past::CommandFinished(finished),
        Past::Gap(gap) => Past::Gap(gap),
    }
}

fn owned(kept: Kept<'_>) -> Kept<'static> {
    Kept {
        card: kept.card.into_owned(),
        directory: kept.directory.map(Data::into_owned),
        title: kept.title.map(Data::into_owned),
        ..kept
    }
}

fn owned_lost(lost: Lost<'_>) -> Lost<'static> {
    Lost {
        started: lost.started.map(kept::Started::into_owned),
        directory: lost.directory.map(Data::into_owned),
        title: lost.title.map(Data::into_owned),
        ..lost
    }
}

/// Waits for something that no message announces.
pub fn eventually(patience: Duration, what: &str, mut done: impl FnMut() -> bool) {
    let until = Instant::now() + patience;
    while !done() {
        assert!(Instant::now() < until, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().starts_with(" Z"))
}

/// The number after `label` in the output.
pub fn number_after(output: &str, label: &str) -> u32 {
    let (_, rest) = output.split_once(label).unwrap();
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}
