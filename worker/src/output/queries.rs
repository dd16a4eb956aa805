//! Questions a program asks its terminal, and the one answer of this host (field cases S-17, S-25).
//!
//! What lives here: recognising questions, and the answers from facts that are handed in; pure.
//! What must not: finding the facts out, typing the answers.
//!
//! Source: xterm's ctlseqs page. A question is taken out of the output, so that no viewer answers
//! it again, now or when it is shown the scrollback. Some get no answer, because there is no true
//! one: then a program must not get a viewer's either.

use shellward_protocol::Modes;
use shellward_protocol::message::Size;
use shellward_protocol::modes::INSERT;

use super::sequence::{Shape, body};

/// A colour, 16 bits a channel, as OSC 10 tells it.
pub(super) type Rgb = [u16; 3];

/// Text colour, background and cursor of a terminal whose viewers told nothing about theirs.
const COLOURS: [Rgb; 3] = [[0xCCCC; 3], [0; 3], [0xCCCC; 3]];

/// The most questions answered in one OSC.
const PER_SEQUENCE_MAX: usize = 16;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Query {
    /// DSR 6, and its private form: where the cursor is.
    Cursor { is_private: bool },
    /// DSR 5: whether all is well.
    Status,
    /// DA1: what kind of terminal it is.
    Attributes,
    /// DA2: which one.
    SecondaryAttributes,
    /// DA3: its unit number.
    TertiaryAttributes,
    /// DECREQTPARM: its line.
    Parameters { kind: u16 },
    /// XTVERSION: its name.
    Version,
    /// XTWINOPS, by number.
    Window(u16),
    /// DECRQM: whether a mode is in force.
    Mode { number: u16, is_private: bool },
    /// Other private device status reports, by number.
    Device(u16),
    /// OSC 10 to 12, as indices from 0; how the answer ends.
    Colours {
        which: Vec<usize>,
        end: &'static str,
    },
    /// OSC 4: colours of the palette.
    Palette { which: Vec<u8>, end: &'static str },
    /// DECRQSS.
    Setting,
    /// XTGETTCAP, with the name asked for.
    Capability(String),
    /// XTSMGRAPHICS, with the item.
    Graphics(u16),
    /// Anything whose true answer is silence.
    Silent,
}

/// What answers are made of.
pub(super) struct Facts<'a> {
    pub(super) size: Size,
    pub(super) modes: Modes,
    /// What programs have set of [`COLOURS`].
    pub(super) colours: &'a [Option<Rgb>; 3],
    /// No program has changed the palette.
    pub(super) has_usual_palette: bool,
    /// Row and column, from 1.
    pub(super) cursor: &'a mut dyn FnMut() -> (usize, usize),
}

/// Reads a whole sequence as a question.
pub(super) fn parse(shape: Shape, sequence: &str) -> Option<Query> {
    match shape {
        Shape::Escape => (sequence == "\u{1b}Z").then_some(Query::Attributes),
        Shape::Csi => control(sequence.get(2..)?),
        // The same whether it came at once or in pieces.
        Shape::Osc | Shape::Text if !may_become(shape, body(sequence)) => None,
        Shape::Osc => colours(sequence),
        Shape::Text => device_control(sequence),
        Shape::Tmux => None,
    }
}

/// Whether the text of an unfinished OSC or DCS may still become a question.
pub(super) fn may_become(shape: Shape, body: &str) -> bool {
    const LONG: usize = 512;
    let starts: &[&str] = match shape {
        Shape::Osc => &["4;", "10;", "11;", "12;", "52;"],
        Shape::Text => &["$q", "+q"],
        _ => return false,
    };
    if let Some(text) = body.strip_prefix("52;") {
        // `52;c;?` asks; anything else sets, and may be long.
        return match text.split_once(';') {
            None => text.len() < 16,
            Some((_, value)) => value.is_empty() || value == "?",
        };
    }
    body.len() < LONG
        && starts
            .iter()
            .any(|start| start.starts_with(body) || body.starts_with(start))
}

