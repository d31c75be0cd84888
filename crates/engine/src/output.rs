//! The output of jobs in the state folder.

use cowhand_core::id::JobId;
use cowhand_core::job::JobStatus;
use tokio::sync::watch;

use crate::error::FleetError;
use crate::state::StateFolder;
use cowhand_run::jsonl::{self, Jsonl};
use cowhand_store::Store;

/// A reader of a job's output that waits for new lines.
#[derive(Debug)]
pub struct OutputReader {
    store: Store,
    job: JobId,
    jsonl: Jsonl,
    /// Signal of new lines; `None` if only the lines that exist are read.
    growth: Option<watch::Receiver<()>>,
    /// The newest event at the last read. The end of the job is an event, so a newer event may be that end.
    seen: i64,
}

impl OutputReader {
    /// Returns a reader of the lines after the first `after` lines. `growth` signals new lines until the job has ended;
    /// without `growth`, only the lines that exist are read.
    pub fn new(
        store: &Store,
        state: &StateFolder,
        job: &JobId,
        after: u64,
        growth: Option<watch::Receiver<()>>,
    ) -> Self {
        Self {
            seen: store.committed(),
            store: store.clone(),
            job: job.clone(),
            jsonl: Jsonl::after(state.output(job), after),
            growth,
        }
    }

    pub const fn job(&self) -> &JobId {
        &self.job
    }

    /// Returns the next lines. The result is empty if there are no new lines yet, and `None` if there will be none.
    pub async fn more(&mut self) -> Result<Option<Vec<u8>>, FleetError> {
        // Check for the end before reading, so that lines written before the end are not missed.
        self.seen = self.store.committed();
        let mut is_live = false;
        if let Some(growth) = &mut self.growth {
            growth.mark_unchanged();
            let job = self.store.job(self.job.clone()).await?;
            let job = job.ok_or_else(|| FleetError::NoJob(self.job.clone()))?;
            is_live = matches!(job.status(), JobStatus::Pending | JobStatus::Running);
        }
        let part = self.jsonl.next_lines().map_err(|source| unreadable(&self.job, source))?;
        Ok((is_live || !part.is_empty()).then_some(part))
    }

    /// Waits until there may be new lines since the last read, including lines that were written during that read, or
    /// until the job may have ended. Returns at once if only the lines that exist are read.
    pub async fn grown(&mut self) {
        let Some(growth) = &mut self.growth else { return };
        tokio::select! {
            _ = growth.changed() => {}
            () = self.store.changed(self.seen) => {}
        }
    }
}

/// Returns the final output of a job: see [`crate::fleet::Fleet::result`].
pub async fn result(state: &StateFolder, job: JobId) -> Result<Option<String>, FleetError> {
    let path = state.output(&job);
    // Reading a large file takes long enough to block other tasks.
    let read = tokio::task::spawn_blocking(move || jsonl::final_output(&path)).await;
    read.map_err(std::io::Error::other).flatten().map_err(|source| unreadable(&job, source))
}

fn unreadable(job: &JobId, source: std::io::Error) -> FleetError {
    FleetError::Output { job: job.clone(), source }
}
