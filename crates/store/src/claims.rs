//! Claims of jobs: which node runs the next attempt of a job, how long its lease is valid, and how the attempt ends.
//!
//! A claim starts an attempt and takes a lease on the job. The epoch of the job grows with every claim, and every later
//! write of the attempt names the epoch of its claim, so a node that lost its lease can no longer change the job.

use cowhand_core::attempt::Settlement;
use cowhand_core::breaker::{Breaker, FinishedJob};
use cowhand_core::budget::{Amount, OverBudget, Reservation, SpendLimits};
use cowhand_core::event::Fact;
use cowhand_core::id::{AgentName, JobId, ScheduleId};
use cowhand_core::job::{Job, JobState, NotBegun, Outcome, Requeued};
use cowhand_core::moment::Moment;
use cowhand_core::plan::{Admission, AgentPlaces, StartFacts, admit};
use cowhand_core::policy::Retry;
use cowhand_core::provider::{LimitedProvider, Parked};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::agent_lock::lock_agent;
use super::database::db::{Arg, Row, Tx, args};
use super::database::dialect::{Statement, statements};
use super::database::writer::SuccessIf;
use super::{
    Store, StoreError, adoptions, asks, budgets, hooks, items, jobs, outbox, providers, schedules, sessions,
    snapshot, usage,
};

statements! {
    // These statements repeat rules of `plan::admit` in core, because only the transaction sees the jobs of all nodes.
    // `RUNNING_OF_AGENT` counts running jobs (`AgentPlaces`). `IN_FRONT` and `REQUEUED_AND_WAITING` count the jobs that
    // come before a new job (`ReadyJobs`). They also count jobs with a hold on their schedule, which the planner does
    // not count. If such jobs take the last free place, the new job stays pending until the next plan.
    // The first two statements also count a job of another agent, if a schedule of this agent adopted the job's
    // schedule while the job ran.
    // The jobs are found by index, in two searches: one for the agent, and one for its schedules. $3 is the number of
    // the agent's places. `IN_FRONT` need not count further jobs: on SQLite each search stops at $3 jobs, and on
    // PostgreSQL the result is at most $3. The statements for SQLite name the index: SQLite has no statistics, and
    // would otherwise find the jobs by their status and read all live jobs of the fleet.
    RUNNING_OF_AGENT =
        sqlite "select count(*) as taken from (\
            select number from jobs indexed by jobs_running_of_agent where status = 'running' and agent = $1 \
            union select jobs.number from schedules cross join jobs indexed by jobs_running_of_schedule \
                where schedules.agent = $1 and jobs.schedule_id = schedules.id and jobs.status = 'running')"
        postgres "select count(*) as taken from (\
            select number from jobs where status = 'running' and agent = $1 \
            union select number from jobs where status = 'running' \
                and schedule_id = any (array(select id from schedules where agent = $1))) as running";
    IN_FRONT =
        sqlite "select count(*) as taken from (\
            select number from (select number from jobs indexed by jobs_live_of_agent \
                where agent = $1 and status in ('pending', 'running') and (not_before is null or not_before <= $2) limit $3) \
            union select number from (select jobs.number from schedules cross join jobs indexed by jobs_live_of_schedule \
                where schedules.agent = $1 and jobs.schedule_id = schedules.id and jobs.status in ('pending', 'running') \
                and (jobs.not_before is null or jobs.not_before <= $2) limit $3))"
        // With a limit, PostgreSQL would read all live jobs in their order.
        postgres "select least(count(*), $3) as taken from (\
            select number from jobs \
                where agent = $1 and status in ('pending', 'running') and (not_before is null or not_before <= $2) \
            union select number from jobs \
                where schedule_id = any (array(select id from schedules where agent = $1)) \
                and status in ('pending', 'running') and (not_before is null or not_before <= $2)) as in_front";
    REQUEUED_AND_WAITING = same "select requeued from jobs where agent = $1 and status = 'pending' and not_before > $2 \
        and requeued is not null";
    NEXT_EPOCH = same "update jobs set epoch = epoch + 1 where id = $1 returning epoch";
    ADD_LEASE = same "insert into leases (job_id, attempt, node, epoch, expires_at, boot) values ($1, $2, $3, $4, $5, $6)";
    LOCK_LEASES = locked "select job_id from leases where node = $1 order by job_id";
    RENEW_LEASES =
        sqlite "update leases set expires_at = $2, boot = $3 where node = $1 \
            and job_id in (select value from json_each($4)) returning job_id, epoch"
        postgres "update leases set expires_at = $2, boot = $3 where node = $1 \
            and job_id = any (array(select json_array_elements_text(($4::text)::json))) returning job_id, epoch";
    ADOPT_LEASES = same "update leases set expires_at = $2, boot = $3 where node = $1 returning job_id, epoch";
    LOCK_LEASE = locked "select expires_at, boot from leases where job_id = $1 and epoch = $2";
    END_LEASE = same "delete from leases where job_id = $1";
    ADD_ATTEMPT = same "insert into attempts (job_id, number, node, started_at, reserved_microdollars, reserved_tokens, \
        started_boot) values ($1, $2, $3, $4, $5, $6, $7)";
    BACK_OFF = same "update jobs set backoff_from = $2, backoff_boot = $3 where id = $1";
    USAGE_OR_REPORT_OF_ATTEMPT = same "select number from attempts where job_id = $1 and number = $2 \
        and (usage is not null or report is not null)";
    DROP_ATTEMPT = same "delete from attempts where job_id = $1 and number = $2";
    ACTED = same "update jobs set acted = 1 where id = $1";
    END_ATTEMPT = same "update attempts set ended_at = $3, outcome = $4, agent_began_at = $5 where job_id = $1 and number = $2";
}

