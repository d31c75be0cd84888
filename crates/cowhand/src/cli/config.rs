//! `cowhand config`: checks the config, shows it as resolved, and prints its schema.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use cowhand_core::config::{LoadedConfig, editor, report};

use super::advice::with_config_option;
use super::location::FleetLocation;
use super::{Exit, Failure, print};
use cowhand_engine::config;
use cowhand_engine::secrets::process::known;

#[derive(Debug, Subcommand)]
pub(super) enum ConfigVerb {
    /// Find all errors, with file, line and column
    Check(ConfigOutputArgs),
    /// Print the config as `start` would run it: resolved, merged, secrets masked
    Show(ConfigOutputArgs),
    /// Print the JSON Schema, for completion in editors
    Schema(ConfigSchemaArgs),
}

#[derive(Debug, Args)]
pub(super) struct ConfigOutputArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ConfigSchemaArgs {
    /// Print the schema of an agent file instead of the fleet's file
    #[arg(long)]
    agent: bool,
}

impl ConfigVerb {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        match self {
            Self::Check(output) => check(config, output.json),
            Self::Show(output) => show(config, output.json),
            Self::Schema(ConfigSchemaArgs { agent }) => {
                let schema = if agent { editor::agent_schema() } else { editor::fleet_schema() };
                print::line(format!("{schema:#}"));
                Ok(())
            }
        }
    }
}

fn check(config: Option<&Path>, json: bool) -> Result<(), Failure> {
    let ConfigOnDisk { config: loaded, base, .. } = load(config)?;
    if json {
        let mut json = report::as_json(&loaded, &base);
        known().redact_value(&mut json);
        print::json_line(&format!("{json:#}"));
        return if loaded.errors() > 0 { Err(Failure::reported(Exit::Config)) } else { Ok(()) };
    }
    if !loaded.problems.is_empty() {
        print::stderr(&with_config_option(&report::render(&loaded, &base, true)));
    }
    if loaded.errors() > 0 {
        return Err(Failure::new(Exit::Config, report::summary(&loaded)));
    }
    print::line(report::summary(&loaded));
    Ok(())
}

fn show(config: Option<&Path>, json: bool) -> Result<(), Failure> {
    let ConfigOnDisk { config: loaded, variables, base, location } = load(config)?;
    if loaded.errors() > 0 {
        print::stderr(&with_config_option(&report::render(&loaded, &base, true)));
        return Err(Failure::new(Exit::Config, report::summary(&loaded)));
    }
    let mut shown = loaded.shown.value();
    location.redactor(&loaded, &variables).redact_config(&mut shown);
    if json {
        print::json_line(&format!("{shown:#}"));
        return Ok(());
    }
    let yaml = serde_saphyr::to_string(&shown)
        .map_err(|error| Failure::new(Exit::CannotRunHere, format!("cannot print the config: {error}")))?;
    print::part(yaml);
    Ok(())
}

/// A config that was loaded from its files, with the variables of the `.env` beside them.
struct ConfigOnDisk {
    config: LoadedConfig,
    variables: HashMap<String, String>,
    /// The current directory, to which shown paths are relative.
    base: PathBuf,
    location: FleetLocation,
}

/// Loads the config that `-c` names, or the one found from the current directory.
fn load(config: Option<&Path>) -> Result<ConfigOnDisk, Failure> {
    let current_dir = std::env::current_dir()
        .map_err(|error| Failure::new(Exit::CannotRunHere, format!("no working directory: {error}")))?;
    let found =
        config::find(config, &current_dir).map_err(|error| Failure::new(Exit::Config, error.to_string()))?;
    let location = FleetLocation::of(found.file);
    let config::FromDisk { loaded, notes, variables, .. } = config::load(&location.config);
    location.note(found.note);
    if location.runs_other_file().is_some() {
        print::note(format!("this command reads {}", location.config.display()));
    }
    notes.iter().for_each(print::note);
    Ok(ConfigOnDisk { config: loaded, variables, base: current_dir, location })
}
