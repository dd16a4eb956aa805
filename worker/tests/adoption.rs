//! A worker whose supervisor dies, and what the next one is told.

// The lint's own exception for tests does not reach the helpers beside them.
#![allow(clippy::unwrap_used, clippy::panic)]

mod play;

use std::io::Read;
use std::path::Path;
use std::time::Duration;

use play::{Link, PATIENCE, SIZE, Worker, eventually, is_alive, past_text, start};
use shellward_protocol::kept::{self, Clear, Commands, Finished, Gap, Newest, Past, Watch};
use shellward_protocol::limits::{OUTPUT_CHUNK_MAX, OUTPUT_WINDOW, PAST_CHARS, UNATTENDED_CHARS};
use shellward_protocol::message::{Ack, Ended, ExitStatus, Happened, Mode, Size, Start};
use shellward_protocol::modes::Modes;
use shellward_protocol::{Data, ToWorker};

/// Nothing has to wait for this.
const NEVER: u32 = 600_000;

/// What `seq 1 count` prints on a terminal.
fn numbered(count: u32) -> String {
    (1..=count).map(|n| format!("{n}\r\n")).collect()
}

fn run(worker: &Worker, line: &str, change: impl FnOnce(&mut Start<'_>)) -> Link {
    let mut link = worker.attach(1);
    let mut message = start(line);
    change(&mut message);
    link.start(&message);
    link
}

/// Goes without a word, like a process that is killed.
fn vanish(link: Link) {
    drop(link);
}

/// A random number generator that the same seed leads the same way again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

#[test]
fn supervisors_that_die_at_any_moment_lose_nothing_and_repeat_nothing() {
    let full = numbered(200_000);
    let mut all_deaths = 0;
    for seed in 1..=8 {
        let mut dice = Dice(seed);
        let worker = Worker::spawn();
        let mut link = run(&worker, "seq 1 200000", |start| {
            start.reattach_grace_ms = NEVER;
        });
        link.send(&ToWorker::Watch(Watch { watched: true }));
        let mut known = String::new();
        let mut deaths = 0;
        loop {
            // How far it comes is chance; so is what of it is acknowledged.
            link.acks = dice.below(3) > 0;
            let mut is_over = false;
            for _ in 0..dice.below(24) {
                is_over = !link.exits.is_empty();
                let is_full = !link.acks && link.output.len() as u64 > OUTPUT_WINDOW / 2;
                if is_over || is_full {
                    break;
                }
                assert!(link.step());
            }
            if link.acks {
                link.ack();
            }
            if let Some(kept) = &link.kept {
                known.truncate(usize::try_from(kept.offset).unwrap());
                let past: String = link.past.iter().filter_map(past_text).collect();
                if link.past.len() == kept.past as usize {
                    assert!(known.ends_with(&past));
                    assert!(past.chars().count() >= known.len().min(PAST_CHARS));
                    assert_eq!(kept.trimmed, past.len() < known.len());
                } else {
                    assert!(known.contains(&past));
                }
            }
            known.push_str(&link.output);
            assert!(full.starts_with(&known));
            assert!(link.lost.is_empty());
            if is_over {
                break;
            }
            // Some of them in the middle of a frame.
            let mut some = vec![0; usize::try_from(dice.below(5000)).unwrap()];
            link.stream
                .set_read_timeout(Some(Duration::from_millis(1)))
                .unwrap();
            drop(link.stream.read(&mut some));
            vanish(link);
            deaths += 1;
            link = worker.attach(1 + deaths);
        }
        all_deaths += deaths;
        assert_eq!(known, full);
        assert_eq!(link.exits, [ExitStatus::Code(0)]);
    }
    assert!(all_deaths > 16, "{all_deaths}");
}

/// Prints so much that some must give way, then leaves a file.
fn flood(done: &Path) -> String {
    format!("read x; seq 1 100000; touch {}; read x", done.display())
}

#[test]
fn watched_output_waits_for_the_next_supervisor() {
    let dir = tempfile::tempdir().unwrap();
    let done = dir.path().join("done");
    let worker = Worker::spawn();
    let mut link = run(&worker, &flood(&done), |start| {
        start.reattach_grace_ms = NEVER;
    });
    link.send(&ToWorker::Watch(Watch { watched: true }));
    link.type_in(b"\n");
    vanish(link);
    worker.comes_to_rest();
    assert!(!done.exists());
    let mut link = worker.attach(2);
    assert!(link.until_kept().watched);
    link.until_output("\r\n100000\r\n");
    assert!(link.lost.is_empty());
    assert_eq!(link.all_text(), format!("\r\n{}", numbered(100_000)));
    eventually(PATIENCE, "it goes on", || done.exists());
}

#[test]
fn what_nobody_waits_for_runs_free_and_what_gives_way_is_told() {
    let dir = tempfile::tempdir().unwrap();
    for (name, watched, grace, mode) in [
        ("unwatched", false, NEVER, Mode::Pty(Data::default())),
        ("grace over", true, 100, Mode::Pty(Data::default())),
        ("pipes", false, NEVER, Mode::Pipes),
    ] {
        let on_pipes = mode == Mode::Pipes;
        let done = dir.path().join(name.replace(' ', "-"));
        let worker = Worker::spawn();
        let mut link = run(&worker, &format!("echo first; {}", flood(&done)), |start| {
            start.reattach_grace_ms = grace;
            start.mode = mode;
        });
        link.send(&ToWorker::Watch(Watch { watched }));
        link.until_output("first");
        let mut full = format!("first\r\n\r\n{}", numbered(100_000));
        if on_pipes {
            full = format!("first\n{}", numbered(100_000).replace('\r', ""));
        }
        let newline = if on_pipes { "\n" } else { "\r\n" };
        link.until_output(newline);
        link.type_in(b"\n");
        vanish(link);
        eventually(PATIENCE, "it is through", || done.exists());
        // What it printed is read before anything new is accepted, or afterwards.
        worker.comes_to_rest();
        let mut link = worker.attach(2);
        link.acks = false;
        let kept = link.until_kept();
        assert_eq!(kept.watched, watched);
        assert!(full.starts_with(&link.all_text()), "{name}");
        link.until_output(&format!("{newline}100000{newline}"));
        let [lost] = &link.lost[..] else {
            panic!("{name}: {:?}", link.lost);
        };
        let end = usize::try_from(lost.offset + lost.bytes).unwrap();
        assert_eq!((lost.offset, lost.places), (kept.offset, lost.bytes));
        assert!(full.get(end..) == Some(&link.output), "{name}");
        assert!(link.output.starts_with(char::is_numeric), "a whole line");
        assert!(full[..end].ends_with('\n'), "{name}");
        assert!(link.output.len() <= UNATTENDED_CHARS);
        assert!(link.output.len() + 2 * OUTPUT_CHUNK_MAX > UNATTENDED_CHARS);
        let lost = lost.clone();

        // Not acknowledged, it is told again; acknowledged, it is part of the past.
        vanish(link);
        let mut link = worker.attach(3);
        link.until_output(&format!("{newline}100000{newline}"));
        assert_eq!(link.lost, std::slice::from_ref(&lost));
        assert!(full.get(end..) == Some(&link.output), "{name}");
        link.type_in(b"\n");
        link.until_exit();
        vanish(link);
        let mut link = worker.attach(4);
        link.until_exit();
        let gap = Gap {
            bytes: lost.bytes,
            modes: lost.modes,
        };
        assert!(link.past.contains(&Past::Gap(gap)), "{name}");
        assert!(link.all_text().contains(&full[end..]), "{name}");
        assert!(link.all_text().starts_with("first"), "{name}");
    }
}

#[test]
fn exit_that_nobody_saw_is_told_later() {
    for watched in [false, true] {
        let mut worker = Worker::spawn();
        let mut link = run(&worker, "echo up; read x; echo bye; exit 3", |start| {
            start.reattach_grace_ms = 100;
        });
        link.send(&ToWorker::Watch(Watch { watched }));
        link.until_output("up\r\n");
        link.type_in(b"\n");
        let shell = link.shell_pid;
        vanish(link);
        eventually(PATIENCE, "the shell ends", || !is_alive(shell));
        worker.comes_to_rest();
        for epoch in 2..4 {
            let mut link = worker.attach(epoch);
            assert_eq!(link.until_exit(), ExitStatus::Code(3));
            assert_eq!(link.all_text(), "up\r\n\r\nbye\r\n");
            assert_eq!(link.shell_pid, shell);
        }
        let mut link = worker.attach(4);
        link.until_exit();
        link.dismiss();
        link.until_end();
        assert_eq!(worker.wait(PATIENCE).code(), Some(0));
    }
}

#[test]
fn worker_with_an_exit_and_nobody_to_tell_leaves_in_the_end() {
    let mut worker = Worker::spawn();
    let mut link = run(&worker, "exit 3", |start| start.orphan_timeout_ms = 100);
    assert_eq!(link.until_exit(), ExitStatus::Code(3));
    vanish(link);
    assert_eq!(worker.wait(PATIENCE).code(), Some(0));
}

#[test]
fn worker_that_was_never_told_to_start_leaves_with_its_supervisor() {
    let mut worker = Worker::spawn();
    let first = worker.attach(1);
    // One that is replaced is not one that is gone.
    let mut second = worker.attach(2);
    second.start(&start("echo up; cat"));
    second.until_output("up");
    vanish(first);
    second.type_in(b"still here\n");
    second.until_output("still here\r\nstill here\r\n");
    second.dismiss();
    second.until_end();
    assert_eq!(worker.wait(PATIENCE).code(), Some(0));

    let mut worker = Worker::spawn();
    vanish(worker.attach(1));
    assert_eq!(worker.wait(PATIENCE).code(), Some(0));
    assert!(!worker.socket.exists());
}

#[test]
fn what_was_noted_and_how_it_is_are_told() {
    let worker = Worker::spawn();
    let mut link = run(&worker, "cat", |start| start.card = Data::borrowed(b"one"));
    link.type_in(b"abc\n");
    link.until_output("abc\r\nabc\r\n");
    let shell = link.shell_pid;
    vanish(link);
    let mut link = worker.attach(2);
    let kept = link.until_kept();
    assert_eq!(kept.card.as_slice(), b"one");
    assert_eq!((kept.size, kept.is_pty, kept.watched), (SIZE, true, false));
    assert_eq!(kept.shell_pid, shell);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_millis();
    assert!((now - 60_000..=now).contains(&u128::from(kept.started_ms)));
    assert_eq!((kept.typed.seq, kept.typed.came), (1, 4));

    let size = Size {
        cols: 132,
        rows: 50,
    };
    link.send(&ToWorker::Resize(size));
    link.send(&ToWorker::Card(Data::borrowed(b"two")));
    link.send(&ToWorker::Watch(Watch { watched: true }));
    link.type_in(b"def\n");
    link.until_output("def\r\ndef\r\n");
    vanish(link);
    let mut link = worker.attach(3);
    let next = link.until_kept();
    assert_eq!(next.card.as_slice(), b"two");
    assert_eq!((next.size, next.watched), (size, true));
    assert_eq!(
        (next.typed.seq, next.typed.came, next.typed.taken),
        (2, 8, 8)
    );
    assert_eq!(next.started_ms, kept.started_ms);
}

#[test]
fn commands_directory_and_title_are_told_as_they_are() {
    let worker = Worker::spawn();
    let script = r"
        printf '\033]133;A\007\033]133;B\007\033]133;C\007one\n\033]133;D;3\007'
        printf '\033]133;A\007\033]133;B\007\033]133;C\007two\n'
        printf '\033]2;a title\007\033]7;file:///tmp\007up\n'; read x";
    let mut link = run(&worker, script, |_| {});
    link.until_output("up\r\n");
    link.until("the title", |link| {
        let is_title = |what: &Happened<'_>| matches!(what, Happened::Title(_));
        link.events.iter().any(|(_, what)| is_title(what))
    });
    let starts = link
        .events
        .iter()
        .filter(|(_, what)| matches!(what, Happened::CommandStarted { .. }));
    assert_eq!(starts.count(), 2, "{:?}", link.events);
    link.ack();
    let offset = link.offset();
    vanish(link);
    let mut link = worker.attach(2);
    let kept = link.until_kept();
    assert_eq!(kept.offset, offset);
    assert!(kept.can_detect && !kept.trimmed);
    assert_eq!((kept.commands.count, kept.commands.first), (2, 1));
    assert!(matches!(kept.commands.newest, Newest::Running { at_ms } if at_ms > 0));
    assert_eq!(kept.title.unwrap().as_slice(), b"a title");
    assert_eq!(kept.directory.unwrap().as_slice(), b"/tmp");
    let told: Vec<&str> = link
        .past
        .iter()
        .map(|past| match past {
            Past::Text { .. } => past_text(past).unwrap(),
            Past::CommandStarted(_) => "<",
            Past::CommandFinished(finished) => {
                assert_eq!(finished.exit_code, Some(3));
                ">"
            }
            Past::Gap(_) => panic!(),
        })
        .collect();
    assert_eq!(
        told.concat(),
        "<one\r\n><two\r\n\u{1b}]2;a title\u{7}up\r\n"
    );

    // A client clears it: what was shown is gone, what is true is not.
    link.send(&ToWorker::Clear(Clear { offset }));
    link.type_in(b"\n");
    link.until_exit();
    link.ack();
    vanish(link);
    let mut link = worker.attach(3);
    let kept = link.until_kept();
    assert_eq!(link.all_text(), "\r\n");
    assert!(!kept.trimmed);
    assert_eq!((kept.commands.count, kept.commands.first), (2, 3));
    assert_eq!(kept.commands.newest, Newest::Finished { exit_code: None });
    assert_eq!(kept.title.unwrap().as_slice(), b"a title");
    assert!(
        !link
            .past
            .iter()
            .any(|past| matches!(past, Past::CommandStarted(_)))
    );
}

#[test]
fn what_an_earlier_shell_left_comes_before_the_rest() {
    let seeds = [
        Past::Text {
            cuts: Vec::new(),
            data: Data::borrowed(b"before\r\n"),
        },
        Past::CommandStarted(kept::Started {
            line: Data::borrowed(b"make"),
            at_ms: 5,
        }),
        Past::Gap(Gap {
            bytes: 9,
            modes: Modes(4),
        }),
        Past::CommandFinished(Finished {
            exit_code: Some(2),
            duration_ms: 1,
        }),
    ];
    let worker = Worker::spawn();
    let mut link = run(&worker, "echo new; read x", |start| {
        start.commands = 4;
    });
    for seed in &seeds {
        link.send(&ToWorker::Past(seed.clone()));
    }
    link.until_output("new\r\n");
    vanish(link);
    let mut link = worker.attach(2);
    let kept = link.until_kept();
    assert_eq!(link.past[..4], seeds);
    assert_eq!(link.all_text(), "before\r\nnew\r\n");
    assert!(!kept.trimmed);
    let commands = Commands {
        count: 4,
        first: 4,
        newest: Newest::Finished { exit_code: Some(2) },
    };
    assert_eq!(kept.commands, commands);
    // Now it is too late.
    link.send(&ToWorker::Past(seeds[0].clone()));
    link.until_end();
    let mut link = worker.attach(2);
    link.until_kept();
    assert_eq!(link.past[..4], seeds);
}

#[test]
fn what_has_ended_is_kept_without_a_shell() {
    let mut worker = Worker::spawn();
    let ended = Ended {
        status: ExitStatus::Signal(11),
        was_pty: true,
        can_detect: true,
    };
    let mut link = run(&worker, "echo never", |start| {
        start.mode = Mode::Ended(ended);
        start.commands = 4;
        start.card = Data::borrowed(b"one");
        start.reattach_grace_ms = NEVER;
    });
    let seed = Past::Text {
        cuts: Vec::new(),
        data: Data::borrowed(b"before\r\n"),
    };
    link.send(&ToWorker::Past(seed.clone()));
    // What a race may still bring changes nothing.
    link.type_in(b"echo typed\n\x03");
    link.send(&ToWorker::Watch(Watch { watched: true }));
    let size = Size {
        cols: 132,
        rows: 50,
    };
    link.send(&ToWorker::Resize(size));
    link.send(&ToWorker::Card(Data::borrowed(b"two")));
    vanish(link);
    worker.comes_to_rest();
    for epoch in 2..4 {
        let mut link = worker.attach(epoch);
        assert_eq!(link.until_exit(), ended.status);
        assert_eq!(link.all_text(), "before\r\n");
        let kept = link.until_kept();
        assert_eq!(
            (kept.shell_pid, kept.is_pty, kept.can_detect),
            (0, true, true)
        );
        assert_eq!((kept.card.as_slice(), kept.size), (&b"two"[..], size));
        assert_eq!((kept.typed.came, kept.typed.taken), (12, 12));
        assert_eq!((kept.commands.count, kept.offset), (4, 0));
    }
    let mut link = worker.attach(4);
    link.until_exit();
    link.dismiss();
    link.until_end();
    assert_eq!(worker.wait(PATIENCE).code(), Some(0));
}

#[test]
fn past_after_an_acknowledgement_is_a_violation() {
    let worker = Worker::spawn();
    let mut link = run(&worker, "echo new; read x", |_| {});
    link.until_output("new");
    let gap = Past::Gap(Gap {
        bytes: 1,
        modes: Modes::default(),
    });
    link.send(&ToWorker::Past(gap.clone()));
    link.until_end();
    let mut link = worker.attach(1);
    link.until_kept();
    assert!(!link.past.contains(&gap));
    // It breaks no order to acknowledge nothing.
    link.send(&ToWorker::Ack(Ack { offset: 0 }));
    link.type_in(b"\n");
    assert_eq!(link.until_exit(), ExitStatus::Code(0));
}

#[test]
fn token_beside_the_socket_goes_with_it() {
    for is_file in [true, false] {
        let mut worker = Worker::spawn();
        let token = worker.socket.with_extension("token");
        if is_file {
            std::fs::write(&token, "secret").unwrap();
        } else {
            std::fs::create_dir(&token).unwrap();
        }
        vanish(worker.attach(1));
        assert_eq!(worker.wait(PATIENCE).code(), Some(0));
        assert!(!worker.socket.exists());
        assert_eq!(token.exists(), !is_file);
    }
}

#[test]
fn log_that_nobody_reads_holds_nothing_up() {
    use std::io::Write;
    use std::os::fd::OwnedFd;

    for is_full in [true, false] {
        let (reader, mut writer) = std::io::pipe().unwrap();
        if is_full {
            let mut filler = std::fs::File::from(OwnedFd::from(writer.try_clone().unwrap()));
            let flags = nix::fcntl::OFlag::O_NONBLOCK;
            nix::fcntl::fcntl(&filler, nix::fcntl::FcntlArg::F_SETFL(flags)).unwrap();
            while filler.write(&[b'x'; 4096]).is_ok() {}
            while filler.write(b"x").is_ok() {}
            let none = nix::fcntl::OFlag::empty();
            nix::fcntl::fcntl(&writer, nix::fcntl::FcntlArg::F_SETFL(none)).unwrap();
        } else {
            writer.write_all(b"x").unwrap();
        }
        let reader = is_full.then_some(reader);
        let worker = Worker::spawn_logging_to(writer.into());
        let mut link = worker.run("cat");
        for _ in 0..3 {
            // Each is worth a line.
            let mut stranger = worker.connect();
            stranger.write_all(&[0xff; 64]).unwrap();
            assert!(matches!(stranger.read(&mut [0; 1]), Ok(0) | Err(_)));
        }
        link.type_in(b"and now\n");
        link.until_output("and now\r\nand now\r\n");
        drop(reader);
    }
}
