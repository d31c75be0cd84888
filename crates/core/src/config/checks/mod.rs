//! Checks of a resolved agent, one file for each subject. `resolve.rs` calls them.

pub(super) mod budget;
pub(super) mod calendar;
pub(super) mod runtime;
pub(super) mod sandbox;
pub(super) mod trust;
pub(super) mod unused;
pub(super) mod visible_secret;
pub(super) mod work_source;
