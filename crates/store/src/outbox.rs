//! The outbox: results and releases that work sources have still to receive. An entry is kept until it is delivered or
//! dropped, and one node delivers it at a time.

use cowhand_core::actor::Actor;
use cowhand_core::event::Fact;
use cowhand_core::id::JobId;
use cowhand_core::job::{Closing, ErrorKind, Job, JobState, Outcome, combine_with_report};
use cowhand_core::work::{WorkItem, WorkItemId, WorkOutcome};
use jiff::{SignedDuration, Timestamp};

use super::database::db::{Row, Tx, args};
use super::database::dialect::statements;
use super::items::{self, HeldItem, ItemState, NewItemClaim, item_event, read};
use super::{Store, StoreError, failures, jobs, reports};

statements! {
    ADD_ENTRY = same "update items set state = 'closing', closing = $2, not_before = $3, tries = 0, \
        last_error = null, owed_since = $3, owed_by = $4 where holder = $1";
    STALE_CLAIMS = same "select holder from items where state = 'claiming' and until <= $1 limit 1";
    GIVE_UP_CLAIMS = locked "select * from items where state = 'claiming' and until <= $1 order by queue, item";
    CLAIMS_OF = locked "select * from items where state = 'claiming' and node = $1 order by queue, item";
    DUE_ENTRIES = same "select holder from items where state = 'closing' and not_before <= $1 limit 1";
    DUE_OR_NOT_FAILED = same "select holder from items where state = 'closing' and (not_before <= $1 or last_error is null) limit 1";
    NEXT_ENTRY = locked "select * from items where state = 'closing' and not_before <= $1 order by not_before, holder limit 1";
    LEASE_ENTRY = same "update items set tries = tries + 1, not_before = $2, node = $3 where holder = $1";
    // Changes only an entry that this node tried last and whose last try failed.
    TRY_NOW = same "update items set not_before = $3 where holder = $1 and node = $2 and state = 'closing' \
        and last_error is not null and not_before > $3";
    RESUME_ENTRIES = same "update items set not_before = $2 where state = 'closing' and node = $1";
    // `not_before` is the end of the lease of an entry, or the time of its next try. This statement moves it to an
    // earlier time.
    CAP_ENTRY_WAITS = same "update items set not_before = $2 where state = 'closing' and node = $1 and not_before > $2";
    // The clocks of other machines decide when a claim in an outside queue expires. So the earlier `until` only makes
    // the renewal of the claim due.
    CAP_CLAIMS = same "update items set until = $2 where state <> 'closing' and node = $1 and holder like 'job-%' and until > $2";
    POSTPONE = same "update items set not_before = $2, last_error = $3 where holder = $1 and state = 'closing'";
}

impl Store {
    /// Releases an item whose claim is given up.
    pub async fn give_up_item(
        &self,
        holder: String,
        reason: String,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.close_item(holder, Closing::undo(reason), now).await.map(drop)
    }

