//! Counts used and remaining requests, and records until when GitHub wants no requests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tracing::warn;

use crate::quota::{Quota, RateLimitInfo};

/// Callback, called once for each period of the rate limit in which few requests are left.
pub type OnWarning = Arc<dyn Fn(&RateLimitInfo) + Send + Sync>;

/// Threshold and callback of the warning that few requests are left.
#[derive(Clone)]
pub struct RateLimitWarning {
    pub threshold: u64,
    pub on_warning: Option<OnWarning>,
}

impl Default for RateLimitWarning {
    fn default() -> Self {
        Self { threshold: 100, on_warning: None }
    }
}

impl std::fmt::Debug for RateLimitWarning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RateLimitWarning").field("threshold", &self.threshold).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
pub(super) struct Meter {
    quota: Mutex<Quota>,
    /// End of the period for which the last warning was given.
    warned: Mutex<Option<Timestamp>>,
    warning: RateLimitWarning,
}

impl Meter {
    pub(super) fn new(warning: RateLimitWarning) -> Self {
        Self { warning, ..Self::default() }
    }

    pub(super) fn quota(&self) -> Quota {
        lock(&self.quota).clone()
    }

    pub(super) fn record_response(&self, info: Option<RateLimitInfo>, unchanged: bool) {
        let mut quota = lock(&self.quota);
        quota.requests += 1;
        quota.conditional_hits += u64::from(unchanged);
        let Some(info) = info.filter(|info| info.resource == "core") else { return };
        quota.rate_limit = Some(info.clone());
        drop(quota);
        if info.remaining < self.warning.threshold
            && lock(&self.warned).replace(info.reset) != Some(info.reset)
        {
            warn!(remaining = info.remaining, limit = info.limit, reset = %info.reset, "GitHub: few requests are left");
            if let Some(on_warning) = &self.warning.on_warning {
                on_warning(&info);
            }
        }
    }

    pub(super) fn record_wait(&self, wait: Duration) {
        let mut quota = lock(&self.quota);
        quota.waits += 1;
        quota.waited += wait;
    }

    pub(super) fn block(&self, until: Timestamp) {
        let mut quota = lock(&self.quota);
        quota.blocked_until = quota.blocked_until.max(Some(until));
    }

    /// Returns how long GitHub still wants no requests, and the end of this time; `None` if requests may be sent.
    pub(super) fn blocked_for(&self, now: Timestamp) -> Option<(Duration, Timestamp)> {
        let mut quota = lock(&self.quota);
        let until = quota.blocked_until?;
        let left = until.duration_since(now);
        if left <= SignedDuration::ZERO {
            quota.blocked_until = None;
            return None;
        }
        Some((Duration::try_from(left).unwrap_or_default(), until))
    }
}

/// Locks a mutex. A panic cannot leave the data inconsistent, so poisoning is ignored.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_quota_is_warned_of_once_for_each_window() {
        let warnings = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&warnings);
        let on_warning: OnWarning = Arc::new(move |info| lock(&recorded).push(info.remaining));
        let meter =
            Meter::new(RateLimitWarning { on_warning: Some(on_warning), ..RateLimitWarning::default() });
        for (remaining, reset, resource) in [
            (500, 1, "core"),
            (100, 1, "core"),
            (99, 1, "core"),
            (98, 1, "core"),
            (3, 1, "search"),
            (5000, 2, "core"),
            (40, 2, "core"),
            (39, 2, "core"),
        ] {
            let reset = Timestamp::from_second(reset).unwrap();
            meter.record_response(
                Some(RateLimitInfo { limit: 5000, remaining, reset, resource: resource.into() }),
                false,
            );
        }
        assert_eq!(*lock(&warnings), [99, 40]);
        let quota = meter.quota();
        assert_eq!((quota.requests, quota.rate_limit.map(|info| info.remaining)), (8, Some(39)));
    }

    #[test]
    fn a_block_ends_by_itself() {
        let meter = Meter::default();
        let at = |seconds| Timestamp::from_second(seconds).unwrap();
        assert_eq!(meter.blocked_for(at(0)), None);
        meter.block(at(10));
        assert_eq!(meter.blocked_for(at(4)), Some((Duration::from_secs(6), at(10))));
        assert_eq!(meter.blocked_for(at(10)), None);
        assert_eq!(meter.quota().blocked_until, None);
    }
}
