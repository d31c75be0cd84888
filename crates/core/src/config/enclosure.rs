//! What is said about sandboxes, held against itself: what no machine could do is an error, what will not work a warning.

use super::load::{Draft, Loader};
use super::node::{Location, Node};
use super::problem::{Problem, Severity};
use super::resolve::schedule_at;
use super::shape::Runtime;
use crate::roster::Agent;
use crate::sandbox::{Credentials, Network, Reach, Reaches, Sandbox, SandboxKind};

pub(super) fn check(loader: &mut Loader<'_>, draft: &Draft, agent: &Agent) {
    if let Some(node) = draft.node.get("sandbox") {
        check_one(loader, draft, (agent, None), node.at, "sandbox");
    } else if let Some(node) = draft.node.get("docker") {
        check_docker(loader, draft, agent, node.at);
    }
    for schedule in agent.schedules.iter().filter(|schedule| schedule.sandbox.is_some()) {
        let entries = draft.node.get("schedules").and_then(Node::entries);
        let node = entries.and_then(|entries| entries.get(schedule.name.as_str())?.node.get("sandbox"));
        let at = node.map_or_else(|| schedule_at(draft, schedule.name.as_str()), |node| node.at);
        let key = format!("schedules.{}.sandbox", schedule.name);
        check_one(loader, draft, (agent, Some(schedule)), at, &key);
    }
}

/// herdctl's key. It takes what we do not do, so that is no error: the agent is not started.
fn check_docker(loader: &mut Loader<'_>, draft: &Draft, agent: &Agent, at: Location) {
    let asked = agent.sandbox(None, false);
    if let Some(why) = asked.contradiction().filter(|_| asked.kind == SandboxKind::Docker) {
        warn(loader, draft, at, "docker", &format!("this agent is not started: {why}"));
    }
}

fn check_one(
    loader: &mut Loader<'_>,
    draft: &Draft,
    (agent, schedule): (&Agent, Option<&crate::roster::Schedule>),
    at: Location,
    key: &str,
) {
    let written = schedule.map_or(agent.settings.sandbox.as_ref(), |schedule| schedule.sandbox.as_ref());
    let reach = match written.map(Sandbox::rules).and_then(|rules| rules.network) {
        Some(Network::Reach(reach)) => reach,
        _ => Reach { ports: Some(Vec::new()), hosts: None },
    };
    if reach.ports.is_some() == reach.hosts.is_some() {
        let message = "`network` names either `ports` (for Landlock) or `hosts` (for bubblewrap)";
        loader.problems.add(Problem::error(at, message).key(draft.key_of(key)));
        return;
    }
    let asked = agent.sandbox(schedule.map(|schedule| &schedule.name), false);
    if let Some(message) = asked.contradiction() {
        loader.problems.add(Problem::error(at, message).key(draft.key_of(key)));
    } else if asked.network == Reaches::Nobody
        && asked.credentials == Credentials::Inside
        && agent.runtime() != Runtime::Command
    {
        warn(
            loader,
            draft,
            at,
            key,
            "with the network off its program cannot reach its model; name whom it reaches in `network`, or have `credentials: outside` with bubblewrap",
        );
    }
}

fn warn(loader: &mut Loader<'_>, draft: &Draft, at: Location, key: &str, message: &str) {
    let problem = Problem::error(at, message).key(draft.key_of(key));
    loader.problems.add(Problem { severity: Severity::Warning, ..problem });
}
