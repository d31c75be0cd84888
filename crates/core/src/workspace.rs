//! Isolation: whether a job works in the shared directory of its agent or in a workspace, and the rules for workspaces.

use std::fmt;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::id::{AgentName, JobId};
use crate::policy::Timeout;
use crate::size::Size;
use crate::word::written_as;

/// Isolation of the jobs of an agent: a kind, or a kind with its rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(extend("x-short-for" = "kind"))]
pub enum Isolation {
    Kind(IsolationKind),
    Rules(IsolationRules),
}

/// Isolation of each job of an agent: none, a git worktree with a branch, or a clone of the repository.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IsolationKind {
    #[default]
    Shared,
    Worktree,
    Clone,
}

/// Removal of a workspace after the end of its job; `keep_on_failure` keeps the workspaces of failed and cancelled
/// jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cleanup {
    Always,
    #[default]
    KeepOnFailure,
    Never,
}

written_as! {
    IsolationKind { Shared = "shared", Worktree = "worktree", Clone = "clone" }
    Cleanup { Always = "always", KeepOnFailure = "keep_on_failure", Never = "never" }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct IsolationRules {
    pub kind: IsolationKind,
    /// Name of each job's branch, with `{{agent}}` and `{{job}}`; unset means `cowhand/{{agent}}/{{job}}`.
    #[serde(default)]
    pub branch: Option<BranchName>,
    /// Branch or commit that a job begins with; unset means the one checked out in the agent's directory.
    #[serde(default)]
    #[schemars(regex(pattern = "^[^-].*$"))]
    pub base: Option<String>,
    /// Program and arguments to run in the workspace before each attempt; if the program fails, the attempt fails.
    #[serde(default)]
    #[schemars(length(min = 1))]
    pub setup: Option<Vec<String>>,
    /// Maximum duration of `setup`; unset means 10m.
    #[serde(default)]
    pub setup_timeout: Option<Timeout>,
    #[serde(default)]
    pub cleanup: Cleanup,
    /// Maximum size of the kept workspaces of an agent, on each machine; the oldest are removed first. Unset means
    /// 10GB.
    #[serde(default)]
    pub max_kept: Option<Size>,
}

impl Isolation {
    pub fn rules(&self) -> IsolationRules {
        match self {
            Self::Kind(kind) => IsolationRules { kind: *kind, ..IsolationRules::default() },
            Self::Rules(rules) => rules.clone(),
        }
    }
}

impl IsolationRules {
    /// Default maximum size of kept workspaces, in bytes.
    const MAX_KEPT: u64 = 10_000_000_000;

    pub fn branch(&self, agent: &AgentName, job: &JobId) -> String {
        self.branch.clone().unwrap_or_default().of(agent, job)
    }

    pub fn max_kept(&self) -> u64 {
        self.max_kept.map_or(Self::MAX_KEPT, Size::bytes)
    }
}

/// Template for branch names. It contains `{{job}}`, so that no two jobs have the same branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String", extend("format" = "branch", "examples" = ["cowhand/{{agent}}/{{job}}"]))]
pub struct BranchName(String);

const AGENT: &str = "{{agent}}";
const JOB: &str = "{{job}}";

impl Default for BranchName {
    fn default() -> Self {
        Self(format!("cowhand/{AGENT}/{JOB}"))
    }
}

impl BranchName {
    fn of(&self, agent: &AgentName, job: &JobId) -> String {
        self.0.replace(AGENT, agent.as_str()).replace(JOB, job.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BranchError {
    #[error("{0:?} has no {{{{job}}}} in it, so all jobs would have the same branch")]
    NoJob(String),
    #[error("{0:?} is not a valid branch name; for example cowhand/{{{{agent}}}}/{{{{job}}}}")]
    NoName(String),
}

impl std::str::FromStr for BranchName {
    type Err = BranchError;

    fn from_str(text: &str) -> Result<Self, BranchError> {
        if !text.contains(JOB) {
            return Err(BranchError::NoJob(text.to_owned()));
        }
        let plain = text.replace(AGENT, "a").replace(JOB, "j");
        if is_branch(&plain) { Ok(Self(text.to_owned())) } else { Err(BranchError::NoName(text.to_owned())) }
    }
}

/// Checks a branch name. It refuses some names that git accepts: a name has only ASCII letters, digits and a few other
/// characters.
fn is_branch(name: &str) -> bool {
    let is_plain =
        |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '-' | '_' | '.' | '/' | '+' | '#' | '=');
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with(['.', '-'])
            && !part.ends_with('.')
            && !part.contains("..")
            && !part.to_ascii_lowercase().ends_with(".lock")
    };
    name.chars().all(is_plain) && name.split('/').all(is_part)
}

impl TryFrom<String> for BranchName {
    type Error = BranchError;

    fn try_from(text: String) -> Result<Self, BranchError> {
        text.parse()
    }
}

impl From<BranchName> for String {
    fn from(name: BranchName) -> Self {
        name.0
    }
}

impl fmt::Display for BranchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A directory that was created for a job from a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    pub node: String,
    pub path: PathBuf,
    /// The job that uses the workspace, or used it last.
    pub job: JobId,
    pub agent: AgentName,
    pub kind: IsolationKind,
    /// Top directory of the working tree from which it was created.
    pub repository: PathBuf,
    pub branch: String,
    /// Commit with which it began.
    pub base: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branch_names_contain_the_job() {
        let (agent, job) = ("web.coder".parse().unwrap(), "job-2026-01-05-aaaaaa".parse().unwrap());
        for (template, expected) in [
            ("cowhand/{{agent}}/{{job}}", Ok("cowhand/web.coder/job-2026-01-05-aaaaaa")),
            ("x-{{job}}", Ok("x-job-2026-01-05-aaaaaa")),
            ("x", Err("\"x\" has no {{job}} in it, so all jobs would have the same branch")),
            (
                "-{{job}}",
                Err("\"-{{job}}\" is not a valid branch name; for example cowhand/{{agent}}/{{job}}"),
            ),
            (
                "a/../{{job}}",
                Err("\"a/../{{job}}\" is not a valid branch name; for example cowhand/{{agent}}/{{job}}"),
            ),
            (
                "{{when}}/{{job}}",
                Err("\"{{when}}/{{job}}\" is not a valid branch name; for example cowhand/{{agent}}/{{job}}"),
            ),
            (
                "a b{{job}}",
                Err("\"a b{{job}}\" is not a valid branch name; for example cowhand/{{agent}}/{{job}}"),
            ),
        ] {
            let name = template.parse::<BranchName>().map(|name| name.of(&agent, &job));
            assert_eq!(name.as_deref().map_err(ToString::to_string), expected.map_err(str::to_owned));
        }
        assert_eq!(IsolationRules::default().branch(&agent, &job), "cowhand/web.coder/job-2026-01-05-aaaaaa");
    }

    #[test]
    fn a_plain_kind_has_default_rules() {
        let read = |text: &str| serde_json::from_str::<Isolation>(text).unwrap().rules();
        assert_eq!(read("\"worktree\"").kind, IsolationKind::Worktree);
        let rules = read(r#"{"kind": "clone", "cleanup": "never"}"#);
        assert_eq!(
            (rules.kind, rules.cleanup, rules.max_kept()),
            (IsolationKind::Clone, Cleanup::Never, 10_000_000_000)
        );
    }
}
