//! Parsing of the end of a usage limit from messages of providers and their programs.

use std::sync::LazyLock;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};
use regex::{Captures, Regex};

/// Tolerance for a reported time that has just passed, because messages state times without seconds. A time of day
/// without a date means today, or tomorrow if it passed longer ago than this. A date without a year means this year, or
/// next year if it passed longer ago than this.
const PAST_RESET_TOLERANCE: SignedDuration = SignedDuration::from_mins(2);

/// Returns the end of a usage limit, if the beginning of the text contains one. `zone` is the time zone of the program
/// that wrote the text.
pub fn reset(text: &str, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    // Messages of providers are short, so the first 8 KiB are enough.
    let text = &text[..text.floor_char_boundary(8 << 10)];
    epoch(text).or_else(|| written_out(text)).or_else(|| wait(text, now)).or_else(|| clock(text, now, zone))
}

/// Parses `usage limit reached|1749924000` and `"resets_at": 1749924000`. A number of 13 digits is in milliseconds,
/// which are cut to seconds.
fn epoch(text: &str) -> Option<Timestamp> {
    static EPOCH: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r#"(?i)(?:\||resets?_?at"?\s*[:=]\s*)(\d{10})(\d{3})?\b"#).ok());
    let found = EPOCH.as_ref()?.captures(text)?;
    Timestamp::from_second(found[1].parse().ok()?).ok()
}

/// Parses `2026-11-15T20:00:00Z`.
fn written_out(text: &str) -> Option<Timestamp> {
    static WRITTEN: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)").ok()
    });
    WRITTEN.as_ref()?.find(text)?.as_str().parse().ok()
}

/// Parses `try again in 3 days 4 hours`, `reset after 2h3m4s`, `"retryDelay": "34.5s"` and `retry-after: 30`.
fn wait(text: &str, now: Timestamp) -> Option<Timestamp> {
    static WAIT: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let part = r"\d+(?:\.\d+)?\s*(?:years?|months?|weeks?|w|days?|d|hours?|hrs?|h|minutes?|mins?|ms|m|seconds?|secs?|s)";
        let lead = r#"(?:(?:again|retry|resets?|available)\s+(?:in|after)|retry-?(?:delay|after)"?\s*[:=])"#;
        Regex::new(&format!(r#"(?i){lead}\s*"?((?:{part}[\s,]*(?:and\s+)?)+|\d+\b)"#)).ok()
    });
    static PART: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"(?i)(\d+(?:\.\d+)?)\s*(years?|months?|weeks?|w|days?|d|h|ms|m|s)?").ok()
    });
    let found = WAIT.as_ref()?.captures(text)?;
    let mut seconds = 0.0;
    for part in PART.as_ref()?.captures_iter(&found[1]) {
        let number: f64 = part[1].parse().ok()?;
        let unit = part.get(2).map_or("s", |unit| unit.as_str()).to_ascii_lowercase();
        seconds += number
            * match unit.as_str() {
                "ms" => 0.001,
                "m" => 60.0,
                "h" => 3_600.0,
                "s" => 1.0,
                "w" | "week" | "weeks" => 7.0 * 86_400.0,
                "month" | "months" => 30.0 * 86_400.0,
                "year" | "years" => 365.0 * 86_400.0,
                _ => 86_400.0,
            };
    }
    now.checked_add(SignedDuration::try_from_secs_f64(seconds).ok()?).ok()
}

/// Parses `resets 7:37pm (UTC)`, `try again at 7:37 PM` and `resets Nov 17, 3pm (Europe/Berlin)`.
fn clock(text: &str, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    static CLOCK: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let lead = r"(?:resets?|again)\s+(?:at\s+|on\s+)?";
        let date = r"(?:(?<month>[a-z]{3})[a-z]*\s+(?<day>\d{1,2})(?:[a-z]{2})?,?\s+(?:(?<year>\d{4}),?\s+)?(?:at\s+)?)?";
        let time = r"(?<hour>\d{1,2})(?::(?<minute>\d\d))?\s*(?<half>[ap]\.?m\b)?";
        Regex::new(&format!(r"(?i){lead}{date}{time}(?:\s*\((?<zone>[A-Za-z_/+\-]+)\))?")).ok()
    });
    let found = CLOCK.as_ref()?.captures(text)?;
    // A bare number is not a time of day.
    if found.name("minute").is_none() && found.name("half").is_none() {
        return None;
    }
    let named = found.name("zone").map(|name| TimeZone::get(name.as_str()));
    let zone = match named {
        Some(known) => known.ok()?,
        None => zone.clone(),
    };
    let time = time(&found)?;
    let here = now.to_zoned(zone.clone());
    let at =
        |date: Date| DateTime::from_parts(date, time).to_zoned(zone.clone()).ok().map(|at| at.timestamp());
    let earliest = now.checked_sub(PAST_RESET_TOLERANCE).ok()?;
    let date = match found.name("month") {
        Some(month) => Some(date(&found, month.as_str(), here.date())?),
        None => None,
    };
    match date {
        Some(date) if found.name("year").is_none() && at(date)? < earliest => {
            at(date.checked_add(1.year()).ok()?)
        }
        Some(date) => at(date),
        None if at(here.date())? < earliest => at(here.date().tomorrow().ok()?),
        None => at(here.date()),
    }
}

