//! Which terminal a person means.

use serde::Deserialize;

/// How many of the terminals that a name fits are shown.
const SHOWN: usize = 10;

/// What of a listed terminal counts here.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Listed {
    pub uri: String,
    pub id: String,
    pub title: String,
}

/// Finds the terminal that `name` names: its URI or id, else its title, else a prefix of these,
/// if it fits only one.
///
/// # Errors
/// None or several fit, in words.
pub(super) fn find<'a>(name: &str, terminals: &'a [Listed]) -> Result<&'a Listed, String> {
    if name.is_empty() {
        return Err("the name of the terminal is empty".to_owned());
    }
    let exact = |t: &&Listed| t.uri == name || t.id == name;
    let title = |t: &&Listed| t.title == name;
    let prefix = |t: &&Listed| {
        [&t.uri, &t.id, &t.title]
            .iter()
            .any(|text| text.starts_with(name))
    };
    let rules: [&dyn Fn(&&Listed) -> bool; 3] = [&exact, &title, &prefix];
    for rule in rules {
        let fitting: Vec<&Listed> = terminals.iter().filter(rule).collect();
        match fitting.as_slice() {
            [] => {}
            [one] => return Ok(one),
            several => {
                let ids: Vec<&str> = several.iter().map(|t| t.id.as_str()).take(SHOWN).collect();
                let more = match several.len() - ids.len() {
                    0 => String::new(),
                    more => format!(", … and {more} more"),
                };
                return Err(format!(
                    "{name:?} fits {} terminals; say which by its id: {}{more}",
                    several.len(),
                    ids.join(", ")
                ));
            }
        }
    }
    Err(format!("there is no terminal {name:?}; see `shellward ps`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_must_fit_one_terminal() {
        let listed = |uri: &str, id: &str, title: &str| Listed {
            uri: uri.into(),
            id: id.into(),
            title: title.into(),
        };
        let all = [
            listed("t:/a", "abc", "build"),
            listed("t:/b", "abd", "bash"),
            listed("t:/c", "xyz", "bash"),
            listed("t:/d", "build2", "abd"),
        ];
        let id = |name: &str| find(name, &all).map(|t| t.id.clone());
        assert_eq!(id("t:/b"), Ok("abd".into()));
        assert_eq!(id("abd"), Ok("abd".into()), "an id wins over a title");
        assert_eq!(id("build"), Ok("abc".into()), "a title wins over a prefix");
        assert_eq!(id("x"), Ok("xyz".into()));
        assert!(id("bash").unwrap_err().contains("abd, xyz"));
        assert!(id("ab").unwrap_err().contains("fits 3"));
        let many: Vec<Listed> = (0..16)
            .map(|number| listed(&format!("t:/{number}"), &format!("id{number:02}"), "bash"))
            .collect();
        let words = |count: usize| find("bash", &many[..count]).unwrap_err();
        assert!(words(16).ends_with("id08, id09, … and 6 more"));
        assert!(words(10).ends_with("id08, id09"));
        assert!(
            id("").unwrap_err().contains("empty"),
            "a prefix of everything"
        );
        assert!(id("none").unwrap_err().contains("ps"));
    }
}
