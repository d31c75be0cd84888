//! Data of the guilds from the gateway: names of channels and roles, threads, and the roles of members and of the bot.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cowhand_core::chat::{BotAccount, ChatPlace};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::Instant;

use super::rest::{DiscordRest, RestError};
use super::wire::{DiscordChannel, DiscordId, DiscordMember, DiscordRole, DiscordUser};

/// Time for which the roles of a member count as known.
const ROLES_AGE: Duration = Duration::from_mins(1);
const MOST_MEMBERS: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Directory(Mutex<DirectoryState>);

#[derive(Debug, Default)]
struct DirectoryState {
    bot: Option<BotAccount>,
    channels: HashMap<String, DiscordChannel>,
    /// Names of the roles.
    roles: HashMap<String, String>,
    /// Roles of the bot by guild.
    bot_roles: HashMap<String, HashSet<String>>,
    /// Roles by guild and user, with the time at which they were read.
    members: HashMap<(String, String), (Instant, Vec<String>)>,
}

#[derive(Deserialize)]
struct GuildEvent {
    id: String,
    #[serde(default)]
    roles: Vec<DiscordRole>,
    #[serde(default)]
    channels: Vec<DiscordChannel>,
    #[serde(default)]
    threads: Vec<DiscordChannel>,
    #[serde(default)]
    members: Vec<DiscordMember>,
}

#[derive(Deserialize)]
struct RoleEvent {
    role: DiscordRole,
}

#[derive(Deserialize)]
struct MemberEvent {
    guild_id: String,
    user: DiscordUser,
    #[serde(default)]
    roles: Vec<String>,
}

#[derive(Deserialize)]
struct ThreadList {
    guild_id: String,
    threads: Vec<DiscordChannel>,
}

impl Directory {
    /// Forgets the guilds, because a new session begins and sends their data again.
    pub(super) fn begin(&self, bot: BotAccount) {
        let members = std::mem::take(&mut self.lock().members);
        *self.lock() = DirectoryState { bot: Some(bot), members, ..DirectoryState::default() };
    }

    /// Applies an event of the gateway, if it is about guilds.
    pub(super) fn apply(&self, event: &str, data: &Value) {
        let mut state = self.lock();
        match event {
            "GUILD_CREATE" => apply(data, |guild| state.add_guild(guild)),
            "GUILD_DELETE" => apply(data, |guild: DiscordId| {
                state.channels.retain(|_, channel| channel.guild_id.as_ref() != Some(&guild.id));
                state.bot_roles.remove(&guild.id);
            }),
            "CHANNEL_CREATE" | "CHANNEL_UPDATE" | "THREAD_CREATE" | "THREAD_UPDATE" => {
                apply(data, |channel: DiscordChannel| state.add_channel(channel, None));
            }
            "CHANNEL_DELETE" | "THREAD_DELETE" => apply(data, |channel: DiscordId| {
                state.channels.remove(&channel.id);
            }),
            "THREAD_LIST_SYNC" => apply(data, |list: ThreadList| {
                for thread in list.threads {
                    state.add_channel(thread, Some(&list.guild_id));
                }
            }),
            "GUILD_ROLE_CREATE" | "GUILD_ROLE_UPDATE" => apply(data, |event: RoleEvent| {
                state.roles.insert(event.role.id, event.role.name);
            }),
            "GUILD_MEMBER_UPDATE" => apply(data, |event: MemberEvent| {
                if state.bot.as_ref().is_some_and(|bot| bot.id == event.user.id) {
                    state.bot_roles.insert(event.guild_id, event.roles.into_iter().collect());
                } else {
                    state.note_roles(&event.guild_id, &event.user.id, event.roles);
                }
            }),
            _ => {}
        }
    }

    pub(super) fn note_roles(&self, guild: &str, user: &str, roles: &[String]) {
        self.lock().note_roles(guild, user, roles.to_vec());
    }

    pub(super) fn note_channel(&self, channel: DiscordChannel) {
        self.lock().add_channel(channel, None);
    }

    pub(super) fn channel_name(&self, id: &str) -> Option<String> {
        self.lock().channels.get(id)?.name.clone()
    }

    pub(super) fn is_known(&self, channel: &str) -> bool {
        self.lock().channels.contains_key(channel)
    }

    /// Returns the id of the last message of a channel when the session began, or when the channel changed later.
    pub(super) fn last_message_at_begin(&self, channel: &str) -> Option<String> {
        self.lock().channels.get(channel)?.last_message_id.clone()
    }

    /// Returns the known threads of a channel.
    pub(super) fn threads_of(&self, channel: &str) -> Vec<String> {
        let state = self.lock();
        let known = state.channels.values().filter(|known| known.is_thread());
        let threads = known.filter(|thread| thread.parent_id.as_deref() == Some(channel));
        threads.map(|thread| thread.id.clone()).collect()
    }

    pub(super) fn role_name(&self, id: &str) -> Option<String> {
        self.lock().roles.get(id).cloned()
    }

    pub(super) fn bot_has_role(&self, guild: &str, role: &str) -> bool {
        self.lock().bot_roles.get(guild).is_some_and(|roles| roles.contains(role))
    }

