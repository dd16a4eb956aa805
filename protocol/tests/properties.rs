//! Whatever arrives: the same frames however it was cut, a typed error or patience, never a panic.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use proptest::collection::vec;
use proptest::prelude::*;
use shellward_protocol::frame::{HEADER_LEN, MAGIC};
use shellward_protocol::kept::{
    self, Clear, Commands, Finished, Gap, Kept, Lost, Newest, Past, Patience, Typed, Watch,
};
use shellward_protocol::limits::{
    CARD_MAX, COMMAND_LINE_MAX, CUTS_MAX, OUTPUT_CHUNK_MAX, PAST_FRAMES, PATH_MAX, PAYLOAD_MAX,
    REASON_MAX, TITLE_MAX,
};
use shellward_protocol::message::{
    Ack, Command, Cut, Ended, Event, ExitStatus, Exited, Happened, Input, InputTaken, Limit, Marks,
    Mode, Output, ProbeReport, Size, Start, StartFailed, StartFailure, Started, Terminate, Trouble,
    kind,
};
use shellward_protocol::{
    AttachToken, Boot, Data, FrameDecoder, FromWorker, Header, Hello, Modes, Role, ToWorker,
    WIRE_VERSION, WireError,
};

fn data() -> impl Strategy<Value = Data<'static>> {
    vec(any::<u8>(), 0..200).prop_map(Data::from)
}

fn size() -> impl Strategy<Value = Size> {
    (1_u16..=1000, 1_u16..=1000).prop_map(|(cols, rows)| Size { cols, rows })
}

fn command() -> impl Strategy<Value = Command<'static>> {
    prop_oneof![
        Just(Command::Shell),
        data().prop_map(Command::Line),
        vec(data(), 0..5).prop_map(Command::Program),
    ]
}

fn exit_status() -> impl Strategy<Value = ExitStatus> {
    prop_oneof![
        any::<u8>().prop_map(ExitStatus::Code),
        any::<u8>().prop_map(ExitStatus::Signal),
    ]
}

fn mode() -> impl Strategy<Value = Mode<'static>> {
    let ended =
        (exit_status(), any::<bool>(), any::<bool>()).prop_map(|(status, was_pty, can_detect)| {
            Mode::Ended(Ended {
                status,
                was_pty,
                can_detect,
            })
        });
    prop_oneof![data().prop_map(Mode::Pty), Just(Mode::Pipes), ended]
}

fn probe_report() -> impl Strategy<Value = ProbeReport> {
    let trouble =
        (any::<Option<i32>>(), "\\PC{0,50}").prop_map(|(errno, words)| Trouble { errno, words });
    (0..5, trouble).prop_map(|(number, trouble)| match number {
        0 => ProbeReport::Works,
        1 => ProbeReport::NoPty(trouble),
        2 => ProbeReport::BindingMissing(trouble),
        3 => ProbeReport::BindingAbi(trouble),
        _ => ProbeReport::Refused(trouble),
    })
}

fn start() -> impl Strategy<Value = ToWorker<'static>> {
    let limit =
        (any::<u32>(), any::<u64>(), any::<u64>()).prop_map(|(resource, soft, hard)| Limit {
            resource,
            soft,
            hard,
        });
    (
        mode(),
        data(),
        command(),
        data(),
        vec((data(), data()), 0..6),
        vec((data(), data()), 0..6),
        size(),
        any::<u32>(),
        vec(limit, 0..4),
        (
            prop_oneof![Just(Marks::Strip), Just(Marks::Keep)],
            any::<bool>(),
            data(),
            any::<(u64, u32, u64)>(),
        ),
    )
        .prop_map(
            |(
                mode,
                shell,
                command,
                cwd,
                host_env,
                caller_env,
                size,
                umask,
                limits,
                (marks, integrate, card, (commands, grace, orphan)),
            )| {
                ToWorker::Start(Box::new(Start {
                    mode,
                    shell,
                    command,
                    cwd,
                    host_env,
                    caller_env,
                    size,
                    umask,
                    limits,
                    marks,
                    integrate,
                    card,
                    commands,
                    reattach_grace_ms: grace,
                    orphan_timeout_ms: orphan,
                }))
            },
        )
}

