//! The pauses of the runner between two calls of a strategy.

use std::time::Duration;

use cowhand_core::backoff::Backoff;
use jiff::SignedDuration;

use crate::trigger::ERROR_BACKOFF;

/// The number of errors and of quick empty answers in a row.
#[derive(Debug, Default)]
pub(super) struct Pace {
    errors: u32,
    empties: u32,
}

const EMPTY_BACKOFF: Backoff =
    Backoff::doubling(SignedDuration::from_millis(10), SignedDuration::from_secs(1));

impl Pace {
    /// Resets the counts after an answer with tasks. The strategy is then called again at once, because there may be
    /// more tasks.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Returns the pause after an empty answer: a strategy that answers at once must not cause a busy loop. `took` is
    /// the duration of the call, which counts as part of the pause.
    pub(super) fn after_empty(&mut self, took: Duration) -> Duration {
        self.errors = 0;
        let floor = EMPTY_BACKOFF.wait_after(self.empties + 1);
        self.empties = if took < floor { self.empties + 1 } else { 0 };
        floor.saturating_sub(took)
    }

    /// Returns the pause after an error.
    pub(super) fn after_error(&mut self) -> Duration {
        self.empties = 0;
        self.errors = self.errors.saturating_add(1);
        ERROR_BACKOFF.wait_after(self.errors)
    }

    pub(super) fn is_failing(&self) -> bool {
        self.errors > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_grows_with_quick_empty_answers() {
        let mut pace = Pace::default();
        let waits: Vec<u128> = (0..9).map(|_| pace.after_empty(Duration::ZERO).as_millis()).collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 640, 1_000, 1_000]);
        assert_eq!(
            pace.after_empty(Duration::from_mins(1)),
            Duration::ZERO,
            "the strategy itself waited long enough"
        );
        assert_eq!(pace.after_empty(Duration::from_millis(4)), Duration::from_millis(6));
        pace.reset();
        assert_eq!(pace.after_empty(Duration::ZERO), Duration::from_millis(10));
    }

    #[test]
    fn pause_grows_with_errors_until_an_answer() {
        let mut pace = Pace::default();
        let waits: Vec<u64> = (0..17).map(|_| pace.after_error().as_secs()).collect();
        assert_eq!((waits[0], waits[1], waits[14], waits[16]), (2, 4, 30, 30));
        pace.after_empty(Duration::ZERO);
        assert!(!pace.is_failing());
        assert_eq!(pace.after_error().as_secs(), 2);
    }
}
