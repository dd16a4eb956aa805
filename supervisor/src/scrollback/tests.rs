use super::*;
use proptest::prelude::*;

fn at(place: usize, modes: Modes) -> ToldCut {
    ToldCut {
        at: u32::try_from(place).unwrap(),
        modes,
    }
}

fn places(places: &[usize]) -> Vec<ToldCut> {
    places
        .iter()
        .map(|place| at(*place, Modes::default()))
        .collect()
}

fn line_cuts(text: &str, modes: Modes) -> Vec<ToldCut> {
    text.match_indices('\n')
        .map(|(place, _)| at(place + 1, modes))
        .collect()
}

fn command(id: &str, line: &str) -> Command {
    Command {
        id: id.into(),
        line: line.into(),
        timestamp: 1,
        end: None,
    }
}

const ENDED: CommandEnd = CommandEnd {
    exit_code: Some(0),
    duration_ms: None,
};

fn texts(scrollback: &Scrollback) -> String {
    let visible = scrollback.visible();
    visible.parts.iter().map(|(_, text)| *text).collect()
}

fn weight(visible: &Visible<'_>) -> usize {
    let parts = visible.parts.iter().map(|(command, text)| {
        text.chars().count() + command.map_or(0, |command| command.line.chars().count())
    });
    parts.sum::<usize>() + visible.restore.chars().count()
}

#[test]
fn less_than_the_limit_is_kept_whole() {
    let mut scrollback = Scrollback::default();
    scrollback.push("a\nb", &places(&[2]));
    scrollback.push("c漢", &[]);
    assert_eq!(texts(&scrollback), "a\nbc漢");
    scrollback.clear();
    assert!(scrollback.visible().parts.is_empty());
    scrollback.push("x", &[]);
    assert_eq!(texts(&scrollback), "x");
    assert_eq!(scrollback.visible().restore, "");
}

#[test]
fn s24_more_is_cut_at_the_start_of_a_line() {
    let mut scrollback = Scrollback::default();
    let mut all = String::new();
    for number in 0..60_000 {
        let line = format!("\u{1b}[38;2;1;2;3m{number} 漢😀\u{1b}[0m\n");
        scrollback.push(&line, &line_cuts(&line, Modes::default()));
        all.push_str(&line);
    }
    let visible = texts(&scrollback);
    let count = visible.chars().count();
    assert!(count <= SCROLLBACK_CHARS, "{count}");
    assert!(count > SCROLLBACK_CHARS - 2000, "{count}");
    assert!(all.ends_with(&visible));
    assert!(visible.starts_with("\u{1b}[38;2;1;2;3m"));
    assert_eq!(scrollback.visible().restore, "");
}

#[test]
fn s24_the_modes_of_the_place_where_it_was_cut_are_restored() {
    let mut scrollback = Scrollback::default();
    let set = Modes::default()
        .with_private(1049, true)
        .with_private(25, false);
    let later = set.with_private(2004, true);
    let block = format!("{}\n", "x".repeat(4095));
    scrollback.push(&block, &line_cuts(&block, Modes::default()));
    for _ in 0..60 {
        scrollback.push(&block, &line_cuts(&block, set));
    }
    assert_eq!(scrollback.visible().restore, set.restore());
    // What was set after that place is in the text itself.
    scrollback.push("\u{1b}[?2004h", &[at(8, later)]);
    assert_eq!(scrollback.visible().restore, set.restore());
    for _ in 0..200 {
        scrollback.push(&block, &line_cuts(&block, later));
    }
    assert_eq!(scrollback.visible().restore, later.restore());
    assert!(weight(&scrollback.visible()) <= SCROLLBACK_CHARS);
    // After a clear there is nothing to put right before what comes.
    scrollback.clear();
    scrollback.push("new\n", &line_cuts("new\n", later));
    assert_eq!(scrollback.visible().restore, "");
    for _ in 0..60 {
        scrollback.push(&block, &line_cuts(&block, later));
    }
    assert_eq!(scrollback.visible().restore, later.restore());
}

#[test]
fn no_set_of_modes_takes_more_room_than_is_kept_for_it() {
    assert!(Modes(u32::MAX).restore().chars().count() <= RESTORE_CHARS);
}

#[test]
fn without_any_safe_place_it_is_still_bounded() {
    let mut scrollback = Scrollback::default();
    for _ in 0..100 {
        scrollback.push(&"漢".repeat(20_000), &places(&[1, 2, 4_000_000]));
    }
    let count = texts(&scrollback).chars().count();
    assert!(count <= SCROLLBACK_CHARS && count > SCROLLBACK_CHARS - 2 * RESTORE_CHARS);
    assert!(scrollback.text.chars().count() <= SCROLLBACK_SLACK_CHARS);
}

#[test]
fn places_are_few_however_many_are_sent() {
    let mut scrollback = Scrollback::default();
    for _ in 0..500_000 {
        scrollback.push("\n", &places(&[1]));
    }
    assert!(scrollback.cuts.len() <= SCROLLBACK_SLACK_CHARS / 1024 + 2);
}