fn to_worker() -> impl Strategy<Value = ToWorker<'static>> {
    prop_oneof![
        start(),
        (any::<u64>(), data()).prop_map(|(seq, data)| ToWorker::Input(Input { seq, data })),
        size().prop_map(ToWorker::Resize),
        any::<u64>().prop_map(|offset| ToWorker::Ack(Ack { offset })),
        any::<u32>().prop_map(|grace_ms| ToWorker::Terminate(Terminate { grace_ms })),
        data().prop_map(ToWorker::Card),
        any::<bool>().prop_map(|watched| ToWorker::Watch(Watch { watched })),
        any::<(u32, u64)>().prop_map(|(grace, orphan)| {
            ToWorker::Patience(Patience {
                reattach_grace_ms: grace,
                orphan_timeout_ms: orphan,
            })
        }),
        any::<u64>().prop_map(|offset| ToWorker::Clear(Clear { offset })),
        past().prop_map(ToWorker::Past),
    ]
}

fn finished() -> impl Strategy<Value = Finished> {
    any::<(Option<i32>, u64)>().prop_map(|(exit_code, duration_ms)| Finished {
        exit_code,
        duration_ms,
    })
}

fn command_started() -> impl Strategy<Value = kept::Started<'static>> {
    (data(), any::<u64>()).prop_map(|(line, at_ms)| kept::Started { line, at_ms })
}

fn past() -> impl Strategy<Value = Past<'static>> {
    prop_oneof![
        (vec(cut(), 0..=CUTS_MAX), data()).prop_map(|(cuts, data)| Past::Text { cuts, data }),
        command_started().prop_map(Past::CommandStarted),
        finished().prop_map(Past::CommandFinished),
        (any::<u64>(), any::<u32>()).prop_map(|(bytes, modes)| Past::Gap(Gap {
            bytes,
            modes: Modes(modes)
        })),
    ]
}

fn maybe_data() -> impl Strategy<Value = Option<Data<'static>>> {
    proptest::option::of(data())
}

fn kept() -> impl Strategy<Value = Kept<'static>> {
    let newest = prop_oneof![
        Just(Newest::None),
        any::<u64>().prop_map(|at_ms| Newest::Running { at_ms }),
        any::<Option<i32>>().prop_map(|exit_code| Newest::Finished { exit_code }),
    ];
    (
        any::<(u32, bool, u64, bool, u64, bool, bool)>(),
        size(),
        data(),
        any::<(u64, u64, u64)>(),
        (any::<(u64, u64)>(), newest),
        maybe_data(),
        maybe_data(),
        0..=PAST_FRAMES,
    )
        .prop_map(
            |(plain, size, card, typed, commands, directory, title, past)| {
                let (shell_pid, is_pty, started_ms, watched, offset, trimmed, can_detect) = plain;
                let (seq, came, taken) = typed;
                let ((count, first), newest) = commands;
                Kept {
                    shell_pid,
                    is_pty,
                    size,
                    started_ms,
                    card,
                    watched,
                    typed: Typed { seq, came, taken },
                    offset,
                    trimmed,
                    can_detect,
                    commands: Commands {
                        count,
                        first,
                        newest,
                    },
                    directory,
                    title,
                    past: u32::try_from(past).unwrap(),
                }
            },
        )
}

fn lost() -> impl Strategy<Value = Lost<'static>> {
    (
        any::<(u64, u64, u64, u32, bool)>(),
        proptest::option::of(finished()),
        proptest::option::of(command_started()),
        maybe_data(),
        maybe_data(),
    )
        .prop_map(|(plain, finished, started, directory, title)| {
            let (offset, places, bytes, modes, can_detect) = plain;
            Lost {
                offset,
                places,
                bytes,
                modes: Modes(modes),
                can_detect,
                finished,
                started,
                directory,
                title,
            }
        })
}

fn cut() -> impl Strategy<Value = Cut> {
    (any::<u32>(), any::<u32>()).prop_map(|(at, modes)| Cut {
        at,
        modes: Modes(modes),
    })
}

