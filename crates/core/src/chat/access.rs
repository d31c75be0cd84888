//! Which messages an agent answers, and who may do what.

use super::settings::{AnswerMode, CONTEXT_MESSAGES, ChatAccess, DirectRules, PlatformChat};
use super::{ChatMessage, ChatPlace, ChatUser};
use crate::word::written_as;

/// Decision about a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatReception {
    /// The message is not for the agent. Nobody is told.
    Ignored,
    /// The message is for the agent, but its author may not talk to the agent.
    Refused { reason: RefusalReason },
    Accepted {
        /// Number of earlier messages that the prompt contains.
        context_messages: u32,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalReason {
    /// The author is not among the people who may talk to the agent.
    NotListed,
    /// The agent answers no direct messages.
    DirectMessagesOff,
    /// The author is on the blocklist for direct messages.
    Blocked,
    /// There is an allowlist for direct messages, and the author is not on it.
    NotOnAllowlist,
}

written_as! {
    RefusalReason {
        NotListed = "not_listed",
        DirectMessagesOff = "direct_messages_off",
        Blocked = "blocked",
        NotOnAllowlist = "not_on_allowlist",
    }
}

/// Decides about a message. `is_own_thread` is true if the message is in a thread in which the agent has answered.
pub fn reception(chat: &PlatformChat, message: &ChatMessage, is_own_thread: bool) -> ChatReception {
    let continues_thread = message.place.thread.is_some() && (is_own_thread || chat.answers_every_thread);
    receive(chat, &message.place, &message.author, message.mentions_bot || continues_thread)
}

/// Decides about a slash command or the press of a button, which always address the bot.
pub fn call_reception(chat: &PlatformChat, place: &ChatPlace, user: &ChatUser) -> ChatReception {
    receive(chat, place, user, true)
}

fn receive(chat: &PlatformChat, place: &ChatPlace, author: &ChatUser, is_addressed: bool) -> ChatReception {
    if author.is_self || (author.is_bot && !lists_bot(&chat.access, author)) {
        return ChatReception::Ignored;
    }
    let for_direct = || (chat.direct.mode, chat.direct.context_messages);
    let rule = if place.is_direct { Some(for_direct()) } else { channel_rule(chat, place) };
    let Some((mode, context_messages)) = rule else { return ChatReception::Ignored };
    if mode == AnswerMode::Mention && !is_addressed {
        return ChatReception::Ignored;
    }
    let refusal = if place.is_direct {
        direct_refusal(&chat.direct, &chat.access, author)
    } else {
        (!may_talk(&chat.access, author)).then_some(RefusalReason::NotListed)
    };
    match refusal {
        Some(reason) => ChatReception::Refused { reason },
        None => ChatReception::Accepted { context_messages },
    }
}

/// Returns the mode and the number of context messages of a channel; none if the agent does not answer there. A thread
/// that is listed itself has its own mode; every other thread has the mode of its channel.
fn channel_rule(chat: &PlatformChat, place: &ChatPlace) -> Option<(AnswerMode, u32)> {
    let listed = |id: &str| chat.channels.iter().find(|channel| channel.id == id);
    let channel = place.thread.as_deref().and_then(listed).or_else(|| listed(&place.channel));
    let by_channel = channel.map(|channel| (channel.mode, channel.context_messages));
    by_channel.or_else(|| {
        let guild = chat.guilds.iter().find(|guild| Some(&guild.id) == place.space.as_ref())?;
        Some((guild.default_mode?, CONTEXT_MESSAGES))
    })
}

/// Returns the reason why a direct message is refused, if it is. Users on the allowlist need no other permission.
/// `everyone` of the channels does not apply.
fn direct_refusal(direct: &DirectRules, access: &ChatAccess, author: &ChatUser) -> Option<RefusalReason> {
    if !direct.enabled {
        Some(RefusalReason::DirectMessagesOff)
    } else if direct.blocklist.contains(&author.id) {
        Some(RefusalReason::Blocked)
    } else if direct.allowlist.contains(&author.id) {
        None
    } else if !direct.allowlist.is_empty() {
        Some(RefusalReason::NotOnAllowlist)
    } else {
        let is_admitted = is_listed(access, author) || (direct.everyone && is_person(author));
        (!is_admitted).then_some(RefusalReason::NotListed)
    }
}

/// Checks whether the text of a user may be among the earlier messages in the prompts of the agent: the text of everybody
/// who may talk to the agent in this place, and of the bot itself.
pub fn may_be_quoted(chat: &PlatformChat, place: &ChatPlace, author: &ChatUser) -> bool {
    let may_write = if place.is_direct {
        direct_refusal(&chat.direct, &chat.access, author).is_none()
    } else {
        may_talk(&chat.access, author)
    };
    author.is_self || may_write
}

/// Checks whether a user may talk to the agent in its channels. A bot may only if it is listed in `bots`.
fn may_talk(access: &ChatAccess, user: &ChatUser) -> bool {
    is_listed(access, user) || (access.everyone && is_person(user))
}

const fn is_person(user: &ChatUser) -> bool {
    !user.is_self && !user.is_bot
}

/// Checks whether a list names the user.
fn is_listed(access: &ChatAccess, user: &ChatUser) -> bool {
    if !is_person(user) {
        return !user.is_self && lists_bot(access, user);
    }
    access.users.contains(&user.id)
        || user.roles.iter().any(|role| access.roles.contains(role))
        || is_operator(access, user)
}

/// Checks whether `bots` contains one of the ids of a bot.
fn lists_bot(access: &ChatAccess, bot: &ChatUser) -> bool {
    let is_listed = |id: &String| access.bots.contains(id);
    is_listed(&bot.id) || bot.bot_id.as_ref().is_some_and(is_listed)
}

/// Checks whether a user may stop jobs of others, use schedule commands and answer asks. A bot is never an operator.
pub fn is_operator(access: &ChatAccess, user: &ChatUser) -> bool {
    let is_listed = |id: &String| access.operators.contains(id);
    !user.is_bot && !user.is_self && (is_listed(&user.id) || user.roles.iter().any(is_listed))
}

#[cfg(test)]
mod tests {
    use ChatReception::{Accepted, Ignored, Refused};
    use RefusalReason::{Blocked, DirectMessagesOff, NotListed, NotOnAllowlist};

    use super::*;
    use crate::roster::Agent;
    use crate::trigger::ChatPlatform;

    fn settings(platform: ChatPlatform, yaml: &str) -> PlatformChat {
        let config = serde_json::from_str(&format!(r#"{{"chat":{{"{platform}":{yaml}}}}}"#)).unwrap();
        let agent = Agent::from_config("a".parse().unwrap(), config);
        agent.chat.unwrap().on(platform).unwrap().clone()
    }

    fn discord(keys: &str) -> PlatformChat {
        let guilds = r#""guilds":[
            {"id":"G1","channels":[{"id":"talk","mode":"auto","context_messages":3},{"id":"quiet"},
                                   {"id":"thread-of-quiet","mode":"auto","context_messages":0}]},
            {"id":"G2","channels":[{"id":"off","mode":"mention"}],"default_channel_mode":"auto"}]"#;
        settings(ChatPlatform::Discord, &format!(r#"{{"bot_token_env":"T",{guilds},{keys}}}"#))
    }

    fn user(id: &str) -> ChatUser {
        let (roles, is_bot) = match id.split_once('+') {
            Some((_, role)) => (vec![role.to_owned()], false),
            None => (Vec::new(), id.starts_with("bot")),
        };
        let id = id.split('+').next().unwrap_or_default().to_owned();
        ChatUser { name: id.clone(), is_self: id == "self", id, roles, is_bot, bot_id: None }
    }

    /// Creates a message in `GUILD/CHANNEL`, `GUILD/CHANNEL/THREAD` or `dm`. A `@` before the place means that the
    /// message mentions the bot.
    fn message(author: &str, at: &str) -> ChatMessage {
        let (mentions_bot, at) = at.strip_prefix('@').map_or((false, at), |at| (true, at));
        let mut parts = at.split('/').map(str::to_owned);
        let is_direct = at == "dm";
        let space = if is_direct { None } else { parts.next() };
        let place = ChatPlace { space, channel: parts.next().unwrap(), thread: parts.next(), is_direct };
        ChatMessage {
            platform: ChatPlatform::Discord,
            id: "1".into(),
            place,
            author: user(author),
            text: "hello".into(),
            mentions_bot,
            reply_to: None,
            attachments: Vec::new(),
            sent_at: jiff::Timestamp::UNIX_EPOCH,
            url: String::new(),
        }
    }

    const fn accepted(context_messages: u32) -> ChatReception {
        Accepted { context_messages }
    }

    #[test]
    fn the_place_and_the_mode_decide_which_messages_are_answered() {
        let chat = discord(r#""everyone":true,"bots":["bot-1"]"#);
        for (author, at, own_thread, expected) in [
            ("ann", "G1/talk", false, accepted(3)),
            ("ann", "@G1/talk", false, accepted(3)),
            ("ann", "G1/quiet", false, Ignored),
            ("ann", "@G1/quiet", false, accepted(10)),
            ("ann", "@G1/other", false, Ignored),
            ("ann", "@G3/other", false, Ignored),
            ("ann", "G2/other", false, accepted(10)),
            ("ann", "G2/off", false, Ignored),
            ("ann", "@G2/off", false, accepted(10)),
            ("ann", "G1/talk/t", false, accepted(3)),
            ("ann", "G1/quiet/t", false, Ignored),
            ("ann", "G1/quiet/t", true, accepted(10)),
            ("ann", "@G1/quiet/t", false, accepted(10)),
            ("ann", "G1/quiet", true, Ignored),
            ("ann", "G1/other/t", true, Ignored),
            ("ann", "G1/quiet/thread-of-quiet", false, accepted(0)),
            ("ann", "dm", false, Refused { reason: NotListed }),
            ("bot-1", "dm", false, accepted(10)),
            ("self", "@G1/talk", true, Ignored),
            ("self", "dm", false, Ignored),
            ("bot-1", "G1/talk", false, accepted(3)),
            ("bot-2", "@G1/talk", false, Ignored),
            ("bot-2", "dm", false, Ignored),
        ] {
            let message = message(author, at);
            assert_eq!(reception(&chat, &message, own_thread), expected, "{author} in {at}");
            let as_mention = reception(&chat, &ChatMessage { mentions_bot: true, ..message.clone() }, false);
            assert_eq!(
                call_reception(&chat, &message.place, &message.author),
                as_mention,
                "{author} in {at}"
            );
        }
    }

    #[test]
    fn every_thread_can_count_as_a_mention() {
        let chat = discord(r#""everyone":true"#);
        let chat = PlatformChat { answers_every_thread: true, ..chat };
        for (author, at, expected) in [
            ("ann", "G1/quiet/t", accepted(10)),
            ("ann", "G1/quiet", Ignored),
            ("ann", "G1/other/t", Ignored),
            ("bot-1", "G1/quiet/t", Ignored),
        ] {
            assert_eq!(reception(&chat, &message(author, at), false), expected, "{author} in {at}");
        }
    }

    #[test]
    fn only_listed_people_may_talk_to_an_agent() {
        let chat = discord(r#""users":["ann"],"roles":["R1"],"operators":["olga","R2"],"bots":["bot-1"]"#);
        for (author, at, expected) in [
            ("ann", "G1/talk", accepted(3)),
            ("eve", "G1/talk", Refused { reason: NotListed }),
            ("eve", "@G1/quiet", Refused { reason: NotListed }),
            ("eve", "G1/quiet", Ignored),
            ("eve", "@G1/other", Ignored),
            ("eve+R1", "G1/talk", accepted(3)),
            ("eve+R3", "G1/talk", Refused { reason: NotListed }),
            ("olga", "G1/talk", accepted(3)),
            ("eve+R2", "G1/talk", accepted(3)),
            ("bot-1", "G1/talk", accepted(3)),
            ("bot-2", "G1/talk", Ignored),
            ("ann", "dm", accepted(10)),
            ("eve", "dm", Refused { reason: NotListed }),
        ] {
            assert_eq!(reception(&chat, &message(author, at), false), expected, "{author} in {at}");
        }
    }

    #[test]
    fn direct_messages_have_rules_of_their_own() {
        for (keys, author, at, expected) in [
            (r#""everyone":true,"dm":{"enabled":false}"#, "ann", "dm", Refused { reason: DirectMessagesOff }),
            (r#""everyone":true,"dm":{"enabled":false}"#, "ann", "G1/talk", accepted(3)),
            (r#""everyone":true,"dm":{"mode":"mention"}"#, "ann", "dm", Ignored),
            (r#""everyone":true,"dm":{"mode":"mention"}"#, "ann", "@dm", Refused { reason: NotListed }),
            (r#""users":["ann"],"dm":{"mode":"mention"}"#, "ann", "@dm", accepted(10)),
            (r#""everyone":true,"users":["ann"]"#, "ann", "dm", accepted(10)),
            (r#""everyone":true,"users":["ann"]"#, "bob", "dm", Refused { reason: NotListed }),
            (r#""everyone":true,"dm":{"everyone":true}"#, "ann", "dm", accepted(10)),
            (r#""users":["bob"],"dm":{"everyone":true}"#, "ann", "dm", accepted(10)),
            (r#""users":["bob"],"dm":{"everyone":true}"#, "ann", "G1/talk", Refused { reason: NotListed }),
            (r#""users":["bob"],"dm":{"everyone":true}"#, "bot-1", "dm", Ignored),
            (
                r#""everyone":true,"dm":{"everyone":true,"enabled":false}"#,
                "ann",
                "dm",
                Refused { reason: DirectMessagesOff },
            ),
            (
                r#""everyone":true,"dm":{"everyone":true,"blocklist":["ann"]}"#,
                "ann",
                "dm",
                Refused { reason: Blocked },
            ),
            (
                r#""everyone":true,"dm":{"everyone":true,"allowlist":["bob"]}"#,
                "ann",
                "dm",
                Refused { reason: NotOnAllowlist },
            ),
            (r#""everyone":true,"dm":{"blocklist":["ann"]}"#, "ann", "dm", Refused { reason: Blocked }),
            (r#""everyone":true,"dm":{"blocklist":["ann"]}"#, "ann", "G1/talk", accepted(3)),
            (
                r#""everyone":true,"dm":{"allowlist":["bob"]}"#,
                "ann",
                "dm",
                Refused { reason: NotOnAllowlist },
            ),
            (r#""everyone":true,"dm":{"allowlist":["ann"]}"#, "ann", "dm", accepted(10)),
            (
                r#""everyone":true,"dm":{"allowlist":["ann"],"blocklist":["ann"]}"#,
                "ann",
                "dm",
                Refused { reason: Blocked },
            ),
            (r#""users":["bob"],"dm":{"allowlist":["ann"]}"#, "ann", "dm", accepted(10)),
            (
                r#""users":["bob"],"dm":{"allowlist":["ann"]}"#,
                "ann",
                "G1/talk",
                Refused { reason: NotListed },
            ),
            (
                r#""users":["bob"],"dm":{"allowlist":["ann"]}"#,
                "bob",
                "dm",
                Refused { reason: NotOnAllowlist },
            ),
            (r#""users":["bob"],"dm":{"allowlist":[]}"#, "bob", "dm", accepted(10)),
        ] {
            let found = reception(&discord(keys), &message(author, at), false);
            assert_eq!(found, expected, "{keys}: {author} in {at}");
        }
    }

    #[test]
    fn only_the_text_of_people_who_may_talk_to_an_agent_is_quoted() {
        for (keys, author, at, expected) in [
            (r#""users":["ann"],"roles":["R1"],"bots":["bot-1"]"#, "ann", "G1/talk", true),
            (r#""users":["ann"],"roles":["R1"],"bots":["bot-1"]"#, "eve", "G1/talk", false),
            (r#""users":["ann"],"roles":["R1"],"bots":["bot-1"]"#, "eve+R1", "G1/talk", true),
            (r#""users":["ann"],"roles":["R1"],"bots":["bot-1"]"#, "bot-1", "G1/talk", true),
            (r#""users":["ann"],"roles":["R1"],"bots":["bot-1"]"#, "bot-2", "G1/talk", false),
            (r#""users":["ann"]"#, "self", "G1/talk", true),
            (r#""everyone":true"#, "eve", "G1/talk", true),
            (r#""everyone":true"#, "bot-1", "G1/talk", false),
            (r#""users":["ann"],"dm":{"allowlist":["fay"]}"#, "fay", "dm", true),
            (r#""users":["ann"],"dm":{"allowlist":["fay"]}"#, "self", "dm", true),
            (r#""users":["ann"]"#, "fay", "dm", false),
        ] {
            let message = message(author, at);
            let found = may_be_quoted(&discord(keys), &message.place, &message.author);
            assert_eq!(found, expected, "{keys}: {author} in {at}");
        }
    }

    #[test]
    fn operators_are_listed_by_user_or_role() {
        let access = |keys: &str| discord(keys).access;
        for (keys, who, operates, talks) in [
            (r#""everyone":true"#, "ann", false, true),
            (r#""users":["ann"]"#, "ann", false, true),
            (r#""operators":["ann"]"#, "ann", true, true),
            (r#""operators":["R1"]"#, "ann+R1", true, true),
            (r#""operators":["R1"]"#, "ann+R2", false, false),
            (r#""operators":["bot-1"]"#, "bot-1", false, false),
            (r#""everyone":true"#, "bot-1", false, false),
            (r#""bots":["bot-1"]"#, "bot-1", false, true),
            (r#""everyone":true,"operators":["self"]"#, "self", false, false),
        ] {
            let (access, who) = (access(keys), user(who));
            assert_eq!((is_operator(&access, &who), may_talk(&access, &who)), (operates, talks), "{keys}");
        }
    }
}
