//! Field case S-37: native pty bindings, good ones and bad ones, and what the probe says of them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use shellward_tests::{
    DEADLINE, Host, HostBuilder, Raw, RpcError, Term, Value, binding, json, leftovers, needs_root,
    poll_for, probe, proc, term,
};

/// A host that is told to use this file.
fn with_file(builder: HostBuilder, library: &Path) -> Host {
    builder
        .dash()
        .option("--pty", "auto")
        .option("--pty-binding", library.to_str().unwrap())
        .start()
}

/// A host with this binding.
fn with_binding(name: &str) -> Host {
    let builder = Host::builder();
    let library = binding::install(name, builder.folder());
    with_file(builder, &library)
}

async fn is_pty(raw: &Raw) -> (Term, bool) {
    let terminal = Term::create(raw).await;
    let is_pty = terminal.snapshot["state"]["isPty"].as_bool().unwrap();
    (terminal, is_pty)
}

/// The host serves, on pipes, and says so and why everywhere; the answer.
async fn assert_serves_on_pipes(host: &mut Host, result: &str) -> Value {
    assert_eq!(host.ready["pty"], false, "{}", host.ready);
    let supervisor = host.ps()["supervisor"].clone();
    assert_eq!(supervisor["pty"], false);
    let answer = probe::assert_answer(&supervisor["probe"], result);
    let raw = Raw::open(host).await;
    assert_eq!(
        raw.welcome["snapshots"][0]["state"]["_meta"]["shellward.probe"],
        answer
    );
    let (mut terminal, is_pty) = is_pty(&raw).await;
    assert!(!is_pty);
    assert_eq!(
        terminal.snapshot["state"]["supportsCommandDetection"],
        false
    );
    assert_eq!(terminal.output_of("echo serves").await, "serves\n");
    assert_eq!(host.ps_entry(&terminal.uri)["isPty"], false);
    let plain = host.cli(&["ps"]);
    let plain = String::from_utf8(plain.stdout).unwrap();
    let sentence = answer["sentence"].as_str().unwrap();
    assert!(
        plain.contains("pipes") && plain.contains(sentence),
        "{sentence:?} in {plain}"
    );
    // Logged once, with the loader's own words where there are any.
    let log = host.log();
    for words in [answer["sentence"].as_str(), answer["words"].as_str()]
        .into_iter()
        .flatten()
    {
        assert_eq!(log.matches(words).count(), 1, "{words:?} in\n{log}");
    }
    // The probe and all of its own is gone; what is left is the terminal's worker.
    let (worker, _) = host.pids(&terminal.uri);
    let children: Vec<proc::Process> = proc::descendants(host.pid)
        .into_iter()
        .filter(|process| process.parent == host.pid && process.pid != worker)
        .collect();
    assert_eq!(children, []);
    assert!(host.is_running());
    answer
}

/// One whole life with a binding that does not work.
async fn fails_as(name: &str, result: &str) -> Value {
    let mut host = with_binding(name);
    let answer = assert_serves_on_pipes(&mut host, result).await;
    assert_eq!(
        answer["binding"],
        host.folder().join("pty.so").to_str().unwrap()
    );
    assert_supervisor_never_loaded(&host);
    host.stop();
    answer
}

/// The processes that loaded the binding do not include the supervisor.
#[track_caller]
fn assert_supervisor_never_loaded(host: &Host) {
    let loaded = fs::read_to_string(host.folder().join("loaded")).unwrap_or_default();
    let own = host.pid.to_string();
    assert!(loaded.lines().all(|pid| pid != own), "{loaded}");
    let maps = fs::read_to_string(format!("/proc/{}/maps", host.pid)).unwrap();
    assert!(!maps.contains("pty.so"), "{maps}");
}

// ---- bindings that work ----

