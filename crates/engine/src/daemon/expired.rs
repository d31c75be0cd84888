//! Items that a fleet has claimed which is gone for good. Whoever polls their queue puts them back.
//!
//! The dead one's claim is taken over as any claim is, and given back with a word. So of many fleets one does it, and
//! a crash on the way leaves a row that says what is still to be done.

use cowhand_core::id::JobId;
use cowhand_core::job::Closing;
use cowhand_core::work::{ClaimResult, WorkItem};
use tracing::{info, warn};

use super::prepare::{CLAIMING, Errand, Order};
use cowhand_store::Taken;
use cowhand_system::fault;
use cowhand_work::{Claimant, Claimer, ExpiredClaim, WorkSource};

impl Errand<'_> {
    /// What fails here is found again at the next look, and is no reason not to work.
    pub(super) async fn put_back_expired(&self, order: &Order<'_>, source: &dyn WorkSource) {
        if let Err(error) = self.look_for_expired(order, source).await {
            warn!(agent = %order.agent.name, "cannot look for claims that ran out: {error:#}");
        }
    }

    async fn look_for_expired(&self, order: &Order<'_>, source: &dyn WorkSource) -> anyhow::Result<()> {
        for lapsed in source.expired_claims().await? {
            self.put_back(order, source, lapsed).await?;
        }
        Ok(())
    }

    async fn put_back(
        &self,
        order: &Order<'_>,
        source: &dyn WorkSource,
        lapsed: ExpiredClaim,
    ) -> anyhow::Result<()> {
        let (engine, now, ExpiredClaim { item, left_by, claimer }) = (self.engine, self.now(), lapsed);
        let id = item.id.clone();
        if self.tells_again(order, &item, claimer).await? {
            return Ok(());
        }
        let Some(mut taking) = self.taking(order, item)? else { return Ok(()) };
        // Whoever left it has got it from its queue, so a person had put it back.
        taking.unless.given_up = false;
        // One that has a row is our own: we were away for too long, and its job may still be at it.
        let Taken::Ours(holder) = engine.store.take_item(taking, None, now).await? else { return Ok(()) };
        let holder = holder.to_string();
        let until = now.checked_add(CLAIMING)?;
        let by = Claimant { fleet: engine.store.fleet_id().await?, holder: holder.clone(), until };
        let closing = match source.claim_work(&id, &by).await {
            Ok(ClaimResult::Refused { .. }) => return Ok(engine.store.leave_item(holder).await?),
            Ok(ClaimResult::Claimed(_)) => {
                info!(item = %id, "put back: it was left by {left_by}");
                Closing::release(format!("It was left by {left_by}. Nothing has been heard of it since."))
            }
            Err(error) => {
                warn!(item = %id, "a claim that ran out cannot be taken over: {error}");
                Closing::undo(format!("the claim did not succeed: {error}"))
            }
        };
        fault::place("lapsed_taken_over");
        engine.store.close_item(holder, closing, now).await?;
        engine.owed.notify_one();
        Ok(())
    }

    /// Has the source told how a job of ours ended, if the item still stands as claimed by that job: its work is not done a
    /// second time. False if the job has no result that stands.
    pub(super) async fn tells_again(
        &self,
        order: &Order<'_>,
        item: &WorkItem,
        claimer: Option<Claimer>,
    ) -> anyhow::Result<bool> {
        let (engine, Some(claimer)) = (self.engine, claimer) else { return Ok(false) };
        let Ok(job) = claimer.holder.parse::<JobId>() else { return Ok(false) };
        if claimer.fleet != engine.store.fleet_id().await? {
            return Ok(false);
        }
        // A person renamed it while its result waits to be told.
        if engine
            .store
            .items()
            .await?
            .iter()
            .any(|held| held.holder == claimer.holder && held.item.id != item.id)
        {
            engine.noticed.see(claimer.holder, self.now());
            engine.owed.notify_one();
            return Ok(true);
        }
        let Some(taking) = self.taking(order, item.clone())? else { return Ok(false) };
        let is_owed = engine.store.report_again(taking, job.clone(), self.now()).await?;
        if is_owed {
            info!(item = %item.id, %job, "still claimed by a job that has ended; its source is told the result");
            engine.owed.notify_one();
        }
        Ok(is_owed)
    }
}
