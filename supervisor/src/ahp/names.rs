//! Names that cross the boundary: channel URIs, directories as `file:` URIs, titles.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use ahp_types::common::ROOT_RESOURCE_URI;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use crate::limits::{TITLE_CHARS, URI_BYTES};

/// The root channel as we write it.
pub const ROOT: &str = ROOT_RESOURCE_URI;

/// How the names of our own commands' clients begin. None of them ever comes back.
pub const OWN_CLIENTS: &str = "shellward-cli-";

/// Whether `uri` is the root channel; VS Code's URI class shortens it (ahp-facts 8.10).
#[must_use]
pub fn is_root(uri: &str) -> bool {
    uri == ROOT || uri == "ahp-root:"
}

/// Schemes that AHP gives to other kinds of channel (design.md, "terminal URI").
const RESERVED: [&str; 8] = [
    "ahp-root",
    "ahp-session",
    "ahp-chat",
    "ahp-changeset",
    "ahp-otlp",
    "ahp-resource-watch",
    "ahp-canvas",
    "ahp-automations",
];

/// Whether a terminal may be named by `uri`.
///
/// # Errors
/// Why not, in words.
pub fn check_terminal_uri(uri: &str) -> Result<(), String> {
    if uri.len() > URI_BYTES {
        return Err(format!("the channel URI is longer than {URI_BYTES} bytes"));
    }
    let Some((scheme, rest)) = uri.split_once(':') else {
        return Err("the channel must be a URI such as ahp-terminal:/NAME".into());
    };
    let mut letters = scheme.bytes();
    let well_formed = letters
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic())
        && letters.all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    if !well_formed || rest.is_empty() {
        return Err("the channel must be a URI such as ahp-terminal:/NAME".into());
    }
    if uri.chars().any(is_hidden) {
        return Err("the channel URI has invisible characters".into());
    }
    if RESERVED
        .iter()
        .any(|reserved| scheme.eq_ignore_ascii_case(reserved))
    {
        return Err(format!(
            "the scheme {scheme}: belongs to another kind of channel; use ahp-terminal:/NAME"
        ));
    }
    Ok(())
}

/// The bytes RFC 3986 lets stand in a path (`pchar` and `/`); all others are percent-encoded.
const PATH_BYTES: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');

/// A directory as a `file:` URI; any bytes survive.
#[must_use]
pub fn directory_to_uri(path: &Path) -> String {
    format!(
        "file://{}",
        percent_encode(path.as_os_str().as_bytes(), PATH_BYTES)
    )
}

/// A `file:` URI of this machine, or an absolute path, as a directory. It need not exist.
///
/// # Errors
/// Another scheme or host, a relative path, a query or fragment, a NUL: in words.
pub fn directory_from_uri(text: &str) -> Result<PathBuf, String> {
    if text.len() > 3 * URI_BYTES {
        return Err("cwd is too long".into());
    }
    let bytes = if text.starts_with('/') {
        text.as_bytes().to_vec()
    } else {
        let rest = text
            .get(..5)
            .filter(|scheme| scheme.eq_ignore_ascii_case("file:"))
            .and_then(|_| text.get(5..))
            .ok_or("cwd must be a file: URI or an absolute path")?;
        let path = match rest.strip_prefix("//") {
            Some(after) => {
                let (host, path) = after.split_at(after.find('/').unwrap_or(after.len()));
                if !(host.is_empty() || host.eq_ignore_ascii_case("localhost")) {
                    return Err("cwd names a directory of another host".into());
                }
                path
            }
            None => rest,
        };
        if path.contains(['?', '#']) {
            return Err("cwd has a query or fragment; encode # as %23 and ? as %3F".into());
        }
        percent_decode_str(path).collect()
    };
    if !bytes.starts_with(b"/") {
        return Err("cwd must be an absolute directory".into());
    }
    if bytes.contains(&0) {
        return Err("cwd has a NUL byte".into());
    }
    Ok(PathBuf::from(OsString::from_vec(bytes)))
}

/// Whether a character moves the cursor, turns the direction of text, or is not seen at all. The
/// joiners stay: emoji and several scripts are made with them.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}'
        )
}

/// A title without control characters and bidirectional overrides, trimmed, at most
/// [`TITLE_CHARS`] characters; `None` when nothing is left.
#[must_use]
pub fn clean_title(text: &str) -> Option<String> {
    let kept: String = text
        .chars()
        .filter(|c| !is_hidden(*c))
        .take(TITLE_CHARS)
        .collect();
    let kept = kept.trim();
    (!kept.is_empty()).then(|| kept.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn any_scheme_names_a_terminal_except_the_reserved() {
        for good in [
            "ahp-terminal:/x",
            "agenthost-terminal:/a",
            "agenthost-terminal://shell/a",
            "agenthost-terminal://bang/a",
            "x:y",
            "file:///a%20b",
        ] {
            assert_eq!(check_terminal_uri(good), Ok(()), "{good}");
        }
        for bad in [
            "ahp-root://",
            "ahp-session:/x",
            "AHP-Chat:/x",
            "ahp-otlp://l",
            "nothing",
            "",
            ":x",
            "x:",
            "1x:/y",
            "a b:/y",
            "ahp-terminal:/a\nb",
            "ahp-terminal:/\u{202e}evil",
        ] {
            assert!(check_terminal_uri(bad).is_err(), "{bad}");
        }
        assert!(check_terminal_uri(&format!("x:{}", "a".repeat(URI_BYTES))).is_err());
    }

    #[test]
    fn directories_are_decoded_once() {
        for (text, path) in [
            ("file:///a%20b", "/a b"),
            ("file:///a%2520b", "/a%20b"),
            ("file:///a%23b", "/a#b"),
            ("file://localhost/x", "/x"),
            ("FILE:///x", "/x"),
            ("file:/x", "/x"),
            ("/plain %20#path", "/plain %20#path"),
            ("file:///%E6%BC%A2", "/漢"),
        ] {
            assert_eq!(directory_from_uri(text), Ok(PathBuf::from(path)), "{text}");
        }
        for bad in [
            "",
            "relative",
            "http://h/x",
            "file://other/x",
            "file:x",
            "file://",
            "file:///a#b",
            "file:///a?b",
            "file:///a%00b",
            "ahp-root://",
        ] {
            assert!(directory_from_uri(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_directory_survives_the_round_trip(bytes in proptest::collection::vec(1_u8.., 0..60)) {
            let mut path = b"/".to_vec();
            path.extend(bytes);
            let path = PathBuf::from(OsString::from_vec(path));
            prop_assert_eq!(directory_from_uri(&directory_to_uri(&path)), Ok(path));
        }

        #[test]
        fn a_title_is_clean_short_and_stable(text in any::<String>()) {
            if let Some(title) = clean_title(&text) {
                prop_assert!(title.chars().count() <= TITLE_CHARS);
                prop_assert!(!title.chars().any(char::is_control));
                prop_assert_eq!(clean_title(&title), Some(title));
            }
        }
    }

    #[test]
    fn control_characters_leave_a_title() {
        assert_eq!(clean_title("a\u{1b}[31mb\n"), Some("a[31mb".into()));
        assert_eq!(clean_title("\u{7}\t "), None);
    }
}