async fn works_as_a_pty(name: &str) {
    let host = with_binding(name);
    assert_eq!(host.ready["pty"], true, "{}", host.log());
    probe::assert_answer(&probe::shown(&host), "works");
    assert_eq!(binding::opens(host.folder()), 1, "the probe opens one pty");
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create_with(&raw, json!({"cols": 100, "rows": 30})).await;
    assert_eq!(terminal.snapshot["state"]["isPty"], true);
    assert_eq!(binding::opens(host.folder()), 2, "through the binding");
    let tty = terminal.output_of("tty").await.trim().to_owned();
    assert!(tty.starts_with("/dev/pts/"), "{tty}");
    assert_eq!(terminal.output_of("echo up > /dev/tty").await.trim(), "up");
    assert_eq!(terminal.output_of("stty size").await.trim(), "30 100");
    let mark = raw.mark();
    terminal
        .act(json!({"type": "terminal/resized", "cols": 123, "rows": 45}))
        .await;
    raw.wait_action(mark, &terminal.uri, "terminal/resized")
        .await;
    assert_eq!(terminal.output_of("stty size").await.trim(), "45 123");
    // In the worker and nowhere else: not in the supervisor, not in the shell.
    let (worker, shell) = host.pids(&terminal.uri);
    let maps = |pid: i32| fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    assert!(maps(worker).contains("pty.so"));
    assert!(!maps(shell).contains("pty.so"));
    assert_supervisor_never_loaded(&host);
    // One master here, and nobody but the shell holds the slave.
    assert_eq!(proc::ptys(worker).len(), 1);
    assert!(
        proc::descriptors(worker)
            .iter()
            .all(|(_, target)| target.to_str() != Some(&tty)),
        "{:?}",
        proc::descriptors(worker)
    );
    for (number, target) in proc::descriptors(shell) {
        let target = target.to_string_lossy().into_owned();
        assert!(target == tty || target == "/dev/tty", "{number}: {target}");
    }
    for (line, code, signal) in [
        ("exit 0", 0, None),
        ("exit 7", 7, None),
        ("kill -9 $$", 128, Some("SIGKILL")),
    ] {
        let mut terminal = Term::create(&raw).await;
        terminal.line(line).await;
        let action = terminal.wait_exit().await;
        assert_eq!(action["exitCode"], code, "{action}");
        assert_eq!(action.get("signal").and_then(Value::as_str), signal);
    }
    host.stop();
}

#[tokio::test]
async fn s37_a_good_binding_gives_real_ptys() {
    works_as_a_pty("good").await;
}

