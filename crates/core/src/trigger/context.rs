//! The context of a firing: task, payload, prompt, chat and trust.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{FiringKey, Task};
use crate::actor::Actor;

/// Data of a firing, stored with it until its jobs are created.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FiringContext {
    pub task: Task,
    /// Body of a webhook delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// Prompt of the actor who fired it, which replaces the prompt of the schedule or the agent. It is used literally,
    /// not as a template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// Conversation, if the firing came from a chat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chat: Option<String>,
    /// Reason why the text of the firing is not trusted; with a reason, its jobs run in the strict sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confined: Option<String>,
    /// True if it was fired in the dashboard.
    #[serde(rename = "by_page", skip_serializing_if = "std::ops::Not::not")]
    pub from_dashboard: bool,
    /// Actor who requested the firing, if it has to be prepared: the events of its preparation name this actor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<Actor>,
}

/// Key in the metadata of a task that comes from a job whose text was not trusted. The value is the reason.
pub const CONFINED_KEY: &str = "confined";

impl FiringContext {
    /// Creates the context of a task that a strategy passed on.
    pub fn of_task(task: Task) -> Self {
        let confined = task.metadata.get(CONFINED_KEY).cloned();
        Self { task, confined, ..Self::default() }
    }

    /// Creates the context of a firing by hand. A blank prompt counts as unset.
    pub fn by_hand(key: &FiringKey, prompt: Option<String>) -> Self {
        let task = Task { source_id: key.to_string(), ..Task::default() };
        let prompt = prompt.filter(|prompt| !prompt.trim().is_empty());
        Self { task, prompt, ..Self::default() }
    }
}
