//! Times as people say them: `3m 5s ago`, `in 2h 10m`.

use jiff::{SignedDuration, SpanRound, Timestamp, Unit};

/// Two units are enough to plan by.
pub(super) fn in_words(from: Timestamp, at: Timestamp) -> String {
    words(at.duration_since(from)).map_or_else(String::new, |words| format!("in {words}"))
}

/// Before or after now, whichever it is.
pub(super) fn from_now(now: Timestamp, at: Timestamp) -> String {
    if at > now {
        return in_words(now, at);
    }
    words(now.duration_since(at)).map_or_else(String::new, |words| format!("{words} ago"))
}

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
        assert_eq!(from_now(now, now), "0s ago");
        assert_eq!(seconds(3_725), "1h 2m");
    }
}
