//! Imports: the jobs, sessions and schedule states of herdctl are added to the store. A run of a schedule is a job that
//! herdctl ran for the schedule. Due times up to the last run of a schedule do not fire again.

use std::path::PathBuf;

use cowhand_core::event::Fact;
use cowhand_core::id::{AgentName, ScheduleId, ScheduleName};
use cowhand_core::job::{Job, JobState};
use cowhand_core::session::SessionPolicy;
use jiff::Timestamp;

use super::database::db::{Tx, args};
use super::database::dialect::statements;
use super::database::event_log::NewEvent;
use super::jobs::{self, JobOrigin, to_json};
use super::{Store, StoreError, schedules, usage};

statements! {
    ADD_IMPORT = same "insert into imports (source, imported_at) values ($1, $2) on conflict (source) do nothing";
    IS_IMPORTED = same "select source from imports where source = $1";
    IS_USED = same "select id from jobs union all select schedule_id as id from firings limit 1";
    ADD_PAST_ATTEMPT = same "insert into attempts (job_id, number, node, started_at, ended_at, outcome, directory, runtime, \
        usage) values ($1, 1, $2, $3, $4, $5, $6, 'claude', $7)";
    SET_SESSION_KEY = same "update jobs set session_key = $2 where id = $1";
}

const HERDCTL_IMPORT: &str = "herdctl";

/// History to import.
#[derive(Debug, Clone, Default)]
pub struct History {
    pub schedules: Vec<PastSchedule>,
    /// Jobs in the order in which they were made.
    pub jobs: Vec<PastJob>,
    /// Notes about files that could not be read.
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastSchedule {
    pub agent: AgentName,
    pub name: ScheduleName,
    pub disabled: bool,
    /// Start of the last job that herdctl ran for the schedule.
    pub last_run_at: Option<Timestamp>,
    pub last_error: Option<String>,
}

#[derive(Debug, Clone)]
pub struct PastJob {
    pub job: Job,
    /// Session of the job, if it is the agent's newest session, or the session of a channel.
    pub session: Option<PastSession>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastSession {
    pub directory: Option<PathBuf>,
}

/// Numbers of imported records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Imported {
    pub disabled: usize,
    pub(crate) last_runs: usize,
    pub sessions: usize,
    pub jobs: usize,
}

impl Imported {
    /// Reads the numbers from the event of an import.
    pub const fn of(fact: &Fact) -> Option<Self> {
        match *fact {
            Fact::FleetImported { disabled, last_runs, sessions, jobs, .. } => {
                Some(Self { disabled, last_runs, sessions, jobs })
            }
            _ => None,
        }
    }
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

impl Store {
    /// Returns true if the state of herdctl has to be imported: the import was neither done nor declined, and the store
    /// has no jobs and no firings.
    pub async fn wants_import(&self) -> Result<bool, StoreError> {
        self.read(|tx| Box::pin(wants_import(tx))).await
    }

    /// Records that the state of herdctl must not be imported.
    pub async fn decline_import(&self, now: Timestamp) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move { tx.execute(ADD_IMPORT, args![HERDCTL_IMPORT, now]).await.map(drop) })
        })
        .await
    }

    /// Imports the whole history, or nothing. Returns `None` if there is nothing to import any more, for example
    /// because another process imported the history meanwhile. Load the schedules of the config before this call.
    pub async fn import(
        &self,
        history: History,
        node: String,
        now: Timestamp,
    ) -> Result<Option<Imported>, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                if !wants_import(tx).await? || tx.execute(ADD_IMPORT, args![HERDCTL_IMPORT, now]).await? == 0
                {
                    return Ok(None);
                }
                let mut imported = Imported { jobs: history.jobs.len(), ..Imported::default() };
                for past in &history.jobs {
                    imported.sessions += usize::from(past.session.is_some());
                    add_job(tx, past, &node).await?;
                }
                for past in history.schedules {
                    set_schedule(tx, past, &mut imported).await?;
                }
                let Imported { disabled, last_runs, sessions, jobs } = imported;
                let fact = Fact::FleetImported {
                    source: HERDCTL_IMPORT.to_owned(),
                    disabled,
                    last_runs,
                    sessions,
                    jobs,
                };
                tx.record(NewEvent::of_fleet(fact, now));
                Ok(Some(imported))
            })
        })
        .await
    }
}

async fn wants_import(tx: &mut Tx<'_>) -> Result<bool, StoreError> {
    Ok(tx.one(IS_IMPORTED, args![HERDCTL_IMPORT]).await?.is_none()
        && tx.one(IS_USED, args![]).await?.is_none())
}

/// Adds an ended job with its only attempt and its cost. A job that has not ended, or whose id is taken, is left out.
async fn add_job(tx: &mut Tx<'_>, past: &PastJob, node: &str) -> Result<(), StoreError> {
    let PastJob { job, session } = past;
    let JobState::Ended { at, outcome } = job.state() else { return Ok(()) };
    if !jobs::insert(tx, job, &JobOrigin::default()).await? {
        return Ok(());
    }
    let directory = session.as_ref().and_then(|session| session.directory.as_ref());
    let directory = directory.map(|directory| directory.to_string_lossy().into_owned());
    let usage = job.usage().map(to_json).transpose()?;
    let (started, ended) = (job.created_at(), *at);
    let row = args![job.id().as_str(), node, started, ended, to_json(outcome)?, directory, usage];
    tx.execute(ADD_PAST_ATTEMPT, row).await?;
    if session.is_some() {
        // herdctl keeps one session for each agent, and one for each channel of a chat.
        let policy = job.chat().map_or(SessionPolicy::Continue, |_| SessionPolicy::PerChat);
        let key = policy.key(None, job.chat());
        tx.execute(SET_SESSION_KEY, args![job.id().as_str(), key]).await?;
    }
    match job.usage() {
        Some(usage) => usage::add(tx, job, Some(usage), ended).await,
        None => Ok(()),
    }
}

/// Sets the state of a schedule. Schedules that the config no longer has are left out.
async fn set_schedule(
    tx: &mut Tx<'_>,
    past: PastSchedule,
    imported: &mut Imported,
) -> Result<(), StoreError> {
    let id = ScheduleId::of(&past.agent, &past.name);
    let Some(mut schedule) = schedules::lock_opt(tx, id).await? else { return Ok(()) };
    imported.disabled += usize::from(past.disabled);
    imported.last_runs += usize::from(past.last_run_at.is_some());
    schedule.import(past.disabled, past.last_run_at, past.last_error);
    schedules::save(tx, &schedule).await
}
