//! Checks of the config, one file for each subject. `resolve.rs` calls the checks of an agent; `compose.rs` and
//! `load.rs` call the checks of the whole fleet.

pub(super) mod budget;
pub(super) mod calendar;
pub(super) mod chat;
pub(super) mod hooks;
pub(super) mod lease;
pub(super) mod notify;
pub(super) mod provider;
pub(super) mod runtime;
pub(super) mod sandbox;
pub(super) mod trust;
pub(super) mod unused;
pub(super) mod visible_secret;
pub(super) mod web_chat;
pub(super) mod work_source;
