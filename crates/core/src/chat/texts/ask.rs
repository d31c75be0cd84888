//! The posts of an ask, and the sentences about its answer.

use crate::actor::Actor;
use crate::ask::{Answered, Ask, AskState, AskSubject};
use crate::chat::ChatPlatform;
use crate::chat::escape::{escape, inline_code, with_codes};
use crate::chat::markdown::{convert, post_limit};
use crate::chat::render::{RenderedFile, RenderedPost};
use crate::chat::split::{length, shorten, split};
use crate::duration;
use jiff::Timestamp;

use super::tool_input::InputPart;

/// Number of characters that are kept free for the text at the end of the last post. The number does not depend on this
/// text, so the other posts of an ask stay the same when the ask is answered.
const FOOTER_ROOM: usize = 600;
/// Maximum length of the text that an answer contains.
const MAX_ANSWER_CHARS: usize = 250;
const MAX_NAME_CHARS: usize = 80;
/// Number of posts above which an ask is posted as its beginning, with the whole ask in a file.
const MAX_ASK_POSTS: usize = 10;

/// Returns the messages of an ask. They contain the whole input of the tool, so that a person sees everything before
/// allowing it. Invisible characters in it are written as codes. The last message says how the ask is answered or, if
/// it is closed, who answered it; the other messages do not change. The buttons belong to the last message.
///
/// `is_answerable` is true if somebody may answer the ask in the chat.
pub fn ask_posts(ask: &Ask, is_answerable: bool, platform: ChatPlatform) -> Vec<RenderedPost> {
    let agent = escape(ask.agent.as_str(), platform);
    let room = post_limit(platform) - FOOTER_ROOM;
    let (shown, whole) = match &ask.what {
        AskSubject::Tool { tool, input } => {
            let parts = InputPart::of(input);
            let heading = format!("Agent {agent} asks whether it may use {}:", inline_code(tool, platform));
            let shown = parts.iter().map(|part| part.to_markup(platform));
            let whole: Vec<String> = parts.iter().map(InputPart::to_plain_text).collect();
            ([heading].into_iter().chain(shown).collect::<Vec<_>>().join("\n"), whole.join("\n\n"))
        }
        AskSubject::Question { question, .. } => {
            let beginning = beginning(question, MAX_ASK_POSTS * room);
            (format!("Agent {agent} asks:\n{}", convert(beginning, platform)), with_codes(question))
        }
    };
    let footer = ask_closed(ask, platform).unwrap_or_else(|| advice(ask, is_answerable, platform));
    let is_long = length(&shown).max(length(&whole)) > MAX_ASK_POSTS * room;
    let mut texts = split(beginning(&shown, MAX_ASK_POSTS * room), room);
    if is_long || texts.len() > MAX_ASK_POSTS {
        let beginning = texts.into_iter().next().unwrap_or_default();
        return vec![with_file(&beginning, whole, &footer, ask)];
    }
    if let Some(last) = texts.last_mut() {
        *last = format!("{last}\n\n{footer}");
    }
    texts.into_iter().map(|text| RenderedPost { text, file: None }).collect()
}

/// Returns at most `limit` characters of the text.
fn beginning(text: &str, limit: usize) -> &str {
    text.char_indices().nth(limit).map_or(text, |(end, _)| &text[..end])
}

fn with_file(beginning: &str, whole: String, footer: &str, ask: &Ask) -> RenderedPost {
    let name = format!("ask-{}.txt", ask.id.number);
    let count = whole.chars().count();
    let text = format!(
        "{beginning}\n\nThis is only the beginning. The whole text has {count} characters and is in {name}. {footer}"
    );
    RenderedPost { text, file: Some(RenderedFile { name, content: whole }) }
}

/// Says how an open ask is answered.
fn advice(ask: &Ask, is_answerable: bool, platform: ChatPlatform) -> String {
    let how = match (&ask.what, is_answerable) {
        (AskSubject::Tool { .. }, true) => {
            format!(
                "An operator can press a button, or reply {} or {}.",
                inline_code("allow", platform),
                inline_code("deny", platform)
            )
        }
        (AskSubject::Question { options, .. }, true) if options.is_empty() => {
            "An operator can reply to this message.".to_owned()
        }
        (AskSubject::Question { .. }, true) => {
            "An operator can press a button, or reply to this message.".to_owned()
        }
        (_, false) => {
            let verb = if matches!(ask.what, AskSubject::Tool { .. }) { "approve" } else { "answer" };
            let command = inline_code(&format!("cowhand {verb} {}", ask.id), platform);
            format!("Nobody can answer here, because no operator is listed for this agent. Use {command}.")
        }
    };
    let time = duration::rounded(ask.expires_at.duration_since(ask.asked_at));
    format!("{how} Without an answer within {time}, {} counts as denied.", ask.id)
}

