//! Runs the task of an attempt, and ends the attempt after repeated panics, so that the job does not run forever.

use std::sync::Arc;
use std::time::Duration;

use cowhand_core::attempt::Settlement;
use cowhand_core::job::Outcome;
use tokio::time::Instant;
use tracing::{error, warn};

use super::AttemptTask;
use super::stop::{END_POLL_EVERY, PROCESSES_END_TIMEOUT};
use super::workspaces;
use cowhand_run::attempt::Attempt;
use cowhand_run::supervision::AttemptState;
use cowhand_system::panic::{Panicked, caught};
use cowhand_system::remove::is_missing;

/// Number of panics after which an attempt is settled as lost, because the same error would happen again.
const MAX_PANICS: u32 = 5;
const FIRST_PANIC_PAUSE: Duration = Duration::from_millis(200);

impl AttemptTask {
    /// Runs the attempt to its end. After a panic the attempt is recovered, as after a restart.
    pub(crate) async fn supervise(self, fresh: bool) {
        let (id, engine) = (self.job.id().clone(), Arc::clone(&self.engine));
        let (mut fresh, mut pause, mut panics) = (fresh, FIRST_PANIC_PAUSE, 0);
        while let Err(panicked) = caught(self.clone().run_to_end(fresh)).await {
            error!(job = %id, "the supervision of the job {panicked}");
            panics += 1;
            if panics == MAX_PANICS {
                // If this panics too, nobody renews the lease, and the attempt is settled as lost when the lease
                // expires.
                if let Err(panicked) = caught(self.clone().fail_after_panic(&panicked)).await {
                    error!(job = %id, "settling it as lost {panicked}");
                }
                break;
            }
            tokio::time::sleep(pause).await;
            if !self.has_lease().await {
                // The job is settled, or another node has it. In both cases no process may remain here.
                self.end_processes().await;
                break;
            }
            (fresh, pause) = (false, pause * 2);
        }
        if let Err(panicked) = caught(workspaces::tidy(&engine, &id)).await {
            error!(job = %id, "tidying up after it {panicked}");
        }
        engine.end(&id);
    }

    /// Renews the lease of the job, and returns whether this node still has it: the attempt may have been settled
    /// before the panic. If the store is not available, returns true, because all later steps ask the store again.
    async fn has_lease(&self) -> bool {
        let (node, job) = (self.engine.home.node.clone(), self.job.id().clone());
        let length = self.engine.loaded().roster.leases.length;
        let leases = self.engine.store.renew(node, vec![job], length, self.now()).await;
        leases.map_or(true, |leases| leases.iter().any(|lease| lease.epoch == self.epoch))
    }

    async fn end_processes(&self) {
        let (attempt, until) = (self.attempt(), Instant::now() + PROCESSES_END_TIMEOUT);
        while Instant::now() < until && attempt.on_blocking_thread(kill_if_running).await {
            tokio::time::sleep(END_POLL_EVERY).await;
        }
    }

    /// Ends the processes, and settles the attempt as lost.
    async fn fail_after_panic(self, panicked: &Panicked) {
        self.end_processes().await;
        let message = format!(
            "lost: the supervision of the job failed {MAX_PANICS} times; the last time it {panicked}"
        );
        self.settle(self.lost_settlement(message), &self.rules()).await;
    }

    /// Returns the settlement of an attempt of which nothing is known beyond the usage stored so far.
    pub(super) fn lost_settlement(&self, message: String) -> Settlement {
        Settlement { silent: self.reports_usage_at_end(), ..Outcome::lost(message).into() }
    }
}

/// Kills the processes of the attempt, and returns whether any was still running.
fn kill_if_running(attempt: &Attempt) -> bool {
    if is_missing(attempt.folder()) {
        // Processes that cannot be listed now may still run.
        return attempt.kill_marked_processes().unwrap_or(true);
    }
    if matches!(attempt.state(), Ok(AttemptState::Ended(_) | AttemptState::Gone)) {
        return false;
    }
    if let Err(error) = attempt.kill() {
        warn!(attempt = attempt.name(), "cannot kill the attempt now: {error}");
    }
    true
}
