//! Stops an attempt, and records the reason for a later daemon.

use std::time::Duration;

use cowhand_core::budget::Breach;
use jiff::SignedDuration;
use tokio::time::Instant;
use tracing::warn;

use super::follow::{AttemptTask, Reason};
use cowhand_run::attempt::Attempt;
use cowhand_run::stopped::Stopped;
use cowhand_run::supervision::StopOutcome;
use cowhand_system::remove::is_missing;

/// Time that a keeper has to end an attempt before the daemon kills it: the grace periods of the agent and of the
/// processes it leaves, and a margin. With `hurry` there is no grace period.
pub(super) const STOP_TIMEOUT: Duration = Duration::from_secs(15);
const CANCEL_NOW_TIMEOUT: Duration = Duration::from_secs(2);
/// Pause before processes that could not be listed are searched again.
const STOP_RETRY_PAUSE: Duration = Duration::from_secs(1);

impl AttemptTask {
    /// Asks the keeper to end the attempt, and asks again with `hurry`. A keeper that cannot be asked, or does not
    /// obey, is killed with its processes, because neither the job nor a waiting caller may depend on it.
    pub(super) async fn stop(
        &mut self,
        reason: Reason,
        hurry: bool,
        attempt: &Attempt,
        kill_at: &mut Option<Instant>,
    ) {
        let (job, now) = (self.job.id(), Instant::now());
        if self.stopped.is_none() || hurry {
            if self.stopped.is_none() {
                if reason == Reason::Abandoned {
                    warn!(%job, "its lease is lost; ending it here");
                }
                self.note_stop(reason, attempt);
            }
            let patience = match attempt.on_blocking_thread(Attempt::stop).await {
                Ok(StopOutcome::TooEarly) => return self.forget_stop(attempt),
                Ok(StopOutcome::Asked | StopOutcome::NoKeeper) if hurry => CANCEL_NOW_TIMEOUT,
                Ok(StopOutcome::Asked | StopOutcome::NoKeeper) => STOP_TIMEOUT,
                Err(error) => {
                    warn!(%job, "its keeper cannot be asked to end it: {error}");
                    Duration::ZERO
                }
            };
            let until = now + patience;
            *kill_at = Some(kill_at.map_or(until, |at| at.min(until)));
            self.stopped = Some(reason);
        }
        if kill_at.is_some_and(|at| at <= now) {
            warn!(%job, "it cannot be cancelled in good order and is killed");
            if let Err(error) = attempt.on_blocking_thread(Attempt::kill).await {
                warn!(%job, "it cannot be killed at the moment: {error}");
            }
            *kill_at = Some(now + CANCEL_NOW_TIMEOUT);
        }
    }

    /// Kills the remaining processes of an attempt without a folder, and returns whether there were any.
    pub(super) async fn end_strays(&self) -> bool {
        loop {
            match self.attempt().on_blocking_thread(Attempt::end_strays).await {
                Ok(any) => return any,
                Err(error) => warn!(job = %self.job.id(), "what is left of it cannot be seen now: {error}"),
            }
            tokio::time::sleep(STOP_RETRY_PAUSE).await;
        }
    }

    /// Records the reason of the stop. If that fails, the attempt is stopped all the same.
    fn note_stop(&self, reason: Reason, attempt: &Attempt) {
        let written = written(reason).map_or(Ok(()), |why| attempt.note_stop(why));
        if let Err(error) = written {
            warn!(job = %self.job.id(), "why it is stopped is not written: {error}");
        }
    }

    fn forget_stop(&self, attempt: &Attempt) {
        if let Err(error) = attempt.forget_stop() {
            warn!(job = %self.job.id(), "it says that it was stopped, and was not: {error}");
        }
    }

    /// Returns why an earlier daemon stopped the attempt, if it did.
    pub(super) async fn stopped_before(&self) -> Option<Reason> {
        let attempt = self.attempt();
        if is_missing(attempt.folder()) {
            return None;
        }
        let stopped = attempt.on_blocking_thread(Attempt::stopped).await.unwrap_or_else(|error| {
            warn!(job = %self.job.id(), "why it was stopped is not known: {error}");
            None
        });
        Some(match stopped? {
            Stopped::Asked => Reason::Asked,
            Stopped::TookTooLong { limit_ms } => Reason::TookTooLong(SignedDuration::from_millis(limit_ms)),
            Stopped::SilentTooLong { limit_ms } => {
                Reason::SilentTooLong(SignedDuration::from_millis(limit_ms))
            }
            Stopped::Unpriced => Reason::OverBudget(Breach::Unpriced),
            // The final spending decides this.
            Stopped::OverBudget => return None,
        })
    }
}

/// Returns the reason as it is stored; `None` if another node has the job.
fn written(reason: Reason) -> Option<Stopped> {
    let millis = |limit: SignedDuration| i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
    match reason {
        Reason::Abandoned => None,
        Reason::Asked => Some(Stopped::Asked),
        Reason::TookTooLong(limit) => Some(Stopped::TookTooLong { limit_ms: millis(limit) }),
        Reason::SilentTooLong(limit) => Some(Stopped::SilentTooLong { limit_ms: millis(limit) }),
        Reason::OverBudget(Breach::Over(_)) => Some(Stopped::OverBudget),
        Reason::OverBudget(Breach::Unpriced) => Some(Stopped::Unpriced),
    }
}
