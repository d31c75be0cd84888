//! The sources of a fleet's agents: creates and keeps them, and lists, claims, reports and releases their items.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use cowhand_core::id::AgentName;
use cowhand_core::roster::{Agent, Schedule};
use cowhand_core::work::{
    ClaimFailureReason, ClaimResult, FetchOptions, ReleaseOptions, ReleaseResult, WorkItem, WorkItemId,
    WorkResult,
};
use cowhand_core::work_source::ConfiguredSource;

use super::context::SourceContext;
use super::github::AuthorPermissions;
use super::quota::Quota;
use super::registry::SourceRegistry;
use super::source::can_claim_another;
use super::{Claimant, WorkSource, WorkSourceError};

/// Maximum number of cursors in one list. A list with more cursors counts as a list that never ends, which is an error.
const MAX_CANDIDATE_PAGES: usize = 10_000;

/// Sources of all agents. Each source is created once and kept, with its rate limit and cached answers.
#[derive(Debug)]
pub struct WorkSources {
    registry: Arc<SourceRegistry>,
    context: SourceContext,
    created: Mutex<HashMap<AgentName, Vec<CreatedSource>>>,
    author_permissions: AuthorPermissions,
}

#[derive(Debug)]
struct CreatedSource {
    config: ConfiguredSource,
    source: Arc<dyn WorkSource>,
}

/// Owner of a source: an agent, or one of its schedules.
#[derive(Debug, Clone, Copy)]
pub struct SourceOwner<'a> {
    pub agent: &'a Agent,
    /// Schedule; `None` for the agent itself. If a schedule is set, only the source of the schedule counts: the loader
    /// has already copied the agent's source to schedules without a source.
    pub schedule: Option<&'a Schedule>,
}

impl<'a> SourceOwner<'a> {
    pub const fn agent(agent: &'a Agent) -> Self {
        Self { agent, schedule: None }
    }

    pub const fn schedule(agent: &'a Agent, schedule: &'a Schedule) -> Self {
        Self { agent, schedule: Some(schedule) }
    }

