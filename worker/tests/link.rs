//! What a worker does, seen from the other end of its link.
//!
//! Each test has a worker process of its own. Nothing sleeps for luck: everything waits for an
//! event, with a deadline.

// The lint's own exception for tests does not reach the helpers beside them.
#![allow(clippy::unwrap_used, clippy::panic)]

mod play;

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use play::{PATIENCE, SIZE, Worker, eventually, is_alive, number_after, start};
use shellward_protocol::limits::{INPUT_PENDING_MAX, OUTPUT_WINDOW};
use shellward_protocol::message::{
    Ack, Command, ExitStatus, Input, Limit, Size, Start, StartFailure,
};
use shellward_protocol::{AttachToken, Data, ToWorker};

const SOON: Duration = Duration::from_secs(3);

#[test]
fn shell_echoes_and_its_exit_code_arrives() {
    let mut worker = Worker::spawn();
    let mut link = worker.attach(1);
    link.start(&Start {
        command: Command::Shell,
        ..start("")
    });
    link.type_in(b"echo $((40+2)); exit 7\n");
    assert_eq!(link.until_exit(), ExitStatus::Code(7));
    assert!(link.output.contains("42\r\n"), "{:?}", link.output);
    assert_eq!(link.taken, 23);
    assert!(link.is_pty);
    link.dismiss();
    assert_eq!(worker.wait(PATIENCE).code(), Some(0));
    assert!(!worker.socket.exists());
}

#[test]
fn death_by_signal_is_told_from_an_exit_code() {
    for (line, expected) in [
        ("kill -9 $$", ExitStatus::Signal(9)),
        ("kill -TERM $$", ExitStatus::Signal(15)),
        ("kill -40 $$", ExitStatus::Signal(40)),
        ("exit 1", ExitStatus::Code(1)),
        ("exit 255", ExitStatus::Code(255)),
    ] {
        let worker = Worker::spawn();
        assert_eq!(worker.run(line).until_exit(), expected, "{line}");
    }
}

#[test]
fn all_output_comes_before_the_exit() {
    for _ in 0..30 {
        let mut worker = Worker::spawn();
        let mut link = worker.run("head -c 20480 /dev/zero | tr '\\0' h; printf END; exit");
        assert_eq!(link.until_exit(), ExitStatus::Code(0));
        assert_eq!(link.output.len(), 20483);
        assert!(link.output.ends_with("hEND"));
        link.dismiss();
        link.until_end();
        assert_eq!(link.exits.len(), 1);
        assert_eq!(worker.wait(PATIENCE).code(), Some(0));
    }
}

#[test]
fn output_survives_signals_during_the_read() {
    let worker = Worker::spawn();
    let mut link = worker.run("seq 1 200000");
    while link.exits.is_empty() {
        worker.signal(Signal::SIGWINCH);
        worker.signal(Signal::SIGCHLD);
        assert!(link.step());
    }
    assert!(link.output.ends_with("199999\r\n200000\r\n"));
    assert_eq!(link.output.lines().count(), 200_000);
    assert!(link.cuts.len() as u64 > link.output.len() as u64 / 8192);
    let lines = link
        .cuts
        .iter()
        .filter(|cut| link.output[..**cut].ends_with('\n'));
    assert_eq!(lines.count(), link.cuts.len());
}

#[test]
fn invalid_bytes_and_split_characters_are_decoded() {
    let worker = Worker::spawn();
    let mut link = worker.run(r"stty -echo; printf 'A \342'; read x; printf '\224\200 B \377\n'");
    link.until_output("A ");
    link.type_in(b"\n");
    link.until_exit();
    assert!(
        link.output.ends_with("\u{2500} B \u{fffd}\r\n"),
        "{:?}",
        link.output
    );

    let worker = Worker::spawn();
    let mut link = worker.run("head -c 600000 /dev/zero | tr '\\0' '\\377'; printf done");
    link.until_exit();
    assert_eq!(
        link.output.chars().filter(|c| *c == '\u{fffd}').count(),
        600_000
    );
    assert!(link.output.ends_with("done"));
}

