//! The queues of a fleet as people see them: available items, claimed items with their holders, and undelivered
//! results.

mod find;
pub mod given_up;
mod not_taken;
mod removed;
pub mod seen_again;
pub mod skipped_files;

use std::sync::Arc;

use cowhand_core::id::{AgentName, JobId, ScheduleId};
use cowhand_core::job::Closing;
use cowhand_core::roster::{Agent, Roster};
use cowhand_core::work::{FetchOptions, WorkItem, WorkItemId};
use cowhand_core::work_source::ConfiguredSource;
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::secrets::process::known;
use cowhand_store::{FailedItemState, HeldItem, ItemFailures, ItemState, Store, StoreError};
use cowhand_work::unusable::Unusable;
use cowhand_work::{QueueState, SourceOwner, StatedClaimant, WorkSource, WorkSourceError, WorkSources};
pub use find::{ItemScope, NeededNames};
pub(crate) use find::{QueueAgents, queues_with_item};
use given_up::{GivenUp, TakenBy};
pub(crate) use not_taken::not_taken;
pub use removed::removed_queues;

/// Time for which a claim of a person is valid without a renewal. A person takes longer than a job.
pub(crate) const PERSON_CLAIM_VALID_FOR: SignedDuration = SignedDuration::from_hours(24);

/// One queue, and the agents that take items from it.
#[derive(Debug, Clone)]
pub struct Queue {
    pub name: String,
    pub config: ConfiguredSource,
    pub agents: Vec<AgentName>,
    /// Agent for which a person acts on the queue: the agent that a request names, else the first agent.
    pub selected_agent: AgentName,
    pub source: Arc<dyn WorkSource>,
    /// Number of failures of an item after which it is given up.
    pub max_attempts: u32,
    /// Names that a request about its items has to give, because another queue may have an item with the same id.
    pub needed: NeededNames,
    /// Schedule that has to be triggered so that an item is taken, if the clock fires no schedule that takes from the
    /// queue.
    pub to_trigger: Option<TakenBy>,
    /// True if the config does not have the queue any more. Only its held items are items of the fleet.
    pub is_removed: bool,
}

impl Queue {
    /// Returns whether a request means this queue. The path of a `files` source can contain a secret. Answers then show
    /// the masked name, so the masked name is also accepted.
    pub fn is_named(&self, name: &str) -> bool {
        self.name == name || known().redact(&self.name) == name
    }
}

/// A work item and its status.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact about the item that programs read by its name"
)]
pub struct ItemView {
    #[serde(flatten)]
    pub item: WorkItem,
    pub status: ItemStatus,
    /// Holder of the item in this fleet: a job or a person.
    pub held_by: Option<String>,
    /// Node of this fleet that claims the item for a job now. The claim is not complete, so the job does not exist yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claiming_on: Option<String>,
    /// Holder according to the source, as `FLEET/HOLDER`, if nobody in this fleet holds the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_by: Option<String>,
    /// Agents that take items from the queue of the item.
    pub agents: Vec<AgentName>,
    /// Reason why the result or the release of the item could not be delivered to the source yet.
    pub last_error: Option<String>,
    /// True if the source still has to receive the release of the item, and not a result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub releasing: bool,
    /// After a release or completion: whether the source has not received it yet.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undelivered: bool,
    /// Reason why the item is left for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up: Option<GivenUp>,
    /// Result of its last job, if the result was not delivered because the item had changed in its source. Only
    /// present in the answer to a request for one item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_result: Option<DroppedResult>,
    /// Whether a release found that the source does not have the item any more. The fleet has then forgotten the item.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forgotten: bool,
    /// Name of the item's queue.
    #[serde(default)]
    pub queue: String,
    #[serde(flatten)]
    pub needed: NeededNames,
    /// Whether a retry or release found that the item was available already.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_available: bool,
    /// After a retry or release: reason why no schedule takes the item before a person acts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_taken: Option<String>,
}