fn happened() -> impl Strategy<Value = Happened<'static>> {
    prop_oneof![
        Just(Happened::CanDetectCommands),
        (data(), any::<u64>()).prop_map(|(line, at_ms)| Happened::CommandStarted { line, at_ms }),
        (any::<Option<i32>>(), any::<u64>()).prop_map(|(exit_code, duration_ms)| {
            Happened::CommandFinished {
                exit_code,
                duration_ms,
            }
        }),
        data().prop_map(Happened::Directory),
        data().prop_map(Happened::Title),
    ]
}

fn from_worker() -> impl Strategy<Value = FromWorker<'static>> {
    let failure = prop_oneof![
        Just(StartFailure::NoPty),
        Just(StartFailure::NoProcess),
        Just(StartFailure::Refused),
        Just(StartFailure::Other),
    ];
    let status = exit_status();
    prop_oneof![
        (any::<u32>(), any::<bool>())
            .prop_map(|(shell_pid, is_pty)| FromWorker::Started(Started { shell_pid, is_pty })),
        (failure, "\\PC{0,100}")
            .prop_map(|(failure, reason)| FromWorker::StartFailed(StartFailed { failure, reason })),
        (any::<u64>(), vec(cut(), 0..=CUTS_MAX), data())
            .prop_map(|(offset, cuts, data)| FromWorker::Output(Output { offset, cuts, data })),
        (any::<u64>(), happened())
            .prop_map(|(offset, what)| FromWorker::Event(Event { offset, what })),
        any::<u64>().prop_map(|total| FromWorker::InputTaken(InputTaken { total })),
        status.prop_map(|status| FromWorker::Exited(Exited { status })),
        kept().prop_map(|kept| FromWorker::Kept(Box::new(kept))),
        past().prop_map(FromWorker::Past),
        lost().prop_map(|lost| FromWorker::Lost(Box::new(lost))),
    ]
}

/// Every frame of `bytes`, pushed in pieces that end at `cuts`.
fn decode_in_pieces(bytes: &[u8], cuts: &[usize]) -> Result<Vec<(Header, Vec<u8>)>, WireError> {
    let mut decoder = FrameDecoder::new();
    let mut frames = Vec::new();
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    ends.push(bytes.len());
    ends.sort_unstable();
    let mut from = 0;
    for end in ends {
        let piece = &bytes[from..end];
        from = end;
        // Through `space`, as a read would.
        let space = decoder.space(piece.len().max(1));
        assert!(space.len() >= piece.len());
        space[..piece.len()].copy_from_slice(piece);
        decoder.filled(piece.len());
        while let Some((header, payload)) = decoder.next_frame()? {
            frames.push((header, payload.to_vec()));
        }
    }
    Ok(frames)
}

fn header(kind: u16, len: usize) -> Header {
    Header {
        version: WIRE_VERSION,
        kind,
        len: u32::try_from(len).unwrap(),
    }
}

/// The frame of `message` as header and payload.
fn split(bytes: &[u8]) -> (Header, &[u8]) {
    let (head, payload) = bytes.split_first_chunk::<HEADER_LEN>().unwrap();
    (Header::parse(*head).unwrap(), payload)
}

fn malformed<T>(result: Result<T, WireError>, expected: u16) -> bool {
    matches!(result, Err(WireError::Malformed { kind, .. }) if kind == expected)
}

