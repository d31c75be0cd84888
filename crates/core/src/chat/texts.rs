//! The sentences that cowhand itself posts in a chat. Texts of others in them mention nobody and format nothing.

mod ask;
mod command;
mod tool_input;

use jiff::Timestamp;

use super::command::command_text;
use super::escape::{escape, inline_code};
use super::settings::MessageRate;
use super::{ChatAttachment, ChatPlatform};
use crate::budget::{OverBudget, money};
use crate::duration;
use crate::id::{AgentName, JobId};
use crate::size;
pub use ask::{
    NoAnswerReason, ask_closed, ask_closed_before, ask_needs_operator, ask_needs_reply, ask_not_answered,
    ask_posts, ask_unknown, no_answer,
};
pub use command::{
    button_of_other_conversation, has_ended, may_not_say, needs_operator_to_remove, needs_operator_to_say,
    no_agent_here, no_skills, not_done, not_posted, nothing_to_say_to, pong, removed_from_queue, runs_again,
    said, said_for_next_turn, schedule_disabled_by, schedule_enabled, schedule_fired, schedule_removed,
    several_jobs, skill_passed_on, skill_used, still_waits, too_many_commands, unknown_button, unknown_name,
    waits_no_longer,
};

/// States the position of a message in the queue of an agent. The first message has position 1. `job` is the job that
/// waits: without it, the command could stop another job.
pub fn waiting(agent: &AgentName, position: usize, job: &JobId, platform: ChatPlatform) -> String {
    let agent = escape(agent.as_str(), platform);
    let cancel = command(&format!("cancel {}", job.suffix()), platform);
    format!(
        "Your message is number {position} in the queue of agent {agent}. {cancel} removes it from the queue."
    )
}

/// Says that the job of a message that waited has started.
pub fn started(agent: &AgentName, platform: ChatPlatform) -> String {
    format!("Agent {} now works on your message.", escape(agent.as_str(), platform))
}

/// Says that the sender may not talk to the agent.
pub fn stranger(agent: &AgentName, platform: ChatPlatform) -> String {
    let agent = escape(agent.as_str(), platform);
    format!("You may not talk to agent {agent}. The owner of the fleet decides who may.")
}

/// Says that the sender may not send direct messages to the agent.
pub fn stranger_in_direct(agent: &AgentName, platform: ChatPlatform) -> String {
    let agent = escape(agent.as_str(), platform);
    format!("You may not talk to agent {agent} in direct messages. The owner of the fleet decides who may.")
}

/// Says that the bot does not answer the sender, who is on the blocklist.
pub fn blocked() -> String {
    "This bot does not answer your messages.".to_owned()
}

/// Says that the agent takes no direct messages.
pub fn no_direct_messages(agent: &AgentName, platform: ChatPlatform) -> String {
    format!("Agent {} takes no direct messages.", escape(agent.as_str(), platform))
}

/// Says that the command is only for operators.
pub fn needs_operator(words: &str, platform: ChatPlatform) -> String {
    format!("Only operators may use {}.", command(words, platform))
}

/// Says that only operators may stop a job of somebody else.
pub fn needs_operator_to_stop(job: &JobId) -> String {
    format!("{job} answers somebody else. Only operators may stop it.")
}

/// Says that the sender has sent too many messages, and when the sender can write again.
pub fn rate_reached(rate: MessageRate, again_at: Timestamp, now: Timestamp) -> String {
    let MessageRate { messages, period } = rate;
    let messages = if messages == 1 { "1 message".to_owned() } else { format!("{messages} messages") };
    let period = duration::exact(period);
    format!("You may send {messages} in {period}. You can write again {}.", at(again_at, now))
}

/// Says that the daily budget of the sender is used up, or has no room for another job.
pub fn over_person_budget(over: &OverBudget, now: Timestamp) -> String {
    let limit = money(over.limit);
    let renewed = over.until.map(|until| at(until, now)).unwrap_or_default();
    if over.spent >= over.limit {
        return format!("Your budget of {limit} for one day is used up. You can write again {renewed}.");
    }
    format!(
        "Your budget of {limit} for one day has no room for this message: {}. The budget is renewed {renewed}.",
        parts_of(over)
    )
}

