//! Ending an attempt that is no longer wanted.

use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use super::attempt::{Charge, Reason};
use crate::run::attempt::{Attempt, Stop};

/// How long a keeper may take to end an attempt before we do it: the grace of the agent, that of what it leaves, and a
/// little more. In a hurry there is no grace.
pub(super) const OBEDIENCE: Duration = Duration::from_secs(15);
const HURRY: Duration = Duration::from_secs(2);

impl Charge {
    /// Asks for its end, and once more in a hurry. A keeper that cannot be asked, or does not do it, is killed with all
    /// that it keeps: neither the job nor whoever waits for its end may depend on it.
    pub(super) async fn stop(
        &mut self,
        reason: Reason,
        hurry: bool,
        attempt: &Attempt,
        kill_at: &mut Option<Instant>,
    ) {
        let (job, now) = (self.job.id(), Instant::now());
        if self.stopped.is_none() || hurry {
            let patience = match attempt.aside(Attempt::stop).await {
                Ok(Stop::TooEarly) => return,
                Ok(Stop::Asked | Stop::NoKeeper) if hurry => HURRY,
                Ok(Stop::Asked | Stop::NoKeeper) => OBEDIENCE,
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
            attempt.aside(Attempt::kill).await;
            *kill_at = Some(now + HURRY);
        }
    }

    pub(super) async fn end_strays(&self) -> bool {
        self.attempt().aside(Attempt::end_strays).await
    }
}
