//! Sessions: the conversation that a job continues, and its node, directory and runtime.

use std::path::{Path, PathBuf};

use cowhand_core::event::Fact;
use cowhand_core::id::{AgentName, JobId};
use cowhand_core::job::Outcome;
use jiff::Timestamp;

use super::database::db::{Row, Tx, args};
use super::database::dialect::statements;
use super::database::event_log::NewEvent;
use super::{Store, StoreError};

statements! {
    // `+` makes SQLite read the running jobs of the agent instead of all jobs with the key.
    RUNNING_JOB_OF_SESSION =
        sqlite "select id from jobs where agent = $1 and +session_key = $2 and status = 'running' and id <> $3 limit 1"
        postgres "select id from jobs where agent = $1 and session_key = $2 and status = 'running' and id <> $3 limit 1";
    SET_KEY = same "update jobs set session_key = $2 where id = $1";
    FORGET_SESSIONS = same "update jobs set session_key = null where agent = $1 and status <> 'running' and session_key is not null";
    // Only the last jobs with the key are read, because a key can have any number of jobs whose sessions are too old.
    NEWEST_SESSION = same "select latest.id, latest.session_id, attempts.node, attempts.directory, attempts.runtime, attempts.outcome \
        from (select id, number, attempt, session_id, finished_at from jobs where agent = $1 and session_key = $2 \
        and session_id is not null and id <> $3 and finished_at is not null and forked_from is null \
        order by number desc limit 20) as latest \
        join attempts on attempts.job_id = latest.id and attempts.number = latest.attempt \
        where latest.finished_at >= $4 order by latest.number desc limit 1";
    SESSION_OF_JOB = same "select jobs.id, jobs.session_id, attempts.node, attempts.directory, attempts.runtime, attempts.outcome \
        from jobs join attempts on attempts.job_id = jobs.id where jobs.id = $1 and jobs.session_id is not null \
        and attempts.number <= jobs.attempt order by (attempts.runtime is null), attempts.number desc limit 1";
    RUNS_BY = same "select jobs.provider, attempts.runtime from jobs left join attempts on attempts.job_id = jobs.id \
        and attempts.number = jobs.attempt where jobs.id = $1";
    SET_LOCATION = same "update attempts set directory = $3, runtime = $4 where job_id = $1 and number = $2 \
        and ended_at is null";
}

/// A session of a job, and the node, directory and runtime with which it can continue.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredSession {
    pub job: JobId,
    pub session_id: String,
    pub node: String,
    /// Directory of the attempt; `None` if it is not stored, for example because an early version of cowhand ran the
    /// job.
    pub directory: Option<PathBuf>,
    /// Runtime of the attempt; `None` if it is not stored.
    pub runtime: Option<String>,
    /// Outcome of the attempt; `None` while it runs.
    pub outcome: Option<Outcome>,
}

/// Provider of a job, and the runtime of its last attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderAndRuntime {
    /// Provider; `None` if the job uses none.
    pub provider: Option<String>,
    /// Runtime; `None` before the launch.
    pub runtime: Option<String>,
}

impl Store {
    /// Returns the session of the newest job with this key that ended at `since` or later. Sessions of `job` itself,
    /// if it is given, and of forks are excluded, because a fork does not change the session from which it began.
    pub async fn newest_session(
        &self,
        agent: AgentName,
        key: String,
        job: Option<JobId>,
        since: Timestamp,
    ) -> Result<Option<StoredSession>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                let job = job.as_ref().map_or("", JobId::as_str);
                let args = args![agent.as_str(), key, job, since];
                tx.one(NEWEST_SESSION, args).await?.as_ref().map(read).transpose()
            })
        })
        .await
    }

    /// Returns whether a job with this key has ended at `since` or later with a session.
    pub async fn has_session(
        &self,
        agent: AgentName,
        key: String,
        since: Timestamp,
    ) -> Result<bool, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                Ok(tx.one(NEWEST_SESSION, args![agent.as_str(), key, "", since]).await?.is_some())
            })
        })
        .await
    }

    /// Returns the session of a job; `None` if the job has no session.
    pub async fn session_of(&self, job: JobId) -> Result<Option<StoredSession>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                tx.one(SESSION_OF_JOB, args![job.as_str()]).await?.as_ref().map(read).transpose()
            })
        })
        .await
    }

    /// Returns the provider of a job and the runtime of its last attempt; `None` if the job is not in the store.
    pub async fn provider_and_runtime(&self, job: JobId) -> Result<Option<ProviderAndRuntime>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                let row = tx.one(RUNS_BY, args![job.as_str()]).await?;
                let read = |row: Row| {
                    Ok(ProviderAndRuntime { provider: row.get("provider")?, runtime: row.get("runtime")? })
                };
                row.map(read).transpose()
            })
        })
        .await
    }

    /// Removes the session key of a job, because its session cannot be found any more. So no later job continues the
    /// session.
    pub async fn forget_session(&self, job: JobId) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move { tx.execute(SET_KEY, args![job.as_str(), None::<String>]).await.map(drop) })
        })
        .await
    }

    /// Stores the directory and the runtime of an attempt that is about to start. Returns false if another node has
    /// settled the attempt.
    pub async fn set_attempt_location(
        &self,
        job: JobId,
        attempt: u32,
        directory: &Path,
        runtime: &'static str,
    ) -> Result<bool, StoreError> {
        let directory = directory.to_string_lossy().into_owned();
        self.write(move |tx| {
            Box::pin(async move {
                let row = args![job.as_str(), attempt, directory, runtime];
                Ok(tx.execute(SET_LOCATION, row).await? == 1)
            })
        })
        .await
    }

    /// Forgets the sessions of an agent, except those of running jobs, on request of a person, and records the event
    /// `agent:cleared`.
    pub async fn clear_agent(&self, agent: AgentName, now: Timestamp) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                forget_all(tx, &agent).await?;
                tx.record(NewEvent {
                    at: now,
                    agent: Some(agent),
                    schedule: None,
                    job: None,
                    fact: Fact::AgentCleared,
                });
                Ok(())
            })
        })
        .await
    }
}

/// Forgets the sessions of an agent: removes the session keys of all its jobs that do not run.
pub(super) async fn forget_all(tx: &mut Tx<'_>, agent: &AgentName) -> Result<(), StoreError> {
    tx.execute(FORGET_SESSIONS, args![agent.as_str()]).await.map(drop)
}

/// Returns true if a job with this key, other than `job`, runs on any node. The caller holds the agent's lock.
pub(super) async fn is_busy(
    tx: &mut Tx<'_>,
    agent: &AgentName,
    key: &str,
    job: Option<&JobId>,
) -> Result<bool, StoreError> {
    let args = args![agent.as_str(), key, job.map_or("", JobId::as_str)];
    Ok(tx.one(RUNNING_JOB_OF_SESSION, args).await?.is_some())
}

/// Stores the session key of a job that starts. `None` does not change the stored key.
pub(super) async fn set_key(tx: &mut Tx<'_>, job: &JobId, key: Option<String>) -> Result<(), StoreError> {
    if key.is_some() {
        tx.execute(SET_KEY, args![job.as_str(), key]).await?;
    }
    Ok(())
}

fn read(row: &Row) -> Result<StoredSession, StoreError> {
    Ok(StoredSession {
        job: row.parse("id")?,
        session_id: row.get("session_id")?,
        node: row.get("node")?,
        directory: row.get::<Option<String>>("directory")?.map(PathBuf::from),
        runtime: row.get("runtime")?,
        outcome: row.json_opt("outcome")?,
    })
}
