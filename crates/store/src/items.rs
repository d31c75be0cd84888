//! Claimed work items: claimed in an outside queue, worked on, and reported to their source.
//!
//! ```text
//! take ──▶ claiming ──▶ held (job or person) ──▶ closing (a report is due) ──▶ no row
//!             │  refused: no row                     ▲
//!             └── result unknown, or too late ───────┘
//! ```
//!
//! The row is written before the claim in the outside queue, and removed after the last report. While the row exists,
//! no other holder in this store takes the item. A crash at any point leaves a row that states what has still to be
//! done.

use cowhand_core::actor::Actor;
use cowhand_core::event::Fact;
use cowhand_core::id::{AgentName, JobId, ScheduleId, ScheduleName};
use cowhand_core::job::{Closing, Job, NewJob};
use cowhand_core::schedule::SkipReason;
use cowhand_core::trigger::FiringKey;
use cowhand_core::work::WorkItem;
use cowhand_core::work_source::ConfiguredSource;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use uuid::Uuid;

use super::database::db::{Row, Tx, args};
use super::database::dialect::statements;
use super::database::event_log::NewEvent;
use super::failures::{self, FailedItemState, ItemFailures};
use super::{Store, StoreError, jobs};

statements! {
    TAKE_ITEM = same "insert into items (queue, item, holder, state, until, node, agent, schedule, source, content) \
        values ($1, $2, $3, 'claiming', $4, $5, $6, $7, $8, $9) on conflict do nothing";
    LOCK_ITEM = locked "select * from items where holder = $1";
    ALL_ITEMS = same "select * from items order by queue, item";
    HOLD_ITEM = same "update items set state = 'held', until = $2, content = $3 where holder = $1 and state = 'claiming'";
    RENEW_ITEM = same "update items set until = $2 where holder = $1 and state = 'held'";
    FORGET_ITEM = same "delete from items where holder = $1";
    NEXT_ITEM_TIME = same "select min(case state when 'closing' then not_before else until end) as at from items";
    TO_RENEW = same "select * from items where state = 'held' and until <= $1 order by until";
    ADD_IDENTITY = same "insert into identity (name, value) values ('fleet', $1) on conflict (name) do nothing";
    IDENTITY = same "select value from identity where name = 'fleet'";
    LOCK_FIRING = locked "select reason from firings where schedule_id = $1 and key = $2";
    EXPIRE_CLAIM = same "update items set until = $2 where holder = $1 and state = 'claiming'";
    LINK_FIRST_JOB = same "update firings set job_id = $3 where schedule_id = $1 and key = $2 and job_id is null";
}

/// An item that has to be claimed.
#[derive(Debug, Clone, PartialEq)]
pub struct NewItemClaim {
    /// Name of the queue, so that two agents with the same queue do not claim the same item.
    pub queue: String,
    pub item: WorkItem,
    pub source: ConfiguredSource,
    pub node: String,
    pub agent: AgentName,
    pub schedule: Option<ScheduleName>,
    /// Time after which an unfinished claim is given up.
    pub until: Timestamp,
    pub unless: TakeConditions,
}

/// Conditions under which an offered item is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TakeConditions {
    /// The item is not taken if a job released it after this time.
    pub released_since: Option<Timestamp>,
    /// True if an item that was given up or withdrawn is not taken. False if the caller knows that a person offered the
    /// item again; its failures are then reset.
    pub given_up: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakeResult {
    /// The item is taken for the job that will have this id. If a person takes the item, the id is not used.
    Ours(JobId),
    /// Another holder in this store has the item.
    Held,
    /// Work on the item failed too often; a person has to act.
    TooOften { failures: u32 },
    /// The item was given up or withdrawn, and its source offers it again. The caller has to check its queue state.
    OfferedAgain,
    /// A job released the item after [`TakeConditions::released_since`].
    Released,
}

/// A claimed item: a row of the table `items`.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldItem {
    pub queue: String,
    pub item: WorkItem,
    pub source: ConfiguredSource,
    pub holder: String,
    /// Node that claims or has claimed the item.
    pub node: String,
    pub agent: AgentName,
    pub schedule: Option<ScheduleName>,
    pub until: Timestamp,
    pub state: ItemState,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ItemState {
    Claiming,
    Held,
    Closing {
        closing: Closing,
        tries: u32,
        last_error: Option<String>,
        /// Time since which the report is due; `None` in rows of an older version.
        since: Option<Timestamp>,
        /// Actor who requested the closing; `None` if it follows from the end of a job.
        by: Option<Actor>,
    },
}

impl HeldItem {
    pub const fn closing(&self) -> Option<&Closing> {
        match &self.state {
            ItemState::Closing { closing, .. } => Some(closing),
            ItemState::Claiming | ItemState::Held => None,
        }
    }

