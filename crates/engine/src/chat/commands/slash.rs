//! The slash commands of Discord, made from the descriptions of all commands, and the suggestions for their options.

use cowhand_chat::discord::{SlashCommand, SlashOption};
use cowhand_core::chat::SuggestionRequest;
use cowhand_core::chat::command::{AGENT_OPTION, COMMANDS, CommandDescription, CommandOption};
use tracing::warn;

use super::super::bot::Bot;
use super::super::context::ChatContext;
use super::super::intake::{Addressee, Candidates};
use super::skill::skills_of;

/// Commands that a bot without skills does not have.
const SKILL_COMMANDS: [&str; 2] = ["skill", "skills"];

/// Returns the slash commands of a bot. A command has one slash command for its name and one for each alias.
pub(in super::super) fn slash_commands(has_skills: bool) -> Vec<SlashCommand> {
    let of_bot = COMMANDS.iter().filter(|command| has_skills || !SKILL_COMMANDS.contains(&command.name));
    of_bot.flat_map(slash_commands_of).collect()
}

fn slash_commands_of(command: &'static CommandDescription) -> impl Iterator<Item = SlashCommand> {
    [command.name].into_iter().chain(command.aliases.iter().copied()).map(|name| SlashCommand {
        name: name.to_owned(),
        description: command.summary.to_owned(),
        options: command.options.iter().chain([&AGENT_OPTION]).map(slash_option).collect(),
    })
}

fn slash_option(option: &CommandOption) -> SlashOption {
    SlashOption {
        name: option.name.to_owned(),
        description: option.summary.to_owned(),
        is_required: option.is_required,
        choices: option.choices.iter().map(|&choice| choice.to_owned()).collect(),
        has_suggestions: option.has_suggestions,
    }
}

/// Returns values for an option that a person fills in. Somebody who may not talk to an agent here gets none.
pub(in super::super) async fn suggest(
    context: &ChatContext,
    bot: &Bot,
    request: &SuggestionRequest,
) -> Vec<String> {
    let call = &request.call;
    let candidates = match Candidates::of_call(context, bot, &call.place, &call.user).await {
        Ok(candidates) => candidates,
        Err(error) => {
            warn!(bot = bot.key, "cannot suggest values for a command: {error}");
            return Vec::new();
        }
    };
    let agent = call.options.iter().find(|(name, _)| name == AGENT_OPTION.name).map(|(_, agent)| agent);
    let is_chosen =
        |one: &&Addressee| agent.is_none_or(|agent| one.agent.name.as_str().eq_ignore_ascii_case(agent));
    let mut values: Vec<String> = match (call.name.as_str(), request.option.as_str()) {
        (_, name) if name == AGENT_OPTION.name => {
            candidates.accepted.iter().map(|one| one.agent.name.to_string()).collect()
        }
        ("skill", "name") => {
            let writable = &context.config().writable;
            let mut names = Vec::new();
            for one in candidates.accepted.iter().filter(is_chosen) {
                names.extend(skills_of(one, writable).await.into_iter().map(|skill| skill.name));
            }
            names
        }
        ("schedule", "name") => {
            let schedules = candidates.accepted.iter().filter(is_chosen).flat_map(|one| &one.agent.schedules);
            schedules.map(|schedule| schedule.name.to_string()).collect()
        }
        _ => Vec::new(),
    };
    let typed = request.typed.to_lowercase();
    values.retain(|value| value.to_lowercase().contains(&typed));
    values.sort();
    values.dedup();
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_are_slash_commands_that_discord_accepts() {
        let commands = slash_commands(true);
        let names: Vec<&str> = commands.iter().map(|command| command.name.as_str()).collect();
        for name in ["help", "reset", "new", "stop", "cancel", "skill", "schedule", "why"] {
            assert!(names.contains(&name), "{name} in {names:?}");
        }
        for command in &commands {
            assert_eq!(command.options.last().map(|option| option.name.as_str()), Some("agent"));
            let required: Vec<bool> = command.options.iter().map(|option| option.is_required).collect();
            assert!(required.is_sorted_by(|first, second| first >= second), "{}", command.name);
            for option in &command.options {
                assert!(
                    option.choices.is_empty() || !option.has_suggestions,
                    "{} {}",
                    command.name,
                    option.name
                );
            }
        }
        let without_skills = slash_commands(false);
        assert_eq!(without_skills.len(), commands.len() - SKILL_COMMANDS.len());
        assert!(without_skills.iter().all(|command| !command.name.starts_with("skill")));
    }
}
