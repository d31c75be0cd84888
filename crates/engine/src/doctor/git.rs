//! Checks that the `git` for workspaces exists and is new enough.

use std::fmt::Display;
use std::path::Path;

use cowhand_core::roster::Roster;

use super::Finding;
use super::agents::{find, version_in, version_of};

/// First version with `worktree list -z`. All other features that cowhand uses are older.
const OLDEST_GIT: [u32; 3] = [2, 36, 0];

/// Checks `git`; returns `None` if no job has its own workspace.
pub(super) async fn check(roster: &Roster) -> Option<Finding> {
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
