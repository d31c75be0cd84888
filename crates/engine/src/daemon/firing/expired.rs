//! Releases work items whose claim has expired, because the fleet that claimed them no longer runs. Every fleet that
//! polls the same queue does this.
//!
//! The item is first claimed for this fleet, like any other item, and then released with a reason. Only one fleet can
//! claim it, so only one fleet releases it. After a crash between the two steps, the row of the item in the store shows
//! that the item has to be released.

use cowhand_core::id::JobId;
use cowhand_core::job::Closing;
use cowhand_core::work::{ClaimResult, WorkItem};
use tracing::{info, warn};

use super::prepare::{PreparedFiring, Preparer, UNFINISHED_CLAIM_TIMEOUT};
use cowhand_store::TakeResult;
use cowhand_system::fault;
use cowhand_work::{Claimant, ExpiredClaim, StatedClaimant, WorkSource};

impl Preparer<'_> {
    /// Releases items with expired claims. An error is only logged, because the next search finds the items again.
    pub(super) async fn release_expired(&self, firing: &PreparedFiring<'_>, source: &dyn WorkSource) {
        if let Err(error) = self.try_release_expired(firing, source).await {
            warn!(agent = %firing.agent.name, "cannot read the expired claims: {error:#}");
        }
    }

    async fn try_release_expired(
        &self,
        firing: &PreparedFiring<'_>,
        source: &dyn WorkSource,
    ) -> anyhow::Result<()> {
        for claim in source.expired_claims().await? {
            self.release_expired_claim(firing, source, claim).await?;
        }
        Ok(())
    }

    async fn release_expired_claim(
        &self,
        firing: &PreparedFiring<'_>,
        source: &dyn WorkSource,
        expired: ExpiredClaim,
    ) -> anyhow::Result<()> {
        let (engine, now, ExpiredClaim { item, left_by, claimant }) = (self.engine, self.now(), expired);
        let id = item.id.clone();
        if self.report_again(firing, &item, claimant).await? {
            return Ok(());
        }
        let Some(mut claim) = self.item_claim(firing, item)? else { return Ok(()) };
        // If this fleet has given up the item, the later claim of another fleet shows that a person has offered it
        // again.
        claim.unless.given_up = false;
        // If the item already has a row, the expired claim is a claim of this fleet: no daemon ran when the claim had
        // to be renewed. The job may still run, so the item is not released.
        let TakeResult::Ours(holder) = engine.store.take_item(claim, None, now).await? else { return Ok(()) };
        let holder = holder.to_string();
        let until = now.checked_add(UNFINISHED_CLAIM_TIMEOUT)?;
        let claimant = Claimant { fleet: engine.store.fleet_id().await?, holder: holder.clone(), until };
        let closing = match source.claim_work(&id, &claimant).await {
            Ok(ClaimResult::Refused { .. }) => return Ok(engine.store.leave_item(holder).await?),
            Ok(ClaimResult::Claimed(_)) => {
                info!(item = %id, "released: the claim of {left_by} has expired");
                Closing::release(format!("The claim of {left_by} has expired without a report."))
            }
            Err(error) => {
                warn!(item = %id, "cannot take over an expired claim: {error}");
                Closing::undo(format!("the claim did not succeed: {error}"))
            }
        };
        fault::point("expired_taken_over");
        engine.store.close_item(holder, closing, now).await?;
        engine.outbox.notify_one();
        Ok(())
    }

    /// Reports the result of an ended job of this fleet again, if the work source still shows the item as claimed by
    /// that job. So the work is not done a second time. Returns false if nothing is reported.
    pub(super) async fn report_again(
        &self,
        firing: &PreparedFiring<'_>,
        item: &WorkItem,
        claimant: Option<StatedClaimant>,
    ) -> anyhow::Result<bool> {
        let (engine, Some(claimant)) = (self.engine, claimant) else { return Ok(false) };
        let Ok(job) = claimant.holder.parse::<JobId>() else { return Ok(false) };
        if claimant.fleet != engine.store.fleet_id().await? {
            return Ok(false);
        }
        // If the holder has an item with another id, a person renamed the item while its result waits in the outbox.
        if engine
            .store
            .items()
            .await?
            .iter()
            .any(|held| held.holder == claimant.holder && held.item.id != item.id)
        {
            engine.undelivered.report(claimant.holder, self.now());
            engine.outbox.notify_one();
            return Ok(true);
        }
        let Some(claim) = self.item_claim(firing, item.clone())? else { return Ok(false) };
        let is_reported = engine.store.report_again(claim, job.clone(), self.now()).await?;
        if is_reported {
            info!(item = %item.id, %job, "still claimed by a job that has ended; the result is reported to the work \
                                          source");
            engine.outbox.notify_one();
        }
        Ok(is_reported)
    }
}
