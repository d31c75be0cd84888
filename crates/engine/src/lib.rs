//! The daemon: it fires schedules, starts and supervises attempts, and settles jobs. [`fleet::Fleet`] is its interface.
//! Some modules also work without a daemon, for example [`doctor`], [`backup`] and [`prune`].

mod answer_waits;
mod attempt;
pub mod backup;
pub mod chat;
mod chat_bots;
mod collector_headers;
pub mod config;
pub mod context;
pub mod daemon;
pub mod doctor;
pub mod error;
pub mod fleet;
pub mod herdctl;
pub mod hook;
mod job_limits;
pub mod job_token;
mod lease;
pub mod lifecycle;
pub mod loaded;
pub mod nodes;
pub mod notification;
pub mod output;
mod plan_requests;
pub mod prune;
pub mod queues;
pub mod schedule_view;
pub mod secrets;
pub mod state;
pub mod tls;
pub mod trace;
pub mod trigger;
pub mod unfinished;
pub mod view;
pub mod waits;