impl ItemView {
    /// Returns the words with which a command names the item.
    pub fn command_words(&self) -> String {
        self.needed.command_words(&self.item.id)
    }
}

/// A result that was not delivered to the work source, because the item has changed there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DroppedResult {
    /// Job that has the result.
    pub job: JobId,
    pub at: Timestamp,
    /// Reason why the result was not delivered.
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ItemStatus {
    Available,
    Claimed,
    /// The source still has to receive the result or the release of the item.
    Closing,
    /// Work on the item failed, and no agent takes the item before a person has acted.
    GivenUp,
    /// The item exists in its source and is not offered: a person has to decide about it.
    Withdrawn,
    /// Nothing is left to do.
    Done,
}

impl ItemStatus {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Available => "available",
            Self::Claimed => "claimed",
            Self::Closing => "closing",
            Self::GivenUp => "given_up",
            Self::Withdrawn => "withdrawn",
            Self::Done => "done",
        }
    }
}

/// Returns all queues from which the fleet's agents take items, or the queues of one agent. Each queue names all its
/// agents.
pub fn queues(sources: &WorkSources, roster: &Roster, agent_filter: Option<&AgentName>) -> Vec<Queue> {
    let mut queues: Vec<Queue> = Vec::new();
    let names = QueueAgents::of(roster, &sources.context().base);
    for agent in roster.agents.iter().filter(|agent| agent_filter.is_none_or(|name| agent.name == *name)) {
        for owner in source_owners(agent) {
            let Some(config) = owner.config() else { continue };
            let name = config.queue(&sources.context().base);
            match queues.iter_mut().find(|queue| queue.name == name) {
                Some(queue) => {
                    queue.max_attempts = queue.max_attempts.max(config.rules().max_attempts());
                }
                None => queues.push(Queue {
                    needed: names.needed_for(&name),
                    to_trigger: given_up::to_trigger(roster, &sources.context().base, &name),
                    agents: names.agents_of(&name),
                    name,
                    max_attempts: config.rules().max_attempts(),
                    config: config.clone(),
                    selected_agent: agent.name.clone(),
                    source: usable_source(sources, &agent.name, config),
                    is_removed: false,
                }),
            }
        }
    }
    queues
}

/// Returns the source of a queue. If it cannot be created, each request to it returns the reason.
fn usable_source(sources: &WorkSources, agent: &AgentName, config: &ConfiguredSource) -> Arc<dyn WorkSource> {
    sources.source(agent, config).unwrap_or_else(|error| {
        let source_type = config.name().to_owned();
        Arc::new(Unusable { source_type, why: error.to_string() })
    })
}

/// Returns the schedules that take items from a queue.
pub fn takers(sources: &WorkSources, roster: &Roster, queue: &str) -> Vec<ScheduleId> {
    let base = &sources.context().base;
    let takes = |owner: &SourceOwner<'_>| owner.config().is_some_and(|config| config.queue(base) == queue);
    let owners = roster.agents.iter().flat_map(source_owners).filter(takes);
    owners.filter_map(|owner| owner.schedule.map(|schedule| schedule.id)).collect()
}

/// Returns each work source of the config once, with an agent that uses it.
pub fn configured_sources(roster: &Roster) -> Vec<(&AgentName, &ConfiguredSource)> {
    let mut sources: Vec<(&AgentName, &ConfiguredSource)> = Vec::new();
    for agent in &roster.agents {
        for config in source_owners(agent).filter_map(SourceOwner::config) {
            if !sources.iter().any(|(_, earlier)| *earlier == config) {
                sources.push((&agent.name, config));
            }
        }
    }
    sources
}

fn source_owners(agent: &Agent) -> impl Iterator<Item = SourceOwner<'_>> {
    let schedules = agent.schedules.iter().map(move |schedule| SourceOwner::schedule(agent, schedule));
    [SourceOwner::agent(agent)].into_iter().chain(schedules)
}

