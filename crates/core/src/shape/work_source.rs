//! Where work comes from.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

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

/// What happens to an item whose job did not go well, whatever the source.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ItemRules {
    /// Unset means `report`.
    pub on_failure: Option<OnFailure>,
    /// After so many failures an item is left for a person; unset means 3.
    #[schemars(range(min = 1))]
    pub max_item_attempts: Option<u32>,
}

/// When the agent says that it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The source is told, and the item waits for a person.
    Report,
    /// The item goes back to the others.
    Release,
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
    /// A GitHub App instead of a token.
    pub app: Option<AppAuth>,
}

/// A GitHub App. One of the two private keys must be named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AppAuth {
    /// Its id, or its client id.
    pub id: String,
    /// Unset means the one that the repository has.
    #[serde(default)]
    pub installation_id: Option<u64>,
    /// The environment variable that holds the private key in PEM form.
    #[serde(default)]
    pub private_key_env: Option<String>,
    /// The file with the private key, relative to the root config file.
    #[serde(default)]
    pub private_key_file: Option<String>,
}
