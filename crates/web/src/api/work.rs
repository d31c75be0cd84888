//! Work items: the content of the queues, and changes to it by people.

use std::cmp::Ordering;

use axum::Json;
use axum::extract::{Path, State};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use cowhand_core::event::Fact;
use cowhand_core::id::AgentName;
use cowhand_core::job::Job;
use cowhand_core::roster::{Agent, Schedule};
use cowhand_core::work::{FetchOptions, ReleaseOptions, WorkItem, WorkItemId, WorkOutcome, WorkResult};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::debug;

use super::extract::{Count, JsonBody, Params, Switch, parse_name};
use super::{Api, ApiProblem};
use cowhand_engine::fleet::{FleetError, find_item};
use cowhand_engine::queues::{self, DroppedResult, ItemScope, ItemStatus, ItemView, Queue};
use cowhand_store::JobFilter;
use cowhand_work::{SOURCE_READ_TIMEOUT, WorkSourceError, WorkSources, with_timeout};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WorkQuery {
    agent: Option<AgentName>,
    /// Only the queue of this name.
    queue: Option<String>,
    /// Include claimed items, and the queues that are no longer in the config and have claimed items.
    all: Switch,
    /// Only items with all these labels, separated by commas.
    labels: Option<String>,
    /// Only items of one of these priorities, separated by commas: `critical`, `high`, `medium`, `low`.
    priority: Option<String>,
    /// Maximum number of items; unset means all.
    limit: Option<Count>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ItemQuery {
    agent: Option<AgentName>,
    /// Name of the queue, needed if several queues have an item of this id.
    queue: Option<String>,
}

impl WorkQuery {
    fn options(&self) -> Result<FetchOptions, ApiProblem> {
        let parts = |list: &Option<String>| -> Vec<String> {
            let parts = list.iter().flat_map(|list| list.split(',')).map(str::trim);
            parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        let priority = parts(&self.priority).into_iter().map(|name| {
            serde_json::from_value(name.clone().into()).map_err(|_| {
                ApiProblem::bad_request(format!(
                    "{name:?} is not a priority; use critical, high, medium or low"
                ))
            })
        });
        Ok(FetchOptions {
            labels: parts(&self.labels),
            priority: priority.collect::<Result<_, _>>()?,
            include_claimed: self.all.is_on(),
            ..FetchOptions::default()
        })
    }
}

/// Items of the requested queues. A problem with one queue does not hide the items of the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkView {
    pub items: Vec<ItemView>,
    /// Cursor of the next page; none without `limit`, and if there are no more items.
    #[serde(default)]
    pub next_cursor: Option<String>,
    /// All requested queues, including those that are not read for this page.
    #[serde(default)]
    pub queues: Vec<String>,
    /// Requested queues that are in the config and from which no schedule takes items.
    #[serde(default)]
    pub untaken: Vec<String>,
    /// Queues that could not be read.
    pub problems: Vec<QueueProblem>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueProblem {
    pub queue: String,
    pub message: String,
}

/// Position of an item in the list of all queues: a cursor is the position of the last item returned.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct WorkCursor {
    queue: String,
    /// Set for items that are not available. They come after the available ones.
    #[serde(rename = "is_taken")]
    is_unavailable: bool,
    item: WorkItem,
}

impl WorkCursor {
    fn of(queue: &str, view: &ItemView) -> Self {
        // Keep only the fields that determine the order.
        let item = WorkItem {
            title: String::new(),
            description: String::new(),
            labels: Vec::new(),
            metadata: serde_json::Map::new(),
            url: String::new(),
            updated_at: view.item.created_at,
            ..view.item.clone()
        };
        Self { queue: queue.to_owned(), is_unavailable: view.status != ItemStatus::Available, item }
    }

    /// Compares positions within one queue.
    fn compare(&self, other: &Self) -> Ordering {
        self.is_unavailable.cmp(&other.is_unavailable).then_with(|| self.item.compare_order(&other.item))
    }

    fn encode(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    fn decode(cursor: &str) -> Result<Self, ApiProblem> {
        let json = BASE64_URL_SAFE_NO_PAD.decode(cursor).ok();
        let cursor = json.and_then(|json| serde_json::from_slice(&json).ok());
        cursor.ok_or_else(|| ApiProblem::bad_request("this is not a cursor of this list".to_owned()))
    }
}

pub(super) async fn list(
    State(api): State<Api>,
    Params(query): Params<WorkQuery>,
) -> Result<Json<WorkView>, ApiProblem> {
    let (roster, sources) = (api.roster(), api.sources());
    if let Some(agent) = query.agent.as_ref().filter(|agent| roster.agent(agent).is_none()) {
        return Err(api.missing_agent(agent).await);
    }
    let (options, after) = (query.options()?, query.cursor.as_deref().map(WorkCursor::decode).transpose()?);
    let limit = query.limit.map(|limit| Count::or(Some(limit), Count::MAX_COUNT) as usize);
    let mut view = WorkView {
        items: Vec::new(),
        next_cursor: None,
        queues: Vec::new(),
        untaken: Vec::new(),
        problems: Vec::new(),
    };
    let mut queues = queues::queues(&sources, &roster, query.agent.as_ref());
    if query.all.is_on() {
        let held = api.store.items().await?;
        queues.extend(queues::removed_queues(&sources, &roster, &held, query.agent.as_ref()));
    }
    if let Some(name) = query.queue {
        let known: Vec<String> = queues.iter().map(|queue| queue.name.clone()).collect();
        queues.retain(|queue| queue.is_named(&name));
        if queues.is_empty() {
            return Err(FleetError::NoQueue { queue: name, known }.into());
        }
    }
    if let Some(cursor) =
        after.as_ref().filter(|cursor| !queues.iter().any(|queue| queue.name == cursor.queue))
    {
        return Err(ApiProblem::bad_request(format!(
            "the queue {:?} of the cursor does not exist any more; start again without a cursor",
            cursor.queue
        )));
    }
    let mut last = None;
    let mut is_earlier_page = after.is_some();
    for queue in queues {
        view.queues.push(queue.name.clone());
        if !queue.is_removed && queues::takers(&sources, &roster, &queue.name).is_empty() {
            view.untaken.push(queue.name.clone());
        }
        // Queues of earlier pages are not read again.
        is_earlier_page &= after.as_ref().is_some_and(|cursor| cursor.queue != queue.name);
        if is_earlier_page || limit.is_some_and(|limit| view.items.len() > limit) {
            continue;
        }
        let items = api.items(&queue, &sources, query.all.is_on()).await;
        // The store knows the claimed items even if the source does not answer.
        let items = match items {
            Err(error) => {
                view.problems.push(QueueProblem { queue: queue.name.clone(), message: error.to_string() });
                if query.all.is_on() { queues::held_items(&queue, &api.store).await } else { Ok(Vec::new()) }
            }
            items => items,
        };
        match items {
            Ok(items) => {
                let admitted = items.into_iter().filter(|view| options.admits(&view.item));
                let mut positioned: Vec<(WorkCursor, ItemView)> =
                    admitted.map(|view| (WorkCursor::of(&queue.name, &view), view)).collect();
                positioned.sort_by(|(one, _), (other, _)| one.compare(other));
                let start = after.as_ref().filter(|cursor| cursor.queue == queue.name);
                positioned.retain(|(cursor, _)| start.is_none_or(|start| start.compare(cursor).is_lt()));
                for (cursor, item) in positioned {
                    if limit.is_none_or(|limit| view.items.len() < limit) {
                        last = Some(cursor);
                    }
                    view.items.push(item);
                }
            }
            Err(error) => {
                view.problems.push(QueueProblem { queue: queue.name, message: error.to_string() });
            }
        }
    }
    if let Some(limit) = limit.filter(|limit| view.items.len() > *limit) {
        view.items.truncate(limit);
        view.next_cursor = last.map(|cursor| cursor.encode());
    }
    Ok(Json(view))
}

pub(super) async fn one(
    State(api): State<Api>,
    Path(id): Path<String>,
    Params(query): Params<ItemQuery>,
) -> Result<Json<ItemView>, ApiProblem> {
    let id = parse_name(&id)?;
    let (roster, sources) = (api.roster(), api.sources());
    let named_item = (&id, item_scope(query.agent.as_ref(), query.queue.as_deref()));
    let (queue, view) = find_item(&sources, &roster, &api.store, named_item).await?;
    api.retry_undelivered(&queue).await;
    Ok(Json(ItemView { dropped_result: api.dropped_result(&id, &queue).await?, ..view }))
}

impl Api {
    /// Returns the items of a queue; with `claimed`, also the claimed items. Fails if the source does not answer in
    /// time. Also asks the daemon to send undelivered results again.
    async fn items(
        &self,
        queue: &Queue,
        sources: &WorkSources,
        claimed: bool,
    ) -> Result<Vec<ItemView>, WorkSourceError> {
        let items =
            with_timeout(SOURCE_READ_TIMEOUT, queues::items(queue, sources, &self.store, claimed)).await?;
        self.retry_undelivered(queue).await;
        Ok(items)
    }

    /// Asks the daemon to send undelivered results again, for items that are in the queue now.
    async fn retry_undelivered(&self, queue: &Queue) {
        let Ok(fleet) = self.daemon() else { return };
        if let Err(error) = with_timeout(SOURCE_READ_TIMEOUT, fleet.retry_undelivered(queue)).await {
            debug!(queue = queue.name, "cannot look for items with undelivered results: {error}");
        }
    }

    /// Returns the result of the last job that worked on the item, if that result was dropped.
    async fn dropped_result(
        &self,
        id: &WorkItemId,
        queue: &Queue,
    ) -> Result<Option<DroppedResult>, ApiProblem> {
        let filter = JobFilter { with_item: true, ..JobFilter::default() };
        let jobs = self.store.jobs(filter, MAX_JOBS_SEARCHED).await?;
        // Another queue may have an item of the same id.
        let (roster, sources) = (self.roster(), self.sources());
        let takers = queues::takers(&sources, &roster, &queue.name);
        let takers: Vec<_> = takers.into_iter().filter_map(|taker| roster.schedule(taker)).collect();
        let is_taker = |job: &Job, (agent, schedule): &(&Agent, &Schedule)| {
            *job.agent() == agent.name && job.schedule() == Some(&schedule.name)
        };
        let is_of_queue =
            |job: &Job| queue.needed.is_empty() || takers.iter().any(|taker| is_taker(job, taker));
        let is_of_item = |job: &&Job| job.work_item().is_some_and(|item| item.id == *id) && is_of_queue(job);
        let Some(last) = jobs.iter().find(is_of_item) else { return Ok(None) };
        let report = self.store.last_item_report(last.id().clone()).await?;
        Ok(report.and_then(|event| match event.fact {
            Fact::WorkDropped { message, .. } => {
                Some(DroppedResult { job: last.id().clone(), at: event.at, message })
            }
            _ => None,
        }))
    }
}

const fn item_scope<'a>(agent: Option<&'a AgentName>, queue: Option<&'a str>) -> ItemScope<'a> {
    ItemScope { agent, queue }
}

/// Number of jobs that are searched for the last job of an item: the newest jobs that have an item.
const MAX_JOBS_SEARCHED: u32 = 200;

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "ClaimAsked")]
pub struct ClaimRequest {
    pub agent: Option<AgentName>,
    /// Name of the queue, needed if several queues have an item of this id.
    pub queue: Option<String>,
    /// Person who claims the item; unset means `person`.
    pub person: Option<String>,
}

