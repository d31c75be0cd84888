//! Firings: one row for each occurrence of a schedule's trigger, and the ledger of their outcomes.

use std::collections::HashMap;

use cowhand_core::event::Fact;
use cowhand_core::firing::{Decision, NewFiring};
use cowhand_core::id::{JobId, ScheduleId};
use cowhand_core::job::{ExitReason, Job, JobStatus, NewJob, OriginMessage};
use cowhand_core::plan::Snapshot;
use cowhand_core::roster::Roster;
use cowhand_core::schedule::{FiringOutcome, SkipReason};
use cowhand_core::trigger::{FiringContext, FiringKey};
use jiff::Timestamp;

use super::claims::AttemptStart;
use super::database::db::{Row, Tx, args};
use super::database::dialect::statements;
use super::database::event_log::NewEvent;
use super::database::writer::SuccessIf;
use super::leases::LeaseTerms;
use super::{Starter, Store, StoreError, claims, cursors, jobs, providers, schedules, sessions, snapshot};

statements! {
    ADD_FIRING = same "insert into firings (schedule_id, key, due_at, decided_at, outcome, reason, occasion, prepare_number, note) \
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9) on conflict (schedule_id, key) do nothing";
    LAST_PREPARED = same "select max(prepare_number) as number from firings where schedule_id = $1 and outcome = 'preparing'";
    LINK_JOB = same "update firings set job_id = $3 where schedule_id = $1 and key = $2";
    GET_FIRING = same "select key, due_at, decided_at, outcome, reason, note, job_id from firings where schedule_id = $1 and key = $2";
    LOCK_PREPARING = locked "select prepare_number, preparer, prepare_until, job_id from firings where schedule_id = $1 and key = $2 \
        and outcome = 'preparing'";
    EARLIER_ELSEWHERE = same "select key from firings where schedule_id = $1 and outcome = 'preparing' and prepare_number < $2 \
        and preparer <> $3 and prepare_until > $4 and prepare_tries < $5 limit 1";
    TAKE_PREPARING = same "update firings set preparer = $3, prepare_until = $4, prepare_tries = prepare_tries + 1 \
        where schedule_id = $1 and key = $2 returning due_at, occasion, prepare_tries";
    PREPARED = same "update firings set outcome = $3, reason = $4, decided_at = $5, note = coalesce($6, note), occasion = null, preparer = null, \
        prepare_until = null where schedule_id = $1 and key = $2 and outcome = 'preparing' returning due_at, job_id";
    LEDGER = same "select key, due_at, decided_at, outcome, reason, note, job_id from firings where schedule_id = $1 \
        order by due_at desc, key desc limit $2";
    FIRINGS_BETWEEN = same "select key, due_at, decided_at, outcome, reason, note, job_id from firings \
        where schedule_id = $1 and due_at >= $2 and due_at < $3 order by due_at desc, key desc limit $4";
    JOBS_OF_FIRINGS =
        sqlite "select firing_key as key, id, status, exit_reason, error_message, run_started_at, finished_at, message from jobs \
            where schedule_id = $1 and firing_key in (select value from json_each($2)) order by number"
        postgres "select firing_key as key, id, status, exit_reason, error_message, run_started_at, finished_at, message from jobs \
            where schedule_id = $1 and firing_key = any (array(select json_array_elements_text(($2::text)::json))) order by number";
    // If a schedule of another agent adopts a schedule, the ended and waiting jobs of the adopted schedule stay with
    // their agent and lose their `schedule_id`. This statement finds the first job of each firing by its id,
    // and the other jobs of the firing by the agent, schedule name and firing key of the first job.
    JOBS_OF_FORMER_AGENT =
        sqlite "select job.firing_key as key, job.id, job.status, job.exit_reason, job.error_message, job.run_started_at, \
            job.finished_at, job.message from jobs first join jobs job on job.schedule_id is null and job.firing_key = first.firing_key \
            and job.agent = first.agent and job.schedule is not distinct from first.schedule \
            where first.schedule_id is null and first.id in (select value from json_each($1)) order by job.number"
        postgres "select job.firing_key as key, job.id, job.status, job.exit_reason, job.error_message, job.run_started_at, \
            job.finished_at, job.message from jobs first join jobs job on job.schedule_id is null and job.firing_key = first.firing_key \
            and job.agent = first.agent and job.schedule is not distinct from first.schedule \
            where first.schedule_id is null and first.id = any (array(select json_array_elements_text(($1::text)::json))) order by job.number";
    FIRST_JOBS =
        sqlite "select id, status, exit_reason, error_message, run_started_at, finished_at, message from jobs \
            where firing_key is null and id in (select value from json_each($1))"
        postgres "select id, status, exit_reason, error_message, run_started_at, finished_at, message from jobs \
            where firing_key is null and id = any (array(select json_array_elements_text(($1::text)::json)))";
}

