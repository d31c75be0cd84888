//! Waits that a platform demands.

use std::time::Duration;

/// Shortest wait, so that requests are not repeated without a pause.
const MIN_RETRY_AFTER: Duration = Duration::from_millis(100);
/// Longest wait. If a limit lasts longer, the next request is refused again.
const MAX_RETRY_AFTER: Duration = Duration::from_hours(1);

/// Converts a number of seconds from the platform. The number may be negative, very large or no number.
pub(crate) fn wait_of_seconds(seconds: f64) -> Duration {
    let seconds = seconds.clamp(MIN_RETRY_AFTER.as_secs_f64(), MAX_RETRY_AFTER.as_secs_f64());
    Duration::try_from_secs_f64(seconds).unwrap_or(MIN_RETRY_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_a_wait_of_at_most_an_hour() {
        for (seconds, wait) in [
            (1.5, Duration::from_millis(1500)),
            (-3.0, MIN_RETRY_AFTER),
            (f64::NAN, MIN_RETRY_AFTER),
            (f64::INFINITY, MAX_RETRY_AFTER),
            (1e30, MAX_RETRY_AFTER),
        ] {
            assert_eq!(wait_of_seconds(seconds), wait, "{seconds}");
        }
    }
}
