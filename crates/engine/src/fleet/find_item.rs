//! Finds the item that a person names.

use cowhand_core::roster::Roster;
use cowhand_core::work::WorkItemId;
use indexmap::IndexSet;

use super::{FleetError, missing_agent};
use crate::queues::{
    ItemScope, ItemStatus, ItemView, NeededNames, Queue, queues, queues_with_item, removed_queues,
};
use cowhand_store::{ItemFailures, Store};
use cowhand_work::WorkSources;

/// Finds an item in all queues of the fleet, in those of one agent, or in one queue. Returns an error if no queue or
/// several queues have an item with this id.
pub async fn find_item(
    sources: &WorkSources,
    roster: &Roster,
    store: &Store,
    (id, scope): (&WorkItemId, ItemScope<'_>),
) -> Result<(Queue, ItemView), FleetError> {
    if let Some(agent) = scope.agent.filter(|agent| roster.agent(agent).is_none()) {
        return Err(missing_agent(store, roster, agent).await);
    }
    let held = store.items().await?;
    let mut searched = queues(sources, roster, scope.agent);
    searched.extend(removed_queues(sources, roster, &held, scope.agent));
    if let Some(queue) = scope.queue {
        let names: Vec<String> = searched.iter().map(|queue| queue.name.clone()).collect();
        searched.retain(|candidate| candidate.is_named(queue));
        if searched.is_empty() {
            return Err(FleetError::NoQueue { queue: queue.to_owned(), known: names });
        }
    }
    let mut found = queues_with_item(searched, id, store).await?;
    match (found.pop(), found.is_empty()) {
        (Some((queue, view)), true) => {
            // The failures of a completed item are deleted, so that nobody is advised to try it again.
            let has_failed = |failed: &ItemFailures| failed.queue == queue.name && failed.id == *id;
            if view.status == ItemStatus::Done && store.item_failures().await?.iter().any(has_failed) {
                store.forget_failures(queue.name.clone(), id.clone()).await?;
            }
            Ok((queue, view))
        }
        (Some(last), false) => {
            let queues = found.into_iter().chain([last]).map(|(queue, _)| selecting_names(queue, scope));
            Err(FleetError::SeveralItems { item: id.clone(), queues: queues.collect() })
        }
        (None, _) => match scope {
            ItemScope { queue: Some(queue), .. } => {
                Err(FleetError::NotInQueue { item: id.clone(), queue: queue.to_owned() })
            }
            ItemScope { agent: None, .. } => Err(FleetError::NoItem(id.clone())),
            ItemScope { agent: Some(agent), .. } => {
                // The caller did not ask for the queues of other agents, so an error while reading them is ignored.
                let others =
                    queues_with_item(queues(sources, roster, None), id, store).await.unwrap_or_default();
                let elsewhere = others.into_iter().filter_map(|(queue, _)| queue.agents.into_iter().next());
                let elsewhere = elsewhere.collect::<IndexSet<_>>().into_iter().collect();
                let (item, agent) = (id.clone(), agent.clone());
                Err(FleetError::ItemElsewhere { item, agent, elsewhere })
            }
        },
    }
}

/// Returns the names by which a request selects this queue.
fn selecting_names(queue: Queue, scope: ItemScope<'_>) -> NeededNames {
    // If the request already names an agent, only the name of a queue can select one of the queues. `needed` considers
    // only the queues of the config. If it is empty, the other queue that has an item with this id was removed from the
    // config. The request then has to name this queue.
    if scope.agent.is_some() || queue.needed.is_empty() {
        return NeededNames { agent_needed: None, queue_needed: Some(queue.name) };
    }
    queue.needed
}
