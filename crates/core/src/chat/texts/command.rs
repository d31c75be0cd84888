//! The sentences that answer commands.

use crate::chat::ChatPlatform;
use crate::chat::escape::{escape, inline_code};
use crate::chat::split::shorten;
use crate::duration;
use crate::id::{AgentName, JobId};

use jiff::SignedDuration;

use super::{command, sentence};

/// Maximum length of the input of a skill that is repeated in the channel.
const MAX_INPUT_CHARS: usize = 500;

/// Says that the rules of no agent accept messages in this place.
pub fn no_agent_here() -> String {
    "No agent of this bot answers here.".to_owned()
}

/// Returns the answer to `ping`.
pub fn pong() -> String {
    "The connection works.".to_owned()
}

/// Says that the sender sends commands too fast: some are not answered, and those above this rate are ignored.
pub fn too_many_commands(max: usize, within: SignedDuration, platform: ChatPlatform) -> String {
    let (within, stop) = (duration::exact(within), command("stop", platform));
    format!(
        "Slow down: you send commands faster than they can be answered. Some get no answer, and more than {max} commands \
         in {within} are ignored. {stop} always works."
    )
}

/// Says that a job was cancelled before it started.
pub fn removed_from_queue(job: &JobId) -> String {
    format!("{job} was removed from the queue.")
}

/// Says that the job to stop has already ended.
pub fn has_ended(job: &JobId, status: &str) -> String {
    format!("{job} has already ended: {status}.")
}

/// Says that the message to cancel does not wait any more. Such a message has no job.
pub fn waits_no_longer() -> String {
    "The message does not wait any more.".to_owned()
}

/// Says that only operators may remove the waiting message of somebody else.
pub fn needs_operator_to_remove() -> String {
    "The message that waits here is from somebody else. Only operators may remove it from the queue."
        .to_owned()
}

/// Says that no job answers in this conversation now.
pub fn nothing_to_say_to(platform: ChatPlatform) -> String {
    let say = command("say", platform);
    format!("No job answers here now, so {say} has no effect. Write the text as an ordinary message.")
}

/// Says that only operators may send a message to a job that somebody else caused.
pub fn needs_operator_to_say(job: &JobId) -> String {
    format!("{job} answers somebody else. Only operators may send it a message.")
}

/// Says that the rules of `trust` do not allow the text of the sender in this job.
pub fn may_not_say(job: &JobId, why: &str, platform: ChatPlatform) -> String {
    format!("Your message may not reach {job}: {}", sentence(why, platform))
}

/// Says that the agent gets the message while it runs.
pub fn said(job: &JobId) -> String {
    format!("The message is stored. The agent of {job} gets it at its next step.")
}

/// Says that the agent takes no messages while it runs.
pub fn said_for_next_turn(job: &JobId) -> String {
    format!(
        "The message is stored. The agent takes no messages while it runs; it gets this one when {job} has ended."
    )
}

/// Says that the last message runs again.
pub fn runs_again(agent: &AgentName, platform: ChatPlatform) -> String {
    format!("Agent {} gets the last message again.", escape(agent.as_str(), platform))
}

/// Says that the last message of the conversation still waits. `job` is its job, if it has one.
pub fn still_waits(job: Option<&JobId>, platform: ChatPlatform) -> String {
    let waits = "The last message of this conversation still waits.";
    job.map_or_else(
        || waits.to_owned(),
        |job| {
            let cancel = command(&format!("cancel {}", job.suffix()), platform);
            format!("{waits} {cancel} removes it from the queue.")
        },
    )
}

/// Says that the schedule that took the message is not in the config any more.
pub fn schedule_removed() -> String {
    "The schedule that took the last message is not in the config any more. Write the message again."
        .to_owned()
}

/// Says that several job ids end with these characters.
pub fn several_jobs(name: &str, jobs: &[JobId], platform: ChatPlatform) -> String {
    let ids: Vec<String> = jobs.iter().map(|job| inline_code(job.as_str(), platform)).collect();
    format!("Several jobs end with {}: {}. Use a full id.", inline_code(name, platform), ids.join(", "))
}

/// Says who uses which skill. It is posted for a slash command, which only its sender sees.
pub fn skill_used(name: &str, skill: &str, input: Option<&str>, platform: ChatPlatform) -> String {
    let (name, skill) = (escape(name, platform), inline_code(skill, platform));
    match input {
        None => format!("{name} uses the skill {skill}."),
        Some(input) => {
            format!("{name} uses the skill {skill}: {}", escape(&shorten(input, MAX_INPUT_CHARS), platform))
        }
    }
}

/// Says that the agent gets the request to use a skill.
pub fn skill_passed_on(agent: &AgentName, skill: &str, platform: ChatPlatform) -> String {
    let agent = escape(agent.as_str(), platform);
    format!("Agent {agent} gets the request to use the skill {}.", inline_code(skill, platform))
}

pub fn no_skills(agent: &AgentName, platform: ChatPlatform) -> String {
    format!("Agent {} has no skills.", escape(agent.as_str(), platform))
}

/// Says that the platform did not accept the message with which a skill is used.
pub fn not_posted() -> String {
    "The message could not be posted in this channel, so nothing was done.".to_owned()
}

/// Says that there is no job, schedule or agent with this name.
pub fn unknown_name(name: &str, platform: ChatPlatform) -> String {
    let (jobs, schedules) = (command("jobs", platform), command("schedules", platform));
    let name = inline_code(&shorten(name, MAX_INPUT_CHARS), platform);
    format!(
        "There is no job, schedule or agent {name}. {jobs} lists the jobs, and {schedules} the schedules."
    )
}

/// Says that a schedule was fired. Without a job, the firing is still being prepared.
pub fn schedule_fired(name: &str, job: Option<&JobId>, platform: ChatPlatform) -> String {
    let code = inline_code(name, platform);
    match job {
        Some(job) => format!(
            "Schedule {code} has fired: {job}. {} shows more.",
            command(&format!("why {job}"), platform)
        ),
        None => format!(
            "Schedule {code} has fired, and the firing is being prepared. {} shows more.",
            command(&format!("why {name}"), platform)
        ),
    }
}

pub fn schedule_enabled(name: &str, is_changed: bool, platform: ChatPlatform) -> String {
    let code = inline_code(name, platform);
    if is_changed {
        format!("Schedule {code} is enabled.")
    } else {
        format!("Schedule {code} was already enabled.")
    }
}

pub fn schedule_disabled_by(name: &str, is_changed: bool, platform: ChatPlatform) -> String {
    let code = inline_code(name, platform);
    if is_changed {
        format!("Schedule {code} is disabled. Jobs that run continue.")
    } else {
        format!("Schedule {code} was already disabled.")
    }
}

/// Says that the command failed because of an error.
pub fn not_done(reason: &str, platform: ChatPlatform) -> String {
    format!("The command failed: {}", sentence(reason, platform))
}

/// Says that the button has no effect, because its value is not one of cowhand's.
pub fn unknown_button() -> String {
    "This button has no effect.".to_owned()
}

/// Says that the button belongs to a job that does not answer in this conversation.
pub fn button_of_other_conversation() -> String {
    "This button belongs to another conversation, so it has no effect here.".to_owned()
}
