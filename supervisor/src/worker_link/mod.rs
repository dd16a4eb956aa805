//! One terminal's worker, from fork to its last word: its process, its socket, what goes over it.

mod adopt;
mod adopted;
mod frames;
mod leftovers;
mod marked;
mod orphans;
mod process;
mod queue;
mod seen;
mod shown;
mod stat;
mod task;
mod told;

pub(crate) use adopt::adopt_all;
pub use process::{Control, Workers};
pub use queue::{InputFull, LinkQueue};
pub use seen::Seen;
pub(crate) use seen::look_at;
pub(crate) use task::run;
