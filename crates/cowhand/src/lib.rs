//! cowhand runs fleets of coding agents on schedules, on events and from issue trackers.

pub mod api;
mod aside;
pub mod audit;
mod backup;
mod beneath;
pub mod cli;
pub mod clock;
pub mod config;
pub mod daemon;
mod fault;
pub mod fleet;
mod gone;
pub mod herdctl;
mod histogram;
mod hook;
pub mod mcp;
mod panic;
mod prune;
pub mod run;
pub mod server;
pub mod state;
pub mod store;
mod trace;
pub mod trigger;
pub mod veil;
mod view;
pub mod work;