#[test]
fn wrong_token_is_refused_and_disturbs_nobody() {
    let worker = Worker::spawn();
    let mut link = worker.run("cat");
    let wrong = AttachToken::new([43; AttachToken::LEN]);
    assert!(worker.attach_with(wrong, 9).is_none());
    let older = worker.attach_with(worker.token.clone(), 0);
    assert!(older.is_none());
    // Silence, garbage and too many of both.
    let mut strangers: Vec<_> = (0..8).map(|_| worker.connect()).collect();
    strangers[0].write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    link.type_in(b"still here\n");
    link.until_output("still here\r\nstill here\r\n");
    // The silent ones are hung up on after their time.
    for mut stranger in strangers {
        stranger.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(matches!(stranger.read(&mut [0; 1]), Ok(0) | Err(_)));
    }
    link.type_in(b"and now\n");
    link.until_output("and now\r\nand now\r\n");
}

#[test]
fn another_users_connection_is_dropped() {
    let worker = Worker::spawn_for(nix::unistd::getuid().as_raw() + 1);
    assert!(worker.attach_with(worker.token.clone(), 1).is_none());
}

#[test]
fn newer_supervisor_takes_over_and_gets_what_was_not_acknowledged() {
    let worker = Worker::spawn();
    let mut old = worker.run("printf first; read x; printf second; read x");
    old.acks = false;
    old.until_output("first");
    let mut new = worker.attach(2);
    old.until_end();
    new.until_output("first");
    let kept = new.until_kept();
    assert_eq!((kept.offset, kept.past), (0, 0));
    assert_eq!(new.shell_pid, old.shell_pid);
    new.type_in(b"\n");
    new.until_output("second");
    new.type_in(b"\n");
    assert_eq!(new.until_exit(), ExitStatus::Code(0));
    // The exit is told to the next one too.
    let mut third = worker.attach(2);
    assert_eq!(third.until_exit(), ExitStatus::Code(0));
    assert_eq!(third.all_text(), "first\r\nsecond\r\n");
}

#[test]
fn missing_directory_is_named_and_nothing_runs_elsewhere() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let file = file.path().to_str().unwrap().to_owned();
    for (cwd, cause) in [
        ("/no/such dir\u{1b}", "No such file or directory"),
        (file.as_str(), "Not a directory"),
    ] {
        let worker = Worker::spawn();
        let mut link = worker.attach(1);
        link.start(&Start {
            cwd: Data::borrowed(cwd.as_bytes()),
            ..start("pwd")
        });
        assert_eq!(link.until_exit(), ExitStatus::Code(127));
        let name = cwd.replace('\u{1b}', "\\u{1b}");
        assert_eq!(
            link.output,
            format!("shellward: cannot enter {name}: {cause}\r\n")
        );
    }
}

#[test]
fn shell_that_cannot_start_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let make = |name: &str, text: &str, mode: u32| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let script = make("script", "#!/no/such/interp\n", 0o755);
    let plain = make("plain", "echo no\n", 0o644);
    let missing = dir.path().join("missing").to_str().unwrap().to_owned();
    for (shell, words, code) in [
        (&script, "its interpreter /no/such/interp is missing", 127),
        (&plain, "Permission denied", 126),
        (&missing, "No such file or directory", 127),
    ] {
        let worker = Worker::spawn();
        let mut link = worker.attach(1);
        link.start(&Start {
            shell: Data::borrowed(shell.as_bytes()),
            command: Command::Shell,
            ..start("")
        });
        assert_eq!(link.until_exit(), ExitStatus::Code(code), "{shell}");
        assert_eq!(
            link.output,
            format!("shellward: cannot start {shell}: {words}\r\n")
        );
    }
}

#[test]
fn too_long_variable_is_refused_and_the_worker_leaves() {
    let mut worker = Worker::spawn();
    let mut link = worker.attach(1);
    let value = vec![b'v'; 131_072];
    link.start(&Start {
        caller_env: vec![(Data::borrowed(b"BIG"), Data::borrowed(&value))],
        ..start("true")
    });
    link.until_end();
    let failed = link.failed.clone().unwrap();
    assert_eq!(failed.failure, StartFailure::Refused);
    assert_eq!(
        failed.reason,
        "argument list too long: the variable BIG has 131076 bytes, the kernel takes 131071"
    );
    assert_eq!(worker.wait(PATIENCE).code(), Some(0));
}