/// `text` is what follows `ESC [`.
fn control(text: &str) -> Option<Query> {
    let (params, last) = text.split_at_checked(text.len().checked_sub(1)?)?;
    // By far the most frequent ones are no questions.
    if !matches!(last, "n" | "c" | "t" | "p" | "q" | "u" | "x" | "S") {
        return None;
    }
    let (marker, numbers) = match params.as_bytes().first() {
        Some(b'?' | b'>' | b'=' | b'<') => params.split_at(1),
        _ => ("", params),
    };
    let first = number(numbers.split(';').next().unwrap_or_default());
    match (marker, last) {
        ("", "n") => match first? {
            5 => Some(Query::Status),
            6 => Some(Query::Cursor { is_private: false }),
            _ => None,
        },
        ("?", "n") => match first? {
            6 => Some(Query::Cursor { is_private: true }),
            other => Some(Query::Device(other)),
        },
        ("", "c") => (first? == 0).then_some(Query::Attributes),
        (">", "c") => (first? == 0).then_some(Query::SecondaryAttributes),
        ("=", "c") => (first? == 0).then_some(Query::TertiaryAttributes),
        (">", "q") => (first? == 0).then_some(Query::Version),
        ("", "x") => (first? <= 1).then_some(Query::Parameters { kind: first? }),
        ("", "t") => matches!(first?, 11 | 13..=16 | 18..=21).then_some(Query::Window(first?)),
        ("?", "u") => Some(Query::Silent),
        ("?", "S") => Some(Query::Graphics(first?)),
        ("" | "?", "p") => Some(Query::Mode {
            number: number(numbers.strip_suffix('$')?)?,
            is_private: marker == "?",
        }),
        _ => None,
    }
}

/// A parameter; nothing is zero.
fn number(text: &str) -> Option<u16> {
    if text.is_empty() {
        return Some(0);
    }
    text.parse().ok()
}

fn colours(sequence: &str) -> Option<Query> {
    let text = body(sequence);
    let end = if sequence.ends_with('\u{7}') {
        "\u{7}"
    } else {
        "\u{1b}\\"
    };
    let (number, values) = text.split_once(';')?;
    match number {
        "4" => {
            let mut which = Vec::new();
            let mut fields = values.split(';');
            while let Some(index) = fields.next() {
                let is_question = fields.next() == Some("?") && which.len() < PER_SEQUENCE_MAX;
                which.push(index.parse().ok().filter(|_| is_question)?);
            }
            Some(Query::Palette { which, end })
        }
        "10" | "11" | "12" => {
            let from = usize::from(number.as_bytes().last()? - b'0');
            let count = values.split(';').count();
            let all = values.split(';').all(|value| value == "?");
            (all && from + count <= COLOURS.len()).then(|| Query::Colours {
                which: (from..from + count).collect(),
                end,
            })
        }
        "52" => (values.split_once(';')?.1 == "?").then_some(Query::Silent),
        _ => None,
    }
}

fn device_control(sequence: &str) -> Option<Query> {
    if !sequence.starts_with("\u{1b}P") {
        return None;
    }
    let text = body(sequence);
    if text.starts_with("$q") {
        return Some(Query::Setting);
    }
    let name = text.strip_prefix("+q")?;
    let is_hex = name
        .bytes()
        .all(|byte| byte.is_ascii_hexdigit() || byte == b';');
    Some(if is_hex {
        Query::Capability(name.to_owned())
    } else {
        Query::Silent
    })
}

