//! Items that were given up: no agent works on them before a person has acted.

use cowhand_core::id::{AgentName, JobId, ScheduleName};
use cowhand_core::roster::Roster;
use cowhand_core::work::WorkItemId;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{NeededNames, QueueAgents, places};
use cowhand_store::{ItemFailures, Store, StoreError};
use cowhand_work::SourceContext;

/// Reason why an item was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GivenUp {
    /// Number of failures in a row.
    pub failures: u32,
    /// Error of the last failure.
    pub reason: Option<String>,
    pub job: Option<JobId>,
    pub at: Option<Timestamp>,
}

/// An item that was given up, as the store has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GivenUpItem {
    pub id: WorkItemId,
    pub title: String,
    pub given_up: GivenUp,
    /// Whose work it would be; nobody's if no schedule takes from its queue any more.
    pub taken_by: Vec<TakenBy>,
    /// The agents that have its queue.
    #[serde(default)]
    pub agents: Vec<AgentName>,
    #[serde(flatten)]
    pub needed: NeededNames,
}

impl GivenUpItem {
    /// Says why it was given up and what has it tried again.
    pub fn sentence(&self) -> String {
        let (id, why) = (&self.id, self.given_up.sentence());
        let nobody =
            if self.taken_by.is_empty() { ", once a schedule takes from its queue again" } else { "" };
        let named = self.needed.command_words(id);
        format!("{id} {why}; `cowhand work retry {named}` has it tried again{nobody}")
    }
}

/// A schedule that takes items from a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TakenBy {
    pub agent: AgentName,
    pub schedule: ScheduleName,
}

impl From<&ItemFailures> for GivenUp {
    fn from(failed: &ItemFailures) -> Self {
        let ItemFailures { failures, reason, job, failed_at, .. } = failed.clone();
        Self { failures, reason, job, at: failed_at }
    }
}

impl GivenUp {
    /// Returns a sentence such as `failed 3 times in a row, the last time: exit code 3`.
    pub fn sentence(&self) -> String {
        let reason = self.reason.as_deref().unwrap_or("the reason was not recorded");
        match self.failures {
            0 => format!("failed: {reason}"),
            1 => format!("failed once: {reason}"),
            more => format!("failed {more} times in a row, the last time: {reason}"),
        }
    }
}

/// Returns the items that the fleet has given up, without a request to the sources.
pub async fn given_up(
    store: &Store,
    roster: &Roster,
    setting: &SourceContext,
) -> Result<Vec<GivenUpItem>, StoreError> {
    let failed = store.item_failures().await?;
    if failed.is_empty() {
        return Ok(Vec::new());
    }
    let held = store.items().await?;
    let is_held = |failed: &ItemFailures| {
        held.iter().any(|held| held.queue == failed.queue && held.item.id == failed.id)
    };
    let mut items = Vec::new();
    let names = QueueAgents::of(roster, &setting.base);
    for failed in failed.iter().filter(|failed| !is_held(failed)) {
        let (mut most_attempts, mut taken_by, mut agents) = (0, Vec::new(), Vec::new());
        for agent in &roster.agents {
            for whose in places(agent) {
                let Some(config) = whose.config() else { continue };
                if config.queue(&setting.base) == failed.queue {
                    most_attempts = most_attempts.max(config.rules().most_attempts());
                    if !agents.contains(&agent.name) {
                        agents.push(agent.name.clone());
                    }
                    let schedule = whose.schedule.map(|schedule| schedule.name.clone());
                    let by = |schedule| TakenBy { agent: agent.name.clone(), schedule };
                    taken_by.extend(schedule.map(by));
                }
            }
        }
        if !agents.is_empty() && failed.is_given_up(most_attempts) {
            let title = failed.item.as_ref().map(|item| item.title.clone()).unwrap_or_default();
            let (id, given_up) = (failed.id.clone(), failed.into());
            let needed = names.needed_for(&failed.queue);
            items.push(GivenUpItem { id, title, given_up, taken_by, agents, needed });
        }
    }
    Ok(items)
}
