//! Messages to the job of an attempt: they are passed to its folder, and their delivery is recorded.
//!
//! The store has every message before the attempt gets it. The messages that wait are passed on at the start of the
//! attempt, and whenever the daemon is told that there are new ones. What the agent has confirmed is read from its
//! output, so no message is lost or delivered twice if the daemon ends at any point.

use std::collections::BTreeMap;
use std::sync::Arc;

use cowhand_core::output::OutputMessage;
use cowhand_core::steering::{SteeringMessage, SteeringState};
use jiff::Timestamp;
use serde_json::{Map, Value};
use tokio::sync::Notify;
use tracing::warn;

use super::AttemptTask;
use super::rules::Rules;
use cowhand_run::attempt::Attempt;
use cowhand_run::input::InputMessage;
use cowhand_run::redact::Redactor;
use cowhand_run::runtime::KnownMessages;
use cowhand_run::tail::Tailer;
use cowhand_store::StoreError;
use cowhand_system::fault;

/// What a followed attempt knows about the messages to its job.
pub(super) struct MessageFeed {
    notice: Arc<Notify>,
    /// True if the job may have messages that are not passed on.
    has_news: bool,
    /// Number of confirmed messages whose delivery is recorded.
    recorded: usize,
}

impl MessageFeed {
    /// Waits until the job may have new messages.
    pub(super) async fn noticed(&mut self) {
        self.notice.notified().await;
        self.has_news = true;
    }
}

impl AttemptTask {
    /// Begins to feed the attempt. The messages that wait are passed on by the first [`Self::pass_messages_on`].
    pub(super) fn message_feed(&self) -> MessageFeed {
        MessageFeed { notice: self.engine.message_notice(self.job.id()), has_news: true, recorded: 0 }
    }

    /// Passes new messages on to the keeper. If this fails, the next look tries again.
    pub(super) async fn pass_messages_on(&self, feed: &mut MessageFeed, tail: &mut Tailer, rules: &Rules) {
        if !std::mem::take(&mut feed.has_news) {
            return;
        }
        if let Err(error) = self.pass_waiting_on(tail, rules).await {
            warn!(job = %self.job.id(), "cannot pass a message to its agent yet: {error:#}");
            feed.has_news = true;
        }
    }

    async fn pass_waiting_on(&self, tail: &mut Tailer, rules: &Rules) -> anyhow::Result<()> {
        let messages = self.engine.store.messages_of(self.job.id().clone()).await?;
        // The tailer has to know a message before the agent can confirm it.
        tail.set_messages(known_messages(&messages, &self.redactor(rules)));
        let attempt = self.attempt();
        let is_fed = attempt.start().is_ok_and(|start| start.input.is_some());
        let began = attempt.agent_began();
        let waiting: Vec<InputMessage> = messages
            .into_iter()
            .filter(|message| message.state == SteeringState::Pending)
            .map(|message| input(message, began))
            .collect();
        if waiting.is_empty() || !is_fed {
            return Ok(());
        }
        fault::point("message-passed");
        attempt.on_blocking_thread(move |attempt: &Attempt| attempt.pass_on(&waiting)).await?;
        Ok(())
    }

    /// Records which messages the agent has confirmed. If this fails, the settlement of the attempt records them.
    pub(super) async fn record_deliveries(&self, feed: &mut MessageFeed, tail: &Tailer) {
        let confirmed = tail.confirmed_messages();
        if confirmed.len() <= feed.recorded {
            return;
        }
        fault::point("message-confirmed");
        let (job, count) = (self.job.id().clone(), confirmed.len());
        match self.engine.store.messages_delivered(job, self.epoch, confirmed.to_vec(), self.now()).await {
            Ok(()) => feed.recorded = count,
            Err(error) => {
                warn!(job = %self.job.id(), "cannot record the delivery of a message yet: {error}");
            }
        }
    }

    /// Returns the messages to the job as they appear in its output.
    pub(super) async fn known_messages(&self, rules: &Rules) -> Result<KnownMessages, StoreError> {
        let messages = self.engine.store.messages_of(self.job.id().clone()).await?;
        Ok(known_messages(&messages, &self.redactor(rules)))
    }
}

/// Returns a message for an agent that began at this time. A message that was sent before ends no turn of this agent.
fn input(message: SteeringMessage, began: Option<Timestamp>) -> InputMessage {
    let SteeringMessage { uuid, text, interrupt, sent_at, .. } = message;
    let interrupt = interrupt && began.is_some_and(|began| began <= sent_at);
    InputMessage { uuid, text, interrupt }
}

fn known_messages(messages: &[SteeringMessage], redactor: &Redactor) -> KnownMessages {
    let known: BTreeMap<_, _> =
        messages.iter().map(|message| (message.uuid, output_message(message, redactor))).collect();
    Arc::new(known)
}

/// Returns a message as the output of the job shows it.
fn output_message(message: &SteeringMessage, redactor: &Redactor) -> OutputMessage {
    let mut extra = Map::new();
    extra.insert("number".to_owned(), message.number.into());
    extra.insert("by".to_owned(), message.sender().into());
    extra.insert("sent_at".to_owned(), message.sent_at.to_string().into());
    if message.interrupt {
        extra.insert("interrupt".to_owned(), Value::Bool(true));
    }
    OutputMessage::System {
        subtype: Some(OutputMessage::STEERING.to_owned()),
        content: Some(redactor.redact(&message.text).into_owned()),
        timestamp: None,
        extra,
    }
}