/// Returns the available and given-up items of a queue; with `claimed`, also the items that somebody holds. Of a
/// removed queue, returns the items that this fleet holds.
pub async fn items(
    queue: &Queue,
    sources: &WorkSources,
    store: &Store,
    claimed: bool,
) -> Result<Vec<ItemView>, WorkSourceError> {
    let rows = ItemRows::read(store).await?.of(&queue.name);
    if queue.is_removed {
        return queue.find_held(&rows).await;
    }
    let available = sources.all(queue.source.as_ref(), &FetchOptions::default()).await?;
    let mut views: Vec<ItemView> =
        available.into_iter().map(|item| queue.view(item, ItemStatus::Available, &rows)).collect();
    let is_listed = |views: &[ItemView], id: &WorkItemId| views.iter().any(|view| view.item.id == *id);
    if claimed {
        let options = FetchOptions { include_claimed: true, ..FetchOptions::default() };
        let all_items = sources.all(queue.source.as_ref(), &options).await?;
        let is_in_source =
            |held: &HeldItem| all_items.iter().any(|item| names_holder(queue.source.as_ref(), held, item));
        let missing = rows.held.iter().filter(|held| !is_in_source(held)).map(|held| held.item.clone());
        let missing: Vec<WorkItem> = missing.collect();
        for item in all_items.into_iter().chain(missing) {
            if !is_listed(&views, &item.id) {
                views.push(queue.view(item, ItemStatus::Claimed, &rows));
            }
        }
    }
    for failed in rows.failed.iter().filter(|failed| failed.is_given_up(queue.max_attempts)) {
        if is_listed(&views, &failed.id) {
            continue;
        }
        if let Some(held) = rows.held.iter().find(|held| held.item.id == failed.id) {
            // Until the source has received the result, only the store knows that the item is given up.
            if matches!(held.state, ItemState::Closing { .. }) {
                let item = queue.source.get_work(&failed.id).await.ok().flatten();
                let item = item.unwrap_or_else(|| held.item.clone());
                views.push(queue.view(item, ItemStatus::Closing, &rows));
            }
            continue;
        }
        match queue.source.queue_state(&failed.id).await? {
            QueueState::Withdrawn => {
                // The store has the item as it was at its claim.
                let item = queue.source.get_work(&failed.id).await?.or_else(|| failed.item.clone());
                views.extend(item.map(|item| queue.view(item, ItemStatus::GivenUp, &rows)));
            }
            QueueState::Done => forget_failures(queue, &failed.id, store).await?,
            // Somebody holds the item, or has just put it back.
            QueueState::Available | QueueState::Claimed => {}
        }
    }
    Ok(views)
}

/// Deletes the failures of an item that is done, so that nobody is advised to try it again.
async fn forget_failures(queue: &Queue, id: &WorkItemId, store: &Store) -> Result<(), WorkSourceError> {
    let forgotten = store.forget_failures(queue.name.clone(), id.clone()).await;
    forgotten.map_err(|error| WorkSourceError::Other(error.into()))
}

/// Returns the items of a queue that this fleet holds, for a source that cannot be reached.
pub async fn held_items(queue: &Queue, store: &Store) -> Result<Vec<ItemView>, WorkSourceError> {
    let rows = ItemRows::read(store).await?.of(&queue.name);
    let items = rows.held.iter().map(|held| held.item.clone());
    Ok(items.map(|item| queue.view(item, ItemStatus::Claimed, &rows)).collect())
}

/// A result, or a release, that could not be delivered to its source yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "UntoldItem")]
pub struct UndeliveredItem {
    pub id: WorkItemId,
    pub title: String,
    /// Name of the item's queue.
    pub queue: String,
    /// Job or person that held the item.
    pub held_by: String,
    pub agent: AgentName,
    pub since: Option<Timestamp>,
    pub last_error: String,
    /// True for a release, false for a result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub releasing: bool,
}

