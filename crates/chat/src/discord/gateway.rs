//! The connection to Discord's gateway.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use cowhand_core::chat::BotAccount;
use futures_util::StreamExt as _;
use reqwest::Url;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use twilight_gateway::queue::InMemoryQueue;
use twilight_gateway::{CloseFrame, ConfigBuilder, Intents, Message, Shard, ShardId};

use super::DiscordSettings;
use super::command::SlashRegistration;
use super::directory::parsed;
use super::interaction::{InteractionAddress, answer_interaction};
use super::presence::presence;
use super::rest::{DiscordRest, RestError};
use super::wire::{DiscordInteraction, DiscordReady};
use crate::{ConnectionEnd, ConnectionState, EventReply};

/// Wait before the address of the gateway is requested again.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// Longest time after which the number of allowed sessions begins again.
const LONGEST_RESET: Duration = Duration::from_hours(24);
/// Time since the last failure after which the number of failures begins again with zero.
const SOUND_CONNECTION: Duration = Duration::from_mins(1);

/// Event or state of the gateway, for the delivery of events.
#[derive(Debug)]
pub(super) enum GatewayItem {
    Ready(DiscordReady),
    Resumed,
    Interaction { interaction: DiscordInteraction, reply: oneshot::Sender<EventReply> },
    Dispatch { name: String, data: Value },
}

/// Answer of `GET /gateway/bot`.
#[derive(Debug, Deserialize)]
struct GatewayAccess {
    url: String,
    session_start_limit: StartLimit,
}

#[derive(Debug, Deserialize)]
struct StartLimit {
    total: u32,
    remaining: u32,
    /// Milliseconds.
    reset_after: u64,
    max_concurrency: u16,
}

#[derive(Deserialize)]
struct GatewayPayload<'a> {
    op: u64,
    #[serde(borrow, default)]
    t: Option<Cow<'a, str>>,
    #[serde(borrow)]
    d: Option<&'a RawValue>,
}

#[derive(Debug)]
pub(super) struct GatewayReader<'a> {
    pub(super) rest: &'a Arc<DiscordRest>,
    pub(super) settings: &'a DiscordSettings,
    pub(super) state: &'a watch::Sender<ConnectionState>,
    pub(super) items: mpsc::Sender<GatewayItem>,
    /// Account of the bot; none before the first connection.
    pub(super) bot: Option<BotAccount>,
    /// Task that registers the commands. It ends with the reader.
    pub(super) registration: JoinSet<()>,
}

