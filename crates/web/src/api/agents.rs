//! Agents: their current state, and triggering them.

use std::collections::HashMap;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use cowhand_core::followup::RefusedFollowup;
use cowhand_core::id::{AgentName, JobId, ScheduleName};
use cowhand_core::job::{Job, JobRecord, JobStatus};
use cowhand_core::plan::{LiveJob, LiveState, Snapshot};
use cowhand_core::roster::{Agent, Roster};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{ByPage, JsonBody, parse_name};
use super::provider_usage::ProviderUsage;
use super::waits::{RemovedAgent, RemovedSchedule};
use super::{Api, ApiProblem, Page};
use cowhand_engine::fleet::{PreparingFiring, ScheduleView, TriggerRequest, Triggered};
use cowhand_engine::schedule_view::schedules_of;

/// Agent with its current state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentView {
    pub name: AgentName,
    pub description: Option<String>,
    pub runtime: String,
    pub directory: String,
    pub schedules: Vec<ScheduleName>,
    pub max_concurrent: u32,
    /// Its running jobs, and those that `adopted` lists.
    pub running: usize,
    /// Running jobs of other agents that take places of this agent, because it has adopted their schedules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adopted: Vec<AdoptedJob>,
    /// Jobs whose attempt has ended or never began, while no daemon runs that writes this. The next start ends or
    /// continues them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unsettled: usize,
    /// Jobs that wait for a place, or for another attempt.
    pub queued: usize,
    /// Waiting job that gets the next free place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_job: Option<JobId>,
    /// True if people can talk to the agent in the web chat.
    #[serde(default)]
    pub web_chat: bool,
    pub last_job: Option<LastJob>,
    pub next: Option<AgentNextFiring>,
    /// Last refused follow-up of one of the agent's jobs, within a week.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub followup_refused: Option<RefusedFollowup>,
    /// The agent's `work_source`, if none of its schedules takes items from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untaken_work: Option<String>,
    /// Usage windows and reserve of its provider; absent if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_usage: Option<ProviderUsage>,
}

/// Running job of an adopted schedule. It keeps the name of the agent that it was created for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AdoptedJob {
    pub id: JobId,
    /// Agent whose name the job has.
    pub agent: AgentName,
}

impl AdoptedJob {
    /// States which agent's name the job has and which agent's place it takes. `place_of` is the agent that has adopted
    /// the schedule.
    pub fn sentence(&self, place_of: &AgentName) -> String {
        let Self { id, agent } = self;
        format!("{id} has the name of its former agent, {agent}, and takes a place of {place_of}")
    }
}

/// The agent's newest job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LastJob {
    pub id: JobId,
    pub status: JobStatus,
    pub started_at: Timestamp,
    pub finished_at: Option<Timestamp>,
    /// True if the attempt of the job has ended or never began, and no daemon runs that writes this; `status` is then
    /// `running`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsettled: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(super) const fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// First coming firing of the agent's schedules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Next")]
pub struct AgentNextFiring {
    pub schedule: ScheduleName,
    pub at: Timestamp,
}

pub(super) async fn list(State(api): State<Api>) -> Result<Json<Page<AgentView>>, ApiProblem> {
    views(&api).await.map(Page::all).map(Json)
}

pub(super) async fn removed(State(api): State<Api>) -> Result<Json<Page<AgentName>>, ApiProblem> {
    let (roster, mut names) = (api.roster(), api.store.agents_with_jobs().await?);
    names.retain(|name| roster.agent(name).is_none());
    Ok(Json(Page::all(names)))
}

pub(super) async fn one(
    State(api): State<Api>,
    Path(agent): Path<String>,
) -> Result<Json<AgentView>, ApiProblem> {
    let name = parse_name(&agent)?;
    let mut views = views(&api).await?.into_iter();
    match views.find(|view| view.name == name) {
        Some(view) => Ok(Json(view)),
        None => Err(api.missing_agent(&name).await),
    }
}

pub(super) async fn trigger(
    State(api): State<Api>,
    Path(agent): Path<String>,
    by_page: Option<Extension<ByPage>>,
    JsonBody(request): JsonBody<TriggerRequest>,
) -> Result<(StatusCode, Json<TriggerAnswer>), ApiProblem> {
    let request = TriggerRequest { from_dashboard: by_page.is_some(), ..request };
    trigger_agent(&api, &parse_name(&agent)?, request).await
}

pub(super) async fn clear(
    State(api): State<Api>,
    Path(agent): Path<String>,
) -> Result<Json<AgentView>, ApiProblem> {
    api.daemon()?.clear(&parse_name(&agent)?).await?;
    one(State(api), Path(agent)).await
}

/// Answer to a request that triggers an agent: the job or, if the daemon stops before there is a job, the accepted
/// firing.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum TriggerAnswer {
    Job(Box<JobRecord>),
    Firing(PreparingFiring),
}

/// Triggers the agent. Returns `CREATED` for a new job, `OK` for the job that the same key created before, and
/// `ACCEPTED` for a firing that is stored and has no job yet.
pub(super) async fn trigger_agent(
    api: &Api,
    agent: &AgentName,
    request: TriggerRequest,
) -> Result<(StatusCode, Json<TriggerAnswer>), ApiProblem> {
    let answer = |job: Job| Json(TriggerAnswer::Job(Box::new(job.into())));
    Ok(match api.daemon()?.trigger(agent, request).await? {
        Triggered::New(job) => (StatusCode::CREATED, answer(job)),
        Triggered::Existing(job) => (StatusCode::OK, answer(job)),
        Triggered::Accepted(firing) => (StatusCode::ACCEPTED, Json(TriggerAnswer::Firing(firing))),
    })
}

