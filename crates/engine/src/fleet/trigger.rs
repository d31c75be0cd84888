//! Jobs that somebody requests: a firing of a schedule, a job of an agent without a schedule, a retry and a fork.

use std::collections::BTreeSet;

use cowhand_core::chat::prompt::CHAT_PROMPT;
use cowhand_core::firing::{self, Dispatch};
use cowhand_core::id::{AgentName, JobId, ScheduleName};
use cowhand_core::job::{Job, JobStatus, NewJob, Origin, TriggerType};
use cowhand_core::prompt::{self, Template, Variables};
use cowhand_core::roster::{Agent, Roster, Schedule};
use cowhand_core::schedule::FiringOutcome;
use cowhand_core::trigger::{FiringContext, FiringKey, MAX_KEY_BYTES, Occurrence, TriggerConfig};
use indexmap::IndexMap;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Fleet, FleetError};
use cowhand_run::runtime::{SessionChoice, description};
use cowhand_store::{Fired, audit};

/// A request to run a job now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Trigger")]
pub struct TriggerRequest {
    pub schedule: Option<ScheduleName>,
    /// Prompt that replaces the prompt of the schedule or agent. It is used literally, not as a template.
    pub prompt: Option<String>,
    /// Values for the prompt of a `manual` schedule, by their names in the prompt.
    pub values: IndexMap<String, String>,
    /// Key of the request: the same key for the same schedule gives the same job.
    #[schemars(length(min = 1, max = MAX_KEY_BYTES))]
    pub idempotency_key: Option<String>,
    /// True if the dashboard makes the request; no other client can set it.
    #[serde(skip)]
    pub from_dashboard: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Triggered {
    New(Job),
    /// The job that an earlier request with this key has made.
    Existing(Job),
    /// The daemon stops before the firing has a job. The next daemon prepares the firing.
    Accepted(PreparingFiring),
}

/// Firing that is stored and has no job yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PreparingFiring {
    pub agent: AgentName,
    pub schedule: ScheduleName,
    /// Key of the firing.
    pub firing: FiringKey,
    /// Always `preparing`.
    pub status: String,
    /// Reason why the firing waits.
    pub waits: Option<String>,
}

impl PreparingFiring {
    pub const STATUS: &'static str = "preparing";
}

/// Changes for a job that is made from another job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Changes")]
pub struct JobChanges {
    pub prompt: Option<String>,
    pub schedule: Option<ScheduleName>,
}

impl TriggerRequest {
    /// Refuses values that no prompt uses. Only the prompt of a `manual` schedule has names for values, and a prompt
    /// that a person gives is used literally. Also refuses values for names that cowhand sets itself.
    fn check_values(&self, agent: &Agent, schedule: Option<&Schedule>) -> Result<(), FleetError> {
        if self.values.is_empty() {
            return Ok(());
        }
        let is_manual = |schedule: &&Schedule| matches!(schedule.trigger, TriggerConfig::Manual {});
        let schedule = schedule.filter(is_manual).filter(|_| self.prompt.is_none());
        let schedule = schedule.ok_or(FleetError::UnusedValues)?;
        let text = prompt::choose(None, schedule.prompt.as_deref(), agent.default_prompt.as_deref());
        let has_items = schedule.work_source.is_some() || agent.work_source.is_some();
        let variables = Variables::of(schedule.trigger.type_name(), has_items);
        let used = Template::parse_lenient(text, variables.clone()).0.names();
        let of_schedule = format!("{}/{}", agent.name, schedule.name);
        // `metadata` contains all values.
        let own = |name: &String| match name.strip_prefix("metadata.") {
            Some(name) => Some(name.to_owned()),
            None => (!variables.is_reserved(name)).then(|| name.clone()),
        };
        let own: BTreeSet<String> = used.iter().filter_map(own).collect();
        let is_reserved = |name: &&String| variables.is_reserved(name) && !own.contains(*name);
        if let Some(name) = self.values.keys().find(is_reserved) {
            let (name, own) = (name.clone(), own.into_iter().collect());
            return Err(FleetError::ReservedValue { name, schedule: of_schedule, own });
        }
        let is_unused = |name: &&String| !own.contains(*name) && !used.contains("metadata");
        let unused: Vec<String> = self.values.keys().filter(is_unused).cloned().collect();
        if unused.is_empty() {
            return Ok(());
        }
        Err(FleetError::UnknownValues { unused, schedule: of_schedule, own: own.into_iter().collect() })
    }

