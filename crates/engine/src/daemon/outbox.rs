//! The outbox: delivers results and releases to work sources, and renews claims.
//!
//! The whole state is in the store, so the loop can be stopped and started again at any time. A source may receive the
//! same delivery twice; sources have to accept that.

use std::sync::Arc;
use std::time::Duration;

use cowhand_core::backoff::Backoff;
use cowhand_core::job::{CancelReason, Closing};
use cowhand_core::work::{ClaimResult, ReleaseResult, WorkItemId};
use futures_util::future::try_join_all;
use jiff::{SignedDuration, Timestamp};
use tracing::{info, warn};

use super::firing::CLAIM_VALID_FOR;
use crate::context::Engine;
use crate::context::StopRequest;
use crate::queues::PERSON_CLAIM_VALID_FOR;
use cowhand_store::audit;
use cowhand_store::{HeldItem, ItemState, OUTBOX_LEASE, StoreError};
use cowhand_system::fault;
use cowhand_work::{
    Claimant, QueueState, WorkSource, WorkSourceError, can_claim_another, catch_panic, with_timeout,
};

/// Time after which a source that does not answer counts as failed. It is shorter than [`OUTBOX_LEASE`].
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(100);
const DELIVERY_BACKOFF: Backoff =
    Backoff::doubling(SignedDuration::from_secs(2), SignedDuration::from_mins(10));
/// Longest time between two searches for due deliveries and renewals while an item is held.
const POLL_EVERY: SignedDuration = SignedDuration::from_mins(1);
/// Largest number of deliveries at the same time.
const PARALLEL_DELIVERIES: usize = 8;
/// Time for which a result is kept if its item cannot be found. The item may come back with its folder. The time is
/// limited, because a person may have deleted the item.
const MISSING_ITEM_KEPT_FOR: SignedDuration = SignedDuration::from_hours(7 * 24);
const STORE_RETRY_AFTER: Duration = Duration::from_secs(5);

pub(super) async fn deliver_outbox(engine: Arc<Engine>) {
    let outbox = Outbox { engine };
    loop {
        match outbox.deliver_due().await {
            Ok(Some(next)) => outbox.wait(next).await,
            Ok(None) => outbox.engine.outbox.notified().await,
            Err(error) => {
                warn!("cannot read the outbox of work sources: {error}");
                tokio::time::sleep(STORE_RETRY_AFTER).await;
            }
        }
    }
}

struct Outbox {
    engine: Arc<Engine>,
}

impl Outbox {
    /// Delivers everything that is due, and renews claims. Returns the time of the next call, if there are items left.
    async fn deliver_due(&self) -> Result<Option<Timestamp>, StoreError> {
        let store = &self.engine.store;
        store.give_up_stale_claims(self.now()).await?;
        for holder in self.engine.undelivered.take() {
            store.retry_outbox_entry(holder, self.engine.home.node.clone(), self.now()).await?;
        }
        let node = || self.engine.home.node.clone();
        loop {
            let mut due = Vec::new();
            while due.len() < PARALLEL_DELIVERIES
                && let Some(entry) =
                    store.take_outbox_entry(node(), self.in_future(OUTBOX_LEASE), self.now()).await?
            {
                due.push(entry);
            }
            if due.is_empty() {
                break;
            }
            // In parallel, so that a source that does not answer does not delay the other deliveries of this group.
            try_join_all(due.into_iter().map(|entry| self.deliver(entry))).await?;
        }
        for held in store.items_to_renew(self.in_future(CLAIM_VALID_FOR / 2)).await? {
            self.renew(held).await?;
        }
        let next = store.next_item_time().await?;
        Ok(next.map(|next| next.clamp(self.now(), self.in_future(POLL_EVERY))))
    }

    async fn wait(&self, until: Timestamp) {
        tokio::select! {
            () = self.engine.clock.wait_until(Some(until)) => {}
            () = self.engine.outbox.notified() => {}
        }
    }