#[derive(Debug, Clone, PartialEq)]
pub enum Fired {
    /// The firing is recorded, with its job if it runs.
    Recorded(Option<Job>),
    /// The firing is recorded, and its job is claimed for the node of the caller.
    Claimed { job: Job, epoch: i64 },
    /// The key exists already, because the occurrence was decided before. Nothing was written.
    Duplicate,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LedgerRow {
    pub key: FiringKey,
    pub due: Timestamp,
    pub decided_at: Timestamp,
    pub outcome: FiringOutcome,
    /// Additional information for people.
    pub note: Option<String>,
    /// First job of the firing. The id stays after that job is pruned.
    pub job: Option<JobId>,
    /// Jobs of the firing that still exist, in the order of their creation.
    pub jobs: Vec<FiringJobRow>,
}

/// State of a job of a firing.
#[derive(Debug, Clone, PartialEq)]
pub struct FiringJobRow {
    pub id: JobId,
    pub status: JobStatus,
    pub exit_reason: Option<ExitReason>,
    /// Error of a job that failed.
    pub error: Option<String>,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    /// Chat message that caused the job.
    pub message: Option<OriginMessage>,
}

/// Result of a preparation.
#[derive(Debug, Clone, PartialEq)]
pub enum Prepared {
    /// One job, which is created now.
    Job(NewJob),
    /// The jobs are created already, one for each item. `more` is true if there were more items than places.
    Jobs {
        more: bool,
    },
    Skip(SkipReason),
}

/// A firing that the caller has to prepare.
#[derive(Debug, Clone, PartialEq)]
pub struct Preparation {
    pub due: Timestamp,
    pub context: FiringContext,
    /// Number of tries, including this try.
    pub tries: u32,
}

/// Result of taking a firing for preparation.
#[derive(Debug, Clone, PartialEq)]
pub enum TakePreparing {
    Ours(Preparation),
    /// The firing is already decided.
    Done,
    /// Another node prepares this firing or an earlier firing of the schedule.
    Elsewhere,
}

/// Number of tries to prepare a firing after which the firing no longer blocks later firings.
pub const MAX_BLOCKING_TRIES: u32 = 5;

impl Store {
    /// Records the firing, its job and the schedule's progress together, once. A second caller gets
    /// [`Fired::Duplicate`].
    pub async fn fire_once(&self, firing: NewFiring, now: Timestamp) -> Result<Fired, StoreError> {
        let random = self.random;
        self.write(move |tx| Box::pin(fire_once(tx, firing, None, now, random))).await
    }

    /// Records a firing as [`Self::fire_once`] does, and claims its job in the same transaction if the job may start
    /// now, so that a due time needs one commit before the process starts. A job that may not start now is pending.
    pub async fn fire_and_claim(
        &self,
        firing: NewFiring,
        starter: Starter,
        now: Timestamp,
    ) -> Result<Fired, StoreError> {
        let random = self.random;
        self.write_if(SuccessIf::Committed, move |tx| {
            Box::pin(fire_once(tx, firing, Some(starter), now, random))
        })
        .await
    }

