//! Firings: one row for each planned occurrence, and the ledger of what became of them.

use cowhand_core::event::Fact;
use cowhand_core::id::{JobId, ScheduleId};
use cowhand_core::job::{Job, NewJob};
use cowhand_core::schedule::{FiringOutcome, SkipReason};
use cowhand_core::trigger::FiringKey;
use jiff::Timestamp;

use super::db::{Recorded, Row, Tx, args};
use super::dialect::statements;
use super::{Store, StoreError, cursors, jobs, schedules};

statements! {
    ADD_FIRING = same "insert into firings (schedule_id, key, due_at, decided_at, outcome, reason, job_id) \
        values ($1, $2, $3, $4, $5, $6, null) on conflict (schedule_id, key) do nothing";
    LINK_JOB = same "update firings set job_id = $3 where schedule_id = $1 and key = $2";
    GET_FIRING = same "select key, due_at, decided_at, outcome, reason, job_id from firings where schedule_id = $1 and key = $2";
    LEDGER = same "select key, due_at, decided_at, outcome, reason, job_id from firings where schedule_id = $1 \
        order by due_at desc, key desc limit $2";
}

/// An occurrence that somebody decided about.
#[derive(Debug, Clone, PartialEq)]
pub struct Firing {
    pub schedule: ScheduleId,
    pub key: FiringKey,
    pub due: Timestamp,
    pub decision: Decision,
}

/// Only a firing that runs makes a job, and it always does.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    Run(NewJob),
    Skip(SkipReason),
    Miss,
    Coalesce,
}

impl Decision {
    const fn outcome(&self) -> FiringOutcome {
        match self {
            Self::Run(_) => FiringOutcome::Ran,
            Self::Skip(reason) => FiringOutcome::Skipped(*reason),
            Self::Miss => FiringOutcome::Missed,
            Self::Coalesce => FiringOutcome::Coalesced,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Fired {
    /// Recorded now, with its job if it runs.
    Recorded(Option<Job>),
    /// The key was taken: somebody decided about this occurrence before. Nothing was written.
    Duplicate,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LedgerRow {
    pub key: FiringKey,
    pub due: Timestamp,
    pub decided_at: Timestamp,
    pub outcome: FiringOutcome,
    pub job: Option<JobId>,
}

impl Store {
    /// Records the firing, its job and the schedule's progress together, once; whoever comes second is told.
    pub async fn fire_once(&self, firing: Firing, now: Timestamp) -> Result<Fired, StoreError> {
        let random = self.random;
        self.write(move |tx| Box::pin(fire_once(tx, firing, now, random))).await
    }

    /// Many at once, in this order; all of them, or none.
    pub async fn fire_all(&self, firings: Vec<Firing>, now: Timestamp) -> Result<Vec<Fired>, StoreError> {
        let random = self.random;
        self.write(move |tx| {
            Box::pin(async move {
                let mut fired = Vec::with_capacity(firings.len());
                for firing in firings {
                    fired.push(fire_once(tx, firing, now, random).await?);
                }
                Ok(fired)
            })
        })
        .await
    }

    /// What was decided about one occurrence.
    pub async fn firing(
        &self,
        schedule: ScheduleId,
        key: FiringKey,
    ) -> Result<Option<LedgerRow>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move {
                tx.one(GET_FIRING, args![schedule, key.as_str()]).await?.as_ref().map(read).transpose()
            })
        })
        .await
    }

    /// The newest rows first.
    pub async fn ledger(&self, schedule: ScheduleId, limit: u32) -> Result<Vec<LedgerRow>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move { tx.all(LEDGER, args![schedule, limit]).await?.iter().map(read).collect() })
        })
        .await
    }
}

async fn fire_once(
    tx: &mut Tx<'_>,
    firing: Firing,
    now: Timestamp,
    random: fn() -> u64,
) -> Result<Fired, StoreError> {
    let Firing { schedule, key, due, decision } = firing;
    let mut record = schedules::lock(tx, schedule).await?;
    let outcome = decision.outcome();
    let reason = outcome.skip_reason().map(SkipReason::as_str);
    let row = args![schedule, key.as_str(), due, now, outcome.as_str(), reason];
    if tx.execute(ADD_FIRING, row).await? == 0 {
        return Ok(Fired::Duplicate);
    }
    if key.is_by_clock() {
        record.passed(&key, due);
        // An interval is counted from what came of the last one; if that was nothing, from now.
        if key.kind() == "interval" && outcome.skip_reason().is_some() {
            let error = record.last_error.take();
            record.finished(now, error);
        }
        schedules::save(tx, &record).await?;
    }
    if let Some(seq) = key.event() {
        cursors::advance(tx, schedule, seq).await?;
    }
    let fact = match outcome {
        FiringOutcome::Ran => Fact::ScheduleFired { key: key.clone(), due },
        FiringOutcome::Skipped(reason) => Fact::ScheduleSkipped { key: key.clone(), due, reason },
        FiringOutcome::Missed => Fact::ScheduleMissed { key: key.clone(), due },
        FiringOutcome::Coalesced => Fact::ScheduleCoalesced { key: key.clone(), due },
    };
    let (agent, name) = (record.agent, Some(record.name));
    let Decision::Run(new) = decision else {
        tx.record(Recorded { at: now, agent, schedule: name, job: None, fact });
        return Ok(Fired::Recorded(None));
    };
    let place = jobs::Place { schedule: Some(schedule), by_trigger: !key.is_by_hand() };
    let job = jobs::add(tx, new, place, now, random).await?;
    tx.execute(LINK_JOB, args![schedule, key.as_str(), job.id().as_str()]).await?;
    tx.record(Recorded { at: now, agent, schedule: name, job: Some(job.id().clone()), fact });
    jobs::record_created(tx, &job, now);
    Ok(Fired::Recorded(Some(job)))
}

fn read(row: &Row) -> Result<LedgerRow, StoreError> {
    let outcome: String = row.get("outcome")?;
    Ok(LedgerRow {
        key: FiringKey::stored(row.get("key")?),
        due: row.time("due_at")?,
        decided_at: row.time("decided_at")?,
        outcome: match outcome.as_str() {
            "ran" => FiringOutcome::Ran,
            "skipped" => FiringOutcome::Skipped(row.parse("reason")?),
            "missed" => FiringOutcome::Missed,
            "coalesced" => FiringOutcome::Coalesced,
            other => return Err(row.unreadable("outcome", other)),
        },
        job: row.parse_opt("job_id")?,
    })
}