#[derive(Debug, Clone, PartialEq)]
pub enum Claim {
    /// The job is claimed until the lease expires.
    Claimed { job: Job, epoch: i64 },
    /// Another node has the job, the job has ended, or it may start only later.
    Taken,
    /// The agent has no free place.
    AtCapacity,
    /// Another job uses the session that this job continues.
    SessionBusy,
    /// The provider takes no job now, for example because it has no free slot.
    NoProviderSlot,
    /// A budget is used up, or has no room for the attempt.
    OverBudget(OverBudget),
    /// The claim on the work item expired before it was renewed; another fleet may have claimed the item.
    ItemExpired,
}

/// The node that starts a job, and the limits that apply.
#[derive(Debug, Clone, PartialEq)]
pub struct Starter {
    pub node: String,
    pub lease: SignedDuration,
    pub max_concurrent: u32,
    /// Session key. Of the jobs with the same key, only one runs at a time.
    pub session_key: Option<String>,
    /// Budgets that apply.
    pub limits: Option<SpendLimits>,
    /// Slot at the agent's provider.
    pub slot: Option<LimitedProvider>,
}

/// Node, lease and reservation of an attempt that begins.
pub(super) struct AttemptStart {
    pub(super) node: String,
    pub(super) lease: SignedDuration,
    pub(super) reservation: Reservation,
}

/// A lease that the node still holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLease {
    pub job: JobId,
    pub epoch: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Settled {
    /// The job after the write. After the end of an attempt, the job has ended, or is pending if another attempt
    /// follows.
    Done(Job),
    /// The epoch is no longer the epoch of a running attempt, or [`Store::settle_expired`] found a lease that has not
    /// expired; nothing was written.
    Fenced,
}

#[derive(Debug, Clone, PartialEq)]
pub enum RequeueOutcome {
    /// The job is pending again.
    Done(Job),
    /// The epoch is no longer the epoch of a running attempt; nothing was written.
    Fenced,
    /// The attempt has reported usage or a result, so it did begin; nothing was written.
    Began,
    /// The job was requeued too often for the same reason; nothing was written.
    TooOften,
}

impl Store {
    /// Starts the job's next attempt on `node` if the job is pending and its agent has a free place.
    pub async fn claim(
        &self,
        id: JobId,
        max_concurrent: u32,
        node: String,
        lease: SignedDuration,
        now: Timestamp,
    ) -> Result<Claim, StoreError> {
        let starter = Starter { node, lease, max_concurrent, session_key: None, limits: None, slot: None };
        self.claim_with_limits(id, starter, now).await
    }

