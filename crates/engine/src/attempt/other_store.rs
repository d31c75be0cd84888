//! A store that does not know the attempts and hooks of the state folder. A daemon with such a store would end running
//! attempts as orphans, remove the output of ended ones, and remove the hooks, so it does not start.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use cowhand_core::id::JobId;
use jiff::Timestamp;

use super::orphans::all_running;
use super::outcomes;
use crate::error::{DamagedRecord, FleetError, LostData, OtherStore, UnsettledJobs};
use crate::prune::files::entries;
use crate::state::{StateFolder, StoreMark};
use cowhand_run::attempt::Attempt;
use cowhand_run::supervision::AttemptState;
use cowhand_store::{PastAttempt, Store, is_postgres};
use cowhand_system::blocking::run_blocking;
use cowhand_system::remove::is_missing;

/// Returns an error if attempts or hooks that belong to another store than `store` are not settled. If `store` is
/// `None`, the store is the SQLite file in the state folder.
pub async fn refuse_other_store(state: &StateFolder, store: Option<&str>) -> Result<(), FleetError> {
    let folder = state.clone();
    if store.is_none() {
        run_blocking(move || refuse_without_store(&folder)).await?;
    }
    let Some(mark) = state.store_mark().transpose() else { return Ok(()) };
    let folder = state.clone();
    let jobs = run_blocking(move || unsettled_jobs(&folder)).await?;
    if jobs.is_empty() {
        return Ok(());
    }
    let mark = mark.map_err(|error| damaged(state, &error, jobs.clone()))?;
    let file = state.database().display().to_string();
    let location = store.unwrap_or(&file);
    // A person removed the file and the history in it. `refuse_without_store` has checked that no agents or hooks run,
    // so the start is allowed.
    if store.is_none() && mark.location == file && is_missing(&state.database()) {
        return Ok(());
    }
    if Store::check_location(location).await?.as_ref() == Some(&mark.id) {
        return if store.is_none() { refuse_older_store(state, jobs) } else { Ok(()) };
    }
    Err(other_store(state, mark, jobs))
}

/// Returns an error if the file of the store is missing while attempts or hooks still run. A new store would not know
/// them.
fn refuse_without_store(state: &StateFolder) -> Result<(), FleetError> {
    if !is_missing(&state.database()) {
        return Ok(());
    }
    let jobs = unsettled_jobs(state)?;
    if !jobs.any_runs() {
        return Ok(());
    }
    match state.store_mark() {
        Ok(Some(mark)) if is_postgres(&mark.location) => Err(other_store(state, mark, jobs)),
        Ok(_) => {
            let database = state.database().display().to_string();
            Err(FleetError::StoreGone { database, lost: LostData::All, jobs: Box::new(jobs) })
        }
        Err(error) => Err(damaged(state, &error, jobs)),
    }
}

/// Returns an error if the file of the store does not know attempts that still run. The file knew them when they were
/// started, so it has lost its newest data since then. `restore` removes the record of the store
/// ([`StateFolder::store_mark`]), so that this check does not apply to a restored store.
fn refuse_older_store(state: &StateFolder, jobs: UnsettledJobs) -> Result<(), FleetError> {
    let file = state.database();
    if Store::unknown_jobs(&file, &jobs.running)?.is_empty() {
        return Ok(());
    }
    let database = file.display().to_string();
    Err(FleetError::StoreGone { database, lost: LostData::Newest, jobs: Box::new(jobs) })
}

/// Returns the record of the store that the last daemon used, if `store` is another one. If `store` cannot be read, its
/// address decides whether it is another one. Returns `None` if the record does not exist or cannot be read.
pub async fn former_store(state: &StateFolder, store: Option<&str>) -> Option<StoreMark> {
    let mark = state.store_mark().ok()??;
    let file = state.database().display().to_string();
    let location = store.unwrap_or(&file);
    let is_same = match Store::check_location(location).await {
        Ok(id) => id.as_ref() == Some(&mark.id),
        Err(_) => Store::address_of(location).as_ref() == Some(&mark.location),
    };
    (!is_same).then_some(mark)
}

/// Returns the jobs of the attempts and hooks in the state folder that are not settled in their store.
pub fn unsettled_jobs(state: &StateFolder) -> Result<UnsettledJobs, FleetError> {
    let state_error = |source| state_error(state, source);
    let running = all_running(state).map_err(state_error)?;
    let mut keepers: Vec<i32> = running.iter().filter_map(|(attempt, _)| attempt.keeper_pid()).collect();
    let running: Vec<JobId> = running.into_iter().map(|(_, job)| job).collect();
    let mut ended = unsettled(state).map_err(state_error)?;
    ended.retain(|job| !running.contains(job));
    let hooks = begun_hooks(state).map_err(state_error)?;
    keepers.extend(hooks.iter().filter(|hook| hook.runs).filter_map(|hook| hook.attempt.keeper_pid()));
    let jobs_of = |runs: bool| {
        let jobs = hooks.iter().filter(|hook| hook.runs == runs).map(|hook| hook.job.clone());
        jobs.collect::<BTreeSet<_>>().into_iter().collect()
    };
    let (running_hooks, ended_hooks) = (jobs_of(true), jobs_of(false));
    Ok(UnsettledJobs { running, keepers, ended, running_hooks, ended_hooks })
}

/// State of an attempt that the store has as running, although it does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnsettledAttempt {
    /// It began and has ended, at this time if it is known. The next start writes its outcome, and may retry the job.
    Ended { at: Option<Timestamp> },
    /// Its agent was never started. The next start requeues the job.
    NeverBegan,
}

