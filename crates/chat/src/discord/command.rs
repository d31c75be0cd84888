//! Slash commands and their registration.

use std::time::Duration;

use cowhand_system::wait;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::rest::{DiscordRest, RestError, RestRequest};

const FIRST_WAIT: Duration = Duration::from_secs(2);
const LONGEST_WAIT: Duration = Duration::from_mins(10);
/// Number of guilds in which commands of another scope are looked for.
const MAX_OTHER_GUILDS: usize = 20;
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

/// The commands of an application, and where they are offered.
#[derive(Debug)]
pub(super) struct SlashRegistration {
    pub(super) application: String,
    /// Guild in which the commands are registered; none for all guilds.
    pub(super) guild: Option<String>,
    /// Guilds of the bot.
    pub(super) guilds: Vec<String>,
    pub(super) commands: Vec<SlashCommand>,
}

impl SlashRegistration {
    /// Registers the commands, and tries again until it succeeds or the platform refuses the commands. The bot works
    /// without slash commands, so a failure is only logged.
    pub(super) async fn run(&self, rest: &DiscordRest) {
        let mut wait = FIRST_WAIT;
        while let Err(error) = self.register_once(rest).await {
            tracing::warn!("the slash commands could not be registered on Discord: {error}");
            match error {
                RestError::Revoked(_) => return,
                // Another try may succeed after the owner has given the bot the missing scope.
                RestError::Refused { .. } => wait = LONGEST_WAIT,
                RestError::RateLimited(limit) => wait = wait.max(limit),
                RestError::Unavailable(_) => {}
            }
            sleep(wait::length("chat_retry", wait)).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
        if let Err(error) = self.remove_from_other_scopes(rest).await {
            tracing::warn!("old slash commands could not be removed on Discord: {error}");
        }
    }

    async fn register_once(&self, rest: &DiscordRest) -> Result<(), RestError> {
        let path = self.path(self.guild.as_deref());
        let wanted: Vec<Value> = self.commands.iter().map(command_json).collect();
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

    /// Removes the commands that an earlier config has registered in another scope. Otherwise Discord offers them twice.
    /// Commands with other names stay.
    async fn remove_from_other_scopes(&self, rest: &DiscordRest) -> Result<(), RestError> {
        let guilds = self.guilds.iter().take(MAX_OTHER_GUILDS).map(|guild| Some(guild.as_str()));
        for scope in guilds.chain([None]).filter(|scope| *scope != self.guild.as_deref()) {
            let path = self.path(scope);
            let existing = match rest.get(path.clone()).await {
                // The bot may not have the scope for commands in this guild.
                Err(RestError::Refused { .. }) => continue,
                existing => existing?,
            };
            for command in existing.as_array().into_iter().flatten() {
                let is_own = self.commands.iter().any(|own| command["name"] == own.name);
                let Some(id) = command["id"].as_str().filter(|_| is_own) else { continue };
                rest.send(&RestRequest::new(Method::DELETE, format!("{path}/{id}"))).await?;
            }
        }
        Ok(())
    }

    fn path(&self, guild: Option<&str>) -> String {
        let scope = guild.map(|guild| format!("/guilds/{guild}")).unwrap_or_default();
        format!("/applications/{}{scope}/commands", self.application)
    }
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
