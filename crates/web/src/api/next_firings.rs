//! The next firings of one schedule, and of the whole fleet.

use axum::Json;
use axum::extract::{Path, State};
use cowhand_core::id::{AgentName, ScheduleName};
use cowhand_core::plan::next_firings::Outlook;
use cowhand_core::roster::Schedule;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{Count, Params, parse_name};
use super::schedules::find;
use super::{Api, ApiProblem, Page};

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
    let found = configured.all_schedules().find(|candidate| candidate.id == id);
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
