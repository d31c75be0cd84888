//! Follow-ups: the jobs that requested them, and the length of each chain.

use cowhand_core::event::Fact;
use cowhand_core::followup::{Chain, FollowupRefused, Followups, RefusedFollowup};
use cowhand_core::id::{AgentName, JobId};
use cowhand_core::job::{Job, JobRecord, JobState, NewJob};
use jiff::Timestamp;

use super::database::db::{Row, Tx, args};
use super::database::dialect::statements;
use super::{Store, StoreError, jobs};

statements! {
    LOCK_CHAINS = sqlite "select 'followups' as chains"
        postgres "select 'followups' as chains, pg_advisory_xact_lock(hashtextextended('followups', 0))";
    CHAIN_OF = same "select root_id, began_at from followups where job_id = $1";
    LENGTH_OF_CHAIN = same "select count(*) as made from followups where root_id = $1";
    FOLLOWUP_BY_KEY = same "select job_id from followups where asked_by = $1 and key = $2";
    REFUSED = same "update jobs set followup_refused = $2, followup_refused_at = $3 where id = $1";
    REFUSAL_OF = same "select id, followup_refused, followup_refused_at from jobs where id = $1 and followup_refused is not null";
    REFUSAL_OF_AGENT = same "select id, followup_refused, followup_refused_at from jobs where agent = $1 \
        and followup_refused is not null order by number desc limit 1";
    REQUESTED_BY = same "select asked_by from followups where job_id = $1";
    REQUESTED = same "select job_id from followups where asked_by = $1 order by job_id";
    LOCK_CHAIN = locked "select job_id from followups where root_id = $1 order by job_id";
    DROP_CHAIN = same "delete from followups where root_id = $1 \
        and not exists (select 1 from jobs where jobs.id = followups.job_id) \
        and not exists (select 1 from jobs where jobs.id = $1 and jobs.status in ('pending', 'running')) \
        and not exists (select 1 from followups as others join jobs on jobs.id = others.job_id \
        where others.root_id = $1 and jobs.status in ('pending', 'running'))";
    ADD_FOLLOWUP = same "insert into followups (job_id, root_id, asked_by, key, began_at) values ($1, $2, $3, $4, $5)";
}

/// Result of requesting a follow-up.
#[derive(Debug, Clone, PartialEq)]
pub enum FollowupOutcome {
    Made(Job),
    Refused(FollowupRefused),
    /// This attempt of the job does not run.
    NotRunning,
}

/// Follow-up that a running attempt requests. Repeated requests of one job with the same key create one follow-up.
#[derive(Debug, Clone, PartialEq)]
pub struct NewFollowup {
    pub by: JobId,
    pub attempt: u32,
    pub key: String,
    /// Earliest start.
    pub earliest: Timestamp,
    /// Rules of the requesting agent and of all other agents involved, or the reason of a refusal.
    pub rules: Result<Vec<Followups>, FollowupRefused>,
    pub new: NewJob,
}

/// The follow-ups of one job: the job that it follows, the jobs that follow it, and the last refused request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowupsOfJob {
    pub follows: Option<JobId>,
    pub followed_by: Vec<JobId>,
    pub refused: Option<RefusedFollowup>,
}

impl Store {
    pub async fn make_followup(
        &self,
        asked: NewFollowup,
        now: Timestamp,
    ) -> Result<FollowupOutcome, StoreError> {
        let random = self.random;
        self.write(move |tx| Box::pin(make(tx, asked, now, random))).await
    }

    /// Returns the follow-ups of a job.
    pub async fn followups_of(&self, job: JobId) -> Result<FollowupsOfJob, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                let id = || args![job.as_str()];
                let follows =
                    tx.one(REQUESTED_BY, id()).await?.map(|row| row.parse("asked_by")).transpose()?;
                let rows = tx.all(REQUESTED, id()).await?;
                let followed_by = rows.iter().map(|row| row.parse("job_id")).collect::<Result<_, _>>()?;
                let refused = tx.one(REFUSAL_OF, id()).await?.as_ref().map(refusal).transpose()?;
                Ok(FollowupsOfJob { follows, followed_by, refused })
            })
        })
        .await
    }

    /// Returns the last refused request of the agent's newest job that has a refused request.
    pub async fn last_refusal(&self, agent: AgentName) -> Result<Option<RefusedFollowup>, StoreError> {
        let row = self
            .read(move |tx| Box::pin(async move { tx.one(REFUSAL_OF_AGENT, args![agent.as_str()]).await }));
        row.await?.as_ref().map(refusal).transpose()
    }
}

