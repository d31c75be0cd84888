//! The queues that have an item of some id, and how a command names one of these items.

use std::path::Path;

use cowhand_core::id::AgentName;
use cowhand_core::roster::Roster;
use cowhand_core::work::WorkItemId;
use indexmap::IndexMap;

use super::{ItemRows, ItemView, Queue, places};
use cowhand_store::Store;
use cowhand_work::{For, SOURCE_READ_TIMEOUT, WorkSourceError, within};

/// Returns all queues that have an item. A queue that cannot be read is an error only if no other queue has the item,
/// or if work on the item of that queue has failed.
pub(crate) async fn holders(
    queues: Vec<Queue>,
    id: &WorkItemId,
    store: &Store,
) -> Result<Vec<(Queue, ItemView)>, WorkSourceError> {
    let known = ItemRows::read(store).await?;
    let (mut found, mut unreadable) = (Vec::new(), None);
    for queue in queues {
        if queue.source.source_type() != id.source() {
            continue;
        }
        let view = within(SOURCE_READ_TIMEOUT, queue.find(id, &known)).await;
        match view.map_err(|error| error.of_queue(&queue.name)) {
            Ok(Some(view)) => found.push((queue, view)),
            Ok(None) => {}
            Err(error) if known.of(&queue.name).failed.iter().any(|failed| failed.id == *id) => {
                return Err(error);
            }
            Err(error) => unreadable = unreadable.or(Some(error)),
        }
    }
    match unreadable {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

/// The queues of a fleet by name, each with the type of its source and its agents.
#[derive(Debug)]
pub(crate) struct QueueAgents<'r>(IndexMap<String, (&'r str, Vec<&'r AgentName>)>);

impl<'r> QueueAgents<'r> {
    pub(crate) fn of(roster: &'r Roster, base: &Path) -> Self {
        let mut queues: IndexMap<String, (&str, Vec<&AgentName>)> = IndexMap::new();
        for agent in &roster.agents {
            for config in places(agent).filter_map(For::config) {
                let (_, agents) =
                    queues.entry(config.queue(base)).or_insert_with(|| (config.name(), Vec::new()));
                if !agents.contains(&&agent.name) {
                    agents.push(&agent.name);
                }
            }
        }
        Self(queues)
    }

    /// Returns the agent that a command about an item of this queue has to name, because other queues may have an item
    /// of the same id. Returns none if there are no such queues, or if the name would exclude none of them.
    pub(crate) fn needed_for(&self, queue: &str) -> Option<AgentName> {
        let (source_type, agents) = self.0.get(queue)?;
        let others =
            || self.0.iter().filter(|(name, (of_type, _))| name.as_str() != queue && of_type == source_type);
        let shared = |agent: &AgentName| others().filter(|(_, (_, agents))| agents.contains(&agent)).count();
        let (shared, agent) =
            agents.iter().map(|agent| (shared(agent), agent)).min_by_key(|(shared, _)| *shared)?;
        (shared < others().count()).then(|| (*agent).clone())
    }
}

/// Returns the words with which a command names an item: its id, and `--agent` if it is needed.
pub fn named_item(id: &WorkItemId, agent_needed: Option<&AgentName>) -> String {
    match agent_needed {
        Some(agent) => format!("{id} --agent {agent}"),
        None => id.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cowhand_core::roster::Agent;

    #[test]
    fn an_agent_is_named_only_where_it_tells_queues_apart() {
        let agent = |name: &str, path: &str| {
            let source = serde_json::json!({"type": "files", "path": path});
            let work_source = serde_json::from_value(source).unwrap();
            Agent { work_source, ..Agent::new(name.parse().unwrap()) }
        };
        let needed = |agents: Vec<Agent>, queue: &str| {
            let roster = Roster { agents, ..Roster::default() };
            let names = QueueAgents::of(&roster, Path::new("/f"));
            names.needed_for(queue).map(|agent| agent.to_string())
        };
        assert_eq!(needed(vec![agent("a", "qa")], "files /f/qa"), None);
        assert_eq!(needed(vec![agent("a", "qa"), agent("b", "qa")], "files /f/qa"), None);
        let two = || vec![agent("a", "qa"), agent("b", "qb")];
        assert_eq!(needed(two(), "files /f/qa").as_deref(), Some("a"));
        assert_eq!(needed(two(), "files /f/qb").as_deref(), Some("b"));
        assert_eq!(needed(two(), "files /f/other"), None);
    }
}
