//! Access to the agents of a herdctl fleet in a chat. herdctl has no list of users.

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
