//! Work items in hand: claimed in an outside queue, worked on, and what is still owed to their source.
//!
//! ```text
//! take ──▶ claiming ──▶ held (its job lives) ──▶ closing (the source is to be told) ──▶ no row
//!             │  refused: no row                     ▲
//!             └── nobody knows, or too long ─────────┘
//! ```
//!
//! The row is there from before the claim outside until after the last word about it, so nobody who shares this store
//! takes the item in between, and a crash at any point leaves a row that says what is to be done.

use cowhand_core::config::shape;
use cowhand_core::event::Fact;
use cowhand_core::id::{AgentName, JobId, ScheduleId, ScheduleName};
use cowhand_core::job::{Job, NewJob, Outcome};
use cowhand_core::trigger::FiringKey;
use cowhand_core::work::{Closing, ReleaseOptions, WorkItem, WorkItemId};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use uuid::Uuid;

use super::db::{Recorded, Row, Tx, args};
use super::dialect::statements;
use super::{Store, StoreError, jobs};

statements! {
    TAKE_ITEM = same "insert into items (queue, item, holder, state, until, node, agent, schedule, source, content) \
        values ($1, $2, $3, 'claiming', $4, $5, $6, $7, $8, $9) on conflict do nothing";
    LOCK_ITEM = locked "select * from items where holder = $1";
    ALL_ITEMS = same "select * from items order by queue, item";
    HOLD_ITEM = same "update items set state = 'held', until = $2, content = $3 where holder = $1 and state = 'claiming'";
    RENEW_ITEM = same "update items set until = $2 where holder = $1 and state = 'held'";
    OWE = same "update items set state = 'closing', closing = $2, not_before = $3, tries = 0 where holder = $1";
    FORGET_ITEM = same "delete from items where holder = $1";
    GIVE_UP_CLAIMS = locked "select * from items where state = 'claiming' and until <= $1 order by queue, item";
    CLAIMS_OF = locked "select * from items where state = 'claiming' and node = $1 order by queue, item";
    STALE_CLAIMS = same "select holder from items where state = 'claiming' and until <= $1 limit 1";
    OWED = same "select holder from items where state = 'closing' and not_before <= $1 limit 1";
    OWED_OR_TRIED = same "select holder from items where state = 'closing' and (not_before <= $1 or last_error is null) limit 1";
    TAKE_OWED = locked "select * from items where state = 'closing' and not_before <= $1 order by not_before, holder limit 1";
    TRY_OWED = same "update items set tries = tries + 1, not_before = $2, node = $3 where holder = $1";
    RESUME_OWED = same "update items set not_before = $2 where state = 'closing' and node = $1";
    POSTPONE = same "update items set not_before = $2, last_error = $3 where holder = $1 and state = 'closing'";
    NEXT_ITEM_TIME = same "select min(case state when 'closing' then not_before else until end) as at from items";
    TO_RENEW = same "select * from items where state = 'held' and until <= $1 order by until";
    FAILURES = same "select failures from item_failures where queue = $1 and item = $2";
    COUNT_FAILURE = same "insert into item_failures (queue, item, failures) values ($1, $2, 1) \
        on conflict (queue, item) do update set failures = item_failures.failures + 1 returning failures";
    FORGET_FAILURES = same "delete from item_failures where queue = $1 and item = $2";
    ADD_IDENTITY = same "insert into identity (name, value) values ('fleet', $1) on conflict (name) do nothing";
    IDENTITY = same "select value from identity where name = 'fleet'";
    LINK_FIRST_JOB = same "update firings set job_id = $3 where schedule_id = $1 and key = $2 and job_id is null";
}

/// An item that is to be claimed.
#[derive(Debug, Clone, PartialEq)]
pub struct Taking {
    /// Which queue it is in, so that two agents on the same one meet.
    pub queue: String,
    pub item: WorkItem,
    pub source: shape::WorkSource,
    pub node: String,
    pub agent: AgentName,
    pub schedule: Option<ScheduleName>,
    /// The claim is given up if nothing was heard of it by then.
    pub until: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    /// Ours to claim, for the job that will have this id.
    Ours(JobId),
    /// Somebody who shares this store has it.
    Held,
    /// Work on it failed too often; a person has to look at it.
    TooOften { failures: u32 },
}

