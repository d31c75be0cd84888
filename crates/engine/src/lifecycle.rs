//! How a fleet ends, and what happens when somebody asks again.

use std::time::Duration;

use tokio::time::Instant;

/// What whoever stops a fleet wants for the jobs that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// They may finish, for so long; what still runs then is cancelled.
    Finish { timeout: Duration },
    /// They are cancelled at once, side by side.
    Cancel,
    /// They live on with their keepers; the next start takes them up again.
    KeepAgents,
}

impl Default for Stop {
    fn default() -> Self {
        Self::Finish { timeout: Duration::from_secs(30) }
    }
}

/// The way a fleet is on. It only ever moves down this list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifecycle {
    Running,
    Draining {
        until: Instant,
    },
    Leaving,
    Cancelling {
        /// How many had not finished in the time they were given.
        overdue: usize,
    },
    /// The grace of what is cancelled is over, too.
    Killing,
}

/// More than anybody means, and little enough to reckon with.
const LONGEST_PATIENCE: Duration = Duration::from_hours(365 * 24);

impl Lifecycle {
    /// The first time lets jobs finish, the second cancels them, the third kills them. Agents can be kept as long as
    /// nothing was done to them.
    #[must_use]
    pub fn after(self, asked: Stop, now: Instant) -> Self {
        match (self, asked) {
            (Self::Running, Stop::Finish { timeout }) => {
                Self::Draining { until: now + timeout.min(LONGEST_PATIENCE) }
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
    fn asking_again_is_asking_for_more() {
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
        for (before, asked, after) in table {
            assert_eq!(before.after(asked, now), after, "{before:?} and {asked:?}");
        }
        let for_ever = Stop::Finish { timeout: Duration::MAX };
        assert!(matches!(Lifecycle::Running.after(for_ever, now), Lifecycle::Draining { .. }));
    }
}
