//! Timing policies of a schedule: jitter, missed firings, overlapping firings, retries, time limits, and the hours in
//! which it may fire.

mod jitter;

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, LazyLock};

use jiff::civil::{Date, Time, Weekday};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::backoff::Backoff;
use crate::interval::{Interval, IntervalError};
pub use jitter::Jitter;

/// Policy for firings whose time passed while no daemon could fire them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Misfire {
    /// Run once for all missed firings.
    #[default]
    RunOnce,
    /// Run none of them and wait for the next firing.
    Skip,
    /// Run each of them, oldest first, at most 100.
    RunAll,
}

impl Misfire {
    /// Returns the name in the config.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RunOnce => "run_once",
            Self::Skip => "skip",
            Self::RunAll => "run_all",
        }
    }
}

pub const MAX_MISFIRES: usize = 100;

/// Policy for a due `interval` or `cron` firing while an earlier job of its schedule has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    #[default]
    Skip,
    Queue,
    CancelPrevious,
    Allow,
}

/// Policy for another attempt after a failed one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Retry {
    /// Maximum number of attempts of a job.
    #[schemars(range(min = 1, max = 100))]
    pub max_attempts: u32,
    /// Wait before the second attempt; it doubles with each further attempt, up to a day.
    pub backoff: Interval,
    /// Exit reasons and error kinds after which a job is retried.
    #[schemars(extend("items" = { "type": "string", "enum": RETRY_WORDS }))]
    pub on: Vec<String>,
}

/// All exit reasons and error kinds of a failed attempt.
const RETRY_WORDS: [&str; 11] = [
    "error",
    "timeout",
    "max_turns",
    "reported",
    "start_failed",
    "exit",
    "signal",
    "idle",
    "rate_limited",
    "budget",
    "lost",
];

impl Default for Retry {
    fn default() -> Self {
        let on = ["error", "timeout", "rate_limited"].map(str::to_owned).to_vec();
        Self { max_attempts: 1, backoff: Interval::seconds(30), on }
    }
}

impl Retry {
    /// Returns the default policy. All callers share one value.
    pub fn shared_default() -> Arc<Self> {
        static DEFAULT: LazyLock<Arc<Retry>> = LazyLock::new(Arc::default);
        Arc::clone(&DEFAULT)
    }

    /// Returns the wait before the attempt that follows attempt `ended` (from 1); none if no attempt follows. `reasons`
    /// are the names of the failure: the exit reason and, if known, the error kind.
    pub fn wait_after(&self, ended: u32, reasons: &[&str]) -> Option<SignedDuration> {
        const MAX_RETRY_WAIT: SignedDuration = SignedDuration::from_hours(24);
        // An attempt that was stopped for its budget also has the exit reason `error`. Retry it only if `budget` is
        // listed.
        let reasons = if reasons.contains(&"budget") { &["budget"] } else { reasons };
        let is_retried = self.on.iter().any(|on| reasons.contains(&on.as_str()));
        if !is_retried || ended >= self.max_attempts {
            return None;
        }
        Some(Backoff::doubling(self.backoff.duration(), MAX_RETRY_WAIT).after(ended))
    }
}

/// Maximum duration; `0` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("format" = "timeout", "examples" = ["1h", "90m", "0"]))]
pub struct Timeout(Option<Interval>);

impl Timeout {
    /// Default limit of one attempt.
    pub const ATTEMPT: Self = Self(Some(Interval::seconds(3_600)));
    /// Default limit of the setup command of a workspace.
    pub const SETUP: Self = Self(Some(Interval::seconds(600)));
    /// Default limit of an attempt's time without output.
    pub const IDLE: Self = Self(Some(Interval::seconds(900)));

    /// Returns the limit; none means no limit.
    pub fn duration(self) -> Option<SignedDuration> {
        self.0.map(Interval::duration)
    }
}

impl FromStr for Timeout {
    type Err = IntervalError;

    fn from_str(text: &str) -> Result<Self, IntervalError> {
        if text.trim() == "0" {
            return Ok(Self(None));
        }
        match text.parse() {
            Err(IntervalError::Zero) => Err(IntervalError::ZeroLimit),
            interval => interval.map(|interval| Self(Some(interval))),
        }
    }
}