/// A row of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldItem {
    pub queue: String,
    pub item: WorkItem,
    pub source: shape::WorkSource,
    pub holder: String,
    pub agent: AgentName,
    pub schedule: Option<ScheduleName>,
    pub until: Timestamp,
    pub state: ItemState,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ItemState {
    Claiming,
    Held,
    Closing { closing: Closing, tries: u32, last_error: Option<String> },
}

/// The firing that a job belongs to.
#[derive(Debug, Clone)]
pub struct OfFiring {
    pub schedule: ScheduleId,
    pub key: FiringKey,
}

impl Store {
    /// The same for everybody who shares this store; drawn when it is first asked for.
    pub async fn fleet_id(&self) -> Result<String, StoreError> {
        let known = self.read(|tx| {
            Box::pin(async move { tx.one(IDENTITY, args![]).await?.map(|row| row.get("value")).transpose() })
        });
        if let Some(known) = known.await? {
            return Ok(known);
        }
        self.write(|tx| {
            Box::pin(async move {
                tx.execute(ADD_IDENTITY, args![Uuid::now_v7().to_string()]).await?;
                let row = tx.one(IDENTITY, args![]).await?;
                row.ok_or_else(|| StoreError::Unreadable { what: "no identity".to_owned() })?.get("value")
            })
        })
        .await
    }

    /// Before anything is said outside. For a job, or for a person.
    pub async fn take_item(
        &self,
        taking: Taking,
        person: Option<String>,
        now: Timestamp,
    ) -> Result<Taken, StoreError> {
        let random = self.random;
        self.write(move |tx| {
            Box::pin(async move {
                let Taking { queue, item, source, node, agent, schedule, until } = taking;
                let most = source.rules().most_attempts();
                let failures = failures(tx, &queue, &item.id).await?;
                if failures >= most && person.is_none() {
                    return Ok(Taken::TooOften { failures });
                }
                let holder = JobId::new(TimeZone::UTC.to_datetime(now).date(), random());
                let holder_text = person.unwrap_or_else(|| holder.to_string());
                let row = args![
                    queue,
                    item.id.to_string(),
                    holder_text,
                    until,
                    node,
                    agent.as_str(),
                    schedule.as_ref().map(ScheduleName::as_str),
                    jobs::written(&source)?,
                    jobs::written(&item)?,
                ];
                let ours = tx.execute(TAKE_ITEM, row).await? == 1;
                Ok(if ours { Taken::Ours(holder) } else { Taken::Held })
            })
        })
        .await
    }

