//! The options of a node: labels and capacity. They belong to the machine, so they are not in the config.

use clap::Args;
use cowhand_core::label::{NodeLabel, NodeLabelError};
use serde::{Deserialize, Serialize};

use super::{Exit, Failure};
use cowhand_engine::nodes::NodeOptions;

#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct NodeArgs {
    /// Label of this node, which agents can name in `runs_on`; can be repeated [env: `COWHAND_LABELS`, with commas]
    #[arg(long = "label", value_name = "NAME[=VALUE]")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    labels: Vec<NodeLabel>,
    /// Maximum number of jobs that run on this node at a time [env: `COWHAND_CAPACITY`] [default: no limit]
    #[arg(long, value_name = "JOBS", value_parser = clap::value_parser!(u32).range(1..))]
    #[serde(skip_serializing_if = "Option::is_none")]
    capacity: Option<u32>,
}

/// Labels of a node, separated by commas.
const LABELS_VARIABLE: &str = "COWHAND_LABELS";
const CAPACITY_VARIABLE: &str = "COWHAND_CAPACITY";

impl NodeArgs {
    /// Returns these options, and those of the environment for options that are not given. An empty variable counts as
    /// not set.
    pub(super) fn with_environment(self) -> Result<Self, Failure> {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let labels = variable(LABELS_VARIABLE).unwrap_or_default();
        let labels = labels.split(',').map(str::trim).filter(|label| !label.is_empty());
        let labels = labels.map(str::parse).collect::<Result<_, NodeLabelError>>();
        let labels = labels.map_err(|error| usage_failure(LABELS_VARIABLE, &error))?;
        let capacity = match variable(CAPACITY_VARIABLE) {
            Some(text) => match text.trim().parse() {
                Ok(capacity) if capacity > 0 => Some(capacity),
                _ => {
                    return Err(usage_failure(
                        CAPACITY_VARIABLE,
                        &format!("{text:?} is not a number above 0"),
                    ));
                }
            },
            None => None,
        };
        Ok(self.or(Self { labels, capacity }))
    }

    pub(super) fn options(&self) -> NodeOptions {
        NodeOptions { labels: self.labels.clone(), capacity: self.capacity }
    }

    /// Returns these options, and those of `older` for options that are not given.
    pub(super) fn or(self, older: Self) -> Self {
        Self {
            labels: if self.labels.is_empty() { older.labels } else { self.labels },
            capacity: self.capacity.or(older.capacity),
        }
    }

    /// Returns the same options as arguments, for a daemon in the background.
    pub(super) fn arguments(&self) -> Vec<String> {
        let labels = self.labels.iter().flat_map(|label| ["--label".to_owned(), label.to_string()]);
        let capacity =
            self.capacity.into_iter().flat_map(|capacity| ["--capacity".to_owned(), capacity.to_string()]);
        labels.chain(capacity).collect()
    }
}

fn usage_failure(variable: &str, why: &dyn std::fmt::Display) -> Failure {
    Failure::new(Exit::Usage, format!("the environment variable {variable} cannot be used: {why}"))
}