    /// Adds an outbox entry for an item. Returns false if the holder has no item.
    pub async fn close_item(
        &self,
        holder: String,
        closing: Closing,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let actor = tx.actor.clone();
                add_outbox_entry(tx, &holder, &closing, actor.as_ref(), now).await
            })
        })
        .await
    }

    /// Adds the result of an ended job to the outbox again, so that nobody works on the item again. The caller calls
    /// this method if the work source still shows the item as claimed by that job. Returns false and adds nothing in
    /// these cases: the job has not ended or is not in the store; the job worked on another item; the end of the job
    /// releases the item; the table `items` has a row for the item or for the job.
    pub async fn report_again(
        &self,
        claim: NewItemClaim,
        job: JobId,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let Some(job) = jobs::get(tx, &job).await? else { return Ok(false) };
                let is_same_item = job.work_item().is_some_and(|item| is_same_work(item, &claim.item));
                let JobState::Ended { outcome, .. } = job.state() else { return Ok(false) };
                let report = reports::of_attempt(tx, job.id(), job.attempts()).await?;
                let outcome = combine_with_report(outcome, report.as_ref());
                let failures = failure_count(tx, &claim.queue, &claim.item.id).await?;
                let rules = claim.source.rules();
                let closing = Closing::after(job.id(), &outcome, report.as_ref(), rules, failures);
                // An item that the end of the job releases can be claimed again without a report.
                if !is_same_item || matches!(closing, Closing::Release(_)) {
                    return Ok(false);
                }
                let is_inserted = items::insert(tx, &claim, job.id().as_str()).await?;
                Ok(is_inserted && add_outbox_entry(tx, job.id().as_str(), &closing, None, now).await?)
            })
        })
        .await
    }

    /// Takes up the items of a node that has just started: releases unfinished claims, and makes outbox entries due.
    /// The former process of the node has ended.
    pub async fn take_up_items(&self, node: String, now: Timestamp) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let claims = tx.all(CLAIMS_OF, args![node.as_str()]).await?;
                release_claims(tx, claims, now).await?;
                tx.execute(RESUME_ENTRIES, args![node, now]).await.map(drop)
            })
        })
        .await
    }

    /// Releases claims that were not finished in time. Writes nothing if there are no such claims.
    pub async fn give_up_stale_claims(&self, now: Timestamp) -> Result<(), StoreError> {
        let has_stale_claim = self
            .read(move |tx| Box::pin(async move { Ok(tx.one(STALE_CLAIMS, args![now]).await?.is_some()) }));
        if !has_stale_claim.await? {
            return Ok(());
        }
        self.write(move |tx| {
            Box::pin(async move {
                let claims = tx.all(GIVE_UP_CLAIMS, args![now]).await?;
                release_claims(tx, claims, now).await
            })
        })
        .await
    }

    /// Takes a due outbox entry; no other node gets it before `lease_until`.
    pub async fn take_outbox_entry(
        &self,
        node: String,
        lease_until: Timestamp,
        now: Timestamp,
    ) -> Result<Option<HeldItem>, StoreError> {
        let has_due_entry = self
            .read(move |tx| Box::pin(async move { Ok(tx.one(DUE_ENTRIES, args![now]).await?.is_some()) }));
        if !has_due_entry.await? {
            return Ok(None);
        }
        self.write(move |tx| {
            Box::pin(async move {
                let Some(row) = tx.one(NEXT_ENTRY, args![now]).await? else { return Ok(None) };
                let entry = read(&row)?;
                tx.execute(LEASE_ENTRY, args![entry.holder.as_str(), lease_until, node]).await?;
                Ok(Some(entry))
            })
        })
        .await
    }

    /// Makes an entry due now if this node tried it last and that try failed.
    pub async fn retry_outbox_entry(
        &self,
        holder: String,
        node: String,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move { tx.execute(TRY_NOW, args![holder, node, now]).await.map(drop) })
        })
        .await
    }

    /// Returns true if the outbox has an entry that is due, or an entry that has not failed yet.
    pub async fn has_due_outbox_entry(&self, now: Timestamp) -> Result<bool, StoreError> {
        self.read(move |tx| {
            Box::pin(async move { Ok(tx.one(DUE_OR_NOT_FAILED, args![now]).await?.is_some()) })
        })
        .await
    }

    /// Removes a delivered entry with its item.
    pub async fn outbox_entry_delivered(&self, entry: HeldItem, now: Timestamp) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let Some(current) = items::lock(tx, &entry.holder).await? else { return Ok(()) };
                // The result may have changed during the delivery. Then the new result has to be delivered.
                if current.closing() != entry.closing() {
                    return Ok(());
                }
                items::forget(tx, &entry.holder).await?;
                let item = entry.item.id.clone();
                let fact = match &entry.state {
                    ItemState::Closing { closing: Closing::Complete(result), .. } => {
                        Fact::WorkReported { item, outcome: result.outcome }
                    }
                    ItemState::Closing { closing: Closing::Release(options), .. } => {
                        Fact::WorkReleased { item, reason: options.reason.clone() }
                    }
                    ItemState::Claiming | ItemState::Held => Fact::WorkReleased { item, reason: None },
                };
                tx.record(item_event(&entry, fact, now));
                Ok(())
            })
        })
        .await
    }

    /// Removes an entry that cannot be delivered any more.
    pub async fn drop_item(
        &self,
        entry: HeldItem,
        message: String,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                if items::forget(tx, &entry.holder).await? {
                    let fact = Fact::WorkDropped { item: entry.item.id.clone(), message };
                    tx.record(item_event(&entry, fact, now));
                }
                Ok(())
            })
        })
        .await
    }

    /// Schedules another try. An event is recorded once for each new reason.
    pub async fn postpone(
        &self,
        entry: HeldItem,
        message: String,
        not_before: Timestamp,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        self.write(move |tx| {
            Box::pin(async move {
                let is_same_error = match &entry.state {
                    ItemState::Closing { last_error, .. } => last_error.as_deref() == Some(&message),
                    ItemState::Claiming | ItemState::Held => false,
                };
                let row = args![entry.holder.as_str(), not_before, message.as_str()];
                if tx.execute(POSTPONE, row).await? == 1 && !is_same_error {
                    let fact = Fact::WorkDelayed { item: entry.item.id.clone(), message };
                    tx.record(item_event(&entry, fact, now));
                }
                Ok(())
            })
        })
        .await
    }
}