    /// Records several firings in this order; all of them, or none.
    pub async fn fire_all(&self, firings: Vec<NewFiring>, now: Timestamp) -> Result<Vec<Fired>, StoreError> {
        let random = self.random;
        self.write(move |tx| {
            Box::pin(async move {
                let mut fired = Vec::with_capacity(firings.len());
                for firing in firings {
                    fired.push(fire_once(tx, firing, None, now, random).await?);
                }
                Ok(fired)
            })
        })
        .await
    }

    /// Takes a firing for preparation until `until`. The firings of a schedule are prepared in their order, so a firing
    /// is not taken while another node prepares an earlier firing.
    pub async fn take_preparing(
        &self,
        schedule: ScheduleId,
        key: FiringKey,
        node: String,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<TakePreparing, StoreError> {
        self.write(move |tx| Box::pin(take_preparing(tx, schedule, key, node, until, now))).await
    }

    /// Records the result of a preparation: jobs are created, or the firing is skipped. After a skip, an interval
    /// counts from now, as it would count from the end of a job; a firing by hand does not change the interval. `note`
    /// is for the ledger. Does nothing if the firing is already decided.
    pub async fn prepared(
        &self,
        schedule: ScheduleId,
        key: FiringKey,
        prepared: Prepared,
        note: Option<String>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let random = self.random;
        let result = (prepared, note);
        self.write(move |tx| Box::pin(settle_prepared(tx, schedule, key, result, now, random))).await
    }

    /// Cancels a firing that is not prepared yet, and returns whether it was cancelled. A firing that already has jobs
    /// for some of its items gets no further jobs.
    pub async fn cancel_firing(
        &self,
        schedule: ScheduleId,
        key: FiringKey,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let random = self.random;
        self.write(move |tx| {
            Box::pin(async move {
                schedules::lock(tx, schedule).await?;
                let Some(row) = tx.one(LOCK_PREPARING, args![schedule, key.as_str()]).await? else {
                    return Ok(false);
                };
                let has_job = row.get::<Option<String>>("job_id")?.is_some();
                let cancelled = Prepared::Skip(SkipReason::Cancelled);
                let result = if has_job { Prepared::Jobs { more: false } } else { cancelled };
                settle_prepared(tx, schedule, key, (result, None), now, random).await?;
                Ok(true)
            })
        })
        .await
    }

    /// Returns the decision about one occurrence.
    pub async fn firing(
        &self,
        schedule: ScheduleId,
        key: FiringKey,
    ) -> Result<Option<LedgerRow>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                let row = tx.one(GET_FIRING, args![schedule, key.as_str()]).await?;
                Ok(with_jobs(tx, schedule, row.as_slice()).await?.pop())
            })
        })
        .await
    }

    /// Returns the ledger of a schedule, the newest rows first.
    pub async fn ledger(&self, schedule: ScheduleId, limit: u32) -> Result<Vec<LedgerRow>, StoreError> {
        self.read(move |tx| Box::pin(ledger(tx, schedule, limit))).await
    }

    /// Reads a snapshot and the newest firings of a schedule at one moment, so that they do not contradict each other.
    /// The spending in the snapshot is read shortly before.
    pub async fn snapshot_and_ledger(
        &self,
        roster: &Roster,
        (schedule, limit): (ScheduleId, u32),
        now: Timestamp,
    ) -> Result<(Snapshot, Vec<LedgerRow>), StoreError> {
        let spending = self.spending(roster, now).await?;
        let read = self.read(move |tx| {
            Box::pin(
                async move { Ok((snapshot::all(tx, Some(now)).await?, ledger(tx, schedule, limit).await?)) },
            )
        });
        let (snapshot, firings) = read.await?;
        Ok((Snapshot { ledger: spending, ..snapshot }, firings))
    }

    /// Returns the newest rows of each schedule in a period, with the jobs that still exist.
    pub async fn firings_between(
        &self,
        schedules: Vec<ScheduleId>,
        (from, to): (Timestamp, Timestamp),
        limit: u32,
    ) -> Result<Vec<Vec<LedgerRow>>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                let mut ledgers = Vec::with_capacity(schedules.len());
                for schedule in schedules {
                    let rows = tx.all(FIRINGS_BETWEEN, args![schedule, from, to, limit]).await?;
                    ledgers.push(with_jobs(tx, schedule, &rows).await?);
                }
                Ok(ledgers)
            })
        })
        .await
    }
}