/// The answer, as it is typed; empty for silence.
pub(super) fn answer(query: &Query, facts: &mut Facts<'_>) -> String {
    let size = facts.size;
    match query {
        Query::Cursor { is_private } => {
            let (row, column) = (facts.cursor)();
            let marker = if *is_private { "?" } else { "" };
            format!("\u{1b}[{marker}{row};{column}R")
        }
        Query::Status => "\u{1b}[0n".to_owned(),
        // A VT220 with colours: less than every viewer is, more than nothing.
        Query::Attributes => "\u{1b}[?62;22c".to_owned(),
        Query::SecondaryAttributes => "\u{1b}[>1;10;0c".to_owned(),
        Query::TertiaryAttributes => "\u{1b}P!|00000000\u{1b}\\".to_owned(),
        Query::Parameters { kind } => format!("\u{1b}[{};1;1;128;128;1;0x", kind + 2),
        Query::Version => format!("\u{1b}P>|shellward({})\u{1b}\\", env!("CARGO_PKG_VERSION")),
        Query::Window(operation) => match operation {
            11 => "\u{1b}[1t".to_owned(),
            13 => "\u{1b}[3;0;0t".to_owned(),
            // In pixels, which nobody told us: zero, as the kernel's window size has it.
            14 => "\u{1b}[4;0;0t".to_owned(),
            15 => "\u{1b}[5;0;0t".to_owned(),
            16 => "\u{1b}[6;0;0t".to_owned(),
            18 => format!("\u{1b}[8;{};{}t", size.rows, size.cols),
            19 => format!("\u{1b}[9;{};{}t", size.rows, size.cols),
            // Titles are what programs say; telling them back has been used to type commands.
            20 => "\u{1b}]L\u{1b}\\".to_owned(),
            _ => "\u{1b}]l\u{1b}\\".to_owned(),
        },
        Query::Mode { number, is_private } => {
            let known = if *is_private {
                facts.modes.private(*number)
            } else {
                (*number == 4).then(|| facts.modes.has(INSERT))
            };
            let value = match known {
                Some(true) => 1,
                Some(false) => 2,
                None => 0,
            };
            let marker = if *is_private { "?" } else { "" };
            format!("\u{1b}[{marker}{number};{value}$y")
        }
        Query::Device(number) => match number {
            // No printer; keys are not locked, the keyboard is a North American one.
            15 => "\u{1b}[?13n".to_owned(),
            25 => "\u{1b}[?20n".to_owned(),
            26 => "\u{1b}[?27;1;0;0n".to_owned(),
            // No locator.
            53 | 55 => "\u{1b}[?50n".to_owned(),
            _ => String::new(),
        },
        Query::Colours { which, end } => which
            .iter()
            .filter_map(|index| {
                let colour = facts
                    .colours
                    .get(*index)?
                    .or(COLOURS.get(*index).copied())?;
                Some(format!("\u{1b}]{};{}{end}", index + 10, rgb(colour)))
            })
            .collect(),
        Query::Palette { which, end } if facts.has_usual_palette => which
            .iter()
            .map(|index| format!("\u{1b}]4;{index};{}{end}", rgb(palette(*index))))
            .collect(),
        Query::Setting => "\u{1b}P0$r\u{1b}\\".to_owned(),
        Query::Capability(name) => format!("\u{1b}P0+r{name}\u{1b}\\"),
        Query::Graphics(item) => format!("\u{1b}[?{item};3;0S"),
        Query::Palette { .. } | Query::Silent => String::new(),
    }
}

fn rgb([red, green, blue]: Rgb) -> String {
    format!("rgb:{red:04x}/{green:04x}/{blue:04x}")
}

/// xterm's palette: 16 colours, a cube of 6, a ramp of greys.
fn palette(index: u8) -> Rgb {
    const FIRST: [[u8; 3]; 16] = [
        [0, 0, 0],
        [205, 0, 0],
        [0, 205, 0],
        [205, 205, 0],
        [0, 0, 238],
        [205, 0, 205],
        [0, 205, 205],
        [229, 229, 229],
        [127, 127, 127],
        [255, 0, 0],
        [0, 255, 0],
        [255, 255, 0],
        [92, 92, 255],
        [255, 0, 255],
        [0, 255, 255],
        [255, 255, 255],
    ];
    let level = |step: u8| if step == 0 { 0 } else { 55 + 40 * step };
    let colour = match (FIRST.get(usize::from(index)), index) {
        (Some(colour), _) => *colour,
        (None, 232..) => [8 + 10 * (index - 232); 3],
        (None, _) => {
            let cube = index - 16;
            [level(cube / 36), level(cube / 6 % 6), level(cube % 6)]
        }
    };
    colour.map(|channel| u16::from(channel) * 0x101)
}

