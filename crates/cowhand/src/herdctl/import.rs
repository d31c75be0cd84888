//! The first start of a fleet that herdctl ran: its state becomes ours.

use std::fs::File;
use std::io;
use std::path::Path;

use cowhand_core::id::JobId;
use cowhand_core::job::JobRecord;
use jiff::Timestamp;
use tracing::{info, warn};

use super::{HerdctlFolder, History};
use crate::fault;
use crate::fleet::FleetError;
use crate::state::StateFolder;
use crate::store::{Imported, Store};
use crate::view;

/// What a start does about the state of herdctl.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Import {
    /// There is none.
    Nothing,
    /// It is imported, unless the fleet ran here before.
    From(HerdctlFolder),
    /// A person starts without it; the next start does not ask again.
    Declined(HerdctlFolder),
}

impl Import {
    /// `config` is the root file; `fresh` declines the import.
    pub(crate) fn of(config: Option<&Path>, fresh: bool) -> Self {
        match config.and_then(HerdctlFolder::beside) {
            None => Self::Nothing,
            Some(folder) if fresh => Self::Declined(folder),
            Some(folder) => Self::From(folder),
        }
    }

    /// Fails while herdctl runs: both would run the same schedules.
    pub(crate) fn refuse_if_running(&self) -> Result<(), FleetError> {
        match self {
            Self::Nothing => Ok(()),
            Self::From(folder) | Self::Declined(folder) => Ok(folder.refuse_if_running()?),
        }
    }

    /// Imports what there is, once. A crash before the end leaves files that the next try writes again.
    pub(crate) async fn run(
        self,
        store: &Store,
        state: &StateFolder,
        node: &str,
        now: Timestamp,
    ) -> Result<(), FleetError> {
        let folder = match self {
            Self::Nothing => return Ok(()),
            Self::Declined(_) => return Ok(store.decline_import(now).await?),
            Self::From(folder) => folder,
        };
        if !store.wants_import().await? {
            return Ok(());
        }
        let files = state.clone();
        let history = tokio::task::spawn_blocking(move || read_and_copy(&folder, &files));
        let history = history.await.map_err(|_| FleetError::Died)??;
        for note in &history.notes {
            warn!("importing from herdctl: {note}");
        }
        fault::place("import_copied");
        if let Some(imported) = store.import(history, node.to_owned(), now).await? {
            info!("{imported}");
        }
        fault::place("imported");
        Ok(())
    }
}

/// Reads the history and copies the output of its jobs, with a view of each.
fn read_and_copy(folder: &HerdctlFolder, state: &StateFolder) -> Result<History, FleetError> {
    let history = folder.read()?;
    let place = state.path().display().to_string();
    for past in &history.jobs {
        let copied = copy_output(folder, state, past.job.id());
        copied.map_err(|source| FleetError::State { place: place.clone(), source })?;
        let record = JobRecord::from(past.job.clone());
        if let Err(error) = view::write_job(state, &record) {
            warn!("importing from herdctl: {error:#}");
        }
    }
    Ok(history)
}

fn copy_output(folder: &HerdctlFolder, state: &StateFolder, job: &JobId) -> io::Result<()> {
    let Some(mut output) = folder.output(job)? else { return Ok(()) };
    let target = state.output(job);
    let mut copy = tempfile::NamedTempFile::new_in(state.jobs())?;
    io::copy::<File, _>(&mut output, &mut copy)?;
    copy.persist(target)?;
    Ok(())
}

impl std::fmt::Display for Imported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { disabled, last_runs, sessions, jobs } = self;
        write!(
            f,
            "imported from .herdctl: {jobs} jobs, {sessions} sessions, {last_runs} last runs and {disabled} disabled \
             schedules; .herdctl itself is not changed"
        )
    }
}
