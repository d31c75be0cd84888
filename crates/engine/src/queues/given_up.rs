//! Items that were given up: nobody works on them before a person has acted.

use cowhand_core::id::{AgentName, JobId, ScheduleName};
use cowhand_core::roster::Roster;
use cowhand_core::work::WorkItemId;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::places;
use cowhand_store::{ItemFailures, Store, StoreError};
use cowhand_work::SourceContext;

/// Why an item was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GivenUp {
    /// How often in a row work on it failed.
    pub failures: u32,
    /// How it failed the last time.
    pub reason: Option<String>,
    pub job: Option<JobId>,
    pub at: Option<Timestamp>,
}

/// An item that was given up, as our store knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GivenUpItem {
    pub id: WorkItemId,
    pub title: String,
    pub given_up: GivenUp,
    /// Whose work it would be.
    pub taken_by: Vec<TakenBy>,
}

/// A schedule that takes from a queue.
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
    /// `failed 3 times in a row, the last time: exit code 3`
    pub fn sentence(&self) -> String {
        let reason = self.reason.as_deref().unwrap_or("the reason was not recorded");
        match self.failures {
            0 => format!("failed: {reason}"),
            1 => format!("failed once: {reason}"),
            more => format!("failed {more} times in a row, the last time: {reason}"),
        }
    }
}

/// What the fleet has given up, without asking the sources.
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
    for failed in failed.iter().filter(|failed| !is_held(failed)) {
        let (mut most_attempts, mut taken_by) = (0, Vec::new());
        for agent in &roster.agents {
            for whose in places(agent) {
                let Some(config) = whose.config() else { continue };
                if config.queue(&setting.base) == failed.queue {
                    most_attempts = most_attempts.max(config.rules().most_attempts());
                    let schedule = whose.schedule.map(|schedule| schedule.name.clone());
                    let by = |schedule| TakenBy { agent: agent.name.clone(), schedule };
                    taken_by.extend(schedule.map(by));
                }
            }
        }
        if !taken_by.is_empty() && failed.is_given_up(most_attempts) {
            let title = failed.item.as_ref().map(|item| item.title.clone()).unwrap_or_default();
            items.push(GivenUpItem { id: failed.id.clone(), title, given_up: failed.into(), taken_by });
        }
    }
    Ok(items)
}
