//! `state.yaml`: agents and schedules as they are now.

use std::collections::HashMap;

use cowhand_core::id::{AgentName, JobId, ScheduleId, ScheduleName};
use cowhand_core::job::{Job, JobStatus};
use cowhand_core::plan::{LiveState, Snapshot, next_runs};
use cowhand_core::roster::{Agent, Roster, Schedule};
use cowhand_core::schedule::{ScheduleRecord, ScheduleState};
use indexmap::IndexMap;
use jiff::Timestamp;
use serde::Serialize;

use super::{Views, write_yaml};
use crate::store::Store;

const HEAD: &str =
    "# A view of the store: editing it changes nothing. Use `cowhand schedule enable|disable`.\n";

#[derive(Debug, Serialize)]
struct State<'a> {
    fleet: FleetState,
    agents: IndexMap<&'a AgentName, AgentState<'a>>,
}

#[derive(Debug, Serialize)]
struct FleetState {
    started_at: Timestamp,
}

#[derive(Debug, Serialize)]
struct AgentState<'a> {
    status: &'static str,
    current_job: Option<&'a JobId>,
    last_job: Option<&'a JobId>,
    next_schedule: Option<&'a ScheduleName>,
    next_trigger_at: Option<Timestamp>,
    schedules: IndexMap<&'a ScheduleName, ScheduleView<'a>>,
}

#[derive(Debug, Serialize)]
struct ScheduleView<'a> {
    status: &'static str,
    last_run_at: Option<Timestamp>,
    next_run_at: Option<Timestamp>,
    last_error: Option<&'a str>,
}

pub(super) async fn write(
    views: &Views,
    store: &Store,
    roster: &Roster,
    now: Timestamp,
) -> anyhow::Result<()> {
    let snapshot = store.snapshot().await?;
    let last = store.last_ended().await?;
    let last: HashMap<&AgentName, &Job> = last.iter().map(|job| (job.agent(), job)).collect();
    let look = Look { snapshot: &snapshot, next: next_runs(now, roster, &snapshot), last, now };
    let agents = roster.agents.iter().map(|agent| (&agent.name, look.agent(agent))).collect();
    let state = State { fleet: FleetState { started_at: views.started_at }, agents };
    write_yaml(&views.state.path().join("state.yaml"), HEAD, &state)
}

struct Look<'a> {
    snapshot: &'a Snapshot,
    next: HashMap<ScheduleId, Timestamp>,
    last: HashMap<&'a AgentName, &'a Job>,
    now: Timestamp,
}

impl<'a> Look<'a> {
    fn agent(&self, agent: &'a Agent) -> AgentState<'a> {
        let running = |job: &&cowhand_core::plan::LiveJob| {
            job.agent == agent.name && matches!(job.state, LiveState::Running { .. })
        };
        let current = self.snapshot.jobs.iter().find(running);
        let last = self.last.get(&agent.name);
        let failed = last.is_some_and(|job| job.status() == JobStatus::Failed);
        let upcoming =
            agent.schedules.iter().filter_map(|schedule| Some((self.next.get(&schedule.id)?, schedule)));
        let next = upcoming.min_by_key(|(at, _)| **at);
        AgentState {
            status: if current.is_some() {
                "running"
            } else if failed {
                "error"
            } else {
                "idle"
            },
            current_job: current.map(|job| &job.id),
            last_job: last.map(|job| job.id()),
            next_schedule: next.map(|(_, schedule)| &schedule.name),
            next_trigger_at: next.map(|(at, _)| *at),
            schedules: agent
                .schedules
                .iter()
                .map(|schedule| (&schedule.name, self.schedule(schedule)))
                .collect(),
        }
    }

    fn schedule(&self, schedule: &'a Schedule) -> ScheduleView<'a> {
        let record = self.snapshot.schedules.get(&schedule.id);
        ScheduleView {
            status: self.status(schedule, record),
            last_run_at: record.and_then(|record| record.last_run_at),
            next_run_at: self.next.get(&schedule.id).copied(),
            last_error: record.and_then(|record| record.last_error.as_deref()),
        }
    }

    fn status(&self, schedule: &Schedule, record: Option<&ScheduleRecord>) -> &'static str {
        let disabled = matches!(record, Some(ScheduleRecord { state: ScheduleState::Disabled { .. }, .. }));
        if disabled || !schedule.enabled {
            "disabled"
        } else if matches!(record, Some(ScheduleRecord { state: ScheduleState::Paused { .. }, .. })) {
            "paused"
        } else if self.snapshot.jobs.iter().any(|job| job.schedule == Some(schedule.id)) {
            "running"
        } else if record.is_some_and(|record| record.is_finished(schedule, self.now)) {
            "finished"
        } else {
            "idle"
        }
    }
}
