//! Triggering by hand: a firing of a schedule, or a job of an agent alone.

use axum::Json;
use axum::http::StatusCode;
use cowhand_core::id::{AgentName, ScheduleName};
use cowhand_core::job::{Job, NewJob, TriggerType};
use cowhand_core::prompt::{self, Context, Template, Variables};
use cowhand_core::roster::{Agent, Schedule};
use cowhand_core::trigger::{FiringKey, Occurrence, Task};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Api, Problem};
use crate::store::{Decision, Fired, Firing};

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TriggerAsked {
    pub schedule: Option<ScheduleName>,
    /// Instead of the schedule's or the agent's own; taken as it is, not as a template.
    pub prompt: Option<String>,
    /// The same key for the same schedule gives the same job.
    pub idempotency_key: Option<String>,
}

/// `CREATED` for a new job, `OK` for the one that this key has made before.
pub(super) async fn trigger(
    api: &Api,
    agent: &AgentName,
    asked: TriggerAsked,
) -> Result<(StatusCode, Json<Job>), Problem> {
    let daemon = api.open_daemon()?;
    let roster = api.roster();
    let agent = roster.agent(agent).ok_or_else(|| Problem::no_agent(agent))?;
    let answer = match &asked.schedule {
        Some(name) => {
            let schedule = agent.schedules.iter().find(|schedule| schedule.name == *name);
            let schedule = schedule.ok_or_else(|| Problem::no_schedule(&agent.name, name.as_str()))?;
            fire(api, agent, schedule, &asked).await?
        }
        None if asked.idempotency_key.is_some() => {
            return Err(Problem::bad_request(
                "an idempotency key needs a schedule: its firings are what is counted",
            ));
        }
        None => {
            let key = Occurrence::Manual(&Uuid::now_v7().to_string()).key(0);
            let new = new_job(agent, None, &asked, &key, api.now());
            (StatusCode::CREATED, Json(api.store.add_job(new, api.now()).await?))
        }
    };
    daemon.nudge();
    Ok(answer)
}

async fn fire(
    api: &Api,
    agent: &Agent,
    schedule: &Schedule,
    asked: &TriggerAsked,
) -> Result<(StatusCode, Json<Job>), Problem> {
    let key = asked.idempotency_key.clone().unwrap_or_else(|| Uuid::now_v7().to_string());
    // Whatever happens to the schedule in between: a key that was used stays used.
    let key = Occurrence::Manual(&key).key(0);
    let now = api.now();
    let new = new_job(agent, Some(schedule), asked, &key, now);
    let firing = Firing { schedule: schedule.id, key: key.clone(), due: now, decision: Decision::Run(new) };
    if let Fired::Recorded(Some(job)) = api.store.fire_once(firing, now).await? {
        return Ok((StatusCode::CREATED, Json(job)));
    }
    let before = api.store.firing(schedule.id, key).await?.and_then(|row| row.job);
    let job = match before {
        Some(id) => api.store.job(id).await?,
        None => None,
    };
    let job = job.ok_or_else(|| Problem::conflict("this key was used before, and its job is gone"))?;
    Ok((StatusCode::OK, Json(job)))
}

fn new_job(
    agent: &Agent,
    schedule: Option<&Schedule>,
    asked: &TriggerAsked,
    key: &FiringKey,
    now: Timestamp,
) -> NewJob {
    let own = schedule.and_then(|schedule| schedule.prompt.as_deref());
    let default = agent.settings.default_prompt.as_deref();
    let prompt = match asked.prompt.as_deref().filter(|prompt| !prompt.trim().is_empty()) {
        Some(given) => given.to_owned(),
        None => fill(prompt::choose(None, own, default), agent, schedule, key, now),
    };
    NewJob {
        agent: agent.name.clone(),
        trigger_type: TriggerType::Manual,
        schedule: schedule.map(|schedule| schedule.name.clone()),
        prompt: Some(prompt),
        origin: None,
    }
}

/// A template with its values; what was wrong with it was said when it was loaded.
fn fill(text: &str, agent: &Agent, schedule: Option<&Schedule>, key: &FiringKey, now: Timestamp) -> String {
    let trigger = schedule.map_or("manual", |schedule| schedule.trigger.type_name());
    let zone = schedule.map_or(jiff::tz::TimeZone::system(), |schedule| schedule.zone.time_zone().clone());
    let task = Task { source_id: key.to_string(), ..Task::default() };
    let context = Context {
        now: &now.to_zoned(zone),
        agent: &agent.name,
        schedule: schedule.map(|schedule| &schedule.name),
        firing: prompt::Firing { trigger, key, fired_at: now, scheduled_for: None },
        task: &task,
        work_item: None,
        upstream: None,
        payload: None,
    };
    let (template, _) = Template::parse_lenient(text, Variables::of(trigger, false));
    prompt::build_prompt(&template, &context).unwrap_or_else(|_| text.to_owned())
}
