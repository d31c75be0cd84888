//! A connector that runs, with the events that it passes on.

use std::sync::Arc;
use std::time::Duration;

use cowhand_chat::discord::{DiscordConnector, DiscordSettings};
use cowhand_chat::{ConnectionEnd, Connector as _, EventReply, Post, ReceivedEvent};
use cowhand_core::chat::{ChatEvent, ChatMessage, ChatPlace};
use cowhand_system::wait;
use cowhand_testing::discord::{BOT_TOKEN, CHANNEL_ID, FakeDiscord, GUILD_ID};
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Deadline of everything that a test waits for. It is long because machines are shared.
const WAIT_TIMEOUT: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) fake: Arc<FakeDiscord>,
    pub(crate) connector: Arc<DiscordConnector>,
    events: mpsc::Receiver<ReceivedEvent>,
    end: JoinHandle<ConnectionEnd>,
}

/// Returns the settings of a connector. Requests that fail are repeated at once.
pub(crate) fn settings(fake: &FakeDiscord) -> DiscordSettings {
    wait::shorten("chat_retry");
    settings_with_waits(fake)
}

/// Returns the settings of a connector that waits before it repeats a request, unless another test of the same process
/// has shortened the waits.
pub(crate) fn settings_with_waits(fake: &FakeDiscord) -> DiscordSettings {
    DiscordSettings {
        bot_token: BOT_TOKEN.to_owned(),
        api_url: Some(fake.url()),
        presence: None,
        commands: Vec::new(),
        command_guild: None,
    }
}

/// Starts a platform and a connector, and waits until it is connected.
pub(crate) async fn connected() -> Running {
    let fake = FakeDiscord::start().await;
    let settings = settings(&fake);
    let mut running = start(fake, settings);
    running.next_connected().await;
    running
}

pub(crate) fn start(fake: impl Into<Arc<FakeDiscord>>, settings: DiscordSettings) -> Running {
    let connector = Arc::new(DiscordConnector::new(settings).unwrap());
    let (end, events) = run(&connector);
    Running { fake: fake.into(), connector, events, end }
}

fn run(connector: &Arc<DiscordConnector>) -> (JoinHandle<ConnectionEnd>, mpsc::Receiver<ReceivedEvent>) {
    let (sender, events) = mpsc::channel(1);
    let connector = Arc::clone(connector);
    (tokio::spawn(async move { connector.run(sender).await }), events)
}

impl Running {
    /// Connects again with the same connector.
    pub(crate) fn run_again(&mut self) {
        (self.end, self.events) = run(&self.connector);
    }

    /// Drops the run before its end.
    pub(crate) fn abort(&self) {
        self.end.abort();
    }

    /// Waits for the end of the connection.
    pub(crate) async fn ended(&mut self) -> ConnectionEnd {
        timeout(WAIT_TIMEOUT, &mut self.end).await.expect("the connector goes on").unwrap()
    }

    /// Returns the next event without a reply.
    pub(crate) async fn next_received(&mut self) -> ReceivedEvent {
        timeout(WAIT_TIMEOUT, self.events.recv()).await.expect("no event").expect("the connector ended")
    }

    /// Returns the next event and confirms it.
    pub(crate) async fn next(&mut self) -> ChatEvent {
        let received = self.next_received().await;
        let _ = received.reply.send(EventReply::Stored);
        received.event
    }

    pub(crate) async fn next_connected(&mut self) {
        match self.next().await {
            ChatEvent::Connected(bot) => assert_eq!(bot.name, "cowhand"),
            event => panic!("{event:?}"),
        }
    }

    pub(crate) async fn next_message(&mut self) -> ChatMessage {
        match self.next().await {
            ChatEvent::Message(message) => message,
            event => panic!("{event:?}"),
        }
    }

    pub(crate) async fn next_edit(&mut self) -> ChatMessage {
        match self.next().await {
            ChatEvent::Edited(message) => message,
            event => panic!("{event:?}"),
        }
    }

    /// Returns the end of the connection.
    pub(crate) async fn end(self) -> (Arc<FakeDiscord>, ConnectionEnd) {
        let end = timeout(WAIT_TIMEOUT, self.end).await.expect("the connector goes on").unwrap();
        (self.fake, end)
    }

    /// Drops the receiver of the events, and returns the end of the connection.
    pub(crate) async fn stop(self) -> (Arc<FakeDiscord>, ConnectionEnd) {
        drop(self.events);
        let end = timeout(WAIT_TIMEOUT, self.end).await.expect("the connector goes on").unwrap();
        (self.fake, end)
    }
}

/// Returns the channel `general` as a place.
pub(crate) fn general() -> ChatPlace {
    ChatPlace {
        space: Some(GUILD_ID.to_owned()),
        channel: CHANNEL_ID.to_owned(),
        thread: None,
        is_direct: false,
    }
}

pub(crate) fn post_of(key: &str, text: &str) -> Post {
    Post {
        place: general(),
        key: key.to_owned(),
        first_tried_at: Timestamp::now(),
        reply_to: None,
        text: text.to_owned(),
        buttons: Vec::new(),
        files: Vec::new(),
    }
}
