//! The scanner against splits, a slow reference and a kept VT parser.

use std::time::{Duration, Instant};

use super::*;
use crate::output::marks::Mark;
use proptest::prelude::*;
use shellward_protocol::limits::{CUT_DISTANCE, CUTS_MAX, OUTPUT_CHUNK_MAX};

#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    out: String,
    /// Each with the length of the output before it.
    found: Vec<(usize, Found)>,
    cuts: Vec<(usize, Modes)>,
    titles: Vec<String>,
}

impl Sink for Seen {
    fn text(&mut self, text: &str, cuts: Vec<Cut>, active: usize) {
        assert!(!text.is_empty() && active <= text.len());
        assert!(cuts.is_sorted_by(|a, b| a.at < b.at));
        for cut in cuts {
            assert!(text.is_char_boundary(cut.at as usize));
            self.cuts
                .push((self.out.len() + cut.at as usize, cut.modes));
        }
        self.out.push_str(text);
    }
    fn found(&mut self, found: Found, _: &State) {
        self.found.push((self.out.len(), found));
    }
}

fn scan_in(text: &str, mut ends: impl FnMut() -> usize, marks: Marks) -> Seen {
    let mut scanner = Scanner::new(marks);
    let mut seen = Seen::default();
    let mut from = 0;
    while from < text.len() {
        let mut to = (from + ends().max(1)).min(text.len());
        while !text.is_char_boundary(to) {
            to += 1;
        }
        scanner.scan(&text[from..to], &mut seen);
        seen.titles.extend(scanner.take_title());
        assert!(scanner.held.len() <= HELD_MAX + OUTPUT_CHUNK_MAX);
        from = to;
    }
    scanner.finish(&mut seen);
    seen
}

fn scan(text: &str) -> Seen {
    scan_in(text, || usize::MAX >> 1, Marks::Strip)
}

/// Everything but titles (only the newest of a turn is told) and cuts (chosen per turn).
fn same(a: &Seen, b: &Seen) {
    assert_eq!(a.out, b.out);
    assert_eq!(a.found, b.found);
}

fn every_kind_of_mark() -> Vec<&'static str> {
    vec![
        "\u{1b}]133;A\u{7}",
        "\u{1b}]133;B\u{1b}\\",
        "\u{1b}]133;C;\u{7}",
        "\u{1b}]133;D;7\u{7}",
        "\u{1b}]133;D;130;aid=3\u{1b}\\",
        "\u{1b}]633;A;n\u{7}",
        "\u{1b}]633;E;echo \\x3b é;n\u{1b}\\",
        "\u{1b}]633;P;Cwd=/ü;n\u{7}",
        "\u{1b}]7;file:///tmp\u{1b}\\",
        "\u{1b}]9;9;/tmp\u{7}",
        "\u{1b}]1337;CurrentDir=/tmp\u{7}",
    ]
}

#[test]
fn s11_every_kind_of_mark_is_found_at_every_split_point() {
    for mark in every_kind_of_mark() {
        let text = format!("a{mark}b");
        let whole = scan(&text);
        assert_eq!(whole.out, "ab", "{mark:?}");
        assert_eq!(whole.found.len(), 1, "{mark:?}");
        assert_eq!(whole.found[0].0, 1);
        for at in 1..text.len() {
            let mut first = true;
            let cut = scan_in(
                &text,
                || {
                    if std::mem::take(&mut first) {
                        at
                    } else {
                        usize::MAX >> 1
                    }
                },
                Marks::Strip,
            );
            same(&whole, &cut);
        }
        same(&whole, &scan_in(&text, || 1, Marks::Strip));
        let kept = scan_in(&text, || 3, Marks::Keep);
        assert_eq!(kept.out, text);
        assert_eq!(kept.found.len(), 1);
        assert_eq!(kept.found[0].0, text.len() - 1, "told after its bytes");
    }
}