impl fmt::Display for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(interval) => interval.fmt(f),
            None => f.write_str("0"),
        }
    }
}

impl From<Timeout> for String {
    fn from(timeout: Timeout) -> Self {
        timeout.to_string()
    }
}

impl TryFrom<String> for Timeout {
    type Error = IntervalError;

    fn try_from(text: String) -> Result<Self, IntervalError> {
        text.parse()
    }
}

/// Policies of one schedule; all have defaults.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Timing {
    /// Maximum delay of a firing, 0 to 10, in percent of the interval or, for cron, of the time to the next due time.
    /// Unset means 1 for intervals that several schedules share, and 0 for other intervals and for cron.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Jitter>,
    pub misfire: Misfire,
    /// Maximum lateness at which a missed firing still runs; unset means 24 h for `run_all` and no limit for
    /// `run_once`. With `skip`, no missed firing runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_lateness: Option<Interval>,
    pub overlap: Overlap,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_hours: Option<ActiveHours>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude_dates: Vec<Date>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_at: Option<Timestamp>,
}

impl Timing {
    /// Returns the maximum lateness at which a missed firing still runs; none means no limit.
    pub fn latest(&self) -> Option<SignedDuration> {
        const RUN_ALL_WITHIN: SignedDuration = SignedDuration::from_hours(24);
        let fallback = (self.misfire == Misfire::RunAll).then_some(RUN_ALL_WITHIN);
        self.max_lateness.map(Interval::duration).or(fallback)
    }

    /// Checks whether the calendar allows every firing, because none of its keys is set.
    pub const fn is_always_open(&self) -> bool {
        self.start_at.is_none()
            && self.end_at.is_none()
            && self.exclude_dates.is_empty()
            && self.active_hours.is_none()
    }

    /// Checks whether the calendar allows a firing due at `at`. `zone` is the zone of the schedule.
    pub fn allows(&self, at: Timestamp, zone: &TimeZone) -> bool {
        self.closed_by(at, zone).is_none()
    }

    /// Returns the key that prevents a firing due at `at`; none if the calendar allows it. `zone` is the zone of the
    /// schedule.
    pub fn closed_by(&self, at: Timestamp, zone: &TimeZone) -> Option<ClosedBy> {
        if let Some(start) = self.start_at.filter(|start| at < *start) {
            Some(ClosedBy::StartAt(start))
        } else if self.end_at.is_some_and(|end| at >= end) {
            Some(ClosedBy::EndAt)
        } else if self.exclude_dates.contains(&zone.to_datetime(at).date()) {
            Some(ClosedBy::ExcludeDates)
        } else {
            let outside = self.active_hours.as_ref().is_some_and(|hours| !hours.contain(at, zone));
            outside.then_some(ClosedBy::ActiveHours)
        }
    }

    /// Returns the first instant at or after `from` that the calendar allows; none if it never does again.
    pub fn next_allowed(&self, from: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let mut at = self.start_at.map_or(from, |start| start.max(from));
        // Each step moves to the next opening or midnight. A day has at most one of each, so the search covers at least
        // two years. If the calendar allows nothing in that time, the search ends without a result.
        for _ in 0..2 * 731 {
            if self.end_at.is_some_and(|end| at >= end) {
                return None;
            }
            if self.allows(at, zone) {
                return Some(at);
            }
            at = self.next_border(at, zone)?;
        }
        None
    }

    fn next_border(&self, at: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let opening = self.active_hours.as_ref().and_then(|hours| hours.next_opening(at, zone));
        let tomorrow = zone.to_datetime(at).date().tomorrow().ok()?;
        let midnight = zone.to_timestamp(tomorrow.at(0, 0, 0, 0)).ok()?;
        Some(opening.map_or(midnight, |opening| opening.min(midnight)))
    }
}

/// The key of a schedule's calendar that prevents a firing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosedBy {
    StartAt(Timestamp),
    EndAt,
    ExcludeDates,
    ActiveHours,
}