pub(super) async fn claim(
    State(api): State<Api>,
    Path(id): Path<String>,
    JsonBody(request): JsonBody<ClaimRequest>,
) -> Result<Json<ItemView>, ApiProblem> {
    let person = request.person.as_deref().unwrap_or("person");
    let scope = item_scope(request.agent.as_ref(), request.queue.as_deref());
    Ok(Json(api.daemon()?.claim_item(&parse_name(&id)?, scope, person).await?))
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "ReleaseAsked")]
pub struct ReleaseRequest {
    pub agent: Option<AgentName>,
    /// Name of the queue, needed if several queues have an item of this id.
    pub queue: Option<String>,
    /// Reason, written to the item in its source.
    pub reason: Option<String>,
}

pub(super) async fn release(
    State(api): State<Api>,
    Path(id): Path<String>,
    JsonBody(request): JsonBody<ReleaseRequest>,
) -> Result<Json<ItemView>, ApiProblem> {
    let options =
        ReleaseOptions { add_comment: request.reason.is_some(), reason: request.reason, undoes_claim: false };
    let scope = item_scope(request.agent.as_ref(), request.queue.as_deref());
    Ok(Json(api.daemon()?.release_item(&parse_name(&id)?, scope, options).await?))
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "RetryAsked")]
pub struct RetryRequest {
    pub agent: Option<AgentName>,
    /// Name of the queue, needed if several queues have an item of this id.
    pub queue: Option<String>,
}

