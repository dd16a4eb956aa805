//! The escapes of `shellward send`.

/// Replaces `\r`, `\n`, `\t`, `\e`, `\0`, `\\`, `\xHH` and `\u{H…}`.
///
/// # Errors
/// What is malformed, and how to write a backslash.
pub(super) fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(rest.get(..at).unwrap_or_default());
        let after = rest.get(at + 1..).unwrap_or_default();
        let mut chars = after.chars();
        let simple = match chars.next() {
            Some('r') => Some('\r'),
            Some('n') => Some('\n'),
            Some('t') => Some('\t'),
            Some('e') => Some('\u{1b}'),
            Some('0') => Some('\0'),
            Some('\\') => Some('\\'),
            _ => None,
        };
        let (character, used) = match simple {
            Some(character) => (character, 1),
            None => numbered(after).ok_or_else(|| {
                let shown: String = after.chars().take(6).collect();
                format!("\\{shown} is no escape; write \\\\ for a backslash, or use --raw")
            })?,
        };
        out.push(character);
        rest = after.get(used..).unwrap_or_default();
    }
    out.push_str(rest);
    Ok(out)
}

/// `xHH` (below 0x80: text is UTF-8) or `u{H…}`, and the length of it.
fn numbered(text: &str) -> Option<(char, usize)> {
    if let Some(digits) = text.strip_prefix('x').and_then(|rest| rest.get(..2)) {
        let byte = u8::from_str_radix(digits, 16).ok().filter(u8::is_ascii)?;
        return digits
            .bytes()
            .all(|b| b.is_ascii_hexdigit())
            .then_some((char::from(byte), 3));
    }
    let (digits, _) = text.strip_prefix("u{")?.split_once('}')?;
    let all_digits = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let number = u32::from_str_radix(digits, 16)
        .ok()
        .filter(|_| all_digits)?;
    Some((char::from_u32(number)?, digits.len() + 3))
}

#[cfg(test)]
mod tests {
    use super::unescape;

    #[test]
    fn escapes_are_replaced_and_bad_ones_explained() {
        assert_eq!(unescape(r"echo hi\r").unwrap(), "echo hi\r");
        assert_eq!(
            unescape(r"\x03\e[A\t\\x\u{1F600}漢\0").unwrap(),
            "\u{3}\u{1b}[A\t\\x😀漢\0"
        );
        for bad in [
            r"\",
            r"\q",
            r"\x4",
            r"\xzz",
            r"\xff",
            r"\u{}",
            r"\u{d800}",
            r"\u{1",
            r"\x+1",
            r"\漢",
        ] {
            assert!(unescape(bad).unwrap_err().contains("--raw"), "{bad}");
        }
    }
}
