//! Rules that decide which requests are retried, and after which delay.

use std::time::Duration;

use crate::error::github::{ApiFailure, GitHubApiError};

/// Retry limits of one call.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryOptions {
    pub max_retries: u32,
    pub base_delay: Duration,
    /// Maximum length of one wait inside a call. If a rate limit lasts longer, the call fails.
    pub max_delay: Duration,
    /// Largest random part that is added to a delay, as a fraction of the delay. It prevents clients that failed
    /// together from retrying together.
    pub jitter_factor: f64,
}

impl Default for RetryOptions {
    fn default() -> Self {
        Self {
            max_retries: 3,
            base_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(30),
            jitter_factor: 0.1,
        }
    }
}

/// Returns `base_delay * 2^attempt` plus a random part. The sum is cut to `max_delay`. `random` is between 0 and 1.
/// `attempt` is 0 for the first retry.
pub fn calculate_backoff_delay(attempt: u32, options: &RetryOptions, random: f64) -> Duration {
    let doubled = options.base_delay.as_secs_f64() * 2f64.powi(attempt.min(62).cast_signed());
    let jitter = doubled * options.jitter_factor * random;
    let capped = (doubled + jitter).min(options.max_delay.as_secs_f64());
    Duration::try_from_secs_f64(capped).unwrap_or(options.max_delay)
}

/// Whether a request can be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// The request has the same effect if it is sent twice.
    Safe,
    /// A second request would have a second effect. GitHub may have carried out the first although no answer arrived,
    /// so the caller has to check this before it repeats the request.
    CheckFirst,
}

/// Returns the wait before the request is sent again; `None` if it is not sent again.
pub(super) fn next_delay(
    error: &GitHubApiError,
    attempt: u32,
    repeat: Repeat,
    options: &RetryOptions,
    random: f64,
) -> Option<Duration> {
    if attempt >= options.max_retries {
        return None;
    }
    let backoff = calculate_backoff_delay(attempt, options, random);
    match error.kind {
        // A refused request had no effect, so any request can be sent again.
        ApiFailure::RateLimit { wait, .. } => {
            let wait = wait.unwrap_or(backoff);
            (wait <= options.max_delay).then_some(wait)
        }
        ApiFailure::Network | ApiFailure::Status if error.is_retryable() => {
            (repeat == Repeat::Safe).then_some(backoff)
        }
        ApiFailure::Network | ApiFailure::Status | ApiFailure::Unreadable => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_and_are_capped() {
        let options = RetryOptions::default();
        for (attempt, random, milliseconds) in [
            (0, 0.0, 1000),
            (0, 1.0, 1100),
            (1, 0.0, 2000),
            (1, 0.5, 2100),
            (2, 0.0, 4000),
            (4, 1.0, 17_600),
            (5, 0.0, 30_000),
            (9, 1.0, 30_000),
            (u32::MAX, 1.0, 30_000),
        ] {
            let delay = calculate_backoff_delay(attempt, &options, random);
            assert_eq!(delay, Duration::from_millis(milliseconds), "{attempt} {random}");
        }
        let still = RetryOptions { base_delay: Duration::ZERO, ..options };
        assert_eq!(calculate_backoff_delay(7, &still, 1.0), Duration::ZERO);
    }

    /// The table of document 000 (`tests/seeds.md`), for requests that may be repeated and for requests that need a
    /// check first.
    #[test]
    fn failure_and_request_decide_about_a_retry() {
        let options = RetryOptions::default();
        let backoff = Some(Duration::from_secs(1));
        let limited =
            |seconds| ApiFailure::RateLimit { wait: Some(Duration::from_secs(seconds)), ends: None };
        for (kind, status, safe, check_first) in [
            (limited(5), Some(403), Some(Duration::from_secs(5)), Some(Duration::from_secs(5))),
            (limited(30), Some(429), Some(Duration::from_secs(30)), Some(Duration::from_secs(30))),
            (limited(31), Some(403), None, None),
            (ApiFailure::RateLimit { wait: None, ends: None }, Some(429), backoff, backoff),
            (ApiFailure::Network, None, backoff, None),
            (ApiFailure::Status, Some(500), backoff, None),
            (ApiFailure::Status, Some(502), backoff, None),
            (ApiFailure::Status, Some(503), backoff, None),
            (ApiFailure::Status, Some(408), backoff, None),
            (ApiFailure::Status, Some(404), None, None),
            (ApiFailure::Status, Some(403), None, None),
            (ApiFailure::Status, Some(401), None, None),
            (ApiFailure::Status, Some(410), None, None),
            (ApiFailure::Status, Some(422), None, None),
            (ApiFailure::Unreadable, Some(200), None, None),
        ] {
            let error = GitHubApiError {
                status,
                endpoint: "GET /x".into(),
                message: String::new(),
                rate_limit: None,
                kind,
                token: Box::default(),
            };
            let delay = |repeat, attempt| next_delay(&error, attempt, repeat, &options, 0.0);
            assert_eq!(delay(Repeat::Safe, 0), safe, "{error:?}");
            assert_eq!(delay(Repeat::CheckFirst, 0), check_first, "{error:?}");
            assert_eq!(delay(Repeat::Safe, 3), None, "there is no fourth retry");
        }
    }
}
