//! Which agents this node cannot run. The checks only look for files, so they are cheap; no program is started.

use std::collections::BTreeMap;

use cowhand_core::id::AgentName;
use cowhand_core::roster::Agent;
use cowhand_core::work_source::ConfiguredSource;

use super::agents::missing_program;
use crate::loaded::Loaded;

/// Returns the agents that this node cannot run, with the reason.
pub(crate) fn unable(loaded: &Loaded) -> BTreeMap<AgentName, String> {
    let agents = loaded.roster.agents.iter();
    agents.filter_map(|agent| Some((agent.name.clone(), why_unable(loaded, agent)?))).collect()
}

/// Returns why the agent cannot run here: its directory, its program or the folder of its work items is missing.
fn why_unable(loaded: &Loaded, agent: &Agent) -> Option<String> {
    missing_program(agent).or_else(|| missing_folder(loaded, agent))
}

/// Names a folder of work items that is missing, if all schedules of the agent need such a folder. An agent that has
/// other schedules can run here.
fn missing_folder(loaded: &Loaded, agent: &Agent) -> Option<String> {
    let base = &loaded.sources.context().base;
    let missing = |source: &ConfiguredSource| match source {
        ConfiguredSource::Files { path, .. } => Some(base.join(path)).filter(|folder| !folder.is_dir()),
        ConfiguredSource::Github { .. } | ConfiguredSource::Custom { .. } => None,
    };
    let folders = agent.schedules.iter().map(|schedule| schedule.work_source.as_deref().and_then(missing));
    let folder = folders.collect::<Option<Vec<_>>>()?.into_iter().next()?;
    Some(format!("the folder {} of its work items does not exist", folder.display()))
}
