//! `state.yaml`: the current state of agents and schedules.

use std::collections::HashMap;

use cowhand_core::id::{AgentName, JobId, ScheduleName};
use cowhand_core::job::{Job, JobStatus};
use cowhand_core::plan::Snapshot;
use cowhand_core::roster::{Agent, Roster};
use indexmap::IndexMap;
use jiff::Timestamp;
use serde::Serialize;

use super::{Views, write_yaml};
use crate::schedule_view::{self, schedules_of};
use cowhand_store::Store;

const FILE_HEAD: &str =
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
    let snapshot = store.snapshot_of(roster, now).await?;
    let schedules = schedules_of(roster, &snapshot, now);
    let last_jobs = store.last_ended().await?;
    let last_jobs: HashMap<&AgentName, &Job> = last_jobs.iter().map(|job| (job.agent(), job)).collect();
    let input = StateInput { snapshot: &snapshot, schedules: &schedules, last_jobs };
    let agents = roster.agents.iter().map(|agent| (&agent.name, input.agent(agent))).collect();
    let state = State { fleet: FleetState { started_at: views.started_at }, agents };
    write_yaml(&views.state.path().join("state.yaml"), FILE_HEAD, &state, &views.redactor)
}

struct StateInput<'a> {
    snapshot: &'a Snapshot,
    schedules: &'a [schedule_view::ScheduleView],
    last_jobs: HashMap<&'a AgentName, &'a Job>,
}

impl<'a> StateInput<'a> {
    fn agent(&self, agent: &'a Agent) -> AgentState<'a> {
        let current = self.snapshot.jobs.iter().find(|job| job.takes_place_of(agent));
        let last = self.last_jobs.get(&agent.name);
        let has_failed = last.is_some_and(|job| job.status() == JobStatus::Failed);
        let schedules = || self.schedules.iter().filter(|view| view.agent == agent.name);
        let upcoming = schedules().filter_map(|view| Some((view.next_run_at?, &view.schedule)));
        let next = upcoming.min_by_key(|(at, _)| *at);
        AgentState {
            status: if current.is_some() {
                "running"
            } else if has_failed {
                "error"
            } else {
                "idle"
            },
            current_job: current.map(|job| &job.id),
            last_job: last.map(|job| job.id()),
            next_schedule: next.map(|(_, name)| name),
            next_trigger_at: next.map(|(at, _)| at),
            schedules: schedules().map(|view| (&view.schedule, ScheduleView::from(view))).collect(),
        }
    }
}

impl<'a> From<&'a schedule_view::ScheduleView> for ScheduleView<'a> {
    fn from(view: &'a schedule_view::ScheduleView) -> Self {
        Self {
            status: view.status.as_str(),
            last_run_at: view.last_run_at,
            next_run_at: view.next_run_at,
            last_error: view.last_error.as_deref(),
        }
    }
}
