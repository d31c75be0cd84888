//! Rules for the agents of a herdctl fleet in a chat. herdctl has no list of users, and answers more threads.

use crate::chat::ChatPlatform;
use crate::chat::settings::AgentChat;
use crate::shape::Chat;

/// Lets everybody talk to the agent on each platform for which nobody is listed, unless `everyone` is set.
pub(in super::super) fn admit_everyone(chat: &mut Chat) {
    if let Some(discord) = &mut chat.discord
        && discord.roles.is_empty()
        && !discord.options.lists_somebody()
    {
        discord.options.everyone.get_or_insert(true);
    }
    if let Some(slack) = &mut chat.slack
        && !slack.options.lists_somebody()
    {
        slack.options.everyone.get_or_insert(true);
    }
}

/// Lets the agent answer every message in a thread of its channels on Slack, in each mode of the channel.
pub(in super::super) fn answer_threads(chat: &mut AgentChat) {
    for chat in chat.platforms.iter_mut().filter(|chat| chat.platform == ChatPlatform::Slack) {
        chat.answers_every_thread = true;
    }
}