    /// The claim stands outside: now the job is made, with the id that stands there. None if it was given up meanwhile.
    pub async fn hold_item(
        &self,
        holder: JobId,
        new: NewJob,
        of: OfFiring,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<Option<Job>, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let content = new.work_item.as_ref().map(jobs::written).transpose()?;
                if tx.execute(HOLD_ITEM, args![holder.as_str(), until, content]).await? == 0 {
                    return Ok(None);
                }
                let job = Job::new(holder.clone(), new, now);
                let (by_trigger, running) = (!of.key.is_by_hand(), false);
                let place = jobs::Place { schedule: Some(of.schedule), by_trigger, running };
                if !jobs::insert(tx, &job, place).await? {
                    return Err(StoreError::NoFreeId(1));
                }
                tx.execute(LINK_FIRST_JOB, args![of.schedule, of.key.as_str(), holder.as_str()]).await?;
                if let Some(item) = job.work_item() {
                    jobs::record(tx, &job, Fact::WorkClaimed { item: item.id.clone() }, now);
                }
                jobs::record_created(tx, &job, now);
                Ok(Some(job))
            })
        })
        .await
    }

    /// The claim was refused: nothing is owed.
    pub async fn leave_item(&self, holder: String) -> Result<(), StoreError> {
        self.write(move |tx| Box::pin(async move { tx.execute(FORGET_ITEM, args![holder]).await.map(drop) }))
            .await
    }

    /// Whatever was said outside is taken back.
    pub async fn give_up_item(
        &self,
        holder: String,
        reason: String,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let release = ReleaseOptions { reason: Some(reason), add_comment: false };
        self.close_item(holder, Closing::Release(release), now).await
    }

    /// The source is to be told.
    pub async fn close_item(
        &self,
        holder: String,
        closing: Closing,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.write(move |tx| Box::pin(async move { owe(tx, &holder, &closing, now).await })).await
    }

    /// The claim of a person stands outside.
    pub async fn hold_for_person(
        &self,
        holder: String,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let Some(row) = tx.one(LOCK_ITEM, args![holder.as_str()]).await? else { return Ok(()) };
                let held = read(&row)?;
                let content = jobs::written(&held.item)?;
                tx.execute(HOLD_ITEM, args![holder, until, content]).await?;
                tx.record(recorded(&held, Fact::WorkClaimed { item: held.item.id.clone() }, now));
                Ok(())
            })
        })
        .await
    }

    /// A node has just started: whoever made its claims and paid its debts is gone. Claims that were not finished are
    /// taken back, and what is owed is tried at once.
    pub async fn take_up_items(&self, node: String, now: Timestamp) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let claims = tx.all(CLAIMS_OF, args![node.as_str()]).await?;
                give_up(tx, claims, now).await?;
                tx.execute(RESUME_OWED, args![node, now]).await.map(drop)
            })
        })
        .await
    }

    /// Claims that nobody finished in time are taken back. Nothing is written if there are none.
    pub async fn give_up_stale_claims(&self, now: Timestamp) -> Result<(), StoreError> {
        let any = self
            .read(move |tx| Box::pin(async move { Ok(tx.one(STALE_CLAIMS, args![now]).await?.is_some()) }));
        if !any.await? {
            return Ok(());
        }
        self.write(move |tx| {
            Box::pin(async move {
                let claims = tx.all(GIVE_UP_CLAIMS, args![now]).await?;
                give_up(tx, claims, now).await
            })
        })
        .await
    }

    /// Something that is owed, for the caller to do; nobody else gets it before `lease_until`.
    pub async fn take_owed(
        &self,
        node: String,
        lease_until: Timestamp,
        now: Timestamp,
    ) -> Result<Option<HeldItem>, StoreError> {
        let any = self.read(move |tx| Box::pin(async move { Ok(tx.one(OWED, args![now]).await?.is_some()) }));
        if !any.await? {
            return Ok(None);
        }
        self.write(move |tx| {
            Box::pin(async move {
                let Some(row) = tx.one(TAKE_OWED, args![now]).await? else { return Ok(None) };
                let owed = read(&row)?;
                tx.execute(TRY_OWED, args![owed.holder.as_str(), lease_until, node]).await?;
                Ok(Some(owed))
            })
        })
        .await
    }

    /// Whether anything could be told a source now.
    pub async fn anything_owed(&self, now: Timestamp) -> Result<bool, StoreError> {
        self.read(move |tx| Box::pin(async move { Ok(tx.one(OWED_OR_TRIED, args![now]).await?.is_some()) }))
            .await
    }

    /// The source knows: the item is nobody's any more.
    pub async fn paid(&self, owed: HeldItem, now: Timestamp) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                if tx.execute(FORGET_ITEM, args![owed.holder.as_str()]).await? == 0 {
                    return Ok(());
                }
                let item = owed.item.id.clone();
                let fact = match &owed.state {
                    ItemState::Closing { closing: Closing::Complete(result), .. } => {
                        Fact::WorkReported { item, outcome: result.outcome }
                    }
                    ItemState::Closing { closing: Closing::Release(options), .. } => {
                        Fact::WorkReleased { item, reason: options.reason.clone() }
                    }
                    ItemState::Claiming | ItemState::Held => Fact::WorkReleased { item, reason: None },
                };
                tx.record(recorded(&owed, fact, now));
                Ok(())
            })
        })
        .await
    }

    /// The source could not be told. Said once for each new reason.
    pub async fn postpone(
        &self,
        owed: HeldItem,
        message: String,
        not_before: Timestamp,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let known = match &owed.state {
                    ItemState::Closing { last_error, .. } => last_error.as_deref() == Some(&message),
                    ItemState::Claiming | ItemState::Held => false,
                };
                let row = args![owed.holder.as_str(), not_before, message.as_str()];
                if tx.execute(POSTPONE, row).await? == 1 && !known {
                    let fact = Fact::WorkDelayed { item: owed.item.id.clone(), message };
                    tx.record(recorded(&owed, fact, now));
                }
                Ok(())
            })
        })
        .await
    }

    /// Items whose claim outside runs out before `before`.
    pub async fn items_to_renew(&self, before: Timestamp) -> Result<Vec<HeldItem>, StoreError> {
        self.read(move |tx| {
            Box::pin(async move { tx.all(TO_RENEW, args![before]).await?.iter().map(read).collect() })
        })
        .await
    }

    pub async fn renewed(&self, holder: String, until: Timestamp) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move { tx.execute(RENEW_ITEM, args![holder, until]).await.map(drop) })
        })
        .await
    }

    /// Everything in hand.
    pub async fn items(&self) -> Result<Vec<HeldItem>, StoreError> {
        self.read(|tx| Box::pin(async move { tx.all(ALL_ITEMS, args![]).await?.iter().map(read).collect() }))
            .await
    }

    /// When something has to be done about an item; none while nothing is in hand.
    pub async fn next_item_time(&self) -> Result<Option<Timestamp>, StoreError> {
        self.read(|tx| {
            Box::pin(async move {
                tx.one(NEXT_ITEM_TIME, args![]).await?.map_or(Ok(None), |row| row.time_opt("at"))
            })
        })
        .await
    }
}

