//! The exact bytes of every frame. They change only together with the wire version.
//!
//! Written out field by field, not generated: a codec change that moves a byte fails here.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use shellward_protocol::kept::{
    self, Clear, Commands, Finished, Gap, Kept, Lost, Newest, Past, Patience, Typed, Watch,
};
use shellward_protocol::message::{
    Ack, Command, Cut, Ended, Event, ExitStatus, Exited, Happened, Input, InputTaken, Limit, Marks,
    Mode, Output, ProbeReport, Size, Start, StartFailed, StartFailure, Started, Terminate, Trouble,
    kind,
};
use shellward_protocol::{
    AttachToken, Boot, Data, FrameDecoder, FromWorker, Hello, Modes, OLDEST_WIRE_VERSION, Role,
    ToWorker, WIRE_VERSION,
};

fn hex(pieces: &[&str]) -> Vec<u8> {
    let digits: Vec<u32> = pieces
        .iter()
        .flat_map(|piece| piece.chars())
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16).expect("a hex digit"))
        .collect();
    assert_eq!(digits.len() % 2, 0, "an odd number of hex digits");
    digits
        .chunks(2)
        .map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap())
        .collect()
}

fn show(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A header of version 1: magic, version, kind, length.
const MAGIC_V1: &str = "53485744 0100";

fn data(bytes: &[u8]) -> Data<'static> {
    Data::from(bytes.to_vec())
}

fn token() -> AttachToken {
    AttachToken::new(std::array::from_fn(|i| u8::try_from(i).unwrap()))
}

const TOKEN_HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// The one frame in `bytes`, decoded by `f`.
fn only_frame<R>(bytes: &[u8], f: impl FnOnce(shellward_protocol::Header, &[u8]) -> R) -> R {
    let mut decoder = FrameDecoder::new();
    decoder.push(bytes);
    let (header, payload) = decoder.next_frame().unwrap().expect("a whole frame");
    let result = f(header, payload);
    assert!(decoder.is_empty(), "bytes left after the frame");
    result
}

#[track_caller]
fn to_worker(message: &ToWorker<'static>, pieces: &[&str]) {
    let golden = hex(pieces);
    let mut bytes = Vec::new();
    message.encode(&mut bytes).unwrap();
    assert_eq!(show(&bytes), show(&golden));
    only_frame(&golden, |header, payload| {
        assert_eq!(header.kind, message.kind());
        assert_eq!(&ToWorker::decode(header, payload).unwrap(), message);
    });
}

#[track_caller]
fn from_worker(message: &FromWorker<'static>, pieces: &[&str]) {
    let golden = hex(pieces);
    let mut bytes = Vec::new();
    message.encode(&mut bytes).unwrap();
    assert_eq!(show(&bytes), show(&golden));
    only_frame(&golden, |header, payload| {
        assert_eq!(header.kind, message.kind());
        assert_eq!(&FromWorker::decode(header, payload).unwrap(), message);
    });
}

#[test]
fn kind_numbers_and_versions_are_fixed() {
    assert_eq!((OLDEST_WIRE_VERSION, WIRE_VERSION), (1, 1));
    assert_eq!(kind::HELLO, 1);
    assert_eq!(kind::BOOT, 2);
    assert_eq!(kind::PROBE_REPORT, 3);
    assert_eq!(kind::START, 16);
    assert_eq!(kind::INPUT, 17);
    assert_eq!(kind::RESIZE, 18);
    assert_eq!(kind::ACK, 19);
    assert_eq!(kind::TERMINATE, 20);
    assert_eq!(kind::CARD, 22);
    assert_eq!(kind::WATCH, 23);
    assert_eq!(kind::CLEAR, 24);
    assert_eq!(kind::PAST, 32);
    assert_eq!(kind::STARTED, 64);
    assert_eq!(kind::START_FAILED, 65);
    assert_eq!(kind::OUTPUT, 66);
    assert_eq!(kind::INPUT_TAKEN, 67);
    assert_eq!(kind::EXITED, 68);
    assert_eq!(kind::EVENT, 69);
    assert_eq!(kind::KEPT, 70);
    assert_eq!(kind::LOST, 71);
}

#[test]
fn hello_of_a_supervisor() {
    hello(
        Role::Supervisor,
        &[
            MAGIC_V1,
            "0100",
            "34000000",
            "0100 0300",        // versions 1 to 3
            "01 000000",        // supervisor, zero
            "d2040000",         // pid 1234
            "0807060504030201", // epoch
            TOKEN_HEX,
        ],
    );
}

