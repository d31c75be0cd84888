//! Calendar days and months in a time zone.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};

/// A time span, from its start (inclusive) to its end (exclusive).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    pub start: Timestamp,
    pub end: Timestamp,
}

impl Period {
    /// Returns the day that contains `now`. If the zone changes its clock on that day, the day is shorter or longer
    /// than 24 hours.
    pub fn day(now: Timestamp, zone: &TimeZone) -> Self {
        let today = zone.to_datetime(now).date();
        Self::between(today, today.saturating_add(1.day()), zone, now)
    }

    pub fn month(now: Timestamp, zone: &TimeZone) -> Self {
        let first = zone.to_datetime(now).date().first_of_month();
        Self::between(first, first.saturating_add(1.month()), zone, now)
    }

    fn between(first: Date, next: Date, zone: &TimeZone, now: Timestamp) -> Self {
        let begin = |date: Date| date.to_zoned(zone.clone()).map(|start| start.timestamp());
        let (start, end) = (begin(first).unwrap_or(now), begin(next).unwrap_or(Timestamp::MAX));
        // If the time zone sets the clock back over midnight, `now` can lie outside these bounds. Extend them, so that
        // `now` belongs to the day that the clock shows.
        Self {
            start: start.min(now),
            end: end.max(now.saturating_add(SignedDuration::from_secs(1)).unwrap_or(end)),
        }
    }
}