/// Returns a sentence about the end of an ask; none while the ask is open.
pub fn ask_closed(ask: &Ask, platform: ChatPlatform) -> Option<String> {
    let id = &ask.id;
    let said = |verb: &str, answered: &Answered| {
        let by = answered.by.as_ref().map(|by| format!(" by {}", name_of(by, platform)));
        let (by, at) = (by.unwrap_or_default(), at(answered.answered_at));
        match answered.message.as_ref().map(|text| escape_within(text, MAX_ANSWER_CHARS, platform)) {
            Some(message) => format!("{id} was {verb}{by} {at}: {message}"),
            None => format!("{id} was {verb}{by} {at}."),
        }
    };
    match &ask.state {
        AskState::Open => None,
        AskState::Allowed(answered) => Some(said("allowed", answered)),
        AskState::Denied(answered) => Some(said("denied", answered)),
        AskState::Answered(answered) => Some(said("answered", answered)),
        AskState::Expired { answered_at } => {
            Some(format!("{id} expired without an answer {}. This counts as denied.", at(*answered_at)))
        }
        AskState::Ended { answered_at } => {
            let at = at(*answered_at);
            Some(format!("{id} was closed {at}, because the attempt ended before anybody answered."))
        }
    }
}

/// Says that a question needs a text as its answer, and not the press of a button.
pub fn ask_needs_reply() -> String {
    "This ask is a question. Reply to the message with your answer.".to_owned()
}

/// Says that the button belongs to no ask of this conversation.
pub fn ask_unknown() -> String {
    "This button belongs to no ask in this conversation, so nothing was changed.".to_owned()
}

/// Says that the presser or the author may not answer the ask.
pub fn ask_needs_operator(ask: &Ask, platform: ChatPlatform) -> String {
    let agent = escape(ask.agent.as_str(), platform);
    format!("Only operators of agent {agent} may answer {}. Nothing was changed.", ask.id)
}

/// Says that the answer could not be stored.
pub fn ask_not_answered(reason: &str, platform: ChatPlatform) -> String {
    format!("Your answer was not stored: {} Try again.", super::sentence(reason, platform))
}

/// Says that the ask was closed before the presser or the author answered.
pub fn ask_closed_before(ask: &Ask, platform: ChatPlatform) -> String {
    let closed = ask_closed(ask, platform).unwrap_or_default();
    format!("Your answer came too late. {closed}")
}

/// Reason why a message is not the answer to an open ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAnswerReason {
    /// The author may not answer.
    NotOperator,
    /// The text neither allows nor denies the use of the tool.
    Unclear,
    /// Several asks are open in the conversation.
    Several,
    /// The message is in a channel, where people also talk about other things, and is no reply to the ask.
    NoReply,
    /// The message has files, which an answer cannot contain.
    HasFiles,
    /// The author cannot have read the whole ask before.
    TooEarly,
}

/// A message in a conversation with an open ask does not answer the ask. `becomes_job` is false if the message would
/// say nothing to the agent, for example `yes`.
pub fn no_answer(ask: &Ask, reason: NoAnswerReason, becomes_job: bool, platform: ChatPlatform) -> String {
    let id = &ask.id;
    let why = match reason {
        NoAnswerReason::NotOperator => {
            format!("only operators of agent {} may answer {id}", escape(ask.agent.as_str(), platform))
        }
        NoAnswerReason::Unclear => {
            let (allow, deny) = (inline_code("allow", platform), inline_code("deny", platform));
            format!("{id} needs {allow} or {deny} as its answer")
        }
        NoAnswerReason::Several => {
            "several asks were open here. Use the buttons, or reply to the message of the ask".to_owned()
        }
        NoAnswerReason::NoReply => format!("it is no reply to the message of {id}"),
        NoAnswerReason::HasFiles => format!("the answer to {id} cannot contain files"),
        NoAnswerReason::TooEarly => format!("it was written before the whole of {id} was posted"),
    };
    let consequence =
        if becomes_job { "so it is a new message for the agent" } else { "and it starts no job" };
    format!("Your message answers no ask, {consequence}: {why}.")
}

/// Returns the name of the actor who answered, without IP addresses.
fn name_of(actor: &Actor, platform: ChatPlatform) -> String {
    let name = match actor {
        Actor::Token { name, browser: false, .. } => format!("token {name}"),
        Actor::Token { browser: true, .. } | Actor::Link { .. } => "the dashboard".to_owned(),
        Actor::Sender { .. } => "a webhook".to_owned(),
        Actor::Person { .. } | Actor::Job { .. } | Actor::Chat { .. } => actor.to_string(),
    };
    escape_within(&name, MAX_NAME_CHARS, platform)
}

/// Formats the beginning of a text of others, so that the result has at most `limit` characters.
fn escape_within(text: &str, limit: usize, platform: ChatPlatform) -> String {
    let mut shown = limit;
    loop {
        let escaped = escape(&shorten(text, shown), platform);
        if length(&escaped) <= limit || shown == 0 {
            return escaped;
        }
        shown /= 2;
    }
}

/// Formats a time as `on 2026-01-05 at 14:05 UTC`.
fn at(time: Timestamp) -> String {
    time.strftime("on %Y-%m-%d at %H:%M UTC").to_string()
}
