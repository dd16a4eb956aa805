//! Shellward: an AHP (Agent Host Protocol) terminal host for Linux.
//!
//! The supervisor speaks AHP to clients and frames to one worker process per terminal. It never
//! parses terminal bytes; see ARCHITECTURE.md for the picture and the invariants.

#![warn(missing_docs)]

pub mod ahp;
pub mod cli;
pub mod clients_file;
pub mod config;
pub mod core;
mod faults;
pub mod front;
pub mod host;
pub mod limits;
pub mod log;
pub mod metrics;
pub mod outbox;
pub mod probe;
pub mod ptys;
pub mod rundir;
pub mod scrollback;
pub mod serve;
mod service;
pub mod signals;
pub mod token;
pub mod worker_link;
