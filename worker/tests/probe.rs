//! The probe and native bindings (field case S-37).

// The lint's own exception for tests does not reach the helpers beside them.
#![allow(clippy::unwrap_used, clippy::panic)]

mod play;

use std::fs::Permissions;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus as ProcessStatus, Stdio};
use std::time::{Duration, Instant};

use play::{Link, PATIENCE, Worker, start};
use shellward_protocol::message::{ExitStatus, Mode, ProbeReport, Size, Start, StartFailure};
use shellward_protocol::{Data, FrameDecoder, ToWorker};

/// A directory with bindings in it.
struct Bindings(tempfile::TempDir);

impl Bindings {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        Self(dir)
    }

    /// Builds one with these macros.
    fn build(&self, macros: &str) -> PathBuf {
        let path = self.0.path().join(format!("{macros}.so"));
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut cc = Command::new("cc");
        cc.args([
            "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-O1", "-o",
        ])
        .arg(&path)
        .arg("-I")
        .arg(here.join("include"))
        .arg(here.join("tests/bindings/good.c"));
        if !macros.is_empty() {
            cc.arg(format!("-D{macros}"));
        }
        assert!(cc.status().unwrap().success());
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
    }
}

struct Answer {
    status: ProcessStatus,
    report: Option<ProbeReport>,
    stdout: Vec<u8>,
    took: Duration,
}

impl Answer {
    fn words(&self) -> (&ProbeReport, String) {
        assert_eq!(self.status.code(), Some(3));
        let report = self.report.as_ref().unwrap();
        (report, report.trouble().unwrap().words.clone())
    }
}

/// Runs a probe the way the supervisor does, but for the report pipe: a shell moves it to 3.
fn probe(binding: Option<&Path>) -> Answer {
    probe_in("", binding)
}

fn probe_in(before: &str, binding: Option<&Path>) -> Answer {
    let begun = Instant::now();
    // What the probe prints goes to 4, the report to the shell's own stdout.
    let (mut stdout, other) = std::io::pipe().unwrap();
    let mut child = Command::new("/bin/sh")
        .args([
            "-c",
            &format!("{before} exec \"$@\" 3>&1 1>&2 2>/dev/null"),
            "sh",
        ])
        .arg(env!("CARGO_BIN_EXE_shellward-worker"))
        .arg("probe")
        .args(binding)
        .env_clear()
        .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(other)
        .spawn()
        .unwrap();
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        stdout.read_to_end(&mut all).unwrap();
        all
    });
    let mut bytes = Vec::new();
    child
        .stdout
        .take()
        .unwrap()
        .read_to_end(&mut bytes)
        .unwrap();
    let status = child.wait().unwrap();
    let mut decoder = FrameDecoder::new();
    decoder.push(&bytes);
    let report = decoder
        .next_frame()
        .unwrap()
        .map(|(header, payload)| ProbeReport::decode(header, payload).unwrap());
    assert!(decoder.is_empty());
    Answer {
        status,
        report,
        stdout: reader.join().unwrap(),
        took: begun.elapsed(),
    }
}

#[test]
fn ptys_work_and_nothing_is_printed() {
    let answer = probe(None);
    assert_eq!(answer.report, Some(ProbeReport::Works));
    assert_eq!(answer.status.code(), Some(0));
    assert!(answer.stdout.is_empty());
}

#[test]
fn by_hand_it_says_so_on_stdout() {
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_shellward-worker"))
            .args(args)
            .env_clear()
            .output()
            .unwrap();
        (
            String::from_utf8(output.stdout).unwrap(),
            output.status.code(),
        )
    };
    assert_eq!(run(&["probe"]), ("ok\n".to_owned(), Some(0)));
    assert_eq!(
        run(&["probe", "lib.so"]),
        (
            "refused: lib.so is not an absolute path\n".to_owned(),
            Some(3)
        )
    );
}

#[test]
fn good_bindings_work() {
    let bindings = Bindings::new();
    for macros in ["", "GIVES_SLAVE"] {
        let answer = probe(Some(&bindings.build(macros)));
        assert_eq!(answer.report, Some(ProbeReport::Works), "{macros}");
        assert_eq!(answer.status.code(), Some(0));
    }
}

