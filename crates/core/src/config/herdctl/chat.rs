//! Access to the agents of a herdctl fleet in a chat: herdctl has no list of users.

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
