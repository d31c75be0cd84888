//! Checks which sandboxes this machine supports. A missing sandbox that an agent needs is a failure, because the agent
//! cannot start. Other missing sandboxes are only listed.

use std::fmt::Display;

use cowhand_core::roster::Roster;
use cowhand_core::sandbox::{Container, RequestedSandbox, SandboxKind};

use super::Finding;
use cowhand_run::caps;
use cowhand_run::sandbox::{ability, docker};

pub(super) fn check(roster: &Roster) -> Vec<Finding> {
    let agents_with = |of: fn(&RequestedSandbox) -> bool| {
        let names = roster.agents.iter().filter(|agent| agent.sandboxes().any(|sandbox| of(&sandbox)));
        names.map(|agent| agent.name.to_string()).collect::<Vec<_>>()
    };
    let mut findings = vec![
        finding(
            "landlock",
            ability::landlock(),
            &agents_with(|sandbox| sandbox.kind == SandboxKind::Landlock),
        ),
        finding(
            "bubblewrap",
            ability::bubblewrap(),
            &agents_with(|sandbox| sandbox.kind == SandboxKind::Bubblewrap),
        ),
        finding("caps", caps::ability(), &agents_with(|sandbox| !sandbox.caps.is_none())),
    ];
    findings.extend(containers(roster));
    findings
}

/// Returns the findings for the container engines and images that agents need; without such agents, the finding for the
/// default container engine. A failed finding names its agents. Equal successful findings are merged.
fn containers(roster: &Roster) -> Vec<Finding> {
    let mut needed: Vec<(Container, Vec<String>)> = Vec::new();
    for agent in &roster.agents {
        for sandbox in agent.sandboxes().filter(|sandbox| sandbox.kind == SandboxKind::Docker) {
            let Container { image, socket, .. } = sandbox.container;
            let container = Container { image, socket, ..Container::default() };
            let name = agent.name.to_string();
            match needed.iter_mut().find(|(same, _)| *same == container) {
                Some((_, agents)) if agents.contains(&name) => {}
                Some((_, agents)) => agents.push(name),
                None => needed.push((container, vec![name])),
            }
        }
    }
    if needed.is_empty() {
        needed.push((Container::default(), Vec::new()));
    }
    let mut findings: Vec<Finding> = Vec::new();
    for (container, agents) in needed {
        let found = finding("docker", docker::ability(&container), &agents);
        // Several images of one container engine give the same line, unless they fail.
        if !found.ok || !findings.iter().any(|earlier| earlier.detail == found.detail) {
            findings.push(found);
        }
    }
    findings
}

fn finding(what: &str, found: Result<String, impl Display>, needed_by: &[String]) -> Finding {
    let what = format!("sandbox, {what}");
    match found {
        Err(why) if needed_by.is_empty() => Finding::works(what, format!("not available: {why}")),
        Err(why) => {
            Finding::of(what, Err(format!("{why}; these agents cannot start: {}", needed_by.join(", "))))
        }
        found => Finding::of(what, found),
    }
}
