//! Checks of web chat.

use crate::config::load::{Draft, Loader};
use crate::config::problem::Problem;
use crate::config::resolve::schedule_at;
use crate::roster::Agent;
use crate::shape::WebChatConfig;
use crate::web_chat::WEB_CHAT_SCHEDULE;

/// Warns of a schedule that has the name of the schedule of web chat, because then the agent has no web chat.
pub(in crate::config) fn check(
    loader: &mut Loader<'_>,
    draft: &Draft,
    agent: &Agent,
    web_chat: &WebChatConfig,
) {
    let has_own = agent.schedules.iter().any(|own| own.name.as_str() == WEB_CHAT_SCHEDULE);
    if !has_own || web_chat.enabled == Some(false) {
        return;
    }
    let message = format!(
        "the agent cannot be used in the web chat of the dashboard, because it has a schedule `{WEB_CHAT_SCHEDULE}`"
    );
    let help = "give the schedule another name, or set `web_chat: {enabled: false}`";
    let key = draft.key_of(&format!("schedules.{WEB_CHAT_SCHEDULE}"));
    let problem = Problem::warning(schedule_at(draft, WEB_CHAT_SCHEDULE), message);
    loader.problems.add(problem.key(key).help(help.to_owned()));
}