async fn make(
    tx: &mut Tx<'_>,
    asked: NewFollowup,
    now: Timestamp,
    random: fn() -> u64,
) -> Result<FollowupOutcome, StoreError> {
    let NewFollowup { by, attempt, key, earliest, rules, mut new } = asked;
    // Requests are serialised. Otherwise two requests of one chain could both count as the last allowed follow-up.
    tx.one(LOCK_CHAINS, args![]).await?;
    let parent = jobs::lock(tx, &by).await?;
    if !matches!(parent.state(), JobState::Running { .. }) || parent.attempts() != attempt {
        return Ok(FollowupOutcome::NotRunning);
    }
    if let Some(row) = tx.one(FOLLOWUP_BY_KEY, args![by.as_str(), key.as_str()]).await? {
        let existing: JobId = row.parse("job_id")?;
        let job = jobs::get(tx, &existing).await?.ok_or(StoreError::NoJob(existing))?;
        return Ok(FollowupOutcome::Made(job));
    }
    let (root, began) = match tx.one(CHAIN_OF, args![by.as_str()]).await? {
        Some(row) => (row.parse("root_id")?, row.time("began_at")?),
        None => (by.clone(), JobRecord::from(parent.clone()).started_at),
    };
    let row = tx.one(LENGTH_OF_CHAIN, args![JobId::as_str(&root)]).await?;
    let made: u32 = row.map_or(Ok(0), |row| row.count("made"))?;
    let start = rules.and_then(|rules| {
        let next = |earliest, rules: &Followups| rules.next(Chain { made, began }, earliest, now);
        rules.iter().try_fold(earliest, next)
    });
    let start = match start {
        Ok(start) => start,
        Err(refused) => {
            let message = refused.to_string();
            tx.execute(REFUSED, args![by.as_str(), message.as_str(), now]).await?;
            jobs::record(tx, &parent, Fact::FollowupRefused { message }, now);
            return Ok(FollowupOutcome::Refused(refused));
        }
    };
    new.not_before = Some(start);
    let origin = jobs::JobOrigin { automatic: true, ..jobs::JobOrigin::default() };
    let job = jobs::add(tx, new, &origin, now, random).await?;
    jobs::record_created(tx, &job, now);
    tx.execute(ADD_FOLLOWUP, args![job.id().as_str(), JobId::as_str(&root), by.as_str(), key, began]).await?;
    jobs::record(tx, &job, Fact::JobFollowup { follows: by, number: made + 1 }, now);
    Ok(FollowupOutcome::Made(job))
}

fn refusal(row: &Row) -> Result<RefusedFollowup, StoreError> {
    let (job, at) = (row.parse("id")?, row.time("followup_refused_at")?);
    Ok(RefusedFollowup { job, at, message: row.get("followup_refused")? })
}

/// Returns the first job of the chain to which a job belongs. The first job can be the job itself.
pub(super) async fn chain_of(tx: &mut Tx<'_>, job: &JobId) -> Result<JobId, StoreError> {
    let row = tx.one(CHAIN_OF, args![job.as_str()]).await?;
    row.map_or_else(|| Ok(job.clone()), |row| row.parse("root_id"))
}

/// Removes the rows of removed jobs from these chains, in the transaction that removes the jobs, after all jobs are
/// locked. The rows are kept while a job of the chain is live: the chain can grow then, and its limit also counts
/// removed jobs.
pub(super) async fn remove_chains(tx: &mut Tx<'_>, mut chains: Vec<JobId>) -> Result<(), StoreError> {
    chains.sort();
    chains.dedup();
    for chain in chains {
        if !tx.all(LOCK_CHAIN, args![chain.as_str()]).await?.is_empty() {
            tx.execute(DROP_CHAIN, args![chain.as_str()]).await?;
        }
    }
    Ok(())
}
