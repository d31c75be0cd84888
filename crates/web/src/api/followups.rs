//! Follow-ups: further jobs that a running attempt asks for.

use axum::Json;
use axum::extract::{Path, State};
use cowhand_core::followup::FollowupRefused;
use cowhand_core::id::{AgentName, ScheduleName};
use cowhand_core::interval::Interval;
use cowhand_core::job::{Job, NewJob, TriggerType};
use cowhand_core::trust::{self, TrustVerdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{JsonBody, require_attempt, require_fields};
use super::{Api, ApiProblem, jobs};
use cowhand_store::{FollowupOutcome, NewFollowup};

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(transform = require_fields(["attempt", "key", "prompt"]))]
#[schemars(rename = "JobFollows")]
pub struct FollowupRequest {
    /// The number of the attempt that requests the follow-up.
    #[schemars(range(min = 1))]
    pub attempt: u32,
    /// Key of the follow-up. A repeated request of the same job with the same key returns the existing follow-up.
    #[schemars(length(min = 1, max = 200))]
    pub key: String,
    /// Agent of the follow-up; unset means the agent of the job that requests it.
    pub agent: Option<AgentName>,
    pub prompt: Option<String>,
    /// Minimum time between the request and the start. `followups.min_interval` of the requesting agent and of the
    /// follow-up's agent are further minimums; unset means that only these apply.
    pub after: Option<Interval>,
}

pub(super) async fn make(
    State(api): State<Api>,
    Path(job): Path<String>,
    JsonBody(request): JsonBody<FollowupRequest>,
) -> Result<Json<Job>, ApiProblem> {
    let fleet = api.daemon()?;
    let requesting_job = jobs::find(&api, &job).await?;
    let FollowupRequest { attempt, key, agent, prompt, after } = request;
    let attempt = require_attempt(attempt)?;
    let Some(prompt) = prompt.filter(|prompt| !prompt.trim().is_empty()) else {
        return Err(ApiProblem::bad_request("a follow-up needs a `prompt`"));
    };
    if key.is_empty() || key.len() > 200 {
        return Err(ApiProblem::bad_request("`key` must have 1 to 200 bytes"));
    }
    let redactor = fleet.redactor_of(&requesting_job);
    let (prompt, key) = (redactor.redact(&prompt).into_owned(), redactor.redact(&key).into_owned());
    let (roster, now) = (api.roster(), api.now());
    let agent = agent.unwrap_or_else(|| requesting_job.agent().clone());
    let Some(target_agent) = roster.agent(&agent) else {
        let missing = api.missing_agent(&agent).await;
        // This refusal is recorded like every other refusal.
        let refused = NewFollowup {
            by: requesting_job.id().clone(),
            attempt,
            key,
            earliest: now,
            rules: Err(FollowupRefused::NoAgent { of: agent.clone() }),
            new: new_job(agent, None, prompt, None),
        };
        api.store.make_followup(refused, now).await?;
        return Err(missing);
    };
    let mut rules = roster.followup_rules(requesting_job.agent(), target_agent);
    // A follow-up for the same agent keeps the schedule of the requesting job, with its limits, but is not a firing of
    // that schedule.
    let schedule = requesting_job.schedule().filter(|_| agent == *requesting_job.agent()).cloned();
    // The requesting job wrote the prompt, and may have copied text of a stranger into it.
    let trust_rules = target_agent.trusts(target_agent.schedule(schedule.as_ref()));
    let confined = match requesting_job.confined().map(|why| trust::judge_derived(trust_rules, why)) {
        Some(TrustVerdict::Refused(why)) => {
            rules = rules.and_then(|_| Err(FollowupRefused::Distrusted { of: agent.clone(), why }));
            None
        }
        Some(TrustVerdict::Confined(why)) => Some(why),
        Some(TrustVerdict::Trusted) | None => None,
    };
    let earliest_start = after.and_then(|after| now.checked_add(after.duration()).ok()).unwrap_or(now);
    let followup = NewFollowup {
        by: requesting_job.id().clone(),
        attempt,
        key,
        earliest: earliest_start,
        rules,
        new: new_job(agent, schedule, prompt, confined),
    };
    let result = api.store.make_followup(followup, now).await?;
    fleet.nudge();
    match result {
        FollowupOutcome::Made(job) => Ok(Json(job)),
        FollowupOutcome::Refused(refused) => Err(ApiProblem::conflict(refused.to_string())),
        FollowupOutcome::NotRunning => {
            Err(ApiProblem::conflict(format!("attempt {attempt} of {} is not running", requesting_job.id())))
        }
    }
}

fn new_job(
    agent: AgentName,
    schedule: Option<ScheduleName>,
    prompt: String,
    confined: Option<String>,
) -> NewJob {
    NewJob {
        agent,
        trigger_type: TriggerType::Manual,
        schedule,
        prompt: Some(prompt),
        origin: None,
        work_item: None,
        chat: None,
        message: None,
        confined,
        not_before: None,
    }
}
