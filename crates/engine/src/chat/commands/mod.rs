//! Commands of people in a chat: slash commands and messages that begin with `!`.
//!
//! The sender of a command is the actor of its events. A command acts once, even if it is handled again. For this, the
//! id of the slash command or of the message identifies its effect: what the command stops is stored under this id
//! before it acts, and the key of a new firing contains this id.

mod agent_settings;
mod jobs;
mod names;
mod reset;
mod retry;
mod say;
mod schedules;
mod session;
mod skill;
mod skill_files;
mod slash;
mod status;
mod stop;
mod usage;
mod visible;
mod why;

use cowhand_core::actor::Actor;
use cowhand_core::chat::access::is_operator;
use cowhand_core::chat::command::{ChatCommand, CommandMistake, CommandTarget, help, parse_call};
use cowhand_core::chat::{ChatPlace, ChatPlatform, ChatUser, CommandCall, texts};
use cowhand_core::id::AgentName;
use jiff::Timestamp;
use tracing::warn;

use super::bot::Bot;
use super::command_limits::{MAX_COMMANDS, WITHIN};
use super::context::ChatContext;
use super::intake::{Addressee, Candidates, HandleError, Handling};
use crate::fleet::FleetError;
use cowhand_store::{ReceivedChatMessage, Store, StoreError};
use cowhand_system::fault;

pub(super) use slash::{slash_commands, suggest};
pub(super) use stop::stop_job;

/// A command as a person has sent it.
#[derive(Debug, Clone, Copy)]
struct SentCommand<'a> {
    context: &'a ChatContext,
    bot: &'a Bot,
    place: &'a ChatPlace,
    user: &'a ChatUser,
    /// Platform, and the id of the slash command or message. A command that is delivered again has the same id.
    id: &'a str,
    /// The message with the command; none for a slash command.
    received: Option<&'a ReceivedChatMessage>,
}

/// A command for an agent with which its sender may talk.
#[derive(Debug, Clone, Copy)]
struct UsedCommand<'a> {
    sent: SentCommand<'a>,
    /// All agents with which the sender may talk in this place.
    candidates: &'a [Addressee],
    addressee: &'a Addressee,
}

/// Executes a slash command, and returns the text for its sender.
pub(super) async fn answer_call(context: &ChatContext, bot: &Bot, call: &CommandCall) -> String {
    let target = parse_call(bot.platform, &call.name, &call.arguments());
    let id = format!("{} call {}", bot.platform, call.id);
    let (place, user, now) = (&call.place, &call.user, context.now());
    if !is_stop(&target) && !bot.limits.allows(&place.channel, &user.id, &id, now, now) {
        return texts::too_many_commands(MAX_COMMANDS, WITHIN, bot.platform);
    }
    let sent = SentCommand { context, bot, place, user, id: &id, received: None };
    let text = sent.answer(target).await.unwrap_or_else(|error| {
        warn!(bot = bot.key, command = call.name, "cannot do a command of a chat: {error}");
        texts::not_done(&in_chat(error), bot.platform)
    });
    fault::point("chat_call_done");
    context.public_text(&text)
}

/// Executes a command that was written as a message. The text for its sender is posted later.
pub(super) async fn answer_message(
    context: &ChatContext,
    bot: &Bot,
    received: &ReceivedChatMessage,
    target: Result<CommandTarget, CommandMistake>,
) -> Result<Handling, HandleError> {
    let message = &received.message;
    let id = format!("{} {}", bot.platform, message.id);
    let (place, user, now) = (&message.place, &message.author, context.now());
    if !is_stop(&target) && !bot.limits.allows(&place.channel, &user.id, &id, message.sent_at, now) {
        bot.answers.add_note(received, now);
        return Ok(Handling::Ended);
    }
    let sent = SentCommand { context, bot, place, user, id: &id, received: Some(received) };
    let text = match sent.answer(target).await {
        Ok(text) => text,
        Err(error @ (FleetError::Stopping | FleetError::Unready(_) | FleetError::Store(_))) => {
            return Err(HandleError::Fleet(error));
        }
        Err(error) => texts::not_done(&in_chat(error), bot.platform),
    };
    fault::point("chat_command_done");
    let waits = bot.answers.add(received, text, now);
    Ok(if waits { Handling::AnswerWaits } else { Handling::Ended })
}

/// Returns the text of an error for a chat. It names a file without its folders.
fn in_chat(error: FleetError) -> String {
    match error {
        FleetError::OffInFile { agent, schedule, location, off_by_person } => {
            let location = location.rsplit('/').next().unwrap_or_default().to_owned();
            FleetError::OffInFile { agent, schedule, location, off_by_person }.to_string()
        }
        error => error.to_string(),
    }
}

/// Returns whether the command stops something. Such a command is executed, however many its sender has sent.
const fn is_stop(target: &Result<CommandTarget, CommandMistake>) -> bool {
    matches!(target, Ok(CommandTarget { command: ChatCommand::Stop { .. }, .. }))
}

