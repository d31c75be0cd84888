//! Wakes after a change in a repository: the signals to the strategies that poll the repository, and the times of the
//! wakes of schedules that take work from the repository.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cowhand_core::id::ScheduleId;
use tokio::sync::watch;
use tokio::time::Instant;

/// Shortest time between two wakes of a schedule that takes work from a repository.
pub(crate) const MIN_WAKE_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub struct Wakes {
    repositories: Mutex<HashMap<String, watch::Sender<()>>>,
    /// Time of the next wake of a schedule or, if none is planned, of its last wake.
    wake_times: Mutex<HashMap<ScheduleId, Instant>>,
}

impl Wakes {
    /// Returns the signal for a strategy that polls `owner/name`.
    pub fn of(&self, repository: &str) -> watch::Receiver<()> {
        let mut all = self.repositories.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(repository.to_lowercase()).or_default().subscribe()
    }

    /// Signals a change. If no strategy polls the repository, the signal is dropped.
    pub fn wake(&self, repository: &str) {
        let all = self.repositories.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wake) = all.get(&repository.to_lowercase()) {
            wake.send_replace(());
        }
    }

    /// Plans the next wake of a schedule, and returns the time until that wake. Returns `None` if a wake is already
    /// planned.
    pub fn next_wake(&self, schedule: ScheduleId) -> Option<Duration> {
        let mut wake_times = self.wake_times.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let at = match wake_times.get(&schedule) {
            Some(last) if *last > now => return None,
            Some(last) => now.max(*last + MIN_WAKE_INTERVAL),
            None => now,
        };
        wake_times.insert(schedule, at);
        Some(at.duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn wakes_of_a_schedule_have_a_minimum_interval() {
        let wakes = Wakes::default();
        let id = ScheduleId::of(&"a".parse().unwrap(), &"s".parse().unwrap());
        assert_eq!(wakes.next_wake(id), Some(Duration::ZERO));
        tokio::time::advance(Duration::from_secs(4)).await;
        assert_eq!(wakes.next_wake(id), Some(Duration::from_secs(6)));
        assert_eq!(wakes.next_wake(id), None, "a planned wake also covers this change");
        tokio::time::advance(Duration::from_secs(6)).await;
        assert_eq!(wakes.next_wake(id), Some(MIN_WAKE_INTERVAL));
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!(wakes.next_wake(id), Some(Duration::ZERO));
    }

    #[test]
    fn repository_names_are_compared_without_case() {
        let wakes = Wakes::default();
        let (ours, other) = (wakes.of("Octocat/Hello"), wakes.of("octocat/other"));
        wakes.wake("octocat/hello");
        wakes.wake("nobody/polls");
        assert!(ours.has_changed().unwrap() && !other.has_changed().unwrap());
        assert_eq!(wakes.repositories.lock().unwrap().len(), 2);
    }
}
