//! Indexes of a roster. They contain the positions of agents and schedules, so that the time of a look-up does not
//! depend on the size of the fleet, and the agents that have to be planned together.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::{Agent, Roster, Schedule};
use crate::id::{AgentName, ScheduleId};
use crate::interval::Interval;
use crate::trigger::TriggerConfig;

/// Data that is derived from the agents of a roster when it is first needed. A clone derives it again, because the
/// agents of a clone may be replaced.
#[derive(Debug, Default)]
pub struct RosterIndex(OnceLock<Positions>);

impl Clone for RosterIndex {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for RosterIndex {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

#[derive(Debug)]
struct Positions {
    agents: HashMap<AgentName, usize>,
    /// Positions of the agent and of its schedule.
    schedules: HashMap<ScheduleId, (usize, usize)>,
    /// Number of schedules for each interval.
    intervals: HashMap<Interval, usize>,
    /// Positions of the agents that share a provider with limits.
    limited: Vec<usize>,
    couples_all: bool,
}

impl Positions {
    fn of(roster: &Roster) -> Self {
        let mut positions = Self {
            agents: HashMap::with_capacity(roster.agents.len()),
            schedules: HashMap::new(),
            intervals: HashMap::new(),
            limited: Vec::new(),
            couples_all: roster.budget.has_windows()
                || roster.max_concurrent.is_some()
                || roster.capacity.is_some(),
        };
        for (at, agent) in roster.agents.iter().enumerate() {
            positions.agents.entry(agent.name.clone()).or_insert(at);
            if uses_limited_provider(roster, agent) {
                positions.limited.push(at);
            }
            for (number, schedule) in agent.all_schedules().enumerate() {
                positions.schedules.entry(schedule.id).or_insert((at, number));
                if let TriggerConfig::Interval { interval } = schedule.trigger {
                    *positions.intervals.entry(interval).or_default() += 1;
                }
                positions.couples_all |=
                    schedule.adopts.as_ref().is_some_and(|former| former.agent != agent.name);
            }
        }
        positions
    }
}

fn uses_limited_provider(roster: &Roster, agent: &Agent) -> bool {
    let is_limited = |provider: &str| {
        let limits = roster.providers.get(provider);
        limits.is_some_and(|limits| limits.max_concurrent.is_some() || limits.start_every.is_some())
    };
    !roster.providers.is_empty()
        && agent.with_fallbacks().any(|(_, candidate)| candidate.provider().is_some_and(is_limited))
}

/// The agents whose plans depend on each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CoupledAgents {
    /// Each agent of the fleet: they share a budget, or places of the fleet or of the node, or one has adopted a schedule of another.
    All,
    /// These agents, because they share providers with limits.
    Some(Vec<AgentName>),
    /// No other agent.
    None,
}

impl Roster {
    fn positions(&self) -> &Positions {
        self.index.0.get_or_init(|| Positions::of(self))
    }

    pub fn agent(&self, name: &AgentName) -> Option<&Agent> {
        self.positions().agents.get(name).and_then(|at| self.agents.get(*at))
    }

    pub fn schedule(&self, id: ScheduleId) -> Option<(&Agent, &Schedule)> {
        let (agent, number) = *self.positions().schedules.get(&id)?;
        let agent = self.agents.get(agent)?;
        let web_chat = || agent.web_chat.as_ref().map(|chat| &*chat.schedule);
        Some((agent, agent.schedules.get(number).or_else(web_chat)?))
    }

    /// Checks whether several schedules have the interval of this schedule.
    pub(crate) fn shares_interval(&self, schedule: &Schedule) -> bool {
        let TriggerConfig::Interval { interval } = schedule.trigger else { return false };
        self.positions().intervals.get(&interval).is_some_and(|count| *count > 1)
    }

    /// Returns the agents whose plans depend on the plan of this agent.
    pub fn coupled_with(&self, agent: &AgentName) -> CoupledAgents {
        let positions = self.positions();
        if positions.couples_all {
            return CoupledAgents::All;
        }
        let at = positions.agents.get(agent);
        if at.is_none_or(|at| positions.limited.binary_search(at).is_err()) {
            return CoupledAgents::None;
        }
        let names = positions.limited.iter().filter_map(|at| self.agents.get(*at));
        CoupledAgents::Some(names.map(|agent| agent.name.clone()).collect())
    }
}