proptest! {
    #[test]
    fn every_message_to_a_worker_comes_back(message in to_worker()) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes).unwrap();
        let (header, payload) = split(&bytes);
        prop_assert_eq!(header.len as usize, payload.len());
        prop_assert_eq!(ToWorker::decode(header, payload).unwrap(), message);
    }

    #[test]
    fn every_message_from_a_worker_comes_back(message in from_worker()) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes).unwrap();
        let (header, payload) = split(&bytes);
        prop_assert_eq!(FromWorker::decode(header, payload).unwrap(), message);
    }

    #[test]
    fn hello_and_boot_come_back(
        oldest in any::<u16>(), more in 0_u16..100, supervisor in any::<bool>(), pid in any::<u32>(),
        epoch in any::<u64>(), secret in any::<[u8; 32]>(), socket in data(), uid in any::<u32>(),
    ) {
        let role = if supervisor { Role::Supervisor } else { Role::Worker };
        let newest = oldest.saturating_add(more);
        let hello = Hello { oldest, newest, role, pid, epoch, token: AttachToken::new(secret) };
        let mut bytes = Vec::new();
        hello.encode(&mut bytes).unwrap();
        let (header, payload) = split(&bytes);
        let back = Hello::decode(header, payload).unwrap();
        prop_assert_eq!(
            (back.oldest, back.newest, back.role, back.pid, back.epoch),
            (oldest, newest, role, pid, epoch)
        );
        prop_assert!(back.token.matches(&hello.token));

        let boot = Boot { socket, token: AttachToken::new(secret), supervisor_uid: uid };
        let mut bytes = Vec::new();
        boot.encode(&mut bytes).unwrap();
        let (header, payload) = split(&bytes);
        let back = Boot::decode(header, payload).unwrap();
        prop_assert_eq!(back.socket.as_slice(), boot.socket.as_slice());
        prop_assert_eq!(back.supervisor_uid, uid);
        prop_assert!(back.token.matches(&boot.token));
    }

    #[test]
    fn any_split_of_the_stream_decodes_the_same(
        messages in vec(from_worker(), 0..8), cuts in vec(any::<usize>(), 0..40),
    ) {
        let mut bytes = Vec::new();
        for message in &messages {
            message.encode(&mut bytes).unwrap();
        }
        let frames = decode_in_pieces(&bytes, &cuts).unwrap();
        prop_assert_eq!(&frames, &decode_in_pieces(&bytes, &[]).unwrap());
        let back: Vec<FromWorker<'_>> = frames
            .iter()
            .map(|(header, payload)| FromWorker::decode(*header, payload).unwrap())
            .collect();
        prop_assert_eq!(back, messages);
    }

    #[test]
    fn garbage_is_refused_or_waited_for(bytes in vec(any::<u8>(), 0..400), cuts in vec(any::<usize>(), 0..8)) {
        if let Ok(frames) = decode_in_pieces(&bytes, &cuts) {
            // Only a stream that starts with our magic, or is too short to tell, is not refused.
            prop_assert!(bytes.len() < HEADER_LEN || bytes.starts_with(&MAGIC));
            for (header, payload) in frames {
                drop(ToWorker::decode(header, &payload));
                drop(FromWorker::decode(header, &payload));
                drop(Hello::decode(header, &payload));
                drop(Boot::decode(header, &payload));
            }
        }
    }

    #[test]
    fn garbage_payloads_of_known_kinds_never_panic(
        kind in prop_oneof![Just(1_u16), Just(2), 16_u16..25, Just(32), 64_u16..72],
        payload in vec(any::<u8>(), 0..300),
    ) {
        let header = header(kind, payload.len());
        drop(ToWorker::decode(header, &payload));
        drop(FromWorker::decode(header, &payload));
        drop(Hello::decode(header, &payload));
        drop(Boot::decode(header, &payload));
    }

    #[test]
    fn a_flipped_byte_never_panics(message in to_worker(), at in any::<usize>(), with in any::<u8>()) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes).unwrap();
        let at = at % bytes.len();
        bytes[at] ^= with;
        if let Ok(frames) = decode_in_pieces(&bytes, &[]) {
            for (header, payload) in frames {
                drop(ToWorker::decode(header, &payload));
            }
        }
    }

    #[test]
    fn a_truncated_message_is_malformed(message in to_worker()) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes).unwrap();
        let (head, payload) = split(&bytes);
        for len in 0..payload.len() {
            let cut = ToWorker::decode(header(head.kind, len), &payload[..len]);
            prop_assert!(
                matches!(cut, Err(WireError::Malformed { kind, .. }) if kind == head.kind),
                "{len} of {} bytes gave {cut:?}", payload.len()
            );
        }
        for len in 0..bytes.len() {
            let frames = decode_in_pieces(&bytes[..len], &[]).unwrap();
            prop_assert!(frames.is_empty(), "a frame out of {len} of {} bytes", bytes.len());
        }
    }

    #[test]
    fn a_truncated_message_from_a_worker_is_malformed(message in from_worker()) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes).unwrap();
        let (head, payload) = split(&bytes);
        for len in 0..payload.len() {
            let cut = FromWorker::decode(header(head.kind, len), &payload[..len]);
            prop_assert!(
                matches!(cut, Err(WireError::Malformed { kind, .. }) if kind == head.kind),
                "{len} of {} bytes gave {cut:?}", payload.len()
            );
        }
    }

    #[test]
    fn trailing_bytes_are_malformed(to in to_worker(), from in from_worker(), extra in vec(any::<u8>(), 1..20)) {
        let mut bytes = Vec::new();
        to.encode(&mut bytes).unwrap();
        let (head, payload) = split(&bytes);
        let longer = [payload, &extra].concat();
        prop_assert!(malformed(ToWorker::decode(header(head.kind, longer.len()), &longer), head.kind));
        let mut bytes = Vec::new();
        from.encode(&mut bytes).unwrap();
        let (head, payload) = split(&bytes);
        let longer = [payload, &extra].concat();
        prop_assert!(malformed(FromWorker::decode(header(head.kind, longer.len()), &longer), head.kind));
    }

    #[test]
    fn unknown_kinds_are_typed_errors(kind in any::<u16>(), payload in vec(any::<u8>(), 0..50)) {
        let header = header(kind, payload.len());
        let known = (kind::START..=kind::CLEAR).contains(&kind) && kind != 21;
        if !known && kind != kind::PAST {
            prop_assert_eq!(ToWorker::decode(header, &payload), Err(WireError::UnknownKind(kind)));
        }
        if !(kind::STARTED..=kind::LOST).contains(&kind) && kind != kind::PAST {
            prop_assert_eq!(FromWorker::decode(header, &payload), Err(WireError::UnknownKind(kind)));
        }
        if kind != kind::HELLO {
            prop_assert!(matches!(Hello::decode(header, &payload), Err(WireError::BadHello(_))));
        }
        if kind != kind::BOOT {
            prop_assert!(matches!(Boot::decode(header, &payload), Err(WireError::UnknownKind(k)) if k == kind));
        }
    }

    #[test]
    fn sizes_out_of_range_are_malformed(cols in any::<u16>(), rows in any::<u16>()) {
        let mut bytes = Vec::new();
        ToWorker::Resize(Size { cols, rows }).encode(&mut bytes).unwrap();
        let (head, payload) = split(&bytes);
        let decoded = ToWorker::decode(head, payload);
        if (1..=1000).contains(&cols) && (1..=1000).contains(&rows) {
            prop_assert_eq!(decoded, Ok(ToWorker::Resize(Size { cols, rows })));
        } else {
            prop_assert!(malformed(decoded, kind::RESIZE));
        }
    }

    #[test]
    fn foreign_headers_are_typed_errors(bytes in any::<[u8; HEADER_LEN]>()) {
        prop_assume!(bytes[0..4] != MAGIC);
        prop_assert_eq!(
            Header::parse(bytes),
            Err(WireError::BadMagic([bytes[0], bytes[1], bytes[2], bytes[3]]))
        );
    }

    #[test]
    fn a_length_over_the_limit_is_refused_before_its_payload(len in 1_114_113..=u32::MAX, kind in any::<u16>()) {
        let head = Header { version: WIRE_VERSION, kind, len }.to_bytes();
        let mut decoder = FrameDecoder::new();
        decoder.push(&head);
        prop_assert_eq!(decoder.next_frame().err(), Some(WireError::TooLong(u64::from(len))));
    }

    #[test]
    fn a_version_outside_the_window_is_refused(version in any::<u16>()) {
        prop_assume!(version != WIRE_VERSION);
        let head = Header { version, kind: kind::INPUT, len: 0 }.to_bytes();
        let mut decoder = FrameDecoder::new();
        decoder.push(&head);
        prop_assert_eq!(
            decoder.next_frame().err(),
            Some(WireError::Version { got: version, oldest: 1, newest: 1 })
        );
    }
}

