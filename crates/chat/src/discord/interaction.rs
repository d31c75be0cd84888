//! Interactions of people: slash commands, presses of buttons, and requests for suggestions; the events and the answers.

use std::time::Duration;

use cowhand_core::chat::{ButtonPress, ChatEvent, ChatUser, CommandCall, SuggestionRequest};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::directory::{Directory, place_in};
use super::message::chat_user;
use super::post::SUPPRESS_EMBEDS;
use super::rest::{DiscordRest, RestError, RestRequest};
use super::wire::{DiscordChannel, DiscordInteraction, InteractionOption};
use crate::EventReply;

/// Time for the reply. After it, the connector tells Discord that the reply follows. Discord waits three seconds.
const REPLY_TIME: Duration = Duration::from_secs(2);
/// Time for which Discord accepts the reply that was announced.
const TOKEN_LIFE: Duration = Duration::from_mins(15);
/// Maximum length of a message, counted in UTF-16 code units.
const MOST_UNITS: usize = 2000;
/// Flag of a message that only one person sees.
const EPHEMERAL: u64 = 1 << 6;
/// Maximum number of suggestions, and the maximum length of one.
const MOST_SUGGESTIONS: usize = 25;
const LONGEST_SUGGESTION: usize = 100;
/// Error code with which Discord refuses a second callback for the same interaction.
const ALREADY_ANSWERED: u64 = 40060;

const COMMAND: u64 = 2;
const COMPONENT: u64 = 3;
const AUTOCOMPLETE: u64 = 4;

const CALLBACK_MESSAGE: u64 = 4;
const CALLBACK_LATER: u64 = 5;
const CALLBACK_NOTHING: u64 = 6;
const CALLBACK_CHOICES: u64 = 8;

/// Address of the answer to an interaction: the data that the answer needs.
#[derive(Clone)]
pub(super) struct InteractionAddress {
    id: String,
    application: String,
    token: String,
    /// Kind of the interaction.
    kind: u64,
}

/// Does not show the token.
impl std::fmt::Debug for InteractionAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InteractionAddress").field("id", &self.id).finish_non_exhaustive()
    }
}

impl InteractionAddress {
    pub(super) fn of(interaction: &DiscordInteraction) -> Self {
        Self {
            id: interaction.id.clone(),
            application: interaction.application_id.clone(),
            token: interaction.token.clone(),
            kind: interaction.kind,
        }
    }

    fn callback(&self, kind: u64, data: Option<Value>) -> RestRequest {
        let mut body = json!({ "type": kind });
        if let Some(data) = data {
            body["data"] = data;
        }
        let path = format!("/interactions/{}/{}/callback", self.id, self.token);
        // A repetition is refused with `ALREADY_ANSWERED`.
        RestRequest { is_repeatable: true, with_token: false, ..RestRequest::new(Method::POST, path) }
            .json(body)
    }

    fn on_original(&self, method: Method) -> RestRequest {
        let path = format!("/webhooks/{}/{}/messages/@original", self.application, self.token);
        RestRequest { with_token: false, ..RestRequest::new(method, path) }
    }
}

/// Returns the event of an interaction; none for kinds that cowhand does not use.
pub(super) fn interaction_event(
    interaction: &DiscordInteraction,
    directory: &Directory,
    bot: &str,
) -> Option<ChatEvent> {
    let channel = interaction.channel_id.clone().or_else(|| Some(interaction.channel.clone()?.id))?;
    let parent = interaction.channel.clone().filter(DiscordChannel::is_thread).and_then(|it| it.parent_id);
    let place = place_in(interaction.guild_id.clone(), channel, parent);
    let user = user_of(interaction, directory, bot)?;
    let id = interaction.id.clone();
    match interaction.kind {
        COMMAND | AUTOCOMPLETE => {
            let values = interaction.data.options.iter().map(|option| (option.name.clone(), text_of(option)));
            let (name, options) = (interaction.data.name.clone(), values.collect());
            let call = CommandCall { id, place, user, name, argument: String::new(), options };
            if interaction.kind == COMMAND {
                return Some(ChatEvent::Command(call));
            }
            let filled_in = interaction.data.options.iter().find(|option| option.focused)?;
            let (option, typed) = (filled_in.name.clone(), text_of(filled_in));
            Some(ChatEvent::Suggest(SuggestionRequest { call, option, typed }))
        }
        COMPONENT => {
            let message = interaction.message.as_ref()?.id.clone();
            let value = interaction.data.custom_id.clone();
            Some(ChatEvent::Button(ButtonPress { id, place, user, message, value }))
        }
        _ => None,
    }
}

