//! cowhand runs fleets of coding agents on schedules, on events and from issue trackers.

pub mod cli;
pub mod config;
pub mod run;
pub mod store;