    /// Returns whether the claim for a job is not complete. The job is created when the claim is complete.
    pub fn is_being_claimed(&self) -> bool {
        self.state == ItemState::Claiming && self.job().is_some()
    }

    /// Returns the job for which the item is claimed; `None` if a person holds the item.
    pub fn job(&self) -> Option<JobId> {
        self.holder.parse().ok()
    }
}

/// The firing of a job.
#[derive(Debug, Clone)]
pub struct FiringRef {
    pub schedule: ScheduleId,
    pub key: FiringKey,
}

/// Returns whether somebody cancelled the firing. Locks the row of the firing, so that nobody cancels the firing before
/// the job is created.
async fn is_cancelled(tx: &mut Tx<'_>, firing: &FiringRef) -> Result<bool, StoreError> {
    let row = tx.one(LOCK_FIRING, args![firing.schedule, firing.key.as_str()]).await?;
    let reason = row.map(|row| row.parse_opt::<SkipReason>("reason")).transpose()?.flatten();
    Ok(reason == Some(SkipReason::Cancelled))
}

impl Store {
    /// Returns the id of the fleet, which is the same on all nodes of this store. The first call creates the id.
    pub async fn fleet_id(&self) -> Result<String, StoreError> {
        let stored_id = self.read(|tx| {
            Box::pin(async move { tx.one(IDENTITY, args![]).await?.map(|row| row.get("value")).transpose() })
        });
        if let Some(stored_id) = stored_id.await? {
            return Ok(stored_id);
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

    /// Takes an item for a job or a person, before the claim in the outside queue.
    pub async fn take_item(
        &self,
        claim: NewItemClaim,
        person: Option<String>,
        now: Timestamp,
    ) -> Result<TakeResult, StoreError> {
        let random = self.random;
        self.write(move |tx| {
            Box::pin(async move {
                let failures = failures::get(tx, &claim.queue, &claim.item.id).await?;
                let failures = failures.filter(|_| person.is_none());
                let max_attempts = claim.source.rules().max_attempts();
                if let Some(obstacle) =
                    failures.as_ref().and_then(|failures| claim.unless.obstacle(failures, max_attempts))
                {
                    return Ok(obstacle);
                }
                let resets_failures =
                    failures.is_some_and(|failures| failures.state != FailedItemState::Offered);
                let holder = JobId::new(TimeZone::UTC.to_datetime(now).date(), random());
                let holder_text = person.unwrap_or_else(|| holder.to_string());
                let is_taken = insert(tx, &claim, &holder_text).await?;
                if is_taken && resets_failures {
                    failures::forget(tx, &claim.queue, &claim.item.id).await?;
                }
                Ok(if is_taken { TakeResult::Ours(holder) } else { TakeResult::Held })
            })
        })
        .await
    }

    /// Creates the job after the claim in the outside queue succeeded, with the id that the claim names. Returns `None`
    /// if the claim was given up or the firing was cancelled meanwhile. The outbox then releases the item.
    pub async fn hold_item(
        &self,
        holder: JobId,
        new: NewJob,
        firing: FiringRef,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<Option<Job>, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                if is_cancelled(tx, &firing).await? {
                    tx.execute(EXPIRE_CLAIM, args![holder.as_str(), now]).await?;
                    return Ok(None);
                }
                let content = new.work_item.as_ref().map(jobs::to_json).transpose()?;
                if tx.execute(HOLD_ITEM, args![holder.as_str(), until, content]).await? == 0 {
                    return Ok(None);
                }
                let job = Job::new(holder.clone(), new, now);
                let origin = jobs::JobOrigin {
                    schedule: Some(firing.schedule),
                    by_trigger: !firing.key.is_by_hand(),
                    automatic: firing.key.is_automatic(),
                    firing: Some(firing.key.clone()),
                    is_running: false,
                };
                if !jobs::insert(tx, &job, &origin).await? {
                    return Err(StoreError::NoFreeId(1));
                }
                tx.execute(LINK_FIRST_JOB, args![firing.schedule, firing.key.as_str(), holder.as_str()])
                    .await?;
                if let Some(item) = job.work_item() {
                    jobs::record(tx, &job, Fact::WorkClaimed { item: item.id.clone() }, now);
                }
                jobs::record_created(tx, &job, now);
                Ok(Some(job))
            })
        })
        .await
    }

    /// Removes an item whose claim was refused.
    pub async fn leave_item(&self, holder: String) -> Result<(), StoreError> {
        self.write(move |tx| Box::pin(async move { tx.execute(FORGET_ITEM, args![holder]).await.map(drop) }))
            .await
    }

    /// Records that the claim of a person succeeded.
    pub async fn hold_for_person(
        &self,
        holder: String,
        until: Timestamp,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let Some(held) = lock(tx, &holder).await? else { return Ok(()) };
                let content = jobs::to_json(&held.item)?;
                tx.execute(HOLD_ITEM, args![holder, until, content]).await?;
                tx.record(item_event(&held, Fact::WorkClaimed { item: held.item.id.clone() }, now));
                Ok(())
            })
        })
        .await
    }

    /// Returns the held items whose claim in the outside queue expires at `before` or earlier.
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

    /// Returns all claimed items.
    pub async fn items(&self) -> Result<Vec<HeldItem>, StoreError> {
        self.read(|tx| Box::pin(async move { tx.all(ALL_ITEMS, args![]).await?.iter().map(read).collect() }))
            .await
    }

    /// Returns the earliest time at which a report is due or a claim expires; `None` if there are no items.
    pub async fn next_item_time(&self) -> Result<Option<Timestamp>, StoreError> {
        self.read(|tx| {
            Box::pin(async move {
                tx.one(NEXT_ITEM_TIME, args![]).await?.map_or(Ok(None), |row| row.time_opt("at"))
            })
        })
        .await
    }
}

