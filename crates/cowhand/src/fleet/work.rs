//! Work items in a person's hands: looked at, claimed, released and completed without an agent.

use cowhand_core::id::AgentName;
use cowhand_core::work::{
    ClaimResult, Closing, ReleaseOptions, ReleaseResult, WorkItemId, WorkOutcome, WorkResult,
};

use super::{Fleet, FleetError};
use crate::queues::{self, HELD_BY_PERSON, ItemStatus, ItemView, Known, Queue};
use crate::store::{Taken, Taking, Unless};
use crate::work::{Claimant, WorkSourceError};

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
            unless: Unless::default(),
        };
        match self.store().take_item(taking, Some(holder.clone()), now).await? {
            Taken::Ours(_) => {}
            Taken::Held | Taken::TooOften { .. } | Taken::PutBack | Taken::Released => {
                let by = view.held_by.unwrap_or_else(|| "somebody of this fleet".to_owned());
                return Err(FleetError::ItemHeld { item: id.clone(), by });
            }
        }
        let by = Claimant { fleet: self.store().fleet_id().await?, holder: holder.clone(), until };
        match queue.source.claim_work(id, &by).await {
            Ok(ClaimResult::Claimed(item)) => {
                self.store().hold_for_person(holder.clone(), until, now).await?;
                let view = queue.view(*item, ItemStatus::Claimed, &Known::default());
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

    /// Puts an item back that a person has, that a label says is claimed though nobody here works on it, or that was
    /// given up. The count of its failures starts anew.
    pub async fn release_item(
        &self,
        id: &WorkItemId,
        agent: Option<&AgentName>,
        options: ReleaseOptions,
    ) -> Result<ItemView, FleetError> {
        let (queue, view) = self.find_item(id, agent).await?;
        if view.status == ItemStatus::GivenUp {
            return self.offer_item(queue, id).await;
        }
        let view = self.close_item(&queue, view, Closing::Release(options)).await?;
        self.count_anew(&queue, id).await?;
        Ok(view)
    }

    /// Offers an item again that was given up. The count of its failures starts anew.
    pub async fn retry_item(
        &self,
        id: &WorkItemId,
        agent: Option<&AgentName>,
    ) -> Result<ItemView, FleetError> {
        let (queue, view) = self.find_item(id, agent).await?;
        match view.held_by {
            Some(by) if view.status == ItemStatus::Closing => {
                let why = format!("its source has not been told yet how {by} ended; try again when it is");
                Err(FleetError::ItemNotOffered { item: id.clone(), why })
            }
            Some(by) => Err(FleetError::ItemHeld { item: id.clone(), by }),
            None => self.offer_item(queue, id).await,
        }
    }

    /// First outside: if we die in between, a person has put it back, and the next poll sees that.
    async fn offer_item(&self, queue: Queue, id: &WorkItemId) -> Result<ItemView, FleetError> {
        let ReleaseResult { success, message } = queue.source.offer_work(id).await?;
        if !success {
            let why = message.unwrap_or_else(|| "its source does not say why".to_owned());
            return Err(FleetError::ItemNotOffered { item: id.clone(), why });
        }
        self.count_anew(&queue, id).await?;
        self.find_item(id, queue.agents.first()).await.map(|(_, view)| view)
    }

    /// Forgets the failures of an item, and has those who take from its queue look for work.
    async fn count_anew(&self, queue: &Queue, id: &WorkItemId) -> Result<(), FleetError> {
        self.store().forget_failures(queue.name.clone(), id.clone()).await?;
        let loaded = self.engine.loaded();
        let takers = queues::takers(&loaded.sources, &loaded.roster, &queue.name);
        self.store().look_for_work(takers).await?;
        self.nudge();
        Ok(())
    }

    /// Tells the item's source that a person has done it, or could not.
    pub async fn complete_item(
        &self,
        id: &WorkItemId,
        agent: Option<&AgentName>,
        result: WorkResult,
    ) -> Result<ItemView, FleetError> {
        let (queue, view) = self.find_item(id, agent).await?;
        let is_done = result.outcome == WorkOutcome::Success;
        let view = self.close_item(&queue, view, Closing::Complete(result)).await?;
        if is_done {
            self.store().forget_failures(queue.name, id.clone()).await?;
        }
        Ok(view)
    }

    async fn close_item(
        &self,
        queue: &Queue,
        view: ItemView,
        closing: Closing,
    ) -> Result<ItemView, FleetError> {
        let (id, now) = (&view.item.id, self.clock().now());
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
                Closing::Release(options) => {
                    let ReleaseResult { success, message } =
                        queue.source.release_work(id, &options, &by).await?;
                    if !success {
                        let why = message.unwrap_or_else(|| "its source does not say why".to_owned());
                        return Err(FleetError::ItemLeftAlone { item: id.clone(), why });
                    }
                }
                Closing::Complete(result) => match queue.source.complete_work(id, &result, &by).await {
                    Err(WorkSourceError::NotHeld { item, stands }) => {
                        return Err(FleetError::ItemLeftAlone { item, why: format!("it {stands}") });
                    }
                    told => told?,
                },
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
        let queues = queues::queues(&loaded.sources, &loaded.roster, agent);
        queues::find(queues, id, self.store()).await?.ok_or_else(|| FleetError::NoItem(id.clone()))
    }
}

impl From<WorkSourceError> for FleetError {
    fn from(error: WorkSourceError) -> Self {
        Self::WorkSource(error)
    }
}
