//! Usage windows: how much of an account's 5-hour limit and of its weekly limit is used, as the programs of the agents
//! report it.

use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::percent::Percent;
use crate::word::written_as;

/// A period in which an account may be used up to a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UsageWindow {
    FiveHour,
    Weekly,
}

written_as! {
    UsageWindow { FiveHour = "five_hour", Weekly = "weekly" }
}

impl UsageWindow {
    pub const fn length(self) -> SignedDuration {
        SignedDuration::from_hours(match self {
            Self::FiveHour => 5,
            Self::Weekly => 7 * 24,
        })
    }

    /// Returns the window with about this length in minutes. Programs round the length.
    pub const fn of_minutes(minutes: u64) -> Option<Self> {
        match minutes {
            240..=360 => Some(Self::FiveHour),
            8_640..=11_520 => Some(Self::Weekly),
            _ => None,
        }
    }

    /// Returns the name for people.
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::FiveHour => "5-hour window",
            Self::Weekly => "weekly window",
        }
    }
}

/// Report of a program about a window of its account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowReport {
    pub window: UsageWindow,
    pub used: Percent,
    pub resets_at: Timestamp,
    /// Time of the report; none if the program does not state it.
    pub at: Option<Timestamp>,
}

/// Usage of a window of a provider: the newest report of all agents that use the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowUsage {
    pub window: UsageWindow,
    pub used: Percent,
    /// End of the window; a new window begins then.
    pub resets_at: Timestamp,
    pub reported_at: Timestamp,
}

/// Maximum time by which a reset may be later than a window lasts, because programs and providers round times.
const WINDOW_TOLERANCE: SignedDuration = SignedDuration::from_hours(1);

impl WindowUsage {
    /// Creates the usage of a report that was read at `read_at`.
    pub fn of(report: WindowReport, read_at: Timestamp) -> Self {
        let WindowReport { window, used, resets_at, at } = report;
        Self { window, used, resets_at, reported_at: at.map_or(read_at, |at| at.min(read_at)) }
    }

    /// Checks whether the usage is current. It is not after the reset. A reset that is later than the window lasts
    /// cannot be right, for example because the clock was set back.
    pub fn is_current(&self, now: Timestamp) -> bool {
        self.resets_at > now && self.resets_at.duration_since(now) <= self.window.length() + WINDOW_TOLERANCE
    }

    /// Checks whether this usage replaces the stored one of the same window. The newest report wins. A report from the
    /// future only means that the clock was set back.
    pub fn replaces(&self, stored: &Self, now: Timestamp) -> bool {
        self.reported_at >= stored.reported_at || stored.reported_at > now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    fn usage(resets: i64, reported: i64) -> WindowUsage {
        let (window, used) = (UsageWindow::FiveHour, Percent::ALL);
        WindowUsage { window, used, resets_at: at(resets), reported_at: at(reported) }
    }

    #[test]
    fn a_window_is_found_by_its_length() {
        for (minutes, expected) in [
            (300, Some(UsageWindow::FiveHour)),
            (299, Some(UsageWindow::FiveHour)),
            (10_080, Some(UsageWindow::Weekly)),
            (10_079, Some(UsageWindow::Weekly)),
            (60, None),
            (43_200, None),
            (0, None),
        ] {
            assert_eq!(UsageWindow::of_minutes(minutes), expected, "{minutes}");
        }
    }

    #[test]
    fn a_report_counts_until_its_reset() {
        for (resets, now, expected) in
            [(100, 0, true), (100, 99, true), (100, 100, false), (100, 101, false), (7 * 3_600, 0, false)]
        {
            assert_eq!(usage(resets, 0).is_current(at(now)), expected, "{resets} {now}");
        }
        assert!(usage(5 * 3_600, 0).is_current(at(0)), "an old report counts");
        assert!(!usage(5 * 3_600, 0).is_current(at(-86_400)), "the clock was set back");
    }

    #[test]
    fn the_newest_report_wins() {
        for (stored, reported, now, expected) in
            [(5, 6, 10, true), (5, 5, 10, true), (6, 5, 10, false), (20, 5, 10, true)]
        {
            assert_eq!(
                usage(100, reported).replaces(&usage(100, stored), at(now)),
                expected,
                "{stored} {reported}"
            );
        }
        let report = |at| WindowReport {
            window: UsageWindow::Weekly,
            used: Percent::ZERO,
            resets_at: self::at(9),
            at,
        };
        let reported_at = |at| WindowUsage::of(report(at), self::at(5)).reported_at;
        assert_eq!([None, Some(at(3)), Some(at(7))].map(reported_at), [at(5), at(3), at(5)]);
    }
}
