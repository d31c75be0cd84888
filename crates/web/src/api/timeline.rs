//! The timeline: past and planned firings of every schedule in a time range.

use axum::Json;
use axum::extract::State;
use cowhand_core::id::{AgentName, JobId, ScheduleName};
use cowhand_core::job::JobStatus;
use cowhand_core::plan::next_firings::Outlook;
use cowhand_core::roster::{Agent, Schedule};
use cowhand_core::schedule::SkipReason;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::Params;
use super::{Api, ApiProblem, FiringJob};
use cowhand_engine::fleet::{ScheduleStatus, ScheduleView};
use cowhand_engine::schedule_view::schedules_of;
use cowhand_store::LedgerRow;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TimelineQuery {
    /// Start of the range; unset means 24 hours ago.
    from: Option<Timestamp>,
    /// End of the range; unset means 48 hours after the start.
    to: Option<Timestamp>,
    agent: Option<AgentName>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timeline {
    pub from: Timestamp,
    pub to: Timestamp,
    pub now: Timestamp,
    pub schedules: Vec<Lane>,
}

/// Firings of one schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Lane {
    pub agent: AgentName,
    pub schedule: ScheduleName,
    #[serde(rename = "type")]
    pub kind: String,
    pub status: ScheduleStatus,
    /// Past firings, the newest first.
    pub firings: Vec<PastFiring>,
    pub planned: Vec<Timestamp>,
    /// Set if the list of past or of planned firings has the maximum length, so that firings may be missing.
    pub cut: bool,
    /// Due time of a firing that waits. Such a firing is neither in `firings` nor in `planned`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_since: Option<Timestamp>,
    /// Reason for which that firing waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<SkipReason>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PastFiring {
    pub due: Timestamp,
    /// `ran`, `skipped`, `missed`, `coalesced` or `preparing`.
    pub outcome: String,
    pub reason: Option<SkipReason>,
    /// First job of the firing, even after the job was pruned.
    pub job: Option<JobId>,
    /// Status of the firing's job. If the firing has several jobs, it is the first status in this order that one of
    /// them has: failed, running, pending, cancelled, completed. None if there is no job, or if all jobs are pruned.
    pub job_status: Option<JobStatus>,
    /// Earliest start of the firing's jobs; none if no job has started.
    pub started_at: Option<Timestamp>,
    /// Latest end of the firing's jobs; none if there is no job, or if a job has not ended.
    pub finished_at: Option<Timestamp>,
    /// All jobs of the firing that still exist.
    #[serde(default)]
    pub jobs: Vec<FiringJob>,
}

const DAY: SignedDuration = SignedDuration::from_hours(24);
/// Maximum number of past firings, and of planned firings, of a schedule. More would be too close together in the
/// drawing.
const MAX_FIRINGS_PER_SCHEDULE: u32 = 300;
const MAX_TIMELINE_SPAN: SignedDuration = SignedDuration::from_hours(24 * 31);

pub(super) async fn timeline(
    State(api): State<Api>,
    Params(query): Params<TimelineQuery>,
) -> Result<Json<Timeline>, ApiProblem> {
    let now = api.now();
    let from = query.from.unwrap_or_else(|| now.saturating_sub(DAY).unwrap_or(now));
    let to = query.to.unwrap_or_else(|| from.saturating_add(DAY * 2).unwrap_or(from));
    if to <= from || to.duration_since(from) > MAX_TIMELINE_SPAN {
        return Err(ApiProblem::bad_request("`to` has to be after `from`, and at most 31 days later"));
    }
    api.require_known(query.agent.as_ref(), None).await?;
    let roster = api.roster();
    let snapshot = api.snapshot(&roster, now).await?;
    let mut views = schedules_of(&roster, &snapshot, now);
    views.retain(|view| query.agent.as_ref().is_none_or(|agent| view.agent == *agent));
    let with_config = |view: ScheduleView| {
        let agent = roster.agent(&view.agent)?;
        Some((agent, agent.schedule(Some(&view.schedule))?, view))
    };
    let schedules: Vec<(&Agent, &Schedule, ScheduleView)> =
        views.into_iter().filter_map(with_config).collect();
    let ids = schedules.iter().map(|(_, schedule, _)| schedule.id).collect();
    let firings = api.store.firings_between(ids, (from, to), MAX_FIRINGS_PER_SCHEDULE).await?;
    let outlook = Outlook::new(now, &roster, &snapshot);
    let lanes = schedules.into_iter().zip(firings).map(|((agent, schedule, view), firings)| {
        Lane::of(view, firings, outlook.firings(agent, schedule, from, MAX_FIRINGS_PER_SCHEDULE as usize), to)
    });
    Ok(Json(Timeline { from, to, now, schedules: lanes.collect() }))
}

impl Lane {
    fn of(view: ScheduleView, firings: Vec<LedgerRow>, mut planned: Vec<Timestamp>, to: Timestamp) -> Self {
        let cut = firings.len() == MAX_FIRINGS_PER_SCHEDULE as usize
            || planned.len() == MAX_FIRINGS_PER_SCHEDULE as usize
                && planned.last().is_some_and(|at| *at < to);
        planned.retain(|at| *at < to);
        Self {
            agent: view.agent,
            schedule: view.schedule,
            kind: view.kind,
            status: view.status,
            firings: firings.into_iter().map(PastFiring::from).collect(),
            planned,
            cut,
            due_since: view.due_since,
            waits_for: view.skip_reason.filter(|_| view.due_since.is_some()),
        }
    }
}

impl From<LedgerRow> for PastFiring {
    fn from(row: LedgerRow) -> Self {
        let ended = row.jobs.iter().map(|job| job.finished_at).collect::<Option<Vec<_>>>();
        Self {
            due: row.due,
            outcome: row.outcome.as_str().to_owned(),
            reason: row.outcome.skip_reason(),
            job: row.job,
            job_status: row.jobs.iter().map(|job| job.status).min_by_key(|status| rank(*status)),
            started_at: row.jobs.iter().filter_map(|job| job.started_at).min(),
            finished_at: ended.and_then(|ended| ended.into_iter().max()),
            jobs: row.jobs.into_iter().map(FiringJob::from).collect(),
        }
    }
}

/// Returns the rank of a job status. The status with the lowest rank is shown for a firing with several jobs.
const fn rank(status: JobStatus) -> u8 {
    match status {
        JobStatus::Failed => 0,
        JobStatus::Running => 1,
        JobStatus::Pending => 2,
        JobStatus::Cancelled => 3,
        JobStatus::Completed => 4,
    }
}
