//! Work sources as configured: the queues from which work comes, with defaults applied.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::cut::indexed;
use crate::github::Auth;
use crate::shape::{IssueLabelsConfig, WorkSourceConfig};
use crate::work::ItemRules;

/// A queue of work outside the fleet. The store contains it in the form of the config.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WorkSourceConfig", into = "WorkSourceConfig")]
pub enum ConfiguredSource {
    /// Issues of a GitHub repository, marked by labels.
    Github {
        /// Repository, `owner/repo`; no items can be taken from a source without a repository.
        repo: Option<String>,
        labels: IssueLabels,
        /// Labels of issues to ignore.
        exclude_labels: Vec<String>,
        /// True if a release restores the ready label.
        cleanup_on_failure: bool,
        /// API address of GitHub Enterprise; none means github.com.
        api_url: Option<String>,
        auth: Auth,
        rules: ItemRules,
    },
    /// A folder of Markdown files with YAML front matter, one for each item.
    Files {
        /// Path of the folder, which the loader has resolved relative to the file that names it.
        path: String,
        rules: ItemRules,
    },
    /// A source that a program built on cowhand has registered.
    Custom {
        /// Name under which it was registered.
        name: String,
        /// Settings of the source.
        with: Map<String, Value>,
        rules: ItemRules,
    },
}

/// Labels that mark the state of an issue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssueLabels {
    /// Label of available work.
    pub ready: String,
    /// Label of claimed work.
    pub in_progress: String,
}

impl Default for IssueLabels {
    fn default() -> Self {
        Self { ready: "ready".to_owned(), in_progress: "agent-working".to_owned() }
    }
}

/// Returns the default labels of issues to ignore.
pub fn default_exclude_labels() -> Vec<String> {
    ["blocked", "wip"].map(str::to_owned).into()
}

impl From<WorkSourceConfig> for ConfiguredSource {
    fn from(config: WorkSourceConfig) -> Self {
        match config {
            WorkSourceConfig::Github {
                repo,
                labels,
                exclude_labels,
                cleanup_on_failure,
                cleanup_in_progress: _,
                api_url,
                auth,
                rules,
            } => Self::Github {
                repo,
                labels: labels.into(),
                exclude_labels: exclude_labels.unwrap_or_else(default_exclude_labels),
                cleanup_on_failure: cleanup_on_failure.unwrap_or(true),
                api_url,
                auth,
                rules,
            },
            WorkSourceConfig::Files { path, rules } => Self::Files { path, rules },
            WorkSourceConfig::Custom { name, with, rules } => Self::Custom { name, with, rules },
        }
    }
}

impl From<ConfiguredSource> for WorkSourceConfig {
    fn from(source: ConfiguredSource) -> Self {
        match source {
            ConfiguredSource::Github {
                repo,
                labels,
                exclude_labels,
                cleanup_on_failure,
                api_url,
                auth,
                rules,
            } => Self::Github {
                repo,
                labels: IssueLabelsConfig {
                    ready: Some(labels.ready),
                    in_progress: Some(labels.in_progress),
                },
                exclude_labels: Some(exclude_labels),
                cleanup_on_failure: Some(cleanup_on_failure),
                cleanup_in_progress: None,
                api_url,
                auth,
                rules,
            },
            ConfiguredSource::Files { path, rules } => Self::Files { path, rules },
            ConfiguredSource::Custom { name, with, rules } => Self::Custom { name, with, rules },
        }
    }
}

impl From<IssueLabelsConfig> for IssueLabels {
    fn from(config: IssueLabelsConfig) -> Self {
        let default = Self::default();
        Self {
            ready: config.ready.unwrap_or(default.ready),
            in_progress: config.in_progress.unwrap_or(default.in_progress),
        }
    }
}

impl ConfiguredSource {
    /// Returns the name under which its factory is registered and with which the ids of its items begin.
    pub fn name(&self) -> &str {
        match self {
            Self::Github { .. } => "github",
            Self::Files { .. } => "files",
            Self::Custom { name, .. } => name,
        }
    }

    /// Returns the repository, path or name, for people. Empty for a GitHub source without a repository.
    pub fn location(&self) -> &str {
        match self {
            Self::Github { repo, .. } => repo.as_deref().unwrap_or_default(),
            Self::Files { path, .. } => path,
            Self::Custom { name, .. } => name,
        }
    }

    /// Returns the name of the queue. Agents that take items from the same source have the same queue, so that they do
    /// not take the same item. If the name would be too long for an index of the store, a UUID replaces all but its
    /// first word. `base` is the folder of the root file.
    pub fn queue(&self, base: &Path) -> String {
        let name = match self {
            Self::Github { repo, api_url, .. } => {
                let repo = repo.as_deref().unwrap_or_default().to_lowercase();
                format!("github {} {repo}", api_url.as_deref().unwrap_or("github.com").trim_end_matches('/'))
            }
            Self::Files { path, .. } => format!("files {}", base.join(path).display()),
            Self::Custom { name, with, .. } => format!("{name} {}", Value::Object(with.clone())),
        };
        indexed(&name).into_owned()
    }

    /// Checks whether only the owner of the fleet writes the items. This is true of files in a folder of the owner.
    pub const fn is_of_owner(&self) -> bool {
        match self {
            Self::Files { .. } => true,
            Self::Github { .. } | Self::Custom { .. } => false,
        }
    }

    pub fn rules(&self) -> &ItemRules {
        match self {
            Self::Github { rules, .. } | Self::Files { rules, .. } | Self::Custom { rules, .. } => rules,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of the store contain sources as earlier versions wrote them: with null for a key that was not set.
    #[test]
    fn sources_stored_by_earlier_versions_are_read() {
        let unset = r#"{"type":"github","repo":"o/r","labels":{"ready":null,"in_progress":null},"exclude_labels":null,
            "cleanup_on_failure":null,"cleanup_in_progress":null,"api_url":null,"auth":{"token_env":null,"app":null}}"#;
        let unset: ConfiguredSource = serde_json::from_str(unset).unwrap();
        let plain: ConfiguredSource = serde_json::from_str(r#"{"type":"github","repo":"o/r"}"#).unwrap();
        assert_eq!(unset, plain);
        let stored = serde_json::to_string(&plain).unwrap();
        assert_eq!(serde_json::from_str::<ConfiguredSource>(&stored).unwrap(), plain);
        let ConfiguredSource::Github { labels, exclude_labels, cleanup_on_failure, .. } = plain else {
            panic!()
        };
        assert_eq!((labels.ready.as_str(), labels.in_progress.as_str()), ("ready", "agent-working"));
        assert_eq!(
            (exclude_labels, cleanup_on_failure),
            (vec!["blocked".to_owned(), "wip".to_owned()], true)
        );
    }
}
