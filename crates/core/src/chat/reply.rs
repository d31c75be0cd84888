//! Replies of people to asks.

use crate::ask::{AskAnswer, AskSubject};

const ALLOW_WORDS: [&str; 5] = ["allow", "allowed", "approve", "approved", "yes"];
const DENY_WORDS: [&str; 6] = ["deny", "denied", "reject", "rejected", "refuse", "no"];

/// Returns the answer that a reply gives to an ask; none if the text is empty or is not a clear answer.
///
/// The answer to a question is the whole text. The answer about the use of a tool is a single word. A colon and a text
/// for the agent can follow: `deny: use tar instead`.
pub fn answer_of_reply(asked: &AskSubject, text: &str) -> Option<AskAnswer> {
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    match asked {
        AskSubject::Question { .. } => Some(AskAnswer::Text(text.to_owned())),
        AskSubject::Tool { .. } => verdict_of_reply(text),
    }
}

/// Returns the answer about the use of a tool that a text gives; none if the text is not clearly such an answer.
pub fn verdict_of_reply(text: &str) -> Option<AskAnswer> {
    let text = text.trim();
    let (word, message) = match text.split_once(':') {
        Some((word, message)) => (word, Some(message.trim().to_owned()).filter(|text| !text.is_empty())),
        None => (text, None),
    };
    let word = word.trim_matches(|c: char| c.is_whitespace() || "`.!/".contains(c)).to_lowercase();
    if ALLOW_WORDS.contains(&&*word) {
        Some(AskAnswer::Allow { message })
    } else if DENY_WORDS.contains(&&*word) {
        Some(AskAnswer::Deny { message })
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn only_clear_replies_answer_the_ask_of_a_tool() {
        let tool = AskSubject::Tool { tool: "Bash".into(), input: Value::Null };
        let allow = |message: Option<&str>| Some(AskAnswer::Allow { message: message.map(str::to_owned) });
        let deny = |message: Option<&str>| Some(AskAnswer::Deny { message: message.map(str::to_owned) });
        for (text, expected) in [
            ("allow", allow(None)),
            (" `Allow`. ", allow(None)),
            ("Yes!", allow(None)),
            ("approve: but be quick", allow(Some("but be quick"))),
            ("deny", deny(None)),
            ("NO", deny(None)),
            ("no: use tar: it is safer", deny(Some("use tar: it is safer"))),
            ("deny:", deny(None)),
            ("", None),
            ("ok", None),
            ("allow it", None),
            ("yes or no", None),
            ("no, wait, yes", None),
            ("allow deny", None),
            ("I say: allow", None),
        ] {
            assert_eq!(answer_of_reply(&tool, text), expected, "{text:?}");
        }
    }

    #[test]
    fn the_answer_to_a_question_is_the_text() {
        let question = AskSubject::question("Which?");
        for (text, expected) in [("  main\n", Some("main")), ("no", Some("no")), (" ", None)] {
            let expected = expected.map(|text| AskAnswer::Text(text.to_owned()));
            assert_eq!(answer_of_reply(&question, text), expected, "{text:?}");
        }
    }
}
