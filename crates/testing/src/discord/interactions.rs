//! Buttons that people press and slash commands that they use.

use serde_json::{Value, json};

use super::FakeDiscord;
use super::state::{FakeDiscordBot, FakeDiscordInteraction, FakeDiscordState};

const COMMAND: u64 = 2;
const COMPONENT: u64 = 3;
const AUTOCOMPLETE: u64 = 4;
/// Type of a callback with suggestions.
pub(super) const AUTOCOMPLETE_RESULT: u64 = 8;

impl FakeDiscord {
    /// Presses a button of a message and returns the text that only this person sees. Panics if the message has no such
    /// button.
    pub async fn press(&self, user: &str, channel: &str, message: &str, custom_id: &str) -> String {
        self.check_button(message, custom_id);
        self.press_forged(user, channel, message, custom_id).await
    }

    /// Sends the press of a button that the message may not have.
    pub async fn press_forged(&self, user: &str, channel: &str, message: &str, custom_id: &str) -> String {
        let token = {
            let mut state = self.lock();
            let data = json!({ "custom_id": custom_id, "component_type": 2, "id": 1 });
            let message = state.message(message).unwrap();
            let bot = message.author.clone();
            let message = state.message_json(message, &bot);
            state.interact(COMPONENT, &bot, user, channel, &data, Some(&message))
        };
        self.answer_of(&token).await
    }

    /// Uses a slash command of the first bot that has it, as soon as it is registered, and returns the text that only this person sees.
    pub async fn slash(&self, user: &str, channel: &str, name: &str, options: &[(&str, &str)]) -> String {
        self.registered(name).await;
        let token = self.send_slash(COMMAND, user, channel, name, options);
        self.answer_of(&token).await
    }

    /// Asks for suggestions for an option, and returns them, one in each line.
    pub async fn suggestions(&self, user: &str, channel: &str, name: &str, option: &str) -> String {
        self.registered(name).await;
        let token = self.send_slash(AUTOCOMPLETE, user, channel, name, &[(option, "")]);
        self.answer_of(&token).await
    }

    /// Returns how many answers the bot has announced, because they were not ready in time.
    pub fn announced_answers(&self) -> usize {
        self.lock().interactions.values().filter(|interaction| interaction.callback == Some(5)).count()
    }

    fn check_button(&self, message: &str, custom_id: &str) {
        let rows = self.lock().message(message).unwrap().components.clone();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let mut buttons = list(&rows).into_iter().flat_map(|row| list(&row["components"]));
        assert!(buttons.any(|button| button["custom_id"] == custom_id), "no button {custom_id} in {rows}");
    }

    async fn registered(&self, name: &str) {
        let is_there = |fake: &Self| fake.commands().iter().any(|command| command["name"] == name);
        self.wait_for(&format!("the slash command {name}"), |fake| is_there(fake).then_some(())).await;
    }

    fn send_slash(
        &self,
        kind: u64,
        user: &str,
        channel: &str,
        name: &str,
        options: &[(&str, &str)],
    ) -> String {
        let mut state = self.lock();
        let of_bot = |bot: &FakeDiscordBot| {
            let mut commands = bot.commands.values().flatten();
            let command = commands.find(|command| command["name"] == name)?;
            Some((bot.account.id.clone(), command["id"].clone()))
        };
        let registered = state.bots.iter().find_map(of_bot);
        let (bot, id) = registered.unwrap_or_else(|| panic!("no slash command {name}"));
        let options: Vec<Value> = options
            .iter()
            .map(|(name, value)| json!({ "type": 3, "name": name, "value": value, "focused": kind == AUTOCOMPLETE }))
            .collect();
        let data = json!({ "id": id, "name": name, "type": 1, "options": options });
        state.interact(kind, &bot, user, channel, &data, None)
    }

    async fn answer_of(&self, token: &str) -> String {
        self.wait_for("the answer to an interaction", |fake| {
            let state = fake.lock();
            let interaction = &state.interactions[token];
            let text = interaction.text.clone()?;
            let is_private = interaction.flags & 64 != 0 || interaction.callback == Some(AUTOCOMPLETE_RESULT);
            assert!(text.is_empty() || is_private, "everybody sees the answer {text:?}");
            Some(text)
        })
        .await
    }
}

impl FakeDiscordState {
    /// Sends an interaction to a bot and returns its token.
    fn interact(
        &mut self,
        kind: u64,
        bot: &str,
        user: &str,
        channel: &str,
        data: &Value,
        message: Option<&Value>,
    ) -> String {
        let id = self.new_id();
        let token = format!("interaction-token-{id}");
        let guild = self.guild_of(channel);
        let mut event = json!({
            "id": id,
            "application_id": self.bot(bot).unwrap().account.application,
            "type": kind,
            "token": token,
            "version": 1,
            "channel_id": channel,
            "channel": self.channel_json(channel),
            "data": data,
            "app_permissions": "2147551232",
            "locale": "en-US",
            "entitlements": [],
            "authorizing_integration_owners": {},
            "attachment_size_limit": 10_485_760,
            "context": u8::from(guild.is_none()),
        });
        if let Some(guild) = &guild {
            event["guild_id"] = json!(guild);
            event["member"] = self.full_member_json(user);
            event["guild_locale"] = json!("en-US");
        } else {
            event["user"] = self.user_json(user);
        }
        if let Some(message) = message {
            event["message"] = message.clone();
        }
        let (bot, channel) = (bot.to_owned(), channel.to_owned());
        let interaction =
            FakeDiscordInteraction { bot: bot.clone(), channel, ..FakeDiscordInteraction::default() };
        self.interactions.insert(token.clone(), interaction);
        self.send_event("INTERACTION_CREATE", 0, |session| (session.bot == bot).then(|| event.clone()));
        token
    }
}
