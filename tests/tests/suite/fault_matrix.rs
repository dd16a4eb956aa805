//! Kill × every point of both programs: whichever process dies, and wherever it does, the same
//! things hold afterwards. What the points are is in `tests/README.md`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use nix::sys::signal::Signal;
use shellward_tests::faults::{Action, Faults, Plan};
use shellward_tests::{DEADLINE, Host, Raw, Term, Value, json, leftovers, poll_for, proc, term};

/// 174 kB: a worker reads at most 64 KiB a turn, so that it takes three of them however they fall;
/// and less than the scrollback holds.
const LINES: usize = 15_000;

/// What brings a process to a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// A terminal is created.
    Create,
    /// One prints [`LINES`] lines; the third time the point is reached.
    Print,
    /// The shell of one exits with 7.
    Exit,
    /// One is disposed.
    Dispose,
    /// The supervisor has died, and the next one takes the workers over.
    Adopt,
}

/// What stands before a fault, and is looked at after it.
struct Scene {
    host: Host,
    faults: Faults,
    raw: Raw,
    /// Has nothing to do with anything.
    bystander: Term,
    bystander_shell: i32,
    /// What the fault is about, as a client sees it that only watches.
    watched: Term,
    watcher: Raw,
    descriptors: usize,
}

impl Scene {
    async fn new() -> Self {
        let (builder, faults) = Host::builder().dash().with_faults();
        let host = builder.start();
        let raw = Raw::open(&host).await;
        let watcher = Raw::open(&host).await;
        let mut bystander = Term::create(&raw).await;
        bystander.output_of("mine=$$").await;
        let mut target = Term::create(&raw).await;
        target.output_of("true").await;
        let watched = Term::subscribe(&watcher, &target.uri).await;
        let (_, bystander_shell) = host.pids(&bystander.uri);
        let descriptors = proc::descriptors(host.pid).len();
        Self {
            host,
            faults,
            raw,
            bystander,
            bystander_shell,
            watched,
            watcher,
            descriptors,
        }
    }

    /// Arms `point` and brings somebody there; the request that is not answered yet, if one was
    /// made, and the channel it is about.
    async fn go(&mut self, point: &str, way: Way) -> (Option<u64>, String) {
        let plan = Plan {
            action: Action::Kill,
            arrival: if way == Way::Print { 3 } else { 1 },
        };
        self.faults.arm(point, plan);
        let uri = self.watched.uri.clone();
        match way {
            Way::Create => {
                let uri = term::new_uri();
                let params = term::create_params(&self.raw, &uri, json!({}));
                let request = self.raw.start_request("createTerminal", params).await;
                (Some(request), uri)
            }
            Way::Print => {
                let line = format!("seq -f line-%g 1 {LINES}\r");
                let action = json!({"type": "terminal/input", "data": line});
                self.raw.dispatch(&uri, action).await;
                (None, uri)
            }
            Way::Exit => {
                let action = json!({"type": "terminal/input", "data": "exit 7\r"});
                self.raw.dispatch(&uri, action).await;
                (None, uri)
            }
            Way::Adopt => {
                self.host.crash();
                self.host.spawn_again();
                (None, uri)
            }
            Way::Dispose => {
                let params = json!({"channel": uri});
                let request = self.raw.start_request("disposeTerminal", params).await;
                (Some(request), uri)
            }
        }
    }
}

/// The lines that [`Way::Print`] prints, from the first on, each once, up to where they end; how
/// many there are.
#[track_caller]
fn lines_in_order(text: &str) -> usize {
    let mut seen = 0;
    for line in text.split_inclusive('\n') {
        let Some(number) = line.strip_prefix("line-") else {
            continue;
        };
        if !line.ends_with('\n') {
            break;
        }
        seen += 1;
        assert_eq!(number.trim_end(), seen.to_string(), "lost or repeated");
    }
    seen
}

/// Whatever happened, this holds for a host in which `bystander` alone is left.
async fn assert_as_if_nothing_had_been(host: &Host, bystander: &mut Term, shell: i32, most: usize) {
    let answer = bystander.output_of("echo $mine").await;
    assert_eq!(answer.trim(), shell.to_string(), "the other terminal");
    bystander.assert_equals_snapshot().await;
    assert_only(host, &[bystander.uri.as_str()], most).await;
}