proptest! {
    #[test]
    fn probe_reports_come_back_and_their_bytes_never_panic(
        report in probe_report(),
        garbage in vec(any::<u8>(), 0..80),
    ) {
        let mut bytes = Vec::new();
        report.encode(&mut bytes).unwrap();
        let (header, payload) = split(&bytes);
        prop_assert_eq!(ProbeReport::decode(header, payload).unwrap(), report);
        for end in 0..payload.len() {
            prop_assert!(ProbeReport::decode(header, &payload[..end]).is_err());
        }
        ProbeReport::decode(header, &garbage).ok();
    }
}

#[test]
fn a_probe_report_beyond_its_bound_or_of_another_kind_is_refused() {
    let report = |len| {
        let words = "w".repeat(len);
        let mut bytes = Vec::new();
        ProbeReport::NoPty(Trouble { errno: None, words })
            .encode(&mut bytes)
            .unwrap();
        bytes
    };
    for (len, fine) in [(REASON_MAX, true), (REASON_MAX + 1, false)] {
        let bytes = report(len);
        let (header, payload) = split(&bytes);
        assert_eq!(ProbeReport::decode(header, payload).is_ok(), fine);
    }
    let bytes = report(0);
    let (header, payload) = split(&bytes);
    let other = Header {
        kind: kind::BOOT,
        ..header
    };
    assert!(ProbeReport::decode(other, payload).is_err());
    assert!(FromWorker::decode(header, payload).is_err());
}

