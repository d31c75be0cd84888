//! Who is in the fleet, as it runs: resolved, merged and checked. What was written in the files is in [`crate::config`].

use std::path::PathBuf;

use crate::config::shape;
use crate::id::{AgentName, ScheduleId, ScheduleName};
use crate::policy::{Retry, Timeout, Timing, Zone};
use crate::retention::Retention;
use crate::trigger::TriggerConfig;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Roster {
    /// In the order of the files: root agents first, then each sub-fleet's.
    pub agents: Vec<Agent>,
    /// `postgres://…`; none means a file in the state folder.
    pub store: Option<String>,
    /// Of the root file; each agent has its own merged with it.
    pub retention: Retention,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Agent {
    pub name: AgentName,
    /// Over all jobs of the agent, however they were started, on all nodes.
    pub max_concurrent: u32,
    /// Of jobs that come from no schedule.
    pub retry: Retry,
    pub schedules: Vec<Schedule>,
    /// Where its processes run.
    pub directory: PathBuf,
    /// Everything else as it was written, merged; its schedules are above.
    pub settings: shape::Agent,
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
    pub work_source: Option<shape::WorkSource>,
    /// Asked before each firing whether it runs.
    pub when_command: Option<Vec<String>>,
    /// Whether the output of its jobs is also kept as plain text.
    pub output_to_file: bool,
    pub retry: Retry,
    /// Of one attempt.
    pub timeout: Timeout,
    /// Of an attempt's silence.
    pub idle_timeout: Timeout,
}

impl Agent {
    /// With everything that has a default left at it.
    pub fn new(name: AgentName) -> Self {
        let (directory, settings) = (PathBuf::from("."), shape::Agent::default());
        Self { name, max_concurrent: 1, retry: Retry::default(), schedules: Vec::new(), directory, settings }
    }
}

impl Schedule {
    /// Whether it takes time to find out what a firing runs for.
    pub fn needs_preparing(&self, agent: &Agent) -> bool {
        self.when_command.is_some() || self.work_source.is_some() || agent.settings.work_source.is_some()
    }

    /// With everything that has a default left at it.
    pub fn new(agent: &AgentName, name: ScheduleName, trigger: TriggerConfig) -> Self {
        Self {
            id: ScheduleId::of(agent, &name),
            name,
            enabled: true,
            trigger,
            timing: Timing::default(),
            zone: Zone::UTC,
            prompt: None,
            work_source: None,
            when_command: None,
            output_to_file: false,
            retry: Retry::default(),
            timeout: Timeout::ATTEMPT,
            idle_timeout: Timeout::IDLE,
        }
    }
}

impl Roster {
    /// With everything that has a default left at it.
    pub fn of(agents: Vec<Agent>) -> Self {
        Self { agents, ..Self::default() }
    }

    pub fn agent(&self, name: &AgentName) -> Option<&Agent> {
        self.agents.iter().find(|agent| agent.name == *name)
    }

    /// Whether no limit is set for anybody.
    pub fn keeps_everything(&self) -> bool {
        let keeps = |agent: &Agent| agent.settings.retention.is_none_or(|retention| retention.is_unlimited());
        self.retention.is_unlimited() && self.agents.iter().all(keeps)
    }

    /// The agent's own, or for one that has left the fleet, that of the root file.
    pub fn retention(&self, name: &AgentName) -> Retention {
        self.agent(name).map_or(self.retention, |agent| agent.settings.retention.unwrap_or_default())
    }
}
