//! The settings of web chat of an agent, and the schedule whose firings are its messages.

use std::sync::Arc;

use jiff::SignedDuration;

use super::{Agent, Schedule};
use crate::breaker::Breaker;
use crate::id::{ScheduleId, ScheduleName};
use crate::policy::{Timing, Zone};
use crate::shape::{MessageGrouping, WebChatConfig};
use crate::trigger::TriggerConfig;
use crate::web_chat::WEB_CHAT_SCHEDULE;

/// Default of `session_expiry_hours`.
const SESSION_EXPIRY_HOURS: u32 = 24;

/// Settings of web chat, with the defaults applied.
#[derive(Debug, Clone, PartialEq)]
pub struct WebChat {
    /// Schedule whose firings are the messages. The store contains it after the first message.
    pub schedule: Box<Schedule>,
    /// Time after which an unused session of a conversation is not continued.
    pub session_expires: SignedDuration,
    /// True if the page of a conversation shows the results of tools.
    pub tool_results: bool,
    pub grouping: MessageGrouping,
}

impl WebChat {
    /// Returns the settings of an agent; none if its web chat is off.
    pub(crate) fn of(agent: &Agent, config: &WebChatConfig) -> Option<Self> {
        let name: ScheduleName = WEB_CHAT_SCHEDULE.parse().ok()?;
        let is_taken = agent.schedules.iter().any(|own| own.name == name);
        if is_taken || !config.enabled.unwrap_or(true) {
            return None;
        }
        let hours = config.session_expiry_hours.unwrap_or(SESSION_EXPIRY_HOURS);
        Some(Self {
            schedule: Box::new(schedule(agent, name)),
            session_expires: SignedDuration::from_hours(hours.into()),
            tool_results: config.tool_results.unwrap_or(true),
            grouping: config.message_grouping.unwrap_or(MessageGrouping::Separate),
        })
    }
}

/// Returns the schedule of web chat. Its jobs have the settings of jobs without a schedule.
fn schedule(agent: &Agent, name: ScheduleName) -> Schedule {
    Schedule {
        id: ScheduleId::of(&agent.name, &name),
        name,
        adopts: None,
        enabled: true,
        disabled_location: None,
        trigger: TriggerConfig::Manual {},
        timing: Timing::default(),
        zone: Zone::default(),
        filter: None,
        prompt: None,
        work_source: None,
        when_command: None,
        output_to_file: false,
        isolation: agent.isolation.clone(),
        permissions: None,
        retry: Arc::new(agent.retry.clone()),
        timeout: agent.timeout,
        idle_timeout: agent.idle_timeout,
        sandbox_rules: None,
        breaker: Breaker::default(),
        trust: None,
        notify: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_with_a_schedule_of_this_name_has_no_web_chat() {
        let mut agent = Agent::new("coder".parse().unwrap());
        let chat = agent.web_chat.clone().unwrap();
        assert_eq!(agent.schedule(Some(&chat.schedule.name)).map(|own| own.id), Some(chat.schedule.id));
        agent.schedules = vec![*chat.schedule];
        assert_eq!(WebChat::of(&agent, &WebChatConfig::default()), None);
    }
}
