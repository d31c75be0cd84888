//! Failures of work items: their number, the last reason, and whether a person has to act.

use cowhand_core::event::Fact;
use cowhand_core::id::JobId;
use cowhand_core::job::Job;
use cowhand_core::work::{WorkItem, WorkItemId};
use jiff::Timestamp;

use super::database::db::{Row, Tx, args};
use super::database::dialect::statements;
use super::database::event_log::NewEvent;
use super::{Store, StoreError, jobs};

statements! {
    ALL_FAILURES = same "select * from item_failures order by queue, item";
    FAILURES = same "select * from item_failures where queue = $1 and item = $2";
    COUNT_FAILURE = same "insert into item_failures (queue, item, failures, reason, job_id, failed_at, content) \
        values ($1, $2, 1, $3, $4, $5, $6) on conflict (queue, item) do update set failures = item_failures.failures + 1, \
        reason = excluded.reason, job_id = excluded.job_id, failed_at = excluded.failed_at, content = excluded.content \
        returning failures";
    FAILED_BY_HAND = same "insert into item_failures (queue, item, failures, reason, failed_at, content, state) \
        values ($1, $2, 1, $3, $4, $5, 'given_up') on conflict (queue, item) do update set \
        failures = item_failures.failures + 1, reason = excluded.reason, job_id = null, \
        failed_at = excluded.failed_at, content = excluded.content, state = 'given_up'";
    GIVE_UP = same "update item_failures set state = 'given_up' where queue = $1 and item = $2";
    RELEASE = same "insert into item_failures (queue, item, failures, released_at, content) values ($1, $2, 0, $3, $4) \
        on conflict (queue, item) do update set state = 'offered', released_at = excluded.released_at";
    WITHDRAW = same "update item_failures set state = 'withdrawn' where queue = $1 and item = $2 and state = 'offered'";
    MOVE_FAILURES = same "update item_failures set item = $3, content = $4 where queue = $1 and item = $2";
    FORGET_FAILURES = same "delete from item_failures where queue = $1 and item = $2";
}

/// Failures of one item. An item that a job released has a record even without failures.
#[derive(Debug, Clone, PartialEq)]
pub struct ItemFailures {
    pub queue: String,
    pub id: WorkItemId,
    /// Number of consecutive failures. Jobs that could not be started or were cancelled do not count.
    pub failures: u32,
    pub state: FailedItemState,
    /// Reason of the last failure.
    pub reason: Option<String>,
    pub job: Option<JobId>,
    pub failed_at: Option<Timestamp>,
    /// Time at which a job last released the item.
    pub released_at: Option<Timestamp>,
    /// Last stored copy of the item; the item may have changed in its source.
    pub item: Option<WorkItem>,
}

/// Last known state of an item that has failed or was released.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailedItemState {
    /// The queue offers the item.
    Offered,
    /// The failure is reported to the source; the report may still be in the outbox. Only a person can offer the item
    /// again.
    GivenUp,
    /// A person removed the item from its queue.
    Withdrawn,
}

impl ItemFailures {
    /// Returns true if the item failed too often, or if its failure is final. An item that a person removed from its
    /// queue is not given up.
    pub const fn is_given_up(&self, max_attempts: u32) -> bool {
        match self.state {
            FailedItemState::Offered => self.failures >= max_attempts,
            FailedItemState::GivenUp => true,
            FailedItemState::Withdrawn => false,
        }
    }
}

impl Store {
    /// Returns the failures of all items.
    pub async fn item_failures(&self) -> Result<Vec<ItemFailures>, StoreError> {
        self.read(|tx| {
            Box::pin(async move { tx.all(ALL_FAILURES, args![]).await?.iter().map(read).collect() })
        })
        .await
    }

    /// Resets the failures of an item, after a person acted or the work is done.
    pub async fn forget_failures(&self, queue: String, item: WorkItemId) -> Result<(), StoreError> {
        self.write(move |tx| Box::pin(async move { forget(tx, &queue, &item).await })).await
    }