    /// Refuses to fire the usual schedule of a chat without a prompt, because its own prompt needs a message.
    fn check_prompt(&self, agent: &Agent, schedule: Option<&Schedule>) -> Result<(), FleetError> {
        let needs_message = |schedule: &&Schedule| schedule.prompt.as_deref() == Some(CHAT_PROMPT);
        match schedule.filter(needs_message) {
            Some(schedule) if self.prompt.is_none() => {
                Err(FleetError::NeedsMessage { agent: agent.name.clone(), schedule: schedule.name.clone() })
            }
            Some(_) | None => Ok(()),
        }
    }

    fn firing_context(&self, key: &FiringKey) -> FiringContext {
        let mut context = FiringContext::by_hand(key, self.prompt.clone());
        context.task.metadata.clone_from(&self.values);
        FiringContext { from_dashboard: self.from_dashboard, ..context }
    }
}

impl Fleet {
    /// Makes a job now and returns it, or returns the job of an earlier request with the same key. If the firing has to
    /// be prepared, for example because the schedule has a work source, waits for the end of the preparation. Returns
    /// the accepted firing if the daemon stops before the preparation has ended.
    pub async fn trigger(&self, agent: &AgentName, trigger: TriggerRequest) -> Result<Triggered, FleetError> {
        self.accept().await?;
        let key_bytes = trigger.idempotency_key.as_ref().map(String::len);
        if let Some(bytes) = key_bytes.filter(|bytes| !(1..=MAX_KEY_BYTES).contains(bytes)) {
            return Err(FleetError::KeyLength { bytes });
        }
        let roster = self.roster();
        let Some(agent) = roster.agent(agent) else { return Err(self.missing_agent_error(agent).await) };
        let schedule = match &trigger.schedule {
            Some(name) => Some(self.schedule_of(agent, name).await?),
            None => None,
        };
        trigger.check_values(agent, schedule)?;
        trigger.check_prompt(agent, schedule)?;
        let triggered = match schedule {
            Some(schedule) => self.fire(agent, schedule, &trigger).await?,
            None if trigger.idempotency_key.is_some() => return Err(FleetError::KeyWithoutSchedule),
            None => {
                let key = Occurrence::Manual(&Uuid::now_v7().to_string()).key(0);
                let now = self.clock().now();
                let firing_context = &trigger.firing_context(&key);
                let (due, zone) = (None, &TimeZone::system());
                let firing = firing::Firing { agent, schedule: None, key: &key, due, firing_context, zone };
                Triggered::New(self.store().add_job(firing.job(None, now), now).await?)
            }
        };
        if matches!(triggered, Triggered::New(_) | Triggered::Accepted(_)) {
            self.engine.count_trigger();
            self.nudge();
        }
        Ok(triggered)
    }

    async fn fire(
        &self,
        agent: &Agent,
        schedule: &Schedule,
        trigger: &TriggerRequest,
    ) -> Result<Triggered, FleetError> {
        let key = trigger.idempotency_key.clone().unwrap_or_else(|| Uuid::now_v7().to_string());
        // The key does not depend on the generation, so a used key stays used whatever happens to the schedule.
        let key = Occurrence::Manual(&key).key(0);
        let now = self.clock().now();
        let firing_context = trigger.firing_context(&key);
        let firing =
            Dispatch { agent, schedule, by: audit::current() }.firing(key.clone(), firing_context, now);
        let is_duplicate = match self.store().fire_once(firing, now).await? {
            Fired::Recorded(Some(job)) | Fired::Claimed { job, .. } => return Ok(Triggered::New(job)),
            Fired::Recorded(None) => false,
            Fired::Duplicate => true,
        };
        self.nudge();
        let job = match self.job_of(agent, schedule, key.clone()).await {
            // The firing is stored and will run. After an error, the caller would request it again, and it would run
            // twice.
            Err(FleetError::Stopping) => {
                return Ok(Triggered::Accepted(PreparingFiring {
                    agent: agent.name.clone(),
                    schedule: schedule.name.clone(),
                    firing: key,
                    status: PreparingFiring::STATUS.to_owned(),
                    waits: Some("the daemon stops; the next daemon prepares the firing".to_owned()),
                }));
            }
            job => job?,
        };
        let key_used = || FleetError::KeyUsed { agent: agent.name.clone(), schedule: schedule.name.clone() };
        let job = job.ok_or_else(key_used)?;
        Ok(if is_duplicate { Triggered::Existing(job) } else { Triggered::New(job) })
    }

