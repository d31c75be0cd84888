//! The outcomes of settled attempts, in the files `outcomes.jsonl` and `outcomes.1.jsonl` of the state folder.
//!
//! The store has the outcomes as well. But a store that was restored from a backup may record an attempt as running,
//! although the attempt has ended and its folder has been removed. Then these files state how the attempt ended.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::{Mutex, PoisonError};

use cowhand_core::attempt::Settlement;
use cowhand_core::id::JobId;
use cowhand_core::job::{Outcome, Termination};
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::AttemptTask;
use super::unwritten::is_unwritten;
use crate::state::{StateFolder, read_small};
use crate::view::write_whole;
use cowhand_run::attempt::Attempt;
use cowhand_run::ending::{Ending, ExitStatus};
use cowhand_run::supervision::AttemptState;
use cowhand_system::remove::{is_missing, missing_is_ok};

/// Outcome file in the folder of an attempt that an earlier version settled.
const FORMER_OUTCOME_FILE: &str = "outcome.json";
/// Size at which `outcomes.jsonl` is renamed to `outcomes.1.jsonl`. A file of this size contains about 20,000 attempts.
const MAX_FILE_BYTES: u64 = 8 << 20;

/// A line of the files.
#[derive(Debug, Serialize, Deserialize)]
struct SettledAttempt {
    job: JobId,
    attempt: u32,
    settlement: Settlement,
}

/// Appends the outcome of an attempt.
fn append(state: &StateFolder, settled: &SettledAttempt) -> io::Result<()> {
    static APPENDING: Mutex<()> = Mutex::new(());
    let mut line = serde_json::to_vec(settled)?;
    // A power failure can leave an incomplete line. Therefore each line begins with a line break.
    line.insert(0, b'\n');
    let [current, former] = state.outcomes();
    let _guard = APPENDING.lock().unwrap_or_else(PoisonError::into_inner);
    let open = || OpenOptions::new().append(true).create(true).mode(0o600).open(&current);
    let mut file = open()?;
    if file.metadata()?.len() >= MAX_FILE_BYTES {
        fs::rename(&current, former)?;
        file = open()?;
    }
    file.write_all(&line)
}

/// Returns the newest line for which `fits` is true. Lines that cannot be read are ignored.
fn find(state: &StateFolder, fits: impl Fn(&SettledAttempt) -> bool) -> Option<SettledAttempt> {
    let files = state.outcomes().into_iter().filter_map(|file| read_small(&file).ok());
    files.into_iter().find_map(|text| lines(&text).rev().filter_map(read_line).find(&fits))
}

