//! Retention: ended jobs, and their removal.
//!
//! A job's row is removed with its attempts. Its firing stays, so that the firing key stays used. Its events stay, and
//! one more event makes every node remove the job's files.

use cowhand_core::actor::Actor;
use cowhand_core::event::Fact;
use cowhand_core::id::{AgentName, JobId};
use cowhand_core::job::{Job, JobState};
use cowhand_core::retention::RetentionLimit;
use jiff::Timestamp;

use super::database::db::{Row, Tx, args};
use super::database::dialect::statements;
use super::{Store, StoreError, followups, jobs, web_messages};

statements! {
    ENDED_JOBS = same "select id, agent, finished_at from jobs where status in ('completed', 'failed', 'cancelled') \
        and (agent = $1 or $1 is null) \
        and id not in (select forked_from from jobs where status in ('pending', 'running') and forked_from is not null) \
        and id not in (select retry_of from jobs where status in ('pending', 'running') and retry_of is not null) \
        and not exists (select 1 from job_messages join jobs as next on next.id = job_messages.next_job \
        where job_messages.job_id = jobs.id and next.status in ('pending', 'running')) \
        and not exists (select 1 from hook_runs where hook_runs.job_id = jobs.id and hook_runs.state in ('waiting', 'running')) \
        order by number";
    LIVE_CHILD = same "select id from jobs where status in ('pending', 'running') and (forked_from = $1 or retry_of = $1 \
        or id in (select next_job from job_messages where job_id = $1)) order by number limit 1";
    OPEN_HOOK = same "select number from hook_runs where job_id = $1 and state in ('waiting', 'running') order by number limit 1";
    OPEN_ANSWER = same "select firings.key from chat_answers join firings \
        on firings.schedule_id = chat_answers.schedule_id and firings.key = chat_answers.key \
        where chat_answers.state = 'open' and firings.job_id = $1 limit 1";
    DROP_LEASE = same "delete from leases where job_id = $1";
    DROP_ATTEMPTS = same "delete from attempts where job_id = $1";
    DROP_HOOKS = same "delete from hook_runs where job_id = $1";
    DROP_METADATA = same "delete from hook_metadata where job_id = $1";
    DROP_ASKS = same "delete from asks where job_id = $1";
    DROP_JOB_MESSAGES = same "delete from job_messages where job_id = $1";
    DROP_CHAT_ASKS = same "delete from chat_asks where job_id = $1";
    DROP_CHAT_FILES = same "delete from chat_files where job_id = $1";
    DROP_DENIALS = same "delete from denials where job_id = $1";
    DROP_JOB = same "delete from jobs where id = $1";
    // The index of removed jobs contains only the last six characters of the ids, so one index serves both statements.
    REMOVED_JOB = same "select job_id, at, data, actor from events where type in ('job:pruned', 'job:deleted') \
        and substr(job_id, 16) = substr($1, 16) and job_id = $1 order by seq desc limit 1";
    REMOVED_JOB_BY_SUFFIX = same "select job_id, at, data, actor from events where type in ('job:pruned', 'job:deleted') \
        and substr(job_id, 16) = $1 order by seq desc limit 1";
}

/// An ended job that may be pruned: its hooks have run to their end, and its forks, retries and next
/// turn have ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedJob {
    pub id: JobId,
    pub agent: AgentName,
    /// End of the job.
    pub at: Timestamp,
}

/// A removed job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedJob {
    pub id: JobId,
    /// Time of the removal.
    pub at: Timestamp,
    /// Limit that the job exceeded; `None` if a person removed it.
    pub limit: Option<RetentionLimit>,
    /// Actor who removed the job, if known.
    pub by: Option<Actor>,
}

/// Result of removing a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Removal {
    Done(Job),
    /// The job `by` has not ended: either the job that was to be removed, or a fork, a retry or the next turn of that
    /// job.
    InUse {
        by: JobId,
    },
    /// A hook of the job has not run to its end.
    HooksOpen,
    /// The job was already removed.
    Gone,
}

