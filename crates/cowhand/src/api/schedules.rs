//! Schedules: how they stand, on and off, fired by hand, and what became of their firings.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use cowhand_core::id::{AgentName, JobId, ScheduleId, ScheduleName};
use cowhand_core::job::Job;
use cowhand_core::plan::{self, LiveState, Snapshot};
use cowhand_core::roster::{Agent, Schedule};
use cowhand_core::schedule::{ScheduleState, SkipReason};
use cowhand_core::trigger::FiringKey;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::agents::triggered;
use super::given::{Given, Params, named};
use super::{Api, Page, Problem};
use crate::fleet::Trigger;
use crate::store::LedgerRow;

/// A schedule as people see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleView {
    pub agent: AgentName,
    pub schedule: ScheduleName,
    #[serde(rename = "type")]
    pub kind: String,
    pub status: ScheduleStatus,
    pub last_run_at: Option<Timestamp>,
    /// A time that has passed means: due, and held back.
    pub next_run_at: Option<Timestamp>,
    /// It has fired, and what it runs for is being found out.
    pub preparing: bool,
    pub last_error: Option<String>,
    pub skip_reason: Option<SkipReason>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleStatus {
    Idle,
    Running,
    Disabled,
    Error,
}

/// One row of the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FiringView {
    pub key: FiringKey,
    pub due: Timestamp,
    pub decided_at: Timestamp,
    /// `ran`, `skipped`, `missed` or `coalesced`.
    pub outcome: String,
    pub reason: Option<SkipReason>,
    pub job: Option<JobId>,
}

impl ScheduleStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Running => "running",
            Self::Disabled => "disabled",
            Self::Error => "error",
        }
    }
}

impl From<LedgerRow> for FiringView {
    fn from(row: LedgerRow) -> Self {
        let LedgerRow { key, due, decided_at, outcome, job } = row;
        let (reason, outcome) = (outcome.skip_reason(), outcome.as_str().to_owned());
        Self { key, due, decided_at, outcome, reason, job }
    }
}

pub(super) async fn list(State(api): State<Api>) -> Result<Json<Page<ScheduleView>>, Problem> {
    views(&api).await.map(Page::whole).map(Json)
}

pub(super) async fn one(
    State(api): State<Api>,
    Path((agent, schedule)): Path<(String, String)>,
) -> Result<Json<ScheduleView>, Problem> {
    view(&api, &named(&agent)?, &schedule).await
}

#[derive(Debug, Deserialize)]
pub(super) struct Ledger {
    #[serde(default = "usual")]
    limit: u32,
}

fn usual() -> u32 {
    20
}

pub(super) async fn firings(
    State(api): State<Api>,
    Path((agent, schedule)): Path<(String, String)>,
    Params(Ledger { limit }): Params<Ledger>,
) -> Result<Json<Page<FiringView>>, Problem> {
    let id = find(&api, &named(&agent)?, &schedule)?;
    let rows = api.store.ledger(id, limit.min(1000)).await?;
    Ok(Json(Page::whole(rows.into_iter().map(FiringView::from).collect())))
}

pub(super) async fn enable(
    State(api): State<Api>,
    Path((agent, schedule)): Path<(String, String)>,
) -> Result<Json<ScheduleView>, Problem> {
    let (daemon, agent) = (api.daemon()?, named(&agent)?);
    daemon.enable(&agent, &named(&schedule)?).await?;
    view(&api, &agent, &schedule).await
}

pub(super) async fn disable(
    State(api): State<Api>,
    Path((agent, schedule)): Path<(String, String)>,
) -> Result<Json<ScheduleView>, Problem> {
    let (daemon, agent) = (api.daemon()?, named(&agent)?);
    daemon.disable(&agent, &named(&schedule)?).await?;
    view(&api, &agent, &schedule).await
}

pub(super) async fn fire(
    State(api): State<Api>,
    Path((agent, schedule)): Path<(String, String)>,
    Given(asked): Given<Trigger>,
) -> Result<(StatusCode, Json<Job>), Problem> {
    let asked = Trigger { schedule: Some(named(&schedule)?), ..asked };
    triggered(&api, &named(&agent)?, asked).await
}

fn find(api: &Api, agent: &AgentName, schedule: &str) -> Result<ScheduleId, Problem> {
    let roster = api.roster();
    let known = roster.agent(agent).ok_or_else(|| Problem::no_agent(agent))?;
    let found = known.schedules.iter().find(|known| known.name.as_str() == schedule);
    found.map(|schedule| schedule.id).ok_or_else(|| Problem::no_schedule(agent, schedule))
}

async fn view(api: &Api, agent: &AgentName, schedule: &str) -> Result<Json<ScheduleView>, Problem> {
    find(api, agent, schedule)?;
    let mut views = views(api).await?.into_iter();
    let found = views.find(|view| view.agent == *agent && view.schedule.as_str() == schedule);
    found.map(Json).ok_or_else(|| Problem::no_schedule(agent, schedule))
}

/// All schedules of the fleet, in the order of its files.
async fn views(api: &Api) -> Result<Vec<ScheduleView>, Problem> {
    let snapshot = api.store.snapshot().await?;
    let roster = api.roster();
    let next = plan::next_runs(api.now(), &roster, &snapshot);
    let of_agent = |agent: &Agent| -> Vec<ScheduleView> {
        let view = |schedule: &Schedule| {
            let next_run_at = next.get(&schedule.id).copied();
            ScheduleView { next_run_at, ..ScheduleView::of(agent, schedule, &snapshot) }
        };
        agent.schedules.iter().map(view).collect()
    };
    Ok(roster.agents.iter().flat_map(of_agent).collect())
}

impl ScheduleView {
    fn of(agent: &Agent, schedule: &Schedule, snapshot: &Snapshot) -> Self {
        let record = snapshot.schedules.get(&schedule.id);
        let state = record.map_or(&ScheduleState::Active, |record| &record.state);
        let runs = snapshot
            .jobs
            .iter()
            .any(|job| job.schedule == Some(schedule.id) && matches!(job.state, LiveState::Running { .. }));
        let (status, gave_up) = match state {
            ScheduleState::Error { reason } => (ScheduleStatus::Error, Some(reason.clone())),
            ScheduleState::Disabled { .. } => (ScheduleStatus::Disabled, None),
            ScheduleState::Active if !schedule.enabled => (ScheduleStatus::Disabled, None),
            ScheduleState::Active if runs => (ScheduleStatus::Running, None),
            ScheduleState::Active => (ScheduleStatus::Idle, None),
        };
        let waiting = record.and_then(|record| record.waiting.as_ref()).map(|waiting| waiting.reason);
        Self {
            agent: agent.name.clone(),
            schedule: schedule.name.clone(),
            kind: schedule.trigger.type_name().to_owned(),
            status,
            last_run_at: record.and_then(|record| record.last_run_at),
            next_run_at: None,
            preparing: snapshot.preparing.iter().any(|firing| firing.schedule == schedule.id),
            last_error: gave_up.or_else(|| record.and_then(|record| record.last_error.clone())),
            skip_reason: if status == ScheduleStatus::Disabled {
                Some(SkipReason::Disabled)
            } else {
                waiting
            },
        }
    }
}
