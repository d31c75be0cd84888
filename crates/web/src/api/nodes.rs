//! Nodes: the machines that share the store.

use axum::Json;
use axum::extract::{Path, State};
use cowhand_core::id::AgentName;
use cowhand_core::node::{FleetNode, NodeState};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::info;

use super::{Api, ApiProblem, Page};
use cowhand_store::{DrainChange, Forgotten, Store};

/// A node that uses the store, or has used it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeView {
    pub name: String,
    /// Set for the node that answers.
    pub is_this: bool,
    pub state: NodeStateView,
    /// Time since which the node is in this state; none if it is ready.
    pub since: Option<Timestamp>,
    pub running: u32,
    /// Maximum number of jobs that it runs at a time; none means no limit.
    pub capacity: Option<u32>,
    /// Labels, `NAME` or `NAME=VALUE`.
    pub labels: Vec<String>,
    /// Version of cowhand; none if the node has not reported it.
    pub version: Option<String>,
    pub started_at: Timestamp,
    pub last_seen_at: Timestamp,
    /// Digest of its config; none if it is not known.
    pub config: Option<String>,
    /// Set if the node runs, and its config differs from that of the node that answers.
    pub config_differs: bool,
    /// Agents that it cannot run.
    pub unable: Vec<UnableAgent>,
    /// Time at which the first of its leases expires, unless it renews the leases; none if it runs no jobs.
    pub lease_until: Option<Timestamp>,
    /// Number of its jobs whose leases it has not renewed in time.
    #[serde(default)]
    pub lost_leases: usize,
}

/// State of a node. A node that is `draining` takes no new jobs and still runs some; a node that is `drained` runs none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "NodeState")]
pub enum NodeStateView {
    Ready,
    Draining,
    Drained,
    Gone,
}

impl NodeStateView {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::Drained => "drained",
            Self::Gone => "gone",
        }
    }
}

/// An agent that a node cannot run, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UnableAgent {
    pub agent: AgentName,
    pub reason: String,
}

/// The nodes that run another config than the node that answers.
pub(super) fn differing(views: &[NodeView]) -> Vec<String> {
    views.iter().filter(|node| node.config_differs).map(|node| node.name.clone()).collect()
}

pub(super) async fn list(State(api): State<Api>) -> Result<Json<Page<NodeView>>, ApiProblem> {
    Ok(Json(Page::all(views(&api).await?)))
}

pub(super) async fn drain(
    State(api): State<Api>,
    Path(node): Path<String>,
) -> Result<Json<NodeView>, ApiProblem> {
    let change = api.daemon()?.drain(&node).await?;
    changed(&api, &node, change, "it takes no new jobs").await
}

pub(super) async fn undrain(
    State(api): State<Api>,
    Path(node): Path<String>,
) -> Result<Json<NodeView>, ApiProblem> {
    let change = api.daemon()?.undrain(&node).await?;
    changed(&api, &node, change, "it takes jobs again").await
}

/// Removes a node from the list. A node that is started again is in the list again.
pub(super) async fn forget(
    State(api): State<Api>,
    Path(node): Path<String>,
) -> Result<Json<NodeView>, ApiProblem> {
    let daemon = api.daemon()?;
    let view = find(&api, &node).await?;
    match daemon.forget_node(&node).await? {
        Forgotten::Done => {}
        Forgotten::NoNode => return Err(no_node(&node)),
        Forgotten::StillRuns => {
            return Err(ApiProblem::conflict(format!(
                "the node {node} runs; stop its daemon first, or keep jobs away from it with `cowhand drain {node}`"
            )));
        }
        Forgotten::HasLeases(jobs) => {
            let jobs = if jobs == 1 { "1 job".to_owned() } else { format!("{jobs} jobs") };
            return Err(ApiProblem::conflict(format!(
                "the node {node} has leases of {jobs}; another running node takes these jobs over when the leases have \
                 expired, and then the node can be forgotten"
            )));
        }
    }
    info!(%node, "the node is forgotten");
    Ok(Json(view))
}

/// Answers a request that drains or undrains a node.
async fn changed(
    api: &Api,
    node: &str,
    change: DrainChange,
    effect: &str,
) -> Result<Json<NodeView>, ApiProblem> {
    match change {
        DrainChange::NoNode => return Err(no_node(node)),
        DrainChange::Unchanged => {}
        DrainChange::Changed => info!(%node, "{effect}"),
    }
    Ok(Json(find(api, node).await?))
}

async fn find(api: &Api, node: &str) -> Result<NodeView, ApiProblem> {
    let view = views(api).await?.into_iter().find(|view| view.name == node);
    view.ok_or_else(|| no_node(node))
}

fn no_node(node: &str) -> ApiProblem {
    ApiProblem::not_found(format!("there is no node {node:?}; `cowhand nodes` lists the nodes"))
}

/// Returns all nodes, with the states that the answering process knows.
pub(super) async fn views(api: &Api) -> Result<Vec<NodeView>, ApiProblem> {
    let this = api.daemon().ok().map(|fleet| fleet.node().to_owned());
    let mut views = node_views(&api.store, this.as_deref()).await?;
    for lost in api.lost_leases().await? {
        views.iter_mut().filter(|node| node.name == lost.node).for_each(|node| node.lost_leases += 1);
    }
    Ok(views)
}

/// Returns all nodes. `this` is the node that answers.
pub(crate) async fn node_views(store: &Store, this: Option<&str>) -> Result<Vec<NodeView>, ApiProblem> {
    let mut nodes = store.nodes().await?;
    for node in nodes.iter_mut().filter(|node| !node.shares_store) {
        node.is_running = this == Some(&node.name);
    }
    let is_this = |node: &FleetNode| this == Some(&node.name);
    let own = nodes.iter().find(|node| is_this(node));
    let base = own.or_else(|| nodes.iter().filter(|node| node.is_running).max_by_key(|node| node.started_at));
    let config = base.and_then(|node| node.report.config.clone());
    Ok(nodes
        .iter()
        .map(|node| NodeView { is_this: is_this(node), ..view(node, config.as_deref()) })
        .collect())
}

fn view(node: &FleetNode, config: Option<&str>) -> NodeView {
    let (state, report) = (node.state(), &node.report);
    let unable = report
        .unable
        .iter()
        .map(|(agent, reason)| UnableAgent { agent: agent.clone(), reason: reason.clone() });
    let differs = |own: &String| config.is_some_and(|config| config != own);
    NodeView {
        name: node.name.clone(),
        is_this: false,
        state: match state {
            NodeState::Ready => NodeStateView::Ready,
            NodeState::Draining { .. } => NodeStateView::Draining,
            NodeState::Drained { .. } => NodeStateView::Drained,
            NodeState::Gone { .. } => NodeStateView::Gone,
        },
        since: state.since(),
        running: node.running,
        capacity: report.capacity,
        labels: report.labels.iter().map(ToString::to_string).collect(),
        version: Some(report.version.clone()).filter(|version| !version.is_empty()),
        started_at: node.started_at,
        last_seen_at: node.seen_at,
        config: report.config.clone(),
        config_differs: node.is_running && report.config.as_ref().is_some_and(differs),
        unable: unable.collect(),
        lease_until: node.lease_until,
        lost_leases: 0,
    }
}