    async fn deliver(&self, entry: HeldItem) -> Result<(), StoreError> {
        let ItemState::Closing { tries, by: actor, .. } = &entry.state else { return Ok(()) };
        let (item, store) = (entry.item.id.clone(), &self.engine.store);
        let error = match catch_panic(with_timeout(DELIVERY_TIMEOUT, self.send(&entry))).await {
            Ok(()) => {
                fault::point("told");
                info!(%item, holder = entry.holder, "the report was delivered to the work source");
                let (actor, delivered) = (actor.clone(), store.outbox_entry_delivered(entry, self.now()));
                return match actor {
                    Some(actor) => audit::by(actor, delivered).await,
                    None => delivered.await,
                };
            }
            Err(error) => error,
        };
        let kept_until = Self::kept_until(&entry);
        if error.is_claim_lost() || (error.is_missing() && kept_until <= self.now()) {
            warn!(%item, "the report to the work source is dropped: {error}");
            // Failures with the old text of the item do not count for the new text.
            if matches!(error, WorkSourceError::Replaced(_)) {
                store.forget_failures(entry.queue.clone(), item).await?;
            }
            return store.drop_item(entry, error.to_string(), self.now()).await;
        }
        let pause = DELIVERY_BACKOFF.after(tries.saturating_add(1));
        let retry_after =
            error.retry_after().and_then(|retry_after| SignedDuration::try_from(retry_after).ok());
        let retry_at = self.in_future(retry_after.unwrap_or(pause));
        warn!(%item, "the report to the work source failed; next try at {retry_at}: {error}");
        let message = if error.is_missing() {
            format!("{error}; cowhand looks for it until {kept_until:.0}")
        } else {
            error.to_string()
        };
        store.postpone(entry, message, retry_at, self.now()).await
    }

    /// Returns the time until which the outbox looks for a missing item. An item that has to be released becomes
    /// available anyway when its claim expires, so the outbox looks for it only until then.
    fn kept_until(entry: &HeldItem) -> Timestamp {
        let ItemState::Closing { closing: Closing::Complete(_), since, .. } = &entry.state else {
            return entry.until;
        };
        since.unwrap_or(entry.until).checked_add(MISSING_ITEM_KEPT_FOR).unwrap_or(Timestamp::MAX)
    }

    async fn send(&self, entry: &HeldItem) -> Result<(), WorkSourceError> {
        let ItemState::Closing { closing, .. } = &entry.state else { return Ok(()) };
        let source = self.engine.loaded().sources.source(&entry.agent, &entry.source)?;
        let claimant = self.claimant(entry, entry.until).await?;
        match closing {
            Closing::Complete(result) => {
                let id = self.current_id(source.as_ref(), entry, &claimant).await?;
                source.complete_work(&id, result, &claimant).await
            }
            Closing::Release(options) => {
                let id = if options.undoes_claim {
                    entry.item.id.clone()
                } else {
                    self.current_id(source.as_ref(), entry, &claimant).await?
                };
                let ReleaseResult { success, message } = source.release_work(&id, options, &claimant).await?;
                let why = message.unwrap_or_else(|| "the work source gave no reason".to_owned());
                if success { Ok(()) } else { Err(WorkSourceError::NotReleased { item: id, why }) }
            }
        }
    }

    /// Returns the current id of the item, which a person may have renamed meanwhile. The failures of a renamed item
    /// are moved to its new id, before the item is offered again.
    async fn current_id(
        &self,
        source: &dyn WorkSource,
        held: &HeldItem,
        claimant: &Claimant,
    ) -> Result<WorkItemId, WorkSourceError> {
        let error = match check_same_item(source, held).await {
            Ok(()) => return Ok(held.item.id.clone()),
            Err(error) => error,
        };
        if !error.is_missing() && !matches!(error, WorkSourceError::Replaced(_)) {
            return Err(error);
        }
        let id = source.moved(&held.item.id, claimant).await?.ok_or(error)?;
        if let Some(item) = source.get_work(&id).await? {
            let (store, from) = (&self.engine.store, held.item.id.clone());
            let moved = store.move_failures(held.queue.clone(), from, item).await;
            moved.map_err(|error| WorkSourceError::Other(error.into()))?;
        }
        Ok(id)
    }

