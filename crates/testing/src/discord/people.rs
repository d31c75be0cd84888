//! Actions of people on the platform, and the setup of a server by its owner.

use serde_json::{Value, json};

use super::state::{
    BOT_PERMISSIONS, DIRECT_MESSAGES, FakeDiscordAccount, FakeDiscordBot, FakeDiscordChannel,
    FakeDiscordFile, FakeDiscordGuild, FakeDiscordMessage, FakeDiscordPair, FakeDiscordRole,
    FakeDiscordSession, FakeDiscordState, FakeDiscordUser, GUILD_MESSAGES, GUILDS, SUPPRESS_EMBEDS,
};
use super::{BOT_ID, FakeDiscord};

/// Flag of a recorded voice message.
const VOICE_MESSAGE: u64 = 1 << 13;

impl FakeDiscord {
    /// Adds a person and returns the id.
    pub fn add_user(&self, name: &str) -> String {
        self.lock().add_user(name, false)
    }

    /// Adds a bot that cowhand can use, with its application and its token. It is a member of all guilds.
    pub fn install_bot(&self, name: &str) -> FakeDiscordAccount {
        let mut state = self.lock();
        let (id, application) = (state.add_user(name, true), state.new_id());
        let token = format!("MTAwMDAwMDAwMDAwMDAwMDAx.Fake01.discord-bot-token-of-{id}");
        let account = FakeDiscordAccount { id, application, token };
        state.bots.push(FakeDiscordBot::new(account.clone()));
        account
    }

    /// Adds another bot and returns its id.
    pub fn add_bot(&self, name: &str) -> String {
        self.lock().add_user(name, true)
    }

    pub fn add_guild(&self, name: &str) -> String {
        let mut state = self.lock();
        let id = state.new_id();
        let guild = FakeDiscordGuild { name: name.to_owned(), permissions: BOT_PERMISSIONS };
        state.guilds.insert(id.clone(), guild);
        let bots = state.bots.iter().map(|bot| bot.account.id.clone()).collect::<Vec<_>>();
        for bot in bots {
            let data = state.guild_json(&id, &bot);
            state.send_event("GUILD_CREATE", GUILDS, |session| (session.bot == bot).then(|| data.clone()));
        }
        id
    }

    pub fn add_channel(&self, guild: &str, name: &str) -> String {
        let channel = FakeDiscordChannel {
            guild: Some(guild.to_owned()),
            name: name.to_owned(),
            parent: None,
            direct: None,
        };
        self.lock().add_channel(channel, "CHANNEL_CREATE")
    }

    /// Adds a role and returns the id.
    pub fn add_role(&self, guild: &str, name: &str) -> String {
        let mut state = self.lock();
        let id = state.new_id();
        let role = FakeDiscordRole { guild: guild.to_owned(), name: name.to_owned() };
        state.roles.insert(id.clone(), role);
        let data = json!({ "guild_id": guild, "role": state.role_json(&id) });
        state.send_event("GUILD_ROLE_CREATE", GUILDS, |_| Some(data.clone()));
        id
    }

    /// Gives a role to a user. The gateway tells the bot only about its own roles.
    pub fn give_role(&self, guild: &str, user: &str, role: &str) {
        let mut state = self.lock();
        state.users.get_mut(user).unwrap().roles.push(role.to_owned());
        if state.bot(user).is_some() {
            let mut data = state.full_member_json(user);
            data["guild_id"] = json!(guild);
            let of_bot = |session: &FakeDiscordSession| (session.bot == user).then(|| data.clone());
            state.send_event("GUILD_MEMBER_UPDATE", 0, of_bot);
        }
    }

    pub fn take_role(&self, user: &str, role: &str) {
        self.lock().users.get_mut(user).unwrap().roles.retain(|held| held != role);
    }

    /// Starts a thread in a channel and returns the id.
    pub fn create_thread(&self, channel: &str, name: &str) -> String {
        let mut state = self.lock();
        state.create_thread(channel, name, true)
    }