    /// Moves the failures of an item to its new id, after a person renamed it. Failures under the new id are removed,
    /// because they belong to other work.
    pub async fn move_failures(
        &self,
        queue: String,
        from: WorkItemId,
        to: WorkItem,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                if from == to.id || get(tx, &queue, &from).await?.is_none() {
                    return Ok(());
                }
                forget(tx, &queue, &to.id).await?;
                let row = args![queue, from.to_string(), to.id.to_string(), jobs::to_json(&to)?];
                tx.execute(MOVE_FAILURES, row).await.map(drop)
            })
        })
        .await
    }

    /// Records a failure that a person reports. The item is given up, as after a job whose failure is reported to the
    /// source.
    pub async fn failed_by_hand(
        &self,
        queue: String,
        item: WorkItem,
        reason: String,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let row = args![queue, item.id.to_string(), reason, now, jobs::to_json(&item)?];
                tx.execute(FAILED_BY_HAND, row).await.map(drop)
            })
        })
        .await
    }

    /// Records that a person removed the item from its queue. Does nothing if the item was given up.
    pub async fn withdraw_failed(&self, queue: String, item: WorkItemId) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move { tx.execute(WITHDRAW, args![queue, item.to_string()]).await.map(drop) })
        })
        .await
    }
}

pub(super) async fn get(
    tx: &mut Tx<'_>,
    queue: &str,
    item: &WorkItemId,
) -> Result<Option<ItemFailures>, StoreError> {
    tx.one(FAILURES, args![queue, item.to_string()]).await?.as_ref().map(read).transpose()
}

/// Adds a failure and returns the number of failures.
pub(super) async fn add(
    tx: &mut Tx<'_>,
    queue: &str,
    item: &WorkItem,
    job: &Job,
    reason: &str,
    now: Timestamp,
) -> Result<u32, StoreError> {
    let content = jobs::to_json(item)?;
    let row = args![queue, item.id.to_string(), reason, job.id().as_str(), now, content];
    tx.one(COUNT_FAILURE, row).await?.map_or(Ok(1), |row| row.count("failures"))
}

/// Records that the failure is to be reported, so that the queue no longer offers the item.
pub(super) async fn give_up(tx: &mut Tx<'_>, queue: &str, item: &WorkItemId) -> Result<(), StoreError> {
    tx.execute(GIVE_UP, args![queue, item.to_string()]).await.map(drop)
}

/// Records that a job released the item, so that the queue offers it again.
pub(super) async fn release(
    tx: &mut Tx<'_>,
    queue: &str,
    item: &WorkItem,
    now: Timestamp,
) -> Result<(), StoreError> {
    let content = jobs::to_json(item)?;
    let row = args![queue, item.id.to_string(), now, content];
    tx.execute(RELEASE, row).await.map(drop)
}

/// Removes the failures of an item, and records an event if the item was given up.
pub(super) async fn forget(tx: &mut Tx<'_>, queue: &str, item: &WorkItemId) -> Result<(), StoreError> {
    if let Some(failures) = get(tx, queue, item).await?
        && failures.state == FailedItemState::GivenUp
        // Without a clock, the time of the last failure is the only known time.
        && let Some(at) = tx.call_time().map(|time| time.wall).or(failures.failed_at)
    {
        tx.record(NewEvent::of_fleet(Fact::WorkReopened { item: item.clone() }, at));
    }
    tx.execute(FORGET_FAILURES, args![queue, item.to_string()]).await.map(drop)
}

fn read(row: &Row) -> Result<ItemFailures, StoreError> {
    let state: String = row.get("state")?;
    Ok(ItemFailures {
        queue: row.get("queue")?,
        id: row.parse("item")?,
        failures: row.count("failures")?,
        state: match state.as_str() {
            "offered" => FailedItemState::Offered,
            "given_up" => FailedItemState::GivenUp,
            "withdrawn" => FailedItemState::Withdrawn,
            other => return Err(row.unreadable("state", other)),
        },
        reason: row.get("reason")?,
        job: row.parse_opt("job_id")?,
        failed_at: row.time_opt("failed_at")?,
        released_at: row.time_opt("released_at")?,
        item: row.json_opt("content")?,
    })
}
