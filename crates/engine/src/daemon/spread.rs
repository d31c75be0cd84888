//! Leaves jobs to freer nodes for a short time. There is no leader: each node decides for itself, with the number of
//! jobs that run on each node now. A node that hangs does not hold a job up, because the time is short.

use std::collections::HashMap;

use cowhand_core::id::{AgentName, JobId};
use cowhand_core::node::{FleetNode, freer_node};
use cowhand_core::roster::Roster;
use jiff::{SignedDuration, Timestamp};

use super::tick::Startable;
use crate::context::Engine;

/// Time for which a job is left to a freer node.
const LEAVE_JOB_FOR: SignedDuration = SignedDuration::from_secs(3);
/// Time after which a node that was not seen is not expected to start jobs.
const SILENT_NODE_AFTER: SignedDuration = SignedDuration::from_secs(45);

/// The jobs that are left to freer nodes, with the time since which they are left.
#[derive(Debug, Default)]
pub(super) struct LeftJobs(HashMap<JobId, Timestamp>);

/// The jobs that can start, divided by this node.
#[derive(Debug, Default)]
pub(super) struct DividedStarts {
    pub(super) here: Vec<Startable>,
    /// Jobs that are left to freer nodes, with the time at which this node takes them.
    pub(super) elsewhere: Vec<(Startable, Timestamp)>,
}

impl LeftJobs {
    /// Divides jobs into those that start here, on the node `own`, and those that are left to freer nodes. `nodes` are
    /// the nodes that may start them, with the jobs that they run now.
    pub(super) fn divide(
        &mut self,
        own: &str,
        mut nodes: Vec<FleetNode>,
        roster: &Roster,
        starts: Vec<Startable>,
        now: Timestamp,
    ) -> DividedStarts {
        if nodes.iter().all(|node| node.name == own) {
            return DividedStarts { here: starts, ..DividedStarts::default() };
        }
        self.0.retain(|_, since| now.duration_since(*since).abs() < SILENT_NODE_AFTER);
        let mut divided = DividedStarts::default();
        for start in starts {
            let until = self.leaves_until(&start, roster, &nodes, own, now);
            let taker = match &until {
                Some((other, _)) => other.as_str(),
                None => own,
            };
            if let Some(node) = nodes.iter_mut().find(|node| node.name == taker) {
                node.running += 1;
            }
            match until {
                Some((_, until)) => divided.elsewhere.push((start, until)),
                None => divided.here.push(start),
            }
        }
        divided
    }

    /// Returns the node to which a job is left, and until when; `None` if it starts here.
    fn leaves_until(
        &mut self,
        start: &Startable,
        roster: &Roster,
        nodes: &[FleetNode],
        own: &str,
        now: Timestamp,
    ) -> Option<(String, Timestamp)> {
        let other = freer_node(own, roster.agent(&start.agent)?, nodes)?;
        let since = *self.0.entry(start.job.clone()).or_insert(now);
        let until = since + LEAVE_JOB_FOR;
        (since <= now && now < until).then(|| (other.name.clone(), until))
    }
}

/// Returns the nodes that may start jobs, with the jobs that they run now if there are several such nodes.
pub(super) async fn comparable_nodes(engine: &Engine) -> Vec<FleetNode> {
    let mut nodes = expected_nodes(&engine.home.node, &engine.nodes.get());
    // Without an answer, the counts of the last read apply.
    if nodes.len() > 1
        && let Ok(running) = engine.store.running_of_nodes().await
    {
        for node in &mut nodes {
            node.running = running.get(&node.name).copied().unwrap_or_default();
        }
    }
    nodes
}

/// Checks whether a job of the agent may be left to another node. Then its firings are not claimed at once, so that
/// [`LeftJobs::divide`] decides.
pub(super) fn may_be_left(engine: &Engine, roster: &Roster, agent: &AgentName) -> bool {
    let own = engine.home.node.as_str();
    let nodes = expected_nodes(own, &engine.nodes.get());
    let mut others = nodes.iter().filter(|node| node.name != own);
    roster.agent(agent).is_some_and(|agent| others.any(|node| node.takes_jobs_of(agent)))
}

/// Returns this node and the nodes that were seen lately.
fn expected_nodes(own: &str, nodes: &[FleetNode]) -> Vec<FleetNode> {
    let Some(newest) = nodes.iter().map(|node| node.seen_at).max() else { return Vec::new() };
    let is_expected = |node: &&FleetNode| {
        node.name == own || (node.is_running && newest.duration_since(node.seen_at) < SILENT_NODE_AFTER)
    };
    nodes.iter().filter(is_expected).cloned().collect()
}

#[cfg(test)]
mod tests {
    use cowhand_core::node::NodeReport;
    use cowhand_core::roster::Agent;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn node(name: &str, running: u32) -> FleetNode {
        FleetNode {
            name: name.to_owned(),
            started_at: at(0),
            seen_at: at(0),
            is_running: true,
            drained_at: None,
            running,
            lease_until: None,
            shares_store: true,
            report: NodeReport { capacity: Some(4), ..NodeReport::default() },
        }
    }

    fn start(number: u64) -> Startable {
        let job = JobId::new(jiff::civil::date(2026, 1, 5), number);
        let agent = "a".parse().unwrap();
        Startable { job, agent, max_concurrent: 9, session_key: None, fallback: None }
    }

    #[test]
    fn jobs_are_divided_between_the_nodes_and_left_only_once() {
        let roster = Roster::of(vec![Agent::new("a".parse().unwrap())]);
        let mut left = LeftJobs::default();
        let mut divide = |nodes: &[FleetNode], starts: Vec<Startable>, second| {
            left.divide("own", nodes.to_vec(), &roster, starts, at(second))
        };
        let here = |divided: &DividedStarts| divided.here.len();
        let alone = divide(&[node("own", 3)], vec![start(1), start(2)], 0);
        assert_eq!((here(&alone), alone.elsewhere.len()), (2, 0));
        // Every second job is left to the other node, as if it had taken it.
        let both = [node("own", 0), node("other", 0)];
        let divided = divide(&both, (1..=4).map(start).collect(), 0);
        assert_eq!(here(&divided), 2);
        let until: Vec<_> =
            divided.elsewhere.iter().map(|(start, until)| (start.job.clone(), *until)).collect();
        assert_eq!(until, [(start(2).job, at(3)), (start(4).job, at(3))]);
        // The time of a job does not begin again when it is planned again, or when other agents are planned.
        let busy = [node("own", 2), node("other", 0)];
        assert_eq!(divide(&busy, vec![start(2)], 2).elsewhere, [(start(2), at(3))]);
        divide(&busy, Vec::new(), 2);
        divide(&[], Vec::new(), 2);
        assert_eq!(here(&divide(&busy, vec![start(2)], 3)), 1);
        // After a step of the clock back, the job is not left for longer.
        assert_eq!(here(&divide(&busy, vec![start(4)], -60)), 0);
        assert_eq!(here(&divide(&busy, vec![start(4)], -57)), 1);
    }

    #[test]
    fn a_node_that_was_not_seen_lately_is_not_expected_to_start_jobs() {
        let silent = FleetNode { seen_at: at(-60), ..node("silent", 0) };
        let gone = FleetNode { is_running: false, ..node("gone", 0) };
        let own = FleetNode { seen_at: at(-90), ..node("own", 0) };
        let nodes = [own, silent, gone, node("other", 0)];
        let names: Vec<String> = expected_nodes("own", &nodes).into_iter().map(|node| node.name).collect();
        assert_eq!(names, ["own", "other"]);
    }
}
