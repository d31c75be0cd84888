//! A fake Discord in memory: REST API, gateway and files, for one or several bots.
//!
//! It behaves like Discord in everything that cowhand uses: sessions that can be resumed with the missed events,
//! intents, nonces, mentions, interactions, and Discord's error codes. It differs from Discord in two points. People
//! may do everything in every channel. An interaction can be answered after more than three seconds, because the
//! machines of tests can be slow. `tests/node/discord.mjs` checks it with discord.js.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

mod faults;
mod gateway;
mod interactions;
mod multipart;
mod people;
mod render;
mod rest;
mod state;

pub use state::{FakeDiscordAccount, FakeDiscordFile, FakeDiscordMessage};
use state::{FakeDiscordState, new_state};

pub const BOT_TOKEN: &str = "MTAwMDAwMDAwMDAwMDAwMDAx.Fake00.discord-bot-token-of-tests";
pub const BOT_ID: &str = "100000000000000001";
pub const APPLICATION_ID: &str = "100000000000000002";
pub const GUILD_ID: &str = "100000000000000003";
/// The channel `general`.
pub const CHANNEL_ID: &str = "100000000000000004";
/// A person whose name is `alice`.
pub const USER_ID: &str = "100000000000000005";
/// A role `helpers` that only the bot has.
pub const BOT_ROLE_ID: &str = "100000000000000006";

/// Deadline of [`FakeDiscord::wait_for`]. It is long because machines are shared.
const WAIT_TIMEOUT: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug)]
pub struct FakeDiscord {
    state: Arc<Mutex<FakeDiscordState>>,
    url: String,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for FakeDiscord {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        self.drop_connections();
    }
}

impl FakeDiscord {
    /// Starts a platform with one guild, in which are the bot, `alice`, the channel `general` and the role `helpers`.
    pub async fn start() -> Self {
        let api = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let gateway = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let resuming = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", api.local_addr().unwrap());
        let socket_url = |listener: &TcpListener| format!("ws://{}", listener.local_addr().unwrap());
        let state = new_state(url.clone(), socket_url(&gateway), socket_url(&resuming));
        let state = Arc::new(Mutex::new(state));
        let router = Router::new().fallback(rest::answer).with_state(Arc::clone(&state));
        let tasks = vec![
            tokio::spawn(async move { axum::serve(api, router).await.unwrap() }),
            tokio::spawn(gateway::serve(gateway, Arc::clone(&state), false)),
            tokio::spawn(gateway::serve(resuming, Arc::clone(&state), true)),
        ];
        Self { state, url, tasks }
    }

    /// Returns the address for `api_url`.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Waits until `look` returns a value. Panics after a minute.
    pub async fn wait_for<T>(&self, what: &str, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        let deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            if let Some(found) = look(self) {
                return found;
            }
            assert!(Instant::now() < deadline, "timed out while waiting for {what}; {:#?}", self.texts());
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Waits until the gateway has a connection with an active session.
    pub async fn wait_for_connection(&self) {
        self.wait_for_connections(1).await;
    }

    /// Waits until the gateway has this number of connections with active sessions, or more.
    pub async fn wait_for_connections(&self, count: usize) {
        let has_all = |fake: &Self| (fake.open_connections() >= count).then_some(());
        self.wait_for("the connections to the gateway", has_all).await;
    }

    /// Waits until a channel has this number of messages of the first bot, and returns them.
    pub async fn wait_for_answers(&self, channel: &str, count: usize) -> Vec<FakeDiscordMessage> {
        let what = format!("{count} messages of the bot");
        self.wait_for(&what, |fake| {
            let answers = fake.messages(channel).into_iter().filter(|message| message.author == BOT_ID);
            let answers: Vec<_> = answers.collect();
            (answers.len() >= count).then_some(answers)
        })
        .await
    }

    /// Returns the messages of a channel or thread, the oldest first.
    pub fn messages(&self, channel: &str) -> Vec<FakeDiscordMessage> {
        let state = self.lock();
        state.messages.values().filter(|message| message.channel == channel).cloned().collect()
    }

    /// Returns the reactions to a message as `(emoji, user)`, in their order.
    pub fn reactions(&self, message: &str) -> Vec<(String, String)> {
        self.lock().message(message).map(|message| message.reactions.clone()).unwrap_or_default()
    }

    /// Returns the slash commands of the first bot that are registered for all guilds and for [`GUILD_ID`].
    pub fn commands(&self) -> Vec<Value> {
        self.commands_of(BOT_ID)
    }

    /// Returns the slash commands of a bot.
    pub fn commands_of(&self, bot: &str) -> Vec<Value> {
        self.lock().bot(bot).unwrap().commands.values().flatten().cloned().collect()
    }

    /// Returns the first activity that the first bot shows.
    pub fn presence(&self) -> Option<Value> {
        self.presence_of(BOT_ID)
    }

    /// Returns the first activity that a bot shows.
    pub fn presence_of(&self, bot: &str) -> Option<Value> {
        self.lock().bot(bot).unwrap().presence.clone()
    }

    /// Returns how often the bots have shown in a channel that they type.
    pub fn typing_count(&self, channel: &str) -> usize {
        self.lock().typing.get(channel).copied().unwrap_or_default()
    }

    /// Returns how often the bots have begun a session, and how often they have resumed one.
    pub fn connections(&self) -> (usize, usize) {
        let state = self.lock();
        (state.identified, state.resumed)
    }

    pub fn open_connections(&self) -> usize {
        self.lock().sessions.values().filter(|session| session.connection.is_some()).count()
    }

    /// Returns the addresses that the platform has fetched for the previews of links in messages of the bot.
    pub fn fetched_links(&self) -> Vec<String> {
        self.lock().fetched_links.clone()
    }

    /// Returns the requests since the last call, for example `GET /channels/1`.
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().requests)
    }

    /// Returns the channel, the author and the text of each message.
    fn texts(&self) -> Vec<(String, String, String)> {
        let state = self.lock();
        let text = |message: &FakeDiscordMessage| {
            (message.channel.clone(), message.author.clone(), message.content.clone())
        };
        state.messages.values().map(text).collect()
    }

    fn lock(&self) -> MutexGuard<'_, FakeDiscordState> {
        // A wrong command of a person may panic while it holds the lock. Such a panic changes nothing.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
