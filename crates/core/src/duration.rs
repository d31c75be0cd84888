//! Formatting of durations: `3m 5s`, `in 2h 10m`, `1d 1h ago`. The script of the dashboard repeats these rules, because
//! it keeps the times of an open page current. Both are tested with `tests/durations.json`.

use jiff::{SignedDuration, Span, SpanRound, Timestamp, Unit};

/// Formats a duration with at most two units, rounded: `59s`, `1m 5s`, `2h`, `1d 1h`. A duration that is negative, or
/// too long for a [`Span`], becomes `0s`.
pub fn rounded(duration: SignedDuration) -> String {
    let smallest = match duration.as_secs() {
        86_400.. => Unit::Hour,
        3_600..86_400 => Unit::Minute,
        _ => Unit::Second,
    };
    let round = SpanRound::new().largest(Unit::Day).smallest(smallest).days_are_24_hours();
    let span = Span::try_from(duration.max(SignedDuration::ZERO)).and_then(|span| span.round(round));
    span.map_or_else(|_| ZERO.to_owned(), |span| format!("{span:#}"))
}

/// Formats a limit without rounding: `1h 30m 5s`, `1s 500ms`.
pub fn exact(limit: impl TryInto<SignedDuration>) -> String {
    format!("{:#}", limit.try_into().unwrap_or(SignedDuration::MAX))
}

/// Formats a number of seconds as [`rounded`] does.
pub fn rounded_from_seconds(count: u64) -> String {
    rounded(SignedDuration::from_secs(count.try_into().unwrap_or(i64::MAX)))
}

/// Formats the time until `at`: `in 2h 10m`, or `now` if `at` has passed or is less than half a second away.
pub fn until(now: Timestamp, at: Timestamp) -> String {
    match rounded(at.duration_since(now)) {
        words if words == ZERO => "now".to_owned(),
        words => format!("in {words}"),
    }
}

/// Formats `at` relative to now: `3m 5s ago` or `just now`, or as [`until`] does if `at` is in the future.
pub fn relative_to_now(now: Timestamp, at: Timestamp) -> String {
    if at > now {
        return until(now, at);
    }
    match rounded(now.duration_since(at)) {
        words if words == ZERO => "just now".to_owned(),
        words => format!("{words} ago"),
    }
}

const ZERO: &str = "0s";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_written_with_at_most_two_units() {
        let cases = include_str!("../../../tests/durations.json");
        let cases: Vec<(i64, String)> = serde_json::from_str(cases).unwrap();
        for (milliseconds, expected) in cases {
            assert_eq!(rounded(SignedDuration::from_millis(milliseconds)), expected, "{milliseconds}");
        }
        assert_eq!(rounded(SignedDuration::from_secs(-5)), "0s");
        assert_eq!(rounded_from_seconds(3_725), "1h 2m");
        assert_eq!(exact(SignedDuration::from_millis(3_725_500)), "1h 2m 5s 500ms");
        assert_eq!(exact(std::time::Duration::from_mins(1)), "1m");
    }

    #[test]
    fn times_are_written_relative_to_now() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let at = |milliseconds: i64| now + SignedDuration::from_millis(milliseconds);
        assert_eq!(relative_to_now(now, at(-65_000)), "1m 5s ago");
        assert_eq!(relative_to_now(now, at(90_061_000)), "in 1d 1h");
        assert_eq!(relative_to_now(now, now), "just now");
        assert_eq!(relative_to_now(now, at(300)), "now");
        assert_eq!(until(now, at(-3_000)), "now");
        assert_eq!(until(now, at(3_000)), "in 3s");
    }
}