    async fn renew(&self, held: HeldItem) -> Result<(), StoreError> {
        let until =
            self.in_future(if held.job().is_some() { CLAIM_VALID_FOR } else { PERSON_CLAIM_VALID_FOR });
        let renewed = async {
            let source = self.engine.loaded().sources.source(&held.agent, &held.source)?;
            let (id, claimant) = (&held.item.id, self.claimant(&held, until).await?);
            match source.renew_claim(id, &claimant).await {
                Err(lost @ WorkSourceError::NotHeld { .. }) => {
                    check_same_item(source.as_ref(), &held).await?;
                    check_reclaim(source.claim_work(id, &claimant).await?, lost)
                }
                Err(missing) if missing.is_missing() => match source.moved(id, &claimant).await? {
                    Some(id) => source.renew_claim(&id, &claimant).await,
                    None => Err(missing),
                },
                renewed => renewed,
            }
        };
        match catch_panic(with_timeout(DELIVERY_TIMEOUT, renewed)).await {
            Ok(()) => {
                self.engine.store.renewed(held.holder, until).await?;
                // A job that waited for the renewal may start.
                self.engine.replan(held.agent.clone());
                Ok(())
            }
            Err(error) if error.is_claim_lost() || (error.is_missing() && held.until <= self.now()) => {
                self.cancel_lost(&held, &error).await
            }
            Err(error) => {
                warn!(item = %held.item.id, "its claim could not be renewed: {error}");
                // The next call of `deliver_due` tries the renewal again.
                Ok(())
            }
        }
    }

    /// Cancels the job of an item with a lost claim. If the job continued, the same work could be done twice. The row
    /// of an item that a person holds is removed.
    async fn cancel_lost(&self, held: &HeldItem, error: &WorkSourceError) -> Result<(), StoreError> {
        warn!(item = %held.item.id, holder = held.holder, "its claim is lost: {error}");
        let Some(job) = held.job() else {
            return self.engine.store.drop_item(held.clone(), error.to_string(), self.now()).await;
        };
        let why = Some(CancelReason::ClaimLost);
        self.engine.store.cancel_because(job.clone(), why, self.now()).await?;
        self.engine.request_stop(&job, StopRequest::Cancel);
        self.engine.nudge.notify_one();
        Ok(())
    }

    async fn claimant(&self, held: &HeldItem, until: Timestamp) -> Result<Claimant, WorkSourceError> {
        let fleet =
            self.engine.store.fleet_id().await.map_err(|error| WorkSourceError::Other(error.into()))?;
        Ok(Claimant { fleet, holder: held.holder.clone(), until })
    }

    fn now(&self) -> Timestamp {
        self.engine.clock.now()
    }

    fn in_future(&self, time: SignedDuration) -> Timestamp {
        self.now().checked_add(time).unwrap_or(Timestamp::MAX)
    }
}

/// Returns an error if the item is missing in its source, or if a person has put new work under the same id. The result
/// of the job does not apply to that new work. An item counts as new work if it shows no claim of this holder, has
/// another text and is available.
async fn check_same_item(source: &dyn WorkSource, held: &HeldItem) -> Result<(), WorkSourceError> {
    let id = &held.item.id;
    let is_claimed =
        |item| source.stated_claimant(item).is_some_and(|claimant| claimant.holder == held.holder);
    // If the items of a source do not show their claim, the source itself has to check whether the work is new.
    if !was_missing(held) && !is_claimed(&held.item) {
        return Ok(());
    }
    let current = source.get_work(id).await?.ok_or_else(|| WorkSourceError::NotFound(id.clone()))?;
    let is_same_text =
        current.title == held.item.title && current.description.trim() == held.item.description.trim();
    if is_claimed(&current) || is_same_text {
        return Ok(());
    }
    match source.queue_state(id).await? {
        QueueState::Available => Err(WorkSourceError::Replaced(id.clone())),
        QueueState::Claimed | QueueState::Withdrawn | QueueState::Done => Ok(()),
    }
}

/// Returns whether the item could not be found at the last try to deliver its result.
fn was_missing(held: &HeldItem) -> bool {
    let missing = WorkSourceError::NotFound(held.item.id.clone()).to_string();
    matches!(&held.state, ItemState::Closing { last_error: Some(last), .. } if last.starts_with(&missing))
}

/// Interprets the result of claiming an item again after its claim expired. The claim is lost if the item is claimed by
/// others, missing or not available; other refusals are errors of the source.
fn check_reclaim(claimed: ClaimResult, lost: WorkSourceError) -> Result<(), WorkSourceError> {
    match claimed {
        ClaimResult::Claimed(_) => Ok(()),
        ClaimResult::Refused { reason, .. } if can_claim_another(reason) => Err(lost),
        ClaimResult::Refused { reason, message } => {
            let why = message.unwrap_or_else(|| format!("{reason:?}"));
            Err(WorkSourceError::Other(anyhow::anyhow!(why)))
        }
    }
}