#[test]
fn hello_of_a_worker() {
    hello(
        Role::Worker,
        &[
            MAGIC_V1,
            "0100",
            "34000000",
            "0100 0300",
            "02 000000",
            "d2040000",
            "0807060504030201",
            TOKEN_HEX,
        ],
    );
}

#[track_caller]
fn hello(role: Role, pieces: &[&str]) {
    let golden = hex(pieces);
    let hello = Hello {
        oldest: 1,
        newest: 3,
        role,
        pid: 1234,
        epoch: 0x0102_0304_0506_0708,
        token: token(),
    };
    let mut bytes = Vec::new();
    hello.encode(&mut bytes).unwrap();
    assert_eq!(show(&bytes), show(&golden));
    let back = only_frame(&golden, |header, payload| {
        Hello::decode(header, payload).unwrap()
    });
    assert_eq!(
        (back.oldest, back.newest, back.role, back.pid, back.epoch),
        (1, 3, role, 1234, hello.epoch)
    );
    assert!(back.token.matches(&hello.token));
}

#[test]
fn a_longer_hello_of_a_later_version_is_understood() {
    let golden = hex(&[
        MAGIC_V1,
        "0100",
        "38000000",
        "0100 0900",
        "01 000000",
        "d2040000",
        "0807060504030201",
        TOKEN_HEX,
        "cafebabe",
    ]);
    only_frame(&golden, |header, payload| {
        let hello = Hello::decode(header, payload).unwrap();
        assert_eq!((hello.oldest, hello.newest), (1, 9));
        assert!(hello.token.matches(&token()));
    });
}

#[test]
fn boot() {
    let golden = hex(&[
        MAGIC_V1,
        "0200",
        "32000000",
        "0600000000000000",
        "2f772f312e73", // "/w/1.s"
        TOKEN_HEX,
        "e8030000", // uid 1000
    ]);
    let boot = Boot {
        socket: data(b"/w/1.s"),
        token: token(),
        supervisor_uid: 1000,
    };
    let mut bytes = Vec::new();
    boot.encode(&mut bytes).unwrap();
    assert_eq!(show(&bytes), show(&golden));
    only_frame(&golden, |header, payload| {
        let back = Boot::decode(header, payload).unwrap();
        assert_eq!(back.socket.as_slice(), b"/w/1.s");
        assert_eq!(back.supervisor_uid, 1000);
        assert!(back.token.matches(&token()));
    });
}

fn start(command: Command<'static>) -> ToWorker<'static> {
    start_on(Mode::Pty(data(b"")), command)
}

fn start_on(mode: Mode<'static>, command: Command<'static>) -> ToWorker<'static> {
    ToWorker::Start(Box::new(Start {
        mode,
        shell: data(b"/bin/sh"),
        command,
        cwd: data(b"/t"),
        host_env: vec![(data(b"A"), data(b"1"))],
        caller_env: vec![(data(b"B"), data(b"")), (data(b"C"), data(b"3"))],
        size: Size { cols: 80, rows: 24 },
        umask: 0o022,
        limits: vec![Limit {
            resource: 7,
            soft: 1024,
            hard: u64::MAX,
        }],
        marks: Marks::Keep,
        integrate: true,
        card: data(b"{}"),
        commands: 3,
        reattach_grace_ms: 5000,
        orphan_timeout_ms: 86_400_000,
    }))
}

const BUILT_IN: &str = "00000000 0000000000000000";
const START_HEAD: &str = "0700000000000000 2f62696e2f7368";
const START_TAIL: &[&str] = &[
    "0200000000000000 2f74",                                    // cwd
    "0100000000000000 0100000000000000 41 0100000000000000 31", // host_env
    "0200000000000000 0100000000000000 42 0000000000000000 0100000000000000 43 0100000000000000 33",
    "5000 1800",                                                   // size
    "12000000",                                                    // umask
    "0100000000000000 07000000 0004000000000000 ffffffffffffffff", // limits
    "01000000 01",                                                 // marks, integrate
    "0200000000000000 7b7d",                                       // card
    "0300000000000000",                                            // commands
    "88130000 005c260500000000",                                   // grace, orphan timeout
];

#[test]
fn start_of_a_shell() {
    let mut pieces = vec![
        MAGIC_V1, "1000", "b5000000", BUILT_IN, START_HEAD, "00000000",
    ];
    pieces.extend_from_slice(START_TAIL);
    to_worker(&start(Command::Shell), &pieces);
}

