//! Undelivered results with items that are in their source again.
//!
//! Code that reads a source reports the holders here. The outbox takes them between two deliveries, when it has no
//! delivery under way, so that nothing is delivered twice at the same time.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};

/// Time before the same result is reported again, so that one that cannot be delivered is not tried at every poll.
const REPORT_AGAIN_AFTER: SignedDuration = SignedDuration::from_secs(15);

#[derive(Debug, Default)]
pub struct SeenAgain(Mutex<Holders>);

#[derive(Debug, Default)]
struct Holders {
    /// Holders with a result to be tried.
    to_try: HashSet<String>,
    /// Time of the last report of each holder.
    noticed_at: HashMap<String, Timestamp>,
}

impl SeenAgain {
    /// Records that the item of this holder is there. Returns whether its result is to be tried for that.
    pub fn see(&self, holder: String, now: Timestamp) -> bool {
        let mut holders = self.lock();
        holders.noticed_at.retain(|_, at| now.duration_since(*at).abs() < REPORT_AGAIN_AFTER);
        if holders.noticed_at.contains_key(&holder) {
            return false;
        }
        holders.noticed_at.insert(holder.clone(), now);
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
    fn one_that_is_seen_all_the_time_is_tried_now_and_then() {
        let noticed = SeenAgain::default();
        let at = |seconds: i64| Timestamp::from_second(1_000_000 + seconds).unwrap();
        let see = |holder: &str, seconds| noticed.see(holder.to_owned(), at(seconds));
        assert_eq!([see("a", 0), see("a", 1), see("b", 1), see("a", 14)], [true, false, true, false]);
        assert_eq!(noticed.take().len(), 2);
        assert!(noticed.take().is_empty());
        assert!(see("a", 15), "the pause is over");
        assert!(see("a", -3600), "the clock was set back");
    }
}
