//! Cron expressions: their firing times in every time zone, including changes of the clock.
//!
//! The crate croner parses the expression and walks the *civil* calendar. This module converts these civil times to
//! instants. A change of the clock makes a *gap* (civil times that do not exist) or a *fold* (civil times that exist
//! twice). The rules are those of Vixie cron, except that a range such as `1-5` is a recurring time here:
//!
//! - A **fixed** time (`30 2`, `0 9,17`: only numbers and lists in seconds, minutes and hours) fires once on each day
//!   of the expression, even if the clock is changed. A time inside a gap fires at the end of the gap; several times
//!   inside the same gap fire once, together. A time inside a fold fires only the first time that the clock shows it.
//! - A **recurring** time (`*/30 * * * *`, `0 1-5 * * *`) fires whenever the wall clock shows it. So a time inside a
//!   gap does not fire, and a time inside a fold fires twice.

mod pattern;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};
use jiff::{Timestamp, ToSpan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use pattern::{MAX_EXPRESSION, Pattern, ValidText};

/// A parsed expression with its original text.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("format" = "cron", "examples" = ["0 9 * * MON-FRI", "*/5 * * * *", "@daily"]))]
pub struct Cron {
    text: Arc<str>,
    fixed: bool,
}

impl Cron {
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the first firing strictly after `after`; none if croner finds none up to the year 5000.
    pub fn next_after(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        if self.fixed { self.next_fixed(after, zone) } else { self.next_recurring(after, zone) }
    }

    /// Returns the last firing strictly before `before`; none if croner finds none from the year 1 on.
    pub fn previous_before(&self, before: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let before = whole_second_up(before)?;
        if self.fixed { self.previous_fixed(before, zone) } else { self.previous_recurring(before, zone) }
    }

    fn next_fixed(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let pattern = Pattern::of(&self.text)?;
        let mut civil = zone.to_datetime(after);
        loop {
            civil = pattern.find_next_occurrence(&civil, false).ok()?;
            // In the second half of a fold, the clock repeats times that have already fired.
            if let Some(instant) = first_instant_of(civil, zone).filter(|instant| *instant > after) {
                return Some(instant);
            }
        }
    }

    fn previous_fixed(&self, before: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let pattern = Pattern::of(&self.text)?;
        let mut civil = zone.to_datetime(before);
        // After a fold, the clock shows times that it has shown before. Begin at the latest time that it has shown.
        if let Some(change) = zone.preceding(before).next() {
            let old_offset = offset_until(change.timestamp(), zone)?;
            civil = civil.max(old_offset.to_datetime(change.timestamp()));
        }
        loop {
            civil = pattern.find_previous_occurrence(&civil, false).ok()?;
            if let Some(instant) = first_instant_of(civil, zone).filter(|instant| *instant < before) {
                return Some(instant);
            }
        }
    }

    /// Searches the periods of constant offset one by one.
    fn next_recurring(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let pattern = Pattern::of(&self.text)?;
        let (mut from, mut inclusive) = (after, false);
        loop {
            let offset = zone.to_offset(from);
            let civil = pattern.find_next_occurrence(&offset.to_datetime(from), inclusive).ok()?;
            let instant = offset.to_timestamp(civil).ok()?;
            match zone.following(from).next() {
                Some(change) if change.timestamp() <= instant => {
                    (from, inclusive) = (change.timestamp(), true);
                }
                _ => return Some(instant),
            }
        }
    }

    fn previous_recurring(&self, before: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let pattern = Pattern::of(&self.text)?;
        let mut until = before;
        loop {
            let offset = offset_until(until, zone)?;
            let civil = pattern.find_previous_occurrence(&offset.to_datetime(until), false).ok()?;
            let instant = offset.to_timestamp(civil).ok()?;
            match zone.preceding(until).next() {
                Some(change) if change.timestamp() > instant => until = change.timestamp(),
                _ => return Some(instant),
            }
        }
    }
}

/// Returns the instant at which a fixed civil time fires; none beyond the ends of the calendar.
fn first_instant_of(civil: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    match zone.to_ambiguous_timestamp(civil).offset() {
        AmbiguousOffset::Unambiguous { offset } | AmbiguousOffset::Fold { before: offset, .. } => {
            offset.to_timestamp(civil).ok()
        }
        // The gap ends at a change of offset. With the offset that applies after the gap, the civil time is an instant
        // before the gap. The end of the gap is the first change of offset after that instant.
        AmbiguousOffset::Gap { after, .. } => {
            let before_gap = after.to_timestamp(civil).ok()?;
            Some(zone.following(before_gap).next()?.timestamp())
        }
    }
}

/// Returns the offset in force just before an instant.
fn offset_until(instant: Timestamp, zone: &TimeZone) -> Option<Offset> {
    Some(zone.to_offset(instant.checked_sub(1.nanosecond()).ok()?))
}

fn whole_second_up(instant: Timestamp) -> Option<Timestamp> {
    let more = i64::from(instant.subsec_nanosecond() > 0);
    Timestamp::from_second(instant.as_second() + more).ok()
}

impl FromStr for Cron {
    type Err = CronError;

    fn from_str(text: &str) -> Result<Self, CronError> {
        let ValidText { text, fixed } = ValidText::of(text.trim())?;
        Ok(Self { text, fixed })
    }
}

/// Names and ranges of the fields, as [`CronError::Field`] states them.
const CRON_FIELDS: [(&str, &str); 6] = [
    ("second", "0-59"),
    ("minute", "0-59"),
    ("hour", "0-23"),
    ("day of month", "1-31 or L, 15W, LW"),
    ("month", "1-12 or JAN-DEC"),
    ("day of week", "0-7 or SUN-SAT, 5L, FRI#2"),
];

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    #[error("cron expression is empty; for example \"0 9 * * MON-FRI\" is 9:00 on weekdays")]
    Empty,
    #[error("cron expression is longer than {MAX_EXPRESSION} bytes")]
    TooLong,
    #[error(
        "cron expression has {}; expected 5 (minute hour day month weekday) or 6 (with leading seconds)",
        if *.0 == 1 { "1 field".to_owned() } else { format!("{} fields", .0) }
    )]
    FieldCount(usize),
    #[error(
        "invalid {name} {value:?} in cron expression; expected {range}, lists (1,2), ranges (1-5) or steps (*/5)"
    )]
    Field { name: &'static str, value: String, range: &'static str },
    #[error(
        "unknown cron shorthand {0:?}; known are @hourly @daily @midnight @weekly @monthly @yearly @annually"
    )]
    Shorthand(String),
    #[error("cron expression {0:?} can never match a date")]
    NeverMatches(String),
    #[error("invalid cron expression: {0}")]
    Other(String),
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cron({:?})", self.text)
    }
}

