//! Running agents: one attempt at a time, each under a keeper of its own.

pub mod ending;
pub mod lines;
pub mod runtime;
pub mod tail;
pub mod watch;