    /// Claims as [`Self::claim`] does, and also applies the session key, the budgets and the provider's slot of
    /// `starter`.
    pub async fn claim_with_limits(
        &self,
        id: JobId,
        starter: Starter,
        now: Timestamp,
    ) -> Result<Claim, StoreError> {
        let Some(job) = self.job(id.clone()).await? else { return Err(StoreError::NoJob(id)) };
        let agent = job.agent().clone();
        self.write_if(SuccessIf::Committed, move |tx| {
            Box::pin(async move {
                let candidate = providers::StartCandidate::waiting(&job);
                let reservation = match admission(tx, &agent, &starter, candidate, now).await? {
                    Ok(reservation) => reservation,
                    Err(refused) => return Ok(refused),
                };
                let Starter { node, lease, session_key, slot, .. } = starter;
                let mut job = jobs::lock(tx, &id).await?;
                let columns = jobs::stored_columns(tx, &id).await?;
                let until =
                    columns.map(|row| snapshot::not_before(&row, Some(tx.moment(now)))).transpose()?;
                if let Some(until) = until.flatten() {
                    job.move_earliest_start(until);
                }
                if job.start(now).is_err() {
                    return Ok(Claim::Taken);
                }
                if items::has_expired(tx, &job, now).await? {
                    return Ok(Claim::ItemExpired);
                }
                jobs::save(tx, &job).await?;
                sessions::set_key(tx, &id, session_key).await?;
                let start = AttemptStart { node, lease, reservation };
                let epoch = begin_attempt(tx, &job, start, now).await?;
                providers::started(tx, &id, slot.as_ref(), now).await?;
                Ok(Claim::Claimed { job, epoch })
            })
        })
        .await
    }

    /// Extends the node's leases on these jobs, including expired leases that nobody has settled. Returns the leases
    /// that the node still holds. The other leases are lost.
    pub async fn renew(
        &self,
        node: String,
        jobs: Vec<JobId>,
        lease: SignedDuration,
        now: Timestamp,
    ) -> Result<Vec<HeldLease>, StoreError> {
        let job_ids = vec![Arg::from(jobs::to_json(&jobs)?)];
        self.write(move |tx| Box::pin(extend_leases(tx, node, RENEW_LEASES, job_ids, (now, lease)))).await
    }

    /// Takes up the leases of a node after its restart, including expired leases that nobody has settled.
    pub async fn adopt(
        &self,
        node: String,
        lease: SignedDuration,
        now: Timestamp,
    ) -> Result<Vec<HeldLease>, StoreError> {
        self.write(move |tx| Box::pin(extend_leases(tx, node, ADOPT_LEASES, Vec::new(), (now, lease)))).await
    }

    /// Records the session of the running attempt.
    pub async fn set_session(
        &self,
        id: JobId,
        epoch: i64,
        session_id: String,
        now: Timestamp,
    ) -> Result<Settled, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let mut job = jobs::lock(tx, &id).await?;
                if !jobs::is_current_epoch(tx, &job, epoch).await? {
                    return Ok(Settled::Fenced);
                }
                if job.session_id() == Some(session_id.as_str()) {
                    return Ok(Settled::Done(job));
                }
                job.set_session(session_id.clone())?;
                jobs::save(tx, &job).await?;
                jobs::record(tx, &job, Fact::JobSession { session_id }, now);
                Ok(Settled::Done(job))
            })
        })
        .await
    }

    /// Ends an attempt. The job ends, or waits for its next attempt according to the retry policy.
    pub async fn settle(
        &self,
        id: JobId,
        epoch: i64,
        settlement: impl Into<Settlement>,
        retry: Retry,
        now: Timestamp,
    ) -> Result<Settled, StoreError> {
        let settlement = settlement.into();
        self.write(move |tx| Box::pin(settle(tx, id, epoch, settlement, retry, now))).await
    }

    /// Makes a job pending again if its claimed attempt never began.
    pub async fn requeue(
        &self,
        id: JobId,
        epoch: i64,
        why: NotBegun,
        now: Timestamp,
    ) -> Result<RequeueOutcome, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let mut job = jobs::lock(tx, &id).await?;
                if !jobs::is_current_epoch(tx, &job, epoch).await? {
                    return Ok(RequeueOutcome::Fenced);
                }
                let usage_or_report =
                    tx.one(USAGE_OR_REPORT_OF_ATTEMPT, args![id.as_str(), job.attempts()]).await?;
                if usage_or_report.is_some() {
                    return Ok(RequeueOutcome::Began);
                }
                if !job.requeue(&why, now)? {
                    return Ok(RequeueOutcome::TooOften);
                }
                jobs::save(tx, &job).await?;
                record_backoff(tx, &job, tx.moment(now)).await?;
                tx.execute(END_LEASE, args![id.as_str()]).await?;
                tx.execute(DROP_ATTEMPT, args![id.as_str(), job.attempts()]).await?;
                adoptions::free_waiting_job(tx, &job, tx.moment(now)).await?;
                let reason = why.reason().map(str::to_owned);
                jobs::record(tx, &job, Fact::JobRequeued { attempt: job.attempts(), reason }, now);
                Ok(RequeueOutcome::Done(job))
            })
        })
        .await
    }

    /// Settles an attempt with an expired lease as lost. Does nothing if the lease was renewed or the attempt was
    /// settled meanwhile.
    pub async fn settle_expired(
        &self,
        id: JobId,
        epoch: i64,
        silent: bool,
        retry: Retry,
        now: Timestamp,
    ) -> Result<Settled, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                jobs::lock(tx, &id).await?;
                let clock = tx.lease_clock(now).await?;
                let lease = tx.one(LOCK_LEASE, args![id.as_str(), epoch]).await?;
                let until = lease.map(|row| row.moment_opt("expires_at", "boot")).transpose()?.flatten();
                if until.is_some_and(|until| clock.since(until).is_negative()) {
                    return Ok(Settled::Fenced);
                }
                let lost = Outcome::lost("lost: the node that ran it stopped renewing its lease");
                let lost = Settlement { silent, ..lost.into() };
                settle(tx, id, epoch, lost, retry, now).await
            })
        })
        .await
    }
}

