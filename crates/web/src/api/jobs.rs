//! Jobs: listing, details, output, cancellation, and new jobs from earlier ones.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use cowhand_core::actor::Actor;
use cowhand_core::ask::{Ask, Denial};
use cowhand_core::event::{Event, Fact};
use cowhand_core::followup::RefusedFollowup;
use cowhand_core::hook::HookRun;
use cowhand_core::id::{AgentName, JobId, JobName, ScheduleName};
use cowhand_core::job::{ExitReason, Job, JobRecord, JobStatus, JobUsage, Outcome, TriggerType};
use cowhand_core::report::Report;
use cowhand_core::steering::SteeringMessage;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{Count, JsonBody, Params, Switch, parse_name};
use super::follow::{self, GrowingLines, LinesPart, StreamFormat};
use super::leases::LostLease;
use super::output_place::{AttemptElsewhere, OutputPlace, elsewhere_sentence};
use super::prune::removed_problem;
use super::{Api, ApiProblem, Code, Page, WorkspaceView, waits};
use cowhand_engine::daemon::UnsettledAttempt;
use cowhand_engine::fleet::{JobChanges, known_agent, known_schedule, missing_agent};
use cowhand_engine::output::{self, OutputReader};
use cowhand_engine::waits::Waits;
use cowhand_store::{CancelOutcome, Cancellation, FollowupsOfJob, JobFilter, PastAttempt, StoreError};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct JobsQuery {
    agent: Option<AgentName>,
    schedule: Option<ScheduleName>,
    status: Option<JobStatus>,
    /// Only jobs created at this time or later.
    since: Option<Timestamp>,
    /// Only jobs created at this time or earlier.
    until: Option<Timestamp>,
    trigger_type: Option<TriggerType>,
    /// Only jobs with this text in their id, prompt, summary or error, regardless of upper and lower case.
    #[schemars(length(max = 200))]
    search: Option<String>,
    /// Only jobs that work on a work item.
    with_item: Switch,
    /// The `next_cursor` of the previous page.
    after: Option<JobName>,
    /// Maximum number of jobs; unset means 50.
    limit: Option<Count>,
}

const DEFAULT_JOB_COUNT: u32 = 50;
const MAX_SEARCH_LENGTH: usize = 200;

pub(super) async fn list(
    State(api): State<Api>,
    Params(query): Params<JobsQuery>,
) -> Result<Json<Page<ListedJob>>, ApiProblem> {
    let JobsQuery { agent, schedule, status, since, until, trigger_type, search, with_item, after, limit } =
        query;
    let limit = Count::or(limit, DEFAULT_JOB_COUNT);
    if search.as_ref().is_some_and(|search| search.chars().count() > MAX_SEARCH_LENGTH) {
        return Err(ApiProblem::bad_request(format!("`search` has at most {MAX_SEARCH_LENGTH} characters")));
    }
    api.require_known(agent.as_ref(), schedule.as_ref()).await?;
    let after = match after {
        Some(name) => Some(api.job_id(&name.to_string()).await.map_err(from_newest)?),
        None => None,
    };
    let filter = JobFilter {
        agent,
        schedule,
        status,
        since,
        until,
        trigger_type,
        search,
        with_item: with_item.is_on(),
        after,
    };
    let items = match api.store.jobs(filter, limit).await {
        Err(StoreError::NoJob(after)) => return Err(from_newest(api.no_job(&after).await?)),
        items => items?,
    };
    let is_full = items.len() == limit as usize;
    let next_cursor = items.last().filter(|_| is_full).map(|job| job.id().to_string());
    let waits = waits::of_jobs(&api, &items).await?;
    let running = items.iter().filter(|job| job.status() == JobStatus::Running);
    let unsettled = api.unsettled(running.map(|job| job.id().clone()).collect()).await;
    let waiting = api.store.waiting_messages().await?;
    let to_listed = |(job, waits): (Job, Option<Waits>)| {
        let waiting_messages = waiting.get(job.id()).copied().unwrap_or_default();
        let attempt = unsettled.get(job.id()).copied();
        let (unsettled, never_began) = (attempt.is_some(), attempt == Some(UnsettledAttempt::NeverBegan));
        ListedJob { job: job.into(), waits, unsettled, never_began, waiting_messages }
    };
    Ok(Json(Page { items: items.into_iter().zip(waits).map(to_listed).collect(), next_cursor }))
}

