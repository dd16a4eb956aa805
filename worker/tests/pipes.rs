//! Terminals on pipes (field case S-38 and the pipes halves of others), seen from the other end of
//! a worker's link.

// The lint's own exception for tests does not reach the helpers beside them.
#![allow(clippy::unwrap_used, clippy::panic)]

mod play;

use std::time::{Duration, Instant};

use play::{Link, PATIENCE, Worker, eventually, is_alive, number_after, start};
use shellward_protocol::limits::INPUT_PENDING_MAX;
use shellward_protocol::message::{ExitStatus, Limit, Mode, Size, Start};
use shellward_protocol::{Data, ToWorker};

const SOON: Duration = Duration::from_secs(3);

/// The shells here that may sit on pipes.
fn shells() -> impl Iterator<Item = &'static str> {
    ["/bin/sh", "/bin/bash", "/bin/dash", "/bin/zsh"]
        .into_iter()
        .filter(|shell| std::path::Path::new(shell).exists())
}

fn children(pid: u32) -> Vec<u32> {
    std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .unwrap_or_default()
        .split_ascii_whitespace()
        .map(|pid| pid.parse().unwrap())
        .collect()
}

fn name(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default()
}

/// Waits until the shell runs a program of this name and gives its process id.
fn running(link: &Link, program: &str) -> u32 {
    let mut found = None;
    eventually(PATIENCE, program, || {
        found = children(link.shell_pid)
            .into_iter()
            .find(|child| name(*child).trim() == program);
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn shell_reads_commands_and_its_exit_code_arrives() {
    for shell in shells() {
        let mut worker = Worker::spawn();
        let mut link = worker.pipe_shell(shell);
        // No echo, no prompt, a return for a line end.
        link.type_in(b"echo hi\r");
        link.until_output("hi\n");
        link.type_in(b"exit 7\r\n");
        assert_eq!(link.until_exit(), ExitStatus::Code(7), "{shell}");
        assert_eq!(link.output, "hi\n", "{shell}");
        assert!(!link.is_pty);
        link.dismiss();
        link.until_end();
        assert_eq!(worker.wait(PATIENCE).code(), Some(0));
    }
}

#[test]
fn everything_typed_is_counted_as_it_was_sent() {
    let worker = Worker::spawn();
    let mut link = worker.pipe("trap '' INT; echo up; head -c 4");
    link.until_output("up\n");
    link.type_in(b"a\r\nb\r\n\x03");
    link.until("all taken", |link| link.taken == 7);
    link.until_exit();
    assert_eq!(link.output, "up\na\nb\n");
}

#[test]
fn end_of_output_is_not_lost() {
    for _ in 0..30 {
        let worker = Worker::spawn();
        let mut link = worker.pipe("head -c 20480 /dev/zero | tr '\\0' h; printf END; exit 3");
        assert_eq!(link.until_exit(), ExitStatus::Code(3));
        assert_eq!(link.output.len(), 20483);
        assert!(link.output.ends_with("hEND"));
        link.dismiss();
        link.until_end();
        assert_eq!(link.exits.len(), 1);
    }
}

#[test]
fn a_million_bytes_on_each_stream_arrive() {
    let worker = Worker::spawn();
    let mut link = worker.pipe(
        "head -c 1000000 /dev/zero | tr '\\0' x & head -c 1000000 /dev/zero | tr '\\0' y >&2; wait",
    );
    assert_eq!(link.until_exit(), ExitStatus::Code(0));
    let count = |wanted: u8| link.output.bytes().filter(|byte| *byte == wanted).count();
    assert_eq!((count(b'x'), count(b'y')), (1_000_000, 1_000_000));
    assert_eq!(link.output.len(), 2_000_000);
}

#[test]
fn interrupt_ends_what_runs_and_not_the_shell() {
    for shell in shells() {
        let worker = Worker::spawn();
        let mut link = worker.pipe_shell(shell);
        // With nothing running it does nothing.
        link.type_in(b"\x03");
        link.type_in(b"echo up\r");
        link.until_output("up\n");
        link.type_in(b"sleep 60\r");
        let sleep = running(&link, "sleep");
        let begun = Instant::now();
        link.type_in(b"\x03");
        link.type_in(b"echo still $?\r");
        link.until_output("still 130\n");
        assert!(begun.elapsed() < Duration::from_secs(1), "{shell}");
        assert!(!is_alive(sleep));
        // A whole tree, and a program that does not read what is typed.
        link.type_in(b"sh -c 'sh -c \"sleep 61; :\"; sleep 61; :'\r");
        // Not earlier: dash loses an interrupt between fork and exec, on a pty as well.
        eventually(PATIENCE, "the innermost", || {
            let inner = children(running(&link, "sh"));
            let inmost = inner.iter().flat_map(|pid| children(*pid));
            inmost.into_iter().any(|pid| name(pid).trim() == "sleep")
        });
        link.type_in(&[b'#'; 300_000]);
        link.type_in(b"\x03");
        eventually(Duration::from_secs(1), "the tree is gone", || {
            children(link.shell_pid).is_empty()
        });
        link.type_in(b"\recho alive\r");
        link.until_output("alive\n");
        link.type_in(b"\x04");
        assert_eq!(link.until_exit(), ExitStatus::Code(0), "{shell}");
    }
}

#[test]
fn interrupt_spares_background_jobs() {
    for shell in shells() {
        let worker = Worker::spawn();
        let mut link = worker.pipe_shell(shell);
        link.type_in(b"sleep 60 & echo job=$!.\r");
        link.until_output(".\n");
        let job = number_after(&link.output, "job=");
        link.type_in(b"cat\r");
        let cat = running(&link, "cat");
        link.type_in(b"\x03");
        // Before it is gone, it would read what is typed next.
        eventually(SOON, "cat is gone", || !is_alive(cat));
        link.type_in(b"echo after\r");
        link.until_output("after\n");
        assert!(is_alive(job), "{shell}");
    }
}

#[test]
fn interrupt_ends_a_command_line_as_on_a_pty() {
    for line in ["exec sleep 60", "sleep 60; echo no"] {
        let worker = Worker::spawn();
        let mut link = worker.pipe(line);
        link.until("the start", |link| link.shell_pid != 0);
        eventually(PATIENCE, "sleep", || {
            let mut all = children(link.shell_pid);
            all.push(link.shell_pid);
            all.into_iter().any(|pid| name(pid).trim() == "sleep")
        });
        link.type_in(b"\x03");
        assert_eq!(link.until_exit(), ExitStatus::Signal(2), "{line}");
        assert_eq!(link.output, "");
    }
}

#[test]
fn end_of_input_comes_after_what_is_pending() {
    let worker = Worker::spawn();
    let mut link = worker.pipe("cat; echo done");
    link.type_in(b"hi\r");
    link.until_output("hi\n");
    link.type_in(b"last\x04more");
    assert_eq!(link.until_exit(), ExitStatus::Code(0));
    assert_eq!(link.output, "hi\nlastdone\n");
    link.until("all taken", |link| link.taken == 12);

    // Behind more than a pipe holds.
    let worker = Worker::spawn();
    let mut link = worker.pipe("sleep 0.3; wc -c");
    link.type_in(&[b'z'; 200_000]);
    link.type_in(b"\x04");
    link.until_exit();
    assert_eq!(link.output.trim(), "200000");
}

#[test]
fn order_is_kept_where_it_can_be_told() {
    let worker = Worker::spawn();
    let mut link = worker.pipe(
        "i=0; while [ $i -lt 20 ]; do printf a; sleep 0.02; printf b >&2; sleep 0.02; i=$((i+1)); done",
    );
    link.until_exit();
    assert_eq!(link.output, "ab".repeat(20));

    // Nothing between them: each stream stays in its own order, and nothing is lost.
    for _ in 0..50 {
        let worker = Worker::spawn();
        let mut link = worker.pipe("printf a; printf b >&2; printf c");
        link.until_exit();
        let mut all: Vec<u8> = link.output.bytes().collect();
        let own: Vec<u8> = all.iter().copied().filter(|byte| *byte != b'b').collect();
        assert_eq!(own, b"ac");
        all.sort_unstable();
        assert_eq!(all, b"abc");
    }
}

#[test]
fn characters_of_each_stream_are_put_together() {
    let worker = Worker::spawn();
    let mut link = worker.pipe(
        r"printf 'A \342'; sleep 0.3; printf 'E \342' >&2; sleep 0.3; printf '\224\200 B\n';
          sleep 0.3; printf '\224\202 F\n' >&2; sleep 0.3; printf '\377\342'",
    );
    link.until_exit();
    assert_eq!(
        link.output, "A E \u{2500} B\n\u{2502} F\n\u{fffd}\u{fffd}",
        "{:?}",
        link.output
    );
}

#[test]
fn nul_and_other_bytes_are_typed_as_they_are() {
    let worker = Worker::spawn();
    let mut link = worker.pipe("head -c 6 | od -An -tx1");
    link.type_in(b"a\0b\xff\x1a\x1c");
    link.until_exit();
    assert_eq!(link.output.trim(), "61 00 62 ff 1a 1c");
}

#[test]
fn large_paste_arrives_whole() {
    for piece in [262_144, 263] {
        let worker = Worker::spawn();
        let mut link =
            worker.pipe("head -c 262144 | md5sum; head -c 262144 /dev/zero | tr '\\0' q | md5sum");
        for piece in vec![b'q'; 262_144].chunks(piece) {
            link.type_in(piece);
        }
        link.until_exit();
        let mut lines = link.output.lines();
        assert_eq!(lines.next().unwrap(), lines.next().unwrap());
        assert_eq!(link.taken, 262_144);
    }
}

#[test]
fn both_directions_full_do_not_deadlock() {
    let worker = Worker::spawn();
    let mut link = worker.pipe("cat");
    link.acks = false;
    for _ in 0..5 {
        link.type_in(&[b'z'; 200_000]);
    }
    // Nothing is acknowledged: output stops, then input stops.
    link.until("the window", |link| link.output.len() > 500_000);
    let before = worker.cpu();
    std::thread::sleep(Duration::from_millis(500));
    assert!(worker.cpu() - before <= Duration::from_millis(20));
    link.acks = true;
    link.ack();
    link.until("everything", |link| link.output.len() == 1_000_000);
    link.type_in(b"\x04");
    assert_eq!(link.until_exit(), ExitStatus::Code(0));
}

#[test]
fn stalled_program_costs_nothing_and_its_input_is_bounded() {
    let worker = Worker::spawn();
    let mut link = worker.pipe("printf ready; sleep 1000");
    link.until_output("ready");
    let full = vec![b'x'; usize::try_from(INPUT_PENDING_MAX).unwrap()];
    link.type_in(&full);
    link.until("some input taken", |link| link.taken > 0);
    let before = worker.cpu();
    std::thread::sleep(Duration::from_secs(1));
    assert!(worker.cpu() - before <= Duration::from_millis(20));
    link.type_in(&full);
    link.until_end();
    let mut link = worker.attach(1);
    link.terminate(Duration::ZERO);
    link.until_end();
    assert_eq!(link.exits.len(), 1);
}

#[test]
fn closed_input_is_taken_and_dropped() {
    let worker = Worker::spawn();
    let mut link = worker.pipe("exec <&-; echo up; sleep 1000");
    link.until_output("up");
    link.type_in(&[b'x'; 100_000]);
    link.until("all taken", |link| link.taken == 100_000);
    // Closed streams cost nothing, either.
    let before = worker.cpu();
    std::thread::sleep(Duration::from_millis(500));
    assert!(worker.cpu() - before <= Duration::from_millis(20));
}

#[test]
fn closed_output_does_not_end_the_terminal() {
    let worker = Worker::spawn();
    let mut link = worker.pipe("echo up; exec >&- 2>&-; sleep 0.3; exit 5");
    assert_eq!(link.until_exit(), ExitStatus::Code(5));
    assert_eq!(link.output, "up\n");
}

#[test]
fn job_delays_the_exit_by_a_second_and_is_still_heard() {
    let mut worker = Worker::spawn();
    let mut link =
        worker.pipe("(sleep 2; echo late; sleep 0.2; echo later >&2) & echo early; exit 4");
    link.until_output("early");
    let begun = Instant::now();
    assert_eq!(link.until_exit(), ExitStatus::Code(4));
    assert!(begun.elapsed() < Duration::from_millis(1500));
    assert_eq!(link.output, "early\n");
    link.until_output("later\n");
    link.dismiss();
    link.until_end();
    assert_eq!(link.output, "early\nlate\nlater\n");
    assert_eq!(link.exits.len(), 1);
    assert_eq!(worker.wait(PATIENCE).code(), Some(0));
}

#[test]
fn job_that_floods_is_alive_until_it_is_disposed_of() {
    let mut worker = Worker::spawn();
    let mut link = worker.pipe("yes & echo job=$!.; exit 3");
    let begun = Instant::now();
    assert_eq!(link.until_exit(), ExitStatus::Code(3));
    assert!(begun.elapsed() < SOON);
    let job = number_after(&link.output, "job=");
    assert!(is_alive(job));
    let sofar = link.output.len();
    link.until("more of it", |link| link.output.len() > sofar + 2_000_000);
    link.terminate(Duration::from_secs(60));
    link.until_end();
    assert_eq!(worker.wait(PATIENCE).code(), Some(0));
    assert!(!is_alive(job));
}

#[test]
fn terminate_ends_the_whole_tree() {
    let mut worker = Worker::spawn();
    let mut link = worker.pipe(
        "trap '' HUP TERM; setsid sh -c 'trap \"\" HUP TERM; echo job=$$.; exec sleep 1000' & \
         sleep 1000 & echo other=$!.; kill -STOP $!; echo up; wait; sleep 1000",
    );
    link.until_output("up\n");
    link.until("the job", |link| link.output.contains("job="));
    let job = number_after(&link.output, "job=");
    let other = number_after(&link.output, "other=");
    link.terminate(Duration::from_millis(300));
    link.until_end();
    assert_eq!(link.exits.len(), 1);
    assert_eq!(worker.wait(PATIENCE).code(), Some(0));
    for pid in [job, other, link.shell_pid] {
        assert!(!is_alive(pid), "{pid}");
    }
}

#[test]
fn shell_has_three_pipes_and_nothing_else() {
    let worker = Worker::spawn();
    let mut link = worker.pipe(
        "ls /proc/self/fd | tr '\\n' ' '; ls -l /proc/$$/fd 2>/dev/null | grep -c pipe:; \
         (: </dev/tty) 2>/dev/null || echo no tty; \
         cut -d' ' -f5-8 /proc/$$/stat; echo $$",
    );
    link.until_exit();
    let pid = link.shell_pid;
    // Leader of its group and session, without a terminal (0) and its foreground group (-1).
    assert_eq!(
        link.output,
        format!("0 1 2 3 3\nno tty\n{pid} {pid} 0 -1\n{pid}\n")
    );
}

#[test]
fn shell_starts_with_its_own_mask_limits_signals_and_environment() {
    let worker = Worker::spawn();
    let mut link = worker.attach(1);
    link.send(&ToWorker::Resize(Size { cols: 99, rows: 33 }));
    link.start(&Start {
        mode: Mode::Pipes,
        umask: 0o027,
        limits: vec![Limit {
            resource: 7,
            soft: 123,
            hard: 456,
        }],
        host_env: vec![(Data::borrowed(b"TERM"), Data::borrowed(b"xterm"))],
        caller_env: vec![(Data::borrowed(b"TERM"), Data::borrowed(b"vt100"))],
        ..start(
            "umask; ulimit -Sn; ulimit -Hn; grep -E '^Sig(Ign|Blk)' /proc/self/status; \
             echo $TERM $COLUMNS $LINES; pwd",
        )
    });
    assert_eq!(link.until_exit(), ExitStatus::Code(0));
    let zero = "0000000000000000";
    assert_eq!(
        link.output,
        format!("0027\n123\n456\nSigBlk:\t{zero}\nSigIgn:\t{zero}\ndumb 99 33\n/\n")
    );
    // A size is kept by the supervisor; here it is no error.
    link.send(&ToWorker::Resize(Size { cols: 1, rows: 1 }));
}

#[test]
fn what_cannot_start_says_why() {
    for (cwd, shell, words, code) in [
        (
            &b"/no/such"[..],
            &b"/bin/sh"[..],
            "cannot enter /no/such: No such file or directory",
            127,
        ),
        (
            b"/",
            b"/no/such",
            "cannot start /no/such: No such file or directory",
            127,
        ),
        (
            b"/",
            b"/etc/passwd",
            "cannot start /etc/passwd: Permission denied",
            126,
        ),
    ] {
        let worker = Worker::spawn();
        let mut link = worker.attach(1);
        link.start(&Start {
            mode: Mode::Pipes,
            cwd: Data::borrowed(cwd),
            shell: Data::borrowed(shell),
            ..start("pwd")
        });
        assert_eq!(link.until_exit(), ExitStatus::Code(code));
        assert_eq!(link.output, format!("shellward: {words}\n"));
    }
}

#[test]
fn link_that_comes_back_keeps_the_shell() {
    let worker = Worker::spawn();
    let mut link = worker.pipe("cat");
    link.type_in(b"one\n");
    link.until_output("one\n");
    drop(link);
    let mut link = worker.attach(1);
    let (seq, data) = (2, Data::borrowed(b"two\n"));
    link.send(&ToWorker::Input(shellward_protocol::message::Input {
        seq,
        data,
    }));
    link.until_output("two\n");
    assert!(!link.is_pty);
}

#[test]
fn idle_worker_does_not_wake_up() {
    let worker = Worker::spawn();
    let mut link = worker.pipe("printf ready; exec sleep 1000");
    link.until_output("ready");
    worker.comes_to_rest();
}