#[test]
fn start_of_a_line() {
    let mut pieces = vec![
        MAGIC_V1,
        "1000",
        "bf000000",
        BUILT_IN,
        START_HEAD,
        "01000000 0200000000000000 6c73",
    ];
    pieces.extend_from_slice(START_TAIL);
    to_worker(&start(Command::Line(data(b"ls"))), &pieces);
}

#[test]
fn start_of_a_program() {
    let mut pieces = vec![
        MAGIC_V1,
        "1000",
        "d1000000",
        BUILT_IN,
        START_HEAD,
        "02000000 0200000000000000 0200000000000000 6c73 0200000000000000 2d6c",
    ];
    pieces.extend_from_slice(START_TAIL);
    to_worker(
        &start(Command::Program(vec![data(b"ls"), data(b"-l")])),
        &pieces,
    );
}

#[test]
fn start_with_a_binding_on_pipes_and_with_nothing() {
    let mut pieces = vec![
        MAGIC_V1,
        "1000",
        "ba000000",
        "00000000 0500000000000000 2f622e736f", // "/b.so"
        START_HEAD,
        "00000000",
    ];
    pieces.extend_from_slice(START_TAIL);
    to_worker(
        &start_on(Mode::Pty(data(b"/b.so")), Command::Shell),
        &pieces,
    );
    let mut pieces = vec![
        MAGIC_V1, "1000", "ad000000", "01000000", START_HEAD, "00000000",
    ];
    pieces.extend_from_slice(START_TAIL);
    to_worker(&start_on(Mode::Pipes, Command::Shell), &pieces);
    let mut pieces = vec![
        MAGIC_V1,
        "1000",
        "b4000000",
        "02000000 01000000 09 01 00",
        START_HEAD,
        "00000000",
    ];
    pieces.extend_from_slice(START_TAIL);
    let ended = Ended {
        status: ExitStatus::Signal(9),
        was_pty: true,
        can_detect: false,
    };
    to_worker(&start_on(Mode::Ended(ended), Command::Shell), &pieces);
}

#[test]
fn probe_report_in_each_way() {
    let trouble = |errno| Trouble {
        errno,
        words: "no".to_owned(),
    };
    const WORDS: &str = "0200000000000000 6e6f";
    for (report, pieces) in [
        (ProbeReport::Works, ["04000000", "00000000", "", ""]),
        (
            ProbeReport::NoPty(trouble(Some(28))),
            ["13000000", "01000000", "01 1c000000", WORDS],
        ),
        (
            ProbeReport::BindingMissing(trouble(None)),
            ["0f000000", "02000000", "00", WORDS],
        ),
        (
            ProbeReport::BindingAbi(trouble(None)),
            ["0f000000", "03000000", "00", WORDS],
        ),
        (
            ProbeReport::Refused(trouble(Some(-1))),
            ["13000000", "04000000", "01 ffffffff", WORDS],
        ),
    ] {
        let [length, variant, errno, words] = pieces;
        let golden = hex(&[MAGIC_V1, "0300", length, variant, errno, words]);
        let mut bytes = Vec::new();
        report.encode(&mut bytes).unwrap();
        assert_eq!(show(&bytes), show(&golden));
        only_frame(&golden, |header, payload| {
            assert_eq!(ProbeReport::decode(header, payload).unwrap(), report);
        });
    }
}

#[test]
fn input() {
    to_worker(
        &ToWorker::Input(Input {
            seq: 5,
            data: data(b"hi\r\0"),
        }),
        &[
            MAGIC_V1,
            "1100",
            "14000000",
            "0500000000000000",
            "0400000000000000",
            "68690d00",
        ],
    );
}

#[test]
fn resize() {
    to_worker(
        &ToWorker::Resize(Size {
            cols: 1000,
            rows: 1,
        }),
        &[MAGIC_V1, "1200", "04000000", "e803 0100"],
    );
}

#[test]
fn ack() {
    to_worker(
        &ToWorker::Ack(Ack { offset: 0x1_0000 }),
        &[MAGIC_V1, "1300", "08000000", "0000010000000000"],
    );
}

#[test]
fn terminate() {
    to_worker(
        &ToWorker::Terminate(Terminate { grace_ms: 500 }),
        &[MAGIC_V1, "1400", "04000000", "f4010000"],
    );
}

