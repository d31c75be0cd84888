//! Commands that people send in a chat.

mod parse;

use super::escape::inline_code;
use super::{ChatPlatform, CommandCall};
use crate::id::{AgentName, JobName};
pub use parse::{CommandMistake, parse_call, parse_message};

/// Command of a person in a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChatCommand {
    Help,
    Status,
    /// Begin a new session in this conversation.
    Reset,
    /// Stop a job, or remove it from the queue. Without a job, stop a job or remove a waiting message of this
    /// conversation.
    Stop {
        job: Option<JobName>,
    },
    /// Send a message to the running job of this conversation.
    Say {
        text: String,
    },
    /// Run the last message of this conversation again.
    Retry,
    Session,
    Usage,
    Tools,
    Config,
    Ping,
    Skills,
    Skill {
        name: String,
        input: Option<String>,
    },
    Schedules,
    ScheduleRun {
        name: String,
    },
    ScheduleEnable {
        name: String,
    },
    ScheduleDisable {
        name: String,
    },
    Jobs,
    /// Explain a job, a schedule or an agent.
    Why {
        what: String,
    },
}

/// A command, and the agent that it names. People can name an agent if several agents answer in a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandTarget {
    pub agent: Option<AgentName>,
    pub command: ChatCommand,
}

/// Description of a command, for help and for the registration of slash commands.
#[derive(Debug, PartialEq, Eq)]
pub struct CommandDescription {
    pub name: &'static str,
    /// Other names of the same command.
    pub aliases: &'static [&'static str],
    /// Arguments as help shows them; empty if there are none.
    pub arguments: &'static str,
    /// One line of at most 100 characters.
    pub summary: &'static str,
    pub needs_operator: bool,
    pub options: &'static [CommandOption],
}

/// Option of a slash command. All values are texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommandOption {
    pub name: &'static str,
    /// One line of at most 100 characters.
    pub summary: &'static str,
    pub is_required: bool,
    /// Allowed values; empty if any text is allowed.
    pub choices: &'static [&'static str],
    /// True if the platform suggests values while a person writes.
    pub has_suggestions: bool,
}

/// Option that each slash command has in addition to its own.
pub const AGENT_OPTION: CommandOption =
    suggested(optional("agent", "Agent, if several agents answer in this channel"));

const SCHEDULE_ACTIONS: [&str; 3] = ["run", "enable", "disable"];

/// All commands, in the order of the help.
pub const COMMANDS: &[CommandDescription] = &[
    plain("help", &[], "Show the commands"),
    plain("status", &[], "Show the state of the agent and its queue"),
    plain("reset", &["new"], "Begin a new session in this conversation"),
    CommandDescription {
        arguments: "[JOB]",
        options: &[optional("job", "Job; without it, the job that answers here")],
        ..plain("stop", &["cancel"], "Stop the job that answers here, or remove your message from the queue")
    },
    CommandDescription {
        arguments: "TEXT",
        options: &[required("text", "Message to the agent")],
        ..plain("say", &[], "Send a message to the agent while it answers here")
    },
    plain("retry", &[], "Run the last message of this conversation again"),
    plain("session", &[], "Show the session of this conversation"),
    plain("usage", &[], "Show the turns, tokens and costs of this conversation"),
    plain("tools", &[], "Show the tools that the agent may use"),
    plain("config", &[], "Show the runtime, model and limits of the agent"),
    plain("skills", &[], "List the skills of the agent"),
    CommandDescription {
        arguments: "NAME [INPUT]",
        options: &[suggested(required("name", "Name of the skill")), optional("input", "Input of the skill")],
        ..plain("skill", &[], "Use a skill of the agent")
    },
    plain("schedules", &[], "List the schedules of the agent"),
    CommandDescription {
        arguments: "run|enable|disable NAME",
        needs_operator: true,
        options: &[
            CommandOption {
                choices: &SCHEDULE_ACTIONS,
                ..required("action", "What to do with the schedule")
            },
            suggested(required("name", "Name of the schedule")),
        ],
        ..plain("schedule", &[], "Run, enable or disable a schedule")
    },
    plain("jobs", &[], "List the last jobs of the agent"),
    CommandDescription {
        arguments: "NAME",
        options: &[required("name", "Job, schedule or agent")],
        ..plain("why", &[], "Explain what happened to a job, a schedule or an agent")
    },
    plain("ping", &[], "Check the connection"),
];

