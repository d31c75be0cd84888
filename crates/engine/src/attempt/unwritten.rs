//! Output that could not be written to the job's JSONL. This must not block the job, so the output is kept in the
//! attempt's folder. It is written to the job's JSONL when the attempt has ended or, if that fails, at the next start
//! of the daemon.

use std::fs;
use std::path::PathBuf;

use anyhow::Context;
use cowhand_core::id::JobId;
use jiff::Timestamp;
use tracing::{info, warn};

use super::AttemptTask;
use super::rules::Rules;
use crate::loaded::Loaded;
use crate::secrets::redactor_over;
use crate::state::StateFolder;
use cowhand_run::attempt::Attempt;
use cowhand_run::redact::Redactor;
use cowhand_run::runtime::Reader;
use cowhand_run::supervision::AttemptState;
use cowhand_run::tail::{TailFiles, Tailer};
use cowhand_system::remove::{is_missing, missing_is_ok};

/// File with the messages that were read while the job's output could not be written. It exists until they are in the
/// job's JSONL.
const UNWRITTEN: &str = "unwritten.jsonl";
const INDEX: &str = "unwritten.index";

/// Returns the files of an attempt's output, with the job's own JSONL as the target.
pub(super) fn files(attempt: &Attempt, state: &StateFolder, job: &JobId) -> TailFiles {
    TailFiles {
        stdout: attempt.stdout(),
        stderr: attempt.stderr(),
        jsonl: state.output(job),
        index: attempt.folder().join("index"),
        attempt: attempt.number().unwrap_or(1),
        previous_ending: None,
    }
}

/// Returns the files of an attempt's output, with a JSONL in the attempt's own folder as the target.
pub(super) fn files_in_attempt(attempt: &Attempt) -> TailFiles {
    let (stdout, stderr) = (attempt.stdout(), attempt.stderr());
    let (index, number) = (attempt.folder().join(INDEX), attempt.number().unwrap_or(1));
    TailFiles {
        stdout,
        stderr,
        jsonl: unwritten_file(attempt),
        index,
        attempt: number,
        previous_ending: None,
    }
}

fn unwritten_file(attempt: &Attempt) -> PathBuf {
    attempt.folder().join(UNWRITTEN)
}

/// Returns whether output of an attempt was read while the job's JSONL could not be written, and is not in it yet.
pub(crate) fn is_unwritten(attempt: &Attempt) -> bool {
    unwritten_file(attempt).exists()
}

impl AttemptTask {
    /// Tries again to write the output of an ended attempt to the job's JSONL.
    pub(super) async fn write_output(&self, rules: &Rules) {
        let (attempt, state, redactor) =
            (self.attempt(), self.engine.home.state.clone(), self.redactor(rules));
        let now = self.now();
        let result =
            cowhand_system::blocking::run_blocking(move || write_output(&attempt, &state, &redactor, now))
                .await;
        if let Err(error) = result {
            warn!(job = %self.job.id(), "cannot write the output of the job; the next start tries again: {error:#}");
        }
    }
}

fn write_output(
    attempt: &Attempt,
    state: &StateFolder,
    redactor: &Redactor,
    now: Timestamp,
) -> anyhow::Result<()> {
    let job = attempt.job().context("it is not an attempt of a job")?;
    let start = attempt.start()?;
    let reader = start.reader.unwrap_or_else(Reader::command);
    let mut tail = Tailer::open(files(attempt, state, &job), reader, redactor.clone(), now)?;
    if let AttemptState::Ended(ending) = attempt.state()? {
        tail.finish(&ending, now)?;
    } else {
        tail.advance(now)?;
    }
    missing_is_ok(fs::remove_file(attempt.folder().join(INDEX)))?;
    missing_is_ok(fs::remove_file(unwritten_file(attempt)))?;
    Ok(())
}

/// Writes the output that an earlier daemon could not write. `last_attempt` is the number of the last attempt of the job
/// in the store, if the store has the job. If the job had a later attempt, nothing is written, because the output of this
/// attempt would have to precede that of the later attempt. The folder of the later attempt may be gone already. Returns
/// whether the output is written.
pub(crate) fn catch_up(
    attempt: &Attempt,
    state: &StateFolder,
    last_attempt: Option<u32>,
    loaded: &Loaded,
    now: Timestamp,
) -> bool {
    let Some((job, number)) = attempt.job().zip(attempt.number()) else { return false };
    let has_later_folder = !is_missing(Attempt::new(state.path(), &job, number + 1).folder());
    if has_later_folder || last_attempt.is_some_and(|last| last > number) {
        return false;
    }
    match write_output(attempt, state, &redactor_over(loaded, None), now) {
        Ok(()) => {
            info!(%job, "its output is written now");
            true
        }
        Err(error) => {
            warn!(%job, "still cannot write the output of the job: {error:#}");
            false
        }
    }
}
