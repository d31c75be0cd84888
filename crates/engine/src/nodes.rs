//! The nodes of the fleet, as this node knows them, and what this node reports about itself.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use cowhand_core::id::AgentName;
use cowhand_core::label::NodeLabel;
use cowhand_core::node::{FleetNode, NodeLimits};
use cowhand_core::plan::PlanningNode;
use cowhand_core::roster::{Agent, Roster};
use cowhand_store::SharedLimits;
use tokio::sync::Notify;

/// The options of a node. They are given at its start and are not in the config, which all nodes share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeOptions {
    pub labels: Vec<NodeLabel>,
    /// Maximum number of jobs that the node runs at a time; `None` means no limit.
    pub capacity: Option<u32>,
}

/// The nodes as they were last read from the store.
#[derive(Debug, Default)]
pub struct KnownNodes {
    pub(crate) options: NodeOptions,
    nodes: RwLock<Arc<Vec<FleetNode>>>,
    /// Limits in the configs of running nodes whose config differs.
    stricter: Mutex<Vec<NodeLimits>>,
    /// Requests that the nodes are read again now.
    pub(crate) refresh: Notify,
}

impl KnownNodes {
    pub fn new(options: NodeOptions) -> Self {
        Self { options, ..Self::default() }
    }

    pub fn get(&self) -> Arc<Vec<FleetNode>> {
        Arc::clone(&self.nodes.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set(&self, nodes: Vec<FleetNode>) {
        *self.nodes.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(nodes);
    }

    /// Replaces the limits of other configs, and returns whether they changed.
    pub(crate) fn set_stricter(&self, limits: Vec<NodeLimits>) -> bool {
        let mut stricter = self.stricter.lock().unwrap_or_else(PoisonError::into_inner);
        let is_changed = *stricter != limits;
        *stricter = limits;
        is_changed
    }

    /// Returns the roster with the stricter limits of other configs.
    pub(crate) fn restrict(&self, configured: &Arc<Roster>) -> Arc<Roster> {
        let stricter = self.stricter.lock().unwrap_or_else(PoisonError::into_inner);
        if stricter.is_empty() {
            return Arc::clone(configured);
        }
        let mut roster = Roster::clone(configured);
        NodeLimits::restrict(&stricter, &mut roster);
        Arc::new(roster)
    }

    /// Returns what the node with this name starts, without the count of the places.
    pub(crate) fn planning_node(&self, name: &str, roster: &Roster) -> PlanningNode {
        let nodes = self.get();
        let Some(own) = nodes.iter().find(|node| node.name == name) else { return PlanningNode::default() };
        let is_elsewhere =
            |agent: &&Agent| !own.has_labels_for(agent) || own.cannot_run(&agent.name).is_some();
        let not_here: BTreeSet<AgentName> =
            roster.agents.iter().filter(is_elsewhere).map(|agent| agent.name.clone()).collect();
        PlanningNode { is_drained: own.drained_at.is_some(), not_here, ..PlanningNode::default() }
    }
}

/// Returns the limits of the places that agents share on this node.
pub(crate) const fn shared_limits(roster: &Roster) -> SharedLimits {
    SharedLimits { fleet: roster.max_concurrent, node: roster.capacity }
}
