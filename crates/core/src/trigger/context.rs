//! What a firing is about.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{FiringKey, Task};

/// What a firing is about; kept with it until its jobs are made.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FiringContext {
    pub task: Task,
    /// The body of a webhook delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// Given by whoever fired it, instead of the schedule's or the agent's own; taken as it is, not as a template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The conversation that it is of, if it is of a chat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat: Option<String>,
    /// Why its words are not trusted, so that its jobs run in the strict sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confined: Option<String>,
    /// Somebody fired it in the dashboard.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub by_page: bool,
}

/// In a task's metadata: it comes from a job whose words were not trusted, and why not.
pub const CONFINED: &str = "confined";

impl FiringContext {
    /// What a strategy hands on.
    pub fn of_task(task: Task) -> Self {
        let confined = task.metadata.get(CONFINED).cloned();
        Self { task, confined, ..Self::default() }
    }

    /// What a person hands on who fires it.
    pub fn by_hand(key: &FiringKey, prompt: Option<String>) -> Self {
        let task = Task { source_id: key.to_string(), ..Task::default() };
        let prompt = prompt.filter(|prompt| !prompt.trim().is_empty());
        Self { task, prompt, ..Self::default() }
    }
}
