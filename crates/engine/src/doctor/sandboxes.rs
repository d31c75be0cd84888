//! Checks which sandboxes this machine supports. A missing sandbox that an agent needs is a failure, because the agent
//! cannot start. Other missing sandboxes are only listed.

use std::fmt::Display;

use cowhand_core::roster::{Agent, Roster};
use cowhand_core::sandbox::{Container, RequestedSandbox, SandboxKind};

use super::Finding;
use cowhand_run::caps;
use cowhand_run::sandbox::{ability, docker};

pub(super) fn look(roster: &Roster) -> Vec<Finding> {
    let wanted = |of: fn(&RequestedSandbox) -> bool| {
        let names = roster.agents.iter().filter(|agent| agent.sandboxes().any(|asked| of(&asked)));
        names.map(|agent| agent.name.to_string()).collect::<Vec<_>>()
    };
    let of_docker = |asked: &RequestedSandbox| asked.kind == SandboxKind::Docker;
    let containers: Vec<RequestedSandbox> =
        roster.agents.iter().flat_map(Agent::sandboxes).filter(of_docker).collect();
    let containers: Vec<&Container> = containers.iter().map(|asked| &asked.container).collect();
    vec![
        finding("landlock", ability::landlock(), &wanted(|asked| asked.kind == SandboxKind::Landlock)),
        finding("bubblewrap", ability::bubblewrap(), &wanted(|asked| asked.kind == SandboxKind::Bubblewrap)),
        finding("caps", caps::ability(), &wanted(|asked| !asked.caps.is_none())),
        finding("docker", docker::ability(&containers), &wanted(of_docker)),
    ]
}

fn finding(what: &str, found: Result<String, impl Display>, wanted_by: &[String]) -> Finding {
    let what = format!("sandbox, {what}");
    match found {
        Err(why) if wanted_by.is_empty() => Finding::works(what, format!("not available: {why}")),
        Err(why) => {
            Finding::of(what, Err(format!("{why}; these agents cannot start: {}", wanted_by.join(", "))))
        }
        found => Finding::of(what, found),
    }
}