impl SentCommand<'_> {
    /// Executes the command, if its sender may talk to an agent here. Returns the text for the sender.
    async fn answer(self, target: Result<CommandTarget, CommandMistake>) -> Result<String, FleetError> {
        let platform = self.bot.platform;
        let named = target.as_ref().ok().and_then(|target| target.agent.clone());
        let candidates = self.candidates(named.is_some()).await?;
        if candidates.accepted.is_empty() {
            let now = self.context.now();
            return Ok(candidates.refused.map_or_else(texts::no_agent_here, |(agent, refusal)| {
                refusal.text(&agent.name, platform, now)
            }));
        }
        let target = match target {
            Ok(target) => target,
            Err(mistake) => return Ok(mistake.in_words(platform)),
        };
        let addressee = match self.choose(&candidates, &target) {
            Ok(addressee) => addressee,
            Err(text) => return Ok(text),
        };
        UsedCommand { sent: self, candidates: &candidates.accepted, addressee }.run(&target.command).await
    }

    /// Returns the agents to which the command may be addressed. A command that names its agent is addressed to the
    /// agent, even in a channel in which the agent only answers mentions.
    async fn candidates(&self, is_agent_named: bool) -> Result<Candidates, StoreError> {
        match self.received {
            Some(received) if !is_agent_named => {
                Candidates::of_message(self.context, self.bot, &received.message).await
            }
            _ => Candidates::of_call(self.context, self.bot, self.place, self.user).await,
        }
    }

    /// Chooses the agent: the agent that the command names, else the agent of the thread, else the only agent with the
    /// schedule that the command names, else the first agent that answers here. Returns a text for the sender if
    /// several agents answer here, and a command that changes something decides for none of them.
    fn choose<'a>(
        &self,
        candidates: &'a Candidates,
        target: &CommandTarget,
    ) -> Result<&'a Addressee, String> {
        let (accepted, platform) = (&candidates.accepted, self.bot.platform);
        if let Some(name) = &target.agent {
            let is_named = |one: &&Addressee| one.agent.name.as_str().eq_ignore_ascii_case(name.as_str());
            let named = accepted.iter().find(is_named);
            return named.ok_or_else(|| texts::no_such_agent(name.as_str(), platform));
        }
        if let Some(index) = candidates.of_thread(self.place) {
            return Ok(&accepted[index]);
        }
        let only_owner = schedule_name(&target.command).and_then(|name| names::only_owner(accepted, name));
        let is_clear = accepted.len() == 1 || !target.command.needs_agent();
        only_owner.or_else(|| accepted.first().filter(|_| is_clear)).ok_or_else(|| {
            let agents: Vec<AgentName> = accepted.iter().map(|one| one.agent.name.clone()).collect();
            texts::which_agent(&agents, platform)
        })
    }

    fn actor(&self) -> Actor {
        super::actor_of(self.bot.platform, self.user)
    }
}

/// Returns the schedule that a command names.
fn schedule_name(command: &ChatCommand) -> Option<&str> {
    match command {
        ChatCommand::ScheduleRun { name }
        | ChatCommand::ScheduleEnable { name }
        | ChatCommand::ScheduleDisable { name } => Some(name),
        _ => None,
    }
}

impl UsedCommand<'_> {
    async fn run(&self, command: &ChatCommand) -> Result<String, FleetError> {
        if command.needs_operator() && !self.is_operator() {
            return Ok(texts::needs_operator("schedule", self.platform()));
        }
        match command {
            ChatCommand::Help => Ok(self.help()),
            ChatCommand::Ping => Ok(texts::pong()),
            ChatCommand::Status => self.status().await,
            ChatCommand::Reset => self.reset().await,
            ChatCommand::Stop { job } => self.stop(job.as_ref()).await,
            ChatCommand::Say { text } => self.say(text).await,
            ChatCommand::Retry => self.retry().await,
            ChatCommand::Session => self.session().await,
            ChatCommand::Usage => self.usage().await,
            ChatCommand::Tools => Ok(self.tools()),
            ChatCommand::Config => Ok(self.config()),
            ChatCommand::Skills => self.skills().await,
            ChatCommand::Skill { name, input } => self.skill(name, input.as_deref()).await,
            ChatCommand::Schedules => self.schedules().await,
            ChatCommand::ScheduleRun { name } => self.run_schedule(name).await,
            ChatCommand::ScheduleEnable { name } => self.enable_schedule(name).await,
            ChatCommand::ScheduleDisable { name } => self.disable_schedule(name).await,
            ChatCommand::Jobs => self.jobs().await,
            ChatCommand::Why { what } => self.why(what).await,
        }
    }

    fn help(&self) -> String {
        let operates = |one: &Addressee| is_operator(&one.chat.access, self.sent.user);
        help(self.platform(), self.candidates.iter().any(operates))
    }

    fn context(&self) -> &ChatContext {
        self.sent.context
    }

    fn store(&self) -> &Store {
        self.sent.context.store()
    }

    fn platform(&self) -> ChatPlatform {
        self.sent.bot.platform
    }

    fn now(&self) -> Timestamp {
        self.sent.context.now()
    }

    fn agent_name(&self) -> &AgentName {
        &self.addressee.agent.name
    }

    /// Returns whether the sender may do what only operators of the agent may do.
    fn is_operator(&self) -> bool {
        is_operator(&self.addressee.chat.access, self.sent.user)
    }

    /// Returns the text from which the session key of the conversation is derived.
    async fn chat(&self) -> Result<String, StoreError> {
        self.addressee.conversation.chat(self.store(), self.agent_name()).await
    }
}