/// Moves the times of this node's items to earlier times if they are too far in the future, because the node's clock
/// was set back.
pub(super) async fn clock_set_back(tx: &mut Tx<'_>, node: &str, now: Timestamp) -> Result<(), StoreError> {
    let latest = now.checked_add(OUTBOX_LEASE).unwrap_or(Timestamp::MAX);
    tx.execute(CAP_ENTRY_WAITS, args![node, latest]).await?;
    let renewed = now.checked_add(CLAIM_EXPIRY_AFTER_STEP).unwrap_or(Timestamp::MAX);
    tx.execute(CAP_CLAIMS, args![node, renewed]).await.map(drop)
}

/// Time that a node has for a delivery of an outbox entry before another node may try it.
pub const OUTBOX_LEASE: SignedDuration = SignedDuration::from_mins(2);
/// Time to the expiry of a claim after the clock was set back. It is so short that the next renewal includes the claim.
const CLAIM_EXPIRY_AFTER_STEP: SignedDuration = SignedDuration::from_mins(30);

/// Adds the result of a job to the outbox and updates the count of the item's failures, in the transaction that ends
/// the job. Does nothing if the job holds no item.
pub(super) async fn job_ended(
    tx: &mut Tx<'_>,
    job: &Job,
    outcome: &Outcome,
    now: Timestamp,
) -> Result<(), StoreError> {
    if job.work_item().is_none() {
        return Ok(());
    }
    // A job without a row in `items` does not hold its item.
    let Some(held) = items::lock(tx, job.id().as_str()).await? else { return Ok(()) };
    let report = reports::of_attempt(tx, job.id(), job.attempts()).await?;
    let outcome = combine_with_report(outcome, report.as_ref());
    let failures = match &outcome {
        // A failed start is not counted as a failure of the item.
        Outcome::Failed { error, .. } if error.kind == ErrorKind::StartFailed => {
            failures_so_far(tx, &held).await?
        }
        Outcome::Failed { error, .. } => {
            failures::add(tx, &held.queue, &held.item, job, &error.message, now).await?
        }
        Outcome::Completed { .. } => {
            failures::forget(tx, &held.queue, &held.item.id).await?;
            0
        }
        Outcome::Cancelled { .. } => failures_so_far(tx, &held).await?,
    };
    let closing = Closing::after(job.id(), &outcome, report.as_ref(), held.source.rules(), failures);
    match &closing {
        Closing::Release(_) => failures::release(tx, &held.queue, &held.item, now).await?,
        Closing::Complete(result) if result.outcome == WorkOutcome::Failure => {
            failures::give_up(tx, &held.queue, &held.item.id).await?;
            let (item, message) = (held.item.id.clone(), failure_message(&outcome));
            jobs::record(tx, job, Fact::WorkGivenUp { item, failures, message }, now);
        }
        Closing::Complete(_) => {}
    }
    add_outbox_entry(tx, job.id().as_str(), &closing, None, now).await.map(drop)
}

fn failure_message(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Failed { error, .. } => error.message.clone(),
        Outcome::Completed { .. } | Outcome::Cancelled { .. } => String::new(),
    }
}

async fn failures_so_far(tx: &mut Tx<'_>, held: &HeldItem) -> Result<u32, StoreError> {
    failure_count(tx, &held.queue, &held.item.id).await
}

async fn failure_count(tx: &mut Tx<'_>, queue: &str, item: &WorkItemId) -> Result<u32, StoreError> {
    let failures = failures::get(tx, queue, item).await?;
    Ok(failures.map_or(0, |failures| failures.failures))
}

/// Adds one outbox entry for each of these claims; the entry undoes the claim.
async fn release_claims(tx: &mut Tx<'_>, claims: Vec<Row>, now: Timestamp) -> Result<(), StoreError> {
    for row in claims {
        let holder: String = row.get("holder")?;
        add_outbox_entry(tx, &holder, &Closing::undo("the claim was not finished".to_owned()), None, now)
            .await?;
    }
    Ok(())
}

/// Returns true if the current item is the stored item that a job worked on. A person may have renamed the item, which
/// changes its id; items with the same text then count as the same.
fn is_same_work(stored: &WorkItem, current: &WorkItem) -> bool {
    let [stored_text, current_text] = [stored, current].map(|item| item.description.trim());
    stored.id == current.id
        || (stored_text == current_text && (stored.title == current.title || !current_text.is_empty()))
}

/// Adds an outbox entry and returns whether the holder has an item.
async fn add_outbox_entry(
    tx: &mut Tx<'_>,
    holder: &str,
    closing: &Closing,
    actor: Option<&Actor>,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let row = args![holder, jobs::to_json(closing)?, now, actor.map(jobs::to_json).transpose()?];
    Ok(tx.execute(ADD_ENTRY, row).await? == 1)
}