/// Of everything that terminals are made of, exactly what these have is there.
async fn assert_only(host: &Host, uris: &[&str], most: usize) {
    let ids: Vec<String> = uris
        .iter()
        .map(|uri| host.ps_entry(uri)["id"].as_str().unwrap().to_owned())
        .collect();
    let workers = leftovers::settle(DEADLINE, || {
        let mut workers = host.every_worker();
        workers.retain(|worker| proc::ptys(worker.pid).len() != 1);
        let all = host.every_worker();
        if all.len() == uris.len() {
            workers
        } else {
            all
        }
    });
    assert!(workers.is_empty(), "processes: {workers:?}");
    assert_eq!(leftovers::zombies(host.pid), []);
    let files = leftovers::settle(DEADLINE, || {
        let mut files = leftovers::sockets(host.runtime_dir());
        files.retain(|file| *file != host.socket && !ids.iter().any(|id| file.contains(id)));
        files
    });
    assert!(files.is_empty(), "files: {files:?}");
    let descriptors = leftovers::settle(DEADLINE, || {
        let descriptors = proc::descriptors(host.pid);
        if descriptors.len() <= most {
            Vec::new()
        } else {
            descriptors
        }
    });
    assert!(descriptors.is_empty(), "not {most}: {descriptors:#?}");
    assert_eq!(proc::ptys(host.pid).len(), 0, "ptys of the supervisor");
}

/// A worker dies at `point`: its terminal ends and says so, and nothing else is different.
async fn worker_dies(point: &str, way: Way) {
    let mut scene = Scene::new().await;
    let (request, uri) = scene.go(point, way).await;
    let victim = scene.faults.wait_killed(point);
    assert_ne!(victim, scene.host.pid);
    let answer = match request {
        Some(request) => Some(scene.raw.response(request).await),
        None => None,
    };
    let Scene {
        host,
        raw,
        mut bystander,
        bystander_shell,
        mut watched,
        watcher,
        descriptors,
        ..
    } = scene;
    match way {
        Way::Create => {
            let error = answer.unwrap().expect_err("its worker is dead");
            assert!(error.message.len() > 20, "{error:?}");
            let gone = raw.request("subscribe", json!({"channel": uri})).await;
            assert_eq!(gone.unwrap_err().code, -32008, "no half terminal");
            watched.assert_equals_snapshot().await;
        }
        Way::Print | Way::Exit => {
            let exit = watched.wait_exit().await;
            let (code, signal) = (&exit["exitCode"], &exit["signal"]);
            assert_eq!((code, signal), (&json!(128), &json!("SIGKILL")));
            watched.assert_equals_snapshot().await;
            lines_in_order(&watched.seen);
            // A late one sees all that was shown, and nothing else.
            let late = Term::subscribe(&raw, &uri).await;
            assert_eq!(late.seen, watched.seen);
        }
        Way::Dispose => {
            assert_eq!(answer.unwrap(), Ok(Value::Null));
        }
        Way::Adopt => unreachable!("no worker dies of that"),
    }
    if way != Way::Dispose {
        let params = json!({"channel": watched.uri});
        raw.request("disposeTerminal", params).await.unwrap();
    }
    assert_as_if_nothing_had_been(&host, &mut bystander, bystander_shell, descriptors).await;
    let mut fresh = Term::create(&raw).await;
    assert_eq!(fresh.output_of("echo new").await.trim(), "new");
    drop(watcher);
    host.stop();
}