#[test]
fn a_flood_of_commands_without_text_is_bounded() {
    let mut scrollback = Scrollback::default();
    for number in 0..50_000 {
        let id = number.to_string();
        scrollback.start_command(command(&id, ""));
        scrollback.finish_command(&id, ENDED);
    }
    scrollback.start_command(command("open", "sleep"));
    assert!(scrollback.parts.len() <= CONTENT_SLACK_PARTS);
    assert!(scrollback.cuts.len() <= CONTENT_SLACK_PARTS + 1);
    let visible = scrollback.visible();
    assert!(visible.parts.len() <= CONTENT_PARTS && visible.parts.len() > CONTENT_PARTS / 2);
    let (last, text) = visible.parts.last().unwrap();
    assert_eq!(
        (last.map(|command| command.id.as_str()), *text),
        (Some("open"), "")
    );
}

#[test]
fn long_command_lines_count() {
    let mut scrollback = Scrollback::default();
    let line = "漢".repeat(20_000);
    for number in 0..100 {
        let id = number.to_string();
        scrollback.start_command(command(&id, &line));
        // No place is told: the starts of parts serve.
        scrollback.push("out\n", &[]);
        scrollback.finish_command(&id, ENDED);
        scrollback.push("$ ", &[]);
        assert!(weight(&scrollback.visible()) <= SCROLLBACK_CHARS);
    }
    assert!(weight(&scrollback.visible()) > SCROLLBACK_CHARS - 2 * 20_100);
    assert!(scrollback.parts.len() < 50);
}

#[test]
fn an_open_command_is_kept_when_its_text_is_trimmed() {
    let mut scrollback = Scrollback::default();
    scrollback.push("$ ", &[]);
    scrollback.start_command(command("1", "yes"));
    for _ in 0..300_000 {
        scrollback.push("y\n", &places(&[2]));
    }
    let visible = scrollback.visible();
    assert_eq!(visible.parts.len(), 1);
    assert_eq!(
        visible.parts[0].0.map(|command| command.line.as_str()),
        Some("yes")
    );
    scrollback.finish_command("1", ENDED);
    assert_eq!(
        scrollback.visible().parts[0]
            .0
            .and_then(|command| command.end),
        Some(ENDED)
    );
}

#[test]
fn the_start_of_a_part_is_a_place_to_cut_if_the_modes_there_were_told() {
    let mut scrollback = Scrollback::default();
    let pasting = Modes::default().with_private(2004, true);
    let filler = "x".repeat(100_000);
    scrollback.push("old", &[]);
    scrollback.push(&filler, &[at(100_000, pasting)]);
    scrollback.start_command(command("1", "make"));
    scrollback.push(&filler, &[]);
    scrollback.push(&"x".repeat(50_000), &[]);
    let visible = scrollback.visible();
    assert_eq!(visible.restore, pasting.restore());
    assert_eq!(visible.parts.len(), 1);
    assert_eq!(visible.parts[0].1.len(), 150_000);
}

#[derive(Debug, Clone)]
enum Step {
    Text(String, usize),
    Start(usize),
    Finish,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => ("[a漢\n]{0,30}", 1_usize..3000).prop_map(|(unit, times)| Step::Text(unit, times)),
        2 => (0_usize..30_000).prop_map(Step::Start),
        2 => Just(Step::Finish),
    ]
}

proptest! {
    /// The visible parts are the last of all parts, the first of them without its beginning.
    #[test]
    fn the_visible_part_is_the_end_of_everything(steps in proptest::collection::vec(step(), 1..60)) {
        let mut scrollback = Scrollback::default();
        let mut all: Vec<(Option<Command>, String)> = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Text(unit, times) => {
                    let text = unit.repeat(times);
                    scrollback.push(&text, &line_cuts(&text, Modes::default()));
                    match all.last_mut() {
                        Some((command, have)) if command.as_ref().is_none_or(|c| c.end.is_none()) => have.push_str(&text),
                        _ => all.push((None, text)),
                    }
                }
                Step::Start(length) => {
                    let command = command(&number.to_string(), &"l".repeat(length));
                    scrollback.start_command(command.clone());
                    all.push((Some(command), String::new()));
                }
                Step::Finish => {
                    if let Some((Some(command), _)) = all.last_mut() {
                        command.end = Some(ENDED);
                        scrollback.finish_command(&command.id, ENDED);
                    }
                }
            }
            let visible = scrollback.visible();
            prop_assert!(weight(&visible) <= SCROLLBACK_CHARS);
            let from = all.len() - visible.parts.len();
            for (index, (theirs, ours)) in all[from..].iter().zip(&visible.parts).enumerate() {
                prop_assert_eq!(theirs.0.as_ref(), ours.0);
                if index == 0 {
                    prop_assert!(theirs.1.ends_with(ours.1));
                } else {
                    prop_assert_eq!(theirs.1.as_str(), ours.1);
                }
            }
            let whole: usize = all.iter().map(|(command, text)| text.chars().count() + command.as_ref().map_or(0, |c| c.line.len())).sum();
            if whole <= SCROLLBACK_CHARS {
                prop_assert!(from == 0 && all.first().map(|part| part.1.as_str()) == visible.parts.first().map(|part| part.1));
            }
        }
    }
}
