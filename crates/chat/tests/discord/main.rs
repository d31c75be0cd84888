//! The connector of Discord against the fake Discord.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod answers;
mod check;
mod connection;
mod events;
mod harness;
mod official_client;
mod posts;