fn lines(text: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

fn read_line(line: &[u8]) -> Option<SettledAttempt> {
    serde_json::from_slice(line).ok()
}

/// Removes the outcomes of attempts that a restored store does not know. The store will use the numbers of these
/// attempts again.
pub(crate) fn retain(state: &StateFolder, knows: impl Fn(&JobId, u32) -> bool) -> io::Result<()> {
    for file in state.outcomes() {
        let text = match read_small(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            text => text?,
        };
        let is_known = |line: &&[u8]| read_line(line).is_some_and(|own| knows(&own.job, own.attempt));
        let kept: Vec<u8> = lines(&text).filter(is_known).flat_map(|line| [b"\n", line].concat()).collect();
        write_whole(&file, &kept)?;
    }
    Ok(())
}

/// Returns whether the files contain the outcome of an attempt.
pub(super) fn contains(state: &StateFolder, job: &JobId, number: u32) -> bool {
    find(state, |settled| settled.job == *job && settled.attempt == number).is_some()
}

/// Returns how the last settled attempt of a cancelled job ended. Returns `None` if the job was not cancelled, or if
/// the files do not contain its outcome.
pub fn termination(state: &StateFolder, job: &JobId) -> Option<Termination> {
    match find(state, |settled| settled.job == *job)?.settlement.outcome {
        Outcome::Cancelled { how, .. } => Some(how),
        Outcome::Completed { .. } | Outcome::Failed { .. } => None,
    }
}

/// Removes the files of a settled attempt. Removes its folder if `can_remove_folder` is true and its processes have
/// ended. Otherwise removes only its raw output. The folder of an attempt with a workspace has to stay until the diff
/// of the workspace is made.
fn remove_settled(attempt: &Attempt, can_remove_folder: bool) -> io::Result<()> {
    let has_ended = || Ok::<_, io::Error>(!attempt.began()? || attempt.ending()?.is_some());
    if can_remove_folder && has_ended()? { attempt.discard() } else { attempt.remove_output() }
}

/// Removes the files of an attempt that an earlier daemon has settled. The folder of the attempt stays if the job's
/// workspace still exists. If a daemon of an earlier version settled the attempt, its outcome is appended to
/// `outcomes.jsonl`.
pub(crate) fn remove_settled_earlier(attempt: &Attempt, state: &StateFolder) -> io::Result<()> {
    let Some((job, number)) = attempt.job_and_number() else { return attempt.remove_output() };
    let has_workspace = !is_missing(&state.workspaces().join(job.as_str()));
    let file = attempt.folder().join(FORMER_OUTCOME_FILE);
    let settlement = fs::read(file).ok().and_then(|text| serde_json::from_slice(&text).ok());
    let is_kept = settlement
        .is_none_or(|settlement| append(state, &SettledAttempt { job, attempt: number, settlement }).is_ok());
    remove_settled(attempt, is_kept && !has_workspace)
}

/// Removes the folders of a job's settled attempts, after its workspace was removed.
pub(crate) fn remove_folders(state: &StateFolder, job: &JobId, attempts: u32) -> io::Result<()> {
    for number in 1..=attempts {
        let attempt = Attempt::new(state.path(), job, number);
        let is_settled = !is_missing(attempt.folder()) && !attempt.has_output() && !is_unwritten(&attempt);
        if is_settled && attempt.ending()?.is_some() {
            missing_is_ok(attempt.discard())?;
        }
    }
    Ok(())
}

impl AttemptTask {
    /// Appends the outcome of an attempt that the store has settled, and removes the files of the attempt.
    pub(super) fn remove_settled_files(&self, settlement: &Settlement) {
        let (attempt, job) = (self.attempt(), self.job.id());
        if is_unwritten(&attempt) {
            return;
        }
        let (number, settlement) = (self.job.attempts(), settlement.clone());
        let settled = SettledAttempt { job: job.clone(), attempt: number, settlement };
        let appended = append(&self.engine.home.state, &settled);
        if let Err(error) = &appended {
            warn!(%job, "cannot write to outcomes.jsonl; the outcome is only in the store: {error}");
        }
        let can_be_removed = appended.is_ok() && !self.may_have_workspace();
        if let Err(error) = remove_settled(&attempt, can_be_removed) {
            warn!(%job, "cannot remove the files of its attempt: {error}");
        }
    }

    /// Returns the earlier settlement of an attempt that the store has as not settled because a backup was restored.
    /// Such an attempt has ended, and its folder or its raw output has been removed. If the outcome files do not
    /// contain its outcome, returns a lost settlement with the time of the ending, or `None` if the folder of the
    /// attempt is missing too.
    pub(super) async fn earlier_settlement(&self) -> Option<Settlement> {
        let (attempt, job, number) = (self.attempt(), self.job.id().clone(), self.job.attempts());
        let ending = if is_missing(attempt.folder()) {
            None
        } else {
            let state = attempt.on_blocking_thread(Attempt::state).await.ok()?;
            let AttemptState::Ended(ending) = state else { return None };
            if attempt.has_output() {
                return None;
            }
            Some(ending)
        };
        let state = self.engine.home.state.clone();
        let find = move |_: &Attempt| find(&state, |settled| settled.job == job && settled.attempt == number);
        let kept = attempt.on_blocking_thread(find).await.map(|settled| settled.settlement);
        let settlement = kept.or_else(|| ending.map(|ending| self.lost_outcome(&ending)))?;
        warn!(job = %self.job.id(), "it was settled before, and the store does not know it; was a backup restored, or another store used?");
        Some(settlement)
    }

    fn lost_outcome(&self, ending: &Ending) -> Settlement {
        let lost = self.lost_settlement(lost_message(ending));
        Settlement { ended_at: Some(ending.at), ended_boot: ending.boot, ..lost }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn settled(job: &str, attempt: u32) -> SettledAttempt {
        let outcome = Outcome::Cancelled { how: Termination::Graceful };
        SettledAttempt { job: job.parse().unwrap(), attempt, settlement: outcome.into() }
    }

    #[test]
    fn outcomes_are_found_after_an_incomplete_line() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::at(folder.path());
        let (first, second) = (settled("job-2026-01-05-aaaaaa", 1), settled("job-2026-01-05-bbbbbb", 2));
        assert!(find(&state, |_| true).is_none());
        append(&state, &first).unwrap();
        let [current, former] = state.outcomes();
        let mut text = fs::read(&current).unwrap();
        text.extend(b"\n{\"job\":\"job-2026-01-05-aa");
        fs::write(&current, text).unwrap();
        append(&state, &second).unwrap();
        assert_eq!(find(&state, |own| own.job == first.job).unwrap().attempt, 1);
        assert_eq!(termination(&state, &second.job), Some(Termination::Graceful));
        fs::rename(&current, &former).unwrap();
        append(&state, &settled("job-2026-01-05-bbbbbb", 3)).unwrap();
        assert_eq!(find(&state, |own| own.job == second.job).unwrap().attempt, 3);
        retain(&state, |job, _| *job == second.job).unwrap();
        assert!(find(&state, |own| own.job == first.job).is_none());
        assert_eq!(find(&state, |own| own.attempt == 2).unwrap().job, second.job);
    }

    #[test]
    fn a_full_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::at(folder.path());
        let [current, former] = state.outcomes();
        fs::write(&current, vec![b' '; usize::try_from(MAX_FILE_BYTES).unwrap()]).unwrap();
        append(&state, &settled("job-2026-01-05-aaaaaa", 1)).unwrap();
        assert_eq!(fs::metadata(&former).unwrap().len(), MAX_FILE_BYTES);
        assert!(fs::metadata(&current).unwrap().len() < 1_000);
    }
}
