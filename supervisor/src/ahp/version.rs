//! Which protocol version a connection speaks, and which shape it is served.

/// A protocol version's shape. Each connection has one for its whole life.
///
/// 0.9 and 1.0 are alike in everything a terminal host sends (ahp-facts 2.1), so nothing branches
/// on it yet; older versions will differ where [`super::envelope`] and [`super::document`] render.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Profile {
    /// 0.9.x
    V09,
    /// 1.x.y
    V10,
}

/// What `-32005` tells the client we speak.
pub const SUPPORTED: [&str; 2] = ["^1.0.0", "^0.9.0"];

/// Why no version was chosen.
#[derive(Debug, PartialEq, Eq)]
pub enum NoVersion {
    /// This entry is not three plain integers.
    Malformed(String),
    /// Nothing in common.
    Unsupported,
}

/// The highest of the client's versions that we speak, as the client wrote it.
///
/// # Errors
/// A malformed entry, or nothing in common (also an empty list).
pub fn negotiate(offered: &[String]) -> Result<(String, Profile), NoVersion> {
    let mut best: Option<((u64, u64, u64), &String, Profile)> = None;
    for text in offered {
        let version = parse(text).ok_or_else(|| NoVersion::Malformed(text.clone()))?;
        let profile = match version {
            (1, _, _) => Profile::V10,
            (0, 9, _) => Profile::V09,
            _ => continue,
        };
        if best.is_none_or(|(highest, _, _)| version > highest) {
            best = Some((version, text, profile));
        }
    }
    best.map(|(_, text, profile)| (text.clone(), profile))
        .ok_or(NoVersion::Unsupported)
}

/// `MAJOR.MINOR.PATCH`, digits only, no leading zeros.
fn parse(text: &str) -> Option<(u64, u64, u64)> {
    let mut parts = text.split('.').map(|part| {
        let plain = !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && (part == "0" || !part.starts_with('0'));
        if plain { part.parse().ok() } else { None }
    });
    let version = (parts.next()??, parts.next()??, parts.next()??);
    parts.next().is_none().then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(versions: &[&str]) -> Result<(String, Profile), NoVersion> {
        negotiate(&versions.iter().map(|v| (*v).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_highest_served_version_wins_whatever_the_order() {
        for list in [
            ["0.9.0", "1.0.0", "0.5.1"],
            ["1.0.0", "0.9.0", "7.0.0"],
            ["0.8.0", "0.9.3", "1.0.0"],
        ] {
            assert_eq!(offer(&list), Ok(("1.0.0".into(), Profile::V10)));
        }
        assert_eq!(
            offer(&["1.0.0", "1.7.3"]),
            Ok(("1.7.3".into(), Profile::V10))
        );
        assert_eq!(
            offer(&["0.9.0", "0.9.10", "0.9.2"]),
            Ok(("0.9.10".into(), Profile::V09))
        );
    }

    #[test]
    fn nothing_in_common_and_an_empty_list_are_unsupported() {
        assert_eq!(
            offer(&["0.8.0", "2.0.0", "0.10.0"]),
            Err(NoVersion::Unsupported)
        );
        assert_eq!(offer(&[]), Err(NoVersion::Unsupported));
    }

    #[test]
    fn anything_but_three_plain_integers_is_malformed() {
        for bad in [
            "1.0",
            "01.0.0",
            "1.0.0.0",
            "",
            "1.0.x",
            "1..0",
            "v1.0.0",
            "1.0.0-rc",
            "+1.0.0",
            "1.0.99999999999999999999",
        ] {
            assert_eq!(
                offer(&["1.0.0", bad]),
                Err(NoVersion::Malformed(bad.into())),
                "{bad}"
            );
        }
    }
}
