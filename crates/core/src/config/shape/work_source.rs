//! Where work comes from.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
        #[serde(default)]
        auth: Auth,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Labels {
    /// Marks available work; unset means `ready`.
    pub ready: Option<String>,
    /// Marks claimed work; unset means `agent-working`.
    pub in_progress: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Auth {
    /// The environment variable that holds the token; unset means `GITHUB_TOKEN`.
    pub token_env: Option<String>,
}
