//! Times as people say them: `3m 5s ago`, `in 2h 10m`.

use jiff::{SignedDuration, SpanRound, Timestamp, Unit};

/// `in 2h 10m`: two units are enough to plan by. What is due already is due `now`.
pub(super) fn in_words(from: Timestamp, at: Timestamp) -> String {
    match words(at.duration_since(from)) {
        Some(words) if at > from && words != NOTHING => format!("in {words}"),
        _ => "now".to_owned(),
    }
}

/// Before or after now, whichever it is.
pub(super) fn from_now(now: Timestamp, at: Timestamp) -> String {
    if at > now {
        return in_words(now, at);
    }
    match words(now.duration_since(at)) {
        Some(words) if words != NOTHING => format!("{words} ago"),
        _ => "just now".to_owned(),
    }
}

/// How no time at all is written.
const NOTHING: &str = "0s";

pub(super) fn seconds(count: u64) -> String {
    words(SignedDuration::from_secs(count.try_into().unwrap_or(i64::MAX))).unwrap_or_default()
}

fn words(duration: SignedDuration) -> Option<String> {
    let smallest = match duration.as_secs() {
        86_400.. => Unit::Hour,
        3_600..86_400 => Unit::Minute,
        _ => Unit::Second,
    };
    let round = SpanRound::new().largest(Unit::Day).smallest(smallest).days_are_24_hours();
    let span = jiff::Span::try_from(duration).ok()?.round(round).ok()?;
    Some(format!("{span:#}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_units_before_and_after() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let at = |seconds: i64| now + SignedDuration::from_secs(seconds);
        assert_eq!(from_now(now, at(-65)), "1m 5s ago");
        assert_eq!(from_now(now, at(90_061)), "in 1d 1h");
        assert_eq!(from_now(now, now), "just now");
        assert_eq!(from_now(now, now + SignedDuration::from_millis(300)), "now");
        assert_eq!(in_words(now, at(-3)), "now");
        assert_eq!(in_words(now, at(3)), "in 3s");
        assert_eq!(seconds(3_725), "1h 2m");
    }
}
