//! Writing down how an attempt ended, for as long as that takes: a database that is away for a while must not make us
//! forget it.

use std::time::Duration;

use cowhand_core::job::Settlement;
use tracing::{info, warn};

use super::attempt::{Charge, LONGEST_PAUSE, Rules, Wish};
use super::unwritten::is_unwritten;
use crate::fault;
use crate::store::{GivenBack, Settled, StoreError};

const FIRST_PAUSE: Duration = Duration::from_millis(200);

impl Charge {
    /// Until it is written.
    pub(super) async fn settle(&self, settlement: impl Into<Settlement>, rules: &Rules) {
        let mut settlement = settlement.into();
        settlement.breaker = rules.breaker;
        rules.veil.hide_in_outcome(&mut settlement.outcome);
        let mut pause = FIRST_PAUSE;
        loop {
            let (id, retry) = (self.job.id().clone(), self.retry_after(&settlement, rules));
            match self.engine.store.settle(id, self.epoch, settlement.clone(), retry, self.now()).await {
                Ok(Settled::Done(job)) => {
                    fault::place("settled");
                    info!(job = %job.id(), agent = %job.agent(), status = %job.status(), "settled");
                    let attempt = self.attempt();
                    if is_unwritten(&attempt) {
                        return;
                    }
                    if let Err(error) = attempt.forget_output() {
                        warn!(job = %job.id(), "its raw output is still there: {error}");
                    }
                    return;
                }
                // Perhaps it has been pruned since.
                Ok(Settled::Fenced) | Err(StoreError::NoJob(_)) => {
                    warn!(job = %self.job.id(), "somebody else has settled it");
                    return;
                }
                Err(StoreError::Closed) => return,
                Err(error) => {
                    warn!(job = %self.job.id(), "its end is not written yet: {error}");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// It never began, so it waits again. If the store knows better, it is lost.
    pub(super) async fn give_back(&self, rules: &Rules) {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.engine.store.give_back(self.job.id().clone(), self.epoch, self.now()).await {
                Ok(GivenBack::Done(_) | GivenBack::Fenced)
                | Err(StoreError::NoJob(_) | StoreError::Closed) => return,
                Ok(GivenBack::Began) => {
                    let lost = "lost: nothing is left of it, though something was heard of it before";
                    return self.settle(self.lost(lost.to_owned()), rules).await;
                }
                Err(error) => {
                    warn!(job = %self.job.id(), "it never began, and is not given back yet: {error}");
                }
            }
            if *self.wishes.borrow() == Wish::Leave {
                // The next start takes it up.
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