#[test]
fn job_that_ignores_everything_is_gone_after_terminate() {
    let mut worker = Worker::spawn();
    let mut link = worker.run(
        "setsid sh -c 'trap \"\" HUP TERM; (trap \"\" HUP TERM; echo job=$$.; exec sleep 1000) & wait' & \
         sleep 1000 & echo other=$!.; kill -STOP $!; echo up; wait",
    );
    link.until_output("up\r\n");
    link.until("the job", |link| link.output.contains("job="));
    let job = number_after(&link.output, "job=");
    let other = number_after(&link.output, "other=");
    let shell = link.shell_pid;
    link.terminate(Duration::from_millis(300));
    link.until_end();
    assert_eq!(link.exits.len(), 1);
    assert_eq!(worker.wait(PATIENCE).code(), Some(0));
    for pid in [job, other, shell] {
        assert!(!is_alive(pid), "{pid}");
    }
}

#[test]
fn processes_that_keep_forking_are_gone_after_terminate() {
    let mut worker = Worker::spawn();
    // Each generation starts the next and ends, so that every number is outdated at once.
    let mut link = worker.run(
        "trap '' HUP TERM; r() { sleep 0.005; r & }; for i in 1 2 3 4; do r & done; echo up; wait; sleep 1000",
    );
    link.until_output("up");
    link.terminate(Duration::from_millis(50));
    link.until_end();
    // The worker leaves only when it has no children left, or says so.
    let begun = Instant::now();
    assert_eq!(worker.wait(PATIENCE).code(), Some(0));
    assert!(begun.elapsed() < SOON);
    assert_eq!(link.exits, [ExitStatus::Signal(9)]);
}

#[test]
fn nothing_left_ends_the_grace_at_once() {
    let mut worker = Worker::spawn();
    let mut link = worker.run("echo up; exec sleep 1000");
    link.until_output("up");
    let asked = Instant::now();
    link.terminate(Duration::from_secs(60));
    link.until_end();
    assert_eq!(link.exits, [ExitStatus::Signal(1)]);
    assert_eq!(worker.wait(PATIENCE).code(), Some(0));
    assert!(asked.elapsed() < SOON);
}

#[test]
fn signal_to_the_worker_ends_everything() {
    let mut worker = Worker::spawn();
    let mut link = worker.run("trap '' HUP; echo up; sleep 1000");
    link.until_output("up");
    worker.signal(Signal::SIGTERM);
    link.until_end();
    assert_eq!(link.exits.len(), 1);
    assert_eq!(worker.wait(PATIENCE).code(), Some(0));
    assert!(!is_alive(link.shell_pid));
}

#[test]
fn when_nobody_comes_everything_ends() {
    let mut worker = Worker::spawn();
    let mut link = worker.attach(1);
    link.start(&Start {
        orphan_timeout_ms: 300,
        ..start("trap '' HUP TERM; echo up; while :; do sleep 1000; done")
    });
    link.until_output("up");
    let shell = link.shell_pid;
    drop(link);
    assert_eq!(worker.wait(Duration::from_secs(9)).code(), Some(0));
    assert!(!is_alive(shell));
    assert!(!worker.socket.exists());
}

#[test]
fn link_that_comes_back_in_time_keeps_the_shell() {
    let worker = Worker::spawn();
    let mut link = worker.run("printf one; read x; printf two; read x; echo three");
    link.until_output("one");
    link.type_in(b"\n");
    link.until_output("two");
    drop(link);
    let mut link = worker.attach(1);
    let kept = link.until_kept();
    assert_eq!(
        (kept.typed.seq, kept.typed.came, kept.typed.taken),
        (1, 1, 1)
    );
    // The count of input goes on where it was.
    link.type_in(b"\n");
    assert_eq!(link.until_exit(), ExitStatus::Code(0));
    assert!(link.output.ends_with("three\r\n"), "{:?}", link.output);
}

