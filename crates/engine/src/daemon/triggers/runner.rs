//! The runner: calls a strategy, dispatches its tasks, and calls it again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use cowhand_core::cut::cut;
use cowhand_core::firing::Dispatch;
use cowhand_core::id::ScheduleId;
use cowhand_core::trigger::{FiringContext, FiringKey, Occurrence};
use tokio::sync::watch;
use tracing::{error, info, warn};
use uuid::Uuid;

use super::pace::Pace;
use crate::context::Engine;
use crate::trigger::{
    FatalTriggerError, Paced, StrategyContext, Task, TriggerServices, TriggerStrategy, find_in_error,
    is_stopped, retry_after, stopped, strategy,
};
use cowhand_store::{Fired, StoreError, audit};
use cowhand_system::fault;
use cowhand_system::panic::caught;

/// Largest number of firings that share a transaction.
const MAX_FIRINGS_PER_TRANSACTION: usize = 100;
/// Time limit for the reaction of a strategy to a shutdown. After this time, the strategy is dropped.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);
/// Maximum length in bytes of a stored error message.
const ERROR_CAP: usize = 2_000;

/// The task that drives the strategy of one schedule.
#[derive(Debug)]
pub(crate) struct Runner {
    pub engine: Arc<Engine>,
    pub schedule: ScheduleId,
    pub shutdown: watch::Receiver<bool>,
}

/// Result of one call of the strategy.
enum Answer {
    Tasks {
        tasks: Vec<Task>,
        is_listing: bool,
    },
    Failed(anyhow::Error),
    /// The shutdown of the runner was signalled.
    Stopped,
}

/// The result of the last call of the strategy, as the store has it.
#[derive(PartialEq)]
enum Recorded {
    Unknown,
    Answer,
    Error(String),
}

impl Runner {
    /// Runs until it is stopped, or until the strategy returns a fatal error.
    pub(super) async fn run(self) {
        let Some(context) = StrategyContext::of(self.services(), self.schedule) else { return };
        let (mut strategy, mut pace) = (None, Pace::default());
        // An earlier runner of the schedule may have recorded an error.
        let mut recorded = Recorded::Unknown;
        while !is_stopped(&self.shutdown) {
            let began = Instant::now();
            let pause = match self.call_strategy(&context, &mut strategy).await {
                Answer::Stopped => return,
                Answer::Failed(error) => match fatal(&error) {
                    Some(reason) => return self.fail_schedule(reason).await,
                    None => self.failed(&error, &mut pace, &mut recorded).await,
                },
                Answer::Tasks { tasks, is_listing } => {
                    self.record_error(None, &mut recorded).await;
                    let is_empty = tasks.is_empty();
                    self.dispatch(tasks, is_listing).await;
                    if is_empty {
                        pace.after_empty(began.elapsed())
                    } else {
                        pace.reset();
                        Duration::ZERO
                    }
                }
            };
            self.pause(pause).await;
        }
    }

    fn services(&self) -> TriggerServices {
        let Engine { config, clock, store, home, .. } = &*self.engine;
        let state = home.state.clone();
        TriggerServices { config: config.clone(), clock: clock.clone(), store: store.clone(), state }
    }

    /// Calls the strategy. After a panic the strategy may be in an invalid state, so it is replaced by a new strategy.
    async fn call_strategy(
        &self,
        context: &StrategyContext,
        current: &mut Option<Box<dyn TriggerStrategy>>,
    ) -> Answer {
        let call = async {
            let current = match current {
                Some(current) => current,
                None => current.insert(strategy(&self.engine.triggers, &self.engine.wakes, context)?),
            };
            let tasks = current.next_tasks(&self.shutdown).await?;
            Ok((tasks, current.is_listing()))
        };
        let overdue = async {
            stopped(&self.shutdown).await;
            tokio::time::sleep(SHUTDOWN_GRACE).await;
        };
        let answer = tokio::select! {
            answer = caught(call) => answer,
            () = overdue => return Answer::Stopped,
        };
        match answer {
            // The shutdown may be the reason why a list is empty, so the list is ignored. It is read again later.
            Ok(Ok((_, true))) if is_stopped(&self.shutdown) => Answer::Stopped,
            Ok(Ok((tasks, is_listing))) => Answer::Tasks { tasks, is_listing },
            Ok(Err(error)) => Answer::Failed(error),
            Err(panicked) => {
                *current = None;
                Answer::Failed(anyhow!("the trigger {panicked}"))
            }
        }
    }

