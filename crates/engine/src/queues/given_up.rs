//! Items that were given up: no agent works on them before a person has acted.

use std::path::Path;

use cowhand_core::id::{AgentName, JobId, ScheduleName};
use cowhand_core::roster::{Agent, Roster, Schedule};
use cowhand_core::shell::trigger_words;
use cowhand_core::trigger::Driver;
use cowhand_core::work::WorkItemId;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{NeededNames, QueueAgents, source_owners};
use cowhand_store::{ItemFailures, Store, StoreError};
use cowhand_work::{SourceContext, SourceOwner};

/// Reason why an item was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GivenUp {
    /// Number of failures in a row.
    pub failures: u32,
    /// Error of the last failure.
    pub reason: Option<String>,
    pub job: Option<JobId>,
    pub at: Option<Timestamp>,
    /// Schedule to trigger by hand after a retry; set if the clock fires no schedule that takes from the queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_trigger: Option<TakenBy>,
}

/// An item that was given up, as the store has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GivenUpItem {
    pub id: WorkItemId,
    pub title: String,
    pub given_up: GivenUp,
    /// Schedules that take from the queue of the item; empty if there are none any more.
    pub taken_by: Vec<TakenBy>,
    /// The agents that have the queue of the item.
    #[serde(default)]
    pub agents: Vec<AgentName>,
    #[serde(flatten)]
    pub needed: NeededNames,
}

impl GivenUpItem {
    /// Returns a sentence with the reason why the item was given up, and the command that retries it.
    pub fn sentence(&self) -> String {
        let (id, why) = (&self.id, self.given_up.sentence());
        let condition = if self.taken_by.is_empty() {
            ", once a schedule takes from its queue again".to_owned()
        } else {
            self.given_up.condition()
        };
        let named = self.needed.command_words(id);
        format!("{id} {why}; `cowhand work retry {named}` retries it{condition}")
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
        Self { failures, reason, job, at: failed_at, to_trigger: None }
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

    /// Returns the condition of a retry, such as `, once ... fires its schedule`; empty if there is no condition.
    pub fn condition(&self) -> String {
        let Some(TakenBy { agent, schedule }) = &self.to_trigger else { return String::new() };
        format!(", once `cowhand trigger {}` fires its schedule", trigger_words(agent, schedule))
    }
}

/// Returns the schedule that has to be triggered so that an item of the queue is taken. Returns `None` if the clock
/// fires a schedule that takes from the queue, or if no schedule takes from it.
pub(super) fn to_trigger(roster: &Roster, base: &Path, queue: &str) -> Option<TakenBy> {
    let takes = |owner: &SourceOwner<'_>| owner.config().is_some_and(|config| config.queue(base) == queue);
    let schedules: Vec<(&Agent, &Schedule)> = roster
        .agents
        .iter()
        .flat_map(source_owners)
        .filter(takes)
        .filter_map(|owner| Some((owner.agent, owner.schedule?)))
        .collect();
    let is_by_clock = schedules.iter().any(|(_, schedule)| schedule.trigger.driver() == Driver::Clock);
    let (agent, schedule) = schedules.first().filter(|_| !is_by_clock)?;
    Some(TakenBy { agent: agent.name.clone(), schedule: schedule.name.clone() })
}

/// Returns the items that the fleet has given up, without a request to the sources.
pub async fn given_up(
    store: &Store,
    roster: &Roster,
    context: &SourceContext,
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
    let names = QueueAgents::of(roster, &context.base);
    for failed in failed.iter().filter(|failed| !is_held(failed)) {
        let (mut max_failures, mut taken_by, mut agents) = (0, Vec::new(), Vec::new());
        for agent in &roster.agents {
            for owner in source_owners(agent) {
                let Some(config) = owner.config() else { continue };
                if config.queue(&context.base) == failed.queue {
                    max_failures = max_failures.max(config.rules().max_attempts());
                    if !agents.contains(&agent.name) {
                        agents.push(agent.name.clone());
                    }
                    let schedule = owner.schedule.map(|schedule| schedule.name.clone());
                    let taken = |schedule| TakenBy { agent: agent.name.clone(), schedule };
                    taken_by.extend(schedule.map(taken));
                }
            }
        }
        if !agents.is_empty() && failed.is_given_up(max_failures) {
            let title = failed.item.as_ref().map(|item| item.title.clone()).unwrap_or_default();
            let to_trigger = to_trigger(roster, &context.base, &failed.queue);
            let (id, given_up) = (failed.id.clone(), GivenUp { to_trigger, ..failed.into() });
            let needed = names.needed_for(&failed.queue);
            items.push(GivenUpItem { id, title, given_up, taken_by, agents, needed });
        }
    }
    Ok(items)
}