impl ClosedBy {
    /// Returns the key in the config.
    pub const fn key(self) -> &'static str {
        match self {
            Self::StartAt(_) => "start_at",
            Self::EndAt => "end_at",
            Self::ExcludeDates => "exclude_dates",
            Self::ActiveHours => "active_hours",
        }
    }

    pub fn sentence(self) -> String {
        match self {
            Self::StartAt(start) => format!("nothing is due before its `start_at` ({start:.0})"),
            Self::EndAt => "its `end_at` has passed".to_owned(),
            Self::ExcludeDates => "the day is one of its `exclude_dates`".to_owned(),
            Self::ActiveHours => "it is outside its `active_hours`".to_owned(),
        }
    }
}

/// Hours of the week in which a schedule may fire. A window such as `22:00` to `06:00` crosses midnight and belongs to
/// the day on which it begins. A window with equal times has 24 hours.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ActiveHours {
    /// First minute of the window.
    pub start: ClockTime,
    /// First minute after the window.
    pub end: ClockTime,
    /// Days on which a window begins; unset means every day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<Day>,
    /// Time zone of `start` and `end`; unset means the zone of the schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<Zone>,
}

impl ActiveHours {
    /// Checks whether the hours contain the time. `zone` is the zone if the hours have none.
    pub(crate) fn contain(&self, at: Timestamp, zone: &TimeZone) -> bool {
        let civil = self.zone_or(zone).to_datetime(at);
        let (today, time) = (civil.date(), civil.time());
        let (start, end) = (self.start.0, self.end.0);
        let began_today =
            |date: Date| self.days.is_empty() || self.days.iter().any(|day| day.0 == date.weekday());
        if start < end {
            return began_today(today) && time >= start && time < end;
        }
        let yesterday_goes_on = today.yesterday().is_ok_and(began_today) && time < end;
        yesterday_goes_on || (began_today(today) && time >= start)
    }

    fn next_opening(&self, at: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        self.next_time(self.start, at, zone)
    }

    /// Returns the first time after `at` that is the start or the end of the hours of any day.
    pub(crate) fn next_border(&self, at: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        [self.start, self.end].into_iter().filter_map(|time| self.next_time(time, at, zone)).min()
    }

    /// Returns the first time after `at` that has this time of day.
    fn next_time(&self, time: ClockTime, at: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let zone = self.zone_or(zone);
        let today = zone.to_datetime(at).date();
        (0..=1)
            .filter_map(|days| {
                today.checked_add(days.days()).ok()?.to_datetime(time.0).to_zoned(zone.clone()).ok()
            })
            .map(|next| next.timestamp())
            .find(|next| *next > at)
    }

    fn zone_or(&self, fallback: &TimeZone) -> TimeZone {
        self.timezone.as_ref().map_or_else(|| fallback.clone(), |zone| zone.0.clone())
    }
}

/// An IANA time zone, looked up when it is parsed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("format" = "timezone", "examples" = ["UTC", "Europe/Berlin"]))]
pub struct Zone(TimeZone);

impl Default for Zone {
    fn default() -> Self {
        Self::UTC
    }
}

impl Zone {
    pub const UTC: Self = Self(TimeZone::UTC);

    pub fn time_zone(&self) -> &TimeZone {
        &self.0
    }
}

/// Time of day, `HH:MM`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("format" = "clock-time", "examples" = ["09:00"]))]
pub struct ClockTime(Time);

/// Weekday, `mon` to `sun` or the full name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("format" = "weekday", "examples" = ["mon", "friday"]))]
pub struct Day(Weekday);

impl ClockTime {
    pub(crate) const fn time(self) -> Time {
        self.0
    }
}

impl Day {
    pub(crate) const ALL: [Self; 7] = [
        Self(Weekday::Monday),
        Self(Weekday::Tuesday),
        Self(Weekday::Wednesday),
        Self(Weekday::Thursday),
        Self(Weekday::Friday),
        Self(Weekday::Saturday),
        Self(Weekday::Sunday),
    ];
}

const DAYS: [(&str, Weekday); 7] = [
    ("monday", Weekday::Monday),
    ("tuesday", Weekday::Tuesday),
    ("wednesday", Weekday::Wednesday),
    ("thursday", Weekday::Thursday),
    ("friday", Weekday::Friday),
    ("saturday", Weekday::Saturday),
    ("sunday", Weekday::Sunday),
];

