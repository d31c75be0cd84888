//! The directories of the config in which at least one sandboxed agent may write.

use std::path::{Path, PathBuf};

use cowhand_core::roster::{Agent, Roster};
use cowhand_core::sandbox::SandboxKind;
use cowhand_core::workspace::IsolationKind;

/// Returns the directories of the config in which at least one sandboxed agent may write, by their real paths. The
/// workspaces of jobs are not included.
pub fn writable(roster: &Roster) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = roster.agents.iter().flat_map(of_agent).collect();
    found.sort();
    found.dedup();
    found
}

fn of_agent(agent: &Agent) -> Vec<PathBuf> {
    let is_shared = |kind| kind == IsolationKind::Shared;
    let in_place = is_shared(agent.isolation.kind)
        || agent.schedules.iter().any(|schedule| is_shared(schedule.isolation.kind));
    let mut found = Vec::new();
    for asked in agent.sandboxes().filter(|asked| asked.kind != SandboxKind::None) {
        found.extend(in_place.then(|| agent.directory.clone()));
        let volumes =
            asked.container.volumes.iter().filter(|volume| volume.writable).map(|volume| &volume.from);
        found.extend(asked.write.iter().chain(volumes).map(|path| resolve_path(&agent.directory, path)));
    }
    // A path that does not exist yet has no real path and stays as it is.
    found.into_iter().map(|path| path.canonicalize().unwrap_or(path)).collect()
}

fn resolve_path(base: &Path, path: &str) -> PathBuf {
    let home = path.strip_prefix("~/").or_else(|| (path == "~").then_some(""));
    match home.zip(std::env::var_os("HOME")) {
        Some((below, home)) => Path::new(&home).join(below),
        None => base.join(path),
    }
}

#[cfg(test)]
mod tests {
    use cowhand_core::sandbox::Sandbox;
    use cowhand_core::workspace::Isolation;

    use super::*;

    #[test]
    fn writable_paths_of_sandboxed_agents_are_listed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("real")).unwrap();
        std::os::unix::fs::symlink("real", root.join("desk")).unwrap();
        let agent = |name: &str, sandbox: Option<serde_json::Value>, isolation: Option<&str>| {
            let mut agent = Agent::new(name.parse().unwrap());
            agent.directory = root.join("desk");
            let rules = |value| serde_json::from_value::<Sandbox>(value).unwrap().rules();
            agent.sandbox_rules = sandbox.map(rules);
            let rules = |value: &str| serde_json::from_value::<Isolation>(value.into()).unwrap().rules();
            agent.isolation = isolation.map(rules).unwrap_or_default();
            agent
        };
        let of = |agent| {
            let roster = Roster::of(vec![agent]);
            writable(&roster)
        };
        let asked = serde_json::json!({"kind": "landlock", "write": ["../out"]});
        assert!(of(agent("free", None, None)).is_empty());
        assert_eq!(of(agent("held", Some("bubblewrap".into()), None)), [root.join("real")]);
        assert_eq!(of(agent("own", Some(asked.clone()), Some("worktree"))), [root.join("desk/../out")]);
        assert_eq!(of(agent("both", Some(asked), None)), [root.join("desk/../out"), root.join("real")]);
    }
}