#[test]
fn a_start_with_a_size_of_nothing_is_malformed() {
    let start = Start {
        size: Size { cols: 0, rows: 24 },
        ..a_start()
    };
    let mut bytes = Vec::new();
    ToWorker::Start(Box::new(start)).encode(&mut bytes).unwrap();
    let (header, payload) = split(&bytes);
    assert!(matches!(
        ToWorker::decode(header, payload),
        Err(WireError::Malformed {
            kind: kind::START,
            ..
        })
    ));
}

#[test]
fn output_beyond_its_bounds_is_malformed() {
    for (cuts, len, fine) in [
        (CUTS_MAX, OUTPUT_CHUNK_MAX, true),
        (CUTS_MAX + 1, OUTPUT_CHUNK_MAX, false),
        (0, OUTPUT_CHUNK_MAX + 1, false),
    ] {
        let message = FromWorker::Output(Output {
            offset: 0,
            cuts: vec![
                Cut {
                    at: 0,
                    modes: Modes(0)
                };
                cuts
            ],
            data: Data::from(vec![b'x'; len]),
        });
        let mut bytes = Vec::new();
        message.encode(&mut bytes).unwrap();
        let (header, payload) = split(&bytes);
        let decoded = FromWorker::decode(header, payload);
        if fine {
            assert_eq!(decoded, Ok(message));
        } else {
            assert!(
                matches!(
                    decoded,
                    Err(WireError::Malformed {
                        kind: kind::OUTPUT,
                        ..
                    })
                ),
                "{cuts} cuts and {len} bytes were accepted"
            );
        }
    }
}

#[test]
fn a_reason_beyond_its_bound_is_malformed() {
    for (len, fine) in [(REASON_MAX, true), (REASON_MAX + 1, false)] {
        let message = FromWorker::StartFailed(StartFailed {
            failure: StartFailure::Other,
            reason: "r".repeat(len),
        });
        let mut bytes = Vec::new();
        message.encode(&mut bytes).unwrap();
        let (header, payload) = split(&bytes);
        assert_eq!(FromWorker::decode(header, payload).is_ok(), fine);
    }
}

#[test]
fn text_that_is_not_utf8_in_a_reason_is_malformed() {
    let mut bytes = Vec::new();
    FromWorker::StartFailed(StartFailed {
        failure: StartFailure::Other,
        reason: "abc".to_owned(),
    })
    .encode(&mut bytes)
    .unwrap();
    let last = bytes.len() - 1;
    bytes[last] = 0xff;
    let (header, payload) = split(&bytes);
    assert!(matches!(
        FromWorker::decode(header, payload),
        Err(WireError::Malformed {
            kind: kind::START_FAILED,
            ..
        })
    ));
}

#[test]
fn the_largest_paste_fits_one_frame() {
    let message = ToWorker::Input(Input {
        seq: 1,
        data: Data::from(vec![b'p'; 1 << 20]),
    });
    let mut bytes = Vec::new();
    message.encode(&mut bytes).unwrap();
    let frames = decode_in_pieces(&bytes, &[1, 11, 12, 13, 70_000]).unwrap();
    assert_eq!(frames.len(), 1);
    assert_eq!(
        ToWorker::decode(frames[0].0, &frames[0].1).unwrap(),
        message
    );
}

