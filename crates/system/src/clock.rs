//! The clocks: the system's, or a clock that a test sets.

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cowhand_core::moment::{BootTime, Moment};
use cowhand_core::uptime::ClockReading;
use jiff::{SignedDuration, Timestamp};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Notify;
use uuid::Uuid;

/// A clock with whole microseconds, as the store keeps them.
#[derive(Debug, Clone, Default)]
pub enum Clock {
    #[default]
    System,
    Test(Arc<TestClock>),
}

#[derive(Debug)]
pub struct TestClock {
    time: Mutex<TestTime>,
    moved: Notify,
}

#[derive(Debug, Clone, Copy)]
struct TestTime {
    wall: Timestamp,
    boot: BootTime,
    awake: i64,
}

/// Maximum length of a sleep, because the wall clock can be set and the machine can be suspended during the sleep.
const MAX_SLEEP: Duration = Duration::from_secs(30);

/// Id of the boot. If the kernel does not state one, only readings of the same process are comparable.
static BOOT_ID: LazyLock<Uuid> = LazyLock::new(|| {
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
    boot_id.and_then(|id| id.trim().parse().ok()).unwrap_or_else(Uuid::now_v7)
});

impl Clock {
    pub fn test(now: Timestamp) -> Self {
        let boot = BootTime::new(Uuid::from_u128(1), 0);
        let time = Mutex::new(TestTime { wall: now, boot, awake: 0 });
        Self::Test(Arc::new(TestClock { time, moved: Notify::new() }))
    }

    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => whole(Timestamp::now()),
            Self::Test(test_clock) => test_clock.time().wall,
        }
    }

    /// Reads the wall clock and the boot clock.
    pub fn moment(&self) -> Moment {
        self.reading().now
    }

    /// Reads the boot clock.
    pub fn boot(&self) -> BootTime {
        match self {
            Self::System => BootTime::new(*BOOT_ID, microseconds(ClockId::Boottime)),
            Self::Test(test_clock) => test_clock.time().boot,
        }
    }

    /// Reads all clocks as close to the same instant as possible.
    pub fn reading(&self) -> ClockReading {
        match self {
            Self::System => system_reading(),
            Self::Test(test_clock) => {
                let TestTime { wall, boot, awake } = *test_clock.time();
                ClockReading { now: Moment { wall, boot: Some(boot) }, awake }
            }
        }
    }

    /// Lets time pass on a test clock until `now`. If `now` is in the past, sets the wall clock back while no time
    /// passes. This method and the next three do nothing on the system clock.
    pub fn set(&self, now: Timestamp) {
        self.by(|time| {
            let passed = now.duration_since(time.wall).max(SignedDuration::ZERO);
            (time.wall, time.boot) = (now, time.boot.plus(passed));
            time.awake += i64::try_from(passed.as_micros()).unwrap_or_default();
        });
    }

    /// Sets the wall clock of a test clock while no time passes.
    pub fn step(&self, now: Timestamp) {
        self.by(|time| time.wall = now);
    }

    /// Suspends the machine of a test clock until `now`.
    pub fn suspend(&self, now: Timestamp) {
        self.by(|time| (time.wall, time.boot) = (now, time.boot.plus(now.duration_since(time.wall))));
    }

    /// Reboots the machine of a test clock at `now`.
    pub fn reboot(&self, now: Timestamp) {
        self.by(|time| *time = TestTime { wall: now, boot: BootTime::new(Uuid::now_v7(), 0), awake: 0 });
    }

    fn by(&self, change: impl FnOnce(&mut TestTime)) {
        if let Self::Test(test_clock) = self {
            change(&mut test_clock.time());
            test_clock.moved.notify_waiters();
        }
    }

    /// Waits until `at`, but at most for `MAX_SLEEP`; without `at`, for `MAX_SLEEP`. With a test clock, waits until the
    /// clock is changed, unless `at` has passed. The caller has to read the clock again.
    pub async fn wait_until(&self, at: Option<Timestamp>) {
        match self {
            Self::System => {
                let left = at.map_or(SignedDuration::MAX, |at| at.duration_since(self.now()));
                let left = Duration::try_from(left).unwrap_or_default().min(MAX_SLEEP);
                tokio::time::sleep(left).await;
            }
            Self::Test(test_clock) => {
                let moved = test_clock.moved.notified();
                if at.is_none_or(|at| at > self.now()) {
                    moved.await;
                }
            }
        }
    }
}

impl TestClock {
    fn time(&self) -> MutexGuard<'_, TestTime> {
        self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the system's clocks. If the process is stopped between the readings of two clocks, the difference looks like a
/// step of the clock. So the clocks are read again if the reading takes too long, and the fastest reading is returned.
fn system_reading() -> ClockReading {
    const MAX_READINGS: usize = 5;
    const MAX_READING_MICROSECONDS: i64 = 10_000;
    let read = || {
        let before = microseconds(ClockId::Boottime);
        let (wall, awake) = (whole(Timestamp::now()), microseconds(ClockId::Monotonic));
        let took = microseconds(ClockId::Boottime) - before;
        let now = Moment { wall, boot: Some(BootTime::new(*BOOT_ID, before)) };
        (took, ClockReading { now, awake })
    };
    let mut best = read();
    for _ in 1..MAX_READINGS {
        if best.0 < MAX_READING_MICROSECONDS {
            break;
        }
        best = std::cmp::min_by_key(best, read(), |(took, _)| *took);
    }
    best.1
}

fn whole(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(Timestamp::MAX)
}

fn microseconds(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000 + time.tv_nsec / 1_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clocks_do_not_run_backwards() {
        let (first, second) = (Clock::System.reading(), Clock::System.reading());
        assert!(second.now.by_boot_clock(first.now).is_some_and(|passed| !passed.is_negative()));
        assert!(second.awake >= first.awake);
    }

    #[test]
    fn a_manual_clock_can_be_set_stepped_and_suspended() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let clock = Clock::test(at(1_000));
        let start = clock.reading();
        let since = |clock: &Clock| {
            let reading = clock.reading();
            let boot = reading.now.by_boot_clock(start.now).map(|passed| passed.as_secs());
            (reading.now.wall.as_second(), boot, (reading.awake - start.awake) / 1_000_000)
        };
        clock.set(at(1_010));
        assert_eq!(since(&clock), (1_010, Some(10), 10));
        clock.step(at(500));
        assert_eq!(since(&clock), (500, Some(10), 10));
        clock.suspend(at(600));
        assert_eq!(since(&clock), (600, Some(110), 10));
        clock.reboot(at(700));
        assert_eq!(since(&clock).1, None);
    }
}