#[tokio::test]
async fn s37_a_good_binding_that_names_the_slave_gives_real_ptys() {
    works_as_a_pty("good_by_name").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s01_with_a_binding_the_end_of_the_output_is_there_and_before_the_exit() {
    let host = with_binding("good");
    let raw = Raw::open(&host).await;
    for _ in 0..3 {
        let mut batch = Vec::new();
        for _ in 0..10 {
            let terminal = Term::create(&raw).await;
            terminal
                .line("head -c 20480 /dev/zero | tr '\\0' h; printf E''ND; exit")
                .await;
            batch.push(terminal);
        }
        for mut terminal in batch {
            terminal.wait_exit().await;
            let whole = format!("{}END", "h".repeat(20480));
            assert!(terminal.seen.contains(&whole));
            raw.request("disposeTerminal", json!({"channel": terminal.uri}))
                .await
                .unwrap();
        }
    }
    host.wait_no_workers();
    host.stop();
}

#[tokio::test]
async fn s37_a_binding_reached_through_a_link_in_safe_directories_is_taken() {
    let builder = Host::builder();
    let library = binding::install("good", builder.folder());
    let link = builder.folder().join("link.so");
    symlink(&library, &link).unwrap();
    let host = with_file(builder, &link);
    assert_eq!(host.ready["pty"], true, "{}", host.log());
    host.stop();
}

#[tokio::test]
async fn s37_10_mb_on_stdout_disturb_neither_the_answer_nor_a_terminal() {
    let host = with_binding("print_10_mb");
    assert_eq!(host.ready["pty"], true, "{}", host.log());
    let raw = Raw::open(&host).await;
    let (mut terminal, is_pty) = is_pty(&raw).await;
    assert!(is_pty);
    assert_eq!(terminal.output_of("echo clean").await.trim(), "clean");
    assert!(!terminal.seen.contains("xxxxxxxx"));
    assert!(
        host.log().len() < 1 << 20,
        "the log took {}",
        host.log().len()
    );
    host.stop();
}

// ---- bindings that cannot be loaded ----

#[tokio::test]
async fn s37_a_missing_file() {
    let builder = Host::builder();
    let library = builder.folder().join("pty.so");
    let mut host = with_file(builder, &library);
    let answer = assert_serves_on_pipes(&mut host, "binding-missing").await;
    assert_eq!(answer["errno"], 2, "{answer}");
    assert_eq!(answer["binding"], library.to_str().unwrap());
    let words = answer["words"].as_str().unwrap();
    assert!(
        words.contains("pty.so") && words.contains("No such file or directory"),
        "{words}"
    );
    host.stop();
}

#[tokio::test]
async fn s37_a_text_file() {
    let builder = Host::builder();
    let library = builder.folder().join("pty.so");
    fs::write(
        &library,
        "this is no library, and long enough to have a header\n".repeat(4),
    )
    .unwrap();
    fs::set_permissions(&library, fs::Permissions::from_mode(0o644)).unwrap();
    let mut host = with_file(builder, &library);
    let answer = assert_serves_on_pipes(&mut host, "binding-missing").await;
    let words = answer["words"].as_str().unwrap();
    assert!(words.contains("invalid ELF header"), "{words}");
    host.stop();
}

#[tokio::test]
async fn s37_a_library_of_another_machine() {
    let builder = Host::builder();
    let library = binding::install("good", builder.folder());
    let mut bytes = fs::read(&library).unwrap();
    // e_machine: a kind of computer that nobody runs this on.
    bytes[18..20].copy_from_slice(&[0x02, 0x00]);
    fs::write(&library, bytes).unwrap();
    let mut host = with_file(builder, &library);
    let answer = assert_serves_on_pipes(&mut host, "binding-missing").await;
    let words = answer["words"].as_str().unwrap();
    assert!(words.contains("pty.so"), "{words}");
    host.stop();
}

#[tokio::test]
async fn s37_an_unresolved_symbol() {
    let answer = fails_as("unresolved_symbol", "binding-missing").await;
    let words = answer["words"].as_str().unwrap();
    assert!(
        words.contains("undefined symbol: shellward_test_nowhere"),
        "{words}"
    );
}

#[tokio::test]
async fn s37_a_missing_version_function() {
    let answer = fails_as("missing_version", "binding-abi").await;
    let words = answer["words"].as_str().unwrap();
    assert!(words.contains("shellward_pty_abi_version"), "{words}");
}

#[tokio::test]
async fn s37_a_missing_function() {
    let answer = fails_as("missing_function", "binding-abi").await;
    let words = answer["words"].as_str().unwrap();
    assert!(words.contains("shellward_pty_last_error"), "{words}");
}

#[tokio::test]
async fn s37_another_version_of_the_interface() {
    let mut host = with_binding("wrong_version");
    let answer = assert_serves_on_pipes(&mut host, "binding-abi").await;
    let words = answer["words"].as_str().unwrap();
    assert!(words.contains('2') && words.contains('1'), "{words}");
    assert_eq!(binding::opens(host.folder()), 0, "nothing else was called");
    host.stop();
}

// ---- bindings that end the process ----

#[tokio::test]
async fn s37_an_abort_in_the_constructor() {
    let answer = fails_as("abort_in_constructor", "crashed").await;
    assert_eq!(answer["signal"], "SIGABRT");
    assert!(answer["sentence"].as_str().unwrap().contains("SIGABRT"));
}

#[tokio::test]
async fn s37_a_memory_fault_in_open() {
    let answer = fails_as("crash_in_open", "crashed").await;
    assert_eq!(answer["signal"], "SIGSEGV");
    assert!(answer["sentence"].as_str().unwrap().contains("SIGSEGV"));
}

#[tokio::test]
async fn s37_a_kill_in_open() {
    let answer = fails_as("kill_in_open", "crashed").await;
    assert_eq!(answer["signal"], "SIGKILL");
}

#[tokio::test]
async fn s37_a_quiet_exit_is_no_success() {
    for name in ["exit_in_constructor", "exit_in_open"] {
        let answer = fails_as(name, "crashed").await;
        assert!(answer.get("signal").is_none(), "{answer}");
    }
}

#[tokio::test]
async fn s37_all_descriptors_closed() {
    // Whether it dies of it or leaves without a word depends on how it was compiled.
    fails_as("close_all", "crashed").await;
}

// ---- bindings that do not come back ----

#[tokio::test]
async fn s37_a_constructor_that_hangs_and_its_child() {
    let builder = Host::builder();
    let library = binding::install("hang_in_constructor", builder.folder());
    let start = Instant::now();
    let mut host = with_file(builder, &library);
    let took = start.elapsed();
    assert!(
        (Duration::from_millis(2900)..Duration::from_secs(6)).contains(&took),
        "{took:?}"
    );
    assert_serves_on_pipes(&mut host, "hung").await;
    let child: i32 = fs::read_to_string(host.folder().join("child"))
        .unwrap()
        .parse()
        .unwrap();
    poll_for("the end of the probe's child", DEADLINE, || {
        proc::Process::read(child)
            .is_none_or(|process| process.is_zombie())
            .then_some(())
    });
    host.stop();
}

#[tokio::test]
async fn s37_an_open_that_hangs() {
    fails_as("hang_in_open", "hung").await;
}

#[tokio::test]
async fn s37_an_open_that_stops_the_process() {
    fails_as("stop_in_open", "hung").await;
}

// ---- bindings whose ptys are none ----

#[tokio::test]
async fn s37_a_pty_that_carries_nothing() {
    fails_as("deaf", "no-pty").await;
}

#[tokio::test]
async fn s37_a_pty_of_another_size() {
    let answer = fails_as("shapeless", "no-pty").await;
    assert!(
        answer["words"].as_str().unwrap().contains("size"),
        "{answer}"
    );
}

#[tokio::test]
async fn s37_an_open_that_fails_says_why_in_the_binding_s_words() {
    let builder = Host::builder();
    let library = binding::install("refuse", builder.folder());
    fs::write(builder.folder().join("errno"), "13").unwrap();
    let mut host = with_file(builder, &library);
    let answer = assert_serves_on_pipes(&mut host, "no-pty").await;
    assert_eq!(answer["errno"], 13);
    let words = answer["words"].as_str().unwrap();
    assert!(words.contains("the test says no 13"), "{words}");
    host.stop();
}

// ---- files that may not be trusted ----

async fn refused(prepare: impl FnOnce(&Path, &Path) -> PathBuf) {
    let builder = Host::builder();
    let library = binding::install("good", builder.folder());
    let named = prepare(builder.folder(), &library);
    let mut host = with_file(builder, &named);
    let answer = assert_serves_on_pipes(&mut host, "refused").await;
    assert!(!answer["words"].as_str().unwrap().is_empty());
    assert!(
        !host.folder().join("loaded").exists(),
        "it was loaded all the same"
    );
    host.stop();
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn s37_a_file_that_everybody_or_a_group_may_write_is_not_loaded() {
    for mode in [0o777, 0o775] {
        refused(|_, library| {
            chmod(library, mode);
            library.to_owned()
        })
        .await;
    }
}

#[tokio::test]
async fn s37_a_directory_that_everybody_may_write_is_not_trusted() {
    refused(|folder, library| {
        let open = folder.join("open");
        fs::create_dir(&open).unwrap();
        chmod(&open, 0o777);
        let inner = open.join("inner");
        fs::create_dir(&inner).unwrap();
        let moved = inner.join("pty.so");
        fs::rename(library, &moved).unwrap();
        moved
    })
    .await;
}

#[tokio::test]
async fn s37_a_link_through_a_directory_that_everybody_may_write_is_not_trusted() {
    refused(|folder, library| {
        let open = folder.join("open");
        fs::create_dir(&open).unwrap();
        chmod(&open, 0o777);
        let link = open.join("link.so");
        symlink(library, &link).unwrap();
        link
    })
    .await;
}

#[tokio::test]
async fn s37_a_file_of_another_user_is_not_loaded_needs_root() {
    if !needs_root("giving a file away") {
        return;
    }
    refused(|_, library| {
        std::os::unix::fs::chown(library, Some(12_345), None).unwrap();
        library.to_owned()
    })
    .await;
}

#[test]
fn s37_a_binding_is_named_by_an_absolute_path() {
    let output = Host::builder()
        .option("--pty-binding", "pty.so")
        .run_to_end();
    assert!(matches!(output.status.code(), Some(1 | 2)), "{output:?}");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(words.contains("absolute"), "{words}");
}

// ---- ptys required ----

#[test]
fn require_refuses_to_start_with_the_reason_and_the_next_step() {
    for (name, reason) in [
        ("abort_in_constructor", "SIGABRT"),
        ("wrong_version", "version"),
        ("unresolved_symbol", "shellward_test_nowhere"),
    ] {
        let builder = Host::builder();
        let library = binding::install(name, builder.folder());
        let output = builder
            .option("--pty", "require")
            .option("--pty-binding", library.to_str().unwrap())
            .run_to_end();
        assert_eq!(output.status.code(), Some(3), "{name}: {output:?}");
        assert_eq!(output.stdout, b"", "no ready line");
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(words.contains(reason), "{words}");
        assert!(words.contains("shellward probe"), "a next step: {words}");
        assert!(!words.contains("panicked"), "{words}");
    }
}

#[tokio::test]
async fn require_serves_where_ptys_work() {
    let builder = Host::builder();
    let library = binding::install("good", builder.folder());
    let host = builder
        .dash()
        .option("--pty", "require")
        .option("--pty-binding", library.to_str().unwrap())
        .start();
    assert_eq!(host.ready["pty"], true);
    let raw = Raw::open(&host).await;
    assert!(is_pty(&raw).await.1);
    // Broken while it serves: what was asked for is a pty, so there is no terminal without one.
    binding::install("abort_in_constructor", host.folder());
    let asked = host.cli(&["probe"]);
    assert_eq!(asked.status.code(), Some(3));
    let error = Term::try_create(&raw, json!({})).await.err().unwrap();
    assert_eq!(error.code, -32603, "{error:?}");
    assert!(
        error.message.contains("pty") && error.message.contains("SIGABRT"),
        "{error:?}"
    );
    host.stop();
}

// ---- asked again ----

/// A host on pipes whose binding is repaired; `ask` has it look again.
async fn taken_up_again(ask: impl FnOnce(&Host)) {
    let mut host = with_binding("abort_in_constructor");
    assert_serves_on_pipes(&mut host, "crashed").await;
    let raw = Raw::open(&host).await;
    let (mut old, was_pty) = is_pty(&raw).await;
    assert!(!was_pty);
    binding::install("good", host.folder());
    let mark = raw.mark();
    ask(&host);
    poll_for("the new answer", DEADLINE, || {
        (host.ps()["supervisor"]["pty"] == true).then_some(())
    });
    let shown = probe::assert_answer(&probe::shown(&host), "works");
    assert_eq!(probe::in_root(&raw).await, shown);
    let (mut fresh, now_pty) = is_pty(&raw).await;
    assert!(now_pty);
    assert!(fresh.output_of("tty").await.starts_with("/dev/pts/"));
    // The running one is what it was, and nobody saw anything odd.
    assert_eq!(old.output_of("echo still").await, "still\n");
    old.assert_equals_snapshot().await;
    assert_eq!(host.ps_entry(&old.uri)["isPty"], false);
    raw.settle().await;
    for envelope in raw.actions_since(mark, shellward_tests::ROOT) {
        assert_eq!(envelope["action"]["type"], "root/terminalsChanged");
    }
    let plain = host.cli(&["ps"]);
    let plain = String::from_utf8(plain.stdout).unwrap();
    assert!(plain.contains("ptys work"), "{plain}");
    // And back again.
    binding::install("wrong_version", host.folder());
    let asked = host.cli(&["probe", "--json"]);
    assert_eq!(asked.status.code(), Some(3));
    let said: Value = serde_json::from_slice(&asked.stdout).unwrap();
    probe::assert_answer(&said, "binding-abi");
    assert_eq!(said, probe::shown(&host));
    assert!(!is_pty(&raw).await.1);
    assert_eq!(fresh.output_of("echo still").await.trim(), "still");
    host.stop();
}

#[tokio::test]
async fn s37_a_repaired_binding_is_taken_up_by_the_probe_command() {
    taken_up_again(|host| {
        let asked = host.cli(&["probe"]);
        assert_eq!(asked.status.code(), Some(0), "{asked:?}");
        assert!(String::from_utf8_lossy(&asked.stdout).contains("ptys work"));
    })
    .await;
}

#[tokio::test]
async fn s37_a_repaired_binding_is_taken_up_on_hup() {
    taken_up_again(|host| host.signal(Signal::SIGHUP)).await;
}

#[tokio::test]
async fn s37_a_repaired_binding_is_not_looked_at_without_being_asked() {
    let mut host = with_binding("crash_in_open");
    assert_serves_on_pipes(&mut host, "crashed").await;
    binding::install("good", host.folder());
    let raw = Raw::open(&host).await;
    assert!(!is_pty(&raw).await.1);
    probe::assert_answer(&probe::shown(&host), "crashed");
    host.stop();
}

#[tokio::test]
async fn the_same_answer_is_logged_once_however_often_it_is_asked() {
    let mut host = with_binding("wrong_version");
    let answer = assert_serves_on_pipes(&mut host, "binding-abi").await;
    for _ in 0..3 {
        assert_eq!(host.cli(&["probe"]).status.code(), Some(3));
    }
    let loads = || {
        fs::read_to_string(host.folder().join("loaded"))
            .unwrap()
            .lines()
            .count()
    };
    assert_eq!(loads(), 4);
    host.signal(Signal::SIGHUP);
    poll_for("the fifth probe", DEADLINE, || (loads() == 5).then_some(()));
    let sentence = answer["sentence"].as_str().unwrap();
    assert_eq!(host.log().matches(sentence).count(), 1, "{}", host.log());
    host.stop();
}

#[tokio::test]
async fn a_probe_that_hangs_holds_nobody_up_while_the_host_serves() {
    let mut host = with_binding("good");
    let raw = Raw::open(&host).await;
    let (mut old, _) = is_pty(&raw).await;
    binding::install("hang_in_open", host.folder());
    let before = binding::opens(host.folder());
    let asked = raw.start_request("x-shellward/probe", json!({})).await;
    poll_for("the probe", DEADLINE, || {
        (binding::opens(host.folder()) > before).then_some(())
    });
    let mark = raw.mark();
    assert_eq!(old.output_of("echo fine").await.trim(), "fine");
    let answered = raw.since(mark).iter().any(|message| message["id"] == asked);
    assert!(!answered, "the probe was over before the echo");
    probe::assert_answer(&raw.response(asked).await.unwrap(), "hung");
    // The end does not wait for one either.
    let before = binding::opens(host.folder());
    host.signal(Signal::SIGHUP);
    poll_for("the next probe", DEADLINE, || {
        (binding::opens(host.folder()) > before).then_some(())
    });
    let start = Instant::now();
    host.signal(Signal::SIGTERM);
    let status = host.wait_end();
    assert!(status.success(), "{status}");
    let took = start.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
    host.stop();
}

/// A host that is ended while its probe hangs; what is left of the probe, and what the binding
/// started in it, after a while. Nothing is, when this returns.
fn ended_while_it_probes(name: &str, signal: Signal) -> Vec<&'static str> {
    let builder = Host::builder();
    let library = binding::install(name, builder.folder());
    let folder = builder.folder().to_owned();
    let builder = builder
        .option("--pty", "auto")
        .option("--pty-binding", library.to_str().unwrap());
    let mut host = builder.spawn();
    let pid = poll_for("the probe", DEADLINE, || {
        let loaded = fs::read_to_string(folder.join("loaded")).ok()?;
        loaded.strip_suffix('\n')?.parse::<i32>().ok()
    });
    if name == "hang_in_constructor" {
        poll_for("its child", DEADLINE, || {
            let child = fs::read(folder.join("child")).ok()?;
            (!child.is_empty()).then_some(())
        });
    }
    let probe = proc::Process::read(pid).expect("it hangs");
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(i32::try_from(host.id()).unwrap()),
        signal,
    )
    .unwrap();
    let status = poll_for("the end of the host", DEADLINE, || host.try_wait().unwrap());
    let child = fs::read_to_string(folder.join("child"))
        .ok()
        .and_then(|pid| proc::Process::read(pid.parse().ok()?));
    let family = [("the probe", Some(probe)), ("its child", child)];
    let left = leftovers::settle(Duration::from_secs(6), || {
        let alive = |process: &&(_, Option<proc::Process>)| {
            process.1.as_ref().is_some_and(proc::Process::is_alive)
        };
        family.iter().filter(alive).collect()
    });
    for (_, process) in &left {
        let pid = process.as_ref().unwrap().pid;
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    }
    if signal == Signal::SIGTERM {
        assert!(status.success(), "{status}");
    }
    left.into_iter().map(|(name, _)| *name).collect()
}

