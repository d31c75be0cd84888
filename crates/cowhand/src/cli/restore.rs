//! `cowhand restore`: replaces the store with a backup.

use std::io;
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
use cowhand_system::disk::DiskProblem;

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
            restored.map_err(|error| failure(&error, location.state.path()))
        })?;
        let Restored { contents, replaced, replaced_log, output_error, revoked_tokens } = restored;
        if let Some(output_error) = output_error {
            print::note(format!("the output of some jobs may not match the store: {output_error}"));
        }
        let revoked_tokens = revoked_tokens.unwrap_or_else(|error| {
            print::note(format!(
                "the previous store cannot be read ({error:#}), so tokens that were revoked after the backup are valid again; \
                 `cowhand token list` shows them, and `cowhand token revoke NAME` revokes one"
            ));
            Vec::new()
        });
        let value = json!({
            "file": self.file, "jobs": contents.jobs, "replaced": replaced, "revoked_tokens": revoked_tokens,
        });
        let sentence = format!("restored {} from {}", job_count_in_words(contents.jobs), self.file.display());
        print::done(&sentence, &value, self.json);
        if !revoked_tokens.is_empty() && !self.json {
            let names = revoked_tokens.join(", ");
            print::line(format!("tokens that were revoked after the backup stay revoked: {names}"));
        }
        if let Some(log) = replaced_log {
            let keep = if replaced.is_some() { "; keep both files together" } else { "" };
            print::note(format!("the newest data of the previous store is in {}{keep}", log.display()));
        }
        if let Some(replaced) = replaced.filter(|_| !self.json) {
            print::line(format!("the previous store was moved to {}", replaced.display()));
        }
        Ok(())
    }
}

/// Returns the failure of a restore. A full or read-only disk of the state folder is not the fault of the backup.
fn failure(error: &anyhow::Error, folder: &Path) -> Failure {
    let mut kinds = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    match kinds.find_map(DiskProblem::of) {
        Some(problem) => {
            let problem = problem.sentence_for_retry(folder.display());
            Failure::new(Exit::CannotRunHere, format!("{error}: {problem}; nothing was changed"))
        }
        None => Failure::new(Exit::Refused, format!("{error:#}; nothing was changed")),
    }
}
