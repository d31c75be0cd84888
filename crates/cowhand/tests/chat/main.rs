//! Chat: the real program, connected to fakes of Slack and Discord that the clients of these platforms have checked.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod answers;
mod asks;
mod burst;
mod commands;
mod connections;
mod crashes;
mod delivery;
mod downtime;
mod examples;
mod files;
mod herdctl;
mod kept_settings;
mod large_files;
mod lifecycle;
mod nodes;
mod notices;
mod order;
mod outputs;
mod reliable;
mod rights;
mod routing;
mod scene;
mod sent_files;
mod sessions;
mod surfaces;
mod voice;