impl UnsettledAttempt {
    /// Returns a sentence about the job of the attempt.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Ended { .. } => "its attempt has ended, and the next start ends or retries the job",
            Self::NeverBegan => "its attempt never began, and the next start continues the job",
        }
    }
}

/// Returns those of the running jobs whose attempts of this node do not run and are not settled. After a restore, this
/// includes the jobs whose attempts were settled after the backup was made. Call it only if no daemon runs.
pub async fn unsettled_attempts(
    state: &StateFolder,
    store: &Store,
    running: BTreeSet<JobId>,
) -> Result<BTreeMap<JobId, UnsettledAttempt>, FleetError> {
    if running.is_empty() {
        return Ok(BTreeMap::new());
    }
    let folder = state.clone();
    let UnsettledJobs { running: live, ended, .. } = run_blocking(move || unsettled_jobs(&folder)).await?;
    let node = state.known_node();
    let mut found = BTreeMap::new();
    for job in running.into_iter().filter(|job| !live.contains(job)) {
        let history = store.history(job.clone()).await?;
        let last = history.and_then(|history| history.attempts.into_iter().last());
        // Another node knows the state of its attempts.
        let Some(last) = last.filter(|last| Some(&last.node) == node.as_ref()) else { continue };
        let (state, id, has_output) = (state.clone(), job.clone(), ended.contains(&job));
        let state = run_blocking(move || state_of_ended(&state, &id, &last, has_output)).await;
        found.insert(job, state);
    }
    Ok(found)
}

/// Returns the state of an attempt that does not run. Without raw output, the attempt never began, or it was settled
/// before the store was restored.
fn state_of_ended(
    state: &StateFolder,
    job: &JobId,
    last: &PastAttempt,
    has_output: bool,
) -> UnsettledAttempt {
    let attempt = Attempt::new(state.path(), job, last.number);
    let is_settled = || outcomes::contains(state, job, last.number);
    let is_lost = || {
        is_missing(attempt.folder())
            && state.restored_at().is_some_and(|restored_at| last.started_at <= restored_at)
    };
    // A file that cannot be read may be the record of a keeper.
    if has_output || attempt.began().unwrap_or(true) || is_settled() || is_lost() {
        UnsettledAttempt::Ended { at: attempt.ending().ok().flatten().map(|ending| ending.at) }
    } else {
        UnsettledAttempt::NeverBegan
    }
}

fn state_error(state: &StateFolder, source: io::Error) -> FleetError {
    FleetError::State { folder: state.path().display().to_string(), source }
}

/// Returns a sentence with the number of unsettled jobs; `None` if there are no such jobs.
pub fn unsettled_sentence(count: usize) -> Option<String> {
    match count {
        0 => None,
        1 => Some(
            "the attempt of 1 job has ended or never began, and the next start ends or continues the job"
                .to_owned(),
        ),
        more => Some(format!(
            "the attempts of {more} jobs have ended or never began, and the next start ends or continues the jobs"
        )),
    }
}

/// A shell hook that began and whose folder still exists.
struct BegunHook {
    attempt: Attempt,
    job: JobId,
    runs: bool,
}

/// Returns the shell hooks that began and are not settled. The folder of a hook is removed after its result is in the
/// store.
fn begun_hooks(state: &StateFolder) -> io::Result<Vec<BegunHook>> {
    let mut found = Vec::new();
    for entry in entries(&state.attempts())? {
        let Ok(attempt) = Attempt::at(&entry?.path()) else { continue };
        let Some((job, _)) = attempt.hook() else { continue };
        let runs = match attempt.state() {
            Ok(AttemptState::Ended(_) | AttemptState::Gone) => false,
            // A hook whose state cannot be read may run.
            Ok(AttemptState::Kept | AttemptState::Unkept) | Err(_) => true,
        };
        if runs || attempt.began()? {
            found.push(BegunHook { attempt, job, runs });
        }
    }
    Ok(found)
}

/// Returns the jobs whose last attempt began and is not settled. An earlier attempt of a job is settled before the next
/// one begins. The raw output of a settled attempt is removed, so an attempt with raw output is not settled.
fn unsettled(state: &StateFolder) -> io::Result<Vec<JobId>> {
    let mut last: BTreeMap<JobId, (u32, Attempt)> = BTreeMap::new();
    for entry in entries(&state.attempts())? {
        let Ok(attempt) = Attempt::at(&entry?.path()) else { continue };
        let Some((job, number)) = attempt.job_and_number() else { continue };
        if last.get(&job).is_none_or(|(known, _)| *known < number) {
            last.insert(job, (number, attempt));
        }
    }
    let mut found = Vec::new();
    for (job, (_, attempt)) in last {
        if attempt.has_output() && attempt.began()? {
            found.push(job);
        }
    }
    Ok(found)
}

fn other_store(state: &StateFolder, mark: StoreMark, jobs: UnsettledJobs) -> FleetError {
    let record = state.store_mark_file();
    FleetError::OtherStore(Box::new(OtherStore { location: mark.location, record, jobs, daemon_runs: false }))
}

fn damaged(state: &StateFolder, error: &io::Error, jobs: UnsettledJobs) -> FleetError {
    let (record, why) = (state.store_mark_file(), error.to_string());
    FleetError::DamagedStoreRecord(Box::new(DamagedRecord { record, why, jobs }))
}
