//! A fleet as it runs: resolved, merged and checked. What was written in the files is in [`crate::config`].

use crate::id::{AgentName, ScheduleId, ScheduleName};
use crate::policy::{Retry, Timing, Zone};
use crate::trigger::TriggerConfig;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Fleet {
    /// In the order of the files: root agents first, then each sub-fleet's.
    pub agents: Vec<Agent>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Agent {
    pub name: AgentName,
    /// Over all jobs of the agent, however they were started, on all nodes.
    pub max_concurrent: u32,
    pub retry: Retry,
    pub schedules: Vec<Schedule>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    pub id: ScheduleId,
    pub name: ScheduleName,
    /// `enabled: false` in the file; a person's `disable` lives in the store.
    pub enabled: bool,
    pub trigger: TriggerConfig,
    pub timing: Timing,
    /// Of the cron expression, the active hours and the excluded dates.
    pub zone: Zone,
    pub prompt: Option<String>,
}

impl Fleet {
    pub fn agent(&self, name: &AgentName) -> Option<&Agent> {
        self.agents.iter().find(|agent| agent.name == *name)
    }
}
