//! The queues that have an item with a given id, and the names with which a command or request selects one of these
//! items.

use std::path::Path;

use cowhand_core::id::AgentName;
use cowhand_core::roster::Roster;
use cowhand_core::shell::shell_word;
use cowhand_core::work::WorkItemId;
use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ItemRows, ItemView, Queue, source_owners};
use cowhand_store::Store;
use cowhand_work::{SOURCE_READ_TIMEOUT, SourceOwner, WorkSourceError, with_timeout};

/// The queues in which the item of a request is searched for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ItemScope<'a> {
    /// Only the queues of this agent.
    pub agent: Option<&'a AgentName>,
    /// Only the queue of this name.
    pub queue: Option<&'a str>,
}

/// Names that a request has to give in addition to the id of an item, because another queue may have an item with the
/// same id.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NeededNames {
    /// Agent that a request about the item has to name, because another queue of the fleet may have an item with the
    /// same id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_needed: Option<AgentName>,
    /// Queue that a request about the item has to name, because another queue of its agents may have an item with the
    /// same id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_needed: Option<String>,
}

impl NeededNames {
    /// Returns the words with which a command names the item: its id, and `--agent` or `--queue` if it is needed.
    pub fn command_words(&self, id: &WorkItemId) -> String {
        self.option().map_or_else(|| id.to_string(), |option| format!("{id} {option}"))
    }

    /// Returns the option that a command needs, `--agent` or `--queue` with its value.
    pub(crate) fn option(&self) -> Option<String> {
        match (&self.queue_needed, &self.agent_needed) {
            (Some(queue), _) => Some(format!("--queue {}", shell_word(queue))),
            (None, Some(agent)) => Some(format!("--agent {agent}")),
            (None, None) => None,
        }
    }

    /// Returns true if the id alone names the item.
    pub const fn is_empty(&self) -> bool {
        self.agent_needed.is_none() && self.queue_needed.is_none()
    }
}

/// Returns all queues that have an item with this id. A queue that cannot be read is an error only if no other queue
/// has the item, or if the store records failures of the item in that queue.
pub(crate) async fn queues_with_item(
    queues: Vec<Queue>,
    id: &WorkItemId,
    store: &Store,
) -> Result<Vec<(Queue, ItemView)>, WorkSourceError> {
    let rows = ItemRows::read(store).await?;
    let (mut found, mut unreadable) = (Vec::new(), None);
    for queue in queues {
        if queue.source.source_type() != id.source() {
            continue;
        }
        let view = with_timeout(SOURCE_READ_TIMEOUT, queue.find(id, &rows)).await;
        match view.map_err(|error| error.of_queue(&queue.name)) {
            Ok(Some(view)) => found.push((queue, view)),
            Ok(None) => {}
            Err(error) if rows.of(&queue.name).failed.iter().any(|failed| failed.id == *id) => {
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
            for config in source_owners(agent).filter_map(SourceOwner::config) {
                let (_, agents) =
                    queues.entry(config.queue(base)).or_insert_with(|| (config.name(), Vec::new()));
                if !agents.contains(&&agent.name) {
                    agents.push(&agent.name);
                }
            }
        }
        Self(queues)
    }

    /// Returns all agents of the queue.
    pub(crate) fn agents_of(&self, queue: &str) -> Vec<AgentName> {
        self.0.get(queue).into_iter().flat_map(|(_, agents)| agents.iter().copied().cloned()).collect()
    }

    /// Returns the names that a request about an item of this queue has to give if other queues can have an item with
    /// the same id: an agent that has none of the other queues or, if there is no such agent, the queue.
    pub(crate) fn needed_for(&self, queue: &str) -> NeededNames {
        let Some((source_type, agents)) = self.0.get(queue) else { return NeededNames::default() };
        let others =
            || self.0.iter().filter(|(name, (of_type, _))| name.as_str() != queue && of_type == source_type);
        if others().next().is_none() {
            return NeededNames::default();
        }
        let has_another = |agent: &AgentName| others().any(|(_, (_, agents))| agents.contains(&agent));
        let agent_needed = agents.iter().find(|agent| !has_another(agent)).map(|agent| (*agent).clone());
        let queue_needed = agent_needed.is_none().then(|| queue.to_owned());
        NeededNames { agent_needed, queue_needed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cowhand_core::roster::{Agent, Schedule};

    #[test]
    fn an_agent_or_a_queue_is_named_only_if_ids_can_clash() {
        let agent = |name: &str, path: &str| {
            let source = serde_json::json!({"type": "files", "path": path});
            let work_source = serde_json::from_value(source).unwrap();
            Agent { work_source, ..Agent::new(name.parse().unwrap()) }
        };
        let needed = |agents: Vec<Agent>, queue: &str| {
            let roster = Roster { agents: agents.into(), ..Roster::default() };
            let names = QueueAgents::of(&roster, Path::new("/f"));
            let needed = names.needed_for(queue);
            let words = needed.command_words(&"files-1".parse().unwrap());
            words.strip_prefix("files-1 ").map(str::to_owned)
        };
        let with_schedule = |mut agent: Agent, path: &str| {
            let source = serde_json::json!({"type": "files", "path": path});
            let trigger = serde_json::from_value(serde_json::json!({"type": "manual"})).unwrap();
            let mut schedule = Schedule::new(&agent.name, "s".parse().unwrap(), trigger);
            schedule.work_source = Some(serde_json::from_value(source).unwrap());
            agent.schedules.push(schedule);
            agent
        };
        assert_eq!(needed(vec![agent("a", "qa")], "files /f/qa"), None);
        assert_eq!(needed(vec![agent("a", "qa"), agent("b", "qa")], "files /f/qa"), None);
        let two_agents = || vec![agent("a", "qa"), agent("b", "qb")];
        assert_eq!(needed(two_agents(), "files /f/qa").as_deref(), Some("--agent a"));
        assert_eq!(needed(two_agents(), "files /f/qb").as_deref(), Some("--agent b"));
        assert_eq!(needed(two_agents(), "files /f/other"), None);
        let with_two_queues = || vec![with_schedule(agent("a", "qa"), "qs"), agent("b", "qb")];
        assert_eq!(needed(with_two_queues(), "files /f/qa").as_deref(), Some("--queue 'files /f/qa'"));
        assert_eq!(needed(with_two_queues(), "files /f/qs").as_deref(), Some("--queue 'files /f/qs'"));
        assert_eq!(needed(with_two_queues(), "files /f/qb").as_deref(), Some("--agent b"));
        let shared = vec![with_schedule(agent("a", "qa"), "qs"), agent("b", "qs")];
        assert_eq!(needed(shared, "files /f/qs").as_deref(), Some("--agent b"));
    }
}
