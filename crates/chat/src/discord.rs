//! Discord: REST API and gateway.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use cowhand_core::chat::settings::ActivityKind;
use cowhand_core::chat::{ChatAttachment, ChatMessage, ChatPlace};
use jiff::Timestamp;
use reqwest::{Method, Url};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::running::ConnectionRun;
use crate::{
    Button, ChatError, ConnectionEnd, ConnectionState, Connector, ExpectedPlaces, Post, Posted,
    ReceivedEvent, SetupProblem,
};

mod check;
mod command;
mod delivery;
mod directory;
mod emoji;
mod gateway;
mod history;
mod interaction;
mod message;
mod missed;
mod multipart;
mod post;
mod presence;
mod rate_limit;
mod rest;
mod wire;

pub use command::{SlashCommand, SlashOption};
use delivery::EventDelivery;
use directory::{Directory, conversation_of, parsed};
use gateway::GatewayReader;
use rest::{DiscordRest, PLATFORM, RestError, RestRequest};
use wire::DiscordMessage;

/// Environment variable with the address of the platform, for bots whose settings have none.
pub const API_URL_VARIABLE: &str = "COWHAND_DISCORD_API";
const DISCORD_URL: &str = "https://discord.com";
/// Hosts of attachments.
const FILE_HOSTS: [&str; 2] = ["cdn.discordapp.com", "media.discordapp.net"];
/// Maximum number of events that wait for the receiver. While it is reached, the gateway is not read.
const MOST_WAITING_EVENTS: usize = 10_000;
/// Error codes of a reaction that cannot be removed because the message or the emoji is not there.
const UNKNOWN_MESSAGE: u64 = 10008;
const UNKNOWN_EMOJI: u64 = 10014;

/// Settings of a bot. Its debug output does not show the token.
#[derive(Clone)]
pub struct DiscordSettings {
    pub bot_token: String,
    /// Address of the platform, below which the API is at `/api/v10`. None means the address in the environment variable
    /// [`API_URL_VARIABLE`], or Discord's own.
    pub api_url: Option<String>,
    /// Status that Discord shows for the bot.
    pub presence: Option<(ActivityKind, String)>,
    /// Commands to register. If there are none, the commands on the platform stay as they are.
    pub commands: Vec<SlashCommand>,
    /// Guild in which the commands are registered; none means all guilds.
    pub command_guild: Option<String>,
}

impl fmt::Debug for DiscordSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiscordSettings")
            .field("api_url", &self.api_url)
            .field("presence", &self.presence)
            .field("commands", &self.commands)
            .field("command_guild", &self.command_guild)
            .finish_non_exhaustive()
    }
}

impl DiscordSettings {
    /// Returns the token without the word that precedes it in requests.
    fn token(&self) -> &str {
        let token = self.bot_token.trim();
        token.strip_prefix("Bot ").unwrap_or(token)
    }
}

/// A bot on Discord.
#[derive(Debug)]
pub struct DiscordConnector {
    settings: DiscordSettings,
    rest: Arc<DiscordRest>,
    directory: Arc<Directory>,
    state: watch::Sender<ConnectionState>,
}

impl DiscordConnector {
    /// Creates the connector, without a request to the platform. Returns an error if the token cannot be a part of a
    /// request.
    pub fn new(settings: DiscordSettings) -> Result<Self, ChatError> {
        let from_environment = || std::env::var(API_URL_VARIABLE).ok().filter(|url| !url.is_empty());
        let api_url = settings.api_url.clone().or_else(from_environment);
        let rest = DiscordRest::new(settings.token(), api_url.as_deref().unwrap_or(DISCORD_URL))?;
        let state = watch::Sender::new(ConnectionState::Connecting { problem: None });
        Ok(Self { settings, rest: Arc::new(rest), directory: Arc::default(), state })
    }

    async fn connect(&self, events: mpsc::Sender<ReceivedEvent>) -> ConnectionEnd {
        let (items, received) = mpsc::channel(MOST_WAITING_EVENTS);
        let reader = GatewayReader {
            rest: &self.rest,
            settings: &self.settings,
            state: &self.state,
            items,
            bot: None,
            registration: JoinSet::new(),
        };
        let delivery =
            EventDelivery::new(Arc::clone(&self.rest), Arc::clone(&self.directory), events.clone());
        tokio::select! {
            end = reader.read() => end,
            _ = delivery.run(received) => ConnectionEnd::Stopped,
            () = events.closed() => ConnectionEnd::Stopped,
            reason = self.rest.refusal.recorded() => ConnectionEnd::Refused { reason },
        }
    }

