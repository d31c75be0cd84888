//! The states of a fleet that stops, and the effect of repeated stop requests.

use std::time::Duration;

use tokio::time::Instant;

/// What happens to the running jobs when a fleet stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Jobs may finish within the timeout; jobs that still run afterwards are cancelled.
    Finish { timeout: Duration },
    /// Jobs are cancelled at once, in parallel.
    Cancel,
    /// Agents continue to run under their keepers; the next start adopts them.
    KeepAgents,
}

impl Stop {
    /// Default time in which running jobs may finish.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
}

impl Default for Stop {
    fn default() -> Self {
        Self::Finish { timeout: Self::DEFAULT_TIMEOUT }
    }
}

/// The state of a fleet. A fleet changes only to a later state of this list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifecycle {
    Running,
    Draining {
        until: Instant,
    },
    Leaving,
    Cancelling {
        /// Number of jobs that did not finish within the timeout.
        overdue: usize,
    },
    /// The cancelled jobs get no more grace period: their processes are killed.
    Killing,
}

/// Upper limit of a timeout, so that adding it to an instant cannot overflow.
const MAX_TIMEOUT: Duration = Duration::from_hours(365 * 24);

impl Lifecycle {
    /// Returns the next state after a stop request. The first [`Stop::Finish`] lets jobs finish, the second cancels
    /// them, and the third kills their processes. [`Stop::Cancel`] cancels jobs, or kills their processes if they are
    /// being cancelled already. [`Stop::KeepAgents`] has an effect only before jobs are cancelled, and no later request
    /// changes [`Lifecycle::Leaving`].
    #[must_use]
    pub fn after(self, request: Stop, now: Instant) -> Self {
        match (self, request) {
            (Self::Running, Stop::Finish { timeout }) => {
                Self::Draining { until: now + timeout.min(MAX_TIMEOUT) }
            }
            (Self::Running | Self::Draining { .. }, Stop::KeepAgents) => Self::Leaving,
            (Self::Running | Self::Draining { .. }, _) => Self::Cancelling { overdue: 0 },
            (Self::Cancelling { .. } | Self::Leaving, Stop::KeepAgents) | (Self::Leaving, _) => self,
            (Self::Cancelling { .. } | Self::Killing, _) => Self::Killing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_stop_requests_escalate() {
        let now = Instant::now();
        let draining = Lifecycle::Draining { until: now + Duration::from_secs(5) };
        let finish = Stop::Finish { timeout: Duration::from_secs(5) };
        let cancelling = Lifecycle::Cancelling { overdue: 0 };
        let table = [
            (Lifecycle::Running, finish, draining),
            (Lifecycle::Running, Stop::Cancel, cancelling),
            (Lifecycle::Running, Stop::KeepAgents, Lifecycle::Leaving),
            (draining, finish, cancelling),
            (draining, Stop::Cancel, cancelling),
            (draining, Stop::KeepAgents, Lifecycle::Leaving),
            (cancelling, finish, Lifecycle::Killing),
            (cancelling, Stop::Cancel, Lifecycle::Killing),
            (cancelling, Stop::KeepAgents, cancelling),
            (Lifecycle::Killing, finish, Lifecycle::Killing),
            (Lifecycle::Killing, Stop::KeepAgents, Lifecycle::Killing),
            (Lifecycle::Leaving, finish, Lifecycle::Leaving),
            (Lifecycle::Leaving, Stop::Cancel, Lifecycle::Leaving),
        ];
        for (state, request, after) in table {
            assert_eq!(state.after(request, now), after, "{state:?} and {request:?}");
        }
        let unlimited = Stop::Finish { timeout: Duration::MAX };
        assert!(matches!(Lifecycle::Running.after(unlimited, now), Lifecycle::Draining { .. }));
    }
}
