//! The names of signals, as `exitCode` 128 has them beside it.

use nix::sys::signal::Signal;

/// Names of the real-time signals, counted from SIGRTMIN (34 in glibc, signal(7)).
const REAL_TIME: [&str; 31] = [
    "SIGRTMIN",
    "SIGRTMIN+1",
    "SIGRTMIN+2",
    "SIGRTMIN+3",
    "SIGRTMIN+4",
    "SIGRTMIN+5",
    "SIGRTMIN+6",
    "SIGRTMIN+7",
    "SIGRTMIN+8",
    "SIGRTMIN+9",
    "SIGRTMIN+10",
    "SIGRTMIN+11",
    "SIGRTMIN+12",
    "SIGRTMIN+13",
    "SIGRTMIN+14",
    "SIGRTMIN+15",
    "SIGRTMAX-14",
    "SIGRTMAX-13",
    "SIGRTMAX-12",
    "SIGRTMAX-11",
    "SIGRTMAX-10",
    "SIGRTMAX-9",
    "SIGRTMAX-8",
    "SIGRTMAX-7",
    "SIGRTMAX-6",
    "SIGRTMAX-5",
    "SIGRTMAX-4",
    "SIGRTMAX-3",
    "SIGRTMAX-2",
    "SIGRTMAX-1",
    "SIGRTMAX",
];

/// The name of a signal number, e.g. `SIGKILL`; never depends on a locale (field case S-03).
#[must_use]
pub fn name(number: i32) -> &'static str {
    if let Ok(signal) = Signal::try_from(number) {
        return signal.as_str();
    }
    usize::try_from(number - 34)
        .ok()
        .and_then(|index| REAL_TIME.get(index).copied())
        .unwrap_or("SIGUNKNOWN")
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn every_number_has_a_name() {
        assert_eq!(
            (name(9), name(15), name(11)),
            ("SIGKILL", "SIGTERM", "SIGSEGV")
        );
        assert_eq!((name(34), name(64)), ("SIGRTMIN", "SIGRTMAX"));
        assert_eq!(
            (name(0), name(65), name(-5), name(32)),
            ("SIGUNKNOWN", "SIGUNKNOWN", "SIGUNKNOWN", "SIGUNKNOWN")
        );
    }
}
