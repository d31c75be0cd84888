//! Polls a repository before the next poll is due, because a delivery reports a change.

use std::sync::Arc;
use std::time::Duration;

use cowhand_core::firing::Dispatch;
use cowhand_core::id::ScheduleId;
use cowhand_core::plan::free_places;
use cowhand_core::roster::{Agent, Schedule};
use cowhand_core::schedule::ScheduleState;
use cowhand_core::trigger::{FiringContext, Occurrence, TriggerConfig};
use cowhand_core::work_source::ConfiguredSource;
use tokio::sync::watch;
use tracing::{info, warn};

use super::Fleet;
use crate::context::Engine;
use crate::lifecycle::Lifecycle;
use crate::trigger::wake::MIN_WAKE_INTERVAL;
use cowhand_store::{StoreError, audit};
use cowhand_work::SourceOwner;

impl Fleet {
    /// Wakes the triggers that poll the repository, and the interval schedules that take work from it. An interval
    /// schedule only looks for work, so it may fire early. A cron schedule fires only at its due times.
    pub fn repository_changed(&self, repository: &str, delivery: &str) {
        self.engine.wakes.wake(repository);
        let roster = self.roster();
        let schedules = roster
            .agents
            .iter()
            .flat_map(|agent| agent.schedules.iter().map(move |schedule| (agent, schedule)));
        for (_, schedule) in
            schedules.filter(|(agent, schedule)| polls_repository(agent, schedule, repository))
        {
            if let Some(wait) = self.engine.wakes.next_wake(schedule.id) {
                let search = poll_early(Arc::clone(&self.engine), schedule.id, delivery.to_owned(), wait);
                tokio::spawn(run_until_stop(self.lifecycle.subscribe(), search));
            }
        }
    }
}

fn polls_repository(agent: &Agent, schedule: &Schedule, repository: &str) -> bool {
    let source = SourceOwner::schedule(agent, schedule).config();
    let is_repository = matches!(source, Some(ConfiguredSource::Github { repo: Some(repo), .. }) if repo.eq_ignore_ascii_case(repository));
    is_repository && schedule.enabled && matches!(schedule.trigger, TriggerConfig::Interval { .. })
}

/// Runs `search` until the fleet stops. A stopping fleet takes no more work, and no task may keep it alive.
async fn run_until_stop(mut lifecycle: watch::Receiver<Lifecycle>, search: impl Future<Output = ()>) {
    tokio::select! {
        // The stop is checked first, so that nothing fires after a stop.
        biased;
        // An error means that the fleet was dropped, which also ends the wait.
        _ = lifecycle.wait_for(|lifecycle| *lifecycle != Lifecycle::Running) => {}
        () = search => {}
    }
}

/// Waits, and then fires the schedule as soon as its agent has a free place and no firing of the schedule is being
/// prepared.
async fn poll_early(engine: Arc<Engine>, schedule: ScheduleId, delivery: String, mut wait: Duration) {
    loop {
        tokio::time::sleep(wait).await;
        match try_to_fire(&engine, schedule, &delivery).await {
            Ok(true) => return,
            Ok(false) => wait = MIN_WAKE_INTERVAL,
            Err(error) => return warn!("cannot start an early poll: {error}"),
        }
    }
}

/// Fires the schedule if it is active. Returns false if its agent has no free place or a firing of the schedule is
/// being prepared, so that the caller tries again.
async fn try_to_fire(engine: &Engine, id: ScheduleId, delivery: &str) -> Result<bool, StoreError> {
    let loaded = engine.loaded();
    let Some((agent, schedule)) = loaded.roster.schedule(id) else { return Ok(true) };
    let snapshot = engine.store.snapshot().await?;
    if snapshot.schedules.get(&id).is_none_or(|record| record.state != ScheduleState::Active) {
        return Ok(true);
    }
    let is_full = free_places(engine.clock.now(), agent, schedule, &snapshot) == 0;
    if is_full || snapshot.preparing.iter().any(|firing| firing.schedule == id) {
        return Ok(false);
    }
    let (now, key) = (engine.clock.now(), Occurrence::Webhook { delivery_id: delivery }.key(0));
    let firing =
        Dispatch { agent, schedule, by: audit::current() }.firing(key, FiringContext::default(), now);
    engine.store.fire_once(firing, now).await?;
    engine.nudge.notify_one();
    info!(agent = %agent.name, schedule = %schedule.name, "polls before the next poll is due");
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Stop;

    /// A task that waits keeps the engine alive, and the engine holds the lock of the state folder.
    #[tokio::test]
    async fn a_waiting_search_ends_with_its_fleet() {
        for stopped in [true, false] {
            let (lifecycle, receiver) = watch::channel(Lifecycle::Running);
            let resource = Arc::new(());
            let pending = {
                let resource = Arc::clone(&resource);
                async move {
                    std::future::pending::<()>().await;
                    drop(resource);
                }
            };
            let task = tokio::spawn(run_until_stop(receiver, pending));
            tokio::task::yield_now().await;
            assert_eq!((task.is_finished(), Arc::strong_count(&resource)), (false, 2));
            if stopped {
                lifecycle.send_modify(|lifecycle| {
                    *lifecycle = lifecycle.after(Stop::default(), tokio::time::Instant::now());
                });
                task.await.unwrap();
            } else {
                drop(lifecycle);
                task.await.unwrap();
            }
            assert_eq!(Arc::strong_count(&resource), 1, "stopped: {stopped}");
        }
    }

    #[tokio::test]
    async fn nothing_is_fired_after_a_stop() {
        let (_sender, receiver) = watch::channel(Lifecycle::Leaving);
        let mut fired = false;
        run_until_stop(receiver, async { fired = true }).await;
        assert!(!fired);
    }
}