/// The supervisor dies at `point`, and another one is started in its place.
async fn supervisor_dies(point: &str, way: Way) {
    let mut scene = Scene::new().await;
    scene.host.remember_family();
    scene.go(point, way).await;
    let victim = scene.faults.wait_killed(point);
    assert_eq!(victim, scene.host.pid);
    let Scene {
        mut host,
        mut bystander,
        bystander_shell,
        watched,
        descriptors,
        raw,
        watcher,
        ..
    } = scene;
    drop((raw, watcher));
    assert_eq!(
        std::os::unix::process::ExitStatusExt::signal(&host.wait_end()),
        Some(Signal::SIGKILL as i32)
    );
    host.start_again();
    let raw = Raw::open(&host).await;
    bystander = Term::subscribe(&raw, &bystander.uri).await;
    assert_adopted(&host, &raw, &watched, &bystander.uri, way).await;
    assert_as_if_nothing_had_been(&host, &mut bystander, bystander_shell, descriptors).await;
    let mut fresh = Term::create(&raw).await;
    assert_eq!(fresh.output_of("echo new").await.trim(), "new");
    host.stop();
}

/// What is left of the terminal the fault was about, in a supervisor that took the workers over;
/// it is disposed in the end.
async fn assert_adopted(host: &Host, raw: &Raw, watched: &Term, bystander: &str, way: Way) {
    let listing = host.ps();
    for entry in listing["terminals"].as_array().unwrap() {
        let uri = entry["uri"].as_str().unwrap();
        if uri == watched.uri && way != Way::Dispose {
            let mut adopted = Term::subscribe(raw, uri).await;
            match way {
                Way::Print => {
                    let last = format!("line-{LINES}{}", adopted.newline());
                    adopted.wait_text(&last).await;
                    assert_eq!(lines_in_order(&adopted.seen), LINES);
                }
                Way::Exit => {
                    let mut code = adopted.snapshot["state"]["exitCode"].clone();
                    if code.is_null() {
                        code = adopted.wait_exit().await["exitCode"].clone();
                    }
                    assert_eq!(code, 7);
                }
                Way::Create | Way::Dispose | Way::Adopt => {
                    assert_eq!(adopted.output_of("echo on").await.trim(), "on");
                }
            }
            assert!(adopted.seen.contains(&watched.seen), "what was shown stays");
            adopted.assert_equals_snapshot().await;
        }
    }
    let shown = |uri: &str| {
        let terminals = listing["terminals"].as_array().unwrap();
        terminals.iter().any(|entry| entry["uri"] == uri)
    };
    assert!(way == Way::Dispose || shown(&watched.uri), "{listing}");
    for entry in listing["terminals"].as_array().unwrap() {
        if entry["uri"] != bystander {
            let params = json!({"channel": entry["uri"]});
            raw.request("disposeTerminal", params).await.unwrap();
        }
    }
}

/// One test a point, so that each has a process and a time limit of its own.
macro_rules! matrix {
    ($points:ident, $who:ident: $($test:ident $point:literal $way:ident;)*) => {
        const $points: &[&str] = &[$($point),*];
        $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            $who($point, Way::$way).await;
        }
        )*
    };
}

matrix! { OF_THE_WORKER, worker_dies:
    a_worker_dies_before_it_listens "worker.listen" Create;
    a_worker_dies_when_it_listens "worker.listening" Create;
    a_worker_dies_when_it_is_attached "worker.attached" Create;
    a_worker_dies_before_it_has_a_pty "worker.open-pty" Create;
    a_worker_dies_before_the_fork "worker.fork" Create;
    a_worker_dies_after_the_fork "worker.forked" Create;
    a_worker_dies_before_it_says_that_the_shell_runs "worker.started" Create;
    a_worker_dies_with_output_that_it_has_read "worker.output-read" Print;
    a_worker_dies_with_output_that_it_has_sent "worker.output-sent" Print;
    a_worker_dies_before_it_tells_the_exit "worker.exiting" Exit;
    a_worker_dies_when_all_is_told "worker.leaving" Dispose;
    a_worker_dies_when_it_is_to_end "worker.terminating" Dispose;
}