/// Extends leases. The rows are locked in a fixed order, so that two transactions cannot wait for each other.
async fn extend_leases(
    tx: &mut Tx<'_>,
    node: String,
    statement: Statement,
    job_ids: Vec<Arg>,
    (now, lease): (Timestamp, SignedDuration),
) -> Result<Vec<HeldLease>, StoreError> {
    tx.all(LOCK_LEASES, args![node.as_str()]).await?;
    let until = tx.lease_clock(now).await?.plus(lease);
    let args = [args![node, until.wall, until.boot], job_ids].concat();
    let rows = tx.all(statement, args).await?;
    rows.iter().map(|row| Ok(HeldLease { job: row.parse("job_id")?, epoch: row.get("epoch")? })).collect()
}

async fn settle(
    tx: &mut Tx<'_>,
    id: JobId,
    epoch: i64,
    settlement: Settlement,
    retry: Retry,
    now: Timestamp,
) -> Result<Settled, StoreError> {
    // The provider is locked before the job, as in a claim.
    let provider = match settlement.limit {
        Some(_) => providers::lock_of_job(tx, &id).await?,
        None => None,
    };
    let mut job = jobs::lock(tx, &id).await?;
    if !jobs::is_current_epoch(tx, &job, epoch).await? {
        return Ok(Settled::Fenced);
    }
    let end = job.attempt_end(settlement.ended(), tx.moment(now));
    let Settlement {
        outcome,
        usage: reported_usage,
        silent,
        metadata,
        breaker,
        used_no_tool,
        limit,
        agent_began_at,
        ..
    } = settlement;
    let usage = budgets::end(tx, &job, reported_usage, silent, &outcome).await?;
    if let Some(usage) = &usage {
        job.spend(usage)?;
    }
    usage::add(tx, &job, usage.as_ref(), now).await?;
    // A cancelled job gets no further attempt.
    let is_cancelled = is_cancel_requested(tx, &job).await?;
    let retry = if is_cancelled { Retry::default() } else { retry };
    let parked = match (limit.filter(|_| !is_cancelled).zip(provider), &outcome) {
        (Some((limit, provider)), Outcome::Failed { error, .. }) => {
            Some(providers::park(tx, provider, limit, &error.message, now).await?)
        }
        _ => None,
    };
    match &parked {
        Some(_) => job.park()?,
        None => job.settle_ended(outcome.clone(), &retry, end)?,
    }
    jobs::save(tx, &job).await?;
    record_backoff(tx, &job, end.counted_from).await?;
    tx.execute(END_LEASE, args![id.as_str()]).await?;
    let outcome_json = jobs::to_json(&outcome)?;
    tx.execute(END_ATTEMPT, args![id.as_str(), job.attempts(), now, outcome_json, agent_began_at]).await?;
    if !used_no_tool {
        tx.execute(ACTED, args![id.as_str()]).await?;
    }
    asks::attempt_ended(tx, &job, now).await?;
    if matches!(job.state(), JobState::Ended { .. }) {
        apply_job_end(tx, &job, &outcome, metadata.as_ref(), breaker, (end.counted_from, now)).await?;
    } else {
        adoptions::free_waiting_job(tx, &job, end.counted_from).await?;
    }
    let fact = match parked {
        Some(Parked { provider, until, message, .. }) => {
            Fact::JobParked { attempt: job.attempts(), provider, until, message }
        }
        None => Fact::of_settled(&job, &outcome),
    };
    jobs::record(tx, &job, fact, now);
    Ok(Settled::Done(job))
}

