//! `cowhand restore`: replaces the store with a backup.

use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;
use serde_json::json;

use super::background::unusable;
use super::backup::job_count_in_words;
use super::location::{FleetLocation, refuse_other_store, wait};
use super::{Exit, Failure, print};
use cowhand_engine::backup::restore::{Restored, restore};
use cowhand_engine::config;
use cowhand_engine::fleet::FleetError;
use cowhand_store::StoreError;

#[derive(Debug, Args)]
pub(super) struct RestoreArgs {
    /// File that `cowhand backup` wrote, or a store that an earlier restore kept
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl RestoreArgs {
    pub(super) fn run(self, config: Option<&Path>) -> Result<(), Failure> {
        let location = FleetLocation::find(config)?;
        let configured = config::load(&location.config).loaded.roster.store;
        refuse_other_store(configured.as_deref())?;
        if configured.is_some() {
            return Err(Failure::new(Exit::Refused, StoreError::PostgresBackup.to_string()));
        }
        if let Err(error) = std::fs::metadata(&self.file) {
            return Err(Failure::new(
                Exit::Refused,
                format!("cannot restore {}: {error}", self.file.display()),
            ));
        }
        location.refuse_silent_daemon()?;
        let unusable = |error| unusable(&location, &error);
        location.state.create().map_err(unusable)?;
        // The lock is held until the new store is in place.
        let Some(_lock) = location.state.lock().map_err(unusable)? else {
            return Err(FleetError::AlreadyRunning(location.state.path().display().to_string()).into());
        };
        let restored = wait(async {
            let restored = restore(&self.file, &location.state, Timestamp::now()).await;
            restored.map_err(|error| Failure::new(Exit::Refused, format!("{error:#}; nothing was changed")))
        })?;
        let Restored { contents, replaced, replaced_log, output_error } = restored;
        if let Some(output_error) = output_error {
            print::note(format!("the output of some jobs may not match the store: {output_error}"));
        }
        let value = json!({ "file": self.file, "jobs": contents.jobs, "replaced": replaced });
        let sentence = format!("restored {} from {}", job_count_in_words(contents.jobs), self.file.display());
        print::done(&sentence, &value, self.json);
        if let Some(replaced) = replaced.filter(|_| !self.json) {
            print::line(format!("the previous store was moved to {}", replaced.display()));
        }
        if let Some(log) = replaced_log {
            print::note(format!(
                "the newest data of the previous store is in {}; keep both files together",
                log.display()
            ));
        }
        Ok(())
    }
}