    /// Starts a thread about which the gateway sends the bot no event.
    pub fn create_unknown_thread(&self, channel: &str, name: &str) -> String {
        let mut state = self.lock();
        state.create_thread(channel, name, false)
    }

    /// Writes a message and returns its id.
    pub fn say(&self, channel: &str, user: &str, text: &str) -> String {
        self.lock().add_message(written(channel, user, text), None)
    }

    /// Starts a thread, writes a message in it, and returns the ids of the thread and of the message.
    pub fn say_in_thread(&self, channel: &str, user: &str, text: &str) -> (String, String) {
        let thread = self.create_thread(channel, "thread");
        let message = self.say(&thread, user, text);
        (thread, message)
    }

    /// Writes a direct message to the first bot and returns the ids of the channel and of the message.
    pub fn say_direct(&self, user: &str, text: &str) -> (String, String) {
        self.say_directly_to(BOT_ID, user, text)
    }

    /// Writes a direct message to a bot and returns the ids of the channel and of the message.
    pub fn say_directly_to(&self, bot: &str, user: &str, text: &str) -> (String, String) {
        let mut state = self.lock();
        let channel = state.direct_channel(bot, user);
        let message = state.add_message(written(&channel, user, text), None);
        (channel, message)
    }

    /// Returns the channel of the direct conversation of a bot with a person.
    pub fn direct_channel(&self, bot: &str, user: &str) -> String {
        self.lock().direct_channel(bot, user)
    }

    pub fn say_with_file(
        &self,
        channel: &str,
        user: &str,
        text: &str,
        name: &str,
        media_type: &str,
        content: &[u8],
    ) -> String {
        let files = vec![file(name, media_type, content)];
        let message = FakeDiscordMessage { files, ..written(channel, user, text) };
        self.lock().add_message(message, None)
    }

    /// Sends a recorded voice message.
    pub fn say_voice(&self, channel: &str, user: &str, content: &[u8]) -> String {
        let files = vec![file("voice-message.ogg", "audio/ogg", content)];
        let message = FakeDiscordMessage { files, flags: VOICE_MESSAGE, ..written(channel, user, "") };
        self.lock().add_message(message, None)
    }

    /// Writes a message of another bot.
    pub fn say_as_bot(&self, channel: &str, text: &str) -> String {
        let bot = self.add_bot("other-bot");
        self.say(channel, &bot, text)
    }

    /// Replies to a message. A reply that pings notifies the author of the message.
    pub fn reply_to(&self, message: &str, user: &str, text: &str, pings: bool) -> String {
        let mut state = self.lock();
        let channel = state.message(message).unwrap().channel.clone();
        let reply =
            FakeDiscordMessage { reply_to: Some(message.to_owned()), ..written(&channel, user, text) };
        let allowed = json!({ "parse": ["users", "roles", "everyone"], "replied_user": pings });
        state.add_message(reply, Some(&allowed))
    }

    /// Changes the text of a message.
    pub fn edit(&self, message: &str, text: &str) {
        self.lock().edit_message(message, &json!({ "content": text }));
    }

    /// Adds the preview of a link to a message, as the platform does after a while.
    pub fn unfurl(&self, message: &str) {
        let mut state = self.lock();
        state.message_mut(message).unwrap().embeds =
            json!([{ "type": "link", "title": "A page", "url": "https://example.org" }]);
        state.send_message_event("MESSAGE_UPDATE", message);
    }

    pub fn delete(&self, message: &str) {
        self.lock().delete_message(message);
    }

    /// Deletes several messages of a channel at once.
    pub fn delete_all(&self, messages: &[String]) {
        let mut state = self.lock();
        let channel = state.message(&messages[0]).unwrap().channel.clone();
        state.messages.retain(|_, message| !messages.contains(&message.id));
        let data = json!({ "ids": messages, "channel_id": channel, "guild_id": state.guild_of(&channel) });
        state.send_event("MESSAGE_DELETE_BULK", GUILD_MESSAGES, |_| Some(data.clone()));
    }

