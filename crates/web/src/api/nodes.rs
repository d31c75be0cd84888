//! Nodes: the machines that share the store.

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Api, ApiProblem, Page};

/// This node, or another one that runs jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NodeView {
    pub name: String,
    /// Set for the node that answers.
    pub is_this: bool,
    pub running: u64,
    /// Time at which the first of its leases expires, unless it renews the leases; none if it runs no jobs.
    pub lease_until: Option<Timestamp>,
    /// Number of its jobs whose leases it has not renewed in time.
    #[serde(default)]
    pub lost_leases: usize,
}

pub(super) async fn list(State(api): State<Api>) -> Result<Json<Page<NodeView>>, ApiProblem> {
    let this = api.daemon().ok().map(|fleet| fleet.node().to_owned());
    let mut nodes: Vec<NodeView> = api.store.busy_nodes().await?.into_iter().map(NodeView::from).collect();
    if let Some(name) = this {
        match nodes.iter_mut().find(|node| node.name == name) {
            Some(node) => node.is_this = true,
            None => nodes
                .insert(0, NodeView { name, is_this: true, running: 0, lease_until: None, lost_leases: 0 }),
        }
    }
    for lost in api.lost_leases().await? {
        nodes.iter_mut().filter(|node| node.name == lost.node).for_each(|node| node.lost_leases += 1);
    }
    Ok(Json(Page::all(nodes)))
}

impl From<cowhand_store::BusyNode> for NodeView {
    fn from(node: cowhand_store::BusyNode) -> Self {
        let cowhand_store::BusyNode { name, running, lease_until } = node;
        Self { name, is_this: false, running, lease_until: Some(lease_until), lost_leases: 0 }
    }
}
