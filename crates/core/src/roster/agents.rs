//! The agents of a roster. Two rosters share the agents that are equal in both, so that a reload copies only the agents
//! that have changed.

use std::ops::{Index, IndexMut};
use std::sync::Arc;

use super::Agent;

/// A list of agents. A clone shares its agents with the original, until one of them is changed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct AgentList(Vec<Arc<Agent>>);

impl AgentList {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    pub const fn len(&self) -> usize {
        self.0.len()
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, at: usize) -> Option<&Agent> {
        self.0.get(at).map(Arc::as_ref)
    }

    pub fn first(&self) -> Option<&Agent> {
        self.get(0)
    }

    pub fn push(&mut self, agent: impl Into<Arc<Agent>>) {
        self.0.push(agent.into());
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Agent> + ExactSizeIterator + Clone {
        self.0.iter().map(Arc::as_ref)
    }

    /// Returns the agents for a change. An agent that another list shares is copied.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Agent> {
        self.0.iter_mut().map(Arc::make_mut)
    }

    /// Returns the agents in the form in which lists share them.
    pub fn shared(&self) -> &[Arc<Agent>] {
        &self.0
    }
}

impl Index<usize> for AgentList {
    type Output = Agent;

    fn index(&self, at: usize) -> &Agent {
        &self.0[at]
    }
}

impl IndexMut<usize> for AgentList {
    fn index_mut(&mut self, at: usize) -> &mut Agent {
        Arc::make_mut(&mut self.0[at])
    }
}

impl<'a> IntoIterator for &'a AgentList {
    type Item = &'a Agent;
    type IntoIter = std::iter::Map<std::slice::Iter<'a, Arc<Agent>>, fn(&'a Arc<Agent>) -> &'a Agent>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter().map(Arc::as_ref)
    }
}

impl<'a> IntoIterator for &'a mut AgentList {
    type Item = &'a mut Agent;
    type IntoIter =
        std::iter::Map<std::slice::IterMut<'a, Arc<Agent>>, fn(&'a mut Arc<Agent>) -> &'a mut Agent>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter_mut().map(Arc::make_mut)
    }
}

impl From<Vec<Agent>> for AgentList {
    fn from(agents: Vec<Agent>) -> Self {
        agents.into_iter().collect()
    }
}

impl FromIterator<Agent> for AgentList {
    fn from_iter<T: IntoIterator<Item = Agent>>(agents: T) -> Self {
        Self(agents.into_iter().map(Arc::new).collect())
    }
}
