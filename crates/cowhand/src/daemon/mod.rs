//! The daemon: wait, plan, act.

pub mod tick;
