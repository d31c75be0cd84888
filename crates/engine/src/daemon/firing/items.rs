//! Takes items from a work source, in three steps. First, each item gets a row in the store with the id of its future
//! job. Then the items are claimed at the source. Then the jobs are made, with these ids.

use std::sync::Arc;

use cowhand_core::plan::free_places;
use cowhand_core::schedule::SkipReason;
use cowhand_core::trust::TrustVerdict;
use cowhand_core::work::{ClaimResult, FetchOptions, WorkItem, WorkItemId};
use jiff::Timestamp;
use tracing::{debug, info, warn};

use super::prepare::{CLAIM_VALID_FOR, PreparedFiring, Preparer};
use cowhand_store::{FailedItemState, FiringRef, Prepared, TakeResult};
use cowhand_system::fault;
use cowhand_work::{
    Claimant, QueueState, SourceOwner, WorkSource, WorkSourceError, can_claim_another, catch_panic,
};

/// Largest number of items that are claimed together. The number is small, because a claim that is not finished in time
/// is undone.
const MAX_CLAIMS_TOGETHER: usize = 8;

/// An item that has a row in the store, made by this firing. The row names the future job of the item as the holder.
struct Picked {
    holder: cowhand_core::id::JobId,
    item: WorkItem,
    /// Reason why the item's text is not trusted; `None` if it is trusted.
    confined: Option<String>,
}

/// An item that the trust rules allow.
struct Judged {
    item: WorkItem,
    /// Reason why the item's text is not trusted; `None` if it is trusted.
    confined: Option<String>,
}

/// The result of a search for work so far.
#[derive(Default)]
struct Found {
    /// Number of jobs that were made.
    made: usize,
    /// True if there was no place for a further item.
    full: bool,
    /// Items that the trust rules refuse, each with the reason.
    refused: Vec<String>,
    /// Error that prevented the decision whether an item's author is trusted.
    trust_error: Option<anyhow::Error>,
}

