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
    /// Attempts whose output is on this node; empty if `elsewhere` is empty.
    pub(super) here: Vec<u32>,
}

impl OutputPlace {
    /// Returns the node of the last attempt, if this node has no output of the job.
    pub(super) fn only_node(&self) -> Option<&str> {
        self.other_node().filter(|_| self.here.is_empty())
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
        let (job, elsewhere) = (&self.job.id, &self.output_elsewhere);
        let is_on_one_node = elsewhere.windows(2).all(|pair| pair[0].node == pair[1].node);
        if let Some(node) = self.other_node().filter(|_| is_on_one_node && self.output_here.is_empty()) {
            return Some(elsewhere_sentence(job, self.job.status, node));
        }
        let attempts: Vec<String> = elsewhere
            .iter()
            .map(|AttemptElsewhere { attempt, node }| format!("of attempt {attempt} on node {node}"))
            .collect();
        let here: Vec<String> = self.output_here.iter().map(ToString::to_string).collect();
        let here = match here.as_slice() {
            [] => format!("no output of {job} is on this node"),
            [one] => format!("this node has only the output of attempt {one} of {job}"),
            several => format!("this node has only the output of attempts {} of {job}", several.join(", ")),
        };
        (!attempts.is_empty()).then(|| {
            format!("{here}; the output {} is elsewhere; run there: cowhand logs {job}", attempts.join(", "))
        })
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
        // Output without an attempt on this node means that a person has copied the output from another node.
        let is_copied = !ran_here && fs::metadata(self.state.output(job)).is_ok_and(|file| file.len() > 0);
        let (here, elsewhere): (Vec<_>, Vec<_>) =
            attempts.into_iter().partition(|attempt| is_copied || is_here(&attempt.node));
        let elsewhere: Vec<AttemptElsewhere> = elsewhere
            .into_iter()
            .map(|attempt| AttemptElsewhere { attempt: attempt.number, node: attempt.node })
            .collect();
        let here = here.into_iter().map(|attempt| attempt.number).filter(|_| !elsewhere.is_empty()).collect();
        Ok(OutputPlace { node, elsewhere, here })
    }
}
