//! The command line: one file for each verb.

mod demo;
mod exit;
mod schedule;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::run::keeper;
pub use exit::{Exit, Failure};

/// Run fleets of coding agents on schedules, on events and from issue trackers.
#[derive(Debug, Parser)]
#[command(name = "cowhand", version, after_help = exit::HELP)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// See what cowhand does, with no account, key or service
    Demo(demo::Demo),
    /// Look at schedules and when they fire
    #[command(subcommand)]
    Schedule(schedule::Schedule),
    /// Watch over one attempt; cowhand starts it, not a person
    #[command(hide = true)]
    Keeper { folder: PathBuf },
}

/// Parses the arguments, runs the verb, and says what went wrong if anything did.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    let answer = match cli.verb {
        Verb::Demo(demo) => demo.run(),
        Verb::Schedule(schedule) => schedule.run(),
        Verb::Keeper { folder } => return keeper::keep(&folder),
    };
    match answer {
        Ok(()) => Exit::Ok.into(),
        Err(failure) => failure.report(),
    }
}
