//! Config files: read as one tree, filled in, merged, and only then typed.
//!
//! Every node knows its file, line and column all the way, so an error found after a merge still points to the line
//! that someone wrote. All problems are collected; nothing stops at the first.

pub mod interpolate;
pub mod merge;
pub mod node;
pub mod parse;
pub mod problem;
