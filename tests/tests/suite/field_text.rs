//! Text torture: whatever is printed, what arrives is what a reference decoder makes of it.

use std::fs;
use std::time::Duration;

use shellward_tests::{Host, Raw, Term};

/// Prints a file as it is and gives what arrives of it.
async fn shown(bytes: &[u8]) -> String {
    let host = Host::dash();
    let path = host.folder().join("torture");
    fs::write(&path, bytes).unwrap();
    let raw = Raw::open(&host).await;
    let mut terminal = Term::create(&raw).await;
    if terminal.is_pty() {
        terminal.line("stty -opost -echo; printf r''aw").await;
        terminal.wait_text("raw").await;
    }
    let mark = terminal.seen.len();
    let command = format!("printf '<BEGIN>'; cat {}; printf '<EN''D>'", path.display());
    terminal.line(&command).await;
    terminal
        .wait_text_within("<END>", Duration::from_secs(60))
        .await;
    terminal.assert_equals_snapshot().await;
    let seen = &terminal.seen[mark..];
    let from = seen.find("<BEGIN>").unwrap() + "<BEGIN>".len();
    let to = seen.rfind("<END>").unwrap();
    let text = seen[from..to].to_owned();
    host.stop();
    text
}

#[track_caller]
fn assert_same(shown: &str, expected: &str) {
    if shown != expected {
        let at = shown
            .bytes()
            .zip(expected.bytes())
            .position(|(a, b)| a != b)
            .unwrap_or_else(|| shown.len().min(expected.len()));
        let around = |text: &str| {
            let from = (0..=at.saturating_sub(20))
                .rev()
                .find(|i| text.is_char_boundary(*i))
                .unwrap_or(0);
            text[from..].chars().take(40).collect::<String>()
        };
        panic!(
            "differs at byte {at} of {} and {}:\n{:?}\n{:?}",
            shown.len(),
            expected.len(),
            around(shown),
            around(expected)
        );
    }
}

/// Numbers that look random and are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[tokio::test]
async fn a_mebibyte_of_random_bytes_is_what_a_reference_decoder_makes_of_it() {
    // No ESC: among so many there would be questions, which are answered and not shown. Streams
    // with sequences are in the worker's tests of its scanner.
    let mut random = Random(0x5EED);
    let bytes: Vec<u8> = std::iter::repeat_with(|| u8::try_from(random.next() & 0xFF).unwrap())
        .filter(|byte| *byte != 0x1B)
        .take(1 << 20)
        .collect();
    assert_same(&shown(&bytes).await, &String::from_utf8_lossy(&bytes));
}

#[tokio::test]
async fn every_character_of_every_plane_arrives() {
    let all: String = ('\0'..=char::MAX).filter(|c| *c != '\u{1b}').collect();
    assert_same(&shown(all.as_bytes()).await, &all);
}

#[tokio::test]
async fn awkward_text_arrives_byte_for_byte() {
    let text = [
        "e\u{301}a\u{308}\u{323} \u{915}\u{94D}\u{937} \u{1100}\u{1161}\u{11A8}",
        "\u{1F468}\u{200D}\u{1F469}\u{200D}\u{1F467} \u{1F1E9}\u{1F1EA} \u{2764}\u{FE0F} \u{1F44D}\u{1F3FD}",
        "unix\nmac\rdos\r\nboth\n\r\r\r\n",
        "\0nul\0\u{1}\u{7}\u{8}\t\u{b}\u{c}\u{e}\u{f}\u{7f}",
        "\u{80}\u{85}\u{9b}31m\u{9d}0;t\u{9c}",
        "\u{feff}\u{200e}\u{202e}rtl\u{202c}\u{2028}\u{2029}\u{fffd}\u{ffff}\u{10ffff}",
        " trailing blanks   \n\n\n",
    ]
    .concat();
    assert_same(&shown(text.as_bytes()).await, &text);
}

#[tokio::test]
async fn invalid_bytes_are_replaced_one_for_each_maximal_part() {
    let mut bytes = Vec::new();
    for part in [
        &b"lone \x80\xbf\x9c\x9b31m\x9d0;t\x9c "[..],
        b"cut \xe2\x94 \xf0\x9f\x98 \xc3 ",
        b"overlong \xc0\xaf\xe0\x80\xaf ",
        b"surrogate \xed\xa0\x80 ",
        b"beyond \xf4\x90\x80\x80\xff\xfe ",
        b"end \xf0\x9f",
    ] {
        bytes.extend_from_slice(part);
    }
    assert_same(&shown(&bytes).await, &String::from_utf8_lossy(&bytes));
}
