//! Quiet hours: notifications are held back until the end of the hours.

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::IncidentSeverity;
use crate::policy::{ActiveHours, ClockTime, Day, Zone};

/// Hours in which notifications are held back. A window such as `22:00` to `07:00` crosses midnight and belongs to the
/// day on which it begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct QuietHours {
    /// First minute of the window.
    pub start: ClockTime,
    /// First minute after the window.
    pub end: ClockTime,
    /// Days on which a window begins; unset means every day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<Day>,
    /// Time zone of `start` and `end`; unset means the time zone of the fleet's budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<Zone>,
    /// Send notifications of critical incidents at once; unset means false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub critical: Option<bool>,
}

impl QuietHours {
    /// Returns the time until which a notification is held back; none if it may be sent now. `zone` is the time zone
    /// of the fleet.
    pub fn held_until(
        &self,
        severity: IncidentSeverity,
        now: Timestamp,
        zone: &TimeZone,
    ) -> Option<Timestamp> {
        if severity == IncidentSeverity::Critical && self.critical.unwrap_or(false) {
            return None;
        }
        let hours = self.hours();
        let zone = self.timezone.as_ref().map_or(zone, Zone::time_zone);
        let mut at = now;
        // A window may begin where another ends. A week has at most seven windows.
        for _ in 0..8 {
            if !hours.contain(at, zone) {
                break;
            }
            at = hours.next_closing(at, zone)?;
        }
        (at > now).then_some(at)
    }

    /// Checks whether the hours cover the whole week, so that no notification would ever be sent.
    pub fn is_always(&self) -> bool {
        let every_day = self.days.is_empty() || Day::ALL.iter().all(|day| self.days.contains(day));
        self.start == self.end && every_day
    }

    fn hours(&self) -> ActiveHours {
        ActiveHours { start: self.start, end: self.end, days: self.days.clone(), timezone: None }
    }
}

impl ActiveHours {
    /// Returns the first end of a window after `at`.
    fn next_closing(&self, at: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let today = zone.to_datetime(at).date();
        (0..=1)
            .filter_map(|days| {
                let end = today.checked_add(days.days()).ok()?.to_datetime(self.end.time());
                end.to_zoned(zone.clone()).ok()
            })
            .map(|closing| closing.timestamp())
            .find(|closing| *closing > at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use IncidentSeverity::{Critical, Warning};

    #[test]
    fn notifications_are_held_until_the_end_of_the_quiet_hours() {
        let berlin = r#""timezone":"Europe/Berlin""#;
        // 2026-01-05 is a Monday. On 2026-03-29, the clock of Berlin goes from 02:00 to 03:00.
        for (hours, now, held_until) in [
            (r#"{"start":"22:00","end":"07:00"}"#.to_owned(), "2026-01-05T21:59:59Z", None),
            (
                r#"{"start":"22:00","end":"07:00"}"#.to_owned(),
                "2026-01-05T22:00:00Z",
                Some("2026-01-06T07:00:00Z"),
            ),
            (
                r#"{"start":"22:00","end":"07:00"}"#.to_owned(),
                "2026-01-06T06:59:00Z",
                Some("2026-01-06T07:00:00Z"),
            ),
            (r#"{"start":"22:00","end":"07:00"}"#.to_owned(), "2026-01-06T07:00:00Z", None),
            (
                format!(r#"{{"start":"22:00","end":"07:00",{berlin}}}"#),
                "2026-01-05T21:30:00Z",
                Some("2026-01-06T06:00:00Z"),
            ),
            (
                format!(r#"{{"start":"22:00","end":"02:30",{berlin}}}"#),
                "2026-03-29T00:30:00Z",
                Some("2026-03-29T01:30:00Z"),
            ),
            (
                r#"{"start":"00:00","end":"00:00","days":["sat","sun"]}"#.to_owned(),
                "2026-01-09T12:00:00Z",
                None,
            ),
            (
                r#"{"start":"00:00","end":"00:00","days":["sat","sun"]}"#.to_owned(),
                "2026-01-10T12:00:00Z",
                Some("2026-01-12T00:00:00Z"),
            ),
        ] {
            let quiet: QuietHours = serde_json::from_str(&hours).unwrap();
            let found = quiet.held_until(Warning, now.parse().unwrap(), &TimeZone::UTC);
            assert_eq!(found, held_until.map(|until| until.parse().unwrap()), "{hours} {now}");
            assert!(!quiet.is_always());
        }
    }

    #[test]
    fn critical_notifications_pass_if_the_config_says_so() {
        let now = "2026-01-05T23:00:00Z".parse().unwrap();
        for (critical, severity, passes) in [
            ("", Critical, false),
            (r#","critical":false"#, Critical, false),
            (r#","critical":true"#, Critical, true),
            (r#","critical":true"#, Warning, false),
        ] {
            let quiet: QuietHours =
                serde_json::from_str(&format!(r#"{{"start":"22:00","end":"07:00"{critical}}}"#)).unwrap();
            assert_eq!(quiet.held_until(severity, now, &TimeZone::UTC).is_none(), passes, "{critical}");
        }
        let always: QuietHours = serde_json::from_str(r#"{"start":"08:00","end":"08:00"}"#).unwrap();
        assert!(always.is_always());
    }
}
