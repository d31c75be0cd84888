//! The uptime of daemons. A due time was missed if no daemon could fire it at that time. A due time that only fires
//! late was not missed.

use jiff::{SignedDuration, Timestamp};

use crate::moment::{MIN_CLOCK_STEP, Moment};

/// Values of the clocks at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockReading {
    pub now: Moment,
    /// Microseconds of a clock that stops while the machine is suspended (`CLOCK_MONOTONIC`).
    pub awake: i64,
}

/// Changes between two readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClockChange {
    /// Step of the wall clock, negative if it was set back. None if there was no step of at least [`MIN_CLOCK_STEP`],
    /// or if the boot clock cannot tell.
    pub step: Option<SignedDuration>,
    /// Duration of a suspension of the machine. None if it is less than [`MIN_CLOCK_STEP`], or if the boot clock cannot
    /// tell.
    pub suspended: Option<SignedDuration>,
}

/// Maximum number of gaps that are kept. The oldest gaps are dropped, because the planner has long decided about their
/// due times.
const MAX_GAPS: usize = 16;

/// Time in which a daemon of the fleet could fire: since the earliest known start of a daemon, without the gaps in
/// which no daemon could act.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uptime {
    since: Moment,
    last: Option<ClockReading>,
    /// Start and end of gaps, on the wall clock as it is set now.
    gaps: Vec<(Timestamp, Timestamp)>,
}

impl Default for Uptime {
    /// Returns an uptime that covers all times, so that no due time was missed.
    fn default() -> Self {
        Self::since(Timestamp::MIN.into())
    }
}

impl Uptime {
    /// Creates an uptime that begins with the start of a daemon.
    pub const fn since(since: Moment) -> Self {
        Self { since, last: None, gaps: Vec::new() }
    }

    /// Compares the clocks with the last reading, and returns the changes. Call it before each plan. After a step
    /// forward or a suspension, the time between the two readings is a gap, and the due times in it were missed.
    pub fn observe(&mut self, reading: ClockReading) -> ClockChange {
        let Some(last) = self.last.replace(reading) else { return ClockChange::default() };
        let noticed = noticed(last, reading);
        if noticed.step.is_some() {
            // The earlier gaps are times of the wall clock as it was set before the step.
            self.gaps.clear();
        }
        if noticed.suspended.is_some() || noticed.step.is_some_and(|step| step.is_positive()) {
            self.gaps.push((last.now.wall, reading.now.wall));
            let old = self.gaps.len().saturating_sub(MAX_GAPS);
            self.gaps.drain(..old);
        }
        noticed
    }

    /// Adds the uptime of another daemon of the fleet, which has been running since `other`. Gaps that began later are
    /// removed, because the other daemon could fire their due times. A gap that began before `other` stays whole.
    pub fn add_daemon(&mut self, other: Moment, now: Moment) {
        let since = other.on_clock_of(now);
        if since < self.since.on_clock_of(now) {
            self.since = other;
        }
        self.gaps.retain(|(from, _)| *from < since);
    }

    /// Checks whether a daemon could act at `due`.
    pub fn covers(&self, due: Timestamp, now: Moment) -> bool {
        due >= self.since.on_clock_of(now) && !self.gaps.iter().any(|(from, to)| (*from..*to).contains(&due))
    }
}

fn noticed(last: ClockReading, reading: ClockReading) -> ClockChange {
    let awake = SignedDuration::from_micros(reading.awake.saturating_sub(last.awake));
    let asleep = reading.now.by_boot_clock(last.now).map(|passed| passed - awake);
    let step = reading.now.step_since(last.now);
    ClockChange {
        step: step.filter(|step| step.abs() >= MIN_CLOCK_STEP),
        suspended: asleep.filter(|asleep| *asleep >= MIN_CLOCK_STEP),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moment::BootTime;
    use uuid::Uuid;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn reading(wall: i64, boot: i64, awake: i64) -> ClockReading {
        let boot = BootTime::new(Uuid::from_u128(1), boot * 1_000_000);
        ClockReading { now: Moment { wall: at(wall), boot: Some(boot) }, awake: awake * 1_000_000 }
    }

    /// Starts at second 1000 and reads the clocks twice. Returns the change between the readings, and which of `dues`
    /// were missed.
    fn missed(second: ClockReading, dues: &[i64]) -> (ClockChange, Vec<i64>) {
        let start = reading(1_000, 500, 400);
        let mut uptime = Uptime::since(start.now);
        assert_eq!(uptime.observe(start), ClockChange::default());
        let noticed = uptime.observe(second);
        let missed = dues.iter().filter(|due| !uptime.covers(at(**due), second.now)).copied();
        (noticed, missed.collect())
    }

    #[test]
    fn due_times_during_suspension_or_a_clock_step_are_missed() {
        let seconds = |seconds| Some(SignedDuration::from_secs(seconds));
        let dues = [999, 1_000, 1_500, 4_000, 4_600];
        for (case, second, step, suspended, expected) in [
            ("only late", reading(4_600, 4_100, 4_000), None, None, &[999][..]),
            ("suspended", reading(4_600, 4_100, 410), None, seconds(3_590), &[999, 1_000, 1_500, 4_000]),
            ("set forward", reading(4_600, 510, 410), seconds(3_590), None, &[999, 1_000, 1_500, 4_000]),
            ("set back", reading(410, 510, 410), seconds(-600), None, &[]),
        ] {
            let (noticed, missed) = missed(second, &dues);
            assert_eq!(noticed, ClockChange { step, suspended }, "{case}");
            assert_eq!(missed, expected, "{case}");
        }
    }

    #[test]
    fn a_daemon_that_runs_longer_covers_more_due_times() {
        let (start, later) = (reading(1_000, 500, 400), reading(4_600, 4_100, 410));
        let mut uptime = Uptime::since(start.now);
        uptime.observe(start);
        uptime.observe(later);
        uptime.add_daemon(at(2_000).into(), later.now);
        assert!(!uptime.covers(at(1_500), later.now), "the other daemon began in the gap");
        uptime.add_daemon(at(900).into(), later.now);
        assert!(uptime.covers(at(1_500), later.now) && uptime.covers(at(950), later.now));
        assert!(!uptime.covers(at(899), later.now));
    }
}