#[test]
fn a_message_over_the_limit_is_not_encoded_and_leaves_the_buffer_alone() {
    let message = ToWorker::Input(Input {
        seq: 1,
        data: Data::from(vec![b'p'; PAYLOAD_MAX]),
    });
    let mut bytes = b"before".to_vec();
    let error = message.encode(&mut bytes).unwrap_err();
    assert!(
        matches!(error, WireError::TooLong(_) | WireError::Unencodable { .. }),
        "{error:?}"
    );
    assert_eq!(bytes, b"before");
}

#[test]
fn hellos_that_make_no_sense_are_typed_errors() {
    let mut good = Vec::new();
    Hello {
        oldest: 1,
        newest: 1,
        role: Role::Worker,
        pid: 1,
        epoch: 1,
        token: AttachToken::new([0; 32]),
    }
    .encode(&mut good)
    .unwrap();
    let (head, payload) = split(&good);
    for len in 0..payload.len() {
        assert!(
            matches!(
                Hello::decode(header(head.kind, len), &payload[..len]),
                Err(WireError::BadHello(_))
            ),
            "a hello of {len} bytes was accepted"
        );
    }
    let changed = |at: usize, to: u8| {
        let mut payload = payload.to_vec();
        payload[at] = to;
        Hello::decode(header(head.kind, payload.len()), &payload)
    };
    assert!(
        matches!(changed(4, 0), Err(WireError::BadHello(_))),
        "role 0"
    );
    assert!(
        matches!(changed(4, 3), Err(WireError::BadHello(_))),
        "role 3"
    );
    assert!(
        matches!(changed(0, 2), Err(WireError::BadHello(_))),
        "oldest above newest"
    );
}

#[test]
fn secrets_and_typed_text_are_not_in_debug_output() {
    let token = AttachToken::new(*b"SECRET-SECRET-SECRET-SECRET-1234");
    let boot = Boot {
        socket: Data::borrowed(b"/s"),
        token,
        supervisor_uid: 0,
    };
    let input = Input {
        seq: 1,
        data: Data::borrowed(b"hunter2"),
    };
    let text = format!("{boot:?} {input:?}");
    assert!(
        !text.contains("SECRET") && !text.contains("83, 69"),
        "{text}"
    );
    assert!(
        !text.contains("hunter2") && !text.contains("104, 117"),
        "{text}"
    );
}

#[test]
fn events_beyond_their_bounds_are_malformed() {
    let of = |len: usize| Data::from(vec![b'x'; len]);
    for (what, fine) in [
        (
            Happened::CommandStarted {
                line: of(COMMAND_LINE_MAX),
                at_ms: 0,
            },
            true,
        ),
        (
            Happened::CommandStarted {
                line: of(COMMAND_LINE_MAX + 1),
                at_ms: 0,
            },
            false,
        ),
        (Happened::Directory(of(PATH_MAX)), true),
        (Happened::Directory(of(PATH_MAX + 1)), false),
        (Happened::Title(of(TITLE_MAX)), true),
        (Happened::Title(of(TITLE_MAX + 1)), false),
    ] {
        let message = FromWorker::Event(Event { offset: 0, what });
        let mut bytes = Vec::new();
        message.encode(&mut bytes).unwrap();
        let (header, payload) = split(&bytes);
        assert_eq!(FromWorker::decode(header, payload).is_ok(), fine);
    }
}

fn a_start() -> Start<'static> {
    Start {
        mode: Mode::Pipes,
        shell: Data::default(),
        command: Command::Shell,
        cwd: Data::borrowed(b"/"),
        host_env: vec![],
        caller_env: vec![],
        size: Size { cols: 80, rows: 24 },
        umask: 0,
        limits: vec![],
        marks: Marks::Strip,
        integrate: true,
        card: Data::default(),
        commands: 0,
        reattach_grace_ms: 0,
        orphan_timeout_ms: 0,
    }
}

fn a_kept() -> Kept<'static> {
    Kept {
        shell_pid: 1,
        is_pty: true,
        size: Size { cols: 80, rows: 24 },
        started_ms: 0,
        card: Data::default(),
        watched: false,
        typed: Typed {
            seq: 0,
            came: 0,
            taken: 0,
        },
        offset: 0,
        trimmed: false,
        can_detect: false,
        commands: Commands {
            count: 0,
            first: 1,
            newest: Newest::None,
        },
        directory: None,
        title: None,
        past: 0,
    }
}

