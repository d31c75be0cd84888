//! Checks which sandboxes this machine supports. A missing sandbox that an agent needs is a failure, because the agent
//! cannot start. Other missing sandboxes are only listed.

use std::fmt::Display;

use cowhand_core::roster::{Agent, Roster};
use cowhand_core::sandbox::{Container, RequestedSandbox, SandboxKind};

use super::Finding;
use cowhand_run::caps;
use cowhand_run::sandbox::{ability, docker};

pub(super) fn check(roster: &Roster) -> Vec<Finding> {
    let agents_with = |of: fn(&RequestedSandbox) -> bool| {
        let names = roster.agents.iter().filter(|agent| agent.sandboxes().any(|sandbox| of(&sandbox)));
        names.map(|agent| agent.name.to_string()).collect::<Vec<_>>()
    };
    let is_docker = |sandbox: &RequestedSandbox| sandbox.kind == SandboxKind::Docker;
    let containers: Vec<RequestedSandbox> =
        roster.agents.iter().flat_map(Agent::sandboxes).filter(is_docker).collect();
    let containers: Vec<&Container> = containers.iter().map(|sandbox| &sandbox.container).collect();
    vec![
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
        finding("docker", docker::ability(&containers), &agents_with(is_docker)),
    ]
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
