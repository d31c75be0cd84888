//! Rate limits, as the headers and messages of GitHub state them.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use reqwest::header::{HeaderMap, RETRY_AFTER};

use crate::quota::RateLimitInfo;

/// Reads the rate limit headers. Returns `None` if one of the numbers is missing or invalid. A missing resource means
/// `core`.
pub fn extract_rate_limit_info(headers: &HeaderMap) -> Option<RateLimitInfo> {
    let resource = headers.get("x-ratelimit-resource").and_then(|value| value.to_str().ok());
    Some(RateLimitInfo {
        limit: number(headers, "x-ratelimit-limit")?,
        remaining: number(headers, "x-ratelimit-remaining")?,
        reset: reset(headers)?,
        resource: resource.unwrap_or("core").to_owned(),
    })
}

fn number(headers: &HeaderMap, name: &str) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

fn reset(headers: &HeaderMap) -> Option<Timestamp> {
    Timestamp::from_second(i64::try_from(number(headers, "x-ratelimit-reset")?).ok()?).ok()
}

/// Kind of rate limit that an answer reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RateLimitKind {
    /// No requests are left in the current period, which ends at `reset`.
    Primary { reset: Timestamp },
    /// A secondary limit. `wait` is the time that GitHub states, or [`SECONDARY_LIMIT_WAIT`].
    Secondary { wait: Duration },
    /// Status 429 without a time.
    Unnamed,
}

/// Wait that GitHub's documentation requires when a secondary limit states no time.
const SECONDARY_LIMIT_WAIT: Duration = Duration::from_mins(1);
/// Additional wait after a reset, because GitHub's clock and its counters do not change in the same instant.
const RESET_MARGIN: Duration = Duration::from_secs(1);

impl RateLimitKind {
    /// Reads the rate limit from an answer. `message` is the message in the body.
    pub(super) fn of(status: u16, headers: &HeaderMap, message: &str) -> Option<Self> {
        if !matches!(status, 403 | 429) {
            return None;
        }
        let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        if let Some(seconds) = seconds {
            return Some(Self::Secondary { wait: Duration::from_secs(seconds) });
        }
        // The header `x-ratelimit-limit` is not needed here, and a proxy may leave it out.
        if let (Some(0), Some(reset)) = (number(headers, "x-ratelimit-remaining"), reset(headers)) {
            return Some(Self::Primary { reset });
        }
        let message = message.to_ascii_lowercase();
        if message.contains("secondary rate limit") || message.contains("abuse detection") {
            return Some(Self::Secondary { wait: SECONDARY_LIMIT_WAIT });
        }
        (status == 429).then_some(Self::Unnamed)
    }

    /// Returns the time to wait; `None` if it is not known. `now` is GitHub's time.
    pub(super) fn wait(self, now: Timestamp) -> Option<Duration> {
        match self {
            Self::Primary { reset } => {
                let left = reset.duration_since(now).max(SignedDuration::ZERO);
                Some(Duration::try_from(left).unwrap_or_default() + RESET_MARGIN)
            }
            Self::Secondary { wait } => Some(wait),
            Self::Unnamed => None,
        }
    }
}

/// Returns true if the status, headers and message of an answer report a rate limit.
pub fn is_rate_limit_response(status: u16, headers: &HeaderMap, message: &str) -> bool {
    RateLimitKind::of(status, headers, message).is_some()
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
        pairs.iter().map(pair).collect()
    }

    const USED_UP: [(&str, &str); 3] =
        [("x-ratelimit-limit", "5000"), ("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1700000000")];
    const LEFT: [(&str, &str); 4] = [
        ("x-ratelimit-limit", "5000"),
        ("x-ratelimit-remaining", "41"),
        ("x-ratelimit-reset", "1700000000"),
        ("x-ratelimit-resource", "search"),
    ];

    #[test]
    fn incomplete_rate_limit_headers_are_ignored() {
        let info = extract_rate_limit_info(&headers(&LEFT)).unwrap();
        assert_eq!((info.limit, info.remaining, info.reset.as_second()), (5000, 41, 1_700_000_000));
        assert_eq!(info.resource, "search");
        assert_eq!(extract_rate_limit_info(&headers(&USED_UP)).unwrap().resource, "core");
        for broken in [
            &[][..],
            &LEFT[1..],
            &LEFT[..2],
            &[("x-ratelimit-limit", "many"), LEFT[1], LEFT[2]],
            &[LEFT[0], ("x-ratelimit-remaining", "-1"), LEFT[2]],
            &[LEFT[0], LEFT[1], ("x-ratelimit-reset", "99999999999999999999")],
            &[LEFT[0], LEFT[1], ("x-ratelimit-reset", "9999999999999999")],
        ] {
            assert_eq!(extract_rate_limit_info(&headers(broken)), None, "{broken:?}");
        }
    }

    #[test]
    fn rate_limit_answers_are_recognized_with_their_wait() {
        let now = Timestamp::from_second(1_699_999_990).unwrap();
        let seconds = |seconds| Some(Some(Duration::from_secs(seconds)));
        for (status, pairs, message, wait) in [
            (403, &USED_UP[..], "API rate limit exceeded", seconds(11)),
            (429, &USED_UP, "", seconds(11)),
            (403, &USED_UP[1..], "API rate limit exceeded", seconds(11)),
            (403, &[("retry-after", "7")], "", seconds(7)),
            (429, &[("retry-after", " 7 ")], "", seconds(7)),
            (403, &LEFT, "You have exceeded a secondary rate limit.", seconds(60)),
            (403, &[], "You have triggered an abuse detection mechanism.", seconds(60)),
            (429, &LEFT, "", Some(None)),
            (429, &[("retry-after", "Wed, 21 Oct 2026 07:28:00 GMT")], "", Some(None)),
            (403, &LEFT, "Resource not accessible by integration", None),
            (403, &[], "", None),
            (404, &USED_UP, "secondary rate limit", None),
            (200, &USED_UP, "", None),
            (500, &[("retry-after", "7")], "", None),
        ] {
            let found = RateLimitKind::of(status, &headers(pairs), message);
            assert_eq!(found.map(|limit| limit.wait(now)), wait, "{status} {pairs:?} {message}");
            assert_eq!(is_rate_limit_response(status, &headers(pairs), message), wait.is_some());
        }
        let past = RateLimitKind::Primary { reset: now - SignedDuration::from_hours(1) };
        assert_eq!(past.wait(now), Some(Duration::from_secs(1)));
    }
}