    /// Records the error, and returns the pause before the next call. Only the first of a series of errors is logged.
    async fn failed(&self, error: &anyhow::Error, pace: &mut Pace, recorded: &mut Recorded) -> Duration {
        let is_first = !pace.is_failing();
        let backoff = pace.after_error();
        if is_first {
            warn!(schedule = %self.name(), "its trigger failed and is tried again: {error:#}");
        }
        self.record_error(Some(cut(&format!("{error:#}"), 0, ERROR_CAP)), recorded).await;
        if find_in_error::<Paced>(error).is_some() {
            Duration::ZERO
        } else {
            retry_after(error).unwrap_or(backoff)
        }
    }

    async fn fail_schedule(&self, reason: String) {
        error!(schedule = %self.name(), "the schedule stopped because of an error of its trigger: {reason}");
        let mut pace = Pace::default();
        while let Err(error) =
            self.engine.store.fail_schedule(self.schedule, reason.clone(), self.engine.clock.now()).await
        {
            if !self.wait_before_retry(&error, &mut pace).await {
                return;
            }
        }
        self.engine.nudge.notify_one();
    }

    /// Records the error of the trigger, or `None` after an answer. Does nothing if the same is recorded already.
    async fn record_error(&self, error: Option<String>, recorded: &mut Recorded) {
        let new = error.clone().map_or(Recorded::Answer, Recorded::Error);
        if *recorded == new {
            return;
        }
        match self.engine.store.record_trigger_error(self.schedule, error, self.engine.clock.now()).await {
            Ok(()) => *recorded = new,
            Err(error) => warn!("cannot store the state of a trigger: {error}"),
        }
    }

    /// Dispatches all tasks in order. While the store is unavailable, the dispatch is retried, because the strategy may
    /// not return the tasks again.
    async fn dispatch(&self, mut tasks: Vec<Task>, is_listing: bool) {
        for task in tasks.iter_mut().filter(|task| task.source_id.is_empty() && !is_listing) {
            task.source_id = Uuid::now_v7().to_string();
        }
        let count = tasks.len();
        tasks.retain(|task| !task.source_id.is_empty());
        if tasks.len() < count {
            warn!(schedule = %self.name(), "entries of its list have no id and are left out");
        }
        let mut pace = Pace::default();
        while let Err(error) = self.fire(&tasks, is_listing).await {
            if !self.wait_before_retry(&error, &mut pace).await {
                return;
            }
        }
    }

    async fn fire(&self, tasks: &[Task], is_listing: bool) -> Result<(), StoreError> {
        let loaded = self.engine.loaded();
        let Some((agent, schedule)) = loaded.roster.schedule(self.schedule) else { return Ok(()) };
        let first_key = |task| Occurrence::of_task(&schedule.trigger, task).key(0);
        let keys: Vec<FiringKey> = tasks.iter().map(first_key).collect();
        let open = if is_listing {
            self.engine.store.record_sightings(self.schedule, keys).await?
        } else {
            keys.into_iter().enumerate().collect()
        };
        fault::point("sighted");
        let dispatch = Dispatch { agent, schedule, by: audit::current() };
        for part in open.chunks(MAX_FIRINGS_PER_TRANSACTION) {
            let now = self.engine.clock.now();
            let firing = |(index, key): &(usize, FiringKey)| {
                dispatch.firing(key.clone(), FiringContext::of_task(tasks[*index].clone()), now)
            };
            let fired = self.engine.store.fire_all(part.iter().map(firing).collect(), now).await?;
            fault::point("dispatched");
            let jobs = fired.iter().filter(|fired| matches!(fired, Fired::Recorded(Some(_)))).count();
            (0..jobs).for_each(|_| self.engine.count_trigger());
            self.engine.nudge.notify_one();
        }
        if !open.is_empty() {
            info!(schedule = %self.name(), tasks = open.len(), "fired");
        }
        Ok(())
    }

    /// Logs the error and waits. Returns true if the caller has to try again, false if the runner was stopped
    /// meanwhile.
    async fn wait_before_retry(&self, error: &StoreError, pace: &mut Pace) -> bool {
        error!(schedule = %self.name(), "cannot store the firings of its trigger: {error}");
        self.pause(pace.after_error()).await;
        !is_stopped(&self.shutdown)
    }

    async fn pause(&self, pause: Duration) {
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stopped(&self.shutdown) => {}
        }
    }

    fn name(&self) -> String {
        let loaded = self.engine.loaded();
        let found = loaded.roster.schedule(self.schedule);
        found.map_or_else(
            || self.schedule.to_string(),
            |(agent, schedule)| format!("{}/{}", agent.name, schedule.name),
        )
    }
}

fn fatal(error: &anyhow::Error) -> Option<String> {
    find_in_error(error).map(|FatalTriggerError(reason)| cut(reason, 0, ERROR_CAP))
}
