//! Looks out of turn at a repository that a delivery reports as changed, instead of at the next poll.

use std::sync::Arc;
use std::time::Duration;

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
use crate::trigger::dispatch::Dispatch;
use crate::trigger::wake::MIN_WAKE_INTERVAL;
use cowhand_store::StoreError;
use cowhand_work::For;

impl Fleet {
    /// Wakes the triggers that poll the repository, and the interval schedules that take work from it. An interval only
    /// looks for work, so it can be early; a cron schedule keeps its times.
    pub fn repository_changed(&self, repository: &str, delivery: &str) {
        self.engine.wakes.wake(repository);
        let roster = self.roster();
        let all = roster.agents.iter().flat_map(|agent| agent.schedules.iter().map(move |own| (agent, own)));
        for (_, schedule) in all.filter(|(agent, schedule)| takes_from(agent, schedule, repository)) {
            if let Some(wait) = self.engine.wakes.turn(schedule.id) {
                let look = look(Arc::clone(&self.engine), schedule.id, delivery.to_owned(), wait);
                tokio::spawn(until_its_end(self.lifecycle.subscribe(), look));
            }
        }
    }
}

fn takes_from(agent: &Agent, schedule: &Schedule, repository: &str) -> bool {
    let source = For::schedule(agent, schedule).config();
    let is_it = matches!(source, Some(ConfiguredSource::Github { repo: Some(repo), .. }) if repo.eq_ignore_ascii_case(repository));
    is_it && schedule.enabled && matches!(schedule.trigger, TriggerConfig::Interval { .. })
}

/// Runs `look` until the fleet stops, because a stopping fleet takes no more work and nothing may keep it alive.
async fn until_its_end(mut way: watch::Receiver<Lifecycle>, look: impl Future<Output = ()>) {
    tokio::select! {
        // The stop is checked first, so that a firing that is about to happen does not.
        biased;
        // An error means that the fleet was dropped, which also ends the wait.
        _ = way.wait_for(|lifecycle| *lifecycle != Lifecycle::Running) => {}
        () = look => {}
    }
}

/// Fires the schedule as soon as its agent has a free place and no other firing is being prepared.
async fn look(engine: Arc<Engine>, schedule: ScheduleId, delivery: String, mut wait: Duration) {
    loop {
        tokio::time::sleep(wait).await;
        match try_to_look(&engine, schedule, &delivery).await {
            Ok(true) => return,
            Ok(false) => wait = MIN_WAKE_INTERVAL,
            Err(error) => return warn!("cannot look for work out of turn: {error}"),
        }
    }
}

/// Returns false while the schedule is busy.
async fn try_to_look(engine: &Engine, id: ScheduleId, delivery: &str) -> Result<bool, StoreError> {
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
    let firing = Dispatch { agent, schedule, due: None }.firing(key, FiringContext::default(), now);
    engine.store.fire_once(firing, now).await?;
    engine.nudge.notify_one();
    info!(agent = %agent.name, schedule = %schedule.name, "looks for work out of turn");
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Stop;

    /// A waiting task holds the engine, and with it the state folder.
    #[tokio::test]
    async fn nothing_waits_longer_than_its_fleet() {
        for stopped in [true, false] {
            let (lifecycle, way) = watch::channel(Lifecycle::Running);
            let held = Arc::new(());
            let waits = {
                let held = Arc::clone(&held);
                async move {
                    std::future::pending::<()>().await;
                    drop(held);
                }
            };
            let task = tokio::spawn(until_its_end(way, waits));
            tokio::task::yield_now().await;
            assert_eq!((task.is_finished(), Arc::strong_count(&held)), (false, 2));
            if stopped {
                lifecycle.send_modify(|lifecycle| {
                    *lifecycle = lifecycle.after(Stop::default(), tokio::time::Instant::now());
                });
                task.await.unwrap();
            } else {
                drop(lifecycle);
                task.await.unwrap();
            }
            assert_eq!(Arc::strong_count(&held), 1, "stopped: {stopped}");
        }
    }

    #[tokio::test]
    async fn nothing_is_fired_after_the_end() {
        let (_course, way) = watch::channel(Lifecycle::Leaving);
        let mut fired = false;
        until_its_end(way, async { fired = true }).await;
        assert!(!fired);
    }
}
