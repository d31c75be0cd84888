//! The strategy for triggers that the clock fires: core computes the due times, and the strategy waits for them. The
//! strategy also accepts triggers that only a person or a delivery fires, and returns no task for these triggers.
//!
//! A fleet does not use this strategy for its schedules, because the planner fires all of them in one place. The
//! strategy is for programs that have a trigger and no fleet.

use async_trait::async_trait;
use cowhand_core::plan::{Action, Snapshot, plan};
use cowhand_core::roster::{Agent, Roster, Schedule};
use cowhand_core::schedule::{FiringOutcome, ScheduleRecord};
use cowhand_core::trigger::FiringContext;
use jiff::Timestamp;
use tokio::sync::watch;

use super::strategy::{FatalTriggerError, Task, TriggerStrategy, stopped};
use super::strategy_context::StrategyContext;
use cowhand_system::clock::Clock;

/// The strategy that passes on a task at each due time of one schedule. An interval is counted from the time at which
/// the last task was passed on.
#[derive(Debug)]
pub struct Timer {
    clock: Clock,
    roster: Roster,
    record: ScheduleRecord,
}

impl Timer {
    /// Creates a timer whose schedule is armed now. If the clock does not fire the trigger, the timer never returns a
    /// task.
    pub fn new(agent: Agent, schedule: Schedule, clock: Clock) -> Self {
        let record = ScheduleRecord::new(&agent.name, &schedule, clock.now());
        let roster = Roster::of(vec![Agent { schedules: vec![schedule], ..agent }]);
        Self { clock, roster, record }
    }

    pub(super) fn of(context: &StrategyContext) -> anyhow::Result<Self> {
        let roster = context.roster();
        let (agent, schedule) = roster
            .schedule(context.schedule_id())
            .ok_or_else(|| FatalTriggerError("the fleet no longer has this schedule".to_owned()))?;
        Ok(Self::new(agent.clone(), schedule.clone(), context.clock().clone()))
    }

    async fn next(&mut self) -> Vec<Task> {
        loop {
            let now = self.clock.now();
            let schedules = [(self.record.id, self.record.clone())].into();
            let plan = plan(now, &self.roster, &Snapshot { schedules, ..Snapshot::default() });
            let tasks = self.fire(plan.actions, now);
            if !tasks.is_empty() {
                return tasks;
            }
            self.clock.wait_until(plan.wake_at).await;
        }
    }

    fn fire(&mut self, actions: Vec<Action>, now: Timestamp) -> Vec<Task> {
        let mut tasks = Vec::new();
        for action in actions {
            let Action::Fire { schedule, key, due, outcome, .. } = action else { continue };
            self.record.record_outcome(&key, due);
            self.record.record_run_or_poll(now.into());
            let fired = self.roster.schedule(schedule).filter(|_| outcome == FiringOutcome::Ran);
            tasks.extend(fired.map(|(_, schedule)| FiringContext::by_clock(schedule, &key, due).task));
        }
        tasks
    }
}

#[async_trait]
impl TriggerStrategy for Timer {
    async fn next_tasks(&mut self, shutdown: &watch::Receiver<bool>) -> anyhow::Result<Vec<Task>> {
        tokio::select! {
            biased;
            () = stopped(shutdown) => Ok(Vec::new()),
            tasks = self.next() => Ok(tasks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn due_times_become_tasks() {
        let start: Timestamp = "2026-01-05T08:59:00Z".parse().unwrap();
        for (trigger, times, expected) in [
            (
                r#"{"type":"cron","expression":"0 9 * * *"}"#,
                &["2026-01-05T09:00:00Z", "2026-01-06T09:00:00Z"][..],
                &["cron:2026-01-05T09:00:00Z", "cron:2026-01-06T09:00:00Z"][..],
            ),
            (
                r#"{"type":"interval","interval":"1h"}"#,
                &["2026-01-05T08:59:00Z", "2026-01-05T09:59:00Z", "2026-01-05T11:30:00Z"],
                &["interval:1", "interval:2", "interval:3"],
            ),
            (
                r#"{"type":"delay","in":"5m"}"#,
                &["2026-01-05T09:04:00Z", "2027-01-05T09:04:00Z"],
                &["delay:2026-01-05T09:04:00Z"],
            ),
            (r#"{"type":"manual"}"#, &["2027-01-05T09:04:00Z"], &[]),
        ] {
            let agent = Agent::new("coder".parse().unwrap());
            let trigger = serde_json::from_str(trigger).unwrap();
            let schedule = Schedule::new(&agent.name, "s".parse().unwrap(), trigger);
            let clock = Clock::test(start);
            let mut timer = Timer::new(agent, schedule, clock.clone());
            let (_running, shutdown) = watch::channel(false);
            let mut fired = Vec::new();
            for time in times {
                clock.set(time.parse().unwrap());
                let next = timer.next_tasks(&shutdown);
                // The future is ready at once, or it waits for the clock.
                if let Some(tasks) = futures_util::FutureExt::now_or_never(next) {
                    fired.extend(tasks.unwrap().into_iter().map(|task| task.source_id));
                }
            }
            assert_eq!(fired, expected);
        }
    }
}
