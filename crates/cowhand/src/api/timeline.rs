//! The timeline: what every schedule did and will do in a stretch of time.

use axum::Json;
use axum::extract::{Path, State};
use cowhand_core::id::{AgentName, JobId, ScheduleName};
use cowhand_core::job::JobStatus;
use cowhand_core::plan::coming::coming;
use cowhand_core::roster::Schedule;
use cowhand_core::schedule::SkipReason;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::given::{Count, Params, named};
use super::schedules::{find, views};
use super::{Api, Page, Problem};
use crate::fleet::{ScheduleStatus, ScheduleView};
use crate::store::{JobOfFiring, LedgerRow};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Asked {
    /// Unset means 24 hours ago.
    from: Option<Timestamp>,
    /// Unset means 48 hours after the beginning.
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

/// Of one schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Lane {
    pub agent: AgentName,
    pub schedule: ScheduleName,
    #[serde(rename = "type")]
    pub kind: String,
    pub status: ScheduleStatus,
    /// The newest first.
    pub firings: Vec<PastFiring>,
    pub planned: Vec<Timestamp>,
    /// There are more of either than are told.
    pub cut: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PastFiring {
    pub due: Timestamp,
    /// `ran`, `skipped`, `missed`, `coalesced` or `preparing`.
    pub outcome: String,
    pub reason: Option<SkipReason>,
    pub job: Option<JobId>,
    /// None once the job is pruned.
    pub job_status: Option<JobStatus>,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
}

const DAY: SignedDuration = SignedDuration::from_hours(24);
/// More stand too close to be told apart.
const MOST: u32 = 300;
const LONGEST: SignedDuration = SignedDuration::from_hours(24 * 31);

pub(super) async fn timeline(
    State(api): State<Api>,
    Params(asked): Params<Asked>,
) -> Result<Json<Timeline>, Problem> {
    let now = api.now();
    let from = asked.from.unwrap_or_else(|| now.saturating_sub(DAY).unwrap_or(now));
    let to = asked.to.unwrap_or_else(|| from.saturating_add(DAY * 2).unwrap_or(from));
    if to <= from || to.duration_since(from) > LONGEST {
        return Err(Problem::bad_request("`to` has to be after `from`, by 31 days at most"));
    }
    let mut known = views(&api).await?;
    known.retain(|view| asked.agent.as_ref().is_none_or(|agent| view.agent == *agent));
    let roster = api.roster();
    let of_view = |view: ScheduleView| {
        let agent = roster.agent(&view.agent)?;
        Some((agent.schedule(Some(&view.schedule))?, view))
    };
    let known: Vec<(&Schedule, ScheduleView)> = known.into_iter().filter_map(of_view).collect();
    let ids = known.iter().map(|(schedule, _)| schedule.id).collect();
    let firings = api.store.firings_between(ids, (from, to), MOST).await?;
    let lanes = known.into_iter().zip(firings);
    let schedules =
        lanes.map(|((schedule, view), firings)| Lane::of(schedule, view, firings, now.max(from), to));
    Ok(Json(Timeline { from, to, now, schedules: schedules.collect() }))
}

impl Lane {
    fn of(
        schedule: &Schedule,
        view: ScheduleView,
        firings: Vec<(LedgerRow, Option<JobOfFiring>)>,
        from: Timestamp,
        to: Timestamp,
    ) -> Self {
        let fires = !matches!(
            view.status,
            ScheduleStatus::Disabled | ScheduleStatus::Error | ScheduleStatus::Finished
        );
        let count = if fires { MOST as usize } else { 0 };
        let mut planned = coming(schedule, view.next_run_at, from, count);
        let cut = firings.len() == MOST as usize
            || planned.len() == MOST as usize && planned.last().is_some_and(|at| *at < to);
        planned.retain(|at| *at < to);
        Self {
            agent: view.agent,
            schedule: view.schedule,
            kind: view.kind,
            status: view.status,
            firings: firings.into_iter().map(PastFiring::from).collect(),
            planned,
            cut,
        }
    }
}

impl From<(LedgerRow, Option<JobOfFiring>)> for PastFiring {
    fn from((row, of_job): (LedgerRow, Option<JobOfFiring>)) -> Self {
        let (started_at, finished_at) =
            of_job.as_ref().map_or((None, None), |job| (job.started_at, job.finished_at));
        Self {
            due: row.due,
            outcome: row.outcome.as_str().to_owned(),
            reason: row.outcome.skip_reason(),
            job: row.job,
            job_status: of_job.map(|job| job.status),
            started_at,
            finished_at,
        }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct NextAsked {
    /// Only after this; unset means now.
    from: Option<Timestamp>,
    /// How many at most; unset means 10.
    count: Option<Count>,
}

/// When a schedule fires next. Nothing if it is off, or does not live by the clock.
pub(super) async fn next(
    State(api): State<Api>,
    Path((agent, schedule)): Path<(String, String)>,
    Params(asked): Params<NextAsked>,
) -> Result<Json<Page<Timestamp>>, Problem> {
    let agent: AgentName = named(&agent)?;
    let id = find(&api, &agent, &schedule)?;
    let view = super::schedules::view(&api, &agent, &schedule).await?.0;
    let fires =
        !matches!(view.status, ScheduleStatus::Disabled | ScheduleStatus::Error | ScheduleStatus::Finished);
    let count = if fires { Count::or(asked.count, 10) as usize } else { 0 };
    let roster = api.roster();
    let schedule = roster.agents.iter().flat_map(|agent| &agent.schedules).find(|known| known.id == id);
    let from = asked.from.unwrap_or_else(|| api.now());
    // The config may have been read again in between.
    let schedule = schedule.ok_or_else(|| Problem::no_schedule(&agent, view.schedule.as_str()))?;
    Ok(Json(Page::whole(coming(schedule, view.next_run_at, from, count))))
}