    /// Returns the account of the bot.
    pub(super) async fn bot(&self, rest: &DiscordRest) -> Result<BotAccount, RestError> {
        if let Some(bot) = self.lock().bot.clone() {
            return Ok(bot);
        }
        let user: DiscordUser = parsed(rest.get("/users/@me").await?)?;
        let bot = BotAccount { name: user.shown_name().to_owned(), id: user.id };
        Ok(self.lock().bot.get_or_insert(bot).clone())
    }

    /// Returns the roles of a member; an empty list if the user has left.
    pub(super) async fn member_roles(
        &self,
        rest: &DiscordRest,
        guild: &str,
        user: &str,
    ) -> Result<Vec<String>, RestError> {
        let key = (guild.to_owned(), user.to_owned());
        if let Some((known_at, roles)) = self.lock().members.get(&key)
            && known_at.elapsed() < ROLES_AGE
        {
            return Ok(roles.clone());
        }
        let roles = match rest.get(format!("/guilds/{guild}/members/{user}")).await {
            Ok(member) => parsed::<DiscordMember>(member)?.roles,
            Err(RestError::Refused { status: 404, .. }) => Vec::new(),
            Err(error) => return Err(error),
        };
        self.lock().note_roles(guild, user, roles.clone());
        Ok(roles)
    }

    /// Requests the roles of the bot in a guild, if no event has stated them.
    pub(super) async fn ensure_bot_roles(
        &self,
        rest: &DiscordRest,
        guild: &str,
        bot: &str,
    ) -> Result<(), RestError> {
        if self.lock().bot_roles.contains_key(guild) {
            return Ok(());
        }
        let roles = self.member_roles(rest, guild, bot).await?;
        self.lock().bot_roles.insert(guild.to_owned(), roles.into_iter().collect());
        Ok(())
    }

    /// Returns the place of a message. Requests the channel from the platform if it belongs to a guild and no event has
    /// described it.
    pub(super) async fn place(
        &self,
        rest: &DiscordRest,
        guild: Option<String>,
        channel: &str,
    ) -> Result<ChatPlace, RestError> {
        let known = self.lock().channels.get(channel).cloned();
        let found = match (known, &guild) {
            (Some(known), _) => Some(known),
            (None, None) => None,
            (None, Some(_)) => match rest.get(format!("/channels/{channel}")).await {
                Ok(found) => {
                    let found: DiscordChannel = parsed(found)?;
                    self.note_channel(found.clone());
                    Some(found)
                }
                Err(RestError::Refused { .. }) => None,
                Err(error) => return Err(error),
            },
        };
        let parent = found.filter(DiscordChannel::is_thread).and_then(|thread| thread.parent_id);
        Ok(place_in(guild, channel.to_owned(), parent))
    }

    fn lock(&self) -> MutexGuard<'_, DirectoryState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DirectoryState {
    fn add_guild(&mut self, guild: GuildEvent) {
        for channel in guild.channels.into_iter().chain(guild.threads) {
            self.add_channel(channel, Some(&guild.id));
        }
        self.roles.extend(guild.roles.into_iter().map(|role| (role.id, role.name)));
        let is_bot = |member: &DiscordMember| {
            member.user.as_ref().map(|user| &user.id) == self.bot.as_ref().map(|bot| &bot.id)
        };
        if let Some(member) = guild.members.into_iter().find(is_bot) {
            self.bot_roles.insert(guild.id, member.roles.into_iter().collect());
        }
    }

    fn add_channel(&mut self, mut channel: DiscordChannel, guild: Option<&String>) {
        channel.guild_id = channel.guild_id.or_else(|| guild.cloned());
        self.channels.insert(channel.id.clone(), channel);
    }

    fn note_roles(&mut self, guild: &str, user: &str, roles: Vec<String>) {
        if self.members.len() >= MOST_MEMBERS {
            self.members.retain(|_, (known_at, _)| known_at.elapsed() < ROLES_AGE);
        }
        self.members.insert((guild.to_owned(), user.to_owned()), (Instant::now(), roles));
    }
}

/// Returns the place of a channel, or of a thread in `parent`.
pub(super) fn place_in(guild: Option<String>, channel: String, parent: Option<String>) -> ChatPlace {
    let is_direct = guild.is_none();
    match parent {
        Some(parent) => ChatPlace { space: guild, channel: parent, thread: Some(channel), is_direct },
        None => ChatPlace { space: guild, channel, thread: None, is_direct },
    }
}

/// Returns the id of the channel or thread that contains the messages of a place.
pub(super) fn conversation_of(place: &ChatPlace) -> &str {
    place.thread.as_deref().unwrap_or(&place.channel)
}

pub(super) fn parsed<T: DeserializeOwned>(value: Value) -> Result<T, RestError> {
    serde_json::from_value(value)
        .map_err(|error| RestError::Unavailable(format!("the answer has an unexpected form: {error}")))
}

fn apply<T: DeserializeOwned>(data: &Value, change: impl FnOnce(T)) {
    match T::deserialize(data) {
        Ok(event) => change(event),
        Err(error) => tracing::warn!("an event about a Discord server has an unexpected form: {error}"),
    }
}