#[test]
fn a_host_that_is_killed_while_it_probes_leaves_no_probe() {
    for name in ["hang_in_open", "hang_in_constructor"] {
        let left = ended_while_it_probes(name, Signal::SIGKILL);
        // A child that the binding forked is out of reach of a host that was killed.
        assert!(!left.contains(&"the probe"), "{name}");
    }
}

#[test]
fn a_host_that_is_told_to_end_while_it_probes_ends_in_order() {
    for name in ["hang_in_open", "hang_in_constructor"] {
        let left = ended_while_it_probes(name, Signal::SIGTERM);
        assert_eq!(left, [""; 0], "{name}");
    }
}

#[tokio::test]
async fn a_failure_that_passes_is_asked_again_before_the_next_terminal() {
    // ENOSPC, EAGAIN, EMFILE, ENFILE, ENOMEM.
    for errno in [28, 11, 24, 23, 12] {
        let builder = Host::builder();
        let library = binding::install("refuse", builder.folder());
        let no = builder.folder().join("errno");
        fs::write(&no, errno.to_string()).unwrap();
        let mut host = with_file(builder, &library);
        let answer = assert_serves_on_pipes(&mut host, "no-pty").await;
        assert_eq!(answer["errno"], errno);
        let raw = Raw::open(&host).await;
        let (mut old, was_pty) = is_pty(&raw).await;
        assert!(!was_pty);
        fs::remove_file(&no).unwrap();
        let (mut fresh, now_pty) = is_pty(&raw).await;
        assert!(now_pty, "{errno}");
        assert!(fresh.output_of("tty").await.starts_with("/dev/pts/"));
        probe::assert_answer(&probe::shown(&host), "works");
        assert_eq!(old.output_of("echo still").await, "still\n");
        // Out of ptys again: an error that says so, and never a pipe in silence.
        fs::write(&no, errno.to_string()).unwrap();
        let error = Term::try_create(&raw, json!({})).await.err().unwrap();
        assert_eq!(error.code, -32603, "{error:?}");
        assert!(error.message.contains("pty"), "{error:?}");
        host.stop();
    }
}

