//! Expired leases: the attempt of a lease that its node has not renewed is settled as lost, by any node.

use cowhand_core::attempt::Settlement;
use cowhand_core::id::JobId;
use cowhand_core::job::Outcome;
use cowhand_core::policy::Retry;
use jiff::Timestamp;

use super::database::db::args;
use super::database::dialect::statements;
use super::{Settled, Store, StoreError, claims, jobs, leases};

statements! {
    LOCK_LEASE = locked "select expires_at, boot, length, on_lost from leases where job_id = $1 and epoch = $2";
    TAKEN_OVER = same "update attempts set taken_over = 1 where job_id = $1 and number = $2";
}

impl Store {
    /// Settles an attempt with an expired lease as lost. Does nothing if the lease was renewed or the attempt was
    /// settled meanwhile, or if another node may not settle it yet.
    pub async fn settle_expired(
        &self,
        id: JobId,
        epoch: i64,
        silent: bool,
        retry: Retry,
        now: Timestamp,
    ) -> Result<Settled, StoreError> {
        let random = self.random;
        self.write(move |tx| {
            Box::pin(async move {
                let job = jobs::lock(tx, &id).await?;
                let clock = tx.lease_clock(now).await?;
                if let Some(lease) = tx.one(LOCK_LEASE, args![id.as_str(), epoch]).await? {
                    let contacts = leases::contacts(tx).await?;
                    let is_cancelled = jobs::is_cancel_requested(tx, &job).await?;
                    let from = leases::settled_from(&lease, is_cancelled, &contacts, clock)?;
                    if from.is_none_or(|from| clock.since(from).is_negative()) {
                        return Ok(Settled::Fenced);
                    }
                }
                let lost = Outcome::lost("lost: the node that ran it stopped renewing its lease");
                let lost = Settlement { silent, ..lost.into() };
                let settled = claims::settle(tx, id.clone(), epoch, lost, retry, now, random).await?;
                if matches!(settled, Settled::Done(_)) {
                    tx.execute(TAKEN_OVER, args![id.as_str(), job.attempts()]).await?;
                }
                Ok(settled)
            })
        })
        .await
    }
}
