//! Files that are in the folder of a work source and are not work items. No agent takes such files.

use cowhand_core::id::AgentName;
use cowhand_core::roster::Roster;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::given_up::TakenBy;
use super::{queues, source_owners};
use cowhand_work::{SOURCE_READ_TIMEOUT, WorkSources, with_timeout};

/// Files of a queue that are no items.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SkippedFiles {
    /// Name of the queue.
    pub queue: String,
    /// Number of the files.
    pub files: usize,
    /// Agents that take items from the queue.
    pub agents: Vec<AgentName>,
    /// Schedules that take items from the queue.
    pub taken_by: Vec<TakenBy>,
}

impl SkippedFiles {
    /// Returns a sentence with the number of files, and the command that explains them.
    pub fn sentence(&self) -> String {
        let files = match self.files {
            1 => "1 file that is not a work item".to_owned(),
            more => format!("{more} files that are not work items"),
        };
        format!("{} has {files}; run `cowhand doctor` for the reasons", self.queue)
    }
}

/// Returns the queues with files that are not items. A source that cannot be read is left out, because other code
/// reports that error.
pub async fn skipped_files(sources: &WorkSources, roster: &Roster) -> Vec<SkippedFiles> {
    let mut found = Vec::new();
    for queue in queues(sources, roster, None) {
        let files = with_timeout(SOURCE_READ_TIMEOUT, queue.source.skipped()).await.unwrap_or_default();
        if files == 0 {
            continue;
        }
        let base = &sources.context().base;
        let owners = roster.agents.iter().flat_map(source_owners);
        let owners =
            owners.filter(|owner| owner.config().is_some_and(|config| config.queue(base) == queue.name));
        let taken_by = owners.filter_map(|owner| {
            let schedule = owner.schedule?.name.clone();
            Some(TakenBy { agent: owner.agent.name.clone(), schedule })
        });
        found.push(SkippedFiles {
            taken_by: taken_by.collect(),
            files,
            agents: queue.agents,
            queue: queue.name,
        });
    }
    found
}