impl fmt::Display for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for Cron {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Cron {}

impl From<Cron> for String {
    fn from(cron: Cron) -> Self {
        cron.text.to_string()
    }
}

impl TryFrom<String> for Cron {
    type Error = CronError;

    fn try_from(text: String) -> Result<Self, CronError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(expression: &str, zone: &str, from: &str, count: usize) -> Vec<String> {
        let cron: Cron = expression.parse().unwrap();
        let zone = TimeZone::get(zone).unwrap();
        let first: Timestamp = from.parse().unwrap();
        std::iter::successors(cron.next_after(first, &zone), |at| cron.next_after(*at, &zone))
            .take(count)
            .map(|at| at.to_string())
            .collect()
    }

    #[test]
    fn next_firings() {
        for (expression, zone, from, expected) in [
            ("*/5 * * * *", "UTC", "2026-01-01T00:00:00Z", ["2026-01-01T00:05:00Z", "2026-01-01T00:10:00Z"]),
            (
                "*/5 * * * *",
                "UTC",
                "2026-01-01T00:04:59.5Z",
                ["2026-01-01T00:05:00Z", "2026-01-01T00:10:00Z"],
            ),
            (
                "0 9 * * MON-FRI",
                "UTC",
                "2026-01-02T10:00:00Z",
                ["2026-01-05T09:00:00Z", "2026-01-06T09:00:00Z"],
            ),
            (
                "*/20 * * * * *",
                "UTC",
                "2026-01-01T00:00:00Z",
                ["2026-01-01T00:00:20Z", "2026-01-01T00:00:40Z"],
            ),
            ("0 0 29 2 *", "UTC", "2096-03-01T00:00:00Z", ["2104-02-29T00:00:00Z", "2108-02-29T00:00:00Z"]),
            ("0 0 13 * 5", "UTC", "2026-01-01T00:00:00Z", ["2026-01-02T00:00:00Z", "2026-01-09T00:00:00Z"]),
            ("0 12 * * 7", "UTC", "2026-01-01T00:00:00Z", ["2026-01-04T12:00:00Z", "2026-01-11T12:00:00Z"]),
            ("0 0 L * *", "UTC", "2026-01-01T00:00:00Z", ["2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z"]),
            ("0 0 15W * *", "UTC", "2026-02-01T00:00:00Z", ["2026-02-16T00:00:00Z", "2026-03-16T00:00:00Z"]),
            ("0 0 * * 5#2", "UTC", "2026-01-01T00:00:00Z", ["2026-01-09T00:00:00Z", "2026-02-13T00:00:00Z"]),
            ("0 0 * * FRIL", "UTC", "2026-01-01T00:00:00Z", ["2026-01-30T00:00:00Z", "2026-02-27T00:00:00Z"]),
            ("5/15 * * * *", "UTC", "2026-01-01T00:00:00Z", ["2026-01-01T00:05:00Z", "2026-01-01T00:20:00Z"]),
            (
                "0 9 * * *",
                "Asia/Kathmandu",
                "2026-01-01T00:00:00Z",
                ["2026-01-01T03:15:00Z", "2026-01-02T03:15:00Z"],
            ),
        ] {
            assert_eq!(next(expression, zone, from, 2), expected, "{expression} {zone}");
        }
    }

