//! Work items that a person handles: claiming, releasing, retrying and completing without an agent.

use std::time::Duration;

use cowhand_core::event::Fact;
use cowhand_core::id::JobId;
use cowhand_core::job::{Closing, JobState};
use cowhand_core::work::{
    ClaimResult, ReleaseOptions, ReleaseResult, WorkItem, WorkItemId, WorkOutcome, WorkResult,
};
use jiff::Timestamp;
use tokio::time::{Instant, sleep};

use super::{Fleet, FleetError, find_item};
use crate::queues::{self, ItemRows, ItemScope, ItemStatus, ItemView, PERSON_CLAIM_VALID_FOR, Queue};
use cowhand_store::{HeldItem, ItemState, NewItemClaim, TakeConditions, TakeResult};
use cowhand_work::{
    Claimant, QueueState, SOURCE_CHANGE_TIMEOUT, SOURCE_READ_TIMEOUT, StatedClaimant, WorkSourceError,
    with_timeout,
};

/// Time between two checks whether the outbox has delivered a result for which a person waits.
const POLL_DELIVERY_EVERY: Duration = Duration::from_millis(20);

impl Fleet {
    /// Claims an item for a person, so that no agent takes it.
    pub async fn claim_item(
        &self,
        id: &WorkItemId,
        scope: ItemScope<'_>,
        person: &str,
    ) -> Result<ItemView, FleetError> {
        let (queue, view) = self.find_item(id, scope).await?;
        let now = self.clock().now();
        let until = now.checked_add(PERSON_CLAIM_VALID_FOR).unwrap_or(now);
        let holder = self.holder(person, &queue, id).await?;
        let claim = NewItemClaim {
            queue: queue.name.clone(),
            item: view.item.clone(),
            source: queue.config.clone(),
            node: self.node().to_owned(),
            agent: queue.selected_agent.clone(),
            schedule: None,
            until,
            unless: TakeConditions::default(),
        };
        match self.store().take_item(claim, Some(holder.clone()), now).await? {
            TakeResult::Ours(_) => {}
            TakeResult::Held
            | TakeResult::TooOften { .. }
            | TakeResult::OfferedAgain
            | TakeResult::Released => {
                if let Some(error) = undelivered_error(&view).or_else(|| being_claimed_error(&view)) {
                    return Err(error);
                }
                let holder = view.held_by.unwrap_or_else(|| "somebody of this fleet".to_owned());
                return Err(held_error(&queue, id, holder));
            }
        }
        let claimant = Claimant { fleet: self.store().fleet_id().await?, holder: holder.clone(), until };
        let claimed = with_timeout(SOURCE_CHANGE_TIMEOUT, queue.source.claim_work(id, &claimant)).await;
        match claimed.map_err(|error| error.of_queue(&queue.name)) {
            Ok(ClaimResult::Claimed(item)) => {
                self.store().hold_for_person(holder.clone(), until, now).await?;
                let view = queue.view(*item, ItemStatus::Claimed, &ItemRows::default());
                Ok(ItemView { held_by: Some(holder), claimed_by: None, ..view })
            }
            Ok(ClaimResult::Refused { reason, message }) => {
                self.store().leave_item(holder).await?;
                let why = message.unwrap_or_else(|| format!("{reason:?}"));
                Err(FleetError::ItemRefused { item: id.clone(), why })
            }
            Err(error) => {
                self.store().give_up_item(holder, error.to_string(), now).await?;
                self.engine.outbox.notify_one();
                Err(error.into())
            }
        }
    }

    /// Releases an item, and resets the count of its failures to zero. The item can be in one of five states: a person
    /// holds it, its result is undelivered, its source shows a claim although nobody in this fleet holds the item, it
    /// was given up, or it is available already. An item that its source no longer has is removed from the store.
    pub async fn release_item(
        &self,
        id: &WorkItemId,
        scope: ItemScope<'_>,
        options: ReleaseOptions,
    ) -> Result<ItemView, FleetError> {
        let (queue, view) = self.find_or_forget(id, scope).await?;
        if view.status == ItemStatus::GivenUp {
            return self.offer_item(&queue, id, options).await;
        }
        if let Some(error) = done_error(&view).or_else(|| being_claimed_error(&view)) {
            return Err(error);
        }
        let was_available = view.status == ItemStatus::Available;
        if self.is_missing(&queue, &view).await? {
            self.forget_missing(&queue, &view).await?;
            return Ok(ItemView { forgotten: true, ..view });
        }
        let view = self.close_item(&queue, view, Closing::Release(options)).await?;
        let not_taken = self.reset_failures(&queue, id).await?.filter(|_| !view.undelivered);
        Ok(ItemView { was_available, not_taken, ..view })
    }