/// Reads the newest rows of a schedule's ledger.
pub(super) async fn ledger(
    tx: &mut Tx<'_>,
    schedule: ScheduleId,
    limit: u32,
) -> Result<Vec<LedgerRow>, StoreError> {
    let rows = tx.all(LEDGER, args![schedule, limit]).await?;
    with_jobs(tx, schedule, &rows).await
}

async fn take_preparing(
    tx: &mut Tx<'_>,
    schedule: ScheduleId,
    key: FiringKey,
    node: String,
    until: Timestamp,
    now: Timestamp,
) -> Result<TakePreparing, StoreError> {
    // With this lock, two nodes take firings of one schedule one after the other, and the second node sees which firing
    // the first node took.
    schedules::lock(tx, schedule).await?;
    let Some(row) = tx.one(LOCK_PREPARING, args![schedule, key.as_str()]).await? else {
        return Ok(TakePreparing::Done);
    };
    let preparer: Option<String> = row.get("preparer")?;
    let is_free = preparer.is_none_or(|preparer| preparer == node)
        || row.time_opt("prepare_until")?.is_none_or(|until| until <= now);
    let number: i64 = row.get("prepare_number")?;
    let earlier = args![schedule, number, node.as_str(), now, MAX_BLOCKING_TRIES];
    if !is_free || tx.one(EARLIER_ELSEWHERE, earlier).await?.is_some() {
        return Ok(TakePreparing::Elsewhere);
    }
    let row = tx.one(TAKE_PREPARING, args![schedule, key.as_str(), node, until]).await?;
    row.map_or(Ok(TakePreparing::Done), |row| {
        let (due, tries) = (row.time("due_at")?, row.count("prepare_tries")?);
        let context = row.json_opt("occasion")?.unwrap_or_default();
        Ok(TakePreparing::Ours(Preparation { due, context, tries }))
    })
}

async fn settle_prepared(
    tx: &mut Tx<'_>,
    schedule: ScheduleId,
    key: FiringKey,
    (prepared, note): (Prepared, Option<String>),
    now: Timestamp,
    random: fn() -> u64,
) -> Result<(), StoreError> {
    let mut record = schedules::lock(tx, schedule).await?;
    let outcome = match &prepared {
        Prepared::Job(_) | Prepared::Jobs { .. } => FiringOutcome::Ran,
        Prepared::Skip(reason) => FiringOutcome::Skipped(*reason),
    };
    let reason = outcome.skip_reason().map(SkipReason::as_str);
    let row = args![schedule, key.as_str(), outcome.as_str(), reason, now, note];
    let Some(row) = tx.one(PREPARED, row).await? else { return Ok(()) };
    let mut job: Option<JobId> = row.parse_opt("job_id")?;
    // If items are left, or the agent had no free place, the schedule looks for work again as soon as its agent has a
    // free place.
    record.fill |= matches!(prepared, Prepared::Jobs { more: true } | Prepared::Skip(SkipReason::AtCapacity));
    if let Prepared::Job(new) = prepared {
        let created = jobs::add(tx, new, &origin_of(schedule, &key, false), now, random).await?;
        tx.execute(LINK_JOB, args![schedule, key.as_str(), created.id().as_str()]).await?;
        job = Some(created.id().clone());
        jobs::record_created(tx, &created, now);
    }
    match outcome.skip_reason().filter(|_| !key.is_by_hand()) {
        Some(SkipReason::Cancelled | SkipReason::Disabled | SkipReason::Paused) => {
            record.count_from(tx.moment(now));
        }
        Some(_) => record.record_run_or_poll(tx.moment(now)),
        None => {}
    }
    record.record_error(None);
    schedules::save(tx, &record).await?;
    let fact = fact(outcome, key, row.time("due_at")?);
    let (agent, schedule) = (record.agent, Some(record.name));
    tx.record(NewEvent { at: now, agent: Some(agent), schedule, job, fact });
    Ok(())
}