#[test]
fn violation_loses_the_link_and_nothing_else() {
    let worker = Worker::spawn();
    let mut link = worker.run("cat");
    for bad in [
        ToWorker::Input(Input {
            seq: 5,
            data: Data::borrowed(b"x"),
        }),
        ToWorker::Ack(Ack { offset: 1 << 40 }),
        ToWorker::Start(Box::new(start("true"))),
    ] {
        link.send(&bad);
        link.until_end();
        link = worker.attach(1);
        link.until_kept();
    }
    link.stream.write_all(&[0xff; 64]).unwrap();
    link.until_end();
    let mut link = worker.attach(1);
    link.until_kept();
    link.type_in(b"whole\n");
    link.until_output("whole\r\nwhole\r\n");
}

#[test]
fn large_paste_arrives_whole() {
    let data: Vec<u8> = (0_u32..262_144)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let sum = {
        let mut child = std::process::Command::new("sha256sum")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(&data).unwrap();
        let output = child.wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap()[..64].to_owned()
    };
    for piece in [data.len(), 263] {
        let worker = Worker::spawn();
        let mut link = worker.run("stty raw -echo; printf ready; head -c 262144 | sha256sum");
        link.until_output("ready");
        for piece in data.chunks(piece) {
            link.type_in(piece);
        }
        link.until_exit();
        assert!(link.output.contains(&sum), "{:?}", link.output);
        assert_eq!(link.taken, 262_144);
    }
}

#[test]
fn echoing_reader_does_not_deadlock_with_a_large_paste() {
    let worker = Worker::spawn();
    let mut link = worker.run("stty raw echo; printf ready; cat");
    link.until_output("ready");
    for _ in 0..4 {
        link.type_in(&[b'z'; 200_000]);
    }
    link.until("everything taken", |link| link.taken == 800_000);
}

#[test]
fn stalled_program_costs_nothing_and_its_input_is_bounded() {
    let worker = Worker::spawn();
    let mut link = worker.run("stty raw -echo; printf ready; sleep 1000");
    link.until_output("ready");
    let full = vec![b'x'; usize::try_from(INPUT_PENDING_MAX).unwrap()];
    link.type_in(&full);
    link.until("some input taken", |link| link.taken > 0);
    let before = worker.cpu();
    let begun = Instant::now();
    // The measured stretch itself; nothing is waited for.
    std::thread::sleep(Duration::from_secs(1));
    assert!(worker.cpu() - before <= Duration::from_millis(20));
    assert!(begun.elapsed() >= Duration::from_secs(1));
    link.type_in(&full);
    link.until_end();
    let mut link = worker.attach(1);
    link.terminate(Duration::ZERO);
    link.until_end();
    assert_eq!(link.exits.len(), 1);
}

#[test]
fn unread_output_stops_at_the_window_and_costs_nothing() {
    let worker = Worker::spawn();
    let mut link = worker.attach(1);
    link.acks = false;
    link.start(&start("yes"));
    link.until("the window", |link| {
        link.output.len() as u64 == OUTPUT_WINDOW || link.output.len() as u64 > OUTPUT_WINDOW - 4096
    });
    eventually(PATIENCE, "it rests", || {
        let before = worker.cpu();
        std::thread::sleep(Duration::from_millis(200));
        worker.cpu() == before
    });
    assert!(link.output.len() as u64 <= OUTPUT_WINDOW);
    // Ending works at once all the same.
    link.terminate(Duration::ZERO);
    link.acks = true;
    link.ack();
    link.until_end();
    assert_eq!(link.exits.len(), 1);
}

#[test]
fn idle_worker_does_not_wake_up() {
    let worker = Worker::spawn();
    let mut link = worker.run("printf ready; exec sleep 1000");
    link.until_output("ready");
    worker.comes_to_rest();
}

#[test]
fn shell_has_no_descriptor_beyond_its_terminal() {
    let worker = Worker::spawn();
    let mut link =
        worker.run("ls /proc/self/fd | tr '\\n' ' '; echo; ls -l /proc/$$/fd | grep -c pts");
    link.until_exit();
    assert_eq!(link.output, "0 1 2 3 \r\n3\r\n");
}