#[test]
fn s11_a_character_with_9c_inside_ends_nothing() {
    let seen = scan("\u{1b}]0;\u{2733} hi\u{1b}\\OK");
    assert_eq!(seen.out, "\u{1b}]0;\u{2733} hi\u{1b}\\OK");
    assert_eq!(seen.titles, ["\u{2733} hi"]);
}

#[test]
fn s11_can_and_sub_abort_a_mark_which_goes_on_unchanged() {
    for text in [
        "\u{1b}]133;D;7\u{18}x",
        "\u{1b}]133;D;7\u{1a}x",
        "\u{1b}]133;D;7\u{1b}[mx",
    ] {
        let seen = scan_in(text, || 1, Marks::Strip);
        assert_eq!(seen.out, text);
        assert_eq!(seen.found, []);
    }
}

#[test]
fn s11_memory_is_bounded_and_nothing_is_swallowed_whatever_comes() {
    for start in [
        "\u{1b}]133;D;",
        "\u{1b}]0;",
        "\u{1b}P",
        "\u{1b}[",
        "\u{1b}]1337;CurrentDir=",
        "\u{1b}]52;c;",
    ] {
        let text = format!("{start}{}", "7".repeat(16 << 20));
        let seen = scan_in(&text, || 60_000, Marks::Strip);
        assert!(seen.out == text, "{start:?}");
        assert_eq!(seen.found, []);
    }
}

#[test]
fn s13_an_unterminated_string_hides_no_mark_and_no_text() {
    let seen = scan("\u{1b}]0;oops\u{1b}]133;D;1\u{7}after");
    assert_eq!(seen.out, "\u{1b}]0;oopsafter");
    assert_eq!(seen.found.len(), 1);
    let seen = scan_in(
        "\u{1b}]133;Alost\r\nline\u{1b}]133;D;1\u{7}",
        || 2,
        Marks::Strip,
    );
    assert_eq!(seen.out, "\u{1b}]133;Alost\r\nline");
    assert_eq!(seen.found.len(), 1);
}

#[test]
fn what_is_clearly_not_ours_goes_on_at_once() {
    let mut scanner = Scanner::new(Marks::Strip);
    let mut seen = Seen::default();
    for (piece, out) in [
        ("\u{1b}", ""),
        ("]", ""),
        ("0", "\u{1b}]0"),
        (";ti", "\u{1b}]0;ti"),
        ("tle", "\u{1b}]0;title"),
        ("\u{1b}", "\u{1b}]0;title"),
        ("\\x", "\u{1b}]0;title\u{1b}\\x"),
        ("\u{1b}]133;A", "\u{1b}]0;title\u{1b}\\x"),
        ("\n", "\u{1b}]0;title\u{1b}\\x\u{1b}]133;A\n"),
    ] {
        scanner.scan(piece, &mut seen);
        assert_eq!(seen.out, out, "{piece:?}");
    }
}

#[test]
fn s15_a_mark_wrapped_for_tmux_is_left_alone() {
    let text = "\u{1b}Ptmux;\u{1b}\u{1b}]133;D;0\u{7}\u{1b}\\VISIBLE\u{1b}]133;A\u{7}";
    for step in 1..text.len() {
        let seen = scan_in(text, || step, Marks::Strip);
        assert_eq!(seen.out, text.strip_suffix("\u{1b}]133;A\u{7}").unwrap());
        assert_eq!(seen.found.len(), 1, "the parser is back to normal");
    }
}

#[test]
fn s25_questions_are_taken_out_however_they_are_written() {
    for text in [
        "\u{1b}[6n",
        "\u{1b}[c",
        "\u{1b}]11;?\u{7}",
        "\u{1b}]11;?\u{1b}\\",
        "\u{1b}[18t",
        "\u{1b}P+q544e\u{1b}\\",
    ] {
        for step in 1..=text.len() {
            let seen = scan_in(&format!("a{text}b"), || step, Marks::Strip);
            assert_eq!((seen.out.as_str(), seen.found.len()), ("ab", 1), "{text:?}");
        }
    }
    // What some viewers take for one is taken out, too.
    assert_eq!(scan("a\u{1b}]11;?\u{1b}[mb").out, "a\u{1b}[mb");
    assert_eq!(scan("a\u{1b}[\u{8}6nb").out, "ab");
}

