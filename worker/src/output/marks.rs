//! What a shell says about its prompts, commands and directory.
//!
//! What lives here: from the text of an OSC to a [`Mark`], pure. What must not: whom to believe,
//! what follows from it.
//!
//! Sources: OSC 133 as FinalTerm began it and the "semantic prompts" proposal of Per Bothner
//! describes it; OSC 633 as VS Code documents it; OSC 7 (a `file:` URI); OSC 9;9 (ConEmu, Windows
//! Terminal) and OSC 1337;CurrentDir (iTerm2), both a path.

use percent_encoding::percent_decode_str;

/// A mark, with what it carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mark {
    /// A prompt begins.
    Prompt,
    /// The prompt has ended: what follows is what is typed.
    PromptEnd,
    /// A continuation prompt or a right prompt begins: not what is typed.
    Aside,
    /// It has ended.
    AsideEnd,
    /// What was typed, as the shell knows it.
    Line(String),
    /// A command runs.
    Executed,
    /// It has ended; with its exit code, if the shell told one.
    Finished(Option<i32>),
    /// The directory, as the bytes of a path.
    Directory(Vec<u8>),
    /// Our own script is at work.
    Loaded,
    /// A mark that means nothing here.
    Other,
}

/// A mark and the word that proves where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signed {
    pub(crate) mark: Mark,
    /// Its last field, where OSC 633 puts a nonce.
    pub(crate) signature: Option<String>,
    /// Whether it is of OSC 133 or 633, not a mere directory.
    pub(crate) is_command_mark: bool,
}

/// Whether the text of an OSC is a mark or could still become one; `None` while it cannot be told.
pub(super) fn is_mark(body: &str) -> Option<bool> {
    const PREFIXES: [&str; 5] = ["133;", "633;", "7;", "9;9;", "1337;CurrentDir="];
    if PREFIXES.iter().any(|prefix| body.starts_with(prefix)) {
        return Some(true);
    }
    match PREFIXES.iter().any(|prefix| prefix.starts_with(body)) {
        true => None,
        false => Some(false),
    }
}

/// Reads a whole mark; `body` is what [`is_mark`] said yes to.
pub(super) fn parse(body: &str) -> Signed {
    let (number, rest) = body.split_once(';').unwrap_or((body, ""));
    let directory = |mark: Option<Vec<u8>>| Signed {
        mark: mark.map_or(Mark::Other, Mark::Directory),
        signature: None,
        is_command_mark: false,
    };
    match number {
        "7" => directory(from_file_uri(rest)),
        "9" => directory(path(rest.strip_prefix("9;").unwrap_or_default())),
        "1337" => directory(path(rest.strip_prefix("CurrentDir=").unwrap_or_default())),
        "133" => Signed {
            mark: semantic_prompt(rest),
            signature: None,
            is_command_mark: true,
        },
        _ => vscode(rest),
    }
}

fn semantic_prompt(text: &str) -> Mark {
    let mut fields = text.split(';');
    let kind = fields.next().unwrap_or_default();
    // `k=c` and `k=s` are continuation prompts, `k=r` is one at the right.
    let is_aside = || {
        text.split(';')
            .any(|field| matches!(field, "k=c" | "k=s" | "k=r"))
    };
    match kind {
        "A" | "N" | "P" if is_aside() => Mark::Aside,
        "A" | "N" | "P" => Mark::Prompt,
        "B" | "I" => Mark::PromptEnd,
        "C" => Mark::Executed,
        "D" => Mark::Finished(fields.next().and_then(exit_code)),
        _ => Mark::Other,
    }
}