#[test]
fn shell_starts_with_its_own_mask_limits_signals_size_and_environment() {
    let worker = Worker::spawn();
    let mut link = worker.attach(1);
    link.send(&ToWorker::Resize(Size { cols: 99, rows: 33 }));
    link.start(&Start {
        umask: 0o027,
        limits: vec![Limit {
            resource: 7,
            soft: 123,
            hard: 456,
        }],
        host_env: vec![
            (Data::borrowed(b"LD_PRELOAD"), Data::borrowed(b"/x.so")),
            (Data::borrowed(b"HOST_TOKEN"), Data::borrowed(b"s3cret")),
        ],
        caller_env: vec![(Data::borrowed(b"MINE"), Data::borrowed(b"yes"))],
        ..start(
            "umask; ulimit -Sn; ulimit -Hn; stty size; grep -E '^Sig(Ign|Blk)' /proc/self/status; \
             stty -a | grep -o ' iutf8'; echo $MINE $TERM $COLUMNS $LINES \"$LD_PRELOAD$HOST_TOKEN\"; \
             echo $LANG; (tr '\\0' '\\n' </proc/$PPID/environ) 2>/dev/null | wc -l",
        )
    });
    assert_eq!(link.until_exit(), ExitStatus::Code(0));
    let mut lines = link.output.lines();
    let mut next = || lines.next().unwrap();
    assert_eq!(next(), "0027");
    assert_eq!(next(), "123");
    assert_eq!(next(), "456");
    assert_eq!(next(), "33 99");
    assert_eq!(next(), "SigBlk:\t0000000000000000");
    assert_eq!(next(), "SigIgn:\t0000000000000000");
    assert_eq!(next(), " iutf8");
    assert_eq!(next(), "yes xterm-256color 99 33 ");
    assert_eq!(next(), "C.UTF-8");
    assert_eq!(next(), "0");
}

#[test]
fn resize_reaches_the_program() {
    let worker = Worker::spawn();
    let mut link =
        worker.run("trap 'stty size; exit' WINCH; echo up; while :; do sleep 0.05; done");
    link.until_output("up");
    assert_ne!(SIZE.cols, 132);
    link.send(&ToWorker::Resize(Size {
        cols: 132,
        rows: 50,
    }));
    link.until_exit();
    assert!(link.output.contains("50 132"));
}

#[test]
fn background_job_does_not_hold_up_the_exit_and_is_still_heard() {
    let mut worker = Worker::spawn();
    let mut link = worker.run("trap '' HUP; (read x </proc/self/fd/1; echo late) & echo early");
    assert_eq!(link.until_exit(), ExitStatus::Code(0));
    assert!(link.output.contains("early"));
    link.type_in(b"\n");
    link.until_output("late");
    link.dismiss();
    link.until_end();
    assert_eq!(link.exits.len(), 1);
    assert_eq!(worker.wait(PATIENCE).code(), Some(0));
}

#[test]
fn printing_background_job_delays_the_exit_by_a_second_at_most() {
    let worker = Worker::spawn();
    let mut link = worker.run("trap '' HUP; yes & echo early; exit 3");
    let begun = Instant::now();
    assert_eq!(link.until_exit(), ExitStatus::Code(3));
    assert!(begun.elapsed() < SOON);
    assert!(link.output.contains("early\r\n"));
    link.terminate(Duration::from_millis(100));
    link.until_end();
}

#[test]
fn shell_without_open_terminal_is_not_hung_up() {
    let worker = Worker::spawn();
    let mut link = worker
        .run("echo up; exec >/dev/null 2>&1 </dev/null; sleep 0.3; echo back >/dev/tty; exit 5");
    assert_eq!(link.until_exit(), ExitStatus::Code(5));
    assert_eq!(link.output, "up\r\nback\r\n");
}

#[test]
fn words_of_a_program_reach_it_untouched() {
    let worker = Worker::spawn();
    let mut link = worker.attach(1);
    let words = ["printf", "<%s>", "a b", "$HOME", "it's", "", "*"];
    link.start(&Start {
        command: Command::Program(
            words
                .iter()
                .map(|word| Data::borrowed(word.as_bytes()))
                .collect(),
        ),
        ..start("")
    });
    link.until_exit();
    assert_eq!(link.output, "<a b><$HOME><it's><><*>");
}

#[test]
fn unknown_role_is_wrong_usage() {
    for args in [&["walk"][..], &[], &["run", "x"]] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_shellward-worker"))
            .args(args)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stderr.starts_with(b"usage: "));
    }
}