const fn plain(
    name: &'static str,
    aliases: &'static [&'static str],
    summary: &'static str,
) -> CommandDescription {
    CommandDescription { name, aliases, arguments: "", summary, needs_operator: false, options: &[] }
}

const fn required(name: &'static str, summary: &'static str) -> CommandOption {
    CommandOption { name, summary, is_required: true, choices: &[], has_suggestions: false }
}

const fn optional(name: &'static str, summary: &'static str) -> CommandOption {
    CommandOption { name, summary, is_required: false, choices: &[], has_suggestions: false }
}

const fn suggested(option: CommandOption) -> CommandOption {
    CommandOption { has_suggestions: true, ..option }
}

impl ChatCommand {
    /// Checks whether only operators may send this command. Whether somebody may stop the job of another person is
    /// decided when the job is known.
    pub const fn needs_operator(&self) -> bool {
        matches!(self, Self::ScheduleRun { .. } | Self::ScheduleEnable { .. } | Self::ScheduleDisable { .. })
    }

    /// Checks whether the command changes something of its agent. If several agents answer in a channel, such a command
    /// has to name one of them.
    pub const fn needs_agent(&self) -> bool {
        match self {
            Self::Reset
            | Self::Stop { job: None }
            | Self::Say { .. }
            | Self::Retry
            | Self::Skill { .. }
            | Self::ScheduleRun { .. }
            | Self::ScheduleEnable { .. }
            | Self::ScheduleDisable { .. } => true,
            Self::Help
            | Self::Status
            | Self::Stop { job: Some(_) }
            | Self::Session
            | Self::Usage
            | Self::Tools
            | Self::Config
            | Self::Ping
            | Self::Skills
            | Self::Schedules
            | Self::Jobs
            | Self::Why { .. } => false,
        }
    }
}

impl CommandDescription {
    /// Returns the command with its arguments, for example `skill NAME [INPUT]`.
    pub fn usage(&self) -> String {
        format!("{} {}", self.name, self.arguments).trim_end().to_owned()
    }

    /// Finds a command by its name or one of its aliases. Upper and lower case are the same.
    pub fn find(name: &str) -> Option<&'static Self> {
        let is_named = |known: &&str| known.eq_ignore_ascii_case(name);
        COMMANDS.iter().find(|command| is_named(&command.name) || command.aliases.iter().any(is_named))
    }
}

impl CommandCall {
    /// Returns the arguments as they are written in a message: the agent first, then the options of the command in the
    /// order of its description.
    pub fn arguments(&self) -> String {
        if self.options.is_empty() {
            return self.argument.clone();
        }
        let value = |name: &str| {
            let option = self.options.iter().find(|(option, _)| option == name);
            option.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
        };
        let agent = value(AGENT_OPTION.name).map(|agent| format!("agent={agent}"));
        let options = CommandDescription::find(&self.name).map_or(&[][..], |command| command.options);
        let values = options.iter().filter_map(|option| value(option.name).map(str::to_owned));
        agent.into_iter().chain(values).collect::<Vec<_>>().join(" ")
    }
}

/// Returns the text of `help`. Commands for operators are only shown to operators.
pub fn help(platform: ChatPlatform, is_operator: bool) -> String {
    let shown = COMMANDS.iter().filter(|command| is_operator || !command.needs_operator);
    let lines = shown.map(|command| {
        let names: Vec<String> = command.aliases.iter().map(|name| inline_code(name, platform)).collect();
        let aliases = if names.is_empty() { String::new() } else { format!(" (also {})", names.join(", ")) };
        let usage = inline_code(&command_text(&command.usage(), platform), platform);
        format!("{usage} {}{aliases}", command.summary)
    });
    let mut lines: Vec<String> = lines.collect();
    if platform == ChatPlatform::Slack {
        lines.push(
            "The slash command of the app takes the same commands without the exclamation mark.".to_owned(),
        );
    }
    lines.push(
        "If several agents answer here, write @NAME or agent=NAME before the arguments. NAME is the name of the agent."
            .to_owned(),
    );
    lines.join("\n")
}

/// Returns how a command is written on a platform, for example `/why coder` for `why coder`.
pub fn command_text(words: &str, platform: ChatPlatform) -> String {
    match platform {
        ChatPlatform::Discord => format!("/{words}"),
        ChatPlatform::Slack => format!("!{words}"),
    }
}

#[cfg(test)]
mod tests;