/// Records the time at which a job began to wait for its next attempt.
async fn record_backoff(tx: &mut Tx<'_>, job: &Job, from: Moment) -> Result<(), StoreError> {
    if matches!(job.state(), JobState::Pending { not_before: Some(_) }) {
        tx.execute(BACK_OFF, args![job.id().as_str(), from.wall, from.boot]).await?;
    }
    Ok(())
}

/// Reads the facts that decide whether a job may start, lets `admit` of core decide, and returns the job's reservation
/// or the refusal. The running jobs of all nodes count, so claims of one agent are serialised. Call this function before
/// anything else is locked.
async fn admission(
    tx: &mut Tx<'_>,
    agent: &AgentName,
    starter: &Starter,
    candidate: providers::StartCandidate<'_>,
    now: Timestamp,
) -> Result<Result<Reservation, Claim>, StoreError> {
    let provider = providers::wait(tx, starter.slot.as_ref(), candidate, now).await?;
    lock_agent(tx, agent).await?;
    let taken = match candidate.job() {
        Some(_) => read_taken(tx.one(RUNNING_OF_AGENT, args![agent.as_str()]).await?)?,
        None => count_jobs_ahead(tx, agent, starter.max_concurrent, now).await?,
    };
    let session_busy = match &starter.session_key {
        Some(key) => sessions::is_busy(tx, agent, key, candidate.job()).await?,
        None => false,
    };
    let reservation = budgets::reserve(tx, agent, candidate.spent(), starter.limits.as_ref()).await?;
    let start_facts = StartFacts {
        over: reservation.as_ref().err().copied(),
        // `Job::start` checks the earliest start of the job, and the planner checks the hold of its schedule.
        not_before: None,
        hold: None,
        places: AgentPlaces { max: starter.max_concurrent, taken },
        session_busy,
        provider,
    };
    Ok(match admit(&start_facts, now) {
        Admission::Admitted => reservation.map_err(Claim::OverBudget),
        Admission::OverBudget(over) => Err(Claim::OverBudget(over)),
        Admission::AtCapacity => Err(Claim::AtCapacity),
        Admission::SessionBusy => Err(Claim::SessionBusy),
        Admission::Provider(_) => Err(Claim::NoProviderSlot),
        Admission::NotBefore(_) | Admission::Held(_) => Err(Claim::Taken),
    })
}

/// Counts the jobs that come before a new job: the jobs that run or are ready, and the requeued jobs that keep their
/// place while they wait. If there are more than `places` such jobs, the result may be too low, but it
/// is at least `places`.
async fn count_jobs_ahead(
    tx: &mut Tx<'_>,
    agent: &AgentName,
    places: u32,
    now: Timestamp,
) -> Result<u32, StoreError> {
    let mut taken = read_taken(tx.one(IN_FRONT, args![agent.as_str(), now, i64::from(places)]).await?)?;
    for row in tx.all(REQUEUED_AND_WAITING, args![agent.as_str(), now]).await? {
        let requeued: Option<Requeued> = row.json_opt("requeued")?;
        taken = taken.saturating_add(u32::from(requeued.is_some_and(|requeued| requeued.keeps_place())));
    }
    Ok(taken)
}

fn read_taken(row: Option<Row>) -> Result<u32, StoreError> {
    row.map_or(Ok(0), |row| row.count("taken"))
}

/// Returns the reservation of a job that is not created yet, if the job could start now: the agent has places for the
/// job and for all jobs that come before it, the session is free, the provider takes the job, and the budget has room.
/// Call this function before the job is created.
pub(super) async fn admit_new(
    tx: &mut Tx<'_>,
    agent: &AgentName,
    starter: &Starter,
    automatic: bool,
    now: Timestamp,
) -> Result<Option<Reservation>, StoreError> {
    Ok(admission(tx, agent, starter, providers::StartCandidate::New { automatic }, now).await?.ok())
}