/// A change of the colours, in the text of an OSC that is no question.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// These are set from now on; `None` is back to the usual one.
    Colours(Vec<(usize, Option<Rgb>)>),
    /// The palette is not the usual one any more.
    Palette,
}

/// Reads a change of colours.
pub(super) fn change(body: &str) -> Option<Change> {
    let (number, values) = body.split_once(';').unwrap_or((body, ""));
    match number {
        "4" => Some(Change::Palette),
        "10" | "11" | "12" => {
            let from = usize::from(number.as_bytes().last()? - b'0');
            Some(Change::Colours(
                values
                    .split(';')
                    .take(COLOURS.len())
                    .enumerate()
                    .filter_map(|(nth, value)| Some((from + nth, Some(colour(value)?))))
                    .collect(),
            ))
        }
        "110" | "111" | "112" => {
            let index = usize::from(number.as_bytes().last()? - b'0');
            Some(Change::Colours(vec![(index, None)]))
        }
        _ => None,
    }
}

/// `rgb:R/G/B` with one to four hex digits each, or `#RRGGBB` (XParseColor).
fn colour(text: &str) -> Option<Rgb> {
    let channel = |digits: &str| -> Option<u16> {
        let value = u32::from_str_radix(digits, 16).ok()?;
        let max = (1_u32 << (4 * digits.len().clamp(1, 4))) - 1;
        u16::try_from(value * 0xFFFF / max).ok()
    };
    if let Some(digits) = text.strip_prefix('#').filter(|digits| digits.len() == 6) {
        return Some([
            channel(digits.get(0..2)?)?,
            channel(digits.get(2..4)?)?,
            channel(digits.get(4..6)?)?,
        ]);
    }
    let mut channels = text.strip_prefix("rgb:")?.splitn(3, '/');
    let mut next = || {
        channels
            .next()
            .filter(|digits| digits.len() <= 4)
            .and_then(channel)
    };
    Some([next()?, next()?, next()?])
}

#[cfg(test)]
mod tests {
    use super::super::sequence::shape;
    use super::*;

    fn asked(sequence: &str) -> Option<Query> {
        parse(shape(sequence.as_bytes()), sequence)
    }

    fn answered(sequence: &str) -> String {
        let modes = Modes::default().with_private(2004, true);
        answer(
            &asked(sequence).unwrap(),
            &mut Facts {
                size: Size {
                    cols: 132,
                    rows: 50,
                },
                modes,
                colours: &[None, Some([1, 2, 3]), None],
                has_usual_palette: true,
                cursor: &mut || (3, 14),
            },
        )
    }

