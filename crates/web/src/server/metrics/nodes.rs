//! Metrics of the nodes of the fleet.

use super::Metrics;
use super::text::{MetricKind, MetricsText};
use crate::api::{ApiProblem, NodeStateView, NodeView, node_views};

const NODE_STATES: [NodeStateView; 4] =
    [NodeStateView::Ready, NodeStateView::Draining, NodeStateView::Drained, NodeStateView::Gone];

impl Metrics {
    pub(super) async fn write_nodes(&self, page: &mut MetricsText) -> Result<(), ApiProblem> {
        let nodes = node_views(self.fleet.store(), Some(self.fleet.node())).await?;
        let labels = |node: &NodeView| [("node", node.name.clone())];
        let states = NODE_STATES.map(|state| {
            let count = nodes.iter().filter(|node| node.state == state).count();
            ([("state", state.as_str().to_owned())], count)
        });
        page.family(MetricKind::Gauge, "cowhand_nodes", "Nodes of the fleet, by state.", states);
        let running = nodes.iter().map(|node| (labels(node), node.running));
        page.family(MetricKind::Gauge, "cowhand_node_jobs", "Jobs that run on a node.", running);
        let capacities = nodes.iter().filter_map(|node| Some((labels(node), node.capacity?)));
        let help = "Maximum number of jobs that may run on a node at a time, if it is limited.";
        page.family(MetricKind::Gauge, "cowhand_node_places", help, capacities);
        let differ = nodes.iter().map(|node| (labels(node), u8::from(node.config_differs)));
        let help = "1 if a running node has another config than the node that answers, else 0.";
        page.family(MetricKind::Gauge, "cowhand_node_config_differs", help, differ);
        let unable = nodes.iter().map(|node| (labels(node), node.unable.len()));
        let help = "Number of agents that a node cannot run.";
        page.family(MetricKind::Gauge, "cowhand_node_unable_agents", help, unable);
        Ok(())
    }
}