#[test]
fn modes_in_force_stand_at_each_cut() {
    let mut text = "line\r\n".repeat(2000);
    text.push_str("\u{1b}[?1049h\u{1b}[?2004;1003h\u{1b}[?25l\u{1b}=");
    let set_at = text.len();
    text.push_str(&"line\r\n".repeat(2000));
    text.push_str("\u{1b}[?25h\u{1b}c");
    let reset_at = text.len();
    text.push_str(&"line\r\n".repeat(2000));
    let seen = scan_in(&text, || 1000, Marks::Strip);
    assert!(seen.cuts.len() > 6);
    for (at, modes) in seen.cuts {
        let expected = if at > set_at && at < reset_at {
            "\u{1b}[?1049h\u{1b}[?25l\u{1b}[?1003h\u{1b}[?2004h\u{1b}="
        } else {
            ""
        };
        assert_eq!(modes.restore(), expected, "at {at}");
    }
}

#[test]
fn output_before_a_mark_may_be_cut_at_its_end() {
    let seen = scan("one\r\ntwo\u{1b}[m\u{1b}]133;D\u{7}$ ");
    assert_eq!(seen.cuts, [("one\r\ntwo\u{1b}[m".len(), Modes::default())]);
    let seen = scan("\u{1b}]133;D\u{7}\u{1b}]133;A\u{7}$ ");
    assert_eq!(seen.cuts, []);
}

#[test]
fn what_follows_a_long_sequence_is_cut_off_from_it() {
    for len in [5000, 100_000, 1_000_000] {
        let text = format!("before\u{1b}]0;{}\u{7}big\r\n", "A".repeat(len));
        let after = text.len() - "big\r\n".len();
        for step in [usize::MAX >> 1, 60_000, 1000] {
            let cuts = scan_in(&text, || step, Marks::Strip).cuts;
            // One that ends with what was read is cut off at the next line end only.
            assert!(
                cuts.iter().any(|(at, _)| *at == after || *at == text.len()),
                "{len} in steps of {step}: {cuts:?}"
            );
        }
        assert_eq!(scan(&text).cuts.first().map(|(at, _)| *at), Some(after));
    }
}

#[test]
fn lines_are_cut_at_their_ends() {
    let text = "0123456789\r\n".repeat(10_000);
    for step in [OUTPUT_CHUNK_MAX, 7, 1000] {
        let cuts = scan_in(&text, || step, Marks::Strip).cuts;
        assert!(cuts.len() >= text.len() / CUT_DISTANCE - 1 - text.len() / CUT_DISTANCE / 100);
        assert!(cuts.iter().all(|(cut, _)| cut % 12 == 0));
    }
}

#[test]
fn one_endless_line_is_cut_between_characters() {
    let text = "\u{1f600}".repeat(30_000);
    let cuts = scan_in(&text, || 1000, Marks::Strip).cuts;
    assert!(
        cuts.len() >= text.len() / CUT_DISTANCE / 2 - 1,
        "{}",
        cuts.len()
    );
    assert!(cuts.iter().all(|(cut, _)| cut % 4 == 0));
}

#[test]
fn frame_of_any_alignment_has_few_cuts() {
    struct Count;
    impl Sink for Count {
        fn text(&mut self, text: &str, cuts: Vec<Cut>, _: usize) {
            assert!(cuts.len() <= CUTS_MAX, "{} in {}", cuts.len(), text.len());
        }
        fn found(&mut self, _: Found, _: &State) {}
    }
    for shift in [0, 1, 17, 4095] {
        let mut scanner = Scanner::new(Marks::Strip);
        scanner.scan(&"x".repeat(shift), &mut Count);
        for _ in 0..5 {
            scanner.scan(&"\n".repeat(OUTPUT_CHUNK_MAX), &mut Count);
        }
    }
}

