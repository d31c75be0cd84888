//! Schedules: how they stand, on and off, fired by hand, and what became of their firings.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use cowhand_core::event::Fact;
use cowhand_core::id::{AgentName, JobId, ScheduleId};
use cowhand_core::job::{ExitReason, Job, JobStatus};
use cowhand_core::plan::Snapshot;
use cowhand_core::roster::Schedule;
use cowhand_core::schedule::{ScheduleRecord, SkipReason};
use cowhand_core::trigger::FiringKey;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::agents::triggered;
use super::given::{ByPage, Count, Given, Params, named};
use super::{Api, Page, Problem, waits};
use cowhand_engine::fleet::{ScheduleView, Trigger};
use cowhand_engine::schedule_view::{schedules_of, why_of};
use cowhand_store::{JobOfFiring, LedgerRow};
use cowhand_work::For;

/// A job that a firing made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FiringJob {
    pub id: JobId,
    pub status: JobStatus,
    pub exit_reason: Option<ExitReason>,
}

impl From<JobOfFiring> for FiringJob {
    fn from(JobOfFiring { id, status, exit_reason, .. }: JobOfFiring) -> Self {
        Self { id, status, exit_reason }
    }
}

/// One row of the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FiringView {
    pub key: FiringKey,
    pub due: Timestamp,
    pub decided_at: Timestamp,
    /// `ran`, `skipped`, `missed`, `coalesced` or `preparing`; how a firing that ran ended is in `jobs`.
    pub outcome: String,
    pub reason: Option<SkipReason>,
    /// Why it ran or did not, in a sentence that has the note in it.
    #[serde(default)]
    pub why: String,
    /// More about it, in words: for example whose words were not trusted.
    pub note: Option<String>,
    /// The first of its jobs, also after that was pruned.
    pub job: Option<JobId>,
    /// All of its jobs that are still there, in the order in which they were made.
    #[serde(default)]
    pub jobs: Vec<FiringJob>,
}

impl FiringView {
    fn of(row: LedgerRow, schedule: &Schedule, record: Option<&ScheduleRecord>, daemon_runs: bool) -> Self {
        let why = why_of(&row, schedule, record, daemon_runs);
        let LedgerRow { key, due, decided_at, outcome, note, job, jobs } = row;
        let (reason, outcome) = (outcome.skip_reason(), outcome.as_str().to_owned());
        let jobs = jobs.into_iter().map(FiringJob::from).collect();
        Self { key, due, decided_at, outcome, reason, why, note, job, jobs }
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

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Ledger {
    /// How many at most; unset means 20.
    limit: Option<Count>,
}

pub(super) async fn firings(
    State(api): State<Api>,
    Path((agent, schedule)): Path<(String, String)>,
    Params(Ledger { limit }): Params<Ledger>,
) -> Result<Json<Page<FiringView>>, Problem> {
    let (roster, agent) = (api.roster(), named(&agent)?);
    let id = find(&api, &agent, &schedule).await?;
    // The config may have been read again in between.
    let Some((owner, known)) = roster.schedule(id) else { return Err(Problem::no_agent(&roster, &agent)) };
    let rows = api.store.ledger(id, Count::or(limit, 20)).await?;
    let record = api.store.schedule(id).await?;
    let daemon_runs = api.daemon().is_ok();
    let view = |row| FiringView::of(row, known, record.as_ref(), daemon_runs);
    let mut views: Vec<FiringView> = rows.into_iter().map(view).collect();
    if For::schedule(owner, known).config().is_some() {
        for view in &mut views {
            say_what_was_dropped(&api, view).await?;
        }
    }
    Ok(Json(Page::whole(views)))
}

/// Adds which results of its jobs were not told, because their items were replaced.
async fn say_what_was_dropped(api: &Api, view: &mut FiringView) -> Result<(), Problem> {
    for job in view.jobs.iter().filter(|job| job.exit_reason.is_some()) {
        let told = api.store.last_item_report(job.id.clone()).await?;
        if let Some(Fact::WorkDropped { message, .. }) = told.map(|event| event.fact) {
            let why = &view.why;
            view.why = format!("{why}; the result of {} was not told to its source: {message}", job.id);
        }
    }
    Ok(())
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
    by_page: Option<Extension<ByPage>>,
    Given(asked): Given<Trigger>,
) -> Result<(StatusCode, Json<Job>), Problem> {
    let asked = Trigger { schedule: Some(named(&schedule)?), by_page: by_page.is_some(), ..asked };
    triggered(&api, &named(&agent)?, asked).await
}

pub(super) async fn find(api: &Api, agent: &AgentName, schedule: &str) -> Result<ScheduleId, Problem> {
    let roster = api.roster();
    let Some(known) = roster.agent(agent) else { return Err(api.missing_agent(agent).await) };
    let found = known.schedules.iter().find(|known| known.name.as_str() == schedule);
    found.map(|schedule| schedule.id).ok_or_else(|| Problem::no_schedule(known, schedule))
}

pub(super) async fn view(
    api: &Api,
    agent: &AgentName,
    schedule: &str,
) -> Result<Json<ScheduleView>, Problem> {
    find(api, agent, schedule).await?;
    let mut views = views(api).await?.into_iter();
    let found = views.find(|view| view.agent == *agent && view.schedule.as_str() == schedule);
    found.map(Json).ok_or_else(|| Problem::not_found(format!("{agent} has no schedule {schedule}")))
}

/// Says of a job that is tried again what its last attempt failed with.
async fn say_why_it_failed(
    api: &Api,
    snapshot: &Snapshot,
    view: &mut ScheduleView,
    now: Timestamp,
) -> Result<(), Problem> {
    let Some((live, _)) = snapshot.tried_again(view.id, now).filter(|(live, _)| live.put_back(now).is_none())
    else {
        return Ok(());
    };
    let Some(job) = api.store.job(live.id.clone()).await? else { return Ok(()) };
    if let Some(message) = waits::last_failure(api, &job).await? {
        view.skip_note = Some(format!("{}: {message}", live.id));
    }
    Ok(())
}

pub(super) async fn views(api: &Api) -> Result<Vec<ScheduleView>, Problem> {
    let (roster, now) = (api.roster(), api.now());
    let snapshot = api.snapshot(&roster, now).await?;
    let mut views = schedules_of(&roster, &snapshot, now);
    for view in views.iter_mut().filter(|view| view.skip_note_reason == Some(SkipReason::Requeued)) {
        say_why_it_failed(api, &snapshot, view, now).await?;
    }
    Ok(views)
}
