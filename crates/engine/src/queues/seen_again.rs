//! Undelivered results whose items are in their source again.
//!
//! Code that reads a source reports the holders of these items here. The outbox takes the reported holders only while
//! the outbox makes no delivery, so that no result is delivered twice at the same time.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};

/// Shortest time between two accepted reports of the same holder, so that a result that cannot be delivered is not
/// tried at every poll.
const REPORT_AGAIN_AFTER: SignedDuration = SignedDuration::from_secs(15);

#[derive(Debug, Default)]
pub struct SeenAgain(Mutex<Holders>);

#[derive(Debug, Default)]
struct Holders {
    /// Holders whose results have to be delivered.
    to_try: HashSet<String>,
    /// Time of the last report of each holder.
    reported_at: HashMap<String, Timestamp>,
}

impl SeenAgain {
    /// Records that the item of this holder is in its source. Returns whether its result has to be delivered now.
    pub fn report(&self, holder: String, now: Timestamp) -> bool {
        let mut holders = self.lock();
        holders.reported_at.retain(|_, at| now.duration_since(*at).abs() < REPORT_AGAIN_AFTER);
        if holders.reported_at.contains_key(&holder) {
            return false;
        }
        holders.reported_at.insert(holder.clone(), now);
        holders.to_try.insert(holder);
        true
    }

    pub fn take(&self) -> HashSet<String> {
        std::mem::take(&mut self.lock().to_try)
    }

    fn lock(&self) -> MutexGuard<'_, Holders> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_reported_again_only_after_a_pause() {
        let seen = SeenAgain::default();
        let at = |seconds: i64| Timestamp::from_second(1_000_000 + seconds).unwrap();
        let report = |holder: &str, seconds| seen.report(holder.to_owned(), at(seconds));
        assert_eq!(
            [report("a", 0), report("a", 1), report("b", 1), report("a", 14)],
            [true, false, true, false]
        );
        assert_eq!(seen.take().len(), 2);
        assert!(seen.take().is_empty());
        assert!(report("a", 15), "the pause is over");
        assert!(report("a", -3600), "the clock was set back");
    }
}
