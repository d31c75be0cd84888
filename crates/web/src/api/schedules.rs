//! Schedules: their state, turning them on and off, firing them by hand, and their ledger.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use cowhand_core::event::Fact;
use cowhand_core::id::{AgentName, JobId, ScheduleId, ScheduleName};
use cowhand_core::job::{ExitReason, JobStatus, OriginMessage};
use cowhand_core::node::no_node_for;
use cowhand_core::plan::{LiveJob, LiveState, Snapshot};
use cowhand_core::roster::Roster;
use cowhand_core::schedule::{FiringOutcome, ScheduleRecord, SkipReason};
use cowhand_core::trigger::FiringKey;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::agents::{TriggerAnswer, trigger_agent};
use super::extract::{ByPage, Count, JsonBody, Params, parse_name};
use super::{Api, ApiProblem, Page};
use cowhand_engine::fleet::{
    AcceptedFiring, ScheduleView, TriggerRequest, accepted_firings, missing_schedule,
};
use cowhand_engine::schedule_view::{RETRY_DUE, prepared_by, schedules_of, why_of};
use cowhand_engine::waits::last_failure;
use cowhand_store::{FiringJobRow, LedgerRow};
use cowhand_work::SourceOwner;

/// Job that a firing created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FiringJob {
    pub id: JobId,
    pub status: JobStatus,
    pub exit_reason: Option<ExitReason>,
    /// Error of a job that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// True if the attempt of the job has ended or never began, and no daemon runs that writes this; `status` is then
    /// `running`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsettled: bool,
    /// Chat message that caused the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<OriginMessage>,
}

impl From<FiringJobRow> for FiringJob {
    fn from(FiringJobRow { id, status, exit_reason, error, message, .. }: FiringJobRow) -> Self {
        Self { id, status, exit_reason, error, unsettled: false, message }
    }
}

/// Firing of a schedule with its outcome: a row of the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FiringView {
    pub key: FiringKey,
    pub due: Timestamp,
    pub decided_at: Timestamp,
    /// `ran`, `skipped`, `missed`, `coalesced` or `preparing`; the results of a firing that ran are in
    /// `jobs`.
    pub outcome: String,
    pub reason: Option<SkipReason>,
    /// Reason why the firing ran or did not run, as a sentence that includes the note.
    #[serde(default)]
    pub why: String,
    /// Further details as text, for example the author who was not trusted.
    pub note: Option<String>,
    /// First job of the firing, even after the job was pruned.
    pub job: Option<JobId>,
    /// All jobs of the firing that still exist, in the order of their creation.
    #[serde(default)]
    pub jobs: Vec<FiringJob>,
}

impl FiringView {
    fn of(
        row: LedgerRow,
        record: Option<&ScheduleRecord>,
        prepared_by: Option<&str>,
        has_daemon: bool,
    ) -> Self {
        let why = why_of(&row, record, prepared_by, has_daemon);
        let LedgerRow { key, due, decided_at, outcome, note, job, jobs } = row;
        let (reason, outcome) = (outcome.skip_reason(), outcome.as_str().to_owned());
        let jobs = jobs.into_iter().map(FiringJob::from).collect();
        Self { key, due, decided_at, outcome, reason, why, note, job, jobs }
    }
}

pub(super) async fn list(State(api): State<Api>) -> Result<Json<Page<ScheduleView>>, ApiProblem> {
    views(&api).await.map(Page::all).map(Json)
}

