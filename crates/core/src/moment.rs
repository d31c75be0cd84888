//! Instants that survive a step of the wall clock.
//!
//! The wall clock can be set. The boot clock (`CLOCK_BOOTTIME`) cannot be set and counts suspension, but it begins at
//! zero with every boot. A [`Moment`] is a reading of both clocks. Within one boot, durations are counted on the boot
//! clock; across boots, or without a reading of the boot clock, on the wall clock.

use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A reading of the boot clock. It is stored as `BOOT-ID:MICROSECONDS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BootTime {
    boot: Uuid,
    microseconds: i64,
}

impl BootTime {
    pub const fn new(boot: Uuid, microseconds: i64) -> Self {
        Self { boot, microseconds }
    }

    #[must_use]
    pub fn plus(self, time: SignedDuration) -> Self {
        let time = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        Self { microseconds: self.microseconds.saturating_add(time), ..self }
    }

    /// Returns the time from `earlier` to this reading; none if the readings are from different boots.
    pub fn since(self, earlier: Self) -> Option<SignedDuration> {
        let between = self.microseconds.saturating_sub(earlier.microseconds);
        (self.boot == earlier.boot).then(|| SignedDuration::from_micros(between))
    }
}

impl fmt::Display for BootTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.boot, self.microseconds)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a time of a boot clock")]
pub struct NotABootTime(String);

impl FromStr for BootTime {
    type Err = NotABootTime;

    fn from_str(text: &str) -> Result<Self, NotABootTime> {
        let parts = text.rsplit_once(':');
        let parsed = parts.and_then(|(boot, time)| Some(Self::new(boot.parse().ok()?, time.parse().ok()?)));
        parsed.ok_or_else(|| NotABootTime(text.to_owned()))
    }
}

impl TryFrom<String> for BootTime {
    type Error = NotABootTime;

    fn try_from(text: String) -> Result<Self, NotABootTime> {
        text.parse()
    }
}

impl From<BootTime> for String {
    fn from(time: BootTime) -> Self {
        time.to_string()
    }
}

/// Smallest difference between the two clocks that counts as a step. Smaller differences occur because the clocks
/// cannot be read at the same instant.
pub const MIN_CLOCK_STEP: SignedDuration = SignedDuration::from_secs(1);

/// A wall time, with the boot clock at that time if it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    pub wall: Timestamp,
    pub boot: Option<BootTime>,
}

impl From<Timestamp> for Moment {
    fn from(wall: Timestamp) -> Self {
        Self { wall, boot: None }
    }
}

impl Moment {
    #[must_use]
    pub fn plus(self, time: SignedDuration) -> Self {
        let wall = self.wall.checked_add(time).unwrap_or(Timestamp::MAX);
        Self { wall, boot: self.boot.map(|boot| boot.plus(time)) }
    }

    /// Returns the time from `earlier` to this moment by the boot clock; none across boots, or without a boot clock.
    pub fn by_boot_clock(self, earlier: Self) -> Option<SignedDuration> {
        self.boot?.since(earlier.boot?)
    }

    /// Returns the time from `earlier` to this moment, by the boot clock if possible, else by the wall clock.
    pub fn since(self, earlier: Self) -> SignedDuration {
        self.by_boot_clock(earlier).unwrap_or_else(|| self.wall.duration_since(earlier.wall))
    }

    /// Converts this moment to the wall clock as it is set at `now`. The result is the recorded wall time, unless the
    /// boot clock shows that the wall clock was set meanwhile.
    pub fn on_clock_of(self, now: Self) -> Timestamp {
        match now.step_since(self) {
            Some(step) if step.abs() >= MIN_CLOCK_STEP => self.wall.checked_add(step).unwrap_or(self.wall),
            Some(_) | None => self.wall,
        }
    }

    /// Returns the wall time at which `length` has passed since this moment, on the wall clock as it is set at `now`.
    /// If the boot clock cannot decide and this moment is in the future, the wall clock was set back; then `length`
    /// counts as passed.
    pub fn end_of(self, length: SignedDuration, now: Self) -> Timestamp {
        if now.by_boot_clock(self).is_none() && self.wall > now.wall {
            return now.wall;
        }
        self.on_clock_of(now).checked_add(length).unwrap_or(Timestamp::MAX)
    }

    /// Converts this moment to the clocks as they are set at `now`. This moment is the recorded end of something that
    /// began at `began`, and `now` is the time at which the end is noticed. The result is never after `now`. Within one
    /// boot the boot clock decides. Across boots, or without a boot clock, the recorded wall time counts if it is
    /// between `began` and `now`; if it is not, the wall clock was set meanwhile, and the result is `now`.
    #[must_use]
    pub fn noticed_at(self, now: Self, began: Timestamp) -> Self {
        match now.by_boot_clock(self) {
            Some(ago) if ago.is_negative() => now,
            Some(_) => Self { wall: self.on_clock_of(now).min(now.wall), ..self },
            None if self.wall < began || self.wall > now.wall => now,
            None => now.plus(self.wall.duration_since(now.wall)),
        }
    }

    /// Returns by how much the wall clock was set between `earlier` and this moment; none across boots, or without a
    /// boot clock.
    pub fn step_since(self, earlier: Self) -> Option<SignedDuration> {
        Some(self.wall.duration_since(earlier.wall) - self.by_boot_clock(earlier)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: Uuid = Uuid::from_u128(1);
    const OTHER: Uuid = Uuid::from_u128(2);

    fn moment(wall: i64, boot: Option<(Uuid, i64)>) -> Moment {
        let boot = boot.map(|(id, second)| BootTime::new(id, second * 1_000_000));
        Moment { wall: Timestamp::from_second(wall).unwrap(), boot }
    }

    #[test]
    fn the_boot_clock_decides_within_one_boot_and_the_wall_clock_across_boots() {
        let then = moment(1_000, Some((BOOT, 50)));
        for (case, now, ago, seen, step) in [
            ("no step", moment(1_010, Some((BOOT, 60))), 10, 1_000, Some(0)),
            ("set a little", moment(1_012, Some((BOOT, 60))), 10, 1_002, Some(2)),
            ("set back", moment(410, Some((BOOT, 60))), 10, 400, Some(-600)),
            ("set forward", moment(8_210, Some((BOOT, 60))), 10, 8_200, Some(7_200)),
            ("another boot", moment(1_030, Some((OTHER, 5))), 30, 1_000, None),
            ("another boot, set back", moment(900, Some((OTHER, 5))), -100, 1_000, None),
            ("no boot clock", moment(1_030, None), 30, 1_000, None),
        ] {
            assert_eq!(now.since(then).as_secs(), ago, "{case}");
            assert_eq!(then.on_clock_of(now).as_second(), seen, "{case}");
            assert_eq!(now.step_since(then).map(|step| step.as_secs()), step, "{case}");
        }
    }

    #[test]
    fn a_deadline_moves_both_clocks() {
        let deadline = moment(1_000, Some((BOOT, 50))).plus(SignedDuration::from_secs(30));
        assert_eq!(deadline, moment(1_030, Some((BOOT, 80))));
        assert_eq!(deadline.on_clock_of(moment(400, Some((BOOT, 60)))).as_second(), 420);
    }

    #[test]
    fn a_clock_step_does_not_lengthen_a_wait() {
        let (start, length) = (moment(1_000, Some((BOOT, 50))), SignedDuration::from_secs(30));
        for (case, now, end) in [
            ("no step", moment(1_010, Some((BOOT, 60))), 1_030),
            ("set back", moment(410, Some((BOOT, 60))), 430),
            ("another boot", moment(1_010, Some((OTHER, 5))), 1_030),
            ("another boot, set back", moment(410, Some((OTHER, 5))), 410),
        ] {
            assert_eq!(start.end_of(length, now).as_second(), end, "{case}");
        }
    }

    #[test]
    fn an_end_that_is_noticed_later_is_never_in_the_future() {
        let began = Timestamp::from_second(900).unwrap();
        let ended = moment(1_000, Some((BOOT, 50)));
        for (case, ended, now, expected) in [
            ("no step", ended, moment(1_300, Some((BOOT, 350))), moment(1_000, Some((BOOT, 50)))),
            ("set back", ended, moment(400, Some((BOOT, 350))), moment(100, Some((BOOT, 50)))),
            ("set forward", ended, moment(9_000, Some((BOOT, 350))), moment(8_700, Some((BOOT, 50)))),
            ("later than now", ended, moment(1_300, Some((BOOT, 40))), moment(1_300, Some((BOOT, 40)))),
            ("another boot", ended, moment(1_300, Some((OTHER, 20))), moment(1_000, Some((OTHER, -280)))),
            ("another boot, set back", ended, moment(950, Some((OTHER, 20))), moment(950, Some((OTHER, 20)))),
            ("by an older keeper", moment(1_000, None), moment(1_300, Some((BOOT, 350))), ended),
            ("before its start", moment(800, None), moment(1_300, None), moment(1_300, None)),
            ("no boot clock", ended, moment(1_300, None), moment(1_000, None)),
        ] {
            assert_eq!(ended.noticed_at(now, began), expected, "{case}");
        }
    }

    #[test]
    fn a_boot_time_is_read_as_it_is_written() {
        let time = BootTime::new(BOOT, -5);
        assert_eq!(time.to_string(), "00000000-0000-0000-0000-000000000001:-5");
        assert_eq!(time.to_string().parse(), Ok(time));
        for wrong in [
            "",
            "1",
            "x:1",
            "00000000-0000-0000-0000-000000000001:",
            "00000000-0000-0000-0000-000000000001:x",
        ] {
            assert!(wrong.parse::<BootTime>().is_err(), "{wrong}");
        }
    }
}