/// Adds advice to the problem of a missing job: without `after`, the list starts with the newest job.
fn from_newest(problem: ApiProblem) -> ApiProblem {
    if problem.code != Code::NotFound {
        return problem;
    }
    let message = format!("{}; without `after`, the list starts with the newest job", problem.message);
    ApiProblem { message, ..problem }
}

/// Job in a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListedJob {
    #[serde(flatten)]
    pub job: JobRecord,
    /// Reason why a pending job does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
    /// True if the attempt of the job has ended or never began, and no daemon runs that writes this; `status` is then
    /// `running`. The next start ends or continues the job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsettled: bool,
    /// True if the job is unsettled and its attempt never began. The next start then continues the job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub never_began: bool,
    /// Number of messages to the job that wait.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub waiting_messages: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Job with its asks, messages, hooks, follow-ups and workspace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobView {
    #[serde(flatten)]
    pub job: JobRecord,
    /// Asks of the job, in order.
    #[serde(default)]
    pub asks: Vec<Ask>,
    /// Uses of tools that rules denied, in order.
    #[serde(default)]
    pub denials: Vec<Denial>,
    /// Report of the agent in the last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
    /// Job that asked for this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub follows: Option<JobId>,
    /// Jobs that this one asked for.
    #[serde(default)]
    pub followed_by: Vec<JobId>,
    /// Last refusal of a follow-up that this job asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub followup_refused: Option<RefusedFollowup>,
    /// Job whose messages are the prompt of this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<JobId>,
    /// Messages to the job, in order.
    #[serde(default)]
    pub messages: Vec<SteeringMessage>,
    /// Hook runs, in the order in which they run.
    #[serde(default)]
    pub hooks: Vec<HookRun>,
    /// Workspace of the job; absent if the job has none of its own, if another job has taken it over, or if neither the
    /// workspace nor its branch exists any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceView>,
    /// Reason why a pending job does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
    /// Reason why a part of the job's answer is missing in the chat; absent if no part is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_not_posted: Option<String>,
    /// Conversation of the web chat whose message the job answers; absent for other jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
    /// Actor who requested the cancellation of a cancelled job; absent for other jobs, and if cowhand itself cancelled
    /// the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<Actor>,
    /// Report of the job's result to the source of its work item, or the reason why the source did not receive it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "source_told")]
    pub source_report: Option<SourceReport>,
    /// Time and cause of the cancellation of a job that is cancelled or is being cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancellation: Option<Cancellation>,
    /// Node of the last attempt; absent before the first attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Set if the node of the running attempt has not renewed the lease of the job in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_lease: Option<LostLease>,
    /// Attempts whose output is on other nodes and not on the node that answers; absent if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output_elsewhere: Vec<AttemptElsewhere>,
    /// Attempts whose output is on the node that answers; absent if all output is there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output_here: Vec<u32>,
    /// True if the attempt of the job has ended or never began, and no daemon runs that writes this; `status` is then
    /// `running`. The next start ends or continues the job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unsettled: bool,
    /// True if the job is unsettled and its attempt never began. The next start then continues the job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub never_began: bool,
}