pub(super) async fn fire_once(
    tx: &mut Tx<'_>,
    firing: NewFiring,
    starter: Option<Starter>,
    now: Timestamp,
    random: fn() -> u64,
) -> Result<Fired, StoreError> {
    let NewFiring { schedule, key, due, decision, note } = firing;
    let claim = match (starter, &decision) {
        (Some(starter), Decision::Run(new)) => {
            let automatic = key.is_automatic();
            let reservation = claims::admission::admit_new(tx, &new.agent, &starter, automatic, now).await?;
            reservation.map(|reservation| (starter, reservation))
        }
        _ => None,
    };
    let mut record = schedules::lock(tx, schedule).await?;
    let outcome = decision.outcome();
    let reason = outcome.skip_reason().map(SkipReason::as_str);
    let context = match &decision {
        Decision::Prepare(context) => Some(jobs::to_json(context)?),
        Decision::Run(_) | Decision::Skip(_) | Decision::Miss | Decision::Coalesce => None,
    };
    let number = if context.is_some() { next_prepare_number(tx, schedule).await? } else { 0 };
    let row = args![schedule, key.as_str(), due, now, outcome.as_str(), reason, context, number, note];
    if tx.execute(ADD_FIRING, row).await? == 0 {
        // The clock was set back and reaches this due time again. The schedule continues with the next due time.
        if key.kind() == "cron" && record.last_due.is_none_or(|last| last < due) {
            record.record_outcome(&key, due);
            schedules::save(tx, &record).await?;
        }
        return Ok(Fired::Duplicate);
    }
    if key.is_by_clock() {
        match outcome {
            FiringOutcome::Coalesced => record.record_coalesced(due),
            _ => record.record_outcome(&key, due),
        }
        if outcome == FiringOutcome::Preparing && !key.is_fill() {
            record.record_poll(tx.moment(now));
        }
        // An interval counts from the end of the last job. After a skip, without a job, it counts from now.
        if key.kind() == "interval" && outcome.skip_reason().is_some() {
            record.record_run_or_poll(tx.moment(now));
        }
        schedules::save(tx, &record).await?;
    }
    if let Some(seq) = key.event() {
        cursors::advance(tx, schedule, seq).await?;
    }
    let fact = fact(outcome, key.clone(), due);
    let (agent, name) = (record.agent, Some(record.name));
    let Decision::Run(new) = decision else {
        tx.record(NewEvent { at: now, agent: Some(agent), schedule: name, job: None, fact });
        return Ok(Fired::Recorded(None));
    };
    let is_running = claim.is_some();
    let job = jobs::add(tx, new, &origin_of(schedule, &key, is_running), now, random).await?;
    tx.execute(LINK_JOB, args![schedule, key.as_str(), job.id().as_str()]).await?;
    tx.record(NewEvent { at: now, agent: Some(agent), schedule: name, job: Some(job.id().clone()), fact });
    jobs::record_created(tx, &job, now);
    let Some((Starter { node, lease, on_lost, session_key, slot, .. }, reservation)) = claim else {
        return Ok(Fired::Recorded(Some(job)));
    };
    sessions::set_key(tx, job.id(), session_key).await?;
    let epoch = claims::begin_attempt(
        tx,
        &job,
        AttemptStart { node, terms: LeaseTerms { length: lease, on_lost }, reservation },
        now,
    )
    .await?;
    providers::started(tx, job.id(), slot.as_ref(), now).await?;
    Ok(Fired::Claimed { job, epoch })
}

