//! The timeline: past and planned firings of every schedule in a time range.

use axum::Json;
use axum::extract::{Path, State};
use cowhand_core::id::{AgentName, JobId, ScheduleName};
use cowhand_core::job::JobStatus;
use cowhand_core::plan::next_firings::Outlook;
use cowhand_core::roster::{Agent, Schedule};
use cowhand_core::schedule::SkipReason;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{Count, Params, parse_name};
use super::schedules::find;
use super::{Api, ApiProblem, FiringJob, Page};
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

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct NextFiringsQuery {
    /// Only firings after this time; unset means now. With a time in the past, the times of cron schedules up to
    /// now are included, even those at which they did not fire.
    from: Option<Timestamp>,
    /// Maximum number of firings; unset means 10.
    count: Option<Count>,
}

/// Returns the next firings of a schedule. The list is empty if the schedule is off, paused or finished, or if the
/// clock does not fire it.
pub(super) async fn next(
    State(api): State<Api>,
    Path((agent, schedule)): Path<(String, String)>,
    Params(query): Params<NextFiringsQuery>,
) -> Result<Json<Page<Timestamp>>, ApiProblem> {
    let (agent, now): (AgentName, _) = (parse_name(&agent)?, api.now());
    let id = find(&api, &agent, &schedule).await?;
    let roster = api.roster();
    let snapshot = api.snapshot(&roster, now).await?;
    // The config may have been reloaded since `find`.
    let configured = roster.agent(&agent).ok_or_else(|| ApiProblem::no_agent(&roster, &agent))?;
    let found = configured.schedules.iter().find(|candidate| candidate.id == id);
    let found = found.ok_or_else(|| ApiProblem::no_schedule(configured, &schedule))?;
    let (from, count) = (query.from.unwrap_or(now), Count::or(query.count, 10) as usize);
    Ok(Json(Page::all(Outlook::new(now, &roster, &snapshot).times(configured, found, from, count))))
}

/// Number of firings, from 1 to 10,000. The maximum is greater than that of other lists, because firings are small.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(try_from = "u32")]
#[schemars(rename = "Many", extend("minimum" = 1, "maximum" = 10_000))]
struct FiringCount(u32);

impl TryFrom<u32> for FiringCount {
    type Error = String;

    fn try_from(count: u32) -> Result<Self, String> {
        if (1..=10_000).contains(&count) {
            Ok(Self(count))
        } else {
            Err(format!("{count} is not from 1 to 10000"))
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ComingFiringsQuery {
    /// Only firings after this time; unset means now. With a time in the past, the times of cron schedules up to
    /// now are included, even those at which they did not fire.
    from: Option<Timestamp>,
    /// Maximum number of firings; unset means 10.
    count: Option<FiringCount>,
    /// Only firings of this agent.
    agent: Option<AgentName>,
    /// Only firings of this schedule of that agent.
    schedule: Option<String>,
}

/// Coming firing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComingFiring {
    pub agent: AgentName,
    pub schedule: ScheduleName,
    pub at: Timestamp,
    /// Time zone of the schedule.
    pub timezone: String,
}

/// Returns the next firings of the fleet, the soonest first.
pub(super) async fn coming(
    State(api): State<Api>,
    Params(query): Params<ComingFiringsQuery>,
) -> Result<Json<Page<ComingFiring>>, ApiProblem> {
    let ComingFiringsQuery { from, count, agent: only_agent, schedule: only_schedule } = query;
    match (&only_agent, &only_schedule) {
        (Some(agent), Some(schedule)) => {
            find(&api, agent, schedule).await?;
        }
        (Some(agent), None) if api.roster().agent(agent).is_none() => {
            return Err(api.missing_agent(agent).await);
        }
        (None, Some(_)) => return Err(ApiProblem::bad_request("`schedule` needs `agent`")),
        _ => {}
    }
    let (roster, now) = (api.roster(), api.now());
    let snapshot = api.snapshot(&roster, now).await?;
    let outlook = Outlook::new(now, &roster, &snapshot);
    let (from, count) = (from.unwrap_or(now), count.map_or(10, |FiringCount(count)| count) as usize);
    let mut coming = Vec::new();
    for agent in
        roster.agents.iter().filter(|agent| only_agent.as_ref().is_none_or(|name| agent.name == *name))
    {
        let is_requested =
            |schedule: &&Schedule| only_schedule.as_ref().is_none_or(|name| schedule.name.as_str() == name);
        for schedule in agent.schedules.iter().filter(is_requested) {
            let firings = outlook.times(agent, schedule, from, count).into_iter();
            coming.extend(firings.map(|at| ComingFiring {
                agent: agent.name.clone(),
                schedule: schedule.name.clone(),
                at,
                timezone: schedule.zone.to_string(),
            }));
        }
    }
    coming.sort_by_key(|firing| firing.at);
    coming.truncate(count);
    Ok(Json(Page::all(coming)))
}
