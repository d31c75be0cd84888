//! The reason why no node starts the jobs of an agent, in words.

use super::FleetNode;
use crate::label::NodeLabel;
use crate::roster::Agent;

/// Maximum number of nodes that a sentence names.
const MAX_NAMED_NODES: usize = 3;

/// Returns why none of the nodes starts jobs of the agent, and what to do. None if a node starts them when it has a
/// free place, if no nodes are known, or if no daemon runs.
pub fn no_node_for(agent: &Agent, nodes: &[FleetNode]) -> Option<String> {
    let mut running = nodes.iter().filter(|node| node.is_running).peekable();
    running.peek()?;
    if running.clone().any(|node| node.takes_jobs_of(agent)) {
        return None;
    }
    let labelled: Vec<&FleetNode> = running.filter(|node| node.has_labels_for(agent)).collect();
    if labelled.is_empty() {
        return Some(no_running_label(agent, nodes));
    }
    let able: Vec<&FleetNode> = labelled.iter().filter(|node| node.drained_at.is_none()).copied().collect();
    if able.is_empty() {
        return Some(all_drained(agent, &labelled));
    }
    let reasons = able.iter().filter_map(|node| Some((node, node.cannot_run(&agent.name)?)));
    let reasons: Vec<String> = reasons.map(|(node, why)| format!("on {}, {why}", node.name)).collect();
    let drained = labelled.len() - able.len();
    let others = match drained {
        0 => String::new(),
        1 => "; 1 other node is drained".to_owned(),
        more => format!("; {more} other nodes are drained"),
    };
    Some(format!("no node can run {}: {}{others}", agent.name, shortened(&reasons, "; ")))
}

/// Describes that no running node has the labels.
fn no_running_label(agent: &Agent, nodes: &[FleetNode]) -> String {
    let labels = labels_in_words(&agent.runs_on);
    let options: Vec<String> = agent.runs_on.iter().map(|label| format!("--label {label}")).collect();
    let start = format!("`cowhand start {}`", options.join(" "));
    match nodes.iter().find(|node| node.has_labels_for(agent)) {
        Some(gone) => format!(
            "no node with {labels} runs (`runs_on`); start the node {} again, or another node with {start}",
            gone.name
        ),
        None => format!(
            "no node has {labels} (`runs_on`); start a node with {start}, or change `runs_on` of {}",
            agent.name
        ),
    }
}

fn all_drained(agent: &Agent, drained: &[&FleetNode]) -> String {
    let with = match agent.runs_on.as_slice() {
        [] => String::new(),
        labels => format!(" with {}", labels_in_words(labels)),
    };
    match drained {
        [only] => format!(
            "the only node{with}, {name}, is drained; `cowhand undrain {name}` lets it take jobs again",
            name = only.name
        ),
        all => {
            let names: Vec<String> = all.iter().map(|node| node.name.clone()).collect();
            format!(
                "all nodes{with} are drained ({}); `cowhand undrain NODE` lets one take jobs again",
                shortened(&names, ", ")
            )
        }
    }
}

/// Writes labels as `the label gpu`, or `the labels gpu and region=eu`.
fn labels_in_words(labels: &[NodeLabel]) -> String {
    match labels {
        [only] => format!("the label {only}"),
        [first @ .., last] => {
            let first: Vec<&str> = first.iter().map(NodeLabel::as_str).collect();
            format!("the labels {} and {last}", first.join(", "))
        }
        [] => "its labels".to_owned(),
    }
}

fn shortened(parts: &[String], between: &str) -> String {
    let shown = parts.get(..MAX_NAMED_NODES).unwrap_or(parts).join(between);
    match parts.len().saturating_sub(MAX_NAMED_NODES) {
        0 => shown,
        more => format!("{shown}{between}and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::tests::node;
    use super::super::{FleetNode, NodeReport};
    use super::*;

    fn agent(runs_on: &[&str]) -> Agent {
        let runs_on = runs_on.iter().map(|label| label.parse().unwrap()).collect();
        Agent { runs_on, ..Agent::new("trainer".parse().unwrap()) }
    }

    fn labelled(name: &str, labels: &[&str]) -> FleetNode {
        let labels = labels.iter().map(|label| label.parse().unwrap()).collect();
        FleetNode { report: NodeReport { labels, ..NodeReport::default() }, ..node(name, 0) }
    }

    fn unable(name: &str, why: &str) -> FleetNode {
        let unable = [("trainer".parse().unwrap(), why.to_owned())].into_iter().collect();
        FleetNode { report: NodeReport { unable, ..NodeReport::default() }, ..node(name, 0) }
    }

    #[test]
    fn the_sentence_names_the_reason_and_the_next_step() {
        let gone = |node| FleetNode { is_running: false, ..node };
        let drained = |node| FleetNode { drained_at: Some(Timestamp::UNIX_EPOCH), ..node };
        let (plain, gpu, both) = (&agent(&[]), &agent(&["gpu"]), &agent(&["gpu", "region=eu"]));
        let cases = [
            (plain, vec![], None),
            (plain, vec![gone(node("a", 0))], None),
            (plain, vec![node("a", 9)], None),
            (gpu, vec![node("a", 0), labelled("b", &["gpu=a100"])], None),
            (
                gpu,
                vec![node("a", 0)],
                Some(
                    "no node has the label gpu (`runs_on`); start a node with `cowhand start --label gpu`, or change `runs_on` of trainer",
                ),
            ),
            (
                both,
                vec![node("a", 0), gone(labelled("b", &["gpu", "region=eu"]))],
                Some(
                    "no node with the labels gpu and region=eu runs (`runs_on`); start the node b again, or another node with `cowhand start --label gpu --label region=eu`",
                ),
            ),
            (
                gpu,
                vec![node("a", 0), drained(labelled("b", &["gpu"]))],
                Some(
                    "the only node with the label gpu, b, is drained; `cowhand undrain b` lets it take jobs again",
                ),
            ),
            (
                plain,
                vec![drained(node("a", 0)), drained(node("b", 1))],
                Some("all nodes are drained (a, b); `cowhand undrain NODE` lets one take jobs again"),
            ),
            (
                plain,
                vec![unable("a", "x was not found"), drained(node("b", 0))],
                Some("no node can run trainer: on a, x was not found; 1 other node is drained"),
            ),
            (plain, vec![unable("a", "x was not found"), node("b", 0)], None),
            (plain, vec![FleetNode { shares_store: false, ..unable("a", "x was not found") }], None),
        ];
        for (agent, nodes, expected) in cases {
            assert_eq!(no_node_for(agent, &nodes).as_deref(), expected);
        }
        let many: Vec<FleetNode> = ["a", "b", "c", "d", "e"].map(|name| unable(name, "no")).into();
        assert_eq!(
            no_node_for(plain, &many).unwrap(),
            "no node can run trainer: on a, no; on b, no; on c, no; and 2 more"
        );
    }
}