impl GatewayReader<'_> {
    /// Reads events until the platform refuses the bot, or until the receiver of the events is dropped.
    ///
    /// The shard keeps the number of the last event that it has read. All events up to it are in the queue of `items`,
    /// so a resumed connection goes on after them, and no event is lost or repeated.
    pub(super) async fn read(mut self) -> ConnectionEnd {
        let mut shard = match self.connect().await {
            Ok(shard) => shard,
            Err(end) => return end,
        };
        let mut failures = 0;
        let mut last_failure = Instant::now();
        while let Some(received) = shard.next().await {
            match received {
                Ok(Message::Text(text)) => {
                    if self.pass_on(&text).await.is_err() {
                        return ConnectionEnd::Stopped;
                    }
                }
                Ok(Message::Close(frame)) => {
                    if let Some(reason) = frame.as_ref().and_then(|frame| refusal(frame.code)) {
                        return ConnectionEnd::Refused { reason };
                    }
                    self.show_problem(close_reason(frame.as_ref()));
                    if last_failure.elapsed() > SOUND_CONNECTION {
                        failures = 0;
                    }
                    // The shard connects again at once.
                    if failures > 0 {
                        sleep((FIRST_WAIT / 2 * 2_u32.pow(failures.min(10) - 1)).min(LONGEST_WAIT)).await;
                    }
                    (failures, last_failure) = (failures + 1, Instant::now());
                }
                // The shard waits before it tries again.
                Err(error) => {
                    self.show_problem(format!("the gateway cannot be used: {}", with_causes(&error)));
                }
            }
        }
        ConnectionEnd::Refused { reason: "Discord ended the connection".to_owned() }
    }

    async fn connect(&self) -> Result<Shard, ConnectionEnd> {
        let mut wait = FIRST_WAIT;
        loop {
            let problem = match self.access().await {
                Ok(access) if is_websocket(&access.url) => return Ok(self.shard(access)),
                Ok(access) => format!("`{}` is not an address of a gateway", access.url),
                Err(RestError::Revoked(reason)) => return Err(ConnectionEnd::Refused { reason }),
                Err(error) => error.to_string(),
            };
            self.show_problem(problem);
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    async fn access(&self) -> Result<GatewayAccess, RestError> {
        parsed(self.rest.get("/gateway/bot").await?)
    }

    fn shard(&self, access: GatewayAccess) -> Shard {
        let limit = access.session_start_limit;
        let reset_after = Duration::from_millis(limit.reset_after).min(LONGEST_RESET);
        if limit.remaining == 0 {
            let hours = reset_after.as_secs().div_ceil(3600);
            self.show_problem(format!(
                "the bot has connected too often today; Discord allows the next connection in {hours} hours at the latest"
            ));
        }
        let total = limit.total.max(limit.remaining);
        let queue = InMemoryQueue::new(limit.max_concurrency.max(1), limit.remaining, reset_after, total);
        let intents =
            Intents::GUILDS | Intents::GUILD_MESSAGES | Intents::DIRECT_MESSAGES | Intents::MESSAGE_CONTENT;
        let mut config = ConfigBuilder::new(self.settings.token().to_owned(), intents)
            .proxy_url(access.url.trim_end_matches('/').to_owned())
            .queue(queue);
        if let Some((kind, text)) = &self.settings.presence {
            config = config.presence(presence(*kind, text));
        }
        Shard::with_config(ShardId::ONE, config.build())
    }

    /// Puts an event into the queue. The time limit of an interaction begins when it arrives. Therefore the task that
    /// answers it starts here, before the earlier events are passed on.
    async fn pass_on(&mut self, text: &str) -> Result<(), mpsc::error::SendError<GatewayItem>> {
        let Some((name, data)) = dispatch_of(text) else { return Ok(()) };
        let item = match name.as_ref() {
            "READY" => {
                let Some(ready) = read_event::<DiscordReady>(&name, data) else { return Ok(()) };
                self.begin_session(&ready);
                GatewayItem::Ready(ready)
            }
            "RESUMED" => {
                if let Some(bot) = self.bot.clone() {
                    self.state.send_replace(ConnectionState::Connected(bot));
                }
                GatewayItem::Resumed
            }
            "INTERACTION_CREATE" => {
                let Some(interaction) = read_event(&name, data) else { return Ok(()) };
                let reply = self.begin_answer(&interaction);
                GatewayItem::Interaction { interaction, reply }
            }
            _ => {
                let Some(data) = read_event(&name, data) else { return Ok(()) };
                GatewayItem::Dispatch { name: name.into_owned(), data }
            }
        };
        self.items.send(item).await
    }

    fn begin_session(&mut self, ready: &DiscordReady) {
        let bot = ready.bot();
        self.state.send_replace(ConnectionState::Connected(bot.clone()));
        self.bot = Some(bot);
        if self.settings.commands.is_empty() {
            return;
        }
        self.registration.abort_all();
        let (rest, application) = (Arc::clone(self.rest), ready.application.id.clone());
        let guilds = ready.guilds.iter().map(|guild| guild.id.clone()).collect();
        let (guild, commands) = (self.settings.command_guild.clone(), self.settings.commands.clone());
        let registration = SlashRegistration { application, guild, guilds, commands };
        self.registration.spawn(async move {
            registration.run(&rest).await;
        });
    }

    /// Starts the task that answers an interaction, and returns the channel end for its reply. The task ends when the
    /// reply is sent or the channel end is dropped.
    fn begin_answer(&self, interaction: &DiscordInteraction) -> oneshot::Sender<EventReply> {
        let (rest, address) = (Arc::clone(self.rest), InteractionAddress::of(interaction));
        let (sender, reply) = oneshot::channel();
        let received_at = Instant::now();
        tokio::spawn(async move { answer_interaction(&rest, &address, received_at, reply).await });
        sender
    }

    fn show_problem(&self, problem: String) {
        tracing::info!("connection to Discord: {problem}");
        self.state.send_replace(ConnectionState::Connecting { problem: Some(problem) });
    }
}

/// Returns the name and the data of an event; none if cowhand does not use the event.
fn dispatch_of(text: &str) -> Option<(Cow<'_, str>, &RawValue)> {
    let payload: GatewayPayload<'_> = serde_json::from_str(text).ok()?;
    let (name, data) = (payload.t?, payload.d?);
    let is_used = matches!(name.as_ref(), "READY" | "RESUMED" | "INTERACTION_CREATE")
        || name.starts_with("MESSAGE_DELETE")
        || matches!(name.as_ref(), "MESSAGE_CREATE" | "MESSAGE_UPDATE" | "GUILD_CREATE" | "GUILD_DELETE")
        || ["CHANNEL_", "THREAD_", "GUILD_ROLE_", "GUILD_MEMBER_UPDATE"]
            .iter()
            .any(|prefix| name.starts_with(prefix));
    (payload.op == 0 && is_used).then_some((name, data))
}

fn read_event<T: DeserializeOwned>(name: &str, data: &RawValue) -> Option<T> {
    match serde_json::from_str(data.get()) {
        Ok(event) => Some(event),
        Err(error) => {
            tracing::warn!("the event {name} of Discord has an unexpected form: {error}");
            None
        }
    }
}

fn is_websocket(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| matches!(url.scheme(), "ws" | "wss") && url.host_str().is_some())
}

/// Returns why the platform refuses the bot; none if the code of the closed connection means something else.
fn refusal(code: u16) -> Option<String> {
    let reason = match code {
        4004 => {
            "Discord does not accept the token: it is wrong or was revoked; create a new one on the page Bot of the \
             app in the Discord Developer Portal"
        }
        4010 | 4011 => {
            "the bot is in more servers than Discord allows for one connection; use a bot of your own"
        }
        4012 => "Discord no longer supports version 10 of its gateway; update cowhand",
        4013 => "Discord does not know one of the intents that cowhand needs; update cowhand",
        4014 => {
            "the message content intent is missing: enable \u{201c}Message Content Intent\u{201d} on the page Bot of \
             the app in the Discord Developer Portal"
        }
        _ => return None,
    };
    Some(format!("{reason} (code {code})"))
}

fn close_reason(frame: Option<&CloseFrame<'static>>) -> String {
    match frame {
        Some(frame) if frame.reason.is_empty() => format!("the connection was closed (code {})", frame.code),
        Some(frame) => format!("the connection was closed: {} (code {})", frame.reason, frame.code),
        None => "the connection was closed".to_owned(),
    }
}

fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
