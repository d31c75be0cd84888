//! Why an attempt was stopped, for a daemon after us.

use cowhand_core::budget::Breach;
use jiff::SignedDuration;
use tracing::warn;

use super::attempt::{Charge, Reason};
use crate::run::attempt::Attempt;
use crate::run::stopped::Stopped;

impl Charge {
    /// Whoever cannot write it down stops the attempt all the same.
    pub(super) fn note_stop(&self, reason: Reason, attempt: &Attempt) {
        let written = written(reason).map_or(Ok(()), |why| attempt.note_stop(why));
        if let Err(error) = written {
            warn!(job = %self.job.id(), "why it is stopped is not written: {error}");
        }
    }

    pub(super) fn forget_stop(&self, attempt: &Attempt) {
        if let Err(error) = attempt.forget_stop() {
            warn!(job = %self.job.id(), "it says that it was stopped, and was not: {error}");
        }
    }

    /// Why a daemon before us has stopped it, if it has.
    pub(super) fn stopped_before(&self) -> Option<Reason> {
        let attempt = self.attempt();
        if !attempt.folder().exists() {
            return None;
        }
        let stopped = attempt.stopped().unwrap_or_else(|error| {
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
            // By what it has spent in the end.
            Stopped::OverBudget => return None,
        })
    }
}

/// None for what is somebody else's by now.
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
