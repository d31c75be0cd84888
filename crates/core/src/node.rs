//! Nodes: the daemons that share a store, what each of them reports about itself, and which jobs it can start.

mod limits;
mod reason;
mod spread;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::AgentName;
use crate::label::NodeLabel;
use crate::roster::Agent;
pub use limits::NodeLimits;
pub use reason::no_node_for;
pub use spread::freer_node;

/// What a node reports about itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeReport {
    /// Version of cowhand; empty if the node has reported nothing.
    pub version: String,
    pub labels: Vec<NodeLabel>,
    /// Maximum number of jobs that it runs at a time; none means no limit.
    pub capacity: Option<u32>,
    /// Number of its processors. It stands for the capacity when nodes are compared.
    pub processors: u32,
    /// Digest of its config; none if its agents did not come from a file.
    pub config: Option<String>,
    /// Agents that it cannot run, with the reason.
    pub unable: BTreeMap<AgentName, String>,
}

/// A node that uses the store, or has used it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetNode {
    pub name: String,
    /// Last start of its daemon.
    pub started_at: Timestamp,
    pub seen_at: Timestamp,
    pub is_running: bool,
    /// Time since which it takes no new jobs; none if it takes jobs.
    pub drained_at: Option<Timestamp>,
    /// Number of its running jobs.
    pub running: u32,
    /// Time at which the first of its leases expires.
    pub lease_until: Option<Timestamp>,
    /// True if other nodes can use the store. A node without other nodes also starts the jobs of agents that it cannot
    /// run, so that they fail with the reason.
    pub shares_store: bool,
    pub report: NodeReport,
}

/// Whether a node takes new jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeState {
    Ready,
    /// It takes no new jobs and still runs some.
    Draining {
        since: Timestamp,
    },
    /// It takes no new jobs and runs none.
    Drained {
        since: Timestamp,
    },
    /// Its daemon does not run.
    Gone {
        since: Timestamp,
    },
}

impl NodeState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Draining { .. } => "draining",
            Self::Drained { .. } => "drained",
            Self::Gone { .. } => "gone",
        }
    }

    pub const fn since(self) -> Option<Timestamp> {
        match self {
            Self::Ready => None,
            Self::Draining { since } | Self::Drained { since } | Self::Gone { since } => Some(since),
        }
    }
}

impl FleetNode {
    pub fn state(&self) -> NodeState {
        match self.drained_at {
            _ if !self.is_running => NodeState::Gone { since: self.seen_at },
            None => NodeState::Ready,
            Some(since) if self.running == 0 => NodeState::Drained { since },
            Some(since) => NodeState::Draining { since },
        }
    }

    /// Checks whether the node has the labels that the agent names.
    pub fn has_labels_for(&self, agent: &Agent) -> bool {
        agent.runs_on.iter().all(|wanted| self.report.labels.iter().any(|label| label.satisfies(wanted)))
    }

    /// Returns the reason why the node leaves the jobs of this agent to other nodes, if it cannot run them.
    pub fn cannot_run(&self, agent: &AgentName) -> Option<&str> {
        self.report.unable.get(agent).filter(|_| self.shares_store).map(String::as_str)
    }

    /// Checks whether the node starts jobs of this agent if it has a free place.
    pub fn takes_jobs_of(&self, agent: &Agent) -> bool {
        self.state() == NodeState::Ready
            && self.has_labels_for(agent)
            && self.cannot_run(&agent.name).is_none()
    }

    pub fn is_full(&self) -> bool {
        self.report.capacity.is_some_and(|capacity| self.running >= capacity)
    }
}

/// Returns the running nodes whose config differs from the config with this digest.
pub fn nodes_with_other_config<'a>(
    config: Option<&'a str>,
    nodes: &'a [FleetNode],
) -> impl Iterator<Item = &'a FleetNode> {
    let running = nodes.iter().filter(|node| node.is_running);
    running.filter(move |node| {
        let other = node.report.config.as_deref();
        config.is_some() && other.is_some() && other != config
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn node(name: &str, running: u32) -> FleetNode {
        FleetNode {
            name: name.to_owned(),
            started_at: Timestamp::UNIX_EPOCH,
            seen_at: Timestamp::UNIX_EPOCH,
            is_running: true,
            drained_at: None,
            running,
            lease_until: None,
            shares_store: true,
            report: NodeReport { processors: 4, ..NodeReport::default() },
        }
    }

    #[test]
    fn the_state_follows_from_the_daemon_the_drain_and_the_jobs() {
        let at = Timestamp::UNIX_EPOCH;
        for (is_running, drained_at, running, expected) in [
            (true, None, 3, NodeState::Ready),
            (true, Some(at), 3, NodeState::Draining { since: at }),
            (true, Some(at), 0, NodeState::Drained { since: at }),
            (false, None, 0, NodeState::Gone { since: at }),
            (false, Some(at), 1, NodeState::Gone { since: at }),
        ] {
            let node = FleetNode { is_running, drained_at, ..node("a", running) };
            assert_eq!(node.state(), expected);
        }
    }

    #[test]
    fn a_node_without_a_known_config_does_not_differ() {
        let with = |name: &str, config: Option<&str>| FleetNode {
            report: NodeReport { config: config.map(str::to_owned), ..NodeReport::default() },
            ..node(name, 0)
        };
        let gone = FleetNode { is_running: false, ..with("gone", Some("2")) };
        let nodes = [with("same", Some("1")), with("other", Some("2")), with("old", None), gone];
        let names = |config| {
            nodes_with_other_config(config, &nodes).map(|node| node.name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(names(Some("1")), ["other"]);
        assert_eq!(names(None), Vec::<&str>::new());
    }
}
