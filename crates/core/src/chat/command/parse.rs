//! Reading commands from messages and slash commands.

use super::{COMMANDS, ChatCommand, CommandDescription, CommandTarget, SCHEDULE_ACTIONS, command_text};
use crate::chat::ChatPlatform;
use crate::chat::escape::inline_code;
use crate::chat::split::shorten;
use crate::id::{AgentName, JobName};
use crate::suggest::closest;

/// Maximum length of a mistaken word in a message.
const MAX_WORD_CHARS: usize = 80;

/// Mistake in a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandMistake {
    UnknownCommand { word: String },
    UnknownAction { word: String },
    NotAnAgent { word: String },
    NotAJob { word: String },
    MissingArgument { command: &'static CommandDescription },
    UnexpectedArgument { command: &'static CommandDescription, word: String },
}

impl CommandMistake {
    /// Returns what is wrong and how to correct it, as a message on this platform.
    pub fn in_words(&self, platform: ChatPlatform) -> String {
        let code = |text: &str| inline_code(&shorten(text, MAX_WORD_CHARS), platform);
        let command = |words: &str| code(&command_text(words, platform));
        match self {
            Self::UnknownCommand { word } => {
                let advice = closest(word, names()).map_or_else(
                    || format!("{} lists the commands.", command("help")),
                    |known| format!("Did you mean {}?", command(known)),
                );
                format!("There is no command {}. {advice}", code(word))
            }
            Self::UnknownAction { word } => {
                let advice = closest(word, SCHEDULE_ACTIONS).map_or_else(
                    || format!("Use {}.", SCHEDULE_ACTIONS.map(code).join(" or ")),
                    |known| format!("Did you mean {}?", code(known)),
                );
                format!("A schedule has no action {}. {advice}", code(word))
            }
            Self::NotAnAgent { word } => format!("{} is not the name of an agent.", code(word)),
            Self::NotAJob { word } => format!(
                "{} is not the id of a job. An id is {} or its last six characters. {} lists the jobs.",
                code(word),
                code("job-YYYY-MM-DD-xxxxxx"),
                command("jobs"),
            ),
            Self::MissingArgument { command: known } => {
                format!("The command needs more arguments: {}", command(&known.usage()))
            }
            Self::UnexpectedArgument { command: known, word } => {
                format!("{} takes no argument {}.", command(&known.usage()), code(word))
            }
        }
    }
}

/// Reads a message on Slack that begins with `!` and the name of a command, in upper or lower case. Returns none for
/// every other message. Such a message is for the agent, even if its first word looks like a command. On Discord, only
/// slash commands are commands.
pub fn parse_message(text: &str, platform: ChatPlatform) -> Option<Result<CommandTarget, CommandMistake>> {
    if platform == ChatPlatform::Discord {
        return None;
    }
    let rest = text.trim_start().strip_prefix('!')?;
    let (word, argument) = first_word(rest);
    if !rest.starts_with(word) {
        return None;
    }
    let command = CommandDescription::find(word)?;
    Some(parse(None, command, argument))
}

/// Reads the call of a slash command. On Discord, `name` is the command. On Slack, `argument` begins with the command;
/// without an argument, the command is `help`.
pub fn parse_call(
    platform: ChatPlatform,
    name: &str,
    argument: &str,
) -> Result<CommandTarget, CommandMistake> {
    let (agent, name, argument) = match platform {
        ChatPlatform::Discord => (None, name.trim_start_matches('/'), argument),
        ChatPlatform::Slack => {
            let (agent, rest) = take_agent(argument)?;
            let (word, argument) = first_word(rest);
            (agent, if word.is_empty() { "help" } else { word.trim_start_matches('!') }, argument)
        }
    };
    let command = CommandDescription::find(name);
    let command = command.ok_or_else(|| CommandMistake::UnknownCommand { word: name.to_owned() })?;
    parse(agent, command, argument)
}

fn parse(
    agent: Option<AgentName>,
    description: &'static CommandDescription,
    argument: &str,
) -> Result<CommandTarget, CommandMistake> {
    let (named, argument) = take_agent(argument)?;
    let missing = || CommandMistake::MissingArgument { command: description };
    let needed = || Some(argument.to_owned()).filter(|text| !text.is_empty()).ok_or_else(missing);
    let command = match description.name {
        "skill" => {
            let (name, input) = first_word(argument);
            let name = Some(name.to_owned()).filter(|name| !name.is_empty()).ok_or_else(missing)?;
            ChatCommand::Skill { name, input: Some(input.to_owned()).filter(|input| !input.is_empty()) }
        }
        "stop" if argument.is_empty() => ChatCommand::Stop { job: None },
        "stop" => {
            let not_a_job = |_| CommandMistake::NotAJob { word: argument.to_owned() };
            ChatCommand::Stop { job: Some(argument.parse::<JobName>().map_err(not_a_job)?) }
        }
        "say" => ChatCommand::Say { text: needed()? },
        "why" => ChatCommand::Why { what: needed()? },
        "schedule" => schedule(&needed()?, missing)?,
        // `schedules run NAME` is understood too.
        "schedules" if !argument.is_empty() => schedule(argument, missing)?,
        name => {
            if !argument.is_empty() {
                let word = first_word(argument).0.to_owned();
                return Err(CommandMistake::UnexpectedArgument { command: description, word });
            }
            without_argument(name)
        }
    };
    Ok(CommandTarget { agent: named.or(agent), command })
}

fn schedule(argument: &str, missing: impl Fn() -> CommandMistake) -> Result<ChatCommand, CommandMistake> {
    let (action, name) = first_word(argument);
    let (has_name, name) = (!name.is_empty(), name.to_owned());
    let command = match &action.to_ascii_lowercase()[..] {
        "run" => ChatCommand::ScheduleRun { name },
        "enable" => ChatCommand::ScheduleEnable { name },
        "disable" => ChatCommand::ScheduleDisable { name },
        _ => return Err(CommandMistake::UnknownAction { word: action.to_owned() }),
    };
    if has_name { Ok(command) } else { Err(missing()) }
}

fn without_argument(name: &str) -> ChatCommand {
    match name {
        "status" => ChatCommand::Status,
        "reset" => ChatCommand::Reset,
        "retry" => ChatCommand::Retry,
        "session" => ChatCommand::Session,
        "usage" => ChatCommand::Usage,
        "tools" => ChatCommand::Tools,
        "config" => ChatCommand::Config,
        "ping" => ChatCommand::Ping,
        "skills" => ChatCommand::Skills,
        "schedules" => ChatCommand::Schedules,
        "jobs" => ChatCommand::Jobs,
        _ => ChatCommand::Help,
    }
}

/// Takes the name of an agent from the start of an argument: `agent=NAME` or `@NAME`.
fn take_agent(argument: &str) -> Result<(Option<AgentName>, &str), CommandMistake> {
    let (word, rest) = first_word(argument);
    let Some(name) = word.strip_prefix("agent=").or_else(|| word.strip_prefix('@')) else {
        return Ok((None, argument.trim()));
    };
    let agent = name.parse().map_err(|_| CommandMistake::NotAnAgent { word: name.to_owned() })?;
    Ok((Some(agent), rest))
}

/// Splits a text at its first white space. Removes the white space around both parts.
fn first_word(text: &str) -> (&str, &str) {
    let text = text.trim();
    text.split_once(char::is_whitespace).map_or((text, ""), |(word, rest)| (word, rest.trim_start()))
}

fn names() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().flat_map(|command| [command.name].into_iter().chain(command.aliases.iter().copied()))
}