#[tokio::test]
async fn a_failure_that_stays_is_not_asked_again_before_the_next_terminal() {
    let builder = Host::builder();
    let library = binding::install("refuse", builder.folder());
    let no = builder.folder().join("errno");
    fs::write(&no, "13").unwrap();
    let mut host = with_file(builder, &library);
    assert_serves_on_pipes(&mut host, "no-pty").await;
    fs::remove_file(&no).unwrap();
    let raw = Raw::open(&host).await;
    assert!(!is_pty(&raw).await.1);
    assert_eq!(binding::opens(host.folder()), 1);
    host.stop();
}

// ---- worked in the probe, fails in a worker ----

/// What `createTerminal` says when the worker dies or does not come back.
async fn create_fails(raw: &Raw, limit: Duration) -> RpcError {
    let uri = term::new_uri();
    let id = raw
        .start_request("createTerminal", term::create_params(raw, &uri, json!({})))
        .await;
    let error = raw
        .response_within(id, limit)
        .await
        .expect_err("the binding does not work");
    assert_eq!(error.code, -32603, "{error:?}");
    let gone = raw
        .request("subscribe", json!({"channel": uri}))
        .await
        .unwrap_err();
    assert_eq!(gone.code, -32008, "no half terminal");
    error
}

#[tokio::test]
async fn s37_a_crash_at_the_third_open_takes_one_terminal() {
    let mut host = with_binding("crash_at_third_open");
    assert_eq!(host.ready["pty"], true, "{}", host.log());
    let raw = Raw::open(&host).await;
    let (mut first, first_pty) = is_pty(&raw).await;
    let error = create_fails(&raw, DEADLINE).await;
    assert!(error.message.contains("SIGSEGV"), "{error:?}");
    let (mut second, second_pty) = is_pty(&raw).await;
    assert!(first_pty && second_pty);
    for terminal in [&mut first, &mut second] {
        assert_eq!(terminal.output_of("echo fine").await.trim(), "fine");
        assert!(terminal.output_of("tty").await.starts_with("/dev/pts/"));
        terminal.assert_equals_snapshot().await;
    }
    assert_eq!(host.ps()["terminals"].as_array().unwrap().len(), 2);
    assert_eq!(host.ps()["supervisor"]["pty"], true);
    poll_for("two workers", DEADLINE, || {
        (host.workers().len() == 2).then_some(())
    });
    assert!(host.is_running());
    host.stop();
}