/// Says that a message waits, because the daily budget of the sender has no room for its job now.
pub fn waits_for_budget(agent: &AgentName, over: &OverBudget, job: &JobId, platform: ChatPlatform) -> String {
    let (agent, limit) = (escape(agent.as_str(), platform), money(over.limit));
    // The note does not contain a remaining time, which would change while the note is shown.
    let until = over.until.map(|until| until.strftime("%H:%M UTC").to_string()).unwrap_or_default();
    let when = if over.fits_after_running() {
        "It starts when your running jobs have ended and have left enough.".to_owned()
    } else {
        format!("The budget is renewed at {until}.")
    };
    let cancel = command(&format!("cancel {}", job.suffix()), platform);
    format!(
        "Your message to agent {agent} waits, because your budget of {limit} for one day has no room for it: {}. {when} \
         {cancel} removes it from the queue.",
        parts_of(over)
    )
}

/// Lists what a budget is used for.
fn parts_of(over: &OverBudget) -> String {
    let reserved = match over.reserved {
        0 => String::new(),
        reserved => format!(", {} is reserved for your earlier messages", money(reserved)),
    };
    let needed = match over.needed {
        // The cost of a job is not known.
        0 | 1 => String::new(),
        needed => format!(", and a job may cost {}", money(needed)),
    };
    format!("{} is used{reserved}{needed}", money(over.spent))
}

pub fn attachment_too_large(attachment: &ChatAttachment, limit_bytes: u64, platform: ChatPlatform) -> String {
    let (name, size) = (name_of(attachment, platform), size::in_words(attachment.bytes));
    let limit = size::in_words(limit_bytes);
    format!("The agent did not get {name}: the file has {size}, and the maximum is {limit}.")
}

pub fn attachment_type_refused(
    attachment: &ChatAttachment,
    allowed_types: &[String],
    platform: ChatPlatform,
) -> String {
    let name = name_of(attachment, platform);
    let kind = match &attachment.media_type[..] {
        "" => "its type is not known".to_owned(),
        kind => format!("files of type {} are not allowed", inline_code(kind, platform)),
    };
    let allowed: Vec<String> = allowed_types.iter().map(|kind| inline_code(kind, platform)).collect();
    format!("The agent did not get {name}: {kind}. Allowed types: {}", allowed.join(", "))
}

pub fn too_many_attachments(count: usize, max_files: u32) -> String {
    format!("The agent got only {max_files} of your {count} files. A message may have at most {max_files}.")
}

/// Says that an attachment could not be downloaded or saved.
pub fn attachment_failed(attachment: &ChatAttachment, reason: &str, platform: ChatPlatform) -> String {
    format!("The agent did not get {}: {}", name_of(attachment, platform), sentence(reason, platform))
}

/// Says that the platform did not accept a file of the agent.
pub fn file_not_posted(name: &str, reason: &str, platform: ChatPlatform) -> String {
    format!(
        "The agent sent {}, which could not be posted: {}",
        inline_code(name, platform),
        sentence(reason, platform)
    )
}

/// Says that a job is done, and that its output cannot be posted because only its node has it.
pub fn output_elsewhere(job: &JobId, node: &str, is_running: bool, platform: ChatPlatform) -> String {
    let why = if is_running { "could not post it" } else { "does not run now" };
    format!(
        "The job is done. Its output is on the node {}, which {why}. The owner of the fleet can read it there: {}",
        inline_code(node, platform),
        inline_code(&format!("cowhand logs {job}"), platform)
    )
}

/// Says that the agent takes no attachments. `has_text` is true if the agent gets the text of the message.
pub fn attachments_ignored(agent: &AgentName, has_text: bool, platform: ChatPlatform) -> String {
    let rest = if has_text { "Only your text was passed on." } else { "Nothing was passed on." };
    format!("Agent {} takes no files. {rest}", escape(agent.as_str(), platform))
}

/// Says that the agent takes no voice messages.
pub fn voice_ignored(agent: &AgentName, platform: ChatPlatform) -> String {
    format!("Agent {} takes no voice messages. Please write your message.", escape(agent.as_str(), platform))
}

/// Says that a voice message could not be transcribed.
pub fn voice_failed(reason: &str, platform: ChatPlatform) -> String {
    format!("Your voice message could not be transcribed: {}", sentence(reason, platform))
}