#[test]
fn card() {
    to_worker(
        &ToWorker::Card(data(b"[7]")),
        &[MAGIC_V1, "1600", "0b000000", "0300000000000000 5b375d"],
    );
}

#[test]
fn watch() {
    for (watched, byte) in [(false, "00"), (true, "01")] {
        to_worker(
            &ToWorker::Watch(Watch { watched }),
            &[MAGIC_V1, "1700", "01000000", byte],
        );
    }
}

#[test]
fn patience() {
    to_worker(
        &ToWorker::Patience(Patience {
            reattach_grace_ms: 5000,
            orphan_timeout_ms: 86_400_000,
        }),
        &[MAGIC_V1, "1900", "0c000000", "88130000 005c260500000000"],
    );
}

#[test]
fn clear() {
    to_worker(
        &ToWorker::Clear(Clear { offset: 258 }),
        &[MAGIC_V1, "1800", "08000000", "0201000000000000"],
    );
}

#[test]
fn past_of_each_kind_in_both_directions() {
    for (past, length, fields) in [
        (
            Past::Text {
                cuts: vec![Cut {
                    at: 2,
                    modes: Modes(1 << 18),
                }],
                data: data("a\n─".as_bytes()),
            },
            "21000000",
            "00000000 0100000000000000 02000000 00000400 0500000000000000 610ae29480",
        ),
        (
            Past::CommandStarted(kept::Started {
                line: data(b"ls"),
                at_ms: 1,
            }),
            "16000000",
            "01000000 0200000000000000 6c73 0100000000000000",
        ),
        (
            Past::CommandFinished(Finished {
                exit_code: Some(-2),
                duration_ms: 258,
            }),
            "11000000",
            "02000000 01 feffffff 0201000000000000",
        ),
        (
            Past::CommandFinished(Finished {
                exit_code: None,
                duration_ms: 0,
            }),
            "0d000000",
            "02000000 00 0000000000000000",
        ),
        (
            Past::Gap(Gap {
                bytes: 7,
                modes: Modes(9),
            }),
            "10000000",
            "03000000 0700000000000000 09000000",
        ),
    ] {
        let pieces = [MAGIC_V1, "2000", length, fields];
        to_worker(&ToWorker::Past(past.clone()), &pieces);
        from_worker(&FromWorker::Past(past), &pieces);
    }
}

fn kept_with(
    newest: Newest,
    directory: Option<&[u8]>,
    title: Option<&[u8]>,
) -> FromWorker<'static> {
    FromWorker::Kept(Box::new(Kept {
        shell_pid: 4321,
        is_pty: true,
        size: Size { cols: 80, rows: 24 },
        started_ms: 1,
        card: data(b"{}"),
        watched: true,
        typed: Typed {
            seq: 2,
            came: 5,
            taken: 4,
        },
        offset: 258,
        trimmed: false,
        can_detect: true,
        commands: Commands {
            count: 3,
            first: 2,
            newest,
        },
        directory: directory.map(data),
        title: title.map(data),
        past: 6,
    }))
}

const KEPT_HEAD: &[&str] = &[
    "e1100000 01 5000 1800 0100000000000000", // pid, pty, size, started
    "0200000000000000 7b7d 01",               // card, watched
    "0200000000000000 0500000000000000 0400000000000000", // typed
    "0201000000000000 00 01",                 // offset, trimmed, can_detect
    "0300000000000000 0200000000000000",      // commands
];

#[test]
fn kept() {
    for (message, length, tail) in [
        (
            kept_with(Newest::None, None, None),
            "58000000",
            "00000000 00 00 06000000",
        ),
        (
            kept_with(Newest::Running { at_ms: 9 }, Some(b"/"), None),
            "69000000",
            "01000000 0900000000000000 01 0100000000000000 2f 00 06000000",
        ),
        (
            kept_with(Newest::Finished { exit_code: Some(1) }, None, Some(b"t")),
            "66000000",
            "02000000 01 01000000 00 01 0100000000000000 74 06000000",
        ),
        (
            kept_with(Newest::Finished { exit_code: None }, None, None),
            "59000000",
            "02000000 00 00 00 06000000",
        ),
    ] {
        let mut pieces = vec![MAGIC_V1, "4600", length];
        pieces.extend_from_slice(KEPT_HEAD);
        pieces.push(tail);
        from_worker(&message, &pieces);
    }
}