#[tokio::test]
async fn s37_a_crash_in_resize_takes_that_terminal_only() {
    let host = with_binding("crash_in_resize");
    let raw = Raw::open(&host).await;
    let mut terminals = Vec::new();
    for _ in 0..3 {
        let (mut terminal, is_pty) = is_pty(&raw).await;
        assert!(is_pty);
        terminal.output_of("mine=$$; echo ready").await;
        terminals.push(terminal);
    }
    let (worker, _) = host.pids(&terminals[1].uri);
    terminals[1].output_of("sleep 1070 & echo x").await;
    let family = proc::descendants(worker);
    let before = terminals[1].seen.len();
    terminals[1]
        .act(json!({"type": "terminal/resized", "cols": 99, "rows": 24}))
        .await;
    let action = terminals[1].wait_exit().await;
    assert_eq!(
        (&action["exitCode"], &action["signal"]),
        (&json!(128), &json!("SIGSEGV")),
        "{action}"
    );
    let words = &terminals[1].seen[before..];
    assert!(
        words.split_whitespace().count() >= 3 && words.contains("SIGSEGV"),
        "{words:?}"
    );
    for process in family {
        poll_for(&format!("the end of {process:?}"), DEADLINE, || {
            (!process.is_alive()).then_some(())
        });
    }
    for index in [0, 2] {
        let (_, shell) = host.pids(&terminals[index].uri);
        let answer = terminals[index].output_of("echo $mine").await;
        assert_eq!(answer.trim(), shell.to_string());
        // Other sizes are no trouble.
        terminals[index]
            .act(json!({"type": "terminal/resized", "cols": 98, "rows": 24}))
            .await;
        let size = terminals[index].output_of("stty size").await;
        assert_eq!(size.trim(), "24 98");
    }
    terminals[1].assert_equals_snapshot().await;
    host.stop();
}

