//! One terminal's worker, from fork to its last word: its process, its socket, what goes over it.

mod frames;
mod leftovers;
mod memory;
mod orphans;
mod process;
mod queue;
mod task;
mod told;

pub(crate) use memory::resident;
pub use process::{Control, Workers};
pub use queue::{InputFull, LinkQueue};
pub(crate) use task::run;