    /// Sends the notice that somebody has joined.
    pub fn announce_member(&self, channel: &str, user: &str) {
        let mut state = self.lock();
        let message = FakeDiscordMessage { id: state.new_id(), ..written(channel, user, "") };
        let mut data = state.message_json(&message, "");
        (data["type"], data["guild_id"]) = (json!(7), json!(state.guild_of(channel)));
        data["member"] = state.member_json(user);
        state.send_event("MESSAGE_CREATE", GUILD_MESSAGES, |_| Some(data.clone()));
    }
}

impl FakeDiscordState {
    fn add_user(&mut self, name: &str, is_bot: bool) -> String {
        let id = self.new_id();
        let user = FakeDiscordUser { name: name.to_owned(), is_bot, roles: Vec::new() };
        self.users.insert(id.clone(), user);
        id
    }

    fn add_channel(&mut self, channel: FakeDiscordChannel, event: &str) -> String {
        let id = self.new_id();
        self.channels.insert(id.clone(), channel);
        let data = self.channel_json(&id);
        self.send_event(event, GUILDS, |_| Some(data.clone()));
        id
    }

    pub(super) fn create_thread(&mut self, channel: &str, name: &str, is_told: bool) -> String {
        let (guild, parent) = (self.guild_of(channel), Some(channel.to_owned()));
        let thread = FakeDiscordChannel { guild, name: name.to_owned(), parent, direct: None };
        if is_told {
            return self.add_channel(thread, "THREAD_CREATE");
        }
        let id = self.new_id();
        self.channels.insert(id.clone(), thread);
        id
    }

    /// Returns the channel of the direct conversation of a bot with a person.
    pub(super) fn direct_channel(&mut self, bot: &str, user: &str) -> String {
        let direct = Some(FakeDiscordPair { user: user.to_owned(), bot: bot.to_owned() });
        let known = self.channels.iter().find(|(_, channel)| channel.direct == direct);
        if let Some((id, _)) = known {
            return id.clone();
        }
        let channel = FakeDiscordChannel { guild: None, name: String::new(), parent: None, direct };
        let id = self.new_id();
        // Discord sends bots no event about it.
        self.channels.insert(id.clone(), channel);
        id
    }

    /// Changes the parts of a message that a request contains.
    pub(super) fn edit_message(&mut self, id: &str, change: &Value) {
        let message = self.message_mut(id).unwrap();
        if let Some(content) = change["content"].as_str() {
            content.clone_into(&mut message.content);
        }
        // Of the flags, a bot can only change this one.
        if let Some(flags) = change["flags"].as_u64() {
            message.flags = (message.flags & !SUPPRESS_EMBEDS) | (flags & SUPPRESS_EMBEDS);
        }
        if change["components"].is_array() {
            message.components = change["components"].clone();
        }
        if change["embeds"].is_array() {
            message.embeds = change["embeds"].clone();
        }
        message.edited_at = Some(jiff::Timestamp::now());
        message.edits += 1;
        self.send_message_event("MESSAGE_UPDATE", id);
    }

    pub(super) fn delete_message(&mut self, id: &str) {
        let Some(message) = self.messages.remove(&id.parse().unwrap()) else { return };
        let guild = self.guild_of(&message.channel);
        let intent = if guild.is_some() { GUILD_MESSAGES } else { DIRECT_MESSAGES };
        let direct = self.channels[&message.channel].direct.clone();
        let data = json!({ "id": id, "channel_id": message.channel, "guild_id": guild });
        self.send_event("MESSAGE_DELETE", intent, |session| {
            direct.as_ref().is_none_or(|direct| direct.bot == session.bot).then(|| data.clone())
        });
    }
}

fn written(channel: &str, user: &str, text: &str) -> FakeDiscordMessage {
    FakeDiscordMessage {
        channel: channel.to_owned(),
        author: user.to_owned(),
        content: text.to_owned(),
        ..FakeDiscordMessage::default()
    }
}

fn file(name: &str, media_type: &str, content: &[u8]) -> FakeDiscordFile {
    FakeDiscordFile {
        id: String::new(),
        name: name.to_owned(),
        media_type: media_type.to_owned(),
        content: content.to_vec(),
        url: String::new(),
    }
}
