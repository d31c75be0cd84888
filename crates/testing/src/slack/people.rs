//! Actions of people and other bots in the workspace.

use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::events::{add_message, change_message, delete_message, send_again, send_message_event};
use super::socket::send_envelope;
use super::{BOT_USER, FakeFile, FakeSlack, TEAM, blocks};

/// Text that Slack shows if an app does not acknowledge a command in time.
pub const COMMAND_TIMED_OUT: &str = "operation_timeout";

impl FakeSlack {
    /// Lets a user write in a channel. Returns the timestamp of the message.
    pub fn say(&self, channel: &str, user: &str, text: &str) -> String {
        add_message(&self.workspace, channel, json!({ "user": user, "text": text }))
    }

    pub fn say_in_thread(&self, channel: &str, thread: &str, user: &str, text: &str) -> String {
        let message = json!({ "user": user, "text": text, "thread_ts": thread });
        add_message(&self.workspace, channel, message)
    }

    /// Lets a user write to the bot.
    pub fn say_direct(&self, user: &str, text: &str) -> String {
        self.say(&self.direct_channel(user), user, text)
    }

    /// Lets another app write.
    pub fn say_as_bot(&self, channel: &str, bot: &str, text: &str) -> String {
        let message = json!({ "subtype": "bot_message", "bot_id": bot, "username": format!("App {bot}"), "text": text });
        add_message(&self.workspace, channel, message)
    }

    /// Lets another app write that has an id as a user, too.
    pub fn say_as_app(&self, channel: &str, user: &str, bot: &str, text: &str) -> String {
        let message = json!({ "user": user, "bot_id": bot, "text": text,
            "bot_profile": { "id": bot, "name": format!("App {bot}") } });
        add_message(&self.workspace, channel, message)
    }

    /// Lets a user write with a file.
    pub fn say_with_file(
        &self,
        channel: &str,
        user: &str,
        text: &str,
        name: &str,
        media_type: &str,
        content: &[u8],
    ) -> String {
        self.share(channel, user, text, file_of(name, media_type, content))
    }

    /// Lets a user record a voice message.
    pub fn say_voice(&self, channel: &str, user: &str, text: &str, content: &[u8]) -> String {
        let file = file_of("audio_message.m4a", "audio/mp4", content);
        self.share(channel, user, text, FakeFile { is_voice: true, ..file })
    }

    fn share(&self, channel: &str, user: &str, text: &str, file: FakeFile) -> String {
        let id = {
            let mut state = self.state();
            let id = state.next_id("F");
            state.files.insert(id.clone(), file);
            id
        };
        let file = self.workspace.file_object(&id);
        let message = json!({ "subtype": "file_share", "user": user, "text": text, "files": [file] });
        let ts = add_message(&self.workspace, channel, message);
        let mut state = self.state();
        state.files.get_mut(&id).unwrap().shares.push((channel.to_owned(), ts.clone()));
        ts
    }

    /// Adds a notice, for example of somebody who joined.
    pub fn notice(&self, channel: &str, user: &str, subtype: &str) -> String {
        let text = format!("<@{user}> has joined the channel");
        add_message(&self.workspace, channel, json!({ "subtype": subtype, "user": user, "text": text }))
    }

    /// Lets the author of a message edit it.
    pub fn edit(&self, channel: &str, ts: &str, text: &str) {
        change_message(&self.workspace, channel, ts, |message| {
            message["text"] = json!(text);
            message["edited"] = json!({ "user": message["user"], "ts": ts });
        });
    }

    /// Adds a preview of a link to a message, as Slack does by itself.
    pub fn unfurl(&self, channel: &str, ts: &str) {
        change_message(&self.workspace, channel, ts, |message| {
            message["attachments"] = json!([{ "title": "preview" }]);
        });
    }

    pub fn delete(&self, channel: &str, ts: &str) {
        delete_message(&self.workspace, channel, ts);
    }

