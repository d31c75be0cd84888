//! Slash commands and their registration.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::rest::{DiscordRest, RestError, RestRequest};

const FIRST_WAIT: Duration = Duration::from_secs(2);
const LONGEST_WAIT: Duration = Duration::from_mins(10);
/// Type of an option whose value is a text.
const STRING_OPTION: u64 = 3;
/// Type of a command that people write, unlike an entry of a menu.
const CHAT_COMMAND: u64 = 1;

/// Slash command that Discord offers to people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlashCommand {
    /// Lower case, at most 32 characters.
    pub name: String,
    /// From 1 to 100 characters.
    pub description: String,
    pub options: Vec<SlashOption>,
}

/// Option of a slash command, whose value is a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlashOption {
    pub name: String,
    pub description: String,
    pub is_required: bool,
    /// The only allowed values; empty if every text is allowed. At most 25.
    pub choices: Vec<String>,
    /// True if Discord asks for suggestions while a person writes the value. An option with choices has none.
    pub has_suggestions: bool,
}

/// Registers the commands. Tries again until it succeeds or the platform refuses the token. The bot works without slash
/// commands, so a failure is only logged.
pub(super) async fn register_commands(
    rest: &DiscordRest,
    application: &str,
    guild: Option<&str>,
    commands: &[SlashCommand],
) {
    let mut wait = FIRST_WAIT;
    while let Err(error) = register_once(rest, application, guild, commands).await {
        tracing::warn!("the slash commands could not be registered on Discord: {error}");
        match error {
            RestError::Revoked(_) => return,
            // Another try may succeed after the owner has given the bot the missing scope.
            RestError::Refused { .. } => wait = LONGEST_WAIT,
            RestError::RateLimited(limit) => wait = wait.max(limit),
            RestError::Unavailable(_) => {}
        }
        sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

async fn register_once(
    rest: &DiscordRest,
    application: &str,
    guild: Option<&str>,
    commands: &[SlashCommand],
) -> Result<(), RestError> {
    let scope = guild.map(|guild| format!("/guilds/{guild}")).unwrap_or_default();
    let path = format!("/applications/{application}{scope}/commands");
    let wanted: Vec<Value> = commands.iter().map(command_json).collect();
    let existing = rest.get(path.clone()).await?;
    let mut existing: Vec<Value> = existing.as_array().into_iter().flatten().map(known_part).collect();
    let mut sorted = wanted.clone();
    for list in [&mut existing, &mut sorted] {
        list.sort_by_key(|command| command["name"].as_str().unwrap_or_default().to_owned());
    }
    if existing != sorted {
        rest.send(&RestRequest::new(Method::PUT, path).json(Value::Array(wanted))).await?;
    }
    Ok(())
}

fn command_json(command: &SlashCommand) -> Value {
    let options: Vec<Value> = command.options.iter().map(option_json).collect();
    json!({
        "name": command.name,
        "description": command.description,
        "type": CHAT_COMMAND,
        "options": options,
    })
}

fn option_json(option: &SlashOption) -> Value {
    let choices: Vec<Value> =
        option.choices.iter().map(|choice| json!({ "name": choice, "value": choice })).collect();
    json!({
        "type": STRING_OPTION,
        "name": option.name,
        "description": option.description,
        "required": option.is_required,
        "choices": choices,
        "autocomplete": option.has_suggestions,
    })
}

/// Returns the part of a registered command that cowhand sets, in the form of [`command_json`].
fn known_part(command: &Value) -> Value {
    let options: Vec<Value> = list(command, "options")
        .map(|option| {
            let choices: Vec<Value> = list(option, "choices")
                .map(|choice| json!({ "name": choice["name"], "value": choice["value"] }))
                .collect();
            json!({
                "type": option["type"],
                "name": option["name"],
                "description": option["description"],
                "required": option["required"].as_bool().unwrap_or(false),
                "choices": choices,
                "autocomplete": option["autocomplete"].as_bool().unwrap_or(false),
            })
        })
        .collect();
    json!({
        "name": command["name"],
        "description": command["description"],
        "type": command["type"].as_u64().unwrap_or(CHAT_COMMAND),
        "options": options,
    })
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value[key].as_array().into_iter().flatten()
}