    /// Returns whether the source no longer has the item, for an item that a person holds or whose result is not
    /// delivered yet. Returns false for other items. Also returns false if the source cannot be read: the outbox then
    /// delivers the release later.
    async fn is_missing(&self, queue: &Queue, view: &ItemView) -> Result<bool, FleetError> {
        let Some(holder) = view.held_by.clone() else { return Ok(false) };
        let can_be_forgotten = view.status == ItemStatus::Closing || holder.contains('@');
        if !can_be_forgotten {
            return Ok(false);
        }
        let claimant = Claimant { fleet: self.store().fleet_id().await?, holder, until: self.clock().now() };
        let is_missing = async {
            let (source, id) = (&queue.source, &view.item.id);
            Ok(source.get_work(id).await?.is_none() && source.moved(id, &claimant).await?.is_none())
        };
        Ok(with_timeout(SOURCE_READ_TIMEOUT, is_missing).await.unwrap_or(false))
    }

    /// Deletes the claim or undelivered result of a missing item, and its failures, because a person has released the
    /// item.
    async fn forget_missing(&self, queue: &Queue, view: &ItemView) -> Result<(), FleetError> {
        let is_it = |held: &HeldItem| held.queue == queue.name && held.item.id == view.item.id;
        if let Some(held) = self.store().items().await?.into_iter().find(is_it) {
            let message = format!("{} was released by hand, and its source no longer has it", view.item.id);
            self.store().drop_item(held, message, self.clock().now()).await?;
        }
        Ok(self.store().forget_failures(queue.name.clone(), view.item.id.clone()).await?)
    }

    /// Offers a given-up item again, and resets the count of its failures to zero.
    pub async fn retry_item(&self, id: &WorkItemId, scope: ItemScope<'_>) -> Result<ItemView, FleetError> {
        let (queue, view) = self.find_or_forget(id, scope).await?;
        if let Some(error) = being_claimed_error(&view) {
            return Err(error);
        }
        match view.held_by {
            Some(holder) if view.status == ItemStatus::Closing => {
                let why = format!(
                    "the outcome of {holder} has not been reported to the work source yet; try again later"
                );
                Err(FleetError::ItemNotOffered { item: id.clone(), why })
            }
            Some(holder) => Err(held_error(&queue, id, holder)),
            None if view.status == ItemStatus::Available => {
                let not_taken = self.reset_failures(&queue, id).await?;
                Ok(ItemView { was_available: true, not_taken, ..view })
            }
            None => self.offer_item(&queue, id, ReleaseOptions::default()).await,
        }
    }

    /// Offers the item in its source again, and resets its failures. The source is changed first: if the process dies
    /// after this change, the next poll sees the item as put back by a person.
    async fn offer_item(
        &self,
        queue: &Queue,
        id: &WorkItemId,
        options: ReleaseOptions,
    ) -> Result<ItemView, FleetError> {
        let now = self.clock().now();
        let claimant = self.person_claimant(id, now).await?;
        let ReleaseResult { success, message } =
            self.change_source(queue, queue.source.offer_work(id, &options, &claimant)).await?;
        if !success {
            let why = message.unwrap_or_else(|| "the work source gave no reason".to_owned());
            return Err(FleetError::ItemNotOffered { item: id.clone(), why });
        }
        let reason = options.reason.unwrap_or_else(|| "offered again".to_owned());
        let fact = Fact::WorkReleased { item: id.clone(), reason: Some(reason) };
        self.record_action(queue, fact, now).await?;
        let not_taken = self.reset_failures(queue, id).await?;
        let view = queue.now(id, self.store()).await?.ok_or_else(|| FleetError::NoItem(id.clone()))?;
        Ok(ItemView { not_taken, ..view })
    }