pub(super) async fn one(
    State(api): State<Api>,
    Path((agent, schedule)): Path<(String, String)>,
    Params(ScheduleQuery { firings }): Params<ScheduleQuery>,
) -> Result<Json<ScheduleWithFirings>, ApiProblem> {
    let agent = parse_name(&agent)?;
    let Some(limit) = firings else {
        let Json(schedule) = view(&api, &agent, &schedule).await?;
        return Ok(Json(ScheduleWithFirings { schedule, firings: None }));
    };
    let (roster, now) = (api.roster(), api.now());
    let id = find(&api, &agent, &schedule).await?;
    let (snapshot, rows) =
        api.store.snapshot_and_ledger(&roster, (id, Count::or(Some(limit), 20)), now).await?;
    let snapshot = api.with_local_state(snapshot, now).await?;
    let mut views = views_in(&api, &roster, &snapshot, now).await?.into_iter();
    // After a reload, `find` may have used a newer config than `roster`.
    let Some(schedule) = views.find(|view| view.id == id) else {
        return Err(ApiProblem::no_agent(&roster, &agent));
    };
    let firings = firing_views(&api, &roster, id, rows, snapshot.schedules.get(&id)).await?;
    Ok(Json(ScheduleWithFirings { schedule, firings: Some(firings) }))
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ScheduleQuery {
    /// Maximum number of the newest firings to include, read at the same moment as the schedule; unset means that no
    /// firings are included.
    firings: Option<Count>,
}

/// Schedule, with its newest firings if they are requested.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleWithFirings {
    #[serde(flatten)]
    pub schedule: ScheduleView,
    /// Its newest firings with their outcomes, the newest first; absent unless requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firings: Option<Vec<FiringView>>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct FiringsQuery {
    /// Maximum number of firings; unset means 20.
    limit: Option<Count>,
}

pub(super) async fn firings(
    State(api): State<Api>,
    Path((agent, schedule)): Path<(String, String)>,
    Params(FiringsQuery { limit }): Params<FiringsQuery>,
) -> Result<Json<Page<FiringView>>, ApiProblem> {
    let (roster, agent) = (api.roster(), parse_name(&agent)?);
    let id = find(&api, &agent, &schedule).await?;
    // After a reload, `find` may have used a newer config than `roster`.
    if roster.schedule(id).is_none() {
        return Err(ApiProblem::no_agent(&roster, &agent));
    }
    let rows = api.store.ledger(id, Count::or(limit, 20)).await?;
    let record = api.store.schedule(id).await?;
    let views = firing_views(&api, &roster, id, rows, record.as_ref()).await?;
    Ok(Json(Page::all(views)))
}

async fn firing_views(
    api: &Api,
    roster: &Roster,
    id: ScheduleId,
    rows: Vec<LedgerRow>,
    record: Option<&ScheduleRecord>,
) -> Result<Vec<FiringView>, ApiProblem> {
    let (has_daemon, configured) = (api.daemon().is_ok(), roster.schedule(id));
    let prepared_by = configured.and_then(|(agent, schedule)| prepared_by(agent, schedule));
    let view = |row| FiringView::of(row, record, prepared_by.as_deref(), has_daemon);
    let mut views: Vec<FiringView> = rows.into_iter().map(view).collect();
    let is_preparing = |view: &FiringView| view.outcome == FiringOutcome::Preparing.as_str();
    if has_daemon
        && views.iter().any(is_preparing)
        && let Some((agent, _)) = configured
        && let Some(why) = no_node_for(agent, &api.store.nodes().await?)
    {
        for view in views.iter_mut().filter(|view| is_preparing(view)) {
            view.why.clone_from(&why);
        }
    }
    let running = views.iter().flat_map(|view| &view.jobs).filter(|job| job.status == JobStatus::Running);
    let unsettled = api.unsettled(running.map(|job| job.id.clone()).collect()).await;
    for job in views.iter_mut().flat_map(|view| &mut view.jobs) {
        job.unsettled = unsettled.contains_key(&job.id);
    }
    let has_work_source =
        configured.is_some_and(|(agent, schedule)| SourceOwner::schedule(agent, schedule).config().is_some());
    if has_work_source {
        for view in &mut views {
            add_dropped_results(api, view).await?;
        }
    }
    Ok(views)
}

