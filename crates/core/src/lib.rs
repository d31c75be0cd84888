//! cowhand's words and rules.
//!
//! Everything here is a plain function of its arguments: no I/O, no clock, no randomness of its own. "Now"
//! and random numbers are handed in, so each rule is a table of inputs and answers.

pub mod config;
pub mod cron;
pub mod fleet;
pub mod id;
pub mod interval;
pub mod policy;
pub mod trigger;
