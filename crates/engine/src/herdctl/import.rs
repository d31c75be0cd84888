//! Imports the state of herdctl at the first start of a fleet that ran under herdctl.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use cowhand_core::job::JobRecord;
use jiff::Timestamp;
use tracing::{info, warn};

use super::{HerdctlError, HerdctlFolder};
use crate::state::StateFolder;
use crate::view;
use cowhand_run::redact::Redactor;
use cowhand_store::{History, Store};
use cowhand_system::fault;

/// What a start does with the state of herdctl.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Import {
    /// There is no state of herdctl.
    Nothing,
    /// The state is ignored, because the name of the config file is not herdctl's.
    Ignored(HerdctlFolder),
    /// The state is imported, unless it was imported or declined before, or the fleet ran here before.
    From(HerdctlFolder),
    /// A person starts without the state; the next start does not import it either.
    Declined(HerdctlFolder),
}

impl Import {
    /// Decides what the start does. `config` is the root file; `fresh` declines the import.
    pub fn of(config: Option<&Path>, fresh: bool) -> Self {
        match config.and_then(HerdctlFolder::beside) {
            None => config.and_then(HerdctlFolder::left_beside).map_or(Self::Nothing, Self::Ignored),
            Some(folder) if fresh => Self::Declined(folder),
            Some(folder) => Self::From(folder),
        }
    }

    /// Returns an error while herdctl runs, because herdctl and cowhand would run the same schedules.
    pub(crate) fn refuse_if_running(&self) -> Result<(), HerdctlError> {
        match self {
            Self::Nothing => Ok(()),
            Self::From(folder) | Self::Declined(folder) | Self::Ignored(folder) => {
                Ok(folder.refuse_if_running()?)
            }
        }
    }

    /// Imports the state once. A crash before the end leaves files that the next try writes again.
    pub async fn run(
        self,
        store: &Store,
        state: &StateFolder,
        node: &str,
        redactor: Redactor,
        now: Timestamp,
    ) -> Result<(), HerdctlError> {
        let folder = match self {
            Self::Nothing | Self::Ignored(_) => return Ok(()),
            Self::Declined(_) => return Ok(store.decline_import(now).await?),
            Self::From(folder) => folder,
        };
        if !store.wants_import().await? {
            return Ok(());
        }
        let files = state.clone();
        let history = tokio::task::spawn_blocking(move || read_and_copy(&folder, &files, &redactor));
        let history = history.await.map_err(|_| HerdctlError::Died)??;
        for note in &history.notes {
            warn!("importing from herdctl: {note}");
        }
        fault::point("import_copied");
        if let Some(imported) = store.import(history, node.to_owned(), now).await? {
            info!("{imported}");
        }
        fault::point("imported");
        Ok(())
    }
}

/// Reads the history, copies the output of its jobs, and writes a view of each job. Output that cannot be read is left
/// out.
fn read_and_copy(
    folder: &HerdctlFolder,
    state: &StateFolder,
    redactor: &Redactor,
) -> Result<History, HerdctlError> {
    let mut history = folder.read(redactor)?;
    let state_path = state.path().display().to_string();
    for past in &history.jobs {
        let id = past.job.id();
        match folder.output(id) {
            Ok(None) => {}
            Ok(Some(output)) => {
                let copied = copy_output(output, &state.output(id), redactor);
                copied.map_err(|source| HerdctlError::State { folder: state_path.clone(), source })?;
            }
            Err(error) => history.notes.push(format!("the output of {id} is not imported: {error}")),
        }
        let record = JobRecord::from(past.job.clone());
        view::write_job(state, &record, redactor).map_err(|error| HerdctlError::State {
            folder: state_path.clone(),
            source: io::Error::other(error),
        })?;
    }
    Ok(history)
}

/// Copies output line by line, with masked secrets.
fn copy_output(output: File, target: &Path, redactor: &Redactor) -> io::Result<()> {
    let folder = target.parent().unwrap_or(Path::new("."));
    let mut copy = BufWriter::new(tempfile::NamedTempFile::new_in(folder)?);
    for line in BufReader::new(output).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        copy.write_all(redactor.redact_line(&line).as_bytes())?;
        copy.write_all(b"\n")?;
    }
    copy.into_inner()?.persist(target)?;
    Ok(())
}
