//! Output and events that gave way while nobody was there to take them.
//!
//! What lives here: what becomes of them, told in one message. What must not: when they give way.

use shellward_protocol::Modes;
use shellward_protocol::kept::{Finished, Lost, Started};
use shellward_protocol::message::{Happened, Output};

/// Nothing is lost yet, at this place and with these modes in force.
pub(super) fn nothing(offset: u64, modes: Modes) -> Lost<'static> {
    Lost {
        offset,
        places: 0,
        bytes: 0,
        modes,
        can_detect: false,
        finished: None,
        started: None,
        directory: None,
        title: None,
    }
}

/// The place behind it.
pub(super) fn end(lost: &Lost<'_>) -> u64 {
    lost.offset + lost.places
}

/// Output behind it is lost, too.
pub(super) fn swallow_output(lost: &mut Lost<'static>, output: &Output<'_>) {
    let bytes = output.data.as_slice().len() as u64;
    lost.places += bytes;
    lost.bytes += bytes;
    if let Some(last) = output.cuts.last() {
        lost.modes = last.modes;
    }
}

/// Something that happened behind it is lost, too.
pub(super) fn swallow_event(lost: &mut Lost<'static>, what: Happened<'_>) {
    lost.places += 1;
    match what {
        Happened::CanDetectCommands => lost.can_detect = true,
        Happened::CommandStarted { line, at_ms } => {
            lost.started = Some(Started {
                line: line.into_owned(),
                at_ms,
            });
        }
        // One of which nobody heard that it started ends without a word.
        Happened::CommandFinished {
            exit_code,
            duration_ms,
        } => {
            if lost.started.take().is_none() {
                lost.finished = Some(Finished {
                    exit_code,
                    duration_ms,
                });
            }
        }
        Happened::Directory(path) => lost.directory = Some(path.into_owned()),
        Happened::Title(title) => lost.title = Some(title.into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shellward_protocol::Data;

    fn finished(exit_code: i32) -> Happened<'static> {
        Happened::CommandFinished {
            exit_code: Some(exit_code),
            duration_ms: 1,
        }
    }

    fn started(line: &'static str) -> Happened<'static> {
        Happened::CommandStarted {
            line: Data::borrowed(line.as_bytes()),
            at_ms: 2,
        }
    }

    #[test]
    fn of_commands_the_ends_are_told_and_what_came_and_went_is_not() {
        let mut lost = nothing(7, Modes(1));
        for what in [
            finished(3),
            started("gone"),
            finished(4),
            started("open"),
            Happened::Directory(Data::borrowed(b"/a")),
            Happened::Directory(Data::borrowed(b"/b")),
            Happened::Title(Data::borrowed(b"t")),
        ] {
            swallow_event(&mut lost, what);
        }
        assert_eq!(end(&lost), 14);
        assert_eq!((lost.bytes, lost.modes), (0, Modes(1)));
        assert_eq!(lost.finished.map(|end| end.exit_code), Some(Some(3)));
        assert_eq!(
            lost.started.map(|open| open.line),
            Some(Data::borrowed(b"open"))
        );
        assert_eq!(lost.directory, Some(Data::borrowed(b"/b")));
        assert_eq!(lost.title, Some(Data::borrowed(b"t")));
    }
}