/// A piece of output, and whether a sequence of it is ours.
fn piece() -> impl Strategy<Value = (String, bool)> {
    let foreign = |text: &str| Just((text.to_owned(), false));
    prop_oneof![
        6 => "\\PC{0,30}".prop_map(|text| (text, false)),
        2 => "[\r\n\t\u{8}]{1,3}".prop_map(|text| (text, false)),
        1 => (1_usize..3000).prop_map(|n| ("line\r\n".repeat(n), false)),
        2 => foreign("\u{1b}[38;2;1;2;3m"),
        1 => foreign("\u{1b}[?2004h\u{1b}[?25l"),
        1 => foreign("\u{1b}]0;title\u{7}"),
        1 => foreign("\u{1b}]8;;http://x\u{1b}\\"),
        1 => foreign("\u{1b}]52;c;aGk=\u{7}"),
        1 => foreign("\u{1b}]1337;File=x\u{7}"),
        1 => foreign("\u{1b}Pq#0;2;0;0;0\u{1b}\\"),
        1 => foreign("\u{1b}(B\u{1b}7\u{1b}8\u{1b}M"),
        1 => foreign("\u{1b}]10;#ffffff\u{7}"),
        4 => proptest::sample::select(every_kind_of_mark()).prop_map(|mark| (mark.to_owned(), true)),
        3 => proptest::sample::select(vec![
            "\u{1b}[6n", "\u{1b}[c", "\u{1b}[>0q", "\u{1b}[?2026$p", "\u{1b}]11;?\u{7}", "\u{1b}P$qm\u{1b}\\",
        ]).prop_map(|query| (query.to_owned(), true)),
    ]
}

/// What a kept VT parser makes of a text: one line for everything but printing, which is joined.
#[derive(Default)]
struct Oracle {
    events: Vec<String>,
    printed: String,
}

impl Oracle {
    fn read(text: &str) -> Vec<String> {
        let mut oracle = Self::default();
        vte::Parser::new().advance(&mut oracle, text.as_bytes());
        oracle.event(String::new());
        oracle.events
    }
    fn event(&mut self, event: String) {
        if !self.printed.is_empty() {
            let printed = std::mem::take(&mut self.printed);
            self.events.push(format!("print {printed}"));
        }
        self.events.push(event);
    }
}

impl vte::Perform for Oracle {
    fn print(&mut self, c: char) {
        self.printed.push(c);
    }
    fn execute(&mut self, byte: u8) {
        self.event(format!("execute {byte}"));
    }
    fn csi_dispatch(&mut self, params: &vte::Params, inter: &[u8], _: bool, action: char) {
        self.event(format!("csi {params:?} {inter:?} {action}"));
    }
    fn esc_dispatch(&mut self, inter: &[u8], _: bool, byte: u8) {
        self.event(format!("esc {inter:?} {byte}"));
    }
    fn osc_dispatch(&mut self, params: &[&[u8]], _: bool) {
        self.event(format!("osc {params:?}"));
    }
    fn hook(&mut self, params: &vte::Params, inter: &[u8], _: bool, action: char) {
        self.event(format!("hook {params:?} {inter:?} {action}"));
    }
    fn put(&mut self, byte: u8) {
        self.event(format!("put {byte}"));
    }
    fn unhook(&mut self) {
        self.event("unhook".to_owned());
    }
}

