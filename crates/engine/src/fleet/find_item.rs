//! Finding the one item that a person names.

use cowhand_core::id::AgentName;
use cowhand_core::roster::Roster;
use cowhand_core::work::WorkItemId;

use super::{FleetError, missing_agent};
use crate::queues::{ItemView, Queue, holders, queues};
use cowhand_store::Store;
use cowhand_work::WorkSources;

/// Finds an item in the queues of the fleet, or of one agent. An id that several of them have is refused; `verb` is
/// the command that the refusal names.
pub async fn find_item(
    sources: &WorkSources,
    roster: &Roster,
    store: &Store,
    (id, agent): (&WorkItemId, Option<&AgentName>),
    verb: &'static str,
) -> Result<(Queue, ItemView), FleetError> {
    if let Some(agent) = agent.filter(|agent| roster.agent(agent).is_none()) {
        return Err(missing_agent(store, roster, agent).await);
    }
    let mut found = holders(queues(sources, roster, agent), id, store).await?;
    match (found.pop(), found.is_empty()) {
        (Some(one), true) => Ok(one),
        (Some(last), false) => {
            let all = found.into_iter().chain([last]).map(|(queue, _)| (queue.name, queue.agent_needed));
            Err(FleetError::SeveralItems { item: id.clone(), verb, queues: all.collect() })
        }
        (None, _) => {
            let Some(agent) = agent else { return Err(FleetError::NoItem(id.clone())) };
            // A queue of another agent that cannot be read is not what was asked for.
            let others = holders(queues(sources, roster, None), id, store).await.unwrap_or_default();
            let elsewhere = others.into_iter().filter_map(|(queue, _)| queue.agents.into_iter().next());
            let (item, agent, elsewhere) = (id.clone(), agent.clone(), elsewhere.collect());
            Err(FleetError::ItemElsewhere { item, agent, verb, elsewhere })
        }
    }
}
