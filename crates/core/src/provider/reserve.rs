//! The reserve of a provider: the part of its usage windows that automatic jobs do not use, so that it is left for jobs
//! that people request.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{LimitedProvider, Provider, ProviderState, UsageWindow, WindowUsage};
use crate::percent::Percent;
use crate::policy::{ActiveHours, ClockTime, Day, Zone};

/// Hours of the week with their own reserve. Hours such as `22:00` to `06:00` cross midnight and belong to the day on
/// which they begin. Equal times mean 24 hours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReserveHours {
    /// First minute of the hours.
    pub start: ClockTime,
    /// First minute after the hours.
    pub end: ClockTime,
    /// Days on which the hours begin; unset means every day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<Day>,
    /// Time zone of `start` and `end`; unset means `budget.timezone`, or else the zone of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timezone: Option<Zone>,
    /// Part of the windows that automatic jobs do not use in these hours.
    pub reserve: Percent,
}

impl ReserveHours {
    fn hours(&self) -> ActiveHours {
        let Self { start, end, days, timezone, reserve: _ } = self.clone();
        ActiveHours { start, end, days, timezone }
    }
}

/// A reserve that automatic jobs have reached, so no automatic job starts at the provider.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReachedReserve {
    pub provider: String,
    /// Window whose reserve is reached. If both are reached, the one that resets later.
    pub window: UsageWindow,
    /// Used part of the window, in percent.
    pub used_percent: f64,
    /// Part of the window that is reserved now.
    pub reserve: Percent,
    /// Time at which automatic jobs start again: the reset of the window, or the time from which the reserve is smaller.
    pub until: Timestamp,
}

impl ReachedReserve {
    /// Returns a sentence about the reserve and the used part of its window.
    pub fn sentence(&self) -> String {
        let Self { provider, window, used_percent, reserve, until: _ } = self;
        format!(
            "{provider} keeps {reserve} of its {} for jobs by hand and from chats (`reserve`), and {used_percent}% is used",
            window.in_words()
        )
    }
}

impl Provider {
    pub fn has_reserve(&self) -> bool {
        let hours = self.reserve_hours.iter().map(|hours| hours.reserve);
        self.reserve.into_iter().chain(hours).any(|reserve| reserve > Percent::ZERO)
    }

    /// Returns the reserve at a time: of the first `reserve_hours` that contain the time, else `reserve`.
    pub fn reserve_at(&self, at: Timestamp, zone: &TimeZone) -> Percent {
        let hours = self.reserve_hours.iter().find(|hours| hours.hours().contain(at, zone));
        hours.map(|hours| hours.reserve).or(self.reserve).unwrap_or_default()
    }

    /// Returns the first time after `at` at which any `reserve_hours` begin or end.
    fn next_border(&self, at: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        self.reserve_hours.iter().filter_map(|hours| hours.hours().next_border(at, zone)).min()
    }
}

impl LimitedProvider {
    /// Returns the reserve that holds automatic jobs back now; none if they may start. `until` is exact if the usage does
    /// not change until then.
    pub fn reached_reserve(&self, state: &ProviderState, now: Timestamp) -> Option<ReachedReserve> {
        if !self.limits.has_reserve() {
            return None;
        }
        let (first, reserve) = self.window_at_reserve(state, now, now)?;
        let mut until = now;
        while let Some((usage, _)) = self.window_at_reserve(state, until, now) {
            let border = self.limits.next_border(until, &self.zone);
            until = border.map_or(usage.resets_at, |border| border.min(usage.resets_at));
        }
        let (provider, window, used_percent) = (self.provider.clone(), first.window, first.used.number());
        Some(ReachedReserve { provider, window, used_percent, reserve, until })
    }

