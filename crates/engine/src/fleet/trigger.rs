//! Jobs that somebody asks for: a firing of a schedule, a job of an agent alone, and one that goes on from another.

use cowhand_core::firing;
use cowhand_core::id::{AgentName, JobId, ScheduleName};
use cowhand_core::job::{Job, JobStatus, NewJob, Origin, TriggerType};
use cowhand_core::roster::{Agent, Schedule};
use cowhand_core::schedule::FiringOutcome;
use cowhand_core::trigger::{FiringContext, FiringKey, Occurrence};
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Fleet, FleetError};
use crate::trigger::dispatch::Dispatch;
use cowhand_run::runtime::{SessionChoice, description};
use cowhand_store::Fired;

/// What to run now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Trigger {
    pub schedule: Option<ScheduleName>,
    /// Instead of the schedule's or the agent's own; taken as it is, not as a template.
    pub prompt: Option<String>,
    /// The same key for the same schedule gives the same job.
    pub idempotency_key: Option<String>,
    /// The dashboard asks for it. Nobody else can say so.
    #[serde(skip)]
    pub by_page: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Triggered {
    New(Job),
    /// The one that this key has made before.
    Before(Job),
}

/// What is different in a job that is made from another.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Changes {
    pub prompt: Option<String>,
    pub schedule: Option<ScheduleName>,
}

impl Trigger {
    fn occasion(&self, key: &FiringKey) -> FiringContext {
        FiringContext { by_page: self.by_page, ..FiringContext::by_hand(key, self.prompt.clone()) }
    }
}

impl Fleet {
    /// Makes a job now, and says which; with a work source once it is known what it works on.
    pub async fn trigger(&self, agent: &AgentName, trigger: Trigger) -> Result<Triggered, FleetError> {
        self.open()?;
        let roster = self.roster();
        let Some(agent) = roster.agent(agent) else { return Err(self.missing(agent).await) };
        let triggered = match &trigger.schedule {
            Some(name) => self.fire(agent, schedule_of(agent, name)?, &trigger).await?,
            None if trigger.idempotency_key.is_some() => return Err(FleetError::KeyWithoutSchedule),
            None => {
                let key = Occurrence::Manual(&Uuid::now_v7().to_string()).key(0);
                let now = self.clock().now();
                let occasion = &trigger.occasion(&key);
                let (due, zone) = (None, &TimeZone::system());
                let firing = firing::Firing { agent, schedule: None, key: &key, due, occasion, zone };
                Triggered::New(self.store().add_job(firing.job(None, now), now).await?)
            }
        };
        if matches!(triggered, Triggered::New(_)) {
            self.engine.count_trigger();
            self.nudge();
        }
        Ok(triggered)
    }

    async fn fire(
        &self,
        agent: &Agent,
        schedule: &Schedule,
        trigger: &Trigger,
    ) -> Result<Triggered, FleetError> {
        let key = trigger.idempotency_key.clone().unwrap_or_else(|| Uuid::now_v7().to_string());
        // Whatever happens to the schedule in between: a key that was used stays used.
        let key = Occurrence::Manual(&key).key(0);
        let now = self.clock().now();
        let occasion = trigger.occasion(&key);
        let firing = Dispatch { agent, schedule, due: None }.firing(key.clone(), occasion, now);
        let before = match self.store().fire_once(firing, now).await? {
            Fired::Recorded(Some(job)) | Fired::Claimed { job, .. } => return Ok(Triggered::New(job)),
            Fired::Recorded(None) => false,
            Fired::Duplicate => true,
        };
        self.nudge();
        let job = self.job_of(agent, schedule, key).await?;
        let gone = || FleetError::KeyUsed { agent: agent.name.clone(), schedule: schedule.name.clone() };
        let job = job.ok_or_else(gone)?;
        Ok(if before { Triggered::Before(job) } else { Triggered::New(job) })
    }

    /// The first job of a firing, once it is known what it runs for.
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

    /// A job that has ended, once more.
    pub async fn retry(&self, job: &JobId, changes: Changes) -> Result<Job, FleetError> {
        let before = self.job(job).await?;
        if matches!(before.status(), JobStatus::Pending | JobStatus::Running) {
            return Err(FleetError::NotFinished { job: job.clone(), status: before.status() });
        }
        let origin = Origin::RetryOf(job.clone());
        self.make(&before, TriggerType::Manual, origin, changes).await
    }

    /// A new job that begins with all that this one's session holds.
    pub async fn fork(&self, job: &JobId, changes: Changes) -> Result<Job, FleetError> {
        let before = self.job(job).await?;
        let runtime = self.roster().agent(before.agent()).map(Agent::runtime);
        let of = before.session_id().unwrap_or("none").to_owned();
        if let Some(refusal) =
            description::refusal(runtime.unwrap_or_default(), &SessionChoice::Fork { of, as_id: None })
        {
            return Err(FleetError::CannotFork(refusal));
        }
        let origin = Origin::ForkOf(job.clone());
        self.make(&before, TriggerType::Fork, origin, changes).await
    }

    async fn make(
        &self,
        before: &Job,
        trigger_type: TriggerType,
        origin: Origin,
        changes: Changes,
    ) -> Result<Job, FleetError> {
        self.open()?;
        let roster = self.roster();
        let agent = before.agent();
        let Some(agent) = roster.agent(agent) else { return Err(self.missing(agent).await) };
        let schedule = changes.schedule.as_ref().or(before.schedule());
        let schedule = schedule.map(|name| schedule_of(agent, name)).transpose()?;
        let prompt = changes.prompt.or_else(|| before.prompt().map(str::to_owned));
        let new = NewJob {
            agent: agent.name.clone(),
            trigger_type,
            schedule: schedule.map(|schedule| schedule.name.clone()),
            prompt,
            origin: Some(origin),
            // The item is its own job's: nobody else claims or reports it.
            work_item: None,
            chat: before.chat().map(str::to_owned),
            confined: before.confined().map(str::to_owned),
            not_before: None,
        };
        let job = self.store().add_job(new, self.clock().now()).await?;
        self.engine.count_trigger();
        self.nudge();
        Ok(job)
    }

    /// A fleet that stops takes no new work.
    pub(super) fn open(&self) -> Result<(), FleetError> {
        if self.is_running() { Ok(()) } else { Err(FleetError::Stopping) }
    }
}

pub(super) fn schedule_of<'a>(agent: &'a Agent, name: &ScheduleName) -> Result<&'a Schedule, FleetError> {
    agent.schedule(Some(name)).ok_or_else(|| FleetError::no_schedule(agent, name.as_str()))
}
