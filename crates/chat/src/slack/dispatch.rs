//! Passes on events in their order, and acknowledges them when they are stored.

use std::sync::PoisonError;

use cowhand_core::chat::{BotAccount, ButtonPress, ChatEvent, ChatPlace, ChatUser, CommandCall};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::SlackConnector;
use super::event::{EventSource, SlackEvent};
use super::socket::{Envelope, EnvelopeKind};
use crate::{ConnectionEnd, EventReply, ReceivedEvent};

/// Item that the connection has received.
pub(super) enum Incoming {
    Connected(BotAccount),
    Envelope(Envelope),
}

/// The receiver of the events was dropped.
struct EventsDropped;

impl SlackConnector {
    pub(super) async fn dispatch(
        &self,
        mut queue: mpsc::Receiver<Incoming>,
        events: &mpsc::Sender<ReceivedEvent>,
    ) -> ConnectionEnd {
        while let Some(incoming) = queue.recv().await {
            let passed = match incoming {
                Incoming::Connected(account) => {
                    pass(ChatEvent::Connected(account), oneshot::channel().0, events).await
                }
                Incoming::Envelope(envelope) => match envelope.kind {
                    EnvelopeKind::Event => self.pass_event(&envelope, events).await,
                    EnvelopeKind::Command | EnvelopeKind::Interactive => {
                        self.pass_interaction(envelope, events).await
                    }
                },
            };
            if passed.is_err() {
                break;
            }
        }
        ConnectionEnd::Stopped
    }

    /// Passes on an event, and acknowledges it if it is stored.
    async fn pass_event(
        &self,
        envelope: &Envelope,
        events: &mpsc::Sender<ReceivedEvent>,
    ) -> Result<(), EventsDropped> {
        let Some(SlackEvent { event, source }) = self.read_event(&envelope.payload).await else {
            envelope.acknowledgement.send(None);
            return Ok(());
        };
        let id = match &event {
            ChatEvent::Message(message) => Some(message.id.clone()),
            _ => None,
        };
        let (reply, replied) = oneshot::channel();
        pass(event, reply, events).await?;
        if replied.await.is_ok() {
            envelope.acknowledgement.send(None);
            if let Some(id) = id {
                self.recent.lock().unwrap_or_else(PoisonError::into_inner).insert(id, source);
            }
        }
        Ok(())
    }

    async fn pass_interaction(
        &self,
        envelope: Envelope,
        events: &mpsc::Sender<ReceivedEvent>,
    ) -> Result<(), EventsDropped> {
        let Some(reply) = envelope.reply else { return Ok(()) };
        let event = match envelope.kind {
            EnvelopeKind::Command => Some(self.read_command(&envelope.payload).await),
            EnvelopeKind::Event | EnvelopeKind::Interactive => self.read_press(&envelope.payload).await,
        };
        let Some(event) = event else {
            // Other interactions, for example shortcuts, are acknowledged and ignored.
            let _ = reply.send(EventReply::Stored);
            return Ok(());
        };
        pass(event, reply, events).await
    }

    async fn read_command(&self, payload: &Value) -> ChatEvent {
        let text = |key: &str| payload[key].as_str().unwrap_or_default();
        let (channel, user) = (text("channel_id"), text("user_id"));
        ChatEvent::Command(CommandCall {
            id: text("trigger_id").to_owned(),
            place: place(payload["team_id"].as_str(), channel, None),
            user: self.person(user).await,
            name: text("command").trim_start_matches('/').to_owned(),
            argument: self.decode(text("text")).await,
            options: Vec::new(),
        })
    }

    async fn read_press(&self, payload: &Value) -> Option<ChatEvent> {
        if payload["type"] != "block_actions" {
            return None;
        }
        let action = &payload["actions"][0];
        let (container, message) = (&payload["container"], &payload["message"]);
        let channel = container["channel_id"].as_str().or_else(|| payload["channel"]["id"].as_str())?;
        let ts = container["message_ts"].as_str().or_else(|| message["ts"].as_str())?;
        let thread = message["thread_ts"].as_str().or_else(|| container["thread_ts"].as_str());
        Some(ChatEvent::Button(ButtonPress {
            id: payload["trigger_id"].as_str()?.to_owned(),
            place: place(payload["team"]["id"].as_str(), channel, thread),
            user: self.person(payload["user"]["id"].as_str()?).await,
            message: format!("{channel}:{ts}"),
            value: action["value"].as_str()?.to_owned(),
        }))
    }

    async fn person(&self, id: &str) -> ChatUser {
        let (name, is_bot) = self.names.of(id).await;
        ChatUser { id: id.to_owned(), name, roles: Vec::new(), is_bot, bot_id: None, is_self: false }
    }
}

async fn pass(
    event: ChatEvent,
    reply: oneshot::Sender<EventReply>,
    events: &mpsc::Sender<ReceivedEvent>,
) -> Result<(), EventsDropped> {
    events.send(ReceivedEvent { event, reply }).await.map_err(|_| EventsDropped)
}

/// Returns the place of a message. The id of the channel of a direct message begins with `D`.
pub(super) fn place(team: Option<&str>, channel: &str, thread: Option<&str>) -> ChatPlace {
    ChatPlace {
        space: team.map(str::to_owned),
        channel: channel.to_owned(),
        thread: thread.map(str::to_owned),
        is_direct: channel.starts_with('D'),
    }
}

impl SlackEvent {
    pub(super) fn of(event: ChatEvent) -> Self {
        Self { event, source: EventSource::Channel }
    }
}
