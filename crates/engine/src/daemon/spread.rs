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
    /// Divides jobs into those that start here, and those that are left to freer nodes.
    pub(super) async fn divide(
        &mut self,
        engine: &Engine,
        roster: &Roster,
        starts: Vec<Startable>,
        now: Timestamp,
    ) -> DividedStarts {
        let own = engine.home.node.as_str();
        let mut nodes = expected_nodes(own, &engine.nodes.get());
        let is_alone = nodes.iter().all(|node| node.name == own);
        if is_alone {
            self.0.clear();
        }
        // The jobs of other agents stay left until their own time has passed.
        if is_alone || starts.is_empty() {
            return DividedStarts { here: starts, ..DividedStarts::default() };
        }
        // Without an answer, the counts of the last read apply.
        if let Ok(running) = engine.store.running_of_nodes().await {
            for node in &mut nodes {
                node.running = running.get(&node.name).copied().unwrap_or_default();
            }
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