    /// Returns the window that is used beyond its reserve at a time, with the reserve. Of several windows, returns the
    /// one that resets last.
    fn window_at_reserve<'a>(
        &self,
        state: &'a ProviderState,
        at: Timestamp,
        now: Timestamp,
    ) -> Option<(&'a WindowUsage, Percent)> {
        let reserve = self.limits.reserve_at(at, &self.zone);
        let reached = |usage: &&WindowUsage| {
            usage.is_current(now) && usage.resets_at > at && usage.used > reserve.rest()
        };
        let last = state.windows.iter().filter(reached).max_by_key(|usage| usage.resets_at);
        last.filter(|_| reserve > Percent::ZERO).map(|usage| (usage, reserve))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a time on 2026-01-05, a Monday, unless the text has another date.
    fn at(text: &str) -> Timestamp {
        let full = if text.contains('T') { text.to_owned() } else { format!("2026-01-05T{text}") };
        format!("{full}:00Z").parse().unwrap()
    }

    fn usage(window: UsageWindow, part: f64, resets: &str) -> WindowUsage {
        let used = Percent::of_part(part).unwrap();
        WindowUsage { window, used, resets_at: at(resets), reported_at: at("00:00") }
    }

    /// Returns the time until which automatic jobs wait at 10:00, with the window.
    fn reached(config: &str, windows: &[WindowUsage]) -> Option<(UsageWindow, Timestamp)> {
        let limits = serde_json::from_str(config).unwrap();
        let provider = LimitedProvider { provider: "p".into(), limits, zone: TimeZone::UTC };
        let state = ProviderState { windows: windows.to_vec(), ..ProviderState::default() };
        provider.reached_reserve(&state, at("10:00")).map(|reached| (reached.window, reached.until))
    }

    #[test]
    fn a_reserve_is_reached_beyond_its_part_of_a_window() {
        use UsageWindow::{FiveHour, Weekly};
        let five = |part| usage(FiveHour, part, "12:00");
        let week = |part| usage(Weekly, part, "2026-01-08T09:00");
        let (until_noon, until_reset) =
            (Some((FiveHour, at("12:00"))), Some((Weekly, at("2026-01-08T09:00"))));
        let fifth = r#"{"reserve":"20 %"}"#;
        for (case, config, windows, expected) in [
            ("no reserve", "{}", vec![five(1.0), week(1.0)], None),
            ("no report", fifth, vec![], None),
            ("exactly at the reserve", fifth, vec![five(0.8), week(0.1)], None),
            ("beyond the reserve", fifth, vec![five(0.801), week(0.1)], until_noon),
            ("the weekly window", fifth, vec![five(0.1), week(0.9)], until_reset),
            ("both windows", fifth, vec![five(0.9), week(0.9)], until_reset),
            ("the reset has passed", fifth, vec![usage(FiveHour, 1.0, "10:00")], None),
            ("a reset that cannot be right", fifth, vec![usage(FiveHour, 1.0, "17:00")], None),
            ("a reserve of nothing", r#"{"reserve":"0%"}"#, vec![five(1.0)], None),
            ("everything is reserved", r#"{"reserve":"100%"}"#, vec![five(0.001)], until_noon),
        ] {
            assert_eq!(reached(config, &windows), expected, "{case}");
        }
    }

    #[test]
    fn the_reserve_depends_on_the_hours() {
        use UsageWindow::{FiveHour, Weekly};
        let day = |start: &str, end: &str, more: &str| {
            format!(
                r#"{{"reserve":"10%","reserve_hours":[{{"start":"{start}","end":"{end}","reserve":"50%"{more}}}]}}"#
            )
        };
        let five = |part| vec![usage(FiveHour, part, "13:00")];
        let week = |part| vec![usage(Weekly, part, "2026-01-08T09:00")];
        let berlin = r#","timezone":"Europe/Berlin""#;
        for (case, config, windows, expected) in [
            ("within the hours", day("09:00", "18:00", ""), five(0.6), Some("13:00")),
            ("they end before the reset", day("09:00", "11:00", ""), five(0.6), Some("11:00")),
            ("outside of the hours", day("12:00", "18:00", ""), five(0.6), None),
            ("outside, beyond the general reserve", day("12:00", "18:00", ""), five(0.95), Some("13:00")),
            ("another day", day("09:00", "18:00", r#","days":["tue"]"#), five(0.6), None),
            ("over midnight", day("22:00", "10:30", ""), five(0.6), Some("10:30")),
            ("another zone", day("11:00", "12:00", berlin), five(0.6), Some("11:00")),
            ("every evening", day("06:00", "18:00", ""), week(0.6), Some("18:00")),
            ("the whole day", day("09:00", "09:00", ""), week(0.6), Some("2026-01-08T09:00")),
            (
                "also beyond the general reserve",
                day("06:00", "18:00", ""),
                week(0.95),
                Some("2026-01-08T09:00"),
            ),
        ] {
            let until = reached(&config, &windows).map(|(_, until)| until);
            assert_eq!(until, expected.map(at), "{case}");
        }
        let first = r#"{"reserve_hours":[{"start":"09:00","end":"12:00","reserve":"0%"},
            {"start":"00:00","end":"00:00","reserve":"90%"}]}"#;
        assert_eq!(reached(first, &five(0.6)), None, "the first hours that contain the time count");
    }
}
