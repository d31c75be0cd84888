//! Passes on the events of the gateway in their order.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use cowhand_core::chat::{BotAccount, ChatEvent, ChatMessage, ChatPlace};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until};

use super::directory::Directory;
use super::gateway::GatewayItem;
use super::interaction::interaction_event;
use super::message::chat_message;
use super::rest::DiscordRest;
use super::wire::{DiscordMessage, DiscordReady};
use crate::{EventReply, ReceivedEvent};

/// Number of messages whose content is remembered, in order to recognise edits.
const REMEMBERED_MESSAGES: usize = 5000;
/// Longest time for which [`ChatEvent::Connected`] waits for the data of the guilds.
const GUILD_WAIT: Duration = Duration::from_secs(5);
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct EventDelivery {
    rest: Arc<DiscordRest>,
    directory: Arc<Directory>,
    events: mpsc::Sender<ReceivedEvent>,
    bot: BotAccount,
    remembered: RememberedContents,
    unannounced: Option<Unannounced>,
}

/// New session of which not all guilds have arrived. [`ChatEvent::Connected`] comes after them: its receiver reads the
/// history, for which the names and roles are needed.
#[derive(Debug)]
struct Unannounced {
    guilds: HashSet<String>,
    until: Instant,
}

/// The receiver of the events was dropped.
#[derive(Debug)]
pub(super) struct ReceiverDropped;

#[derive(Deserialize)]
struct DeletedMessages {
    id: Option<String>,
    #[serde(default)]
    ids: Vec<String>,
}

impl EventDelivery {
    pub(super) fn new(
        rest: Arc<DiscordRest>,
        directory: Arc<Directory>,
        events: mpsc::Sender<ReceivedEvent>,
    ) -> Self {
        let bot = BotAccount { id: String::new(), name: String::new() };
        let remembered = RememberedContents::default();
        Self { rest, directory, events, bot, remembered, unannounced: None }
    }

    /// Passes on events until the receiver is dropped.
    pub(super) async fn run(mut self, mut items: mpsc::Receiver<GatewayItem>) -> ReceiverDropped {
        loop {
            let until = self.unannounced.as_ref().map(|unannounced| unannounced.until);
            let item = tokio::select! {
                item = items.recv() => item,
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {
                    if self.announce().await.is_err() {
                        return ReceiverDropped;
                    }
                    continue;
                }
            };
            let Some(item) = item else { return ReceiverDropped };
            if let Err(dropped) = self.pass_on(item).await {
                return dropped;
            }
        }
    }

    async fn pass_on(&mut self, item: GatewayItem) -> Result<(), ReceiverDropped> {
        match item {
            GatewayItem::Ready(ready) => self.begin_session(ready).await,
            GatewayItem::Resumed => self.send(ChatEvent::Connected(self.bot.clone())).await.map(drop),
            GatewayItem::Interaction { interaction, reply } => {
                self.announce().await?;
                match interaction_event(&interaction, &self.directory, &self.bot.id) {
                    Some(event) => {
                        let received = ReceivedEvent { event, reply };
                        self.events.send(received).await.map_err(|_| ReceiverDropped)
                    }
                    None => Ok(()),
                }
            }
            GatewayItem::Dispatch { name, data } if name.starts_with("MESSAGE_") => {
                self.announce().await?;
                self.pass_on_message(&name, &data).await
            }
            GatewayItem::Dispatch { name, data } => {
                self.directory.apply(&name, &data);
                if let (Some(unannounced), "GUILD_CREATE" | "GUILD_DELETE") =
                    (&mut self.unannounced, name.as_str())
                {
                    unannounced.guilds.remove(data["id"].as_str().unwrap_or_default());
                    if unannounced.guilds.is_empty() {
                        self.announce().await?;
                    }
                }
                Ok(())
            }
        }
    }

    async fn begin_session(&mut self, ready: DiscordReady) -> Result<(), ReceiverDropped> {
        self.bot = ready.bot();
        self.directory.begin(self.bot.clone());
        let guilds: HashSet<String> = ready.guilds.into_iter().map(|guild| guild.id).collect();
        let is_empty = guilds.is_empty();
        self.unannounced = Some(Unannounced { guilds, until: Instant::now() + GUILD_WAIT });
        if is_empty { self.announce().await } else { Ok(()) }
    }