fn vscode(text: &str) -> Signed {
    let mut fields = text.split(';');
    let kind = fields.next().unwrap_or_default();
    let second = fields.next();
    let signature = text.rsplit_once(';').map(|(_, last)| last.to_owned());
    let property = || second.and_then(|field| field.split_once('='));
    let mark = match kind {
        "A" => Mark::Prompt,
        "B" => Mark::PromptEnd,
        "C" => Mark::Executed,
        "D" => Mark::Finished(second.and_then(exit_code)),
        "E" => second.and_then(unescape).map_or(Mark::Other, Mark::Line),
        "F" | "H" => Mark::Aside,
        "G" | "I" => Mark::AsideEnd,
        "P" => match property() {
            Some(("Cwd", value)) => unescape(value)
                .and_then(|value| path(&value))
                .map_or(Mark::Other, Mark::Directory),
            Some(("Shellward", _)) => Mark::Loaded,
            _ => Mark::Other,
        },
        _ => Mark::Other,
    };
    Signed {
        mark,
        signature,
        is_command_mark: true,
    }
}

/// Shells have codes up to 255, others on the wire might have more; a sign is possible.
fn exit_code(text: &str) -> Option<i32> {
    text.parse().ok()
}

/// Undoes the escaping of OSC 633: `\\` and `\xHH`. Absent if the bytes are no text.
pub(super) fn unescape(text: &str) -> Option<String> {
    if !text.contains('\\') {
        return Some(text.to_owned());
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        match tail {
            [b'\\', after @ ..] => {
                bytes.push(b'\\');
                rest = after;
            }
            [b'x', high, low, after @ ..] => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    bytes.push(high * 16 + low);
                    rest = after;
                }
                _ => bytes.push(b'\\'),
            },
            _ => bytes.push(b'\\'),
        }
    }
    String::from_utf8(bytes).ok()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
}

fn path(text: &str) -> Option<Vec<u8>> {
    directory_path(text.as_bytes().to_vec())
}

/// A path that can be told as a directory's: absolute, without control characters (field case S-14).
pub(super) fn directory_path(path: Vec<u8>) -> Option<Vec<u8>> {
    let is_fine = path.first() == Some(&b'/')
        && path.len() < shellward_protocol::limits::PATH_MAX
        && !path.iter().any(|byte| *byte < 0x20 || *byte == 0x7F);
    is_fine.then_some(path)
}

/// The path of a `file:` URI of this machine (RFC 8089): the host empty, `localhost` or our own.
fn from_file_uri(uri: &str) -> Option<Vec<u8>> {
    let rest = uri
        .get(..5)
        .filter(|scheme| scheme.eq_ignore_ascii_case("file:"));
    let rest = rest.and_then(|_| uri.get(5..))?;
    let encoded = match rest.strip_prefix("//") {
        None => rest,
        Some(rest) => {
            let (host, _) = rest.split_at(rest.find('/')?);
            if !is_local(host) {
                return None;
            }
            rest.get(host.len()..)?
        }
    };
    // Percent signs that encode nothing stand for themselves: shells print paths unencoded, too.
    directory_path(percent_decode_str(encoded).collect())
}