#[tokio::test]
async fn three_workers_that_crash_at_start_have_the_probe_asked_again() {
    let host = with_binding("good");
    assert_eq!(host.ready["pty"], true);
    let raw = Raw::open(&host).await;
    let (mut old, _) = is_pty(&raw).await;
    binding::install("crash_in_open", host.folder());
    for _ in 0..3 {
        let error = create_fails(&raw, DEADLINE).await;
        assert!(error.message.contains("SIGSEGV"), "{error:?}");
    }
    let (mut fresh, now_pty) = is_pty(&raw).await;
    assert!(!now_pty);
    assert_eq!(fresh.output_of("echo pipes").await, "pipes\n");
    let shown = probe::assert_answer(&probe::shown(&host), "crashed");
    assert_eq!(probe::in_root(&raw).await, shown);
    assert!(old.output_of("tty").await.starts_with("/dev/pts/"));
    host.stop();
}

#[tokio::test]
async fn a_binding_that_only_the_probe_likes_does_not_end_in_a_loop() {
    let host = with_binding("crash_after_the_probe");
    let raw = Raw::open(&host).await;
    for round in 0..3 {
        let error = create_fails(&raw, DEADLINE).await;
        assert!(error.message.contains("SIGSEGV"), "{round}: {error:?}");
    }
    // The next probe is the fourth open or later, and crashes too.
    let (_, now_pty) = is_pty(&raw).await;
    assert!(!now_pty);
    poll_for("one worker", DEADLINE, || {
        (host.workers().len() == 1).then_some(())
    });
    host.stop();
}

#[tokio::test]
async fn two_crashes_and_a_success_do_not_have_the_probe_asked_again() {
    let host = with_binding("good");
    let raw = Raw::open(&host).await;
    for _ in 0..2 {
        binding::install("crash_in_open", host.folder());
        for _ in 0..2 {
            create_fails(&raw, DEADLINE).await;
        }
        binding::install("good", host.folder());
        let before = binding::opens(host.folder());
        assert!(is_pty(&raw).await.1);
        assert_eq!(binding::opens(host.folder()), before + 1, "no probe");
    }
    host.stop();
}