/// Returns the number of the schedule's next firing that has to be prepared. The caller holds the lock of the schedule.
async fn next_prepare_number(tx: &mut Tx<'_>, schedule: ScheduleId) -> Result<i64, StoreError> {
    let row = tx.one(LAST_PREPARED, args![schedule]).await?;
    let last: Option<i64> = row.map_or(Ok(None), |row| row.get("number"))?;
    Ok(last.unwrap_or(0) + 1)
}

fn origin_of(schedule: ScheduleId, key: &FiringKey, is_running: bool) -> jobs::JobOrigin {
    let (schedule, firing) = (Some(schedule), Some(key.clone()));
    let (by_trigger, automatic) = (!key.is_by_hand(), key.is_automatic());
    jobs::JobOrigin { schedule, firing, by_trigger, automatic, is_running }
}

fn fact(outcome: FiringOutcome, key: FiringKey, due: Timestamp) -> Fact {
    match outcome {
        FiringOutcome::Preparing => Fact::SchedulePreparing { key, due },
        FiringOutcome::Ran => Fact::ScheduleFired { key, due },
        FiringOutcome::Skipped(reason) => Fact::ScheduleSkipped { key, due, reason },
        FiringOutcome::Missed => Fact::ScheduleMissed { key, due },
        FiringOutcome::Coalesced => Fact::ScheduleCoalesced { key, due },
    }
}

fn read(row: &Row) -> Result<LedgerRow, StoreError> {
    let outcome: String = row.get("outcome")?;
    Ok(LedgerRow {
        key: FiringKey::stored(row.get("key")?),
        due: row.time("due_at")?,
        decided_at: row.time("decided_at")?,
        outcome: match outcome.as_str() {
            "preparing" => FiringOutcome::Preparing,
            "ran" => FiringOutcome::Ran,
            "skipped" => FiringOutcome::Skipped(row.parse("reason")?),
            "missed" => FiringOutcome::Missed,
            "coalesced" => FiringOutcome::Coalesced,
            other => return Err(row.unreadable("outcome", other)),
        },
        note: row.get("note")?,
        job: row.parse_opt("job_id")?,
        jobs: Vec::new(),
    })
}

/// Reads rows of the ledger with their jobs.
async fn with_jobs(
    tx: &mut Tx<'_>,
    schedule: ScheduleId,
    rows: &[Row],
) -> Result<Vec<LedgerRow>, StoreError> {
    let mut ledger = rows.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let keys: Vec<&str> = ledger.iter().map(|row| row.key.as_str()).collect();
    let mut jobs: HashMap<String, Vec<FiringJobRow>> = HashMap::new();
    for row in tx.all(JOBS_OF_FIRINGS, args![schedule, jobs::to_json(&keys)?]).await? {
        jobs.entry(row.get("key")?).or_default().push(read_job(&row)?);
    }
    let first_ids: Vec<&JobId> = ledger.iter().filter_map(|row| row.job.as_ref()).collect();
    let first_ids = jobs::to_json(&first_ids)?;
    for row in tx.all(JOBS_OF_FORMER_AGENT, args![first_ids.clone()]).await? {
        jobs.entry(row.get("key")?).or_default().push(read_job(&row)?);
    }
    // Older versions did not store the firing of a job. Of their jobs, only the first job of each firing is known.
    let mut first_jobs = HashMap::new();
    for row in tx.all(FIRST_JOBS, args![first_ids]).await? {
        let job = read_job(&row)?;
        first_jobs.insert(job.id.clone(), job);
    }
    for row in &mut ledger {
        let first = row.job.as_ref().and_then(|id| first_jobs.remove(id));
        row.jobs = first.into_iter().chain(jobs.remove(row.key.as_str()).unwrap_or_default()).collect();
    }
    Ok(ledger)
}

fn read_job(row: &Row) -> Result<FiringJobRow, StoreError> {
    Ok(FiringJobRow {
        id: row.parse("id")?,
        status: row.parse("status")?,
        exit_reason: row.parse_opt("exit_reason")?,
        error: row.get("error_message")?,
        started_at: row.time_opt("run_started_at")?,
        finished_at: row.time_opt("finished_at")?,
        message: row.json_opt("message")?,
    })
}