/// Part of the transaction that ends the job.
pub(super) async fn job_ended(
    tx: &mut Tx<'_>,
    job: &Job,
    outcome: &Outcome,
    now: Timestamp,
) -> Result<(), StoreError> {
    if job.work_item().is_none() {
        return Ok(());
    }
    // A retry or a fork speaks of an item, too; only the holder has a row.
    let Some(row) = tx.one(LOCK_ITEM, args![job.id().as_str()]).await? else { return Ok(()) };
    let held = read(&row)?;
    let (queue, item) = (held.queue.as_str(), held.item.id.to_string());
    let failures = match outcome {
        Outcome::Failed { .. } => {
            let row = tx.one(COUNT_FAILURE, args![queue, item]).await?;
            row.map_or(Ok(1), |row| row.count("failures"))?
        }
        Outcome::Completed { .. } => {
            tx.execute(FORGET_FAILURES, args![queue, item]).await?;
            0
        }
        Outcome::Cancelled { .. } => failures(tx, queue, &held.item.id).await?,
    };
    let closing = Closing::after(job.id(), outcome, held.source.rules(), failures);
    owe(tx, job.id().as_str(), &closing, now).await
}

async fn give_up(tx: &mut Tx<'_>, claims: Vec<Row>, now: Timestamp) -> Result<(), StoreError> {
    for row in claims {
        let holder: String = row.get("holder")?;
        let reason = Some("the claim was not finished".to_owned());
        owe(tx, &holder, &Closing::Release(ReleaseOptions { reason, add_comment: false }), now).await?;
    }
    Ok(())
}

async fn owe(tx: &mut Tx<'_>, holder: &str, closing: &Closing, now: Timestamp) -> Result<(), StoreError> {
    tx.execute(OWE, args![holder, jobs::written(closing)?, now]).await.map(drop)
}

async fn failures(tx: &mut Tx<'_>, queue: &str, item: &WorkItemId) -> Result<u32, StoreError> {
    let row = tx.one(FAILURES, args![queue, item.to_string()]).await?;
    row.map_or(Ok(0), |row| row.count("failures"))
}

fn recorded(item: &HeldItem, fact: Fact, now: Timestamp) -> Recorded {
    let (agent, schedule) = (item.agent.clone(), item.schedule.clone());
    Recorded { at: now, agent, schedule, job: item.holder.parse().ok(), fact }
}

fn read(row: &Row) -> Result<HeldItem, StoreError> {
    let state: String = row.get("state")?;
    let unreadable = |column: &str| row.unreadable(column, "nothing");
    let state = match state.as_str() {
        "claiming" => ItemState::Claiming,
        "held" => ItemState::Held,
        "closing" => ItemState::Closing {
            closing: row.json_opt("closing")?.ok_or_else(|| unreadable("closing"))?,
            tries: row.count("tries")?,
            last_error: row.get("last_error")?,
        },
        other => return Err(row.unreadable("state", other)),
    };
    Ok(HeldItem {
        queue: row.get("queue")?,
        item: row.json_opt("content")?.ok_or_else(|| unreadable("content"))?,
        source: row.json_opt("source")?.ok_or_else(|| unreadable("source"))?,
        holder: row.get("holder")?,
        agent: row.parse("agent")?,
        schedule: row.parse_opt("schedule")?,
        until: row.time("until")?,
        state,
    })
}
