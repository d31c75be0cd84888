//! The limits that nodes with different configs keep together: the stricter limit holds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::AgentName;
use crate::roster::Roster;

/// The limits on running jobs in the config of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeLimits {
    /// `fleet.max_concurrent`.
    pub fleet: Option<u32>,
    /// `instances.max_concurrent` of each agent.
    pub agents: BTreeMap<AgentName, u32>,
}

impl NodeLimits {
    pub fn of(roster: &Roster) -> Self {
        let agents = roster.agents.iter().map(|agent| (agent.name.clone(), agent.max_concurrent));
        Self { fleet: roster.max_concurrent, agents: agents.collect() }
    }

    /// Lowers the limits of a roster to the strictest of these limits. An agent that another config does not have keeps
    /// its limit.
    pub fn restrict(limits: &[Self], roster: &mut Roster) {
        for other in limits {
            roster.max_concurrent = [roster.max_concurrent, other.fleet].into_iter().flatten().min();
        }
        let strictest = |agent: &AgentName| limits.iter().filter_map(|other| other.agents.get(agent)).min();
        let lower: BTreeMap<AgentName, u32> = roster
            .agents
            .iter()
            .filter_map(|agent| {
                let limit = *strictest(&agent.name)?;
                (limit < agent.max_concurrent).then(|| (agent.name.clone(), limit))
            })
            .collect();
        if lower.is_empty() {
            return;
        }
        for agent in roster.agents.iter_mut() {
            if let Some(limit) = lower.get(&agent.name) {
                agent.max_concurrent = *limit;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roster::Agent;

    #[test]
    fn the_strictest_limit_holds() {
        let agent =
            |name: &str, max_concurrent| Agent { max_concurrent, ..Agent::new(name.parse().unwrap()) };
        let roster =
            |fleet, a, b| Roster { max_concurrent: fleet, ..Roster::of(vec![agent("a", a), agent("b", b)]) };
        let other = NodeLimits::of(&Roster::of(vec![agent("a", 2)]));
        for (own, limits, expected) in [
            (roster(None, 3, 4), vec![], roster(None, 3, 4)),
            (roster(None, 3, 4), vec![other.clone()], roster(None, 2, 4)),
            (roster(Some(5), 1, 4), vec![other.clone()], roster(Some(5), 1, 4)),
            (
                roster(Some(5), 3, 4),
                vec![other, NodeLimits::of(&roster(Some(2), 9, 1))],
                roster(Some(2), 2, 1),
            ),
        ] {
            let mut restricted = own.clone();
            NodeLimits::restrict(&limits, &mut restricted);
            assert_eq!(restricted, expected, "{limits:?}");
        }
    }
}
