//! Parts that the tests of all crates share: servers, disks and fakes for one test, waiting for a condition,
//! and finding processes. Of the crates of cowhand, this crate depends only on `cowhand-core`. A test that needs the
//! program passes its path.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

pub mod discord;
pub mod disk;
pub mod github;
pub mod github_lists;
pub mod http;
mod on_both;
pub mod podman;
pub mod postgres;
pub mod process;
pub mod slack;
pub mod smtp;
mod streamed_body;
pub mod tmpfs;
mod wait;

pub use wait::{wait_at_most, wait_or_report, wait_until};
