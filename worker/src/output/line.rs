//! Which of three accounts of a command line is the right one.
//!
//! What lives here: comparing them, pure. What must not: how each comes about.

use shellward_protocol::text::boundary;

/// The command line: what the shell said (`told`), what it echoed, what was typed.
///
/// bash tells a command of several lines as its history holds it, joined by `; ` or a blank; the
/// echo has the lines as they were typed, but shows a tab or a control character as something
/// else. So where both tell the same command, the lines are the echo's.
pub(super) fn choose(told: Option<String>, echoed: &str, typed: &str) -> String {
    let echoed = echoed.trim();
    // A here-document leaves its last line end in the history.
    match told.map(|told| told.trim_end_matches('\n').to_owned()) {
        Some(told) if is_joined(&told, echoed) => echoed.to_owned(),
        Some(told) => told,
        None if !echoed.is_empty() => echoed.to_owned(),
        None => typed.trim().to_owned(),
    }
}

/// Whether `told` is the lines of `echoed`, put together the way bash does it.
fn is_joined(told: &str, echoed: &str) -> bool {
    let mut lines = echoed.split('\n');
    if !echoed.contains('\n') {
        return false;
    }
    let Some(mut rest) = lines
        .next()
        .and_then(|first| told.strip_prefix(first.trim_end()))
    else {
        return false;
    };
    for line in lines {
        let line = line.trim_end();
        // Most joints are one of these; a line that ends in a backslash vanishes with its end.
        let after = ["\n", "; ", ";", " ", ""].iter().find_map(|joint| {
            rest.trim_start_matches([' ', '\t'])
                .strip_prefix(joint.trim_start())
                .or_else(|| rest.strip_prefix(joint))?
                .trim_start_matches([' ', '\t'])
                .strip_prefix(line.trim_start())
        });
        match after {
            Some(after) => rest = after,
            None => return false,
        }
    }
    rest.trim().is_empty()
}

/// At most `max` bytes of `text`, cut between characters.
pub(super) fn bounded(mut text: String, max: usize) -> String {
    text.truncate(boundary(&text, max));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str, echoed: &str) -> String {
        choose(Some(text.to_owned()), echoed, "typed")
    }

    #[test]
    fn lines_of_a_joined_command_are_the_echos() {
        let echo = "for i in 1 2\ndo echo $i\ndone";
        assert_eq!(told("for i in 1 2; do echo $i; done", echo), echo);
        let echo = "cat <<E\nx;y\\z\nE";
        assert_eq!(told("cat <<E\nx;y\\z\nE", echo), echo);
        assert_eq!(
            told("if true; then echo; fi", "if true\nthen echo\nfi"),
            "if true\nthen echo\nfi"
        );
        assert_eq!(told("cat <<E\nx\nE\n", ""), "cat <<E\nx\nE");
        assert_eq!(told("ls -l", "ls -l"), "ls -l");
    }

    #[test]
    fn shell_wins_where_the_echo_tells_something_else() {
        assert_eq!(told("printf 'a\tb'", "printf 'a       b'"), "printf 'a\tb'");
        assert_eq!(told("echo hi", "!!\necho hi"), "echo hi");
        assert_eq!(told("a; b", "a\nc"), "a; b");
        assert_eq!(told("a; b; c", "a\nb"), "a; b; c");
    }

    #[test]
    fn without_the_shell_the_echo_and_then_the_keys_count() {
        assert_eq!(choose(None, " ls \n", "typed"), "ls");
        assert_eq!(choose(None, "", "typed\n"), "typed");
        assert_eq!(choose(None, "", ""), "");
    }

    #[test]
    fn length_is_bounded_between_characters() {
        assert_eq!(bounded("aé".to_owned(), 2), "a");
        assert_eq!(bounded("aé".to_owned(), 3), "aé");
    }
}