/// Records the attempt and the lease of a job whose row already has the status `running`. Returns the new epoch.
pub(super) async fn begin_attempt(
    tx: &mut Tx<'_>,
    job: &Job,
    start: AttemptStart,
    now: Timestamp,
) -> Result<i64, StoreError> {
    let AttemptStart { node, lease, reservation } = start;
    let until = tx.lease_clock(now).await?.plus(lease);
    let epoch = take_lease(tx, job, &node, until).await?;
    let [money, tokens] =
        [reservation.amount.microdollars, reservation.amount.tokens].map(budgets::to_column);
    let boot = tx.moment(now).boot;
    let row = args![job.id().as_str(), job.attempts(), node.as_str(), now, money, tokens, boot];
    tx.execute(ADD_ATTEMPT, row).await?;
    let started = Fact::JobStarted { attempt: job.attempts(), node };
    jobs::record(tx, job, started, now);
    Ok(epoch)
}

async fn take_lease(tx: &mut Tx<'_>, job: &Job, node: &str, until: Moment) -> Result<i64, StoreError> {
    let row = tx.one(NEXT_EPOCH, args![job.id().as_str()]).await?;
    let epoch: i64 = row.ok_or_else(|| StoreError::NoJob(job.id().clone()))?.get("epoch")?;
    let row = args![job.id().as_str(), job.attempts(), node, epoch, until.wall, until.boot];
    tx.execute(ADD_LEASE, row).await?;
    Ok(epoch)
}

async fn is_cancel_requested(tx: &mut Tx<'_>, job: &Job) -> Result<bool, StoreError> {
    let row = jobs::stored_columns(tx, job.id()).await?;
    let row = row.ok_or_else(|| StoreError::NoJob(job.id().clone()))?;
    Ok(row.time_opt("cancel_asked_at")?.is_some())
}

/// Updates everything that depends on the end of a job: its work item, its hooks and its schedule. `ended` is the time
/// from which the interval of the schedule counts.
pub(super) async fn apply_job_end(
    tx: &mut Tx<'_>,
    job: &Job,
    outcome: &Outcome,
    metadata: Option<&Value>,
    breaker: Option<Breaker>,
    (ended, now): (Moment, Timestamp),
) -> Result<(), StoreError> {
    outbox::job_ended(tx, job, outcome, now).await?;
    hooks::job_ended(tx, job, outcome, metadata, now).await?;
    update_schedule(tx, job, outcome, breaker, (ended, now)).await
}

/// Updates the schedule after the end of a job. A job by hand changes less: a job with a work item requests a `fill`,
/// and a completed job ends a pause.
async fn update_schedule(
    tx: &mut Tx<'_>,
    job: &Job,
    outcome: &Outcome,
    breaker: Option<Breaker>,
    (ended, now): (Moment, Timestamp),
) -> Result<(), StoreError> {
    let row = jobs::stored_columns(tx, job.id()).await?;
    let row = row.ok_or_else(|| StoreError::NoJob(job.id().clone()))?;
    let Some(id) = row.parse_opt::<ScheduleId>("schedule_id")? else { return Ok(()) };
    if row.get::<i64>("by_trigger")? == 1 {
        let mut schedule = schedules::lock(tx, id).await?;
        match outcome {
            Outcome::Failed { error, .. } => schedule.record_failure(ended, error.message.clone()),
            Outcome::Completed { .. } => schedule.record_success(ended),
            // A cancelled job proves neither success nor failure.
            Outcome::Cancelled { .. } => schedule.record_run_or_poll(ended),
        }
        schedule.fill |= job.work_item().is_some();
        let microdollars = job.usage().map_or(0, |usage| Amount::of(usage).microdollars);
        let empty = row.get::<i64>("acted")? == 0;
        let run = FinishedJob { outcome, empty, microdollars };
        let pause = breaker.and_then(|breaker| breaker.judge(&mut schedule.breaker_state, run, ended.wall));
        if let Some(pause) = pause
            && schedule.pause(pause.clone(), ended)
        {
            let fact = Fact::SchedulePaused { reason: pause.reason, until: pause.until };
            schedules::record(tx, &schedule, fact, now);
        }
        schedules::save(tx, &schedule).await?;
        return Ok(());
    }
    let (is_completed, has_item) = (matches!(outcome, Outcome::Completed { .. }), job.work_item().is_some());
    if is_completed || has_item {
        let mut schedule = schedules::lock(tx, id).await?;
        let is_resumed = is_completed && schedule.reset_breaker(now);
        schedule.fill |= has_item;
        schedules::save(tx, &schedule).await?;
        if is_resumed {
            schedules::record(tx, &schedule, Fact::ScheduleResumed, now);
        }
    }
    Ok(())
}