fn a_lost() -> Lost<'static> {
    Lost {
        offset: 0,
        places: 1,
        bytes: 1,
        modes: Modes(0),
        can_detect: false,
        finished: None,
        started: None,
        directory: None,
        title: None,
    }
}

#[test]
fn what_a_supervisor_notes_and_tells_has_its_bounds() {
    let of = |len: usize| Data::from(vec![b'x'; len]);
    let text = |len: usize, cuts: usize| {
        let cut = Cut {
            at: 1,
            modes: Modes(0),
        };
        ToWorker::Past(Past::Text {
            cuts: vec![cut; cuts],
            data: of(len),
        })
    };
    let line = |len| {
        ToWorker::Past(Past::CommandStarted(kept::Started {
            line: of(len),
            at_ms: 0,
        }))
    };
    let start = |len| {
        ToWorker::Start(Box::new(Start {
            card: of(len),
            ..a_start()
        }))
    };
    for (message, fine) in [
        (ToWorker::Card(of(CARD_MAX)), true),
        (ToWorker::Card(of(CARD_MAX + 1)), false),
        (start(CARD_MAX), true),
        (start(CARD_MAX + 1), false),
        (text(OUTPUT_CHUNK_MAX, CUTS_MAX), true),
        (text(OUTPUT_CHUNK_MAX + 1, 0), false),
        (text(2, CUTS_MAX + 1), false),
        (line(COMMAND_LINE_MAX), true),
        (line(COMMAND_LINE_MAX + 1), false),
    ] {
        let mut bytes = Vec::new();
        message.encode(&mut bytes).unwrap();
        let (head, payload) = split(&bytes);
        let decoded = ToWorker::decode(head, payload);
        if fine {
            assert_eq!(decoded, Ok(message));
        } else {
            assert!(malformed(decoded, head.kind));
        }
    }
}

#[test]
fn what_a_worker_kept_or_lost_has_its_bounds() {
    let of = |len: usize| Some(Data::from(vec![b'x'; len]));
    let kept = |change: &dyn Fn(&mut Kept<'static>)| {
        let mut kept = a_kept();
        change(&mut kept);
        FromWorker::Kept(Box::new(kept))
    };
    let lost = |change: &dyn Fn(&mut Lost<'static>)| {
        let mut lost = a_lost();
        change(&mut lost);
        FromWorker::Lost(Box::new(lost))
    };
    let line = |len: usize| {
        Some(kept::Started {
            line: Data::from(vec![b'x'; len]),
            at_ms: 0,
        })
    };
    let frames = |count: usize| u32::try_from(count).unwrap();
    for (message, fine) in [
        (kept(&|kept| kept.card = of(CARD_MAX).unwrap()), true),
        (kept(&|kept| kept.card = of(CARD_MAX + 1).unwrap()), false),
        (kept(&|kept| kept.size.rows = 0), false),
        (kept(&|kept| kept.directory = of(PATH_MAX)), true),
        (kept(&|kept| kept.directory = of(PATH_MAX + 1)), false),
        (kept(&|kept| kept.title = of(TITLE_MAX + 1)), false),
        (kept(&|kept| kept.past = frames(PAST_FRAMES)), true),
        (kept(&|kept| kept.past = frames(PAST_FRAMES + 1)), false),
        (lost(&|lost| lost.started = line(COMMAND_LINE_MAX)), true),
        (
            lost(&|lost| lost.started = line(COMMAND_LINE_MAX + 1)),
            false,
        ),
        (lost(&|lost| lost.directory = of(PATH_MAX + 1)), false),
        (lost(&|lost| lost.title = of(TITLE_MAX + 1)), false),
    ] {
        let mut bytes = Vec::new();
        message.encode(&mut bytes).unwrap();
        let (head, payload) = split(&bytes);
        let decoded = FromWorker::decode(head, payload);
        if fine {
            assert_eq!(decoded, Ok(message));
        } else {
            assert!(malformed(decoded, head.kind));
        }
    }
}
