//! After a restart: what ran goes on, what ended meanwhile is settled, what never began waits again.

use std::sync::Arc;

use tracing::info;

use crate::fault;

use super::Daemon;
use super::attempt::Charge;
use super::engine::LEASE;
use crate::fleet::FleetError;

impl Daemon {
    /// Every attempt that this node started and nobody settled gets somebody who looks after it again, before
    /// anything is planned.
    pub(super) async fn recover(&mut self) -> Result<(), FleetError> {
        let engine = &self.engine;
        for held in engine.store.adopt(engine.home.node.clone(), LEASE, engine.clock.now()).await? {
            fault::place("adopted");
            let Some(job) = engine.store.job(held.job).await? else { continue };
            if let Some(wishes) = engine.begin(job.id(), held.epoch) {
                info!(job = %job.id(), agent = %job.agent(), "taken up again");
                let charge =
                    Charge { engine: Arc::clone(engine), job, epoch: held.epoch, wishes, stopped: None };
                self.tasks.spawn(charge.look_after(false));
            }
        }
        Ok(())
    }
}