    /// Deletes the failures of an item, and makes the schedules that take from its queue look for work. If no schedule
    /// will take the item, returns the reason.
    async fn reset_failures(&self, queue: &Queue, id: &WorkItemId) -> Result<Option<String>, FleetError> {
        self.store().forget_failures(queue.name.clone(), id.clone()).await?;
        let loaded = self.engine.loaded();
        let takers = queues::takers(&loaded.sources, &loaded.roster, &queue.name);
        self.store().request_fill(takers.clone()).await?;
        self.engine.replan_all();
        Ok(queues::not_taken(&takers, &self.schedules().await?))
    }

    /// Reports the result of a person's work on an item to the source of the item. An undelivered result of a job is
    /// not replaced.
    pub async fn complete_item(
        &self,
        id: &WorkItemId,
        scope: ItemScope<'_>,
        result: WorkResult,
    ) -> Result<ItemView, FleetError> {
        let (queue, view) = self.find_item(id, scope).await?;
        if let Some(error) = done_error(&view).or_else(|| being_claimed_error(&view)) {
            return Err(error);
        }
        let is_of_job = view.held_by.as_ref().is_some_and(|holder| !holder.contains('@'));
        if let Some(error) = undelivered_error(&view).filter(|_| is_of_job) {
            return Err(error);
        }
        let (outcome, summary) = (result.outcome, result.summary.clone());
        let view = self.close_item(&queue, view, Closing::Complete(result)).await?;
        match outcome {
            WorkOutcome::Success => self.store().forget_failures(queue.name, id.clone()).await?,
            WorkOutcome::Failure => {
                let (item, now) = (view.item.clone(), self.clock().now());
                self.store().failed_by_hand(queue.name, item, summary, now).await?;
            }
            WorkOutcome::Partial => {}
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
        let holder_with_item = match &view.held_by {
            // An item belongs to its running job: to get it back, cancel the job. After the job has ended, a person may
            // act.
            Some(holder) if !holder.contains('@') && view.status != ItemStatus::Closing => {
                return Err(held_error(queue, id, holder.clone()));
            }
            Some(holder) => {
                let is_owed = self.store().close_item(holder.clone(), closing.clone(), now).await?;
                Some(holder.clone()).filter(|_| is_owed)
            }
            None => None,
        };
        let Some(holder) = holder_with_item else {
            // Nobody holds the item, or its holder has just released it.
            self.close_in_source(queue, &view, closing, now).await?;
            self.engine.outbox.notify_one();
            return Ok(view);
        };
        self.engine.outbox.notify_one();
        self.await_delivery(view, &holder).await
    }

    /// Waits until the outbox has delivered the entry of a holder, or has tried to, but at most
    /// [`SOURCE_CHANGE_TIMEOUT`].
    async fn await_delivery(&self, view: ItemView, holder: &str) -> Result<ItemView, FleetError> {
        let deadline = Instant::now() + SOURCE_CHANGE_TIMEOUT;
        loop {
            let mut items = self.store().items().await?.into_iter();
            let entry = items.find(|held| held.holder == holder).map(|held| held.state);
            let Some(ItemState::Closing { closing, last_error, .. }) = entry else { return Ok(view) };
            if last_error.is_some() || Instant::now() >= deadline {
                let (status, releasing) = (ItemStatus::Closing, matches!(closing, Closing::Release(_)));
                return Ok(ItemView { status, last_error, releasing, undelivered: true, ..view });
            }
            sleep(POLL_DELIVERY_EVERY).await;
        }
    }

    /// Releases or completes an item in its source, without the outbox, because nobody in this fleet holds the item.
    async fn close_in_source(
        &self,
        queue: &Queue,
        view: &ItemView,
        closing: Closing,
        now: Timestamp,
    ) -> Result<(), FleetError> {
        let id = &view.item.id;
        let claimant = self.claimant_of(queue, &view.item, now).await?;
        let fact = match closing {
            Closing::Release(options) => {
                let ReleaseResult { success, message } =
                    self.change_source(queue, queue.source.release_work(id, &options, &claimant)).await?;
                if !success {
                    let why = message.unwrap_or_else(|| "the work source gave no reason".to_owned());
                    let why = cannot_release(queue, id, why).await;
                    return Err(FleetError::ItemLeftAlone { item: id.clone(), why });
                }
                Fact::WorkReleased { item: id.clone(), reason: options.reason }
            }
            Closing::Complete(result) => {
                match self.change_source(queue, queue.source.complete_work(id, &result, &claimant)).await {
                    Err(WorkSourceError::NotHeld { item, state }) => {
                        let why = cannot_complete(queue, &item, &state).await;
                        return Err(FleetError::ItemLeftAlone { item, why });
                    }
                    reported => reported?,
                }
                Fact::WorkReported { item: id.clone(), outcome: result.outcome }
            }
        };
        self.record_action(queue, fact, now).await
    }

    /// Waits for a change in a source, with the timeout for calls that a person waits for.
    async fn change_source<T>(
        &self,
        queue: &Queue,
        change: impl Future<Output = Result<T, WorkSourceError>>,
    ) -> Result<T, WorkSourceError> {
        with_timeout(SOURCE_CHANGE_TIMEOUT, change).await.map_err(|error| error.of_queue(&queue.name))
    }

    /// Requests an early retry of each undelivered result whose item is in the queue again.
    pub async fn retry_undelivered(&self, queue: &Queue) -> Result<(), WorkSourceError> {
        self.engine.retry_undelivered(&queue.name, queue.source.as_ref()).await
    }

    /// Records the action of a person on an item of a queue.
    async fn record_action(&self, queue: &Queue, fact: Fact, now: Timestamp) -> Result<(), FleetError> {
        Ok(self.store().record_fact_of_agent(Some(queue.selected_agent.clone()), fact, now).await?)
    }

    /// Returns the claimant for a person's action on an item that nobody in this fleet holds. If the source still shows
    /// a claim of this fleet, the holder of that claim is the claimant. If that holder is a job that has not ended,
    /// returns an error.
    async fn claimant_of(
        &self,
        queue: &Queue,
        item: &WorkItem,
        now: Timestamp,
    ) -> Result<Claimant, FleetError> {
        let fleet = self.store().fleet_id().await?;
        let claimant = with_timeout(SOURCE_READ_TIMEOUT, queue.source.current_claimant(item)).await;
        let claimant =
            claimant.map_err(|error| error.of_queue(&queue.name))?.filter(|claimant| claimant.fleet == fleet);
        if let Some(StatedClaimant { holder, .. }) = claimant {
            if let Ok(job) = holder.parse::<JobId>()
                && self
                    .store()
                    .job(job)
                    .await?
                    .is_some_and(|job| !matches!(job.state(), JobState::Ended { .. }))
            {
                return Err(held_error(queue, &item.id, holder));
            }
            return Ok(Claimant { fleet, holder, until: now });
        }
        self.person_claimant(&item.id, now).await
    }

    /// Returns a claimant for one action of a person. Each action has its own claimant, so that an earlier action with
    /// the same result does not count as this action.
    async fn person_claimant(&self, id: &WorkItemId, now: Timestamp) -> Result<Claimant, FleetError> {
        let holder = format!("person@{id}@{}", now.as_millisecond());
        Ok(Claimant { fleet: self.store().fleet_id().await?, holder, until: now })
    }

    /// Finds an item. If no queue has the item but the store has its failures, deletes the failures and returns
    /// [`FleetError::ItemForgotten`]. Without the failures, nobody is advised to try the item again.
    async fn find_or_forget(
        &self,
        id: &WorkItemId,
        scope: ItemScope<'_>,
    ) -> Result<(Queue, ItemView), FleetError> {
        let found = self.find_item(id, scope).await;
        let Err(FleetError::NoItem(_) | FleetError::ItemElsewhere { .. } | FleetError::NotInQueue { .. }) =
            &found
        else {
            return found;
        };
        let loaded = self.engine.loaded();
        let mut queues = queues::queues(&loaded.sources, &loaded.roster, scope.agent);
        queues.retain(|queue| scope.queue.is_none_or(|name| queue.name == name));
        let mut failed = self.store().item_failures().await?;
        failed.retain(|failed| failed.id == *id && queues.iter().any(|queue| queue.name == failed.queue));
        if failed.is_empty() {
            return found;
        }
        for failed in failed {
            self.store().forget_failures(failed.queue, failed.id).await?;
        }
        Err(FleetError::ItemForgotten(id.clone()))
    }

    pub(crate) async fn find_item(
        &self,
        id: &WorkItemId,
        scope: ItemScope<'_>,
    ) -> Result<(Queue, ItemView), FleetError> {
        let loaded = self.engine.loaded();
        find_item(&loaded.sources, &loaded.roster, self.store(), (id, scope)).await
    }

    /// Returns the name under which a person holds an item of `queue`. A holder has one item. If the person holds an
    /// item with the same id in another queue, the name also contains the selected agent of `queue`. If that name is
    /// also taken, the name contains this agent and a number.
    async fn holder(&self, person: &str, queue: &Queue, id: &WorkItemId) -> Result<String, FleetError> {
        let items = self.store().items().await?;
        let is_free =
            |holder: &String| !items.iter().any(|held| held.holder == *holder && held.queue != queue.name);
        let agent = &queue.selected_agent;
        let further = (2..).map(|number| format!("{person}@{agent}-{number}@{id}"));
        let mut names =
            [format!("{person}@{id}"), format!("{person}@{agent}@{id}")].into_iter().chain(further);
        Ok(names.find(is_free).unwrap_or_default())
    }
}

/// Returns the error for an item that somebody in this fleet holds.
fn held_error(queue: &Queue, id: &WorkItemId, holder: String) -> FleetError {
    FleetError::ItemHeld { item: id.clone(), by: holder, needed: queue.needed.clone() }
}

/// Returns the error for an item whose claim for a job is in progress. Returns `None` for other items.
fn being_claimed_error(view: &ItemView) -> Option<FleetError> {
    let node = view.claiming_on.clone()?;
    Some(FleetError::ItemBeingClaimed { item: view.item.id.clone(), node })
}

/// Returns the error for an item that is completed. Returns `None` for other items.
fn done_error(view: &ItemView) -> Option<FleetError> {
    let is_done = view.status == ItemStatus::Done && view.held_by.is_none();
    let why = "the item is completed".to_owned();
    is_done.then(|| FleetError::ItemLeftAlone { item: view.item.id.clone(), why })
}

/// Returns the error for an item if its source has not received its result or release yet. Returns `None` for other
/// items.
fn undelivered_error(view: &ItemView) -> Option<FleetError> {
    let (id, holder) = (&view.item.id, view.held_by.as_ref().filter(|_| view.status == ItemStatus::Closing)?);
    let (what, noun) = match holder.strip_suffix(&format!("@{id}")) {
        Some(person) => (format!("the change by {person}"), "change"),
        None => (format!("the result of {holder}"), "result"),
    };
    let why = view.last_error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default();
    if view.releasing {
        let why =
            format!("the work source has not received that the item is released{why}; cowhand tries again");
        return Some(FleetError::ItemLeftAlone { item: id.clone(), why });
    }
    let named = view.command_words();
    let why = format!(
        "the work source has not received {what} yet{why}; cowhand tries again. `cowhand work release \
         {named}` drops the {noun} and releases the item, or forgets the item if the source no longer has it"
    );
    Some(FleetError::ItemLeftAlone { item: id.clone(), why })
}

/// Explains why an item cannot be released, and which command makes it available, if there is one.
async fn cannot_release(queue: &Queue, item: &WorkItemId, why: String) -> String {
    match queue.source.queue_state(item).await {
        Ok(QueueState::Withdrawn) => {
            let named = queue.needed.command_words(item);
            format!("{why}; `cowhand work retry {named}` makes it available")
        }
        _ => why,
    }
}

/// Explains why an item cannot be completed now, and what a person has to do before it can be completed.
async fn cannot_complete(queue: &Queue, item: &WorkItemId, state: &str) -> String {
    match queue.source.queue_state(item).await {
        Ok(QueueState::Withdrawn) => {
            let named = queue.needed.command_words(item);
            format!(
                "the item {state}; `cowhand work retry {named}` makes it available, and then it can be completed"
            )
        }
        _ => format!("the item {state}"),
    }
}

impl From<WorkSourceError> for FleetError {
    fn from(error: WorkSourceError) -> Self {
        Self::WorkSource(error)
    }
}
