//! Claims of jobs: which node runs the next attempt of a job, how long its lease is valid, and how the attempt ends.
//!
//! A claim starts an attempt and takes a lease on the job. The epoch of the job grows with every claim, and every later
//! write of the attempt names the epoch of its claim, so a node that lost its lease can no longer change the job.

pub(super) mod admission;

use cowhand_core::attempt::Settlement;
use cowhand_core::breaker::{Breaker, JudgedJob};
use cowhand_core::budget::{Amount, OverBudget, Reservation, SpendLimits};
use cowhand_core::event::Fact;
use cowhand_core::id::{JobId, ScheduleId};
use cowhand_core::job::{Job, JobState, NotBegun, Outcome};
use cowhand_core::lease::OnLostLease;
use cowhand_core::moment::Moment;
use cowhand_core::policy::Retry;
use cowhand_core::provider::{LimitedProvider, Parked};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::database::db::{Tx, args};
use super::database::dialect::statements;
use super::database::writer::SuccessIf;
use super::leases::{self, LeaseTerms};
use super::providers::StartCandidate;
use super::shared_places::SharedLimits;
use super::{
    Store, StoreError, adoptions, asks, budgets, hooks, items, job_messages, jobs, outbox, providers,
    schedules, sessions, snapshot, usage,
};

statements! {
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
    /// The node takes no new jobs.
    Drained,
    /// The agent, the node or the fleet has no free place.
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
    /// What happens if the node cannot renew the lease.
    pub on_lost: OnLostLease,
    pub max_concurrent: u32,
    /// Limits of the places that agents share.
    pub shared: SharedLimits,
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
    pub(super) terms: LeaseTerms,
    pub(super) reservation: Reservation,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Settled {
    /// The job after the write. After the end of an attempt, the job has ended, or is pending if another attempt
    /// follows.
    Done(Job),
    /// The epoch is no longer the epoch of a running attempt, or [`Store::settle_expired`] found a lease that may not be
    /// settled yet; nothing was written.
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
        let starter = Starter {
            node,
            lease,
            on_lost: OnLostLease::default(),
            max_concurrent,
            shared: SharedLimits::default(),
            session_key: None,
            limits: None,
            slot: None,
        };
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
                let candidate = StartCandidate::waiting(&job);
                let reservation = match admission::admission(tx, &agent, &starter, candidate, now).await? {
                    Ok(reservation) => reservation,
                    Err(refused) => return Ok(refused),
                };
                let Starter { node, lease, on_lost, session_key, slot, .. } = starter;
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
                let terms = LeaseTerms { length: lease, on_lost };
                let start = AttemptStart { node, terms, reservation };
                let epoch = begin_attempt(tx, &job, start, now).await?;
                providers::started(tx, &id, slot.as_ref(), now).await?;
                Ok(Claim::Claimed { job, epoch })
            })
        })
        .await
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
        let (settlement, random) = (settlement.into(), self.random);
        self.write(move |tx| Box::pin(settle(tx, id, epoch, settlement, retry, now, random))).await
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
}

pub(super) async fn settle(
    tx: &mut Tx<'_>,
    id: JobId,
    epoch: i64,
    settlement: Settlement,
    retry: Retry,
    now: Timestamp,
    random: fn() -> u64,
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
        delivered,
        ..
    } = settlement;
    let usage = budgets::end(tx, &job, reported_usage, silent, &outcome).await?;
    if let Some(usage) = &usage {
        job.spend(usage)?;
    }
    usage::add(tx, &job, usage.as_ref(), now).await?;
    // A cancelled job gets no further attempt.
    let is_cancelled = jobs::is_cancel_requested(tx, &job).await?;
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
    job_messages::record_delivered(tx, &job, &delivered, now).await?;
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
    job_messages::attempt_ended(tx, &job, is_cancelled, random, now).await?;
    Ok(Settled::Done(job))
}

/// Records the time at which a job began to wait for its next attempt.
async fn record_backoff(tx: &mut Tx<'_>, job: &Job, from: Moment) -> Result<(), StoreError> {
    if matches!(job.state(), JobState::Pending { not_before: Some(_) }) {
        tx.execute(BACK_OFF, args![job.id().as_str(), from.wall, from.boot]).await?;
    }
    Ok(())
}

/// Records the attempt and the lease of a job whose row already has the status `running`. Returns the new epoch.
pub(super) async fn begin_attempt(
    tx: &mut Tx<'_>,
    job: &Job,
    start: AttemptStart,
    now: Timestamp,
) -> Result<i64, StoreError> {
    let AttemptStart { node, terms, reservation } = start;
    let epoch = leases::take(tx, job, &node, terms, now).await?;
    let [money, tokens] =
        [reservation.amount.microdollars, reservation.amount.tokens].map(budgets::to_column);
    let boot = tx.moment(now).boot;
    let row = args![job.id().as_str(), job.attempts(), node.as_str(), now, money, tokens, boot];
    tx.execute(ADD_ATTEMPT, row).await?;
    let started = Fact::JobStarted { attempt: job.attempts(), node };
    jobs::record(tx, job, started, now);
    Ok(epoch)
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
        let judged = JudgedJob { outcome, empty, microdollars };
        let began_at = job.run_started_at();
        let pause = breaker.and_then(|breaker| schedule.judge(&breaker, judged, began_at, ended));
        if let Some(pause) = pause {
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
