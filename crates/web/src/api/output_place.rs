//! The nodes that have the output of a job. Output is not in the store: only the node that ran an attempt has it.

use std::fs;

use cowhand_core::id::JobId;
use cowhand_core::job::JobStatus;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Api, ApiProblem, JobView};
use cowhand_engine::fleet::Fleet;

/// Attempt whose output is on another node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptElsewhere {
    pub attempt: u32,
    pub node: String,
}

/// Nodes of the attempts of a job.
#[derive(Debug, Default)]
pub(super) struct OutputPlace {
    /// Node of the last attempt; none if there was no attempt.
    pub(super) node: Option<String>,
    /// Attempts whose output is not on this node, in order.
    pub(super) elsewhere: Vec<AttemptElsewhere>,
    /// True if all attempts, and at least one, are in `elsewhere`.
    pub(super) has_none_here: bool,
}

impl OutputPlace {
    /// Returns the node of the last attempt, if this node has no output of the job.
    pub(super) fn only_node(&self) -> Option<&str> {
        self.other_node().filter(|_| self.has_none_here)
    }

    /// Returns the node that has the output of the last attempt, if that is another node.
    pub(super) fn other_node(&self) -> Option<&str> {
        other_node(self.node.as_deref(), &self.elsewhere)
    }
}

fn other_node<'a>(node: Option<&'a str>, elsewhere: &[AttemptElsewhere]) -> Option<&'a str> {
    node.filter(|node| elsewhere.last().is_some_and(|last| last.node == **node))
}

/// Describes that the output of a job is on another node, and what to do.
pub(super) fn elsewhere_sentence(job: &JobId, status: JobStatus, node: &str) -> String {
    let ran = if status == JobStatus::Running { "runs" } else { "ran" };
    // The command has no backticks, because the command line adds the `-c` option of this node to such commands.
    format!(
        "{job} {ran} on another node, {node}, and its output is on that node; run there: cowhand logs {job}"
    )
}

impl JobView {
    /// Returns the node that has the output of the last attempt, if that is another node.
    pub fn other_node(&self) -> Option<&str> {
        other_node(self.node.as_deref(), &self.output_elsewhere)
    }

    /// Describes which output of the job is on other nodes; none if all output is on this node.
    pub fn elsewhere_sentence(&self) -> Option<String> {
        if let Some(node) = self.other_node() {
            return Some(elsewhere_sentence(&self.job.id, self.job.status, node));
        }
        let attempts: Vec<String> = self
            .output_elsewhere
            .iter()
            .map(|AttemptElsewhere { attempt, node }| format!("of attempt {attempt} on node {node}"))
            .collect();
        (!attempts.is_empty()).then(|| format!("some output is not on this node: {}", attempts.join(", ")))
    }
}

impl Api {
    /// Returns which nodes have the output of a job.
    pub(super) async fn output_place(&self, job: &JobId) -> Result<OutputPlace, ApiProblem> {
        let history = self.store.history(job.clone()).await?;
        let attempts = history.map(|history| history.attempts).unwrap_or_default();
        let node = attempts.last().map(|attempt| attempt.node.clone());
        // Only one node uses an SQLite store. The name of that node changes after a restore in a new folder.
        if !self.store.is_postgres() {
            return Ok(OutputPlace { node, ..OutputPlace::default() });
        }
        let this = self.daemon().ok().map(Fleet::node).map(str::to_owned).or_else(|| self.state.known_node());
        let is_here = |node: &str| this.as_deref() == Some(node);
        let ran_here = attempts.iter().any(|attempt| is_here(&attempt.node));
        // A person has copied the output of another node to this node.
        let is_copied = !ran_here && fs::metadata(self.state.output(job)).is_ok_and(|file| file.len() > 0);
        let elsewhere = attempts.into_iter().filter(|attempt| !is_copied && !is_here(&attempt.node));
        let elsewhere: Vec<AttemptElsewhere> = elsewhere
            .map(|attempt| AttemptElsewhere { attempt: attempt.number, node: attempt.node })
            .collect();
        let has_none_here = !ran_here && !elsewhere.is_empty();
        Ok(OutputPlace { node, elsewhere, has_none_here })
    }
}
