//! What the node that plans leaves to other nodes, and jobs that wait for a place of the fleet or of a node.

use std::collections::BTreeSet;

use super::{LiveState, SharedPlaces, Snapshot};
use crate::id::AgentName;
use crate::node::FleetNode;
use crate::roster::{Agent, Roster};

/// The node that plans: the places that its jobs share, and the agents whose jobs it leaves to other nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlanningNode {
    pub places: SharedPlaces,
    /// True if the node takes no new jobs.
    pub is_drained: bool,
    /// Agents whose jobs the node does not start, because it does not have their labels or cannot run them.
    pub not_here: BTreeSet<AgentName>,
}

impl PlanningNode {
    /// Checks whether the node starts jobs of the agent.
    pub fn takes_jobs_of(&self, agent: &AgentName) -> bool {
        !self.is_drained && !self.not_here.contains(agent)
    }
}

impl Snapshot {
    /// Describes the places for which a job of the agent waits: those of the fleet, or those of all nodes that take its
    /// jobs. None if there is a free place.
    pub(super) fn full_places(&self, roster: &Roster, agent: &Agent) -> Option<String> {
        let running = self.jobs.iter().filter(|job| matches!(job.state, LiveState::Running { .. })).count();
        if let Some(max) = roster.max_concurrent.filter(|max| running >= *max as usize) {
            let taken = if max == 1 {
                "the only place of the fleet is taken".to_owned()
            } else {
                format!("all {max} places of the fleet are taken")
            };
            return Some(format!("{taken} (`fleet.max_concurrent`)"));
        }
        let able: Vec<&FleetNode> = self.nodes.iter().filter(|node| node.takes_jobs_of(agent)).collect();
        if able.is_empty() || !able.iter().all(|node| node.is_full()) {
            return None;
        }
        Some(match able.as_slice() {
            [only] => match only.report.capacity {
                Some(1) => format!("the only place of the node {} is taken (`--capacity`)", only.name),
                _ => {
                    format!("all {} places of the node {} are taken (`--capacity`)", only.running, only.name)
                }
            },
            all => format!("all places of the {} nodes that run it are taken (`--capacity`)", all.len()),
        })
    }
}
