//! Settles an attempt, or requeues its job if the attempt never began. Both are retried until they succeed, so that no
//! outcome is lost while the store is unavailable. A stopping daemon gives up after a while, and the next start tries
//! again.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cowhand_core::attempt::Settlement;
use cowhand_core::job::{MAX_REQUEUES, NotBegun, Outcome};
use tokio::time::Instant;
use tracing::{info, warn};

use super::AttemptTask;
use super::rules::Rules;
use crate::context::StopRequest;
use cowhand_run::attempt::Attempt;
use cowhand_store::{RequeueOutcome, SHUTDOWN_STORE_TIMEOUT, Settled, StoreError};
use cowhand_system::fault;

const FIRST_SETTLE_PAUSE: Duration = Duration::from_millis(200);
const MAX_SETTLE_PAUSE: Duration = Duration::from_secs(5);
/// Time for which a stopping daemon waits for a store that cannot be written.
const STOPPING_SETTLE_TIMEOUT: Duration = Duration::from_secs(5);

impl AttemptTask {
    /// Explains why the previous attempt failed: `attempt 1 failed: exit code 3 (exit)`. Returns `None` for the first
    /// attempt, and if the previous attempt did not fail or its outcome is not known.
    pub(super) async fn previous_failure(&self, number: u32) -> Option<String> {
        let previous = number.checked_sub(1).filter(|previous| *previous > 0)?;
        let history = self.engine.store.history(self.job.id().clone()).await.ok()??;
        let ended = history.attempts.into_iter().find(|attempt| attempt.number == previous)?;
        match ended.outcome? {
            Outcome::Failed { error, .. } => {
                Some(format!("attempt {previous} failed: {} ({})", error.message, error.kind))
            }
            Outcome::Completed { .. } | Outcome::Cancelled { .. } => None,
        }
    }

    /// Settles the attempt, and retries until the store has written the settlement or a stopping daemon gives up.
    pub(super) async fn settle(&self, settlement: impl Into<Settlement>, rules: &Rules) {
        let mut settlement = settlement.into();
        settlement.breaker = rules.of_attempt.breaker;
        self.redactor(rules).redact_outcome(&mut settlement.outcome);
        let (mut pause, mut deadline) = (FIRST_SETTLE_PAUSE, None);
        loop {
            let (id, retry) = (self.job.id().clone(), self.retry_after(&settlement, rules));
            match self.engine.store.settle(id, self.epoch, settlement.clone(), retry, self.now()).await {
                Ok(Settled::Done(job)) => {
                    fault::point("settled");
                    info!(job = %job.id(), agent = %job.agent(), status = %job.status(), "settled");
                    return self.remove_settled_files(&settlement);
                }
                Ok(Settled::Fenced) => {
                    warn!(job = %self.job.id(), "the attempt is already settled");
                    return self.end_superseded().await;
                }
                Err(StoreError::NoJob(_)) => {
                    warn!(job = %self.job.id(), "the attempt is not settled, because the job was removed meanwhile");
                    return;
                }
                Err(StoreError::Closed) => return,
                Err(error) => {
                    warn!(job = %self.job.id(), "its outcome is not stored yet: {error}");
                    if self.gives_up(&mut deadline) {
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
        let redacted = |reason: String| self.redactor(rules).redact(&reason).into_owned();
        let why = match why {
            NotBegun::Interrupted => NotBegun::Interrupted,
            NotBegun::Shortage(reason) => NotBegun::Shortage(redacted(reason)),
            NotBegun::Failed(reason) => NotBegun::Failed(redacted(reason)),
        };
        if let Some(reason) = why.reason() {
            warn!(job = %self.job.id(), "it could not be started: {reason}");
        }
        let (mut pause, mut deadline) = (FIRST_SETTLE_PAUSE, None);
        loop {
            let (id, why) = (self.job.id().clone(), why.clone());
            match self.engine.store.requeue(id, self.epoch, why.clone(), self.now()).await {
                Ok(RequeueOutcome::Done(_)) => return self.discard().await,
                Ok(RequeueOutcome::Fenced) | Err(StoreError::NoJob(_) | StoreError::Closed) => return,
                Ok(RequeueOutcome::TooOften) => {
                    let reason = why.reason().unwrap_or_default();
                    let message = format!(
                        "{reason}; the job was requeued {MAX_REQUEUES} times in a row for this reason"
                    );
                    return self.settle(self.failed_start(message), rules).await;
                }
                Ok(RequeueOutcome::Began) => {
                    let message = "lost: the attempt began, but none of its processes and files are left";
                    return self.settle(self.lost_settlement(message.to_owned()), rules).await;
                }
                Err(error) => {
                    warn!(job = %self.job.id(), "the attempt never began, and the job is not requeued yet: {error}");
                }
            }
            if *self.stop_requests.borrow() == StopRequest::Detach || self.gives_up(&mut deadline) {
                return self.mark_not_begun().await;
            }
            pause = self.wait(pause).await;
        }
    }

    /// Leaves a folder for the next start of the daemon, which requeues the job. Without a folder, a daemon whose store
    /// was restored from a backup could not distinguish this attempt from an attempt that ended after the backup.
    async fn mark_not_begun(&self) {
        if let Err(error) = self.attempt().on_blocking_thread(Attempt::make_folder).await {
            warn!(job = %self.job.id(), "cannot make the folder of an attempt that never began: {error}");
        }
    }

    /// Removes the folder of an attempt that never began; the next attempt has its own.
    async fn discard(&self) {
        if let Err(error) = self.attempt().on_blocking_thread(Attempt::discard).await {
            warn!(job = %self.job.id(), "cannot remove the folder of an attempt that never began: {error}");
        }
    }

    /// Returns whether a stopping daemon gives up settling the attempt. The folder of the attempt contains everything
    /// from which its outcome is made, so the next start settles it.
    pub(super) fn gives_up(&self, deadline: &mut Option<Instant>) -> bool {
        let is_store_unreachable =
            self.engine.store.unanswered_time().is_some_and(|waited| waited >= SHUTDOWN_STORE_TIMEOUT);
        // On a full disk some writes succeed, so the store may seem to be reachable. Therefore a timeout applies as
        // well.
        let timeout = if self.engine.is_ending.load(Ordering::Relaxed) {
            Some(STOPPING_SETTLE_TIMEOUT)
        } else {
            self.engine.store.limits_waits().then_some(SHUTDOWN_STORE_TIMEOUT)
        };
        let is_late = timeout.is_some_and(|timeout| {
            *deadline.get_or_insert_with(|| Instant::now() + timeout) <= Instant::now()
        });
        if is_store_unreachable || is_late {
            warn!(job = %self.job.id(), "its outcome is not stored; the next start of the daemon settles it");
        }
        is_store_unreachable || is_late
    }

    /// Waits, and returns the duration of the next wait. A stopping daemon waits only briefly.
    pub(super) async fn wait(&self, pause: Duration) -> Duration {
        let until = Instant::now() + pause;
        let is_stopping =
            || self.engine.is_ending.load(Ordering::Relaxed) || self.engine.store.limits_waits();
        while Instant::now() < until && !is_stopping() {
            tokio::time::sleep(FIRST_SETTLE_PAUSE.min(until - Instant::now())).await;
        }
        tokio::time::sleep(FIRST_SETTLE_PAUSE).await;
        (pause * 2).min(MAX_SETTLE_PAUSE)
    }
}