#[test]
fn file_that_is_no_library_is_told_in_the_loaders_words() {
    let bindings = Bindings::new();
    let text = bindings.0.path().join("text.so");
    for (content, words) in [
        ("", "file too short"),
        (&*"text ".repeat(99), "invalid ELF header"),
    ] {
        std::fs::write(&text, content).unwrap();
        let answer = probe(Some(&text));
        let (report, said) = answer.words();
        assert!(matches!(report, ProbeReport::BindingMissing(_)));
        assert!(said.ends_with(words) && said.contains("text.so"), "{said}");
    }
    let missing = bindings.0.path().join("missing.so");
    let answer = probe(Some(&missing));
    let (report, said) = answer.words();
    assert!(matches!(report, ProbeReport::BindingMissing(trouble) if trouble.errno == Some(2)));
    let shared = "cannot open shared object file: No such file or directory";
    assert_eq!(said, format!("{}: {shared}", missing.display()));
}

#[test]
fn other_versions_and_missing_functions_are_told() {
    let bindings = Bindings::new();
    for (macros, words) in [
        (
            "VERSION=7",
            "speaks version 7 of the binding interface; this worker speaks version 1",
        ),
        ("NO_CLOSE", "has no function shellward_pty_close"),
    ] {
        let answer = probe(Some(&bindings.build(macros)));
        let (report, said) = answer.words();
        assert!(matches!(report, ProbeReport::BindingAbi(_)), "{report:?}");
        assert!(said.ends_with(words), "{said}");
    }
}

#[test]
fn binding_that_others_can_write_is_not_loaded() {
    let bindings = Bindings::new();
    // Loading it would show.
    let path = bindings.build("ABORTS");
    std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    let answer = probe(Some(&path));
    let (report, said) = answer.words();
    assert!(matches!(report, ProbeReport::Refused(_)));
    assert!(
        said.ends_with("ABORTS.so can be written by everybody (mode 0666)"),
        "{said}"
    );
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(bindings.0.path(), Permissions::from_mode(0o777)).unwrap();
    let answer = probe(Some(&path));
    let (report, said) = answer.words();
    assert!(matches!(report, ProbeReport::Refused(_)));
    assert!(
        said.starts_with(bindings.0.path().to_str().unwrap()),
        "{said}"
    );
}

#[test]
fn errors_of_a_binding_arrive_with_its_words() {
    let bindings = Bindings::new();
    let answer = probe(Some(&bindings.build("FAILS_OPEN")));
    let (report, said) = answer.words();
    assert!(matches!(report, ProbeReport::NoPty(trouble) if trouble.errno == Some(28)));
    assert_eq!(said, "cannot open a pty: the ptys are out to lunch");
    let answer = probe(Some(&bindings.build("IGNORES_SIZE")));
    assert_eq!(
        answer.words().1,
        "the pty has a size of 0x0 where 83x29 was set"
    );
}

#[test]
fn what_kills_the_probe_is_in_its_status() {
    let bindings = Bindings::new();
    for (macros, signal) in [("ABORTS", 6), ("CRASHES_OPEN", 11)] {
        let answer = probe(Some(&bindings.build(macros)));
        assert_eq!(answer.report, None);
        assert_eq!(answer.status.signal(), Some(signal), "{macros}");
    }
    // Nobody ends it here, so it ends itself.
    let answer = probe(Some(&bindings.build("HANGS")));
    assert_eq!(answer.status.signal(), Some(14));
    assert!(answer.took < Duration::from_secs(9));
}

#[test]
fn noise_and_closed_descriptors_do_not_confuse_the_report() {
    let bindings = Bindings::new();
    let answer = probe(Some(&bindings.build("PRINTS")));
    assert_eq!(answer.report, Some(ProbeReport::Works));
    assert_eq!(answer.stdout.len(), 10 << 20);
    let answer = probe(Some(&bindings.build("CLOSES_ALL")));
    assert!(answer.report.is_none() && !answer.status.success());
    let answer = probe(Some(&bindings.build("CLOSES_STDIO")));
    let (report, said) = answer.words();
    assert!(matches!(report, ProbeReport::BindingAbi(_)));
    assert_eq!(
        said,
        "the pty binding has closed or replaced descriptor 0, which is not its own"
    );
}

#[test]
fn machine_without_ptys_is_told_so() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let empty = "mount -t tmpfs none /dev || exit 99;";
    let unshared = |script: &str| {
        // The shell that probe_in starts runs again, inside.
        format!(
            "[ -n \"$IN\" ] || IN=1 exec unshare -m /bin/sh -c '{script} exec \"$@\" 3>&1 1>&2 2>/dev/null' sh \"$@\";"
        )
    };
    let answer = probe_in(&unshared(empty), None);
    let (report, said) = answer.words();
    assert!(
        matches!(report, ProbeReport::NoPty(trouble) if trouble.errno == Some(2)),
        "{report:?}"
    );
    assert_eq!(said, "cannot open a pty: No such file or directory");

    let full = "mount -t devpts -o newinstance,ptmxmode=0666,max=1 none /dev/pts || exit 99; \
                mount --bind /dev/pts/ptmx /dev/ptmx || exit 99; exec 8<>/dev/ptmx;";
    let answer = probe_in(&unshared(full), None);
    let (report, _) = answer.words();
    assert!(
        matches!(report, ProbeReport::NoPty(trouble) if trouble.errno == Some(28)),
        "{report:?}"
    );
}

