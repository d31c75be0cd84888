//! The keys of `work_source`: the queue from which work comes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::github::Auth;
use crate::work::ItemRules;

/// A queue of work outside the fleet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schemars(rename = "WorkSource")]
pub enum WorkSourceConfig {
    /// Issues of a GitHub repository, marked by labels.
    Github {
        /// Repository, `owner/repo`.
        #[serde(default)]
        #[schemars(regex(pattern = r"^[\w.-]+/[\w.-]+$"), extend("examples" = ["my-org/my-repo"]))]
        repo: Option<String>,
        #[serde(default)]
        labels: IssueLabelsConfig,
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
        #[schemars(regex(pattern = "^https?://"), extend("x-address" = true))]
        api_url: Option<String>,
        #[serde(default)]
        auth: Auth,
        #[serde(default, flatten)]
        rules: ItemRules,
    },
    /// A folder of Markdown files with YAML front matter, one for each item.
    Files {
        /// Path of the folder, relative to the file that names it.
        #[schemars(extend("x-path" = true))]
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

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "Labels")]
pub struct IssueLabelsConfig {
    /// Label of available work; unset means `ready`.
    pub ready: Option<String>,
    /// Label of claimed work; unset means `agent-working`.
    pub in_progress: Option<String>,
}
