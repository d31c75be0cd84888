//! Checks that the `git` for workspaces exists and is new enough, and that the workspaces of the agents can be made.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use cowhand_core::id::ScheduleName;
use cowhand_core::roster::{Agent, Roster};
use cowhand_core::workspace::IsolationRules;
use cowhand_run::workspace::WorkspaceBase;

use super::Finding;
use super::agents::{find, image, unusable, version_in, version_of};

/// First version with `worktree list -z`. All other features that cowhand uses are older.
const OLDEST_GIT: [u32; 3] = [2, 36, 0];

/// Checks `git` and the `isolation` of each agent; empty if no job has its own workspace.
pub(super) async fn check(roster: &Roster) -> Vec<Finding> {
    let Some(git) = git(roster).await else { return Vec::new() };
    let workspaces = if git.ok { workspaces(roster).await } else { Vec::new() };
    std::iter::once(git).chain(workspaces).collect()
}

/// Reports the agents whose workspaces cannot be made.
async fn workspaces(roster: &Roster) -> Vec<Finding> {
    let mut findings = Vec::new();
    // The finding of the agent itself reports a missing directory.
    for agent in roster.agents.iter().filter(|agent| agent.directory.is_dir()) {
        // The schedules that have each problem; `None` stands for jobs without a schedule.
        let mut problems: BTreeMap<String, Vec<Option<&ScheduleName>>> = BTreeMap::new();
        for (schedule, rules) in agent.isolations() {
            let setup = missing_setup(agent, rules);
            let (directory, rules, stop) = (agent.directory.clone(), rules.clone(), Arc::default());
            let base =
                tokio::task::spawn_blocking(move || WorkspaceBase::of(&directory, &rules, &stop)).await;
            let base = base.ok().and_then(Result::err).map(|error| error.to_string());
            for problem in base.into_iter().chain(setup) {
                problems.entry(problem).or_default().push(schedule);
            }
        }
        let sentences: Vec<String> = problems
            .into_iter()
            .map(|(problem, of)| format!("{} cannot start: {problem}", jobs_in_words(agent, &of)))
            .collect();
        if !sentences.is_empty() {
            findings.push(Finding::of(format!("isolation of {}", agent.name), Err(sentences.join("; "))));
        }
    }
    findings
}

/// Formats `its jobs`, or only the jobs that have a problem: `jobs of its schedules a and b`.
fn jobs_in_words(agent: &Agent, of: &[Option<&ScheduleName>]) -> String {
    let isolated = agent.isolations().count();
    if of.len() == isolated && isolated > agent.schedules.len() {
        return "its jobs".to_owned();
    }
    let names: Vec<String> = of.iter().flatten().map(|name| format!("`{name}`")).collect();
    let schedules = match names.as_slice() {
        [] => None,
        [name] => Some(format!("jobs of its schedule {name}")),
        [names @ .., last] => Some(format!("jobs of its schedules {} and {last}", names.join(", "))),
    };
    let others = of.contains(&None).then(|| "jobs without a schedule".to_owned());
    others.into_iter().chain(schedules).collect::<Vec<_>>().join(" and ")
}

/// Explains why the program of `setup` cannot be started. Returns `None` if no reason is known. Nothing is known about
/// a program in an image. Nothing is known about a relative path either: the path begins in the workspace, and the
/// workspace does not exist yet.
fn missing_setup(agent: &Agent, rules: &IsolationRules) -> Option<String> {
    let program = rules.setup.as_ref()?.first()?;
    let is_in_workspace = program.contains('/') && !program.starts_with('/');
    if is_in_workspace || image(agent).is_some() {
        return None;
    }
    let found = find(program, &agent.directory, agent.program.env.get("PATH"));
    found.is_none().then(|| format!("`setup`: {}", unusable(program, &agent.directory)))
}

/// Checks `git`; returns `None` if no job has its own workspace.
async fn git(roster: &Roster) -> Option<Finding> {
    let mut users = roster.agents.iter().filter(|agent| agent.isolations().next().is_some());
    let user = users.next()?;
    let Some(path) = find("git", Path::new(""), None) else {
        let others = users.count();
        let more = if others == 0 { String::new() } else { format!(" and {others} more") };
        return Some(Finding::of(
            "git",
            Err(format!(
                "it was not found on PATH, and `isolation` of {}{more} needs it; install it",
                user.name
            )),
        ));
    };
    let version = version_of(&path, Path::new("."), std::iter::empty()).await;
    let (detail, warning) = judge(version);
    Some(Finding { warning, ..Finding::works("git", format!("{} at {}", detail, path.display())) })
}

/// Describes the version, and returns true if the version may not work.
fn judge(output: Result<String, impl Display>) -> (String, bool) {
    let text = |version: [u32; 3]| version.map(|part| part.to_string()).join(".");
    match output.map(|output| (version_in(&output), output)) {
        Ok((Some(version), _)) if version >= OLDEST_GIT => (text(version), false),
        Ok((Some(version), _)) => {
            let needed = text(OLDEST_GIT);
            (format!("{} is too old for workspaces, which need {needed},", text(version)), true)
        }
        Ok((None, output)) => (format!("unknown version (it printed {output:?})"), true),
        Err(why) => (format!("unknown version ({why})"), true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_unknown_versions_of_git_are_warnings() {
        for (output, expected) in [
            (Ok("git version 2.39.5"), ("2.39.5", false)),
            (Ok("git version 2.50.1 (Apple Git-155)"), ("2.50.1", false)),
            (Ok("git version 2.25.1"), ("2.25.1 is too old for workspaces, which need 2.36.0,", true)),
            (Ok("moo"), ("unknown version (it printed \"moo\")", true)),
            (Err("`--version` hung"), ("unknown version (`--version` hung)", true)),
        ] {
            let (detail, warning) = judge(output.map(str::to_owned));
            assert_eq!((detail.as_str(), warning), expected);
        }
    }
}
