//! Days and months as people count them.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};

/// From its start up to, not including, its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Period {
    pub start: Timestamp,
    pub end: Timestamp,
}

impl Period {
    /// The day that it is; 23 or 25 hours long where a clock is changed.
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
        // A clock that was set back over midnight: the moment belongs to the day that it says.
        Self {
            start: start.min(now),
            end: end.max(now.saturating_add(SignedDuration::from_secs(1)).unwrap_or(end)),
        }
    }
}
