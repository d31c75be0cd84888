//! Follow-ups: further jobs that a running attempt asks for.

use axum::Json;
use axum::extract::{Path, State};
use cowhand_core::followup::FollowupRefused;
use cowhand_core::id::AgentName;
use cowhand_core::interval::Interval;
use cowhand_core::job::{Job, NewJob, TriggerType};
use cowhand_core::trust::{self, TrustVerdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{Given, of_attempt, requires};
use super::{Api, ApiProblem, jobs};
use cowhand_store::{FollowupAsked, FollowupMade};

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(transform = requires(["attempt", "key", "prompt"]))]
pub struct JobFollows {
    /// The number of the attempt that asks.
    #[schemars(range(min = 1))]
    pub attempt: u32,
    /// Key of the follow-up: the same key of the same job is the same follow-up.
    #[schemars(length(min = 1, max = 200))]
    pub key: String,
    /// Agent of the follow-up; unset means the agent of the job that asks.
    pub agent: Option<AgentName>,
    pub prompt: Option<String>,
    /// Earliest start, from now; unset means as early as the agent's `followups` allow.
    pub after: Option<Interval>,
}

pub(super) async fn make(
    State(api): State<Api>,
    Path(job): Path<String>,
    Given(asked): Given<JobFollows>,
) -> Result<Json<Job>, ApiProblem> {
    let fleet = api.daemon()?;
    let by = jobs::find(&api, &job).await?;
    let JobFollows { attempt, key, agent, prompt, after } = asked;
    let attempt = of_attempt(attempt)?;
    let Some(prompt) = prompt.filter(|prompt| !prompt.trim().is_empty()) else {
        return Err(ApiProblem::bad_request("a follow-up needs a `prompt`"));
    };
    if key.is_empty() || key.len() > 200 {
        return Err(ApiProblem::bad_request("`key` has 1 to 200 bytes"));
    }
    let redactor = fleet.redactor_of(&by);
    let (prompt, key) = (redactor.redact(&prompt).into_owned(), redactor.redact(&key).into_owned());
    let (roster, now) = (api.roster(), api.now());
    let agent = agent.unwrap_or_else(|| by.agent().clone());
    let Some(named) = roster.agent(&agent) else { return Err(api.missing_agent(&agent).await) };
    let mut rules = roster.followup_rules(by.agent(), named);
    // A follow-up for the same agent stays subject to the schedule of its job, but is not a firing of it.
    let schedule = by.schedule().filter(|_| agent == *by.agent()).cloned();
    // The prompt is text of the asking job, which may have it from a stranger.
    let trusts = named.trusts(named.schedule(schedule.as_ref()));
    let confined = match by.confined().map(|why| trust::judge_again(trusts, why)) {
        Some(TrustVerdict::Refused(why)) => {
            rules = rules.and_then(|_| Err(FollowupRefused::Distrusted { of: agent.clone(), why }));
            None
        }
        Some(TrustVerdict::Confined(why)) => Some(why),
        Some(TrustVerdict::Trusted) | None => None,
    };
    let wanted = after.and_then(|after| now.checked_add(after.duration()).ok()).unwrap_or(now);
    let new = NewJob {
        agent,
        trigger_type: TriggerType::Manual,
        schedule,
        prompt: Some(prompt),
        origin: None,
        work_item: None,
        chat: None,
        confined,
        not_before: None,
    };
    let asked = FollowupAsked { by: by.id().clone(), attempt, key, wanted, rules, new };
    let made = api.store.make_followup(asked, now).await?;
    fleet.nudge();
    match made {
        FollowupMade::Made(job) => Ok(Json(job)),
        FollowupMade::Refused(refused) => Err(ApiProblem::conflict(refused.to_string())),
        FollowupMade::NotRunning => {
            Err(ApiProblem::conflict(format!("attempt {attempt} of {} does not run", by.id())))
        }
    }
}