    /// The expressions in the documents on which `tests/seeds.md` is based. 1 January 2026 is a Thursday.
    #[test]
    fn documented_expressions_fire_at_the_documented_times() {
        for (expression, first, second) in [
            ("0 9 * * *", "2026-01-01T09:00:00Z", "2026-01-02T09:00:00Z"),
            ("0 8 * * *", "2026-01-01T08:00:00Z", "2026-01-02T08:00:00Z"),
            ("0 9 * * 1-5", "2026-01-01T09:00:00Z", "2026-01-02T09:00:00Z"),
            ("0 * * * *", "2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"),
            ("0 10 * * 1", "2026-01-05T10:00:00Z", "2026-01-12T10:00:00Z"),
            ("0 0 * * 0", "2026-01-04T00:00:00Z", "2026-01-11T00:00:00Z"),
            ("0 9 1 * *", "2026-01-01T09:00:00Z", "2026-02-01T09:00:00Z"),
            ("0 0 1 1 *", "2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"),
        ] {
            assert_eq!(next(expression, "UTC", "2026-01-01T00:00:00Z", 2), [first, second], "{expression}");
        }
        let after_friday = next("0 9 * * 1-5", "UTC", "2026-01-02T09:00:00Z", 1);
        assert_eq!(after_friday, ["2026-01-05T09:00:00Z"]);
    }

    #[test]
    fn clock_changes() {
        for (case, expression, zone, from, expected) in [
            (
                "gap: at its end",
                "30 2 * * *",
                "Europe/Berlin",
                "2026-03-28T12:00:00Z",
                ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
            ),
            (
                "gap: a list of fixed times is fixed",
                "15,30 2,14 * * *",
                "Europe/Berlin",
                "2026-03-28T13:30:00Z",
                ["2026-03-29T01:00:00Z", "2026-03-29T12:15:00Z"],
            ),
            (
                "gap at midnight",
                "0 0 * * *",
                "America/Havana",
                "2026-03-07T12:00:00Z",
                ["2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z"],
            ),
            (
                "gap of half an hour",
                "15 2 * * *",
                "Australia/Lord_Howe",
                "2026-10-03T12:00:00Z",
                ["2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"],
            ),
            (
                "fold: the first time only",
                "30 2 * * *",
                "Europe/Berlin",
                "2026-10-24T12:00:00Z",
                ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"],
            ),
            (
                "fold: search from a time between the two",
                "30 2 * * *",
                "Europe/Berlin",
                "2026-10-25T01:00:00Z",
                ["2026-10-26T01:30:00Z", "2026-10-27T01:30:00Z"],
            ),
            (
                "gap: steps follow elapsed time",
                "*/30 * * * *",
                "Europe/Berlin",
                "2026-03-29T00:30:00Z",
                ["2026-03-29T01:00:00Z", "2026-03-29T01:30:00Z"],
            ),
            (
                "gap: a range is recurring",
                "22 0-5 * * *",
                "Europe/Berlin",
                "2026-03-29T00:22:00Z",
                ["2026-03-29T01:22:00Z", "2026-03-29T02:22:00Z"],
            ),
            (
                "fold: steps fire both times",
                "*/30 * * * *",
                "America/New_York",
                "2026-11-01T05:15:00Z",
                ["2026-11-01T05:30:00Z", "2026-11-01T06:00:00Z"],
            ),
            (
                "fixed time on a day that the time zone skipped",
                "0 12 30 12 *",
                "Pacific/Apia",
                "2011-12-01T00:00:00Z",
                ["2011-12-30T10:00:00Z", "2012-12-29T22:00:00Z"],
            ),
            (
                "steps on a day that the time zone skipped",
                "*/30 12 30 12 *",
                "Pacific/Apia",
                "2011-12-01T00:00:00Z",
                ["2012-12-29T22:00:00Z", "2012-12-29T22:30:00Z"],
            ),
        ] {
            assert_eq!(next(expression, zone, from, 2), expected, "{case}");
        }
    }

