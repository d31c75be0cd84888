//! `cowhand config`: checks the config, shows it as resolved, and prints its schema.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use cowhand_core::config::{LoadedConfig, editor, report};

use super::advice::advised;
use super::place::Place;
use super::{Exit, Failure, print};
use cowhand_engine::config;

#[derive(Debug, Subcommand)]
pub(super) enum Config {
    /// Find all errors, with file, line and column
    Check(Output),
    /// Print the config as it runs: resolved, merged, secrets masked
    Show(Output),
    /// Print the JSON Schema, for completion in editors
    Schema(Schema),
}

#[derive(Debug, Args)]
pub(super) struct Output {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct Schema {
    /// Print the schema of an agent file instead of the fleet's file
    #[arg(long)]
    agent: bool,
}

impl Config {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        match self {
            Self::Check(output) => check(config, output.json),
            Self::Show(output) => show(config, output.json),
            Self::Schema(Schema { agent }) => {
                let schema = if agent { editor::agent_schema() } else { editor::fleet_schema() };
                print::line(format!("{schema:#}"));
                Ok(())
            }
        }
    }
}

fn check(config: Option<&Path>, json: bool) -> Result<(), Failure> {
    let (loaded, base) = load(config)?;
    if json {
        print::line(format!("{:#}", report::as_json(&loaded, &base)));
        return if loaded.errors() > 0 { Err(Failure::reported(Exit::Config)) } else { Ok(()) };
    }
    if !loaded.problems.is_empty() {
        anstream::eprintln!("{}", advised(&report::render(&loaded, &base, true)));
    }
    if loaded.errors() > 0 {
        return Err(Failure::new(Exit::Config, report::summary(&loaded)));
    }
    print::line(report::summary(&loaded));
    Ok(())
}

fn show(config: Option<&Path>, json: bool) -> Result<(), Failure> {
    let (loaded, base) = load(config)?;
    if loaded.errors() > 0 {
        anstream::eprintln!("{}", advised(&report::render(&loaded, &base, true)));
        return Err(Failure::new(Exit::Config, report::summary(&loaded)));
    }
    if json {
        print::line(format!("{:#}", loaded.shown));
        return Ok(());
    }
    let yaml = serde_saphyr::to_string(&loaded.shown)
        .map_err(|error| Failure::new(Exit::CannotRunHere, format!("cannot print the config: {error}")))?;
    print::part(yaml);
    Ok(())
}

/// Loads the config that `-c` names, or the one found from the current directory. Also returns that
/// directory, to which shown paths are relative.
fn load(config: Option<&Path>) -> Result<(LoadedConfig, PathBuf), Failure> {
    let here = std::env::current_dir()
        .map_err(|error| Failure::new(Exit::CannotRunHere, format!("no working directory: {error}")))?;
    let found = config::find(config, &here).map_err(|error| Failure::new(Exit::Config, error.to_string()))?;
    let place = Place::of(found.file);
    let config::FromDisk { loaded, notes, .. } = config::load(&place.config);
    place.note(found.note);
    if place.runs_other_file().is_some() {
        print::note(format!("this is about {}", place.config.display()));
    }
    notes.iter().for_each(print::note);
    Ok((loaded, here))
}