/// Last event about the report of a job's result to the source of its work item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SourceTold")]
pub struct SourceReport {
    /// Type of the event: `work:reported`, `work:released`, `work:dropped` or `work:delayed`.
    pub event: String,
    pub at: Timestamp,
    /// Reported outcome, or the reason of the release or of the missing report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl SourceReport {
    fn of(event: &Event) -> Self {
        let message = match &event.fact {
            Fact::WorkReported { outcome, .. } => Some(outcome.to_string()),
            Fact::WorkReleased { reason, .. } => reason.clone(),
            Fact::WorkDropped { message, .. } | Fact::WorkDelayed { message, .. } => Some(message.clone()),
            _ => None,
        };
        Self { event: event.fact.type_name().to_owned(), at: event.at, message }
    }

    /// Describes the event for a person.
    pub fn sentence(&self) -> String {
        let message = self.message.as_deref().unwrap_or_default();
        match self.event.as_str() {
            "work:reported" => format!("reported to its source: {message}"),
            "work:released" if message.is_empty() => "released".to_owned(),
            "work:released" => format!("released: {message}"),
            "work:delayed" => format!("not reported to its source yet; cowhand tries again: {message}"),
            _ => format!("not reported to its source: {message}"),
        }
    }
}

/// One run of an agent's program for a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptView {
    pub number: u32,
    pub node: String,
    pub started_at: Timestamp,
    /// None while the attempt runs.
    pub ended_at: Option<Timestamp>,
    /// Usage; the usage so far while the attempt runs; none if nothing was reported.
    pub usage: Option<JobUsage>,
    /// Report of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<Report>,
    /// Set if another node settled the attempt as lost, and the node of the attempt has found out how it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded: Option<SupersededAttempt>,
}

/// How an attempt ended that another node had settled as lost. The end has no effect on the job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SupersededAttempt {
    /// Absent if cowhand ended the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_reason: Option<ExitReason>,
}

pub(super) async fn one(State(api): State<Api>, Path(id): Path<String>) -> Result<Json<JobView>, ApiProblem> {
    let job = find(&api, &id).await?;
    let asks = api.store.asks_of(job.id().clone()).await?;
    let asks = api.current_asks(asks).await;
    let denials = api.store.denials_of(job.id().clone()).await?;
    let report = api.store.report_of(job.id().clone(), job.attempts()).await?;
    let hooks = api.store.hook_runs(job.id().clone()).await?;
    let workspace = api.workspace(job.id()).await?;
    let waits = waits::of_job(&api, &job).await?;
    let FollowupsOfJob { follows, followed_by, refused } = api.store.followups_of(job.id().clone()).await?;
    let continues = api.store.turn_before(job.id().clone()).await?;
    let messages = api.store.messages_of(job.id().clone()).await?;
    let cancellation = api.store.cancellation_of(&job).await?;
    let cancelled_by = cancellation.as_ref().filter(|_| job.status() == JobStatus::Cancelled);
    let cancelled_by = cancelled_by.and_then(|cancellation| cancellation.by.clone());
    let source_report = match job.work_item() {
        Some(_) => api.store.last_item_report(job.id().clone()).await?.as_ref().map(SourceReport::of),
        None => None,
    };
    let answer = api.store.chat_answer_of_job(job.id().clone()).await?;
    let answer_not_posted = answer.and_then(|answer| answer.progress.not_posted);
    let message = api.store.web_message_of_job(job.id().clone()).await?;
    let conversation = message.map(|message| message.conversation);
    let OutputPlace { node, elsewhere: output_elsewhere, here: output_here } =
        api.output_place(job.id()).await?;
    let running = Some(job.id().clone()).filter(|_| job.status() == JobStatus::Running);
    let lost_lease = match &running {
        Some(running) => api.lost_leases().await?.into_iter().find(|lease| lease.job == *running),
        None => None,
    };
    let attempt = api.unsettled(running.into_iter().collect()).await.into_values().next();
    let (unsettled, never_began) = (attempt.is_some(), attempt == Some(UnsettledAttempt::NeverBegan));
    let job = job.into();
    let followup_refused = refused;
    Ok(Json(JobView {
        job,
        asks,
        denials,
        report,
        follows,
        followed_by,
        followup_refused,
        continues,
        messages,
        hooks,
        workspace,
        waits,
        answer_not_posted,
        conversation,
        cancelled_by,
        source_report,
        cancellation,
        node,
        lost_lease,
        output_elsewhere,
        output_here,
        unsettled,
        never_began,
    }))
}