fn run_with(worker: &Worker, binding: &Path, line: &str) -> Link {
    let mut link = worker.attach(1);
    link.start(&Start {
        mode: Mode::Pty(Data::borrowed(binding.as_os_str().as_bytes())),
        ..start(line)
    });
    link
}

#[test]
fn shell_on_a_native_pty_is_as_on_the_built_in_one() {
    let bindings = Bindings::new();
    for macros in ["", "GIVES_SLAVE"] {
        let mut worker = Worker::spawn();
        let mut link = run_with(
            &worker,
            &bindings.build(macros),
            "stty size; tty; ls /proc/self/fd | tr '\\n' ' '; : </dev/tty && echo controlled; \
             stty -a | grep -o ' iutf8'; echo $TERM; trap 'stty size' WINCH; echo up; \
             until read x; do :; done; echo \"got $x\"; sleep 60 & exit 6",
        );
        link.until_output("up\r\n");
        assert!(link.is_pty);
        let lines: Vec<&str> = link.output.lines().collect();
        assert_eq!(lines[0], "24 80");
        assert!(lines[1].starts_with("/dev/pts/"));
        assert_eq!(
            &lines[2..6],
            ["0 1 2 3 controlled", " iutf8", "xterm-256color", "up"]
        );
        link.send(&ToWorker::Resize(Size { cols: 99, rows: 33 }));
        link.until_output("33 99\r\n");
        link.type_in(b"hello\r");
        assert_eq!(link.until_exit(), ExitStatus::Code(6));
        assert!(link.output.contains("got hello\r\n"), "{:?}", link.output);
        link.dismiss();
        link.until_end();
        assert_eq!(worker.wait(PATIENCE).code(), Some(0));
    }
}

#[test]
fn interrupt_and_end_of_output_work_on_a_native_pty() {
    let bindings = Bindings::new();
    let path = bindings.build("");
    let worker = Worker::spawn();
    let mut link = run_with(
        &worker,
        &path,
        "trap 'echo caught; exit 9' INT; echo up; while :; do sleep 0.05; done",
    );
    link.until_output("up\r\n");
    link.type_in(b"\x03");
    assert_eq!(link.until_exit(), ExitStatus::Code(9));
    assert!(link.output.contains("caught"));
    let worker = Worker::spawn();
    let mut link = run_with(
        &worker,
        &path,
        "head -c 20480 /dev/zero | tr '\\0' h; printf END",
    );
    link.until_exit();
    assert_eq!(link.output.len(), 20483);
}

#[test]
fn binding_that_does_not_load_fails_the_start_in_words() {
    let bindings = Bindings::new();
    for (macros, failure, words) in [
        ("VERSION=2", StartFailure::Other, "speaks version 2"),
        (
            "FAILS_OPEN",
            StartFailure::NoPty,
            "cannot open a pty: the ptys are out to lunch",
        ),
    ] {
        let mut worker = Worker::spawn();
        let mut link = run_with(&worker, &bindings.build(macros), "true");
        link.until_end();
        let failed = link.failed.unwrap();
        assert_eq!(failed.failure, failure);
        assert!(failed.reason.contains(words), "{}", failed.reason);
        assert_eq!(worker.wait(PATIENCE).code(), Some(0));
    }
    let mut worker = Worker::spawn();
    let mut link = run_with(&worker, Path::new("/no/such.so"), "true");
    link.until_end();
    assert_eq!(
        link.failed.unwrap().reason,
        "the pty binding cannot be loaded: /no/such.so: cannot open shared object file: \
         No such file or directory"
    );
    // One that crashes takes its worker with it, and the end of the link tells.
    let mut crashed = Worker::spawn();
    let mut link = run_with(&crashed, &bindings.build("CRASHES_OPEN"), "true");
    link.until_end();
    assert!(link.failed.is_none());
    assert_eq!(crashed.wait(PATIENCE).signal(), Some(11));
    worker.wait(PATIENCE);
    // So does one that closes what the worker needs.
    let mut crashed = Worker::spawn();
    let mut link = run_with(&crashed, &bindings.build("CLOSES_ALL"), "true");
    link.until_end();
    assert!(link.failed.is_none() && link.shell_pid == 0);
    assert_eq!(crashed.wait(PATIENCE).signal(), Some(6));
}
