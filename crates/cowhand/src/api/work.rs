//! Work items: what is in the queues, and a person's hand in it.

use axum::Json;
use axum::extract::{Path, State};
use cowhand_core::id::AgentName;
use cowhand_core::work::{ReleaseOptions, WorkOutcome, WorkResult};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::given::{Given, Params, Switch, named};
use super::{Api, Problem};
use crate::work::queues::{self, ItemView, Known};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Asked {
    agent: Option<AgentName>,
    /// Also what somebody has claimed.
    all: Switch,
}

/// All queues; what is wrong with one of them does not hide the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WorkView {
    pub items: Vec<ItemView>,
    /// Queues that could not be asked.
    pub problems: Vec<QueueProblem>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueProblem {
    pub queue: String,
    pub message: String,
}

pub(super) async fn list(
    State(api): State<Api>,
    Params(asked): Params<Asked>,
) -> Result<Json<WorkView>, Problem> {
    let (roster, sources) = (api.roster(), api.sources());
    if let Some(agent) = asked.agent.as_ref().filter(|agent| roster.agent(agent).is_none()) {
        return Err(Problem::no_agent(agent));
    }
    let mut view = WorkView { items: Vec::new(), problems: Vec::new() };
    for queue in queues::queues(&sources, &roster, asked.agent.as_ref())? {
        match queues::items(&queue, &sources, &api.store, asked.all.is_on()).await {
            Ok(items) => view.items.extend(items),
            Err(error) => {
                view.problems.push(QueueProblem { queue: queue.name, message: error.to_string() });
            }
        }
    }
    Ok(Json(view))
}

pub(super) async fn one(
    State(api): State<Api>,
    Path(id): Path<String>,
    Params(asked): Params<Asked>,
) -> Result<Json<ItemView>, Problem> {
    let id = named(&id)?;
    let (roster, sources) = (api.roster(), api.sources());
    let known = Known::read(&api.store).await?;
    for queue in queues::queues(&sources, &roster, asked.agent.as_ref())? {
        if let Some(item) = queue.source.get_work(&id).await? {
            return Ok(Json(queue.look(item, &known).await?));
        }
    }
    Err(crate::fleet::FleetError::NoItem(id).into())
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClaimAsked {
    pub agent: Option<AgentName>,
    /// Who claims it; unset means `person`.
    pub person: Option<String>,
}

pub(super) async fn claim(
    State(api): State<Api>,
    Path(id): Path<String>,
    Given(asked): Given<ClaimAsked>,
) -> Result<Json<ItemView>, Problem> {
    let person = asked.person.as_deref().unwrap_or("person");
    Ok(Json(api.daemon()?.claim_item(&named(&id)?, asked.agent.as_ref(), person).await?))
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReleaseAsked {
    pub agent: Option<AgentName>,
    /// Told where the item is.
    pub reason: Option<String>,
}

pub(super) async fn release(
    State(api): State<Api>,
    Path(id): Path<String>,
    Given(asked): Given<ReleaseAsked>,
) -> Result<Json<ItemView>, Problem> {
    let options =
        ReleaseOptions { add_comment: asked.reason.is_some(), reason: asked.reason, unfinished: false };
    Ok(Json(api.daemon()?.release_item(&named(&id)?, asked.agent.as_ref(), options).await?))
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RetryAsked {
    pub agent: Option<AgentName>,
}

pub(super) async fn retry(
    State(api): State<Api>,
    Path(id): Path<String>,
    Given(asked): Given<RetryAsked>,
) -> Result<Json<ItemView>, Problem> {
    Ok(Json(api.daemon()?.retry_item(&named(&id)?, asked.agent.as_ref()).await?))
}

#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CompleteAsked {
    pub agent: Option<AgentName>,
    /// Unset means `success`.
    pub outcome: Option<WorkOutcome>,
    pub summary: Option<String>,
}

pub(super) async fn complete(
    State(api): State<Api>,
    Path(id): Path<String>,
    Given(asked): Given<CompleteAsked>,
) -> Result<Json<ItemView>, Problem> {
    let result = WorkResult {
        outcome: asked.outcome.unwrap_or(WorkOutcome::Success),
        summary: asked.summary.unwrap_or_else(|| "Done by hand.".to_owned()),
        details: None,
        artifacts: Vec::new(),
        error: None,
    };
    Ok(Json(api.daemon()?.complete_item(&named(&id)?, asked.agent.as_ref(), result).await?))
}
