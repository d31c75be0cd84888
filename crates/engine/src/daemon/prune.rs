//! Prunes jobs and sweeps workspaces and containers at regular intervals.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tokio::task::AbortHandle;
use tracing::{info, warn};

use super::Daemon;
use super::containers;
use crate::attempt::workspaces;
use crate::context::Engine;
use crate::prune::{self, PruneScope};

const PRUNE_EVERY: SignedDuration = SignedDuration::from_hours(1);

#[derive(Debug, Default)]
pub(super) struct Pruning {
    last: Option<Timestamp>,
    task: Option<AbortHandle>,
}

impl Pruning {
    /// Returns whether pruning is due. It is also due after the clock was set back.
    fn is_due(&self, now: Timestamp) -> bool {
        self.last.is_none_or(|last| now < last || now.duration_since(last) >= PRUNE_EVERY)
    }

    /// Stops pruning. The next pruning completes it.
    pub(super) fn stop(&self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Daemon {
    /// Starts pruning in its own task, so that a large folder does not delay jobs. Does nothing if the fleet keeps
    /// everything.
    pub(super) fn prune_if_due(&mut self) {
        let now = self.engine.clock.now();
        if self.pruning.is_due(now) && !self.engine.loaded().roster.keeps_everything() {
            let task = self.tasks.spawn(prune_now(Arc::clone(&self.engine), now));
            self.pruning = Pruning { last: Some(now), task: Some(task) };
        }
    }
}

impl Daemon {
    /// Sweeps unneeded workspaces and containers at the start, and then as often as jobs are pruned, after the pruning.
    pub(super) fn sweep_if_due(&mut self) {
        let now = self.engine.clock.now();
        if self.swept_at.is_none_or(|last| now < last || now.duration_since(last) >= PRUNE_EVERY) {
            self.swept_at = Some(now);
            self.background.spawn(workspaces::sweep(Arc::clone(&self.engine)));
            self.background.spawn(containers::sweep(Arc::clone(&self.engine)));
        }
    }
}

async fn prune_now(engine: Arc<Engine>, now: Timestamp) {
    let (store, state, loaded) = (&engine.store, &engine.home.state, engine.loaded());
    let pruned = async {
        let excess = PruneScope::default().excess(store, state, &loaded.roster, now).await?;
        prune::prune(store, state, excess, now).await
    };
    match pruned.await {
        Ok(jobs) if jobs.is_empty() => {}
        Ok(jobs) => info!(jobs = jobs.len(), "pruned according to `retention`"),
        Err(error) => warn!("cannot prune: {error:#}"),
    }
}