/// Returns the post with the text of a voice message: its first characters, and how many more the agent gets.
pub fn transcript(text: &str, max_chars: usize, platform: ChatPlatform) -> String {
    let more = text.chars().count().saturating_sub(max_chars);
    let shown: String = text.chars().take(max_chars).collect();
    let note = if more > 0 {
        format!("\n… {more} more characters are not shown. The agent gets the whole transcript.")
    } else {
        String::new()
    };
    format!("Transcript: {}{note}", escape(&shown, platform))
}

/// Says that a message was removed from the queue. `by` is the person who cancelled it; none for the sender.
pub fn cancelled(by: Option<&str>, platform: ChatPlatform) -> String {
    let by = by.map(|by| format!(" by {}", escape(by, platform))).unwrap_or_default();
    format!("Your message was removed from the queue{by}.")
}

/// Says that a queued message was edited, and that its schedule does not take the new text.
pub fn edit_unwanted(agent: &AgentName, schedule: &str, platform: ChatPlatform) -> String {
    let name = inline_code(&format!("{agent}/{schedule}"), platform);
    format!(
        "After your edit, schedule {name} does not take your message any more, so its job was removed from the queue. \
         Write a new message."
    )
}

/// Says that a job is being stopped.
pub fn stopping(job: &JobId) -> String {
    format!("{job} is being stopped.")
}

pub fn nothing_to_stop() -> String {
    "No job runs or waits in this conversation.".to_owned()
}

pub fn nothing_to_retry() -> String {
    "There is no earlier message in this conversation that could run again.".to_owned()
}

/// Says that the command has to wait, because a job still runs in the conversation.
pub fn busy(job: &JobId, platform: ChatPlatform) -> String {
    format!("{job} still runs in this conversation. {} stops it.", command("stop", platform))
}

pub fn no_such_job(name: &str, platform: ChatPlatform) -> String {
    format!("There is no job {}. {} lists the jobs.", inline_code(name, platform), command("jobs", platform))
}

pub fn no_such_schedule(name: &str, platform: ChatPlatform) -> String {
    let list = command("schedules", platform);
    format!("There is no schedule {}. {list} lists the schedules.", inline_code(name, platform))
}

pub fn no_such_skill(name: &str, platform: ChatPlatform) -> String {
    format!(
        "There is no skill {}. {} lists the skills.",
        inline_code(name, platform),
        command("skills", platform)
    )
}

/// Says that several agents answer here, and that the command has to name one of them.
pub fn which_agent(agents: &[AgentName], platform: ChatPlatform) -> String {
    let names: Vec<String> = agents.iter().map(|agent| inline_code(&format!("@{agent}"), platform)).collect();
    format!("Several agents answer here. Put one of these before the arguments: {}", names.join(", "))
}

pub fn no_such_agent(name: &str, platform: ChatPlatform) -> String {
    format!("No agent {} answers you here.", inline_code(name, platform))
}

/// Says that the conversation was reset.
pub fn conversation_reset(agent: &AgentName, platform: ChatPlatform) -> String {
    let agent = escape(agent.as_str(), platform);
    format!("The conversation was reset. Agent {agent} does not remember the earlier messages.")
}

/// Says that the message started no job, because the schedule of the chat is disabled.
pub fn schedule_disabled(agent: &AgentName, schedule: &str, platform: ChatPlatform) -> String {
    let name = format!("{agent}/{schedule}");
    let why = command(&format!("why {name}"), platform);
    format!(
        "Schedule {} is disabled, so your message started no job. {why} shows more.",
        inline_code(&name, platform)
    )
}

/// Says why the message started no job.
pub fn not_run(reason: &str, platform: ChatPlatform) -> String {
    format!("Your message started no job: {}", sentence(reason, platform))
}

/// Returns a command as it is written on the platform.
fn command(words: &str, platform: ChatPlatform) -> String {
    inline_code(&command_text(words, platform), platform)
}

/// Formats a text of others as a sentence.
fn sentence(text: &str, platform: ChatPlatform) -> String {
    format!("{}.", escape(text.trim().trim_end_matches('.'), platform))
}

fn name_of(attachment: &ChatAttachment, platform: ChatPlatform) -> String {
    inline_code(&attachment.name, platform)
}

/// Formats a time as `in 3m 5s (14:05 UTC)`.
fn at(time: Timestamp, now: Timestamp) -> String {
    format!("{} ({})", duration::until(now, time), time.strftime("%H:%M UTC"))
}

#[cfg(test)]
mod tests;