#[tokio::test]
async fn s37_descriptors_closed_in_a_worker_take_one_terminal() {
    let mut host = with_binding("close_all_at_second_open");
    assert_eq!(host.ready["pty"], true, "{}", host.log());
    let raw = Raw::open(&host).await;
    let error = create_fails(&raw, DEADLINE * 2).await;
    assert!(error.message.split_whitespace().count() >= 3, "{error:?}");
    let (mut terminal, now_pty) = is_pty(&raw).await;
    assert!(now_pty);
    assert_eq!(terminal.output_of("echo fine").await.trim(), "fine");
    poll_for("one worker", DEADLINE, || {
        (host.workers().len() == 1).then_some(())
    });
    assert!(host.is_running());
    host.stop();
}

#[tokio::test]
async fn s37_an_open_that_hangs_in_a_worker_holds_nobody_up() {
    let host = with_binding("hang_at_second_open");
    let raw = Raw::open(&host).await;
    let uri = term::new_uri();
    let hanging = raw
        .start_request("createTerminal", term::create_params(&raw, &uri, json!({})))
        .await;
    poll_for("the second open", DEADLINE, || {
        (binding::opens(host.folder()) == 2).then_some(())
    });
    let (mut terminal, now_pty) = is_pty(&raw).await;
    assert!(now_pty);
    assert_eq!(terminal.output_of("echo fine").await.trim(), "fine");
    let error = raw
        .response_within(hanging, DEADLINE * 3)
        .await
        .expect_err("it does not come back");
    assert_eq!(error.code, -32603, "{error:?}");
    poll_for("one worker", DEADLINE, || {
        (host.workers().len() == 1).then_some(())
    });
    host.stop();
}

#[tokio::test]
async fn s37_a_file_that_vanishes_or_is_no_longer_trusted_is_an_error_in_words() {
    let host = with_binding("good");
    let raw = Raw::open(&host).await;
    let library = host.folder().join("pty.so");
    chmod(&library, 0o777);
    let error = create_fails(&raw, DEADLINE).await;
    assert!(error.message.contains("pty.so"), "{error:?}");
    fs::remove_file(&library).unwrap();
    let error = create_fails(&raw, DEADLINE).await;
    assert!(error.message.contains("pty.so"), "{error:?}");
    binding::install("good", host.folder());
    assert!(is_pty(&raw).await.1);
    host.stop();
}

// ---- shellward probe without a host ----

#[test]
fn the_probe_command_answers_without_a_host() {
    let builder = Host::builder();
    let folder = builder.folder().to_owned();
    let nowhere = folder.join("nowhere");
    for (name, result) in [
        ("good", "works"),
        ("abort_in_constructor", "crashed"),
        ("missing_function", "binding-abi"),
        ("unresolved_symbol", "binding-missing"),
        ("hang_in_open", "hung"),
        ("deaf", "no-pty"),
    ] {
        let library = binding::install(name, &folder);
        let words = ["--pty-binding", library.to_str().unwrap(), "--json"];
        let output = probe::alone(&[], &nowhere, &words);
        let code = if result == "works" { 0 } else { 3 };
        assert_eq!(output.status.code(), Some(code), "{name}: {output:?}");
        // One line, one object.
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        probe::assert_answer(&answer, result);
        assert_eq!(answer["binding"], library.to_str().unwrap());
    }
    let library = binding::install("wrong_version", &folder);
    let output = probe::alone(&[], &nowhere, &["--pty-binding", library.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("version"), "{said}");
    assert!(said.contains("shellward_pty.h"), "a next step: {said}");
    // Without a binding: the built-in one.
    let output = probe::alone(&[], &nowhere, &["--json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    probe::assert_answer(&answer, "works");
    assert_eq!(answer["binding"], Value::Null);
}

#[tokio::test]
async fn a_probe_of_another_binding_leaves_the_host_as_it_is() {
    let host = with_binding("good");
    let other = tempfile::Builder::new()
        .prefix("sw-")
        .tempdir_in("/tmp")
        .unwrap();
    let library = binding::install("abort_in_constructor", other.path());
    let asked = host.cli(&["probe", "--pty-binding", library.to_str().unwrap()]);
    assert_eq!(asked.status.code(), Some(3));
    probe::assert_answer(&probe::shown(&host), "works");
    let raw = Raw::open(&host).await;
    assert!(is_pty(&raw).await.1);
    host.stop();
}

#[tokio::test]
async fn clients_ask_through_the_operator_s_method_and_ten_at_once_are_answered() {
    let host = with_binding("good");
    let raw = Raw::open(&host).await;
    let answer = raw.request("x-shellward/probe", json!({})).await.unwrap();
    probe::assert_answer(&answer, "works");
    // Ten at once are answered, and by few probes.
    let before = binding::opens(host.folder());
    let mut asked = Vec::new();
    for _ in 0..10 {
        asked.push(raw.start_request("x-shellward/probe", json!({})).await);
    }
    for id in asked {
        probe::assert_answer(&raw.response(id).await.unwrap(), "works");
    }
    let probes = binding::opens(host.folder()) - before;
    assert!((1..=10).contains(&probes), "{probes}");
    host.stop();
}
