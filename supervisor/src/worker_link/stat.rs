//! What `/proc/PID/stat` says about processes.

/// One process (proc_pid_stat(5)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    /// Its state, `T` if it is stopped.
    pub state: char,
    pub parent: u32,
    pub session: u32,
    /// In clock ticks after boot; with the number it names a process for good.
    pub started: u64,
    /// It has ended and waits for its parent.
    pub is_dead: bool,
}

impl Stat {
    /// That of one process, if it is there.
    pub fn of(pid: u32) -> Option<Self> {
        Self::parse(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Whether it was stopped by a signal.
    pub fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }

    /// The second field is the program's name in parentheses and may hold anything, also bytes that
    /// are not UTF-8; the last closing parenthesis ends it.
    fn parse(line: &[u8]) -> Option<Self> {
        let end = line.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(line.get(end + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        // The parent is field 4, the session field 6, the start time field 22.
        let session = fields.nth(1)?.parse().ok()?;
        let started = fields.nth(15)?.parse().ok()?;
        Some(Self {
            state,
            parent,
            session,
            started,
            is_dead: matches!(state, 'Z' | 'X' | 'x'),
        })
    }
}

/// Every process that can be seen.
pub(super) fn all() -> impl Iterator<Item = (u32, Stat)> {
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(|pid| Some((pid, Stat::of(pid)?)))
}

/// Now, as [`Stat::started`] counts: /proc/uptime has hundredths of a second, and so has USER_HZ,
/// the unit of the kernel's interface whatever its own clock is.
pub(super) fn now() -> Option<u64> {
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let (seconds, rest) = uptime.split_once('.')?;
    let hundredths: u64 = rest.get(..2)?.parse().ok()?;
    seconds
        .parse::<u64>()
        .ok()?
        .checked_mul(100)?
        .checked_add(hundredths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let line = b"42 (a) Z 1 (\xff\n) T 7 41 43 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 0 0";
        assert_eq!(
            Stat::parse(line),
            Some(Stat {
                state: 'T',
                parent: 7,
                session: 43,
                started: 12345,
                is_dead: false
            })
        );
        assert_eq!(Stat::parse(b""), None);
        assert_eq!(Stat::parse(b"1 (x) S"), None);
        let me = Stat::of(std::process::id()).unwrap();
        assert!(me.started <= now().unwrap());
        assert!(!me.is_stopped() && !me.is_dead && me.started > 0);
        assert!(all().any(|(pid, stat)| pid == std::process::id() && stat.parent == me.parent));
    }
}