impl Preparer<'_> {
    /// Takes at most as many items as [`Self::places`] returns, and makes one job for each item.
    pub(super) async fn items(
        &self,
        firing: &PreparedFiring<'_>,
    ) -> anyhow::Result<(Prepared, Option<String>)> {
        let owner = SourceOwner::schedule(firing.agent, firing.schedule);
        let sources = Arc::clone(&self.engine.loaded().sources);
        let (Some(config), Some(source)) = (owner.config(), sources.source_of(owner)?) else {
            return Ok((Prepared::Skip(SkipReason::NoWork), None));
        };
        // If an earlier try of this firing made jobs, the firing counts as run, even if this try finds no item.
        let earlier = self.engine.store.firing(self.schedule, self.key.clone()).await?;
        let made = usize::from(earlier.is_some_and(|firing| firing.job.is_some()));
        // This check only saves a request to the source. The places are counted again when items are taken.
        if self.places(firing, made).await? == 0 {
            return Found { made, full: true, ..Found::default() }.outcome(true);
        }
        let is_search_due = self.engine.is_expired_search_due(config, self.now());
        if is_search_due {
            self.release_expired(firing, source.as_ref()).await;
        }
        let candidates = sources.candidates(owner, &FetchOptions::default()).await?;
        let queue = config.queue(&sources.context().base);
        if let Err(error) = self.engine.retry_undelivered(&queue, source.as_ref()).await {
            warn!(agent = %firing.agent.name, "cannot read the items with undelivered results: {error}");
        }
        if let Some(quota) = source.quota() {
            let remaining = quota.rate_limit.map(|info| info.remaining);
            let (requests, unchanged, waits) = (quota.requests, quota.conditional_hits, quota.waits);
            debug!(agent = %firing.agent.name, requests, unchanged, waits, left = remaining, "asked for work");
        }
        if !self.key.is_fill()
            && let Err(error) = self.review_failed(&queue, source.as_ref(), &candidates, is_search_due).await
        {
            warn!(agent = %firing.agent.name, "cannot check the items that failed before: {error:#}");
        }
        let mut found = Found { made, ..Found::default() };
        let mut candidates = candidates.into_iter();
        let mut next = None;
        while !found.full {
            let picked = self.pick(firing, source.as_ref(), (&mut next, &mut candidates), &mut found).await?;
            if picked.is_empty() {
                break;
            }
            let picked_count = picked.len();
            let made = self.claim(firing, source.as_ref(), picked).await?;
            found.made += made;
            // An item that somebody else claimed first leaves its place to the next item.
            found.full &= made == picked_count;
        }
        let more = found.full && (next.is_some() || candidates.next().is_some());
        found.outcome(more)
    }

    /// Returns how many items may be taken now, by the same rule as the planner. A firing from outside, or by a person,
    /// always gets at least one item, whose job may have to wait for a place.
    async fn places(&self, firing: &PreparedFiring<'_>, made: usize) -> anyhow::Result<usize> {
        let snapshot = self.engine.store.snapshot().await?;
        let free = free_places(self.now(), firing.agent, firing.schedule, &snapshot);
        Ok(if self.key.is_by_clock() || made > 0 { free } else { free.max(1) })
    }

    /// Takes the next items that the trust rules allow and that nobody in this fleet holds, as many as there are free
    /// places now, and at most [`MAX_CLAIMS_TOGETHER`].
    async fn pick(
        &self,
        firing: &PreparedFiring<'_>,
        source: &dyn WorkSource,
        (next, candidates): (&mut Option<Judged>, &mut std::vec::IntoIter<WorkItem>),
        found: &mut Found,
    ) -> anyhow::Result<Vec<Picked>> {
        let mut picked = Vec::new();
        while picked.len() < MAX_CLAIMS_TOGETHER {
            // The author is judged without the lock, so that other schedules do not wait.
            let judged = match next.take() {
                Some(judged) => judged,
                None => match self.judge(firing, candidates, found).await {
                    Some(judged) => judged,
                    None => break,
                },
            };
            let _lock = self.engine.lock_places(&firing.agent.name).await;
            if self.places(firing, found.made + picked.len()).await? == 0 {
                (found.full, *next) = (true, Some(judged));
                break;
            }
            if let Some(holder) = self.take(firing, source, &judged.item).await? {
                fault::point("item_taken");
                picked.push(Picked { holder, item: judged.item, confined: judged.confined });
            }
        }
        Ok(picked)
    }

    /// Returns the next item whose author is trusted, or whose job may run in the strict sandbox.
    async fn judge(
        &self,
        firing: &PreparedFiring<'_>,
        candidates: &mut std::vec::IntoIter<WorkItem>,
        found: &mut Found,
    ) -> Option<Judged> {
        for item in candidates {
            let confined = match self.judge_item(firing, &item).await {
                Ok(TrustVerdict::Refused(why)) => {
                    debug!(item = %item.id, "not taken: {why}");
                    found.refused.push(format!("{}: {why}", item.id));
                    continue;
                }
                // An error about this author does not delay the items of other authors.
                Err(error) => {
                    warn!(item = %item.id, "not taken now: {error:#}");
                    found.trust_error = Some(error);
                    continue;
                }
                Ok(TrustVerdict::Confined(why)) => Some(why),
                Ok(TrustVerdict::Trusted) => None,
            };
            return Some(Judged { item, confined });
        }
        None
    }

    /// Makes a row for the item, and returns the id of its future job; `None` if the item may not be taken.
    async fn take(
        &self,
        firing: &PreparedFiring<'_>,
        source: &dyn WorkSource,
        item: &WorkItem,
    ) -> anyhow::Result<Option<cowhand_core::id::JobId>> {
        let (store, id) = (&self.engine.store, &item.id);
        if self.report_again(firing, item, source.stated_claimant(item)).await? {
            return Ok(None);
        }
        let Some(mut claim) = self.item_claim(firing, item.clone())? else { return Ok(None) };
        // An item that a job has just released waits for the next regular poll; otherwise it would be tried without a
        // pause.
        if self.key.is_fill() {
            let polled_at = store.schedule(self.schedule).await?.and_then(|record| record.polled_at);
            let polled_at = polled_at.map(|at| at.wall);
            claim.unless.released_since = Some(polled_at.unwrap_or(Timestamp::MIN));
        }
        let mut taken = store.take_item(claim.clone(), None, self.now()).await?;
        if taken == TakeResult::OfferedAgain && source.queue_state(id).await? == QueueState::Available {
            info!(item = %id, "a person has released it, so the count of its failures starts at zero");
            claim.unless.given_up = false;
            taken = store.take_item(claim, None, self.now()).await?;
        }
        match taken {
            TakeResult::Ours(holder) => return Ok(Some(holder)),
            TakeResult::Held => {}
            TakeResult::TooOften { failures } => {
                debug!(item = %id, failures, "not taken: it failed too often and is left for a person");
            }
            TakeResult::OfferedAgain => {
                debug!(item = %id, "not taken: it is left for a person, who has not released it");
            }
            TakeResult::Released => {
                debug!(item = %id, "not taken before the next poll: a job has just released it");
            }
        }
        Ok(None)
    }

    /// Claims the picked items at the source, makes their jobs, and returns the number of jobs. An error with one item
    /// is returned only after all items are handled.
    async fn claim(
        &self,
        firing: &PreparedFiring<'_>,
        source: &dyn WorkSource,
        picked: Vec<Picked>,
    ) -> anyhow::Result<usize> {
        let (fleet, until) = (self.engine.store.fleet_id().await?, self.now().checked_add(CLAIM_VALID_FOR)?);
        let claimant = |picked: &Picked| {
            let claimant = Claimant { fleet: fleet.clone(), holder: picked.holder.to_string(), until };
            (picked.item.id.clone(), claimant)
        };
        let claims: Vec<(WorkItemId, Claimant)> = picked.iter().map(claimant).collect();
        let results = catch_panic(async { Ok(source.claim_all(&claims).await) }).await;
        let (mut results, failure) = match results {
            Ok(results) => (results.into_iter(), None),
            Err(error) => (Vec::new().into_iter(), Some(error.to_string())),
        };
        let (mut made, mut first_error) = (0, None);
        for picked in picked {
            let unanswered = || {
                let why = failure.clone().unwrap_or_else(|| "the work source did not answer".to_owned());
                Err(WorkSourceError::Other(anyhow::anyhow!(why)))
            };
            match self.handle_claim(firing, picked, results.next().unwrap_or_else(unanswered), until).await {
                Ok(is_ours) => made += usize::from(is_ours),
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        first_error.map_or(Ok(made), Err)
    }

    /// Handles the result of one claim; returns whether a job was made.
    async fn handle_claim(
        &self,
        firing: &PreparedFiring<'_>,
        picked: Picked,
        claimed: Result<ClaimResult, WorkSourceError>,
        until: Timestamp,
    ) -> anyhow::Result<bool> {
        let (engine, Picked { holder, item, confined }) = (self.engine, picked);
        match claimed {
            Ok(ClaimResult::Claimed(item)) => {
                fault::point("item_claimed");
                let new = self.job(firing, Some(&item), confined);
                let of = FiringRef { schedule: self.schedule, key: self.key.clone() };
                let job = engine.store.hold_item(holder, new, of, until, self.now()).await?;
                engine.nudge.notify_one();
                engine.outbox.notify_one();
                Ok(job.is_some())
            }
            Ok(ClaimResult::Refused { reason, message }) => {
                engine.store.leave_item(holder.to_string()).await?;
                if can_claim_another(reason) {
                    info!(item = %item.id, ?reason, "the work source refused the claim");
                    return Ok(false);
                }
                anyhow::bail!(
                    "{} cannot be claimed: {}",
                    item.id,
                    message.unwrap_or_else(|| format!("{reason:?}"))
                )
            }
            Err(error) => {
                let reason = format!("the claim did not succeed: {error}");
                engine.store.give_up_item(holder.to_string(), reason, self.now()).await?;
                engine.outbox.notify_one();
                Err(error.into())
            }
        }
    }

    /// Checks items that failed before and are not offered now. If a person withdrew an item, the count of its failures
    /// starts again when it is put back. The failures of an item that is completed or no longer exists are deleted.
    /// Items that were given up or withdrawn are checked only when a search for expired claims is due.
    async fn review_failed(
        &self,
        queue: &str,
        source: &dyn WorkSource,
        offered: &[WorkItem],
        is_search_due: bool,
    ) -> anyhow::Result<()> {
        let store = &self.engine.store;
        let mut failed = store.item_failures().await?;
        failed.retain(|failed| failed.queue == queue && !offered.iter().any(|item| item.id == failed.id));
        if failed.is_empty() {
            return Ok(());
        }
        let held_items = store.items().await?;
        let is_held =
            |id: &WorkItemId| held_items.iter().any(|held| held.queue == queue && held.item.id == *id);
        for failed in failed.into_iter().filter(|failed| !is_held(&failed.id)) {
            if failed.state != FailedItemState::Offered && !is_search_due {
                continue;
            }
            match source.queue_state(&failed.id).await? {
                QueueState::Done => store.forget_failures(failed.queue, failed.id).await?,
                QueueState::Withdrawn => store.withdraw_failed(failed.queue, failed.id).await?,
                QueueState::Available | QueueState::Claimed => {}
            }
        }
        Ok(())
    }
}

impl Found {
    fn outcome(self, more: bool) -> anyhow::Result<(Prepared, Option<String>)> {
        let Self { made, full, refused, trust_error } = self;
        if let Some(error) = trust_error.filter(|_| made == 0) {
            return Err(error);
        }
        let prepared = match (made, refused.is_empty()) {
            (0, _) if full => Prepared::Skip(SkipReason::AtCapacity),
            (0, true) => Prepared::Skip(SkipReason::NoWork),
            (0, false) => Prepared::Skip(SkipReason::Filtered),
            _ => Prepared::Jobs { more },
        };
        Ok((prepared, (!refused.is_empty()).then(|| format!("not taken: {}", refused.join("; ")))))
    }
}