/// Time after which an undelivered result is listed, even if its first delivery is still under way.
const UNDELIVERED_LISTED_AFTER: SignedDuration = SignedDuration::from_secs(10);

/// Returns the results and releases that could not be delivered yet, without a request to the sources.
pub async fn undelivered(store: &Store, now: Timestamp) -> Result<Vec<UndeliveredItem>, StoreError> {
    let is_late = |since: Option<Timestamp>| {
        since.is_some_and(|since| now.duration_since(since) >= UNDELIVERED_LISTED_AFTER)
    };
    let items = store.items().await?.into_iter().filter_map(|held| {
        let ItemState::Closing { closing, last_error, since, .. } = held.state else { return None };
        let no_answer = || is_late(since).then(|| "its source has not answered yet".to_owned());
        Some(UndeliveredItem {
            last_error: last_error.or_else(no_answer)?,
            id: held.item.id,
            title: held.item.title,
            queue: held.queue,
            held_by: held.holder,
            agent: held.agent,
            since,
            releasing: matches!(closing, Closing::Release(_)),
        })
    });
    Ok(items.collect())
}

/// Returns the holders of items that are now in the queue and whose result or release could not be delivered. The
/// source is read only if there is such a result or release.
pub(crate) async fn seen_again(
    queue: &str,
    source: &dyn WorkSource,
    sources: &WorkSources,
    store: &Store,
) -> Result<Vec<String>, WorkSourceError> {
    let mut undelivered = ItemRows::read(store).await?.of(queue).held;
    undelivered.retain(|held| matches!(&held.state, ItemState::Closing { last_error: Some(_), .. }));
    if undelivered.is_empty() {
        return Ok(Vec::new());
    }
    let options = FetchOptions { include_claimed: true, ..FetchOptions::default() };
    let items = sources.all(source, &options).await?;
    let is_same =
        |held: &HeldItem, item: &WorkItem| item.id == held.item.id || names_holder(source, held, item);
    undelivered.retain(|held| items.iter().any(|item| is_same(held, item)));
    Ok(undelivered.into_iter().map(|held| held.holder).collect())
}

/// Returns whether the item itself names the holder as its claimant. Its id may have changed since it was claimed.
fn names_holder(source: &dyn WorkSource, held: &HeldItem, item: &WorkItem) -> bool {
    source.stated_claimant(item).is_some_and(|claimant| claimant.holder == held.holder)
}

/// The rows of the store about items.
#[derive(Debug, Clone, Default)]
pub struct ItemRows {
    pub held: Vec<HeldItem>,
    pub failed: Vec<ItemFailures>,
}

impl ItemRows {
    pub async fn read(store: &Store) -> Result<Self, WorkSourceError> {
        let store_error = |error: StoreError| WorkSourceError::Other(error.into());
        let held = store.items().await.map_err(store_error)?;
        Ok(Self { held, failed: store.item_failures().await.map_err(store_error)? })
    }

    /// Returns the rows of one queue.
    #[must_use]
    pub fn of(&self, queue: &str) -> Self {
        let held = self.held.iter().filter(|held| held.queue == queue).cloned().collect();
        let failed = self.failed.iter().filter(|failed| failed.queue == queue).cloned().collect();
        Self { held, failed }
    }
}

