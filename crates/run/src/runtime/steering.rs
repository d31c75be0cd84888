//! The messages to a job that its agent has confirmed, as readers see them.

use std::collections::BTreeMap;
use std::sync::Arc;

use cowhand_core::output::OutputMessage;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The messages to a job, as they appear in its output, by their ids. A later daemon has them from the store, so they
/// are not part of a checkpoint.
pub type KnownMessages = Arc<BTreeMap<Uuid, OutputMessage>>;

/// The messages that the agent of an attempt has confirmed. A job has a limited number of messages, so this state is
/// small.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Confirmed {
    messages: Vec<Uuid>,
    #[serde(skip)]
    known: KnownMessages,
}

impl Confirmed {
    /// Records that the agent has a message. Returns the message for the output, nothing if the agent has confirmed it
    /// before, or `None` if no message to the job has this id.
    pub(super) fn confirm(&mut self, id: Uuid) -> Option<Vec<OutputMessage>> {
        let message = self.known.get(&id)?;
        if self.messages.contains(&id) {
            return Some(Vec::new());
        }
        self.messages.push(id);
        Some(vec![message.clone()])
    }

    pub(super) fn messages(&self) -> &[Uuid] {
        &self.messages
    }

    pub(super) fn set_known(&mut self, known: KnownMessages) {
        self.known = known;
    }
}
