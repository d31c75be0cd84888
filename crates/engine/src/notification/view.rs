//! Notifications as people see them. Works without a daemon.

use std::collections::BTreeMap;

use cowhand_core::duration;
use cowhand_core::notification::{
    IncidentSeverity, NotificationKind, NotificationMessage, NotificationState,
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use cowhand_store::{NotificationRecord, Store, StoreError};

/// A notification with its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Notification")]
pub struct NotificationView {
    pub number: i64,
    pub target: String,
    pub kind: NotificationKind,
    pub severity: IncidentSeverity,
    pub state: NotificationState,
    pub title: String,
    pub created_at: Timestamp,
    /// Time until which quiet hours hold it back; absent if they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until: Option<Timestamp>,
    /// Time of the next try; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Timestamp>,
    /// Number of tries that have begun.
    pub tries: u32,
    /// Why the last try failed, or why it was dropped; absent after a success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    /// Number of the digest that contains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part_of: Option<i64>,
    /// The content, as webhooks and commands get it.
    pub message: NotificationMessage,
}

/// A target that did not get its last notifications.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct UndeliveredTarget {
    pub target: String,
    /// Number of notifications that are tried again.
    pub waiting: usize,
    /// Number of notifications that are not tried again.
    pub failed: usize,
    /// Time of the oldest of these notifications.
    pub since: Timestamp,
    /// Time of the next try; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Timestamp>,
    pub last_error: String,
}

impl From<NotificationRecord> for NotificationView {
    fn from(record: NotificationRecord) -> Self {
        let NotificationRecord { id, target, kind, state, message, created_at, not_before, is_held, .. } =
            record;
        let is_waiting = state == NotificationState::Waiting;
        Self {
            number: id,
            target,
            kind,
            severity: message.severity,
            state,
            title: message.title.clone(),
            created_at,
            held_until: Some(not_before).filter(|_| is_waiting && is_held),
            next_try: Some(not_before).filter(|_| is_waiting && !is_held),
            tries: record.tries,
            last_error: record.last_error,
            ended_at: record.ended_at,
            part_of: record.part_of,
            message,
        }
    }
}

impl UndeliveredTarget {
    /// Describes on one line what could not be delivered, why, and what to do.
    pub fn sentence(&self, now: Timestamp) -> String {
        let count = self.waiting + self.failed;
        let what = if count == 1 { "1 notification".to_owned() } else { format!("{count} notifications") };
        let since = duration::relative_to_now(now, self.since);
        let next = match (self.next_try, self.failed) {
            (Some(at), _) => format!("next try {}", duration::until(now, at)),
            (None, 0) => "it is being tried".to_owned(),
            (None, _) => "not tried again".to_owned(),
        };
        format!(
            "{what} to `{}` could not be delivered, the oldest from {since}; {next}: {}; `cowhand notify test {}` \
             tries the target now",
            self.target,
            self.last_error.trim_end_matches('.'),
            cowhand_core::shell::shell_word(&self.target)
        )
    }
}

/// Returns the targets whose last notifications could not be delivered, by name.
pub async fn undelivered_targets(store: &Store) -> Result<Vec<UndeliveredTarget>, StoreError> {
    let mut targets: BTreeMap<String, UndeliveredTarget> = BTreeMap::new();
    // The newest comes first, so the first error of a target is its last one.
    for record in store.undelivered_notifications().await? {
        let Some(error) = record.last_error else { continue };
        let is_open = record.state.is_open();
        let next_try = Some(record.not_before).filter(|_| record.state == NotificationState::Waiting);
        let target = targets.entry(record.target.clone()).or_insert_with(|| UndeliveredTarget {
            target: record.target,
            waiting: 0,
            failed: 0,
            since: record.created_at,
            next_try: None,
            last_error: error,
        });
        target.waiting += usize::from(is_open);
        target.failed += usize::from(!is_open);
        target.since = target.since.min(record.created_at);
        target.next_try = [target.next_try, next_try].into_iter().flatten().min();
    }
    Ok(targets.into_values().collect())
}