impl Queue {
    /// Describes an item. A row of the store has precedence over a list from outside, which may be out of date. If the
    /// source has received the failure of a given-up item and offers the item again, the item is available, because a
    /// person has put it back.
    pub fn view(&self, item: WorkItem, status: ItemStatus, rows: &ItemRows) -> ItemView {
        let row = rows.held.iter().find(|held| held.item.id == item.id);
        let row =
            row.or_else(|| rows.held.iter().find(|held| names_holder(self.source.as_ref(), held, &item)));
        let failed = rows.failed.iter().find(|failed| failed.id == item.id);
        let failed =
            failed.filter(|failed| failed.is_given_up(self.max_attempts)).filter(|failed| match status {
                ItemStatus::Available => failed.state == FailedItemState::Offered,
                ItemStatus::GivenUp => true,
                ItemStatus::Claimed | ItemStatus::Closing | ItemStatus::Withdrawn | ItemStatus::Done => false,
            });
        let (status, last_error) = match row.map(|held| &held.state) {
            None if failed.is_some() => (ItemStatus::GivenUp, None),
            None => (status, None),
            Some(ItemState::Claiming | ItemState::Held) => (ItemStatus::Claimed, None),
            Some(ItemState::Closing { last_error, .. }) => (ItemStatus::Closing, last_error.clone()),
        };
        let releasing = row.is_some_and(|held| matches!(held.closing(), Some(Closing::Release(_))));
        let claiming_on = row.filter(|held| held.is_being_claimed()).map(|held| held.node.clone());
        let held_by = row.filter(|_| claiming_on.is_none()).map(|held| held.holder.clone());
        let given_up = failed.filter(|_| status == ItemStatus::GivenUp).map(GivenUp::from);
        let given_up = given_up.map(|why| GivenUp { to_trigger: self.to_trigger.clone(), ..why });
        let is_foreign = status == ItemStatus::Claimed && row.is_none();
        let claimant = is_foreign.then(|| self.source.stated_claimant(&item)).flatten();
        let claimed_by = claimant.map(|StatedClaimant { fleet, holder }| format!("{fleet}/{holder}"));
        let (agents, queue, needed) = (self.agents.clone(), self.name.clone(), self.needed.clone());
        ItemView {
            item,
            status,
            held_by,
            claiming_on,
            claimed_by,
            agents,
            last_error,
            releasing,
            undelivered: false,
            given_up,
            dropped_result: None,
            forgotten: false,
            queue,
            needed,
            was_available: false,
            not_taken: None,
        }
    }

    /// Returns one item as it is now.
    pub(crate) async fn now(
        &self,
        id: &WorkItemId,
        store: &Store,
    ) -> Result<Option<ItemView>, WorkSourceError> {
        self.find(id, &ItemRows::read(store).await?).await.map_err(|error| error.of_queue(&self.name))
    }

    /// Returns the items that this fleet holds. Each item is read as for a request for one item.
    async fn find_held(&self, rows: &ItemRows) -> Result<Vec<ItemView>, WorkSourceError> {
        let mut views = Vec::new();
        for held in &rows.held {
            views.extend(self.find(&held.item.id, rows).await?);
        }
        Ok(views)
    }

    /// Returns one item. An item that this fleet holds is found even if its source cannot be read.
    async fn find(&self, id: &WorkItemId, rows: &ItemRows) -> Result<Option<ItemView>, WorkSourceError> {
        let rows = rows.of(&self.name);
        let held = rows.held.iter().find(|held| held.item.id == *id).map(|held| held.item.clone());
        let is_held = held.is_some();
        if self.is_removed && !is_held {
            return Ok(None);
        }
        let item = match (self.source.get_work(id).await, held) {
            (Ok(Some(item)), _) | (Ok(None) | Err(_), Some(item)) => item,
            (Ok(None), None) => return Ok(None),
            (Err(error), None) => return Err(error),
        };
        // A row of the store has precedence.
        if is_held {
            return Ok(Some(self.view(item, ItemStatus::Claimed, &rows)));
        }
        let has_failed =
            rows.failed.iter().any(|failed| failed.id == item.id && failed.is_given_up(self.max_attempts));
        let status = match self.source.queue_state(&item.id).await? {
            QueueState::Available => ItemStatus::Available,
            QueueState::Claimed => ItemStatus::Claimed,
            QueueState::Withdrawn if has_failed => ItemStatus::GivenUp,
            QueueState::Withdrawn => ItemStatus::Withdrawn,
            QueueState::Done => ItemStatus::Done,
        };
        Ok(Some(self.view(item, status, &rows)))
    }
}
