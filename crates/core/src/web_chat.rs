//! Web chat: conversations with an agent in the dashboard and the API.
//!
//! A message is a firing by hand of a schedule that every agent with web chat has, besides the schedules of its config.

use uuid::Uuid;

use crate::id::{AgentName, JobId};

/// Name of the schedule of web chat.
pub const WEB_CHAT_SCHEDULE: &str = "web-chat";

/// Maximum size of a message in bytes.
pub const MAX_WEB_MESSAGE_BYTES: usize = 100_000;

/// Maximum number of characters in the title of a conversation.
const MAX_TITLE_CHARS: usize = 80;

/// Beginning of the text from which the session key of a job is derived. The names of chat platforms begin the texts of
/// other conversations.
const PREFIX: &str = "web ";

/// Returns the text from which the session key of a job is derived. After a reset, it differs from all earlier texts.
pub fn chat_text(conversation: &str, resets: u32) -> String {
    if resets == 0 { format!("{PREFIX}{conversation}") } else { format!("{PREFIX}{conversation} {resets}") }
}

/// Returns whether a job with this text belongs to a conversation of web chat.
pub fn is_web_chat(chat: &str) -> bool {
    chat.starts_with(PREFIX)
}

/// Returns the conversation of a job that belongs to web chat; none for any other job.
pub fn conversation_of(chat: &str) -> Option<&str> {
    chat.strip_prefix(PREFIX)?.split(' ').next()
}

/// Returns whether the conversation of a job has been reset before the message of the job.
pub fn is_reset(chat: &str) -> bool {
    chat.strip_prefix(PREFIX).is_some_and(|rest| rest.contains(' '))
}

/// Returns the id of a new conversation, which may continue a job. The same agent, job and key give the same id, so that
/// a request that is repeated creates one conversation.
pub fn conversation_id(agent: &AgentName, continues: Option<&JobId>, key: Option<&str>) -> String {
    let continues = continues.map(JobId::as_str).unwrap_or_default();
    let id = match key {
        Some(key) => Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{agent} {continues} {key}").as_bytes()),
        None => Uuid::now_v7(),
    };
    id.simple().to_string()
}

/// Returns the title of a conversation: the beginning of the first line with words in its first message.
pub fn title_of(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
    if words.chars().count() <= MAX_TITLE_CHARS {
        return words;
    }
    let cut: String = words.chars().take(MAX_TITLE_CHARS - 1).collect();
    format!("{}…", cut.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_changes_the_text_of_a_conversation() {
        for (resets, text, reset) in [(0, "web c1", false), (2, "web c1 2", true)] {
            assert_eq!(chat_text("c1", resets), text);
            assert_eq!((conversation_of(text), is_reset(text)), (Some("c1"), reset), "{text}");
        }
        assert_eq!((conversation_of("slack C1"), is_web_chat("slack C1")), (None, false));
    }

    #[test]
    fn a_repeated_request_has_the_same_conversation() {
        let agent: AgentName = "coder".parse().unwrap();
        let job: JobId = "job-2026-01-05-a1b2c3".parse().unwrap();
        let id = |key| conversation_id(&agent, None, Some(key));
        assert_eq!(id("k1"), id("k1"));
        assert_ne!(id("k1"), id("k2"));
        assert_ne!(id("k1"), conversation_id(&agent, Some(&job), Some("k1")));
        assert_ne!(id("k1"), conversation_id(&"other".parse().unwrap(), None, Some("k1")));
        assert_ne!(conversation_id(&agent, None, None), conversation_id(&agent, None, None));
    }

    #[test]
    fn a_title_is_one_short_line() {
        for (text, title) in
            [("fix it", "fix it"), ("\n \n  fix\t the   login \nplease", "fix the login"), ("", "")]
        {
            assert_eq!(title_of(text), title);
        }
        let long = title_of(&"é".repeat(200));
        assert_eq!((long.chars().count(), long.chars().last()), (MAX_TITLE_CHARS, Some('…')));
    }
}
