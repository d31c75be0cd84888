//! The outcome of an attempt, kept in its folder.
//!
//! The store has the outcome as well. But a store that was restored from a backup may record the attempt as running,
//! and the raw output, from which the outcome was made, has been removed.

use std::fs;
use std::path::PathBuf;

use cowhand_core::attempt::Settlement;
use cowhand_core::id::JobId;
use cowhand_core::job::{Outcome, Termination};
use tracing::warn;

use super::AttemptTask;
use crate::prune::files::entries;
use crate::state::StateFolder;
use crate::view::write_whole;
use cowhand_run::attempt::Attempt;
use cowhand_run::ending::{Ending, ExitStatus};
use cowhand_run::supervision::AttemptState;

const OUTCOME_FILE: &str = "outcome.json";

fn file(attempt: &Attempt) -> PathBuf {
    attempt.folder().join(OUTCOME_FILE)
}

/// Returns how the last attempt of a cancelled job ended, from the folder of the attempt; `None` if the job was not
/// cancelled, or if the attempt is not settled.
pub fn termination(state: &StateFolder, job: &JobId) -> Option<Termination> {
    let folder = state.attempts();
    let attempts = entries(&folder).ok()?.filter_map(|entry| Attempt::at(&entry.ok()?.path()).ok());
    let of_job = attempts.filter(|attempt| attempt.job().as_ref() == Some(job));
    let text = fs::read(file(&of_job.max_by_key(Attempt::number)?)).ok()?;
    match serde_json::from_slice::<Settlement>(&text).ok()?.outcome {
        Outcome::Cancelled { how, .. } => Some(how),
        Outcome::Completed { .. } | Outcome::Failed { .. } => None,
    }
}

impl AttemptTask {
    /// Writes the outcome to the folder, before the raw output is removed.
    pub(super) fn keep_outcome(&self, settlement: &Settlement) {
        let result = serde_json::to_vec(settlement).map_err(std::io::Error::from);
        let result = result.and_then(|text| write_whole(&file(&self.attempt()), &text));
        if let Err(error) = result {
            warn!(job = %self.job.id(), "cannot write the outcome file; the outcome is only in the store: {error}");
        }
    }

    /// Returns the settlement of an attempt that was settled before, if the store does not know that because a backup
    /// was restored. Such an attempt has ended, and its raw output has been removed. If the outcome file cannot be
    /// read, the outcome is lost.
    pub(super) async fn earlier_settlement(&self) -> Option<Settlement> {
        let (attempt, lost) = (self.attempt(), |message| self.lost_settlement(message));
        let state = attempt.on_blocking_thread(Attempt::state).await.ok()?;
        let AttemptState::Ended(ending) = state else { return None };
        if attempt.stdout().exists() {
            return None;
        }
        let kept = fs::read(file(&attempt)).ok().and_then(|text| serde_json::from_slice(&text).ok());
        warn!(job = %self.job.id(), "it was settled before, and the store does not know it; was a backup restored, or another store used?");
        Some(kept.unwrap_or_else(|| Settlement {
            ended_at: Some(ending.at),
            ended_boot: ending.boot,
            ..lost(lost_message(&ending))
        }))
    }
}

fn lost_message(ending: &Ending) -> String {
    let how = match &ending.status {
        ExitStatus::Code { code } => format!(" with exit code {code}"),
        ExitStatus::Signal { signal, .. } => format!(" by signal {signal}"),
        ExitStatus::StartFailed { message } => format!(" before it began: {message}"),
        ExitStatus::Lost { .. } => String::new(),
    };
    format!(
        "lost: the attempt ended{how}, and the store does not know its outcome, because a backup was restored or the \
         daemon ran with another store meanwhile"
    )
}