    /// Sends all events of a message again, in new envelopes.
    pub fn redeliver(&self, ts: &str) {
        send_again(&self.workspace, ts);
    }

    /// Sends an event of type `message` with these fields.
    pub fn send_event(&self, channel: &str, event: Value) {
        send_message_event(&self.workspace, channel, "", event);
    }

    /// Lets a user press a button of a message. Returns the id of the press.
    pub fn press(&self, user: &str, channel: &str, ts: &str, value: &str) -> String {
        let message = self.state().message(channel, ts).unwrap().clone();
        assert!(blocks::button(&message, value).is_some(), "no button has the value {value}: {message}");
        self.press_forged(user, channel, ts, value)
    }

    /// Sends a press with any value, whether a button has it or not.
    pub fn press_forged(&self, user: &str, channel: &str, ts: &str, value: &str) -> String {
        let trigger = self.new_trigger(user);
        let message = self.state().message(channel, ts).cloned().unwrap_or_default();
        let payload = json!({
            "type": "block_actions",
            "team": { "id": TEAM },
            "user": { "id": user, "team_id": TEAM },
            "channel": { "id": channel },
            "container": { "type": "message", "message_ts": ts, "channel_id": channel },
            "message": message,
            "trigger_id": trigger,
            "response_url": self.response_url(&trigger),
            "actions": [{ "type": "button", "block_id": "b", "action_id": "a", "value": value }],
        });
        drop(send_envelope(&self.workspace, "interactive", &payload));
        trigger
    }

    /// Waits for the text that answers a press.
    pub async fn wait_for_answer(&self, trigger: &str) -> String {
        let answer = |state: &mut super::FakeSlackState| {
            let mut ephemerals = state.ephemerals.iter();
            ephemerals.find(|ephemeral| ephemeral.trigger == trigger).map(|answer| answer.text.clone())
        };
        self.wait_for("an answer that one user sees", answer).await
    }

    /// Lets a user call a slash command. Returns the text that the user sees.
    pub async fn slash(&self, user: &str, channel: &str, command: &str, text: &str) -> String {
        let (trigger, acknowledged) = self.send_command(user, channel, command, text);
        let deadline = self.state().acknowledge_within;
        match tokio::time::timeout(deadline, acknowledged).await {
            Ok(Ok(payload)) => match payload["text"].as_str() {
                Some(text) => text.to_owned(),
                None => self.wait_for_answer(&trigger).await,
            },
            Ok(Err(_)) | Err(_) => COMMAND_TIMED_OUT.to_owned(),
        }
    }

    fn send_command(
        &self,
        user: &str,
        channel: &str,
        command: &str,
        text: &str,
    ) -> (String, oneshot::Receiver<Value>) {
        let trigger = self.new_trigger(user);
        let payload = json!({
            "command": command, "text": text, "team_id": TEAM, "channel_id": channel, "user_id": user,
            "trigger_id": trigger, "response_url": self.response_url(&trigger), "api_app_id": "A1",
        });
        let acknowledged = send_envelope(&self.workspace, "slash_commands", &payload);
        (trigger, acknowledged)
    }

    fn new_trigger(&self, user: &str) -> String {
        let mut state = self.state();
        let trigger = state.next_id("trigger-");
        state.triggers.insert(trigger.clone(), user.to_owned());
        trigger
    }

    fn response_url(&self, trigger: &str) -> String {
        format!("{}/response/{trigger}", self.workspace.base)
    }

    /// Returns the texts of the bot's messages in a channel.
    pub fn posted_texts(&self, channel: &str) -> Vec<String> {
        let messages = self.messages(channel).into_iter().filter(|message| message["user"] == BOT_USER);
        messages.map(|message| message["text"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

fn file_of(name: &str, media_type: &str, content: &[u8]) -> FakeFile {
    FakeFile {
        name: name.to_owned(),
        media_type: media_type.to_owned(),
        content: content.to_vec(),
        is_uploaded: true,
        is_voice: false,
        shares: Vec::new(),
    }
}