pub(super) async fn attempts(
    State(api): State<Api>,
    Path(id): Path<String>,
) -> Result<Json<Page<AttemptView>>, ApiProblem> {
    let job = find(&api, &id).await?;
    let history = api.store.history(job.id().clone()).await?;
    let attempts = history.into_iter().flat_map(|history| history.attempts);
    Ok(Json(Page::all(attempts.map(AttemptView::from).collect())))
}

impl From<PastAttempt> for AttemptView {
    fn from(attempt: PastAttempt) -> Self {
        let PastAttempt { number, node, started_at, ended_at, usage, report, superseded, .. } = attempt;
        let superseded = superseded
            .map(|end| SupersededAttempt { exit_reason: end.outcome.as_ref().map(Outcome::exit_reason) });
        Self { number, node, started_at, ended_at, usage, report, superseded }
    }
}

/// Cancels a pending job immediately. For a running job, requests the cancellation.
pub(super) async fn cancel(State(api): State<Api>, Path(id): Path<String>) -> Result<Json<Job>, ApiProblem> {
    match api.daemon()?.cancel(find(&api, &id).await?.id().clone()).await? {
        CancelOutcome::Done(job) | CancelOutcome::Requested(job) => Ok(Json(job)),
        CancelOutcome::AlreadyEnded(job) => Err(ApiProblem::already_stopped(&job)),
    }
}

pub(super) async fn retry(
    State(api): State<Api>,
    Path(id): Path<String>,
    JsonBody(changes): JsonBody<JobChanges>,
) -> Result<(StatusCode, Json<Job>), ApiProblem> {
    Ok((StatusCode::CREATED, Json(api.daemon()?.retry(find(&api, &id).await?.id(), changes).await?)))
}

pub(super) async fn fork(
    State(api): State<Api>,
    Path(id): Path<String>,
    JsonBody(changes): JsonBody<JobChanges>,
) -> Result<(StatusCode, Json<Job>), ApiProblem> {
    Ok((StatusCode::CREATED, Json(api.daemon()?.fork(find(&api, &id).await?.id(), changes).await?)))
}

/// Returns the job that the path of a request names.
pub(super) async fn find(api: &Api, name: &str) -> Result<Job, ApiProblem> {
    let id = api.job_id(name).await?;
    match api.store.job(id.clone()).await? {
        Some(job) => Ok(job),
        None => Err(api.no_job(&id).await?),
    }
}

impl Api {
    /// Refuses unknown names of agents and schedules. A removed agent or schedule is known as long as it has jobs, or
    /// firings without a job.
    pub(super) async fn require_known(
        &self,
        agent: Option<&AgentName>,
        schedule: Option<&ScheduleName>,
    ) -> Result<(), ApiProblem> {
        let roster = self.roster();
        if let Some(agent) = agent {
            known_agent(&self.store, &roster, agent).await?;
        }
        if let Some(schedule) = schedule {
            known_schedule(&self.store, &roster, agent, schedule).await?;
        }
        Ok(())
    }

    /// Returns the problem for an agent that was removed from the config or never was in it.
    pub(super) async fn missing_agent(&self, agent: &AgentName) -> ApiProblem {
        missing_agent(&self.store, &self.roster(), agent).await.into()
    }