    #[test]
    fn every_question_has_one_well_formed_answer() {
        for (question, expected) in [
            ("\u{1b}[6n", "\u{1b}[3;14R"),
            ("\u{1b}[?6n", "\u{1b}[?3;14R"),
            ("\u{1b}[5n", "\u{1b}[0n"),
            ("\u{1b}[c", "\u{1b}[?62;22c"),
            ("\u{1b}[0c", "\u{1b}[?62;22c"),
            ("\u{1b}Z", "\u{1b}[?62;22c"),
            ("\u{1b}[>c", "\u{1b}[>1;10;0c"),
            ("\u{1b}[>0c", "\u{1b}[>1;10;0c"),
            ("\u{1b}[=c", "\u{1b}P!|00000000\u{1b}\\"),
            ("\u{1b}[x", "\u{1b}[2;1;1;128;128;1;0x"),
            ("\u{1b}[14t", "\u{1b}[4;0;0t"),
            ("\u{1b}[18t", "\u{1b}[8;50;132t"),
            ("\u{1b}[19t", "\u{1b}[9;50;132t"),
            ("\u{1b}[21t", "\u{1b}]l\u{1b}\\"),
            ("\u{1b}[?2004$p", "\u{1b}[?2004;1$y"),
            ("\u{1b}[?1049$p", "\u{1b}[?1049;2$y"),
            ("\u{1b}[?9999$p", "\u{1b}[?9999;0$y"),
            ("\u{1b}[4$p", "\u{1b}[4;2$y"),
            ("\u{1b}[?15n", "\u{1b}[?13n"),
            ("\u{1b}[?996n", ""),
            ("\u{1b}[?u", ""),
            ("\u{1b}]10;?\u{7}", "\u{1b}]10;rgb:cccc/cccc/cccc\u{7}"),
            (
                "\u{1b}]11;?\u{1b}\\",
                "\u{1b}]11;rgb:0001/0002/0003\u{1b}\\",
            ),
            (
                "\u{1b}]11;?;?\u{7}",
                "\u{1b}]11;rgb:0001/0002/0003\u{7}\u{1b}]12;rgb:cccc/cccc/cccc\u{7}",
            ),
            (
                "\u{1b}]4;1;?;231;?\u{7}",
                "\u{1b}]4;1;rgb:cdcd/0000/0000\u{7}\u{1b}]4;231;rgb:ffff/ffff/ffff\u{7}",
            ),
            ("\u{1b}]52;c;?\u{7}", ""),
            ("\u{1b}P$qm\u{1b}\\", "\u{1b}P0$r\u{1b}\\"),
            ("\u{1b}P+q544e\u{1b}\\", "\u{1b}P0+r544e\u{1b}\\"),
            ("\u{1b}[?1;1;0S", "\u{1b}[?1;3;0S"),
        ] {
            assert_eq!(answered(question), expected, "{question:?}");
        }
        assert!(answered("\u{1b}[>0q").starts_with("\u{1b}P>|shellward("));
    }

    #[test]
    fn what_only_looks_like_a_question_is_none() {
        for text in [
            "\u{1b}[m",
            "\u{1b}[1;31m",
            "\u{1b}[3n",
            "\u{1b}[1c",
            "\u{1b}[8;24;80t",
            "\u{1b}[22;0t",
            "\u{1b}[!p",
            "\u{1b}[2 q",
            "\u{1b}[u",
            "\u{1b}[3S",
            "\u{1b}[99999999999n",
            "\u{1b}7",
            "\u{1b}]10;#ffffff\u{7}",
            "\u{1b}]4;1;rgb:0/0/0\u{7}",
            "\u{1b}]4;1\u{7}",
            "\u{1b}]52;c;aGk=\u{7}",
            "\u{1b}]10;?;?;?;?\u{7}",
            "\u{1b}]0;?\u{7}",
            "\u{1b}Pq#0\u{1b}\\",
            "\u{1b}_Gi=1\u{1b}\\",
        ] {
            assert_eq!(asked(text), None, "{text:?}");
        }
    }

    #[test]
    fn unfinished_strings_wait_only_while_they_may_be_questions() {
        for body in ["1", "10;", "11;?", "4;1;", "52;", "52;c", "52;c;", "52;c;?"] {
            assert!(may_become(Shape::Osc, body), "{body}");
        }
        for body in ["0;", "52;c;aGk", "8;;http://x"] {
            assert!(!may_become(Shape::Osc, body), "{body}");
        }
        assert!(!may_become(Shape::Osc, &format!("10;{}", "x".repeat(600))));
        assert!(may_become(Shape::Text, ""));
        assert!(may_become(Shape::Text, "$q\"p"));
        assert!(!may_become(Shape::Text, "q#0"));
    }

    #[test]
    fn colours_that_were_set_are_known() {
        assert_eq!(
            change("10;#ff8000"),
            Some(Change::Colours(vec![(0, Some([0xFFFF, 0x8080, 0]))]))
        );
        assert_eq!(
            change("11;rgb:f/00/123"),
            Some(Change::Colours(vec![(1, Some([0xFFFF, 0, 0x1231]))]))
        );
        assert_eq!(change("11;red"), Some(Change::Colours(vec![])));
        assert_eq!(change("112"), Some(Change::Colours(vec![(2, None)])));
        assert_eq!(change("4;1;#ffffff"), Some(Change::Palette));
        assert_eq!(change("0;t"), None);
    }
}