fn user_of(interaction: &DiscordInteraction, directory: &Directory, bot: &str) -> Option<ChatUser> {
    let member = interaction.member.as_ref();
    let user = member.and_then(|member| member.user.as_ref()).or(interaction.user.as_ref())?;
    let roles = member.map(|member| member.roles.clone()).unwrap_or_default();
    if let Some(guild) = &interaction.guild_id {
        directory.note_roles(guild, &user.id, &roles);
    }
    Some(chat_user(user, member, roles, bot))
}

fn text_of(option: &InteractionOption) -> String {
    match &option.value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// Sends suggestions. Sends an empty list if there is no reply in time, because Discord accepts no later answer.
async fn answer_autocomplete(
    rest: &DiscordRest,
    address: &InteractionAddress,
    received_at: Instant,
    reply: oneshot::Receiver<EventReply>,
) {
    let suggestions = match timeout_at(received_at + REPLY_TIME, reply).await {
        Ok(Ok(EventReply::Suggestions(suggestions))) => suggestions,
        _ => Vec::new(),
    };
    let fits = |text: &&String| (1..=LONGEST_SUGGESTION).contains(&text.encode_utf16().count());
    let choices = suggestions.iter().filter(fits).take(MOST_SUGGESTIONS);
    let choices: Vec<Value> = choices.map(|text| json!({ "name": text, "value": text })).collect();
    log(rest.send(&address.callback(CALLBACK_CHOICES, Some(json!({ "choices": choices })))).await);
}

/// Waits for the reply, and answers the interaction within the limit of three seconds after `received_at`. If the
/// reply channel is dropped before `REPLY_TIME`, a command or press gets no callback, and Discord says that the bot did
/// not answer. If it is dropped later, cowhand itself says that there is no answer.
pub(super) async fn answer_interaction(
    rest: &DiscordRest,
    address: &InteractionAddress,
    received_at: Instant,
    mut reply: oneshot::Receiver<EventReply>,
) {
    if address.kind == AUTOCOMPLETE {
        return answer_autocomplete(rest, address, received_at, reply).await;
    }
    let callback = match timeout_at(received_at + REPLY_TIME, &mut reply).await {
        Ok(Ok(EventReply::Text(text))) => address.callback(CALLBACK_MESSAGE, Some(private_message(&text))),
        Ok(Ok(EventReply::Stored)) if address.kind == COMPONENT => address.callback(CALLBACK_NOTHING, None),
        Ok(Ok(EventReply::Stored | EventReply::Suggestions(_))) => {
            address.callback(CALLBACK_MESSAGE, Some(private_message("Done.")))
        }
        Ok(Err(_)) => return,
        Err(_) => {
            log(rest.send(&address.callback(CALLBACK_LATER, Some(json!({ "flags": EPHEMERAL })))).await);
            return answer_later(rest, address, received_at, reply).await;
        }
    };
    log(rest.send(&callback).await);
}

async fn answer_later(
    rest: &DiscordRest,
    address: &InteractionAddress,
    received_at: Instant,
    reply: oneshot::Receiver<EventReply>,
) {
    let request = match timeout_at(received_at + TOKEN_LIFE, reply).await {
        Ok(Ok(EventReply::Text(text))) => address.on_original(Method::PATCH).json(private_message(&text)),
        Ok(Ok(EventReply::Stored | EventReply::Suggestions(_))) => address.on_original(Method::DELETE),
        Ok(Err(_)) => {
            address.on_original(Method::PATCH).json(private_message("There is no answer. Try again."))
        }
        Err(_) => return,
    };
    log(rest.send(&request).await);
}

fn private_message(text: &str) -> Value {
    json!({ "content": cut(text), "flags": EPHEMERAL | SUPPRESS_EMBEDS, "allowed_mentions": { "parse": [] } })
}

/// Cuts a text to the length that Discord allows.
fn cut(text: &str) -> String {
    if text.encode_utf16().count() <= MOST_UNITS {
        return text.to_owned();
    }
    let mut units = 0;
    let fits = |letter: &char| {
        units += letter.len_utf16();
        units < MOST_UNITS
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

fn log<T>(result: Result<T, RestError>) {
    match result {
        Ok(_) | Err(RestError::Refused { code: ALREADY_ANSWERED, .. }) => {}
        Err(error) => tracing::warn!("an interaction on Discord could not be answered: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&"x".repeat(2000)).len(), 2000);
        let text = cut(&"😀".repeat(1001));
        assert!(text.ends_with('…') && text.encode_utf16().count() <= 2000);
    }
}