    /// Returns the address of an attachment, if it is on a host of the platform.
    fn file_url(&self, url: &str) -> Option<Url> {
        let url = Url::parse(url).ok()?;
        let api = Url::parse(self.rest.api_url()).ok()?;
        let is_platform = url.scheme() == "https"
            && url.port().is_none()
            && url.host_str().is_some_and(|host| FILE_HOSTS.contains(&host));
        (is_platform || url.origin() == api.origin()).then_some(url)
    }
}

#[async_trait]
impl Connector for DiscordConnector {
    async fn run(&self, events: mpsc::Sender<ReceivedEvent>) -> ConnectionEnd {
        let run = ConnectionRun::begin(&self.state);
        self.rest.refusal.clear();
        let end = self.connect(events).await;
        run.end(&end);
        end
    }

    fn state(&self) -> watch::Receiver<ConnectionState> {
        self.state.subscribe()
    }

    fn now(&self) -> Timestamp {
        self.rest.clock.now()
    }

    async fn post(&self, post: &Post) -> Result<Posted, ChatError> {
        Ok(post::post(&self.rest, &self.directory, post, Timestamp::now()).await?)
    }

    async fn edit(
        &self,
        place: &ChatPlace,
        message: &str,
        text: &str,
        buttons: &[Button],
    ) -> Result<(), ChatError> {
        Ok(post::edit(&self.rest, conversation_of(place), message, text, buttons).await?)
    }

    async fn react(
        &self,
        place: &ChatPlace,
        message: &str,
        emoji: &str,
        is_added: bool,
    ) -> Result<(), ChatError> {
        let method = if is_added { Method::PUT } else { Method::DELETE };
        let (channel, emoji) = (conversation_of(place), emoji::emoji_in_path(emoji));
        let path = format!("/channels/{channel}/messages/{message}/reactions/{emoji}/@me");
        match self.rest.send(&RestRequest::new(method, path)).await {
            Ok(_) => Ok(()),
            Err(RestError::Refused { code: UNKNOWN_MESSAGE | UNKNOWN_EMOJI, .. }) if !is_added => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn show_typing(&self, place: &ChatPlace) -> Result<(), ChatError> {
        let path = format!("/channels/{}/typing", conversation_of(place));
        self.rest.send(&RestRequest::new(Method::POST, path)).await?;
        Ok(())
    }

    async fn history(
        &self,
        place: &ChatPlace,
        after: Option<Timestamp>,
        before: Option<Timestamp>,
        limit: usize,
    ) -> Result<Vec<ChatMessage>, ChatError> {
        Ok(history::history(&self.rest, &self.directory, place, after, before, limit).await?)
    }

    async fn missed(
        &self,
        channel: &ChatPlace,
        threads: &[String],
        after: Timestamp,
        limit: usize,
    ) -> Result<Vec<ChatMessage>, ChatError> {
        Ok(missed::missed(&self.rest, &self.directory, channel, threads, after, limit).await?)
    }

    async fn download(&self, attachment: &ChatAttachment, limit: u64) -> Result<Vec<u8>, ChatError> {
        let Some(url) = self.file_url(&attachment.url) else {
            let reason = format!("the file {} is not on a host of Discord", attachment.name);
            return Err(ChatError::Refused { platform: PLATFORM, reason });
        };
        self.rest.download(url, limit).await
    }

    async fn current_url(
        &self,
        place: &ChatPlace,
        message: &str,
        attachment: &ChatAttachment,
    ) -> Result<Option<String>, ChatError> {
        let path = format!("/channels/{}/messages/{message}", conversation_of(place));
        let message: DiscordMessage = match self.rest.get(path).await {
            Err(RestError::Refused { code: UNKNOWN_MESSAGE, .. }) => return Ok(None),
            answer => parsed(answer?)?,
        };
        let current = message.attachments.into_iter().find(|file| file.id == attachment.id);
        Ok(current.map(|file| file.url).filter(|url| *url != attachment.url))
    }

    async fn check(&self, places: &ExpectedPlaces) -> Result<Vec<SetupProblem>, ChatError> {
        Ok(check::check(&self.rest, places).await?)
    }
}