    /// Waits until a firing is prepared, and returns its first job. Returns `None` if the firing or its job is not in
    /// the store, and an error if the firing was skipped, the schedule was removed from the config, or the daemon
    /// stops.
    async fn job_of(
        &self,
        agent: &Agent,
        schedule: &Schedule,
        key: FiringKey,
    ) -> Result<Option<Job>, FleetError> {
        let mut events = self.subscribe().await?;
        loop {
            let row = self.store().firing(schedule.id, key.clone()).await?;
            match row.map(|row| (row.outcome, row.job, row.note)) {
                // The config no longer has the schedule. The firing is kept, because the schedule may be added again,
                // but the caller does not have to wait for that.
                Some((FiringOutcome::Preparing, None, _))
                    if self.roster().schedule(schedule.id).is_none() =>
                {
                    let (agent, schedule) = (agent.name.clone(), schedule.name.clone());
                    return Err(FleetError::ScheduleRemovedWhilePreparing { agent, schedule });
                }
                Some((FiringOutcome::Preparing, None, _)) => {}
                Some((FiringOutcome::Skipped(reason), None, note)) => {
                    let (agent, schedule) = (agent.name.clone(), schedule.name.clone());
                    return Err(FleetError::NotRun { agent, schedule, reason, note });
                }
                Some((_, Some(job), _)) => return Ok(self.store().job(job).await?),
                Some((_, None, _)) | None => return Ok(None),
            }
            if events.next().await?.is_none() {
                return Err(FleetError::Stopping);
            }
        }
    }

    /// Makes a new job from a job that has ended.
    pub async fn retry(&self, job: &JobId, changes: JobChanges) -> Result<Job, FleetError> {
        let (earlier, roster) = (self.job(job).await?, self.roster());
        let (agent, schedule) = self.find_for(&roster, &earlier, &changes).await?;
        if matches!(earlier.status(), JobStatus::Pending | JobStatus::Running) {
            let can_fork = fork_refusal(agent, &earlier).is_none();
            return Err(FleetError::NotFinished { job: job.clone(), status: earlier.status(), can_fork });
        }
        let origin = Origin::RetryOf(job.clone());
        self.make(&earlier, (agent, schedule), TriggerType::Manual, origin, changes.prompt).await
    }

    /// Makes a new job that begins with a copy of this job's session.
    pub async fn fork(&self, job: &JobId, changes: JobChanges) -> Result<Job, FleetError> {
        let (earlier, roster) = (self.job(job).await?, self.roster());
        let (agent, schedule) = self.find_for(&roster, &earlier, &changes).await?;
        if let Some(refusal) = fork_refusal(agent, &earlier) {
            return Err(FleetError::CannotFork(refusal));
        }
        let origin = Origin::ForkOf(job.clone());
        self.make(&earlier, (agent, schedule), TriggerType::Fork, origin, changes.prompt).await
    }

    /// Finds the agent and the schedule of a job that is made from an earlier one.
    async fn find_for<'a>(
        &self,
        roster: &'a Roster,
        earlier: &Job,
        changes: &JobChanges,
    ) -> Result<(&'a Agent, Option<&'a Schedule>), FleetError> {
        let Some(agent) = roster.agent(earlier.agent()) else {
            return Err(self.missing_agent_error(earlier.agent()).await);
        };
        let schedule = match changes.schedule.as_ref().or(earlier.schedule()) {
            Some(name) => Some(self.schedule_of(agent, name).await?),
            None => None,
        };
        Ok((agent, schedule))
    }

    async fn make(
        &self,
        earlier: &Job,
        (agent, schedule): (&Agent, Option<&Schedule>),
        trigger_type: TriggerType,
        origin: Origin,
        prompt: Option<String>,
    ) -> Result<Job, FleetError> {
        self.accept().await?;
        let prompt = prompt.or_else(|| earlier.prompt().map(str::to_owned));
        let new = NewJob {
            agent: agent.name.clone(),
            trigger_type,
            schedule: schedule.map(|schedule| schedule.name.clone()),
            prompt,
            origin: Some(origin),
            // The item belongs to the earlier job: the new job does not claim it and reports no result for it.
            work_item: None,
            chat: earlier.chat().map(str::to_owned),
            message: earlier.message().cloned(),
            confined: earlier.confined().map(str::to_owned),
            not_before: None,
        };
        let schedule = schedule.map(|schedule| schedule.id);
        let job = self.store().add_job_of(schedule, new, self.clock().now()).await?;
        self.engine.count_trigger();
        self.nudge();
        Ok(job)
    }
}

/// Explains why the runtime of the agent cannot fork the session of a job. Returns `None` if it can. A job without a
/// session can be forked too, if the runtime can fork sessions: the fork then begins a new session.
pub(super) fn fork_refusal(agent: &Agent, job: &Job) -> Option<String> {
    // "none" is a valid id, so without a session only the runtime is checked.
    let of = job.session_id().unwrap_or("none").to_owned();
    let refusal = description::refusal(agent.runtime(), &SessionChoice::Fork { of, as_id: None });
    refusal.map(|refusal| refusal.to_string())
}