impl TakeConditions {
    /// Returns the reason why the item is not taken; `None` if it may be taken.
    fn obstacle(self, failures: &ItemFailures, max_attempts: u32) -> Option<TakeResult> {
        match failures.state {
            FailedItemState::GivenUp | FailedItemState::Withdrawn => {
                self.given_up.then_some(TakeResult::OfferedAgain)
            }
            FailedItemState::Offered if failures.failures >= max_attempts => {
                Some(TakeResult::TooOften { failures: failures.failures })
            }
            FailedItemState::Offered => {
                let (since, released) = (self.released_since?, failures.released_at?);
                (released > since).then_some(TakeResult::Released)
            }
        }
    }
}

/// Inserts the row of an item that has to be claimed. Returns false if another holder in this store has the item.
pub(super) async fn insert(tx: &mut Tx<'_>, claim: &NewItemClaim, holder: &str) -> Result<bool, StoreError> {
    let row = args![
        claim.queue.as_str(),
        claim.item.id.to_string(),
        holder,
        claim.until,
        claim.node.as_str(),
        claim.agent.as_str(),
        claim.schedule.as_ref().map(ScheduleName::as_str),
        jobs::to_json(&claim.source)?,
        jobs::to_json(&claim.item)?,
    ];
    Ok(tx.execute(TAKE_ITEM, row).await? == 1)
}

/// Returns true if the job's claim in the outside queue may have expired.
pub(super) async fn has_expired(tx: &mut Tx<'_>, job: &Job, now: Timestamp) -> Result<bool, StoreError> {
    if job.work_item().is_none() {
        return Ok(false);
    }
    Ok(lock(tx, job.id().as_str()).await?.is_some_and(|held| held.until <= now))
}

/// Returns the holder's row and locks it until the end of the transaction.
pub(super) async fn lock(tx: &mut Tx<'_>, holder: &str) -> Result<Option<HeldItem>, StoreError> {
    tx.one(LOCK_ITEM, args![holder]).await?.as_ref().map(read).transpose()
}

/// Removes a row and returns whether it existed.
pub(super) async fn forget(tx: &mut Tx<'_>, holder: &str) -> Result<bool, StoreError> {
    Ok(tx.execute(FORGET_ITEM, args![holder]).await? == 1)
}

pub(super) fn item_event(item: &HeldItem, fact: Fact, now: Timestamp) -> NewEvent {
    let (agent, schedule) = (item.agent.clone(), item.schedule.clone());
    NewEvent { at: now, agent: Some(agent), schedule, job: item.job(), fact }
}

pub(super) fn read(row: &Row) -> Result<HeldItem, StoreError> {
    let state: String = row.get("state")?;
    let unreadable = |column: &str| row.unreadable(column, "nothing");
    let state = match state.as_str() {
        "claiming" => ItemState::Claiming,
        "held" => ItemState::Held,
        "closing" => ItemState::Closing {
            closing: row.json_opt("closing")?.ok_or_else(|| unreadable("closing"))?,
            tries: row.count("tries")?,
            last_error: row.get("last_error")?,
            since: row.time_opt("owed_since")?,
            by: row.json_opt("owed_by")?,
        },
        other => return Err(row.unreadable("state", other)),
    };
    Ok(HeldItem {
        queue: row.get("queue")?,
        item: row.json_opt("content")?.ok_or_else(|| unreadable("content"))?,
        source: row.json_opt("source")?.ok_or_else(|| unreadable("source"))?,
        holder: row.get("holder")?,
        node: row.get("node")?,
        agent: row.parse("agent")?,
        schedule: row.parse_opt("schedule")?,
        until: row.time("until")?,
        state,
    })
}
