//! The parts of the fleet that a strategy can use.

use std::fmt;
use std::sync::Arc;

use cowhand_core::cut::cut;
use cowhand_core::id::{AgentName, JobId, ScheduleId};
use cowhand_core::prompt::MAX_VALUE_BYTES;
use cowhand_core::roster::Roster;
use cowhand_core::trigger::TriggerConfig;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::strategy::FatalTriggerError;
use crate::loaded::Current;
use crate::output;
use crate::state::StateFolder;
use cowhand_store::Store;
use cowhand_system::clock::Clock;

/// The parts of the fleet that all strategies get.
#[derive(Debug, Clone)]
pub struct TriggerServices {
    pub config: Current,
    pub clock: Clock,
    pub store: Store,
    pub state: StateFolder,
}

/// The schedule of a strategy, and the parts of the fleet that the strategy can use.
#[derive(Clone)]
pub struct StrategyContext {
    services: TriggerServices,
    agent: AgentName,
    id: ScheduleId,
    trigger: TriggerConfig,
}

impl fmt::Debug for StrategyContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StrategyContext")
            .field("agent", &self.agent)
            .field("schedule", &self.id)
            .finish_non_exhaustive()
    }
}

impl StrategyContext {
    /// Returns the context of a schedule; `None` if the roster no longer has the schedule.
    pub fn of(services: TriggerServices, id: ScheduleId) -> Option<Self> {
        let loaded = services.config.get();
        let (agent, schedule) = loaded.roster.schedule(id)?;
        let (agent, trigger) = (agent.name.clone(), schedule.trigger.clone());
        Some(Self { services, agent, id, trigger })
    }

    /// Returns the context of another schedule of the same fleet, for example to test its strategy; `None` if the
    /// roster does not have the schedule.
    pub fn of_schedule(&self, id: ScheduleId) -> Option<Self> {
        Self::of(self.services.clone(), id)
    }

    pub fn agent(&self) -> &AgentName {
        &self.agent
    }

    pub fn schedule_id(&self) -> ScheduleId {
        self.id
    }

    pub fn trigger(&self) -> &TriggerConfig {
        &self.trigger
    }

    pub fn clock(&self) -> &Clock {
        &self.services.clock
    }

    /// Parses the value of `with:`. If the trigger is not `custom`, parses an empty map. An error is fatal, because
    /// only a person can fix it.
    pub fn with<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        let with = match &self.trigger {
            TriggerConfig::Custom { with, .. } => with.clone(),
            _ => Map::new(),
        };
        serde_json::from_value(Value::Object(with))
            .map_err(|error| FatalTriggerError(format!("`with` of the trigger is not valid: {error}")).into())
    }

    /// Returns the value of a variable from the environment or, if it is not set there, from `.env`. An empty variable
    /// counts as not set.
    pub fn variable(&self, name: &str) -> Option<String> {
        self.services.config.get().sources.context().variable(name)
    }

    pub fn roster(&self) -> Arc<Roster> {
        Arc::clone(&self.services.config.get().roster)
    }

    /// Returns the context with which work sources make requests, for a strategy that makes such requests.
    pub(super) fn source_context(&self) -> cowhand_work::SourceContext {
        self.services.config.get().sources.context().clone()
    }

    pub(super) fn store(&self) -> &Store {
        &self.services.store
    }

    /// Returns the result of an ended job, cut to the maximum length in a prompt. Returns `None` if the result cannot
    /// be read on this node, for example because the job ran on another node.
    pub(super) async fn result(&self, job: &JobId) -> Option<String> {
        let text = output::result(&self.services.state, job.clone()).await.ok().flatten()?;
        Some(cut(&text, 0, MAX_VALUE_BYTES))
    }
}