fn is_local(host: &str) -> bool {
    if host.is_empty() || host.eq_ignore_ascii_case("localhost") {
        return true;
    }
    let name = nix::unistd::gethostname().ok();
    let name = name
        .as_deref()
        .and_then(std::ffi::OsStr::to_str)
        .unwrap_or_default();
    // With or without a domain, on either side.
    let first = |name: &str| {
        name.split('.')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase()
    };
    !name.is_empty()
        && (host.eq_ignore_ascii_case(name)
            || ((!host.contains('.') || !name.contains('.')) && first(host) == first(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(body: &str) -> Mark {
        assert_eq!(is_mark(body), Some(true), "{body}");
        parse(body).mark
    }

    fn directory(body: &str) -> Option<String> {
        match mark(body) {
            Mark::Directory(path) => Some(
                path.iter()
                    .map(|byte| char::from(*byte))
                    .collect::<String>(),
            ),
            Mark::Other => None,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn semantic_prompts_are_read_with_what_shells_add() {
        for (body, expected) in [
            ("133;A", Mark::Prompt),
            ("133;A;cl=m;aid=17", Mark::Prompt),
            ("133;A;k=s", Mark::Aside),
            ("133;P;k=c;aid=2", Mark::Aside),
            ("133;P;k=r", Mark::Aside),
            ("133;P;k=i", Mark::Prompt),
            ("133;B", Mark::PromptEnd),
            ("133;C;", Mark::Executed),
            ("133;C;cmdline=ls", Mark::Executed),
            ("133;D", Mark::Finished(None)),
            ("133;D;", Mark::Finished(None)),
            ("133;D;7", Mark::Finished(Some(7))),
            ("133;D;130;err=INT;aid=2", Mark::Finished(Some(130))),
            ("133;D;99999999999", Mark::Finished(None)),
            ("133;D;x", Mark::Finished(None)),
            ("133;Z", Mark::Other),
            ("133;", Mark::Other),
        ] {
            assert_eq!(mark(body), expected, "{body}");
        }
    }

    #[test]
    fn vscodes_marks_are_read_with_their_signature() {
        let signed = |body: &str| {
            let signed = parse(body);
            (signed.mark, signed.signature.unwrap_or_default())
        };
        assert_eq!(
            signed("633;E;for i in 1 2\\x0ado echo \\x3b\\\\ é\\x0adone;n1"),
            (
                Mark::Line("for i in 1 2\ndo echo ;\\ é\ndone".to_owned()),
                "n1".to_owned()
            )
        );
        assert_eq!(signed("633;A;n1"), (Mark::Prompt, "n1".to_owned()));
        assert_eq!(
            signed("633;D;3;n1"),
            (Mark::Finished(Some(3)), "n1".to_owned())
        );
        assert_eq!(
            signed("633;P;Cwd=/a\\x3bb;n1"),
            (Mark::Directory(b"/a;b".to_vec()), "n1".to_owned())
        );
        assert_eq!(
            signed("633;P;Shellward=bash;n1"),
            (Mark::Loaded, "n1".to_owned())
        );
        assert_eq!(signed("633;P;IsWindows=False").0, Mark::Other);
        assert_eq!(signed("633;E;\\xff").0, Mark::Other);
        assert_eq!(signed("633;E").0, Mark::Other);
        assert_eq!(signed("633;F").0, Mark::Aside);
        assert_eq!(signed("633;G").0, Mark::AsideEnd);
    }

    #[test]
    fn escapes_that_are_none_stay() {
        assert_eq!(unescape("a\\nb\\x4\\"), Some("a\\nb\\x4\\".to_owned()));
    }

    #[test]
    fn what_may_become_a_mark_is_undecided() {
        for body in ["", "1", "13", "133", "1337;Cur", "9", "9;", "9;9"] {
            assert_eq!(is_mark(body), None, "{body}");
        }
        for body in ["0;", "2;t", "1337;File=x", "9;4;1", "13;", "52;c;", "8;;x"] {
            assert_eq!(is_mark(body), Some(false), "{body}");
        }
    }

    #[test]
    fn s14_only_directories_of_this_machine_are_taken() {
        for (body, expected) in [
            ("7;file:///a%20b", Some("/a b")),
            ("7;file:///a#b?c", Some("/a#b?c")),
            ("7;file:///a%2520b", Some("/a%20b")),
            ("7;file:/a", Some("/a")),
            ("7;file://localhost/a", Some("/a")),
            ("7;FILE://LOCALHOST/a", Some("/a")),
            ("7;file:///a%ffb", Some("/a\u{ff}b")),
            ("7;file:///100%", Some("/100%")),
            ("7;file:///../..", Some("/../..")),
            ("7;file://otherhost.example/etc", None),
            ("7;file:///x%00y", None),
            ("7;file:///x%0Ay", None),
            ("7;http://h/x", None),
            ("7;", None),
            ("7;file://", None),
            ("7;file:a", None),
            ("7;kitty-shell-cwd:///x", None),
            ("9;9;/tmp", Some("/tmp")),
            ("9;9;C:\\x", None),
            ("1337;CurrentDir=/tmp/ü", Some("/tmp/\u{c3}\u{bc}")),
            ("1337;CurrentDir=", None),
        ] {
            assert_eq!(directory(body).as_deref(), expected, "{body}");
        }
        let long = format!("7;file:///{}", "x".repeat(5000));
        assert_eq!(directory(&long), None);
    }
}
