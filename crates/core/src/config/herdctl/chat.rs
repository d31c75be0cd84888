//! Rules for the agents of a herdctl fleet in a chat. herdctl has no list of users, and answers more threads.

use crate::chat::ChatPlatform;
use crate::chat::settings::AgentChat;
use crate::shape::{Chat, PlatformOptions};

/// Lets everybody talk to the agent on each platform for which nobody is listed, unless `everyone` is set. Everybody who
/// may talk to the agent may also send it direct messages, unless `everyone` of `dm` is set.
pub(in super::super) fn admit_everyone(chat: &mut Chat) {
    if let Some(discord) = &mut chat.discord {
        let lists_somebody = !discord.roles.is_empty() || discord.options.lists_somebody();
        admit(&mut discord.options, lists_somebody);
    }
    if let Some(slack) = &mut chat.slack {
        let lists_somebody = slack.options.lists_somebody();
        admit(&mut slack.options, lists_somebody);
    }
}

fn admit(options: &mut PlatformOptions, lists_somebody: bool) {
    if !lists_somebody {
        options.everyone.get_or_insert(true);
    }
    if options.everyone == Some(true) {
        options.dm.get_or_insert_default().everyone.get_or_insert(true);
    }
}

/// Lets the agent answer every message in a thread of its channels on Slack, in each mode of the channel.
pub(in super::super) fn answer_threads(chat: &mut AgentChat) {
    for chat in chat.platforms.iter_mut().filter(|chat| chat.platform == ChatPlatform::Slack) {
        chat.answers_every_thread = true;
    }
}