fn time(found: &Captures<'_>) -> Option<Time> {
    let hour: i8 = found["hour"].parse().ok()?;
    let minute = found.name("minute").map_or(Ok(0), |minute| minute.as_str().parse()).ok()?;
    let half = found.name("half").map(|half| half.as_str().to_ascii_lowercase());
    let hour = match half {
        Some(_) if !(1..=12).contains(&hour) => return None,
        Some(half) if half.starts_with('p') => hour % 12 + 12,
        Some(_) => hour % 12,
        None => hour,
    };
    Time::new(hour, minute, 0, 0).ok()
}

fn date(found: &Captures<'_>, month: &str, today: Date) -> Option<Date> {
    const MONTHS: [&str; 12] =
        ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
    let month = (1..).zip(MONTHS).find(|(_, name)| name.eq_ignore_ascii_case(month))?.0;
    let year = found.name("year").map_or(Ok(today.year()), |year| year.as_str().parse()).ok()?;
    Date::new(year, month, found["day"].parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reset_times_are_found_in_messages() {
        let now: Timestamp = "2026-11-15T19:36:50Z".parse().unwrap();
        let utc = TimeZone::UTC;
        for (text, expected) in [
            ("Claude AI usage limit reached|1794771452", "2026-11-15T19:37:32Z"),
            ("Claude AI usage limit reached|1794771452000", "2026-11-15T19:37:32Z"),
            (r#"{"type":"usage_limit_reached","resets_at":1794771452}"#, "2026-11-15T19:37:32Z"),
            ("the quota resets at 2026-11-15T21:00:00+01:00.", "2026-11-15T20:00:00Z"),
            ("You've hit your 5-hour limit · resets 7:37pm (UTC)", "2026-11-15T19:37:00Z"),
            ("You've hit your weekly limit · resets Nov 17, 3pm (Europe/Berlin)", "2026-11-17T14:00:00Z"),
            ("You've hit your limit · resets Jan 2, 3:30am (UTC)", "2027-01-02T03:30:00Z"),
            ("or try again at 7:37 PM.", "2026-11-15T19:37:00Z"),
            ("try again at 7:36 PM.", "2026-11-15T19:36:00Z"),
            ("try again at 7:20 AM.", "2026-11-16T07:20:00Z"),
            ("try again at Nov 17th, 2026 3:14 PM.", "2026-11-17T15:14:00Z"),
            ("try again at 12:10 AM", "2026-11-16T00:10:00Z"),
            ("resets at 21:05", "2026-11-15T21:05:00Z"),
            ("Please try again in 3 days 4 hours 2 minutes.", "2026-11-18T23:38:50Z"),
            ("Please retry in 34.5s.", "2026-11-15T19:37:24.5Z"),
            (r#"{"retryDelay": "34s"}"#, "2026-11-15T19:37:24Z"),
            ("Your quota will reset after 2h3m4s.", "2026-11-15T21:39:54Z"),
            ("Rate limit reached. Please try again in 250ms.", "2026-11-15T19:36:50.25Z"),
            ("try again in 1 day, 2 hours and 5 mins", "2026-11-16T21:41:50Z"),
            ("retry-after: 30", "2026-11-15T19:37:20Z"),
            ("Retry after 12 seconds", "2026-11-15T19:37:02Z"),
            ("try again in 2 weeks", "2026-11-29T19:36:50Z"),
            ("resets in 3 months", "2027-02-13T19:36:50Z"),
            ("resets in 1 week, 2 days", "2026-11-24T19:36:50Z"),
            ("try again in 7 minutes", "2026-11-15T19:43:50Z"),
        ] {
            let expected: Timestamp = expected.parse().unwrap();
            assert_eq!(reset(text, now, &utc), Some(expected), "{text}");
        }
    }

    #[test]
    fn messages_without_a_reset_time_give_none() {
        let now: Timestamp = "2026-11-15T19:36:50Z".parse().unwrap();
        for text in [
            "",
            "API Error: Request rejected (429) · fake 429",
            "Overloaded",
            "resets 25pm (UTC)",
            "resets 5pm (Nowhere/Land)",
            "try again at 7",
            "try again later",
            "resets Foo 17, 3pm",
            "try again in 999999999999999999999 days",
            "|99999999999999999999",
        ] {
            assert_eq!(reset(text, now, &TimeZone::UTC), None, "{text}");
        }
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        let expected = "2026-11-15T20:00:00Z".parse().unwrap();
        assert_eq!(
            reset("try again at 9:00 PM", now, &berlin),
            Some(expected),
            "a time without a zone is in the zone of the program"
        );
        let long = format!("{} resets 7:40pm", "ä".repeat(100_000));
        assert_eq!(reset(&long, now, &TimeZone::UTC), None);
    }
}
