//! The runners of strategies: one runner for each enabled schedule that a strategy drives.

mod pace;
mod runner;

use std::collections::HashMap;
use std::sync::Arc;

use cowhand_core::id::ScheduleId;
use cowhand_core::roster::Schedule;
use cowhand_core::schedule::{ScheduleRecord, ScheduleState};
use cowhand_core::trigger::{Driver, TriggerConfig};
use futures_util::future::join_all;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::warn;

use crate::context::Engine;
use crate::loaded::Loaded;
use cowhand_store::StoreError;
use runner::Runner;

#[derive(Debug, Default)]
pub(super) struct Triggers {
    running: HashMap<ScheduleId, Running>,
    /// The config, and the number of the newest event, when the runners were last compared with the schedules. While
    /// both are the same, no runner has to be started or stopped.
    last_comparison: Option<(Arc<Loaded>, i64)>,
}

#[derive(Debug)]
struct Running {
    arming: Arming,
    /// The newest config with which the runner was compared. The strategy of the runner may hold variables of this
    /// config.
    config: Arc<Loaded>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// The state of a schedule from which its runner was made. A different state needs a new runner.
#[derive(Debug, PartialEq)]
struct Arming {
    trigger: TriggerConfig,
    generation: u32,
    armed_at: Timestamp,
}

impl Arming {
    fn of(record: &ScheduleRecord) -> Self {
        Self { trigger: record.trigger.clone(), generation: record.generation, armed_at: record.armed_at }
    }
}

impl Running {
    /// Returns whether the runner can continue with this config. A strategy may hold a token, so it is replaced if the
    /// variables of the config have changed. After a reload, a failing strategy is replaced, too, so that it tries
    /// again at once. A strategy that follows events holds no token, so a reload does not replace it.
    fn is_current(&self, record: &ScheduleRecord, loaded: &Arc<Loaded>) -> bool {
        let is_same = self.arming == Arming::of(record) && !self.task.is_finished();
        let is_tried_again = self.config.variables != loaded.variables || record.trigger_error.is_some();
        let is_reloaded = !Arc::ptr_eq(&self.config, loaded) && !record.trigger.follows_events();
        is_same && !(is_reloaded && is_tried_again)
    }
}

impl Triggers {
    /// Starts and stops runners so that each enabled schedule with a strategy has one while it is active. A schedule
    /// that follows events has one during a pause, too.
    pub(super) async fn follow(&mut self, engine: &Arc<Engine>) {
        let loaded = engine.loaded();
        let needed: Vec<&Schedule> = loaded
            .roster
            .agents
            .iter()
            .flat_map(|agent| &agent.schedules)
            .filter(|schedule| needs_runner(schedule))
            .collect();
        if needed.is_empty() && self.running.is_empty() {
            return;
        }
        if let Err(error) = self.try_follow(engine, &loaded, &needed).await {
            warn!("cannot read the schedules of the triggers: {error}");
        }
    }

    async fn try_follow(
        &mut self,
        engine: &Arc<Engine>,
        loaded: &Arc<Loaded>,
        needed: &[&Schedule],
    ) -> Result<(), StoreError> {
        let newest = engine.store.last_event().await?;
        let is_unchanged =
            |(config, event): &(Arc<Loaded>, i64)| Arc::ptr_eq(config, loaded) && *event == newest;
        if self.last_comparison.as_ref().is_some_and(is_unchanged) {
            return Ok(());
        }
        let mut active: HashMap<ScheduleId, ScheduleRecord> = engine
            .store
            .schedules()
            .await?
            .into_iter()
            .filter(is_followed)
            .map(|record| (record.id, record))
            .collect();
        let needed: HashMap<ScheduleId, ScheduleRecord> =
            needed.iter().filter_map(|schedule| Some((schedule.id, active.remove(&schedule.id)?))).collect();
        self.running.retain(|id, running| {
            let is_needed = needed.contains_key(id);
            if !is_needed {
                running.stop.send_replace(true);
            }
            is_needed
        });
        for (id, record) in needed {
            match self.running.get_mut(&id) {
                Some(running) if running.is_current(&record, loaded) => running.config = Arc::clone(loaded),
                _ => self.start(engine, loaded, &record),
            }
        }
        self.last_comparison = Some((Arc::clone(loaded), newest));
        Ok(())
    }

    /// Starts a runner, after its predecessor has ended.
    fn start(&mut self, engine: &Arc<Engine>, loaded: &Arc<Loaded>, record: &ScheduleRecord) {
        let (schedule, arming, config) = (record.id, Arming::of(record), Arc::clone(loaded));
        let predecessor = self.running.remove(&schedule);
        let (stop, shutdown) = watch::channel(false);
        let runner = Runner { engine: Arc::clone(engine), schedule, shutdown };
        let task = tokio::spawn(async move {
            if let Some(predecessor) = predecessor {
                predecessor.stop.send_replace(true);
                // The result of the predecessor does not matter.
                let _ = predecessor.task.await;
            }
            runner.run().await;
        });
        self.running.insert(schedule, Running { arming, config, stop, task });
    }

    /// Stops all runners in parallel, and waits for their end.
    pub(super) async fn stop(&mut self) {
        let ending = self.running.drain().map(|(_, running)| {
            running.stop.send_replace(true);
            running.task
        });
        join_all(ending.collect::<Vec<_>>()).await;
        self.last_comparison = None;
    }
}

/// Checks whether the schedule accepts tasks of its strategy now. Events of the fleet are accepted during a pause, as
/// deliveries are, and their jobs wait for the end of the pause. So these jobs are not lost if a person enables or
/// disables the schedule during the pause.
fn is_followed(record: &ScheduleRecord) -> bool {
    match record.state {
        ScheduleState::Active => true,
        ScheduleState::Paused { .. } => record.trigger.follows_events(),
        ScheduleState::Disabled { .. } | ScheduleState::Error { .. } | ScheduleState::Finished => false,
    }
}

fn needs_runner(schedule: &Schedule) -> bool {
    schedule.enabled && schedule.trigger.driver() == Driver::Strategy
}