/// Age after which a refused follow-up is no longer shown.
const MAX_REFUSAL_AGE: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Numbers of running, unsettled and pending jobs, and the agents and schedules that are no longer in the config and
/// still have jobs or firings.
pub(super) struct AgentCounts {
    pub(super) running: usize,
    pub(super) unsettled: usize,
    /// Number of pending jobs.
    pub(super) queued: usize,
    pub(super) gone: Vec<RemovedAgent>,
    pub(super) gone_schedules: Vec<RemovedSchedule>,
}

/// Returns all agents of the fleet, in the order of its files.
pub(super) async fn views(api: &Api) -> Result<Vec<AgentView>, ApiProblem> {
    Ok(views_and_counts(api).await?.0)
}

pub(super) async fn views_and_counts(api: &Api) -> Result<(Vec<AgentView>, AgentCounts), ApiProblem> {
    let (roster, now) = (api.roster(), api.now());
    let (snapshot, newest) = api.store.snapshot_and_newest_jobs(&roster, now).await?;
    let snapshot = api.with_local_state(snapshot, now).await?;
    let schedules = schedules_of(&roster, &snapshot, now);
    let mut newest: HashMap<AgentName, Job> =
        newest.into_iter().map(|job| (job.agent().clone(), job)).collect();
    let mut views = Vec::with_capacity(roster.agents.len());
    for agent in &roster.agents {
        let last_job = newest.remove(&agent.name).map(LastJob::from);
        let last_job = last_job.map(|job| LastJob { unsettled: snapshot.unsettled.contains(&job.id), ..job });
        // Without `followups.max`, every request of the agent's jobs is refused. Such refusals are not shown.
        let refused = match &agent.followups {
            Some(followups) if followups.max.is_some() => api.store.last_refusal(agent.name.clone()).await?,
            _ => None,
        };
        let followup_refused = refused.filter(|refused| now.duration_since(refused.at) < MAX_REFUSAL_AGE);
        views.push(AgentView {
            last_job,
            followup_refused,
            ..AgentView::of(&roster, agent, &snapshot, &schedules, now)
        });
    }
    let pending = snapshot.jobs.iter().filter(|job| matches!(job.state, LiveState::Pending { .. }));
    let running = snapshot.jobs.iter().filter(|job| snapshot.runs(job)).count();
    let gone = RemovedAgent::all(&roster, &snapshot);
    let gone_schedules = RemovedSchedule::all(&roster, &snapshot);
    let (queued, unsettled) = (pending.count(), snapshot.unsettled.len());
    Ok((views, AgentCounts { running, unsettled, queued, gone, gone_schedules }))
}

/// Returns the type and the location of the agent's work source, if no schedule takes items from it.
fn untaken_work(agent: &Agent) -> Option<String> {
    let source = agent.work_source.as_ref().filter(|_| agent.has_unused_work_source())?;
    Some(format!("{} {}", source.name(), source.location()))
}

impl AgentView {
    fn of(
        roster: &Roster,
        agent: &Agent,
        snapshot: &Snapshot,
        schedules: &[ScheduleView],
        now: Timestamp,
    ) -> Self {
        let slot = roster.slot(agent);
        let usage = slot.map(|slot| ProviderUsage::of(&slot, snapshot.providers.get(&slot.provider), now));
        let waiting = snapshot.jobs.iter().filter(|job| matches!(job.state, LiveState::Pending { .. }));
        let agent_schedules = schedules.iter().filter(|view| view.agent == agent.name);
        let next = agent_schedules.filter_map(|view| {
            Some(AgentNextFiring { schedule: view.schedule.clone(), at: view.next_run_at? })
        });
        let is_unsettled = |job: &LiveJob| snapshot.unsettled.contains(&job.id);
        let running = || snapshot.jobs.iter().filter(|job| job.takes_place_of(agent) && !is_unsettled(job));
        let adopted = running().filter(|job| job.agent != agent.name);
        Self {
            name: agent.name.clone(),
            description: agent.description.clone(),
            runtime: runtime(agent).to_owned(),
            directory: agent.directory.display().to_string(),
            schedules: schedules
                .iter()
                .filter(|view| view.agent == agent.name)
                .map(|view| view.schedule.clone())
                .collect(),
            max_concurrent: agent.max_concurrent,
            running: running().count(),
            adopted: adopted.map(|job| AdoptedJob { id: job.id.clone(), agent: job.agent.clone() }).collect(),
            unsettled: snapshot
                .jobs
                .iter()
                .filter(|job| job.agent == agent.name && is_unsettled(job))
                .count(),
            queued: waiting.filter(|job| job.agent == agent.name).count(),
            next_job: snapshot.next_to_start(roster, agent, now).map(|job| job.id.clone()),
            untaken_work: untaken_work(agent),
            web_chat: agent.web_chat.is_some(),
            provider_usage: usage.filter(|usage| !usage.is_empty()),
            last_job: None,
            next: next.min_by_key(|next| next.at),
            followup_refused: None,
        }
    }
}

fn runtime(agent: &Agent) -> &'static str {
    agent.runtime().name()
}

impl From<Job> for LastJob {
    fn from(job: Job) -> Self {
        let JobRecord { id, status, started_at, finished_at, .. } = JobRecord::from(job);
        Self { id, status, started_at, finished_at, unsettled: false }
    }
}
