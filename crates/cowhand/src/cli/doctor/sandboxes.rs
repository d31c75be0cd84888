//! What can hold an agent on this machine. Who asks for what is not there is not started, so that is a failure; what
//! nobody asks for is only told.

use std::path::Path;

use cowhand_core::id::ScheduleName;
use cowhand_core::roster::{Agent, Roster};
use cowhand_core::sandbox::{Asked, SandboxKind};
use cowhand_core::trust::Trust;

use super::Finding;
use crate::run::caps;
use crate::run::sandbox::ability;

/// Where Docker and Podman listen.
const ENGINES: [&str; 2] = ["/var/run/docker.sock", "/run/podman/podman.sock"];

pub(super) fn look(roster: &Roster) -> Vec<Finding> {
    let wanted = |of: fn(&Asked) -> bool| {
        let names = roster.agents.iter().filter(|agent| asked(agent).iter().any(of));
        names.map(|agent| agent.name.to_string()).collect::<Vec<_>>()
    };
    vec![
        finding("landlock", ability::landlock(), &wanted(|asked| asked.kind == SandboxKind::Landlock)),
        finding("bubblewrap", ability::bubblewrap(), &wanted(|asked| asked.kind == SandboxKind::Bubblewrap)),
        finding("caps", caps::ability(), &wanted(|asked| !asked.caps.is_none())),
        finding("docker", docker(), &wanted(|asked| asked.kind == SandboxKind::Docker)),
    ]
}

/// By jobs of no schedule, and by those of each.
fn asked(agent: &Agent) -> Vec<Asked> {
    let schedules = agent.schedules.iter().map(|schedule| Some(&schedule.name));
    let all = [None::<&ScheduleName>].into_iter().chain(schedules);
    all.flat_map(|schedule| {
        let known = agent.schedules.iter().find(|known| Some(&known.name) == schedule);
        let confines = agent.trusts(known).into_iter().any(Trust::confines);
        let strict = confines.then(|| agent.sandbox(schedule, true));
        [agent.sandbox(schedule, false)].into_iter().chain(strict)
    })
    .collect()
}

fn finding(what: &str, found: Result<String, String>, wanted_by: &[String]) -> Finding {
    let what = format!("sandbox, {what}");
    match found {
        Err(why) if wanted_by.is_empty() => Finding::of(what, Ok(format!("not here: {why}"))),
        Err(why) => Finding::of(
            what,
            Err(format!("{why}; so these agents are not started: {}", wanted_by.join(", "))),
        ),
        found => Finding::of(what, found),
    }
}

fn docker() -> Result<String, String> {
    let engine = ENGINES.into_iter().find(|socket| Path::new(socket).exists());
    let engine =
        engine.map_or_else(|| "no engine listens here".to_owned(), |socket| format!("{socket} is there"));
    Err(format!("containers are not used yet ({engine})"))
}
