//! Waking those who follow the event log, so that they need not look again and again.

use std::time::Duration;

use tokio::sync::watch;

use super::Store;

/// Processes on other machines write to the same PostgreSQL, and nobody here hears of it: whoever follows looks
/// this often in any case.
const FALLBACK: Duration = Duration::from_secs(1);

/// The number of the newest event that this process has committed, 0 before its first.
#[derive(Debug, Clone)]
pub(super) struct Committed(watch::Sender<i64>);

impl Committed {
    pub(super) fn new() -> Self {
        Self(watch::Sender::new(0))
    }

    /// Called after the commit, so that whoever wakes up finds what there is. Two commits may tell of themselves
    /// in either order; the newer one stays.
    pub(super) fn reached(&self, seq: i64) {
        self.0.send_if_modified(|newest| {
            let newer = seq > *newest;
            *newest = seq.max(*newest);
            newer
        });
    }
}

impl Store {
    /// For [`Self::changed`]: take it before a look, and nothing that comes during the look is missed.
    pub fn committed(&self) -> i64 {
        *self.committed.0.borrow()
    }

    /// Returns when this process has committed an event beyond this one, at once if it has already, or when it is
    /// time to look all the same.
    pub async fn changed(&self, after: i64) {
        let mut committed = self.committed.0.subscribe();
        // Which of the two it was makes no difference: the caller looks.
        let _ = tokio::time::timeout(FALLBACK, committed.wait_for(|newest| *newest > after)).await;
    }
}