proptest! {
    #[test]
    fn output_and_what_is_ours_make_the_input(
        pieces in proptest::collection::vec(piece(), 0..25),
        splits in proptest::collection::vec(1_usize..5000, 1..12),
    ) {
        let text: String = pieces.iter().map(|(text, _)| text.as_str()).collect();
        let expected: String = pieces.iter().filter(|(_, ours)| !ours).map(|(text, _)| text.as_str()).collect();
        let ours = pieces.iter().filter(|(_, ours)| *ours).count();
        let mut splits = splits.into_iter().cycle();
        let seen = scan_in(&text, || splits.next().unwrap(), Marks::Strip);
        prop_assert_eq!(&seen.out, &expected);
        prop_assert_eq!(seen.found.len(), ours);
        // The same to a kept parser: what was taken out is all that is missing, and no cut stands
        // inside a sequence.
        prop_assert_eq!(Oracle::read(&seen.out), Oracle::read(&expected));
        for (cut, _) in seen.cuts {
            let mut halves = Oracle::read(&seen.out[..cut]);
            let last = halves.pop();
            let mut second = Oracle::read(&seen.out[cut..]).into_iter();
            match (halves.last_mut(), second.next()) {
                (Some(before), Some(after)) if before.starts_with("print ") && after.starts_with("print ") => {
                    before.push_str(&after["print ".len()..]);
                }
                (_, after) => halves.extend(after),
            }
            halves.extend(second);
            prop_assert_eq!(last, Some(String::new()));
            prop_assert_eq!(halves, Oracle::read(&seen.out), "cut at {}", cut);
        }
    }

    #[test]
    fn any_bytes_in_any_pieces_are_the_same(
        pieces in proptest::collection::vec(
            prop_oneof![
                proptest::sample::select(vec![
                    "\u{1b}", "\u{1b}]", "\u{1b}[", "\u{1b}P", "\u{7}", "\u{1b}\\", "\u{18}", "133;", "633;", "D", "E;", "A",
                    "tmux;", "$q", "+q", "?", "6n", "c", "11;", "52;c;", "7;file:///", "9;9;", "1337;CurrentDir=/", ";", "\n", "é", "\u{9c}", "0;",
                ]).prop_map(str::to_owned),
                "\\PC{0,3}",
            ],
            0..60,
        ),
        splits in proptest::collection::vec(1_usize..9, 1..12),
    ) {
        let text = pieces.concat();
        let whole = scan(&text);
        let mut splits = splits.into_iter().cycle();
        let cut = scan_in(&text, || splits.next().unwrap(), Marks::Strip);
        prop_assert_eq!(&whole.found, &cut.found);
        prop_assert_eq!(&whole.out, &cut.out);
        // Whatever is kept, nothing but questions is missing.
        let kept = scan_in(&text, || 5, Marks::Keep);
        let asked = kept.found.iter().any(|(_, found)| matches!(found, Found::Query(_)));
        prop_assert!(asked || kept.out == text || kept.out.len() < text.len());
    }
}

#[test]
fn random_streams_for_a_bounded_time() {
    // The same as the fuzz target, without its coverage, for as long as CI may wait.
    let start = Instant::now();
    let mut seed = 0x9E37_79B9_7F4A_7C15_u64;
    let mut rounds = 0_u32;
    let tokens = [
        "\u{1b}",
        "]",
        "[",
        "P",
        "\\",
        "\u{7}",
        "133;A",
        "133;D;3",
        "633;E;x;n",
        "7;file:///",
        "tmux;",
        "6n",
        "c",
        "?25h",
        "m",
        "\n",
        "text",
        "漢",
        "\u{18}",
        "52;c;?",
        "11;?",
        "$qm",
        "4;1;?",
        ";",
        "9;9;/",
        "\u{1b}\\",
    ];
    while start.elapsed() < Duration::from_millis(1500) {
        let mut text = String::new();
        let mut ends = Vec::new();
        for _ in 0..200 {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            let index = usize::try_from(seed % tokens.len() as u64).unwrap();
            text.push_str(tokens[index]);
            ends.push(usize::try_from(seed >> 60).unwrap() + 1);
        }
        let mut ends = ends.into_iter().cycle();
        same(
            &scan(&text),
            &scan_in(&text, || ends.next().unwrap(), Marks::Strip),
        );
        rounds += 1;
    }
    assert!(rounds > 10, "{rounds} rounds");
    assert!(matches!(
        scan("\u{1b}]133;A\u{7}").found[0].1,
        Found::Mark(Signed {
            mark: Mark::Prompt,
            ..
        })
    ));
}