pub(super) async fn retry(
    State(api): State<Api>,
    Path(id): Path<String>,
    JsonBody(request): JsonBody<RetryRequest>,
) -> Result<Json<ItemView>, ApiProblem> {
    let scope = item_scope(request.agent.as_ref(), request.queue.as_deref());
    Ok(Json(api.daemon()?.retry_item(&parse_name(&id)?, scope).await?))
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "CompleteAsked")]
pub struct CompleteRequest {
    pub agent: Option<AgentName>,
    /// Name of the queue, needed if several queues have an item of this id.
    pub queue: Option<String>,
    /// Outcome; unset means `success`.
    pub outcome: Option<WorkOutcome>,
    pub summary: Option<String>,
}

pub(super) async fn complete(
    State(api): State<Api>,
    Path(id): Path<String>,
    JsonBody(request): JsonBody<CompleteRequest>,
) -> Result<Json<ItemView>, ApiProblem> {
    let outcome = request.outcome.unwrap_or(WorkOutcome::Success);
    let summary = match outcome {
        WorkOutcome::Success => "Done by hand.",
        WorkOutcome::Failure => "Marked as failed by hand.",
        WorkOutcome::Partial => "Marked as partly done by hand.",
    };
    let result = WorkResult {
        outcome,
        summary: request.summary.unwrap_or_else(|| summary.to_owned()),
        details: None,
        artifacts: Vec::new(),
        error: None,
    };
    let scope = item_scope(request.agent.as_ref(), request.queue.as_deref());
    Ok(Json(api.daemon()?.complete_item(&parse_name(&id)?, scope, result).await?))
}