impl FromStr for Zone {
    type Err = PolicyError;

    fn from_str(name: &str) -> Result<Self, PolicyError> {
        TimeZone::get(name).map(Self).map_err(|_| PolicyError::Zone(name.to_owned()))
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.iana_name().unwrap_or("UTC"))
    }
}

impl FromStr for ClockTime {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let parsed = text.split_once(':').and_then(|(hour, minute)| {
            (hour.len() <= 2 && minute.len() == 2).then_some(())?;
            Time::new(hour.parse().ok()?, minute.parse().ok()?, 0, 0).ok()
        });
        parsed.map(Self).ok_or_else(|| PolicyError::ClockTime(text.to_owned()))
    }
}

impl fmt::Display for ClockTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0.hour(), self.0.minute())
    }
}

impl FromStr for Day {
    type Err = PolicyError;

    fn from_str(text: &str) -> Result<Self, PolicyError> {
        let lower = text.to_ascii_lowercase();
        let found = DAYS.iter().find(|(name, _)| *name == lower || name[..3] == lower);
        found.map(|(_, day)| Self(*day)).ok_or_else(|| PolicyError::Day(text.to_owned()))
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = DAYS.iter().find(|(_, day)| *day == self.0).map_or("", |(name, _)| name);
        f.write_str(&name[..3])
    }
}