    /// In time zones with unusual clock changes, a search backwards gives exactly the firings that a search forwards
    /// gives, for 1000 firings of each expression.
    #[test]
    fn previous_mirrors_next() {
        for zone in [
            "Europe/Berlin",
            "America/New_York",
            "Australia/Lord_Howe",
            "Africa/Casablanca",
            "America/Havana",
        ] {
            let zone = TimeZone::get(zone).unwrap();
            for expression in ["30 2 * * *", "*/30 1-3 * * *", "0 0 * * *", "15,45 1,2 * * *", "59 23 L * *"]
            {
                let cron: Cron = expression.parse().unwrap();
                let mut at: Timestamp = "2025-01-01T00:00:00Z".parse().unwrap();
                for _ in 0..1_000 {
                    let next = cron.next_after(at, &zone).unwrap();
                    assert!(next > at);
                    let between = next.checked_sub(1.millisecond()).unwrap();
                    assert_eq!(cron.next_after(between, &zone), Some(next), "{expression} {zone:?}");
                    assert_eq!(
                        cron.previous_before(next.checked_add(1.millisecond()).unwrap(), &zone),
                        Some(next)
                    );
                    let back = cron.previous_before(next, &zone).unwrap();
                    assert_eq!(cron.next_after(back, &zone), Some(next), "{expression} {zone:?} {back} {at}");
                    at = next;
                }
            }
        }
    }

    #[test]
    fn refusals_name_the_field() {
        for (text, message) in [
            ("", "cron expression is empty"),
            ("often", "has 1 field;"),
            ("* * *", "has 3 fields"),
            ("* * * * * * *", "has 7 fields"),
            ("60 * * * *", "invalid minute \"60\""),
            ("0 25 * * *", "invalid hour \"25\""),
            ("0 0 0 * *", "invalid day of month \"0\""),
            ("0 0 * FOO *", "invalid month \"FOO\""),
            ("0 0 * * 9", "invalid day of week \"9\""),
            ("61 0 0 * * *", "invalid second \"61\""),
            ("5-2 * * * *", "invalid minute \"5-2\""),
            ("*/0 * * * *", "invalid minute \"*/0\""),
            ("@reboot", "unknown cron shorthand \"@reboot\""),
            ("0 0 30 2 *", "can never match"),
            ("0 0 31 4,6,9,11 *", "can never match"),
        ] {
            let error = text.parse::<Cron>().unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
        assert_eq!("1 ".repeat(600).parse::<Cron>(), Err(CronError::TooLong));
    }

    #[test]
    fn shorthands_are_accepted_in_any_case() {
        for (short, long) in [
            ("@hourly", "0 * * * *"),
            ("@Daily", "0 0 * * *"),
            ("@midnight", "0 0 * * *"),
            ("@weekly", "0 0 * * SUN"),
            ("@monthly", "0 0 1 * *"),
            ("@yearly", "0 0 1 jan *"),
            ("@annually", "0 0 1 1 *"),
        ] {
            let from = "2026-05-05T05:05:05Z";
            assert_eq!(next(short, "UTC", from, 5), next(long, "UTC", from, 5), "{short}");
        }
    }
}
