//! The keys of `work_source`: the queue from which work comes.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::github::Auth;
use crate::work::ItemRules;

/// A queue of work outside the fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum WorkSource {
    /// Issues of a GitHub repository, marked by labels.
    Github {
        /// Repository, `owner/repo`.
        #[serde(default)]
        #[schemars(regex(pattern = r"^[\w.-]+/[\w.-]+$"), extend("examples" = ["my-org/my-repo"]))]
        repo: Option<String>,
        #[serde(default)]
        labels: IssueLabels,
        /// Labels of issues to ignore; unset means `blocked` and `wip`.
        #[serde(default)]
        exclude_labels: Option<Vec<String>>,
        /// Restore the ready label when work is released; unset means true.
        #[serde(default)]
        cleanup_on_failure: Option<bool>,
        #[serde(default)]
        #[schemars(extend("x-herdctl" = "claims of dead jobs are always released"))]
        cleanup_in_progress: Option<bool>,
        /// API address of GitHub Enterprise, for example `https://github.example.com/api/v3`; unset means github.com.
        #[serde(default)]
        #[schemars(regex(pattern = "^https?://"))]
        api_url: Option<String>,
        #[serde(default)]
        auth: Auth,
        #[serde(default, flatten)]
        rules: ItemRules,
    },
    /// A folder of Markdown files with YAML front matter, one for each item.
    Files {
        /// Path of the folder, relative to the file that names it.
        path: String,
        #[serde(default, flatten)]
        rules: ItemRules,
    },
    /// A source that a program built on cowhand has registered.
    Custom {
        /// Name under which it was registered.
        name: String,
        /// Settings of the source.
        #[serde(default)]
        with: Map<String, Value>,
        #[serde(default, flatten)]
        rules: ItemRules,
    },
}

impl WorkSource {
    /// Returns the name under which its factory is registered and with which the ids of its items begin.
    pub fn name(&self) -> &str {
        match self {
            Self::Github { .. } => "github",
            Self::Files { .. } => "files",
            Self::Custom { name, .. } => name,
        }
    }

    /// Returns the repository, path or name, for people.
    pub fn place(&self) -> &str {
        match self {
            Self::Github { repo, .. } => repo.as_deref().unwrap_or_default(),
            Self::Files { path, .. } => path,
            Self::Custom { name, .. } => name,
        }
    }

    /// Returns the name of the queue, which is the same for all agents that take items from the same place, so that
    /// they do not take the same item.
    pub fn queue(&self, base: &Path) -> String {
        match self {
            Self::Github { repo, api_url, .. } => {
                let repo = repo.as_deref().unwrap_or_default().to_lowercase();
                format!("github {} {repo}", api_url.as_deref().unwrap_or("github.com").trim_end_matches('/'))
            }
            Self::Files { path, .. } => format!("files {}", base.join(path).display()),
            Self::Custom { name, with, .. } => format!("{name} {}", Value::Object(with.clone())),
        }
    }

    pub fn rules(&self) -> &ItemRules {
        match self {
            Self::Github { rules, .. } | Self::Files { rules, .. } | Self::Custom { rules, .. } => rules,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Labels")]
pub struct IssueLabels {
    /// Label of available work; unset means `ready`.
    pub ready: Option<String>,
    /// Label of claimed work; unset means `agent-working`.
    pub in_progress: Option<String>,
}