macro_rules! as_text {
    ($($name:ident),+) => {$(
        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }
        impl TryFrom<String> for $name {
            type Error = PolicyError;
            fn try_from(text: String) -> Result<Self, PolicyError> {
                text.parse()
            }
        }
    )+};
}
as_text!(Zone, ClockTime, Day);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("jitter is 0 to {max} percent, not {0}", max = Jitter::MAX_PERCENT)]
    Jitter(u8),
    #[error("unknown time zone {0:?}; use an IANA name such as UTC or Europe/Berlin")]
    Zone(String),
    #[error("{0:?} is not a time of day; use HH:MM, for example 09:30")]
    ClockTime(String),
    #[error("{0:?} is not a weekday; use mon, tue, wed, thu, fri, sat, sun")]
    Day(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn hours(json: &str) -> ActiveHours {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn every_retry_word_is_an_exit_reason_or_an_error_kind() {
        for word in RETRY_WORDS {
            let reason = word.parse::<crate::job::ExitReason>().is_ok();
            assert!(reason || word.parse::<crate::job::ErrorKind>().is_ok(), "{word}");
        }
        for kind in crate::job::ErrorKind::ALL {
            assert!(RETRY_WORDS.contains(&kind.as_str()), "{kind}");
        }
    }

    #[test]
    fn retries() {
        let retry: Retry =
            serde_json::from_str(r#"{"max_attempts":4,"backoff":"10m","on":["error","lost"]}"#).unwrap();
        let minutes = |minutes| Some(SignedDuration::from_mins(minutes));
        for (case, ended, reasons, wait) in [
            ("first", 1, &["error"][..], minutes(10)),
            ("doubles", 2, &["error"], minutes(20)),
            ("by kind", 3, &["timeout", "lost"], minutes(40)),
            ("no attempt left", 4, &["error"], None),
            ("not in `on`", 1, &["timeout"], None),
        ] {
            assert_eq!(retry.wait_after(ended, reasons), wait, "{case}");
        }
        let patient = Retry { max_attempts: 100, ..retry };
        assert_eq!(patient.wait_after(99, &["error"]), Some(SignedDuration::from_hours(24)));
        assert_eq!(Retry::default().wait_after(1, &["error"]), None);
    }

    #[test]
    fn active_hours() {
        let office = hours(r#"{"start":"09:00","end":"17:00","days":["mon","tue","wed","thu","fri"]}"#);
        let night = hours(r#"{"start":"22:00","end":"06:00","days":["Friday"]}"#);
        let berlin = hours(r#"{"start":"09:00","end":"17:00","timezone":"Europe/Berlin"}"#);
        for (case, hours, instant, inside) in [
            ("first minute", &office, "2026-01-05T09:00:00Z", true),
            ("last second", &office, "2026-01-05T16:59:59Z", true),
            ("end is outside", &office, "2026-01-05T17:00:00Z", false),
            ("weekend", &office, "2026-01-04T12:00:00Z", false),
            ("friday night", &night, "2026-01-02T23:00:00Z", true),
            ("continues on saturday", &night, "2026-01-03T05:59:00Z", true),
            ("saturday night is not friday's", &night, "2026-01-03T23:00:00Z", false),
            ("friday morning is thursday's", &night, "2026-01-02T05:00:00Z", false),
            ("its own zone", &berlin, "2026-01-05T08:30:00Z", true),
        ] {
            assert_eq!(hours.contain(at(instant), &TimeZone::UTC), inside, "{case}");
        }
    }

    #[test]
    fn the_key_that_closes_a_schedule_is_found() {
        let hours = r#""active_hours":{"start":"09:00","end":"17:00"}"#;
        for (timing, expected) in [
            ("{}".to_owned(), None),
            (format!("{{{hours}}}"), Some(ClosedBy::ActiveHours)),
            (format!(r#"{{{hours},"exclude_dates":["2026-01-05"]}}"#), Some(ClosedBy::ExcludeDates)),
            (format!(r#"{{{hours},"end_at":"2026-01-05T00:00:00Z"}}"#), Some(ClosedBy::EndAt)),
            (
                format!(r#"{{{hours},"start_at":"2026-02-01T00:00:00Z"}}"#),
                Some(ClosedBy::StartAt(at("2026-02-01T00:00:00Z"))),
            ),
        ] {
            let timing: Timing = serde_json::from_str(&timing).unwrap();
            assert_eq!(timing.closed_by(at("2026-01-05T18:00:00Z"), &TimeZone::UTC), expected, "{timing:?}");
        }
    }

    #[test]
    fn next_allowed() {
        let open = |json: &str| serde_json::from_str::<Timing>(json).unwrap();
        let office = r#"{"active_hours":{"start":"09:00","end":"17:00","days":["mon"]}}"#;
        for (case, timing, from, expected) in [
            ("open already", office, "2026-01-05T10:00:00Z", Some("2026-01-05T10:00:00Z")),
            ("opens today", office, "2026-01-05T01:00:00Z", Some("2026-01-05T09:00:00Z")),
            ("opens next week", office, "2026-01-05T17:00:00Z", Some("2026-01-12T09:00:00Z")),
            (
                "not before its start",
                r#"{"start_at":"2027-01-01T00:00:00Z"}"#,
                "2026-01-05T17:00:00Z",
                Some("2027-01-01T00:00:00Z"),
            ),
            ("over", r#"{"end_at":"2026-01-01T00:00:00Z"}"#, "2026-01-05T17:00:00Z", None),
            (
                "a holiday",
                r#"{"exclude_dates":["2026-01-05"]}"#,
                "2026-01-05T17:00:00Z",
                Some("2026-01-06T00:00:00Z"),
            ),
            (
                "its end comes before the next opening",
                r#"{"active_hours":{"start":"09:00","end":"17:00","days":["mon"]},"end_at":"2026-01-06T00:00:00Z"}"#,
                "2026-01-05T17:00:00Z",
                None,
            ),
        ] {
            assert_eq!(open(timing).next_allowed(at(from), &TimeZone::UTC), expected.map(at), "{case}");
        }
    }

    #[test]
    fn active_hours_are_validated_and_written_unchanged() {
        for (json, error) in [
            (r#"{"start":"9","end":"17:00"}"#, "not a time of day"),
            (r#"{"start":"24:00","end":"17:00"}"#, "not a time of day"),
            (r#"{"start":"09:00","end":"17:00","days":["mo"]}"#, "not a weekday"),
            (r#"{"start":"09:00","end":"17:00","timezone":"Berlin"}"#, "unknown time zone"),
        ] {
            let message = serde_json::from_str::<ActiveHours>(json).unwrap_err().to_string();
            assert!(message.contains(error), "{message}");
        }
        let json = r#"{"start":"09:00","end":"17:00","days":["mon","sun"],"timezone":"Europe/Berlin"}"#;
        assert_eq!(serde_json::to_string(&hours(json)).unwrap(), json);
    }
}
