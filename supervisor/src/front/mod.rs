//! The front: listeners, the door, and one task pair for each connection.

mod connection;
pub mod door;
mod life;
mod listener;
mod watch;

pub use listener::{Front, Listener};

#[cfg(test)]
mod tests;
