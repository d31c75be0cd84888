//! Where work comes from.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::github::Auth;
use crate::work::ItemRules;

/// An outside queue of work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum WorkSource {
    /// Issues of a GitHub repository, marked by labels.
    Github {
        /// `owner/repo`
        #[serde(default)]
        #[schemars(regex(pattern = r"^[\w.-]+/[\w.-]+$"), extend("examples" = ["my-org/my-repo"]))]
        repo: Option<String>,
        #[serde(default)]
        labels: Labels,
        /// Issues with one of these are left alone; unset means `blocked` and `wip`.
        #[serde(default)]
        exclude_labels: Option<Vec<String>>,
        /// Put the ready label back when work is released; unset means true.
        #[serde(default)]
        cleanup_on_failure: Option<bool>,
        #[serde(default)]
        #[schemars(extend("x-herdctl" = "claims of dead jobs are always released"))]
        cleanup_in_progress: Option<bool>,
        /// Of GitHub Enterprise, for example `https://github.example.com/api/v3`; unset means GitHub itself.
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
        /// Relative to the file that names it.
        path: String,
        #[serde(default, flatten)]
        rules: ItemRules,
    },
    /// A source that a program built on cowhand has registered.
    Custom {
        /// As it was registered.
        name: String,
        /// Whatever it needs to know.
        #[serde(default)]
        with: Map<String, Value>,
        #[serde(default, flatten)]
        rules: ItemRules,
    },
}

impl WorkSource {
    /// Under which its factory is registered, and with which its items' ids begin.
    pub fn name(&self) -> &str {
        match self {
            Self::Github { .. } => "github",
            Self::Files { .. } => "files",
            Self::Custom { name, .. } => name,
        }
    }

    /// For people: which one of its kind.
    pub fn place(&self) -> &str {
        match self {
            Self::Github { repo, .. } => repo.as_deref().unwrap_or_default(),
            Self::Files { path, .. } => path,
            Self::Custom { name, .. } => name,
        }
    }

    /// The same for everybody who takes items from the same place, so that they do not take the same one.
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
pub struct Labels {
    /// Marks available work; unset means `ready`.
    pub ready: Option<String>,
    /// Marks claimed work; unset means `agent-working`.
    pub in_progress: Option<String>,
}
