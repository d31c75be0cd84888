//! A timer on the boot clock. Other timers stop while the machine is suspended; this one has expired when the machine
//! resumes.

use std::io;

use cowhand_core::moment::BootTime;
use cowhand_system::clock::Clock;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::net::unix::pipe::Receiver;

/// A timer of the kernel. Tokio waits for it as for a pipe: both can be read as soon as something has happened.
#[derive(Debug)]
pub struct BootTimer(Receiver);

impl BootTimer {
    /// Creates a timer that is not set. Must be called inside a Tokio runtime.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
        Receiver::from_owned_fd_unchecked(timer).map(Self)
    }

    /// Sets the timer. A time that has passed, or that belongs to another boot, expires at once.
    pub fn set(&self, at: BootTime) -> io::Result<()> {
        let left = at.since(Clock::System.boot()).map_or(0, |left| left.as_micros());
        // A value of zero would disarm the timer.
        let left = i64::try_from(left).unwrap_or(i64::MAX).max(1);
        let first = Timespec { tv_sec: left / 1_000_000, tv_nsec: left % 1_000_000 * 1_000 };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: first };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }

    /// Waits until the timer has expired since it was set. Returns only once; then the timer has to be set again.
    pub async fn expired(&self) {
        let mut expirations = [0; 8];
        while self.0.readable().await.is_ok() {
            match self.0.try_read(&mut expirations) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(_) | Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The boot clock cannot be set in a test, so the test checks only the order of the events.
    #[tokio::test]
    async fn the_timer_expires_at_its_time_and_again_after_it_was_set_again() {
        let timer = BootTimer::new().unwrap();
        for milliseconds in [0, 30, -5, 20] {
            let at = Clock::System.boot().plus(jiff::SignedDuration::from_millis(milliseconds));
            timer.set(at).unwrap();
            timer.expired().await;
            assert!(Clock::System.boot().since(at).is_some_and(|late| !late.is_negative()));
        }
    }
}
