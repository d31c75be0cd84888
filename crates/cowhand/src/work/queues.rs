//! The queues of a fleet as people see them: what is available, what is claimed and by whom, what is still to be told.

use std::sync::Arc;

use cowhand_core::config::shape;
use cowhand_core::id::AgentName;
use cowhand_core::roster::{Agent, Roster};
use cowhand_core::work::{FetchOptions, WorkItem, WorkItemId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::sources::For;
use super::{Sources, WorkSource, WorkSourceError};
use crate::store::{HeldItem, ItemState, Store};

/// One queue, and who takes from it.
#[derive(Debug, Clone)]
pub(crate) struct Queue {
    pub(crate) name: String,
    pub(crate) config: shape::WorkSource,
    pub(crate) agents: Vec<AgentName>,
    pub(crate) source: Arc<dyn WorkSource>,
}

/// An item and how it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ItemView {
    #[serde(flatten)]
    pub item: WorkItem,
    pub status: ItemStatus,
    /// The job or the person, if it is one of this fleet.
    pub held_by: Option<String>,
    /// Who takes from its queue.
    pub agents: Vec<AgentName>,
    /// Why its source could not be told yet.
    pub last_error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ItemStatus {
    Available,
    Claimed,
    /// Its job has ended, and the source is to be told.
    Closing,
}

impl ItemStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::Claimed => "claimed",
            Self::Closing => "closing",
        }
    }
}

/// All queues that the fleet's agents take from, or those of one agent.
pub(crate) fn queues(
    sources: &Sources,
    roster: &Roster,
    only: Option<&AgentName>,
) -> Result<Vec<Queue>, WorkSourceError> {
    let mut queues: Vec<Queue> = Vec::new();
    for agent in roster.agents.iter().filter(|agent| only.is_none_or(|only| agent.name == *only)) {
        for whose in places(agent) {
            let Some(config) = whose.config() else { continue };
            let name = config.queue(&sources.setting().base);
            match queues.iter_mut().find(|queue| queue.name == name) {
                Some(queue) if queue.agents.contains(&agent.name) => {}
                Some(queue) => queue.agents.push(agent.name.clone()),
                None => queues.push(Queue {
                    name,
                    config: config.clone(),
                    agents: vec![agent.name.clone()],
                    source: sources.source(&agent.name, config)?,
                }),
            }
        }
    }
    Ok(queues)
}

/// Every source that the config names, once, with an agent that takes from it.
pub(crate) fn named(roster: &Roster) -> Vec<(&AgentName, &shape::WorkSource)> {
    let mut named: Vec<(&AgentName, &shape::WorkSource)> = Vec::new();
    for agent in &roster.agents {
        for config in places(agent).filter_map(For::config) {
            if !named.iter().any(|(_, known)| *known == config) {
                named.push((&agent.name, config));
            }
        }
    }
    named
}

fn places(agent: &Agent) -> impl Iterator<Item = For<'_>> {
    let of_schedules = agent.schedules.iter().map(move |schedule| For::schedule(agent, schedule));
    [For::agent(agent)].into_iter().chain(of_schedules)
}

/// What is in a queue; with `claimed`, also what somebody has.
pub(crate) async fn items(
    queue: &Queue,
    sources: &Sources,
    store: &Store,
    claimed: bool,
) -> Result<Vec<ItemView>, WorkSourceError> {
    let held = store.items().await.map_err(|error| WorkSourceError::Other(error.into()))?;
    let held: Vec<HeldItem> = held.into_iter().filter(|held| held.queue == queue.name).collect();
    let available = sources.all(queue.source.as_ref(), &FetchOptions::default()).await?;
    let mut views: Vec<ItemView> =
        available.into_iter().map(|item| queue.view(item, ItemStatus::Available, &held)).collect();
    if claimed {
        let options = FetchOptions { include_claimed: true, ..FetchOptions::default() };
        let known = |views: &[ItemView], id: &WorkItemId| views.iter().any(|view| view.item.id == *id);
        let others = sources.all(queue.source.as_ref(), &options).await?;
        let ours = held.iter().map(|held| held.item.clone());
        for item in others.into_iter().chain(ours) {
            if !known(&views, &item.id) {
                views.push(queue.view(item, ItemStatus::Claimed, &held));
            }
        }
    }
    Ok(views)
}

impl Queue {
    /// A row of ours knows better than a list from outside, which may be a moment old.
    pub(crate) fn view(&self, item: WorkItem, status: ItemStatus, held: &[HeldItem]) -> ItemView {
        let row = held.iter().find(|held| held.item.id == item.id);
        let (status, last_error) = match row.map(|held| &held.state) {
            None => (status, None),
            Some(ItemState::Claiming | ItemState::Held) => (ItemStatus::Claimed, None),
            Some(ItemState::Closing { last_error, .. }) => (ItemStatus::Closing, last_error.clone()),
        };
        let held_by = row.map(|held| held.holder.clone());
        ItemView { item, status, held_by, agents: self.agents.clone(), last_error }
    }
}
