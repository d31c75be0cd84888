//! Work items in a person's hands: looked at, claimed, released and completed without an agent.

use cowhand_core::id::AgentName;
use cowhand_core::work::{ClaimResult, Closing, ReleaseOptions, WorkItemId, WorkResult};
use jiff::SignedDuration;

use super::{Fleet, FleetError};
use crate::store::{Taken, Taking};
use crate::work::queues::{self, ItemStatus, ItemView, Queue};
use crate::work::{Claimant, WorkSourceError};

/// A person takes longer than a job; what is not renewed for so long is free again.
pub(crate) const HELD_BY_PERSON: SignedDuration = SignedDuration::from_hours(24);

impl Fleet {
    /// Keeps an item from the agents, for a person who works on it.
    pub async fn claim_item(
        &self,
        id: &WorkItemId,
        agent: Option<&AgentName>,
        person: &str,
    ) -> Result<ItemView, FleetError> {
        let (queue, view) = self.find_item(id, agent).await?;
        let now = self.clock().now();
        let until = now.checked_add(HELD_BY_PERSON).unwrap_or(now);
        let holder = format!("{person}@{id}");
        let taking = Taking {
            queue: queue.name.clone(),
            item: view.item.clone(),
            source: queue.config.clone(),
            node: self.node().to_owned(),
            agent: queue.agents.first().cloned().ok_or_else(|| FleetError::NoItem(id.clone()))?,
            schedule: None,
            until,
        };
        match self.store().take_item(taking, Some(holder.clone()), now).await? {
            Taken::Ours(_) => {}
            Taken::Held | Taken::TooOften { .. } => {
                let by = view.held_by.unwrap_or_else(|| "somebody of this fleet".to_owned());
                return Err(FleetError::ItemHeld { item: id.clone(), by });
            }
        }
        let by = Claimant { fleet: self.store().fleet_id().await?, holder: holder.clone(), until };
        match queue.source.claim_work(id, &by).await {
            Ok(ClaimResult::Claimed(item)) => {
                self.store().hold_for_person(holder.clone(), until, now).await?;
                let view = queue.view(*item, ItemStatus::Claimed, &[]);
                Ok(ItemView { held_by: Some(holder), ..view })
            }
            Ok(ClaimResult::Refused { reason, message }) => {
                self.store().leave_item(holder).await?;
                let why = message.unwrap_or_else(|| format!("{reason:?}"));
                Err(FleetError::ItemRefused { item: id.clone(), why })
            }
            Err(error) => {
                self.store().give_up_item(holder, error.to_string(), now).await?;
                self.engine.owed.notify_one();
                Err(error.into())
            }
        }
    }

    /// Puts an item back that a person has, or that a label says is claimed though nobody here works on it.
    pub async fn release_item(
        &self,
        id: &WorkItemId,
        agent: Option<&AgentName>,
        options: ReleaseOptions,
    ) -> Result<ItemView, FleetError> {
        self.close_item(id, agent, Closing::Release(options)).await
    }

    /// Tells the item's source that a person has done it, or could not.
    pub async fn complete_item(
        &self,
        id: &WorkItemId,
        agent: Option<&AgentName>,
        result: WorkResult,
    ) -> Result<ItemView, FleetError> {
        self.close_item(id, agent, Closing::Complete(result)).await
    }

    async fn close_item(
        &self,
        id: &WorkItemId,
        agent: Option<&AgentName>,
        closing: Closing,
    ) -> Result<ItemView, FleetError> {
        let (queue, view) = self.find_item(id, agent).await?;
        let now = self.clock().now();
        let is_owed = match &view.held_by {
            // A job's item is the job's: whoever wants it back cancels the job.
            Some(holder) if !holder.contains('@') => {
                return Err(FleetError::ItemHeld { item: id.clone(), by: holder.clone() });
            }
            Some(holder) => self.store().close_item(holder.clone(), closing.clone(), now).await?,
            None => false,
        };
        // Nobody has it, perhaps since a moment ago.
        if !is_owed {
            let (fleet, holder) = (self.store().fleet_id().await?, format!("person@{id}"));
            let by = Claimant { fleet, holder, until: now };
            match closing {
                Closing::Release(options) => drop(queue.source.release_work(id, &options, &by).await?),
                Closing::Complete(result) => queue.source.complete_work(id, &result, &by).await?,
            }
        }
        self.engine.owed.notify_one();
        Ok(view)
    }

    pub(crate) async fn find_item(
        &self,
        id: &WorkItemId,
        agent: Option<&AgentName>,
    ) -> Result<(Queue, ItemView), FleetError> {
        let loaded = self.engine.loaded();
        let held = self.store().items().await?;
        for queue in queues::queues(&loaded.sources, &loaded.roster, agent)? {
            if queue.source.source_type() != id.source() {
                continue;
            }
            if let Some(item) = queue.source.get_work(id).await? {
                let of_queue: Vec<_> = held.iter().filter(|held| held.queue == queue.name).cloned().collect();
                let view = queue.view(item, ItemStatus::Available, &of_queue);
                return Ok((queue, view));
            }
        }
        Err(FleetError::NoItem(id.clone()))
    }
}

impl From<WorkSourceError> for FleetError {
    fn from(error: WorkSourceError) -> Self {
        Self::WorkSource(error)
    }
}
