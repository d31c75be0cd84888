//! Queues that are not in the config any more and have items that this fleet holds.

use cowhand_core::id::AgentName;
use cowhand_core::roster::Roster;
use indexmap::IndexSet;

use super::{NeededNames, Queue, queues, usable_source};
use cowhand_store::HeldItem;
use cowhand_work::WorkSources;

/// Returns the queues of held items that the config does not have any more. With `agent_filter`, returns only the
/// queues with items of that agent. Only the held items of such a queue are items of the fleet.
pub fn removed_queues(
    sources: &WorkSources,
    roster: &Roster,
    held: &[HeldItem],
    agent_filter: Option<&AgentName>,
) -> Vec<Queue> {
    let configured = queues(sources, roster, None);
    let is_removed = |held: &&HeldItem| !configured.iter().any(|queue| queue.name == held.queue);
    let is_of_agent = |held: &&HeldItem| agent_filter.is_none_or(|name| held.agent == *name);
    let mut removed: Vec<Queue> = Vec::new();
    for item in held.iter().filter(is_removed).filter(is_of_agent) {
        if !removed.iter().any(|queue| queue.name == item.queue) {
            let of_queue = held.iter().filter(|other| other.queue == item.queue);
            let agents: IndexSet<AgentName> = of_queue.map(|other| other.agent.clone()).collect();
            removed.push(Queue {
                name: item.queue.clone(),
                config: item.source.clone(),
                agents: agents.into_iter().collect(),
                selected_agent: item.agent.clone(),
                source: usable_source(sources, &item.agent, &item.source),
                max_attempts: item.source.rules().max_attempts(),
                needed: NeededNames { agent_needed: None, queue_needed: Some(item.queue.clone()) },
                to_trigger: None,
                is_removed: true,
            });
        }
    }
    removed
}