    pub fn config(self) -> Option<&'a ConfiguredSource> {
        match self.schedule {
            Some(schedule) => schedule.work_source.as_deref(),
            None => self.agent.work_source.as_ref(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextOptions {
    /// True if the item is claimed in the same call.
    pub auto_claim: bool,
    /// Conditions for the item. The cursor and the limit in them are ignored: all pages are read.
    pub fetch: FetchOptions,
}

impl Default for NextOptions {
    fn default() -> Self {
        Self { auto_claim: true, fetch: FetchOptions::default() }
    }
}

/// Result of asking for the next item.
#[derive(Debug, Clone, PartialEq)]
pub enum NextItem {
    /// There is no item, or the agent has no source.
    Nothing,
    /// First item in order, not claimed.
    Unclaimed(Box<WorkItem>),
    Claimed(Box<WorkItem>),
    /// No item could be claimed. The fields describe the last item that was tried.
    Refused {
        item: Box<WorkItem>,
        reason: ClaimFailureReason,
        message: Option<String>,
    },
}

impl NextItem {
    pub fn item(&self) -> Option<&WorkItem> {
        match self {
            Self::Nothing => None,
            Self::Unclaimed(item) | Self::Claimed(item) | Self::Refused { item, .. } => Some(item),
        }
    }

    /// Returns true if the item is claimed. Work may begin only then.
    pub fn claimed(&self) -> bool {
        matches!(self, Self::Claimed(_))
    }

    pub fn claim_result(&self) -> Option<ClaimResult> {
        match self {
            Self::Nothing | Self::Unclaimed(_) => None,
            Self::Claimed(item) => Some(ClaimResult::Claimed(item.clone())),
            Self::Refused { reason, message, .. } => {
                Some(ClaimResult::Refused { reason: *reason, message: message.clone() })
            }
        }
    }
}

impl WorkSources {
    /// Returns the used and remaining requests of each queue that counts requests, by the name of the queue.
    pub fn quotas(&self) -> BTreeMap<String, Quota> {
        let created = self.created.lock().unwrap_or_else(PoisonError::into_inner);
        let mut quotas: BTreeMap<String, Quota> = BTreeMap::new();
        for CreatedSource { config, source } in created.values().flatten() {
            let Some(quota) = source.quota() else { continue };
            let total = quotas.entry(config.queue(&self.context.base)).or_default();
            total.requests += quota.requests;
            total.conditional_hits += quota.conditional_hits;
            total.rate_limit = quota.rate_limit.or(total.rate_limit.take());
        }
        quotas
    }

    pub fn new(registry: Arc<SourceRegistry>, context: SourceContext) -> Self {
        Self {
            registry,
            context,
            created: Mutex::default(),
            author_permissions: AuthorPermissions::default(),
        }
    }

    /// Returns the configured source; `None` if there is none. The same instance is returned as long as the agent's
    /// config contains the source and [`Self::clear`] is not called. Sources of the agent that are no longer in its
    /// config are dropped.
    pub fn source_of(&self, owner: SourceOwner<'_>) -> Result<Option<Arc<dyn WorkSource>>, WorkSourceError> {
        let Some(config) = owner.config() else { return Ok(None) };
        let mut created = self.created.lock().unwrap_or_else(PoisonError::into_inner);
        let of_agent = created.entry(owner.agent.name.clone()).or_default();
        of_agent.retain(|created| has_source(owner.agent, &created.config) || created.config == *config);
        drop(created);
        self.source(&owner.agent.name, config).map(Some)
    }

    /// Returns the source for a config, which need not be in the agent's current config: outbox entries are still
    /// delivered to a former source.
    pub fn source(
        &self,
        agent: &AgentName,
        config: &ConfiguredSource,
    ) -> Result<Arc<dyn WorkSource>, WorkSourceError> {
        let mut created = self.created.lock().unwrap_or_else(PoisonError::into_inner);
        let of_agent = created.entry(agent.clone()).or_default();
        if let Some(created) = of_agent.iter().find(|created| created.config == *config) {
            return Ok(Arc::clone(&created.source));
        }
        let source = self.registry.create(config, &self.context)?;
        of_agent.push(CreatedSource { config: config.clone(), source: Arc::clone(&source) });
        Ok(source)
    }

    pub fn context(&self) -> &SourceContext {
        &self.context
    }

    /// Forgets all sources and all permissions of authors after a reload, because variables or folders may have
    /// changed.
    pub fn clear(&self) {
        self.created.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.author_permissions.clear();
    }

    pub const fn author_permissions(&self) -> &AuthorPermissions {
        &self.author_permissions
    }

    /// Returns all items that meet the conditions, the most urgent first, then the oldest; no items if the owner has no
    /// source. A caller that records claims has to record them between this call and `claim_work`.
    pub async fn candidates(
        &self,
        owner: SourceOwner<'_>,
        options: &FetchOptions,
    ) -> Result<Vec<WorkItem>, WorkSourceError> {
        let Some(source) = self.source_of(owner)? else { return Ok(Vec::new()) };
        self.all(source.as_ref(), options).await
    }

    /// Reads all pages of a source, in the order in which items are taken.
    pub async fn all(
        &self,
        source: &dyn WorkSource,
        options: &FetchOptions,
    ) -> Result<Vec<WorkItem>, WorkSourceError> {
        let mut options = FetchOptions { cursor: None, limit: None, ..options.clone() };
        let (mut items, mut seen, mut cursors) = (Vec::new(), HashSet::new(), HashSet::new());
        loop {
            let page = source.fetch_available_work(&options).await?;
            // A list that changes while it is read can show an item on two pages.
            items.extend(page.items.into_iter().filter(|item| seen.insert(item.id.clone())));
            let Some(cursor) = page.next_cursor else { break };
            if cursors.len() >= MAX_CANDIDATE_PAGES || !cursors.insert(cursor.clone()) {
                let message = format!("the list of {} does not end: cursor {cursor:?}", source.source_type());
                return Err(WorkSourceError::Other(anyhow::anyhow!(message)));
            }
            options.cursor = Some(cursor);
        }
        items.sort_by(WorkItem::compare_order);
        Ok(items)
    }

    /// Claims the first item that can be claimed. If a claim is refused for a reason after which another claim can
    /// succeed, the next item is tried. Without `auto_claim`, returns the first item and claims nothing.
    pub async fn next_item(
        &self,
        owner: SourceOwner<'_>,
        options: &NextOptions,
        by: &Claimant,
    ) -> Result<NextItem, WorkSourceError> {
        let Some(source) = self.source_of(owner)? else { return Ok(NextItem::Nothing) };
        let mut next = NextItem::Nothing;
        for item in self.candidates(owner, &options.fetch).await? {
            if !options.auto_claim {
                return Ok(NextItem::Unclaimed(Box::new(item)));
            }
            match source.claim_work(&item.id, by).await? {
                ClaimResult::Claimed(item) => return Ok(NextItem::Claimed(item)),
                ClaimResult::Refused { reason, message } => {
                    next = NextItem::Refused { item: Box::new(item), reason, message };
                    if !can_claim_another(reason) {
                        break;
                    }
                }
            }
        }
        Ok(next)
    }

    pub async fn report_outcome(
        &self,
        item: &WorkItemId,
        result: &WorkResult,
        owner: SourceOwner<'_>,
        by: &Claimant,
    ) -> Result<(), WorkSourceError> {
        self.source_with(item, owner)?.complete_work(item, result, by).await
    }

    pub async fn release_item(
        &self,
        item: &WorkItemId,
        options: &ReleaseOptions,
        owner: SourceOwner<'_>,
        by: &Claimant,
    ) -> Result<ReleaseResult, WorkSourceError> {
        self.source_with(item, owner)?.release_work(item, options, by).await
    }

    /// Returns the source of the owner, or an error if it is not of the item's type: the config may have changed since
    /// the item was taken.
    fn source_with(
        &self,
        item: &WorkItemId,
        owner: SourceOwner<'_>,
    ) -> Result<Arc<dyn WorkSource>, WorkSourceError> {
        let source = self.source_of(owner)?.filter(|source| source.source_type() == item.source());
        source.ok_or_else(|| {
            let agent = &owner.agent.name;
            WorkSourceError::Config(format!("{agent} has no work source {:?} for {item}", item.source()))
        })
    }
}

fn has_source(agent: &Agent, config: &ConfiguredSource) -> bool {
    let of_schedules = agent.schedules.iter().filter_map(|schedule| schedule.work_source.as_deref());
    agent.work_source.iter().chain(of_schedules).any(|current| current == config)
}
