//! The command line: one file for each verb.

mod config;
mod demo;
mod exit;
mod schedule;
mod start;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::run::keeper;
pub use exit::{Exit, Failure};

/// Run fleets of coding agents on schedules, on events and from issue trackers.
#[derive(Debug, Parser)]
#[command(name = "cowhand", version, after_help = exit::HELP)]
struct Cli {
    /// The fleet's file, or a directory to look for it in and above [default: the working directory]
    #[arg(short, long, global = true, value_name = "FILE|DIR")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// See what cowhand does, with no account, key or service
    Demo(demo::Demo),
    /// Run the fleet until it is told to stop
    Start(start::Start),
    /// Check, show and describe the config
    #[command(subcommand)]
    Config(config::Config),
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
        Verb::Start(start) => start.run(cli.config.as_deref()),
        Verb::Config(verb) => verb.run(cli.config.as_deref()),
        Verb::Schedule(schedule) => schedule.run(),
        Verb::Keeper { folder } => return keeper::keep(&folder),
    };
    match answer {
        Ok(()) => Exit::Ok.into(),
        Err(failure) => failure.report(),
    }
}