    /// Resolves the name of a job to its id. A full id is returned even if there is no such job.
    pub(super) async fn job_id(&self, name: &str) -> Result<JobId, ApiProblem> {
        let suffix = match parse_name(name)? {
            JobName::Id(id) => return Ok(id),
            JobName::Suffix(suffix) => suffix,
        };
        let ids = self.store.jobs_by_suffix(&suffix).await?;
        match ids.as_slice() {
            [] => Err(match self.store.removed_job_by_suffix(&suffix).await? {
                Some(removed) => removed_problem(&removed),
                None => ApiProblem::not_found(format!("there is no job {suffix}; `cowhand jobs` lists them")),
            }),
            [only] => Ok(only.clone()),
            several => {
                let ids: Vec<&str> = several.iter().map(JobId::as_str).collect();
                let message = format!("several job ids end with {suffix}: {}; use a full id", ids.join(", "));
                Err(ApiProblem::conflict(message))
            }
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct OutputQuery {
    /// Number of lines that the caller already has.
    after: u64,
    /// Maximum number of lines; unset means all. Ignored with `follow`.
    limit: Option<u64>,
    /// Continue until the job has ended. Clients that accept `text/event-stream` get that format, with the
    /// numbers of the lines as ids, and continue after `Last-Event-ID`.
    follow: Switch,
}

/// Returns the job's JSONL.
pub(super) async fn output(
    State(api): State<Api>,
    Path(id): Path<String>,
    headers: HeaderMap,
    Params(query): Params<OutputQuery>,
) -> Result<Response, ApiProblem> {
    let job = find(&api, &id).await?;
    if let Some(node) = api.output_place(job.id()).await?.only_node() {
        return Err(ApiProblem::conflict(elsewhere_sentence(job.id(), job.status(), node)));
    }
    let job = job.id().clone();
    let after = follow::last_event_id(&headers)?.unwrap_or(query.after);
    let is_following = query.follow.is_on();
    // Without a daemon, no output is added.
    let fleet = api.daemon().ok().filter(|_| is_following);
    let growth = fleet.map(|fleet| fleet.growth_of(&job));
    let reader = OutputReader::new(&api.store, &api.state, &job, after, growth);
    let remaining = query.limit.filter(|_| !is_following);
    Ok(follow::answer(StreamFormat::of(&headers), OutputLines { reader, after, remaining }))
}

/// Reader of the output of a job, from a line on.
struct OutputLines {
    reader: OutputReader,
    after: u64,
    /// Number of lines still to return; none means all.
    remaining: Option<u64>,
}

impl GrowingLines for OutputLines {
    async fn next_part(&mut self) -> Result<Option<LinesPart>, ApiProblem> {
        if self.remaining == Some(0) {
            return Ok(None);
        }
        let Some(mut lines) = self.reader.more().await? else { return Ok(None) };
        let mut count = 0;
        for end in memchr::memchr_iter(b'\n', &lines) {
            count += 1;
            if self.remaining == Some(count) {
                lines.truncate(end + 1);
                break;
            }
        }
        let number = i64::try_from(self.after + 1).unwrap_or(i64::MAX);
        self.after += count;
        self.remaining = self.remaining.map(|remaining| remaining - count);
        Ok(Some(LinesPart { lines: lines.into(), number: Some(number) }))
    }

    async fn wait_for_growth(&mut self) {
        self.reader.grown().await;
    }
}

/// Final output of the last attempt of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JobResult {
    pub job: JobId,
    pub status: JobStatus,
    /// Result that the agent stated, else its last message, else the last result of a tool, else its lines of text.
    /// If the job has not ended: the same, of the output so far. None if there is no output.
    pub result: Option<String>,
}

pub(super) async fn result(
    State(api): State<Api>,
    Path(id): Path<String>,
) -> Result<Json<JobResult>, ApiProblem> {
    let job = find(&api, &id).await?;
    if let Some(node) = api.output_place(job.id()).await?.other_node() {
        return Err(ApiProblem::conflict(elsewhere_sentence(job.id(), job.status(), node)));
    }
    let result = output::result(&api.state, job.id().clone()).await?;
    Ok(Json(JobResult { job: job.id().clone(), status: job.status(), result }))
}