matrix! { OF_THE_SUPERVISOR, supervisor_dies:
    the_supervisor_dies_before_a_worker_is_there "supervisor.spawn" Create;
    the_supervisor_dies_when_a_worker_is_there "supervisor.spawned" Create;
    the_supervisor_dies_when_a_worker_listens "supervisor.booted" Create;
    the_supervisor_dies_when_a_worker_is_attached "supervisor.attached" Create;
    the_supervisor_dies_when_a_shell_was_asked_for "supervisor.start-sent" Create;
    the_supervisor_dies_before_it_answers_a_creation "supervisor.started" Create;
    the_supervisor_dies_with_output_it_has_not_acknowledged "supervisor.output-taken" Print;
    the_supervisor_dies_when_it_hears_of_an_exit "supervisor.exit-received" Exit;
    the_supervisor_dies_when_it_has_told_an_exit "supervisor.exit-taken" Exit;
    the_supervisor_dies_when_a_worker_it_found_has_answered "supervisor.adopt-attached" Adopt;
    the_supervisor_dies_when_a_worker_it_found_has_told_all "supervisor.adopt-told" Adopt;
    the_supervisor_dies_when_it_has_taken_a_worker_over "supervisor.adopted" Adopt;
    the_supervisor_dies_before_it_answers_a_disposal "supervisor.worker-gone" Dispose;
}

/// `createTerminal` where `point` fails: the answer's words.
async fn refused(point: &str, errno: i32) -> String {
    let Scene {
        host,
        faults,
        raw,
        mut bystander,
        bystander_shell,
        watched,
        descriptors,
        watcher,
    } = Scene::new().await;
    faults.arm(point, Action::Fail(errno));
    let error = Term::try_create(&raw, json!({})).await.err().unwrap();
    faults.wait_hit(point);
    let params = json!({"channel": watched.uri});
    raw.request("disposeTerminal", params).await.unwrap();
    assert_as_if_nothing_had_been(&host, &mut bystander, bystander_shell, descriptors).await;
    let mut fresh = Term::create(&raw).await;
    assert_eq!(fresh.output_of("echo new").await.trim(), "new");
    drop(watcher);
    host.stop();
    error.message
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fails_while_a_terminal_is_made_is_said_in_words() {
    for (point, errno, words) in [
        (
            "supervisor.spawn",
            nix::libc::EAGAIN,
            "a worker process cannot be started",
        ),
        (
            "worker.listen",
            nix::libc::ENOSPC,
            "No space left on device",
        ),
        ("worker.open-pty", nix::libc::ENOSPC, "no pty can be opened"),
        (
            "worker.fork",
            nix::libc::EAGAIN,
            "no process can be started",
        ),
    ] {
        let said = refused(point, errno).await;
        assert!(said.contains(words), "{point}: {said}");
    }
}

/// The names of points in the sources of a program.
fn points_in(sources: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(sources).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            points_in(&path, found);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for call in ["faults::hit(\"", "faults::check(\""] {
            for (at, _) in text.match_indices(call) {
                let name = &text[at + call.len()..];
                found.insert(name[..name.find('"').unwrap()].to_owned());
            }
        }
    }
}

#[test]
fn every_point_of_the_programs_is_in_the_matrix_and_in_the_readme() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut points = BTreeSet::new();
    for program in ["supervisor", "worker"] {
        points_in(
            &tests.parent().unwrap().join(program).join("src"),
            &mut points,
        );
    }
    let matrix: BTreeSet<String> = OF_THE_WORKER
        .iter()
        .chain(OF_THE_SUPERVISOR)
        .map(|point| (*point).to_owned())
        .collect();
    assert_eq!(points, matrix);
    let readme = fs::read_to_string(tests.join("README.md")).unwrap();
    for point in &points {
        assert!(readme.contains(&format!("`{point}`")), "{point}");
    }
}

/// What a test arms must not reach shells.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_variable_that_arms_points_reaches_workers_and_no_shell() {
    let mut scene = Scene::new().await;
    let (worker, _) = scene.host.pids(&scene.bystander.uri);
    let directory = scene.faults.directory().display().to_string();
    poll_for("the worker's environment", DEADLINE, || {
        let environment = proc::environment(worker);
        (environment.len() == 1 && environment[0].contains(&directory)).then_some(())
    });
    let env = scene.bystander.output_of("env").await;
    assert!(!env.contains("FAULTS"), "{env}");
    scene.host.stop();
}
