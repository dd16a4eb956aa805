//! Every bound of the wire, each with its reason.

/// The longest payload of a frame, in bytes.
///
/// One `terminal/input` of [`INPUT_PENDING_MAX`] bytes must fit with its envelope; nothing else is
/// as large. A header that claims more ends the connection before anything is allocated.
pub const PAYLOAD_MAX: usize = (1 << 20) + (64 << 10);

/// The most terminal output in one [`crate::message::Output`], in bytes.
///
/// Equals what the worker reads from the pty in one turn of its loop, so that input is looked at
/// at least every 64 KiB of output.
pub const OUTPUT_CHUNK_MAX: usize = 64 << 10;

/// How much output a worker may have sent without an acknowledgement, in bytes.
///
/// Eight chunks: enough to keep both processes busy, small enough that a stopped supervisor costs
/// a worker little memory and that Ctrl-C is not queued behind much.
pub const OUTPUT_WINDOW: u64 = 512 << 10;

/// How many frames of output and events a worker may have sent or made without an acknowledgement.
///
/// Single characters and events take little of the window, but each frame takes memory, about 150
/// bytes. A supervisor acknowledges well before, see [`ACK_FRAMES`].
pub const FRAMES_WINDOW: usize = 4096;

/// A supervisor acknowledges at the latest after so many bytes of output, …
pub const ACK_BYTES: u64 = OUTPUT_WINDOW / 8;

/// … and after so many frames: in strides, so that keystrokes cost no frames of their own.
pub const ACK_FRAMES: usize = FRAMES_WINDOW / 8;

/// How much typed input may wait for the shell of one terminal, in bytes.
///
/// A pty takes about 14 kB while its reader sleeps (field case S-18); the rest waits in the
/// worker. One mebibyte holds any paste a person makes; beyond it the supervisor refuses input.
pub const INPUT_PENDING_MAX: u64 = 1 << 20;

/// The distance between two safe places to cut scrollback, in bytes (see
/// [`crate::message::Output::cuts`]).
pub const CUT_DISTANCE: usize = 4 << 10;

/// The most cuts in one [`crate::message::Output`].
pub const CUTS_MAX: usize = OUTPUT_CHUNK_MAX / CUT_DISTANCE + 1;

/// The longest environment string (`NAME=value` and its NUL), in bytes.
///
/// Kernel fact: `MAX_ARG_STRLEN` is 32 pages; execve refuses a longer one with E2BIG.
pub const ENV_STRING_MAX: usize = 131_072;

/// The largest environment, all strings together, in bytes.
///
/// Half of the 2 MiB that a stack limit of 8 MiB leaves to arguments and environment (execve(2)),
/// so that the shell's own children keep room; and it must fit one frame with room to spare.
pub const ENV_TOTAL_MAX: usize = 1 << 20;

/// The smallest and largest number of columns or rows of a terminal (field case S-22).
pub const SIZE_RANGE: std::ops::RangeInclusive<u16> = 1..=1000;

/// The longest text of an error that a worker reports, in bytes.
pub const REASON_MAX: usize = 1024;

/// The longest command line told by [`crate::message::Happened::CommandStarted`], in bytes. A
/// longer one is cut: it stands in snapshots, which every subscriber pays for.
pub const COMMAND_LINE_MAX: usize = 64 << 10;

/// The longest path of a directory, in bytes. Kernel fact: `PATH_MAX`, the NUL included.
pub const PATH_MAX: usize = 4096;

/// The longest title a program may ask for, in bytes; who shows it cuts it further.
pub const TITLE_MAX: usize = 1024;

/// What a supervisor may note about a terminal, in bytes: its URI, title and claim as JSON, at
/// their longest and with every character escaped.
pub const CARD_MAX: usize = 128 << 10;

/// How much of a terminal's acknowledged output a worker keeps for the next supervisor, in
/// characters: as much as the scrollback that clients see, in which command lines count, too. Whole
/// frames give way, so it may be one frame more.
pub const PAST_CHARS: usize = 200_000;

/// How many [`crate::kept::Past`] are told at most. A supervisor shows 2,048 parts of content; each
/// command makes two of these besides its text.
pub const PAST_FRAMES: usize = 8192;

/// How much output a worker without a supervisor keeps besides the past, in characters (an event
/// counts with its bytes), in at most [`FRAMES_WINDOW`] frames; what is older gives way and is told
/// as [`crate::kept::Lost`]. Less than [`PAST_CHARS`], so that what a
/// supervisor then shows holds the end of the past, the gap, and what came after it.
pub const UNATTENDED_CHARS: usize = 150_000;
