//! Tests of the connector of Slack with a fake of Slack, of the fake with Slack's own clients, and of the connector
//! with another fake.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod connection;
mod emulate;
mod events;
mod interactions;
mod node;
mod official;
mod posts;
mod reading;
mod setup;

use std::sync::Arc;
use std::time::Duration;

use cowhand_chat::slack::{SlackConnector, SlackSettings};
use cowhand_chat::{
    Button, ButtonStyle, ConnectionEnd, ConnectionState, Connector, EventReply, Post, ReceivedEvent,
};
use cowhand_core::chat::{ChatEvent, ChatMessage, ChatPlace};
use cowhand_system::wait;
use cowhand_testing::slack::{APP_TOKEN, BOT_TOKEN, FakeSlack, TEAM};
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Only a failing test waits that long.
const EVENT_LIMIT: Duration = Duration::from_mins(2);

/// Returns a connector. Requests that fail are repeated at once, and posts do not wait for each other.
fn connector(api_url: &str) -> Arc<SlackConnector> {
    wait::shorten("chat_retry,slack_pace");
    let settings = SlackSettings {
        bot_token: BOT_TOKEN.to_owned(),
        app_token: APP_TOKEN.to_owned(),
        api_url: Some(api_url.to_owned()),
    };
    Arc::new(SlackConnector::new(settings).unwrap())
}

/// A fake with some people and channels.
async fn workspace() -> FakeSlack {
    let slack = FakeSlack::start().await;
    // No test depends on the speed of the machine.
    slack.state().acknowledge_within = EVENT_LIMIT;
    slack.add_user("U1", "Ada");
    slack.add_user("U2", "Eve");
    slack.add_channel("C1", "general");
    slack.add_channel("C2", "random");
    slack.add_private_channel("G1", "secret");
    slack
}

/// A connected bot.
struct Scene {
    slack: FakeSlack,
    connector: Arc<SlackConnector>,
    events: mpsc::Receiver<ReceivedEvent>,
    run: JoinHandle<ConnectionEnd>,
}

impl Scene {
    async fn start() -> Self {
        Self::of(workspace().await).await
    }

    async fn of(slack: FakeSlack) -> Self {
        let connector = connector(&slack.url());
        let (sender, events) = mpsc::channel(100);
        let run = tokio::spawn({
            let connector = Arc::clone(&connector);
            async move { connector.run(sender).await }
        });
        let mut scene = Self { slack, connector, events, run };
        assert!(
            matches!(scene.next().await, ChatEvent::Connected(bot) if bot.id == "UBOT" && bot.name == "cowhand")
        );
        scene.slack.wait_for_connections(1).await;
        scene
    }

    async fn receive(&mut self) -> ReceivedEvent {
        timeout(EVENT_LIMIT, self.events.recv()).await.expect("no event").expect("the connection has ended")
    }

    /// Returns the next event, and replies that it is stored.
    async fn next(&mut self) -> ChatEvent {
        let received = self.receive().await;
        let _ = received.reply.send(EventReply::Stored);
        received.event
    }

    async fn next_message(&mut self) -> ChatMessage {
        match self.next().await {
            ChatEvent::Message(message) => message,
            event => panic!("not a message: {event:?}"),
        }
    }

    async fn wait_for_state(&self, is_right: impl FnMut(&ConnectionState) -> bool) {
        let mut state = self.connector.state();
        timeout(EVENT_LIMIT, state.wait_for(is_right)).await.expect("no such state").unwrap();
    }
}

fn place(channel: &str, thread: Option<&str>) -> ChatPlace {
    ChatPlace {
        space: Some(TEAM.to_owned()),
        channel: channel.to_owned(),
        thread: thread.map(str::to_owned),
        is_direct: channel.starts_with('D'),
    }
}

fn post(place: ChatPlace, key: &str, text: &str) -> Post {
    Post {
        place,
        key: key.to_owned(),
        first_tried_at: Timestamp::now(),
        reply_to: None,
        text: text.to_owned(),
        buttons: Vec::new(),
        files: Vec::new(),
    }
}

fn buttons() -> Vec<Button> {
    let button =
        |label: &str, value: &str, style| Button { label: label.to_owned(), value: value.to_owned(), style };
    vec![
        button("Allow", "ask-1:allow", ButtonStyle::Approve),
        button("Deny", "ask-1:deny", ButtonStyle::Deny),
    ]
}