/// Adds to `why` which results of the firing's jobs were not reported to their work source, with the reason.
async fn add_dropped_results(api: &Api, view: &mut FiringView) -> Result<(), ApiProblem> {
    for job in view.jobs.iter().filter(|job| job.exit_reason.is_some()) {
        let report = api.store.last_item_report(job.id.clone()).await?;
        if let Some(Fact::WorkDropped { message, .. }) = report.map(|event| event.fact) {
            let why = &view.why;
            view.why = format!("{why}; the result of {} was not reported to its source: {message}", job.id);
        }
    }
    Ok(())
}

/// Firings to cancel; unset names match all.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "CancelFiringsAsked")]
pub struct CancelFiringsRequest {
    pub agent: Option<AgentName>,
    pub schedule: Option<ScheduleName>,
    /// Only report which firings would be cancelled.
    pub dry_run: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CancelledFirings {
    /// Number of cancelled firings; with `dry_run`, the number of firings that would be cancelled.
    pub firings: usize,
    /// The firings that `firings` counts.
    #[serde(default)]
    pub cancelled: Vec<AcceptedFiring>,
}

pub(super) async fn cancel_firings(
    State(api): State<Api>,
    JsonBody(CancelFiringsRequest { agent, schedule, dry_run }): JsonBody<CancelFiringsRequest>,
) -> Result<Json<CancelledFirings>, ApiProblem> {
    let (agent, schedule) = (agent.as_ref(), schedule.as_ref());
    let cancelled = if dry_run {
        accepted_firings(&api.store, agent, schedule).await?
    } else {
        api.daemon()?.cancel_firings(agent, schedule).await?
    };
    Ok(Json(CancelledFirings { firings: cancelled.len(), cancelled }))
}

pub(super) async fn enable(
    State(api): State<Api>,
    Path((agent, schedule)): Path<(String, String)>,
) -> Result<Json<ScheduleView>, ApiProblem> {
    let (daemon, agent) = (api.daemon()?, parse_name(&agent)?);
    daemon.enable(&agent, &parse_name(&schedule)?).await?;
    view(&api, &agent, &schedule).await
}

pub(super) async fn disable(
    State(api): State<Api>,
    Path((agent, schedule)): Path<(String, String)>,
) -> Result<Json<ScheduleView>, ApiProblem> {
    let (daemon, agent) = (api.daemon()?, parse_name(&agent)?);
    daemon.disable(&agent, &parse_name(&schedule)?).await?;
    view(&api, &agent, &schedule).await
}

pub(super) async fn fire(
    State(api): State<Api>,
    Path((agent, schedule)): Path<(String, String)>,
    by_page: Option<Extension<ByPage>>,
    JsonBody(request): JsonBody<TriggerRequest>,
) -> Result<(StatusCode, Json<TriggerAnswer>), ApiProblem> {
    let request = TriggerRequest {
        schedule: Some(parse_name(&schedule)?),
        from_dashboard: by_page.is_some(),
        ..request
    };
    trigger_agent(&api, &parse_name(&agent)?, request).await
}

pub(super) async fn find(api: &Api, agent: &AgentName, schedule: &str) -> Result<ScheduleId, ApiProblem> {
    let roster = api.roster();
    let Some(configured) = roster.agent(agent) else { return Err(api.missing_agent(agent).await) };
    let found = configured.schedules.iter().find(|candidate| candidate.name.as_str() == schedule);
    if let Some(schedule) = found {
        return Ok(schedule.id);
    }
    // The schedule of web chat exists after its first message.
    let web_chat = configured.web_chat.as_ref().filter(|chat| chat.schedule.name.as_str() == schedule);
    if let Some(chat) = web_chat
        && api.store.schedule(chat.schedule.id).await?.is_some()
    {
        return Ok(chat.schedule.id);
    }
    Err(missing_schedule(&api.store, &roster, configured, schedule).await.into())
}

pub(super) async fn view(
    api: &Api,
    agent: &AgentName,
    schedule: &str,
) -> Result<Json<ScheduleView>, ApiProblem> {
    find(api, agent, schedule).await?;
    let mut views = views(api).await?.into_iter();
    let found = views.find(|view| view.agent == *agent && view.schedule.as_str() == schedule);
    found.map(Json).ok_or_else(|| ApiProblem::not_found(format!("{agent} has no schedule {schedule}")))
}

/// Adds the error of the last attempt to a note about a retry. If the note is about a budget, sets `failed_attempt`
/// instead.
async fn add_last_failure(
    api: &Api,
    snapshot: &Snapshot,
    view: &mut ScheduleView,
    now: Timestamp,
) -> Result<(), ApiProblem> {
    let coming_retry = || {
        let (live, _) = snapshot.next_retry(view.id, now)?;
        let is_retry =
            view.skip_note_reason == Some(SkipReason::Requeued) && live.requeued_until(now).is_none();
        is_retry.then_some((live, None))
    };
    if view.skip_note_reason == Some(SkipReason::OverBudget) {
        view.failed_attempt = failed_attempt(api, snapshot, view).await?;
        return Ok(());
    }
    let Some((live, rest)) = due_retry(snapshot, view, now).or_else(coming_retry) else { return Ok(()) };
    let Some(job) = api.store.job(live.id.clone()).await? else { return Ok(()) };
    if let Some(message) = last_failure(&api.store, &job).await? {
        let rest = rest.unwrap_or_default();
        view.skip_note = Some(format!("{}: {message}{rest}", live.id));
    }
    Ok(())
}

/// Describes the last failed attempt of the schedule's oldest job that waits for a retry.
async fn failed_attempt(
    api: &Api,
    snapshot: &Snapshot,
    view: &ScheduleView,
) -> Result<Option<String>, ApiProblem> {
    let is_retry = |job: &&LiveJob| {
        let is_waiting = matches!(job.state, LiveState::Pending { .. });
        is_waiting && job.schedule == Some(view.id) && job.began_at.is_some()
    };
    let Some(live) = snapshot.jobs.iter().find(is_retry) else { return Ok(None) };
    let Some(job) = api.store.job(live.id.clone()).await? else { return Ok(None) };
    Ok(last_failure(&api.store, &job).await?.map(|failed| format!("{}: {failed}", live.id)))
}

/// Finds the job whose retry is due and with whose id the note of the view begins. If the note contains [`RETRY_DUE`],
/// also returns the part of the note from there on, which states since when the retry is due.
fn due_retry<'a>(
    snapshot: &'a Snapshot,
    view: &ScheduleView,
    now: Timestamp,
) -> Option<(&'a LiveJob, Option<String>)> {
    let mut jobs = snapshot.jobs.iter().filter(|live| live.retry_due(now).is_some());
    let note = view.skip_note.as_deref()?;
    jobs.find_map(|live| {
        let reason = note.strip_prefix(live.id.as_str())?.strip_prefix(": ")?;
        let rest = reason.find(RETRY_DUE).and_then(|at| reason.get(at..));
        Some((live, rest.map(str::to_owned)))
    })
}

pub(super) async fn views(api: &Api) -> Result<Vec<ScheduleView>, ApiProblem> {
    let (roster, now) = (api.roster(), api.now());
    let snapshot = api.snapshot(&roster, now).await?;
    views_in(api, &roster, &snapshot, now).await
}

async fn views_in(
    api: &Api,
    roster: &Roster,
    snapshot: &Snapshot,
    now: Timestamp,
) -> Result<Vec<ScheduleView>, ApiProblem> {
    let mut views = schedules_of(roster, snapshot, now);
    for view in views.iter_mut().filter(|view| view.skip_note.is_some()) {
        add_last_failure(api, snapshot, view, now).await?;
    }
    for empty in api.store.empty_adoptions(roster).await? {
        let adopts = |view: &&mut ScheduleView| view.agent == empty.agent && view.schedule == empty.schedule;
        if let Some(view) = views.iter_mut().find(adopts) {
            view.adopt_note = Some(empty.to_string());
        }
    }
    Ok(views)
}