#[test]
fn lost() {
    from_worker(
        &FromWorker::Lost(Box::new(Lost {
            offset: 256,
            places: 3,
            bytes: 2,
            modes: Modes(1 << 18),
            can_detect: true,
            finished: Some(Finished {
                exit_code: None,
                duration_ms: 5,
            }),
            started: Some(kept::Started {
                line: data(b"ls"),
                at_ms: 1,
            }),
            directory: Some(data(b"/")),
            title: Some(data(b"t")),
        })),
        &[
            MAGIC_V1,
            "4700",
            "4e000000",
            "0001000000000000 0300000000000000 0200000000000000 00000400 01",
            "01 00 0500000000000000",
            "01 0200000000000000 6c73 0100000000000000",
            "01 0100000000000000 2f",
            "01 0100000000000000 74",
        ],
    );
    from_worker(
        &FromWorker::Lost(Box::new(Lost {
            offset: 0,
            places: 1,
            bytes: 1,
            modes: Modes(0),
            can_detect: false,
            finished: None,
            started: None,
            directory: None,
            title: None,
        })),
        &[
            MAGIC_V1,
            "4700",
            "21000000",
            "0000000000000000 0100000000000000 0100000000000000 00000000 00",
            "00 00 00 00",
        ],
    );
}

#[test]
fn started() {
    from_worker(
        &FromWorker::Started(Started {
            shell_pid: 4321,
            is_pty: true,
        }),
        &[MAGIC_V1, "4000", "05000000", "e1100000 01"],
    );
}

#[test]
fn start_failed_in_each_way() {
    for (failure, number) in [
        (StartFailure::NoPty, "00000000"),
        (StartFailure::NoProcess, "01000000"),
        (StartFailure::Refused, "02000000"),
        (StartFailure::Other, "03000000"),
    ] {
        from_worker(
            &FromWorker::StartFailed(StartFailed {
                failure,
                reason: "no ✗".to_owned(),
            }),
            &[
                MAGIC_V1,
                "4100",
                "12000000",
                number,
                "0600000000000000",
                "6e6f20e29c97",
            ],
        );
    }
}

#[test]
fn output() {
    from_worker(
        &FromWorker::Output(Output {
            offset: 256,
            cuts: vec![
                Cut {
                    at: 0,
                    modes: Modes(0),
                },
                Cut {
                    at: 2,
                    modes: Modes(1 << 18),
                },
            ],
            data: data("a\n─".as_bytes()),
        }),
        &[
            MAGIC_V1,
            "4200",
            "2d000000",
            "0001000000000000",
            "0200000000000000 00000000 00000000 02000000 00000400",
            "0500000000000000 610ae29480",
        ],
    );
}

#[test]
fn events() {
    for (what, length, fields) in [
        (Happened::CanDetectCommands, "0c000000", "00000000"),
        (
            Happened::CommandStarted {
                line: data(b"ls"),
                at_ms: 1,
            },
            "1e000000",
            "01000000 0200000000000000 6c73 0100000000000000",
        ),
        (
            Happened::CommandFinished {
                exit_code: Some(-2),
                duration_ms: 258,
            },
            "19000000",
            "02000000 01 feffffff 0201000000000000",
        ),
        (
            Happened::CommandFinished {
                exit_code: None,
                duration_ms: 0,
            },
            "15000000",
            "02000000 00 0000000000000000",
        ),
        (
            Happened::Directory(data(b"/")),
            "15000000",
            "03000000 0100000000000000 2f",
        ),
        (
            Happened::Title(data(b"t")),
            "15000000",
            "04000000 0100000000000000 74",
        ),
    ] {
        from_worker(
            &FromWorker::Event(Event { offset: 256, what }),
            &[MAGIC_V1, "4500", length, "0001000000000000", fields],
        );
    }
}

#[test]
fn input_taken() {
    from_worker(
        &FromWorker::InputTaken(InputTaken { total: 3 }),
        &[MAGIC_V1, "4300", "08000000", "0300000000000000"],
    );
}

#[test]
fn exited_with_a_code_and_by_a_signal() {
    from_worker(
        &FromWorker::Exited(Exited {
            status: ExitStatus::Code(127),
        }),
        &[MAGIC_V1, "4400", "05000000", "00000000 7f"],
    );
    from_worker(
        &FromWorker::Exited(Exited {
            status: ExitStatus::Signal(9),
        }),
        &[MAGIC_V1, "4400", "05000000", "01000000 09"],
    );
}
