//! Settles an attempt. This is retried until it succeeds, so that no outcome is lost while the store is not available.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cowhand_core::attempt::Settlement;
use cowhand_core::job::{MAX_REQUEUES, NotBegun, Outcome};
use tokio::time::Instant;
use tracing::{info, warn};

use super::AttemptTask;
use super::rules::Rules;
use super::unwritten::is_unwritten;
use crate::context::StopRequest;
use cowhand_run::attempt::Attempt;
use cowhand_store::{GivenBack, LAST_WAIT, Settled, StoreError};
use cowhand_system::fault;

const FIRST_SETTLE_PAUSE: Duration = Duration::from_millis(200);
const MAX_SETTLE_PAUSE: Duration = Duration::from_secs(30);
/// Time for which a stopping daemon waits for a store that cannot be written.
const STOPPING_SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

impl AttemptTask {
    /// Explains why the previous attempt failed: `attempt 1 failed: exit code 3 (exit)`. Returns `None` for the first
    /// attempt, and if the reason is not known.
    pub(super) async fn before(&self, number: u32) -> Option<String> {
        let before = number.checked_sub(1).filter(|before| *before > 0)?;
        let history = self.engine.store.history(self.job.id().clone()).await.ok()??;
        let ended = history.attempts.into_iter().find(|attempt| attempt.number == before)?;
        match ended.outcome? {
            Outcome::Failed { error, .. } => {
                Some(format!("attempt {before} failed: {} ({})", error.message, error.kind))
            }
            Outcome::Completed { .. } | Outcome::Cancelled { .. } => None,
        }
    }

    /// Settles the attempt, and retries until the store has written the settlement.
    pub(super) async fn settle(&self, settlement: impl Into<Settlement>, rules: &Rules) {
        let mut settlement = settlement.into();
        settlement.breaker = rules.breaker;
        rules.redactor.redact_outcome(&mut settlement.outcome);
        let (mut pause, mut until) = (FIRST_SETTLE_PAUSE, None);
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
                    self.keep_outcome(&settlement);
                    if let Err(error) = attempt.remove_output() {
                        warn!(job = %job.id(), "cannot remove its raw output: {error}");
                    }
                    return;
                }
                // `NoJob`: the job was pruned in the meantime.
                Ok(Settled::Fenced) | Err(StoreError::NoJob(_)) => {
                    warn!(job = %self.job.id(), "somebody else has settled it");
                    return;
                }
                Err(StoreError::Closed) => return,
                Err(error) => {
                    warn!(job = %self.job.id(), "its outcome is not stored yet: {error}");
                    if self.is_left(&mut until) {
                        return;
                    }
                    pause = self.wait(pause).await;
                }
            }
        }
    }

    /// Requeues the job, because its attempt never began. After too many requeues the job fails. If the store knows
    /// that the attempt began, the attempt is settled as lost.
    pub(super) async fn requeue(&self, why: NotBegun, rules: &Rules) {
        let why = match why {
            NotBegun::Interrupted => NotBegun::Interrupted,
            NotBegun::Shortage(reason) => NotBegun::Shortage(rules.redactor.redact(&reason).into_owned()),
            NotBegun::Failed(reason) => NotBegun::Failed(rules.redactor.redact(&reason).into_owned()),
        };
        if let Some(reason) = why.reason() {
            warn!(job = %self.job.id(), "it could not be started: {reason}");
        }
        let (mut pause, mut until) = (FIRST_SETTLE_PAUSE, None);
        loop {
            let (id, why) = (self.job.id().clone(), why.clone());
            match self.engine.store.requeue(id, self.epoch, why.clone(), self.now()).await {
                Ok(GivenBack::Done(_)) => return self.discard().await,
                Ok(GivenBack::Fenced) | Err(StoreError::NoJob(_) | StoreError::Closed) => return,
                Ok(GivenBack::TooOften) => {
                    let reason = why.reason().unwrap_or_default();
                    let message = format!(
                        "{reason}; the job was requeued {MAX_REQUEUES} times in a row for this reason"
                    );
                    return self.settle(self.start_failed(message), rules).await;
                }
                Ok(GivenBack::Began) => {
                    let lost = "lost: the attempt began, but none of its processes and files are left";
                    return self.settle(self.lost(lost.to_owned()), rules).await;
                }
                Err(error) => {
                    warn!(job = %self.job.id(), "the attempt never began, and the job is not requeued yet: {error}");
                }
            }
            if *self.stop_requests.borrow() == StopRequest::Detach || self.is_left(&mut until) {
                // The next start recovers the attempt.
                return;
            }
            pause = self.wait(pause).await;
        }
    }

    /// Removes the folder of an attempt that never began; the next attempt has its own.
    async fn discard(&self) {
        if let Err(error) = self.attempt().on_blocking_thread(Attempt::discard).await {
            warn!(job = %self.job.id(), "cannot remove the folder of an attempt that never began: {error}");
        }
    }

    /// Returns whether a stopping daemon gives up. The folder of the attempt contains its outcome, so the
    /// next start settles it.
    fn is_left(&self, until: &mut Option<Instant>) -> bool {
        if !self.engine.ending.load(Ordering::Relaxed) {
            return false;
        }
        let is_silent = self.engine.store.silence().is_some_and(|silence| silence >= LAST_WAIT);
        let is_left =
            *until.get_or_insert_with(|| Instant::now() + STOPPING_SETTLE_TIMEOUT) <= Instant::now();
        if is_silent || is_left {
            warn!(job = %self.job.id(), "its outcome is not stored; the next start of the daemon settles it");
        }
        is_silent || is_left
    }

    /// Waits, and returns the duration of the next wait. A stopping daemon waits only briefly.
    async fn wait(&self, pause: Duration) -> Duration {
        let until = Instant::now() + pause;
        while Instant::now() < until && !self.engine.ending.load(Ordering::Relaxed) {
            tokio::time::sleep(FIRST_SETTLE_PAUSE.min(until - Instant::now())).await;
        }
        tokio::time::sleep(FIRST_SETTLE_PAUSE).await;
        (pause * 2).min(MAX_SETTLE_PAUSE)
    }
}
