//! Notifications: sends one notification to its target. `daemon/notifications` decides when.

mod chat;
mod command;
mod email;
pub mod view;
mod webhook;

use std::time::Duration;

use cowhand_core::notification::{NotificationKind, NotificationMessage, NotificationTarget, TargetAction};
use serde::Serialize;

use crate::context::Engine;
use crate::loaded::Loaded;
use crate::secrets::{self, redactor_over};
use cowhand_run::redact::Redactor;
use cowhand_store::{NotificationRecord, StoreError};

pub use command::clear_inputs;

/// Reason why a try failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendError {
    pub reason: String,
    /// Pause that the target asks for.
    pub retry_after: Option<Duration>,
    /// True if the config no longer has the target.
    pub is_unknown_target: bool,
}

impl SendError {
    fn new(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), retry_after: None, is_unknown_target: false }
    }
}

/// A notification on its way to its target, with its secrets masked.
struct Sending<'a> {
    engine: &'a Engine,
    loaded: &'a Loaded,
    target: &'a NotificationTarget,
    record: &'a NotificationRecord,
    message: NotificationMessage,
    /// Id that is the same for each try.
    delivery: String,
    fleet: String,
    redactor: Redactor,
}

/// The JSON that webhooks and commands get.
#[derive(Debug, Serialize)]
struct NotificationPayload<'a> {
    delivery: &'a str,
    /// Name of the target.
    target: &'a str,
    /// Name of the fleet; absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    fleet: Option<&'a str>,
    number: i64,
    #[serde(flatten)]
    message: &'a NotificationMessage,
}

/// Tries once to send a notification.
pub async fn send(engine: &Engine, record: &NotificationRecord) -> Result<(), SendError> {
    let loaded = engine.loaded();
    let Some(target) = loaded.roster.notifications.targets.get(&record.target) else {
        let reason = format!("the config no longer has the target `{}`", record.target);
        return Err(SendError { is_unknown_target: true, ..SendError::new(reason) });
    };
    let fleet = engine.store.fleet_id().await.map_err(|error| not_read(&error))?;
    let redactor = redactor_over(&loaded, None).with_secrets(secrets::of_target(target));
    let sending = Sending {
        engine,
        loaded: &loaded,
        target,
        record,
        message: record.message.clone().map_texts(|text| redactor.redact(text).into_owned()),
        delivery: format!("{fleet}.{}", record.id),
        fleet,
        redactor: redactor.clone(),
    };
    let sent = sending.run().await;
    sent.map_err(|error| SendError { reason: redactor.redact(&error.reason).into_owned(), ..error })
}

fn not_read(error: &StoreError) -> SendError {
    SendError::new(format!("the store cannot be read: {error}"))
}

impl Sending<'_> {
    async fn run(&self) -> Result<(), SendError> {
        match &self.target.action {
            TargetAction::Slack { channel_id, bot_token_env } => {
                chat::slack(self, channel_id, bot_token_env).await
            }
            TargetAction::Discord { channel_id, bot_token_env } => {
                chat::discord(self, channel_id, bot_token_env).await
            }
            TargetAction::Webhook { .. } => webhook::send(self).await,
            TargetAction::Email { .. } => email::send(self).await,
            TargetAction::Command { command, directory } => command::run(self, command, directory).await,
        }
    }

    /// Returns a variable of the environment or of `.env`.
    fn variable(&self, name: &str) -> Result<String, SendError> {
        let found = self.loaded.sources.context().variable(name).filter(|value| !value.is_empty());
        found.ok_or_else(|| SendError::new(format!("the environment variable {name} is not set")))
    }

    fn payload(&self) -> Result<Vec<u8>, SendError> {
        let payload = NotificationPayload {
            delivery: &self.delivery,
            target: &self.record.target,
            fleet: self.loaded.roster.name.as_deref(),
            number: self.record.id,
            message: &self.message,
        };
        serde_json::to_vec(&payload).map_err(|error| SendError::new(format!("it is not JSON: {error}")))
    }

    /// Returns one line with the severity and the title.
    fn headline(&self) -> String {
        let label = match self.message.kind {
            NotificationKind::Ended => "over",
            NotificationKind::Test => "test",
            NotificationKind::Opened
            | NotificationKind::Update
            | NotificationKind::Reminder
            | NotificationKind::Digest => self.message.severity.as_str(),
        };
        format!("[{label}] {}", self.message.title)
    }

    /// Returns a line that identifies the notification, so that no two messages have the same text.
    fn footer(&self) -> String {
        match &self.loaded.roster.name {
            Some(fleet) => format!("cowhand, fleet {fleet}, notification {}", self.record.id),
            None => format!("cowhand, notification {}", self.record.id),
        }
    }
}