    async fn announce(&mut self) -> Result<(), ReceiverDropped> {
        if self.unannounced.take().is_some() {
            self.send(ChatEvent::Connected(self.bot.clone())).await?;
        }
        Ok(())
    }

    async fn pass_on_message(&mut self, event: &str, data: &Value) -> Result<(), ReceiverDropped> {
        if event.starts_with("MESSAGE_DELETE") {
            let Some(deleted) = read::<DeletedMessages>(data) else { return Ok(()) };
            for message in deleted.id.into_iter().chain(deleted.ids) {
                self.send_confirmed(ChatEvent::Deleted { message }).await?;
            }
            return Ok(());
        }
        let Some(message) = read::<DiscordMessage>(data) else { return Ok(()) };
        let is_changed = self.remembered.note(&message);
        if event == "MESSAGE_UPDATE" && (message.author.is_none() || !is_changed) {
            return Ok(());
        }
        let Some(message) = self.convert(&message).await else { return Ok(()) };
        let event =
            if event == "MESSAGE_UPDATE" { ChatEvent::Edited(message) } else { ChatEvent::Message(message) };
        self.send_confirmed(event).await
    }

    async fn convert(&self, message: &DiscordMessage) -> Option<ChatMessage> {
        let place = self.place(message).await;
        let roles = match (&message.member, &message.guild_id, &message.author) {
            (Some(member), Some(guild), Some(author)) => {
                self.directory.note_roles(guild, &author.id, &member.roles);
                member.roles.clone()
            }
            (None, Some(guild), Some(author)) if message.webhook_id.is_none() && !author.bot => {
                let roles = self.directory.member_roles(&self.rest, guild, &author.id).await;
                roles.unwrap_or_default()
            }
            _ => Vec::new(),
        };
        chat_message(message, place, &self.directory, &self.bot.id, roles)
    }

    /// Returns the place of a message. Repeats the request until the platform answers, because with a wrong place the
    /// message would count as a message of another channel.
    async fn place(&self, message: &DiscordMessage) -> ChatPlace {
        let mut wait = FIRST_WAIT;
        loop {
            let guild = message.guild_id.clone();
            match self.directory.place(&self.rest, guild, &message.channel_id).await {
                Ok(place) => return place,
                Err(error) => tracing::warn!("the place of a message on Discord is not known: {error}"),
            }
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    async fn send(&self, event: ChatEvent) -> Result<oneshot::Receiver<EventReply>, ReceiverDropped> {
        let (reply, replied) = oneshot::channel();
        self.events.send(ReceivedEvent { event, reply }).await.map_err(|_| ReceiverDropped)?;
        Ok(replied)
    }

    /// Passes on an event, again and again, until it is confirmed. Discord does not send an event a second time.
    async fn send_confirmed(&self, event: ChatEvent) -> Result<(), ReceiverDropped> {
        let mut wait = FIRST_WAIT;
        while self.send(event.clone()).await?.await.is_err() {
            tokio::select! {
                () = self.events.closed() => return Err(ReceiverDropped),
                () = sleep(wait) => wait = (wait * 2).min(LONGEST_WAIT),
            }
        }
        Ok(())
    }
}

/// Digests of the last messages. They show which updates are edits, because Discord also sends an update when it adds a
/// preview of a link.
#[derive(Debug, Default)]
struct RememberedContents {
    digests: HashMap<String, u64>,
    order: VecDeque<String>,
}

impl RememberedContents {
    /// Remembers a message, and returns whether its content or its attachments have changed. If no earlier state is
    /// known, returns whether the message was ever edited.
    fn note(&mut self, message: &DiscordMessage) -> bool {
        let mut hasher = DefaultHasher::new();
        message.content.hash(&mut hasher);
        for attachment in &message.attachments {
            attachment.id.hash(&mut hasher);
        }
        let digest = hasher.finish();
        if let Some(earlier) = self.digests.insert(message.id.clone(), digest) {
            return earlier != digest;
        }
        self.order.push_back(message.id.clone());
        if self.order.len() > REMEMBERED_MESSAGES
            && let Some(oldest) = self.order.pop_front()
        {
            self.digests.remove(&oldest);
        }
        message.edited_timestamp.is_some()
    }
}

fn read<T: for<'de> Deserialize<'de>>(data: &Value) -> Option<T> {
    match T::deserialize(data) {
        Ok(event) => Some(event),
        Err(error) => {
            tracing::warn!("a message of Discord has an unexpected form: {error}");
            None
        }
    }
}