impl Store {
    /// Returns the jobs that may be pruned, in the order of their creation. A job is left out if one of its hooks has
    /// not run to its end, or if one of its forks or retries or its next turn has not ended. A fork and a next turn need the session
    /// of the job.
    pub async fn ended_jobs(&self, agent: Option<AgentName>) -> Result<Vec<EndedJob>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                let rows = tx.all(ENDED_JOBS, args![agent.as_ref().map(AgentName::as_str)]).await?;
                let ended = rows.iter().map(|row| {
                    Ok(EndedJob {
                        id: row.parse("id")?,
                        agent: row.parse("agent")?,
                        at: row.time("finished_at")?,
                    })
                });
                ended.collect()
            })
        })
        .await
    }

    /// Removes these ended jobs and returns the removed jobs. `jobs` has each job with the limit that the job exceeds.
    /// Jobs that are in use, have open hooks or an open answer in a chat, or are already removed are skipped.
    pub async fn prune(
        &self,
        mut jobs: Vec<(JobId, RetentionLimit)>,
        now: Timestamp,
    ) -> Result<Vec<Job>, StoreError> {
        // Concurrent calls lock in the same order.
        jobs.sort_by(|(one, _), (other, _)| one.cmp(other));
        self.write(move |tx| {
            Box::pin(async move {
                let mut removed = Vec::with_capacity(jobs.len());
                let mut chains = Vec::with_capacity(jobs.len());
                for (id, limit) in jobs {
                    let chain = followups::chain_of(tx, &id).await?;
                    if let Removal::Done(job) = prune(tx, &id, Some(limit), now).await? {
                        removed.push(job);
                        chains.push(chain);
                    }
                }
                followups::remove_chains(tx, chains).await?;
                Ok(removed)
            })
        })
        .await
    }

    /// Removes one job on request of a person.
    pub async fn remove_job(&self, id: JobId, now: Timestamp) -> Result<Removal, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let chain = followups::chain_of(tx, &id).await?;
                let removal = prune(tx, &id, None, now).await?;
                followups::remove_chains(tx, vec![chain]).await?;
                Ok(removal)
            })
        })
        .await
    }

    /// Returns a removed job from its event; `None` if no job with this id was removed.
    pub async fn removed_job(&self, id: JobId) -> Result<Option<RemovedJob>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                tx.one(REMOVED_JOB, args![id.as_str()]).await?.as_ref().map(read_removed).transpose()
            })
        })
        .await
    }

    /// Returns the last removed job whose id ends with these six characters; `None` if there is none.
    pub async fn removed_job_by_suffix(&self, suffix: &str) -> Result<Option<RemovedJob>, StoreError> {
        let suffix = suffix.to_owned();
        self.read(move |tx| {
            Box::pin(async move {
                tx.one(REMOVED_JOB_BY_SUFFIX, args![suffix]).await?.as_ref().map(read_removed).transpose()
            })
        })
        .await
    }
}

fn read_removed(row: &Row) -> Result<RemovedJob, StoreError> {
    let limit = match row.json_opt("data")? {
        Some(Fact::JobPruned { limit, .. }) => limit,
        _ => None,
    };
    Ok(RemovedJob { id: row.parse("job_id")?, at: row.time("at")?, limit, by: row.json_opt("actor")? })
}

async fn prune(
    tx: &mut Tx<'_>,
    id: &JobId,
    limit: Option<RetentionLimit>,
    now: Timestamp,
) -> Result<Removal, StoreError> {
    let job = match jobs::lock(tx, id).await {
        Err(StoreError::NoJob(_)) => return Ok(Removal::Gone),
        job => job?,
    };
    match job.state() {
        JobState::Pending { .. } | JobState::Running { .. } => return Ok(Removal::InUse { by: id.clone() }),
        JobState::Ended { .. } => {}
    }
    if let Some(child) = tx.one(LIVE_CHILD, args![id.as_str()]).await? {
        return Ok(Removal::InUse { by: child.parse("id")? });
    }
    if tx.one(OPEN_HOOK, args![id.as_str()]).await?.is_some() {
        return Ok(Removal::HooksOpen);
    }
    // The answer in the chat is made from the output of the job. A person may remove the job nevertheless.
    if limit.is_some() && tx.one(OPEN_ANSWER, args![id.as_str()]).await?.is_some() {
        return Ok(Removal::InUse { by: id.clone() });
    }
    for statement in [
        DROP_LEASE,
        DROP_ATTEMPTS,
        DROP_HOOKS,
        DROP_METADATA,
        DROP_JOB_MESSAGES,
        DROP_CHAT_ASKS,
        DROP_CHAT_FILES,
        DROP_ASKS,
        DROP_DENIALS,
        DROP_JOB,
    ] {
        tx.execute(statement, args![id.as_str()]).await?;
    }
    web_messages::remove_of_job(tx, id).await?;
    let attempts = job.attempts();
    let fact = match limit {
        Some(_) => Fact::JobPruned { attempts, limit },
        None => Fact::JobDeleted { attempts },
    };
    jobs::record(tx, &job, fact, now);
    Ok(Removal::Done(job))
}
