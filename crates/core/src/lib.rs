//! The domain types and rules of cowhand.
//!
//! Everything here is a pure function of its arguments: no I/O, no clock, no random numbers. The current time and
//! random numbers are arguments, so that each rule can be tested with a table of inputs and results.

#![forbid(unsafe_code)]

pub mod actor;
pub mod ask;
pub mod attempt;
pub mod backoff;
pub mod breaker;
pub mod budget;
pub mod chat;
pub mod chat_platform;
pub mod config;
pub mod cron;
pub mod cut;
pub mod delivery;
pub mod duration;
pub mod event;
pub mod filter;
pub mod firing;
pub mod followup;
pub mod github;
pub mod hook;
pub mod id;
pub mod incident;
pub mod interval;
pub mod invisible;
pub mod job;
pub mod label;
pub mod lease;
pub mod mcp;
pub mod moment;
pub mod node;
pub mod notification;
pub mod output;
pub mod percent;
pub mod permission;
pub mod plan;
pub mod policy;
pub mod price;
pub mod prompt;
pub mod provider;
pub mod public_address;
pub mod report;
pub mod retention;
pub mod roster;
pub mod runtime;
pub mod sandbox;
pub mod schedule;
pub mod server;
pub mod session;
pub mod shape;
pub mod shell;
pub mod size;
pub mod steering;
pub mod store_address;
pub mod suggest;
pub mod traces;
pub mod trigger;
pub mod trust;
pub mod uptime;
pub mod web_chat;
pub mod word;
pub mod work;
pub mod work_source;
pub mod workspace;
