//! Spreading: a node leaves a job to another node that is freer. There is no leader, so each node applies this rule to
//! itself.

use super::FleetNode;
use crate::roster::Agent;

/// Returns the freest other node that takes a job of the agent, if it is relatively freer than the node `own`. A node
/// without a capacity is compared as if it had one place for each processor.
pub fn freer_node<'n>(own: &str, agent: &Agent, nodes: &'n [FleetNode]) -> Option<&'n FleetNode> {
    let own = nodes.iter().find(|node| node.name == own)?;
    nodes
        .iter()
        .filter(|node| node.takes_jobs_of(agent) && !node.is_full() && is_freer(node, own))
        .reduce(|freest, node| if is_freer(node, freest) { node } else { freest })
}

/// Checks whether a smaller part of the places of `one` is taken.
fn is_freer(one: &FleetNode, other: &FleetNode) -> bool {
    u64::from(one.running) * weight(other) < u64::from(other.running) * weight(one)
}

/// Returns the number of places by which nodes are compared.
fn weight(node: &FleetNode) -> u64 {
    u64::from(node.report.capacity.unwrap_or(node.report.processors).max(1))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::NodeReport;
    use super::super::tests::node;
    use super::*;

    #[test]
    fn a_job_is_left_to_a_node_with_relatively_more_free_places() {
        let agent = Agent::new("a".parse().unwrap());
        let sized = |name: &str, running, capacity| FleetNode {
            report: NodeReport { capacity, processors: 4, ..NodeReport::default() },
            ..node(name, running)
        };
        let drained = FleetNode { drained_at: Some(Timestamp::UNIX_EPOCH), ..node("b", 0) };
        let unable = [("a".parse().unwrap(), "no".to_owned())].into_iter().collect();
        let unable = FleetNode {
            report: NodeReport { unable, processors: 4, ..NodeReport::default() },
            ..node("b", 0)
        };
        for (own, others, expected) in [
            (sized("own", 0, None), vec![sized("b", 0, None)], None),
            (sized("own", 1, None), vec![sized("b", 0, None)], Some("b")),
            (sized("own", 1, Some(2)), vec![sized("b", 2, Some(8))], Some("b")),
            (sized("own", 1, Some(8)), vec![sized("b", 1, Some(2))], None),
            (sized("own", 2, Some(4)), vec![sized("b", 1, Some(4)), sized("c", 0, Some(4))], Some("c")),
            // A full node has no place, however large the other is.
            (sized("own", 9, Some(4)), vec![sized("b", 1, Some(1))], None),
            (sized("own", 3, None), vec![drained], None),
            (sized("own", 3, None), vec![unable], None),
            (sized("own", 3, None), vec![FleetNode { is_running: false, ..node("b", 0) }], None),
            (sized("own", 3, None), vec![], None),
        ] {
            let nodes: Vec<FleetNode> = [vec![own], others].concat();
            assert_eq!(freer_node("own", &agent, &nodes).map(|node| node.name.as_str()), expected);
        }
        assert_eq!(freer_node("unknown", &agent, &[node("b", 0)]), None);
    }
}
