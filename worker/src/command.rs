//! The three forms of a command, as what is executed.
//!
//! What lives here: argument vectors and quoting, all pure. What must not: looking at files,
//! starting anything.

use shellward_protocol::message::Command;

/// What the exec stage executes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Absolute path of the shell.
    pub(crate) program: Vec<u8>,
    /// Its arguments, beginning with its own name.
    pub(crate) argv: Vec<Vec<u8>>,
}

/// The shell alone, or the shell with a line to run.
///
/// The name it gets has no leading dash: that would make it a login shell, which reads other
/// start-up files than people expect in a terminal inside a session.
pub(crate) fn plan(shell: &[u8], command: &Command<'_>) -> Plan {
    let name = shell.rsplit(|byte| *byte == b'/').next().unwrap_or(shell);
    let mut argv = vec![name.to_vec()];
    match command {
        Command::Shell => {}
        Command::Line(line) => argv.extend([b"-c".to_vec(), line.as_slice().to_vec()]),
        Command::Program(words) => {
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_slice()).collect();
            argv.extend([b"-c".to_vec(), join(&words)]);
        }
    }
    Plan {
        program: shell.to_vec(),
        argv,
    }
}

/// Words that mean something else to a shell where a program's name is expected.
const RESERVED: [&[u8]; 20] = [
    b"case",
    b"coproc",
    b"do",
    b"done",
    b"elif",
    b"else",
    b"esac",
    b"fi",
    b"for",
    b"foreach",
    b"function",
    b"if",
    b"in",
    b"nocorrect",
    b"repeat",
    b"select",
    b"then",
    b"time",
    b"until",
    b"while",
];

/// One line that a POSIX shell splits into exactly `words` again.
fn join(words: &[&[u8]]) -> Vec<u8> {
    let mut line = Vec::new();
    for (index, word) in words.iter().enumerate() {
        if index > 0 {
            line.push(b' ');
        }
        if word.is_empty()
            || !word.iter().all(|byte| is_plain(*byte))
            || index == 0 && RESERVED.contains(word)
        {
            quote(word, &mut line);
        } else {
            line.extend_from_slice(word);
        }
    }
    line
}

/// Whether `byte` means itself everywhere in a word. `=` does not: it makes an assignment of a
/// first word, and zsh expands it at the start of others; nor do `~` and `%`.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-./,:@+".contains(&byte)
}

fn quote(word: &[u8], line: &mut Vec<u8>) {
    line.push(b'\'');
    for byte in word {
        match byte {
            b'\'' => line.extend_from_slice(b"'\\''"),
            other => line.push(*other),
        }
    }
    line.push(b'\'');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shellward_protocol::Data;
    use std::os::unix::ffi::OsStringExt;

    fn words(words: &[&str]) -> Vec<u8> {
        join(&words.iter().map(|word| word.as_bytes()).collect::<Vec<_>>())
    }

    #[test]
    fn shell_alone_is_no_login_shell() {
        let plan = plan(b"/bin/bash", &Command::Shell);
        assert_eq!(plan.program, b"/bin/bash");
        assert_eq!(plan.argv, [b"bash".to_vec()]);
    }

    #[test]
    fn line_is_left_untouched() {
        let line = Command::Line(Data::borrowed(b"echo \"$X\" '\xff' | wc"));
        assert_eq!(
            plan(b"/bin/sh", &line).argv,
            [
                b"sh".to_vec(),
                b"-c".to_vec(),
                b"echo \"$X\" '\xff' | wc".to_vec()
            ]
        );
    }

    #[test]
    fn only_words_that_need_it_are_quoted() {
        assert_eq!(words(&["ls", "-l", "/tmp/a.b"]), b"ls -l /tmp/a.b");
        assert_eq!(words(&["ls", "a b", ""]), b"ls 'a b' ''");
        assert_eq!(words(&["it's"]), b"'it'\\''s'");
        assert_eq!(words(&["A=b", "if"]), b"'A=b' if");
        assert_eq!(words(&["time", "~"]), b"'time' '~'");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_shell_gives_the_words_back(
            words in proptest::collection::vec(
                proptest::collection::vec(
                    prop_oneof![1_u8..=255, proptest::sample::select(b"'\"\\$`!*?~=#&|; \n\t(){}[]<>%".to_vec())],
                    0..12,
                ),
                1..6,
            ),
        ) {
            let mut all: Vec<&[u8]> = vec![b"printf", b"%s\\0"];
            all.extend(words.iter().map(Vec::as_slice));
            let line = std::ffi::OsString::from_vec(join(&all));
            let output = std::process::Command::new("/bin/sh").arg("-c").arg(line).output().unwrap();
            let mut expected = Vec::new();
            for word in &words {
                expected.extend_from_slice(word);
                expected.push(0);
            }
            prop_assert_eq!(output.stdout, expected);
        }
    }
}
