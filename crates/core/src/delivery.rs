//! Deliveries: webhook requests and chat messages, and the firings that they cause.

use indexmap::IndexMap;
use jiff::Timestamp;
use serde_json::Value;

use crate::chat::attachment::AttachedFile;
use crate::chat::posting::MessageDetails;
use crate::filter::matches;
use crate::trigger::{ChatPlatform, FiringContext, Occurrence, Task, TriggerConfig};

/// A webhook request or chat message. It counts once, even if it is sent again.
#[derive(Debug, Clone, PartialEq)]
pub enum Delivery {
    Webhook(Webhook),
    Chat(Message),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Webhook {
    /// Id of the delivery. A delivery that is sent again has the same id.
    pub id: String,
    /// Event type that the sender states, for example GitHub's `issues`; empty if the sender states none.
    pub event: String,
    pub payload: Value,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub platform: ChatPlatform,
    pub id: String,
    pub channel: String,
    /// Thread within the channel, if the platform has threads and the message is in one.
    pub thread: Option<String>,
    /// Id of the author, or any other name of the author.
    pub author: String,
    pub text: String,
    pub url: String,
    pub details: MessageDetails,
}

/// Decision of a trigger about a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reception {
    Wanted,
    Unwanted,
    /// A test request of the sender.
    Ping,
    /// The schedule has a trigger of another type.
    WrongType,
}

impl Delivery {
    pub fn occurrence(&self) -> Occurrence<'_> {
        match self {
            Self::Webhook(webhook) => Occurrence::Webhook { delivery_id: &webhook.id },
            Self::Chat(message) => Occurrence::Chat { platform: message.platform, message_id: &message.id },
        }
    }

    pub fn reception(&self, trigger: &TriggerConfig) -> Reception {
        let accepted = match (self, trigger) {
            (Self::Webhook(webhook), TriggerConfig::Webhook { .. }) if webhook.event == "ping" => {
                return Reception::Ping;
            }
            (Self::Webhook(webhook), TriggerConfig::Webhook { events, .. }) => {
                events.is_empty() || events.iter().any(|event| webhook.is(event))
            }
            (Self::Chat(message), TriggerConfig::Chat { platform, channel, channels, pattern, patterns }) => {
                let (mut channels, mut patterns) =
                    (channels.iter().chain(channel).peekable(), patterns.iter().chain(pattern).peekable());
                platform.is_none_or(|platform| platform == message.platform)
                    && (channels.peek().is_none() || channels.any(|channel| message.is_in(channel)))
                    && (patterns.peek().is_none()
                        || patterns.any(|pattern| matches(Some(pattern), &message.text)))
            }
            _ => return Reception::WrongType,
        };
        if accepted { Reception::Wanted } else { Reception::Unwanted }
    }

    pub fn firing_context(self, now: Timestamp) -> FiringContext {
        match self {
            Self::Webhook(webhook) => {
                let task = webhook.task(now);
                FiringContext { payload: Some(webhook.payload), ..FiringContext::of_task(task) }
            }
            Self::Chat(message) => {
                let chat = Some(message.chat());
                FiringContext { chat, ..FiringContext::of_task(message.task(now)) }
            }
        }
    }
}

/// Maximum size of the body of a webhook request. GitHub has the same limit.
pub const MAX_BODY_BYTES: usize = 25 << 20;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the delivery is too large; the maximum is {MAX_BODY_BYTES} bytes")]
pub struct TooLarge;

impl Webhook {
    /// Creates a webhook from a request body. A body that is not JSON becomes a payload that is one string.
    pub fn of_body(id: impl Into<String>, event: impl Into<String>, body: &[u8]) -> Result<Self, TooLarge> {
        if body.len() > MAX_BODY_BYTES {
            return Err(TooLarge);
        }
        let text = || Value::String(String::from_utf8_lossy(body).into_owned());
        let payload = serde_json::from_slice(body).unwrap_or_else(|_| text());
        Ok(Self { id: id.into(), event: event.into(), payload })
    }

    /// Returns the challenge of Slack's `url_verification` request; none for other requests. Slack sends events only
    /// after the response to this request has repeated the challenge.
    pub fn challenge(&self) -> Option<&str> {
        let is_asked = self.payload.get("type").is_some_and(|kind| kind == "url_verification");
        self.payload.get("challenge").filter(|_| is_asked)?.as_str()
    }

    /// Returns the GitHub repository that the delivery is about, as `owner/name`; none if the payload names none.
    pub fn repository(&self) -> Option<&str> {
        self.payload.pointer("/repository/full_name")?.as_str()
    }

    /// Checks whether the event matches: `issues` matches every event of this type, and `issues.opened` only events
    /// with this action.
    fn is(&self, event: &str) -> bool {
        let action = text(self.payload.pointer("/action"));
        event == self.event || event.strip_prefix(&self.event) == Some(&format!(".{action}"))
    }

    /// Returns the task of this delivery. It is read from the fields of a GitHub payload; a field that the payload of
    /// another sender lacks stays empty in the task.
    fn task(&self, now: Timestamp) -> Task {
        let payload = &self.payload;
        let at = |pointer: &str| payload.pointer(pointer);
        let (issue, pull) = (at("/issue"), at("/pull_request"));
        let subject = pull.or(issue).unwrap_or(&Value::Null);
        let of_subject = |pointer: &str| text(subject.pointer(pointer));
        let number = |of: Option<&Value>| text(of.and_then(|of| of.get("number")));
        let labels = subject.get("labels").and_then(Value::as_array).into_iter().flatten();
        let metadata = [
            ("github_event", self.event.clone()),
            ("action", text(at("/action"))),
            ("delivery_id", self.id.clone()),
            ("issue_number", number(issue)),
            ("pr_number", number(pull)),
            ("author", of_subject("/user/login")),
            ("sender", text(at("/sender/login"))),
            ("repository", text(at("/repository/full_name"))),
            ("timestamp", now.to_string()),
        ];
        let title = match (of_subject("/title"), self.event.as_str()) {
            (title, _) if !title.is_empty() => title,
            (_, "") => "Webhook".to_owned(),
            (_, event) => format!("Webhook: {event}"),
        };
        Task {
            source_id: self.id.clone(),
            title,
            body: of_subject("/body"),
            url: of_subject("/html_url"),
            labels: labels.map(|label| text(label.get("name").or(Some(label)))).collect(),
            assignee: Some(of_subject("/assignee/login")).filter(|login| !login.is_empty()),
            metadata: set(metadata),
        }
    }
}

impl Message {
    /// Checks whether the message is in a channel, or in a thread with this id.
    fn is_in(&self, channel: &str) -> bool {
        self.channel == channel || self.thread.as_deref() == Some(channel)
    }

    /// Returns the conversation of the message.
    fn chat(&self) -> String {
        let of_place = || conversation(self.platform, &self.channel, self.thread.as_deref());
        self.details.conversation.clone().unwrap_or_else(of_place)
    }

    fn task(self, now: Timestamp) -> Task {
        let Self { platform, id, channel, thread, author, text, url, details } = self;
        let metadata = [
            ("platform", platform.as_str().to_owned()),
            ("channel", channel),
            ("thread", thread.unwrap_or_default()),
            ("author", author),
            ("author_name", details.author_name),
            ("retried_by", details.retried_by),
            ("attachments", descriptions(&details.attachments)),
            ("earlier_messages", details.earlier_messages),
            ("repeated_by", details.repeated_by.unwrap_or_default()),
            ("timestamp", now.to_string()),
        ];
        let title = text.lines().next().unwrap_or_default().to_owned();
        Task { source_id: id, title, body: text, url, metadata: set(metadata), ..Task::default() }
    }
}

/// Returns the descriptions of files for the prompt. Descriptions of one line come first, so that they are kept if a
/// long text has to be cut.
fn descriptions(files: &[AttachedFile]) -> String {
    let mut descriptions: Vec<&str> = files.iter().map(|file| file.description.as_str()).collect();
    descriptions.sort_by_key(|description| description.contains('\n'));
    descriptions.join("\n")
}

/// Returns the conversation of a place: its thread, or its channel without a thread. Names are escaped, so that two
/// conversations never have the same text.
pub fn conversation(platform: ChatPlatform, channel: &str, thread: Option<&str>) -> String {
    let place = [Some(channel), thread].into_iter().flatten();
    let place: Vec<String> = place.map(|name| name.replace('%', "%25").replace('/', "%2F")).collect();
    format!("{platform} {}", place.join("/"))
}

/// Converts a string, number or boolean to text. A missing value, null, an array or an object becomes an empty text.
fn text(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(value @ (Value::Number(_) | Value::Bool(_))) => value.to_string(),
        _ => String::new(),
    }
}

/// Collects the pairs whose value is not empty.
fn set<const N: usize>(pairs: [(&str, String); N]) -> IndexMap<String, String> {
    pairs
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| (key.to_owned(), value))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn webhook(event: &str, payload: Value) -> Delivery {
        Delivery::Webhook(Webhook { id: "d-1".into(), event: event.into(), payload })
    }

    fn attached(description: &str) -> AttachedFile {
        let attachment = crate::chat::ChatAttachment {
            id: "1".into(),
            name: String::new(),
            media_type: String::new(),
            bytes: 0,
            url: String::new(),
            is_voice: false,
        };
        AttachedFile { attachment, description: description.into(), path: None }
    }

    fn message(text: &str) -> Delivery {
        Delivery::Chat(Message {
            platform: ChatPlatform::Slack,
            id: "1.2".into(),
            channel: "C1".into(),
            thread: None,
            author: "U1".into(),
            text: text.into(),
            url: String::new(),
            details: MessageDetails {
                author_name: "ann".into(),
                attachments: vec![attached("plan.txt:\n1. Rest"), attached("photo.png")],
                ..MessageDetails::default()
            },
        })
    }

    fn in_thread(thread: &str) -> Delivery {
        let Delivery::Chat(message) = message("!go") else { unreachable!() };
        Delivery::Chat(Message { thread: Some(thread.to_owned()), ..message })
    }

    #[test]
    fn each_channel_and_thread_has_its_own_chat_key() {
        let chat = |channel: &str, thread: Option<&str>| {
            let Delivery::Chat(message) = message("x") else { unreachable!() };
            let (channel, thread) = (channel.to_owned(), thread.map(str::to_owned));
            let delivery = Delivery::Chat(Message { channel, thread, ..message });
            delivery.firing_context(Timestamp::UNIX_EPOCH).chat.unwrap()
        };
        for (channel, thread, expected) in [
            ("C1", None, "slack C1"),
            ("C1", Some("1.2"), "slack C1/1.2"),
            ("C1/1.2", None, "slack C1%2F1.2"),
            ("C1%2F1.2", None, "slack C1%252F1.2"),
            ("C1", Some(""), "slack C1/"),
        ] {
            assert_eq!(chat(channel, thread), expected);
        }
        assert_eq!(webhook("push", json!(1)).firing_context(Timestamp::UNIX_EPOCH).chat, None);
    }

    #[test]
    fn deliveries_are_matched_to_triggers() {
        use Reception::{Ping, Unwanted, Wanted, WrongType};
        let opened = || webhook("issues", json!({"action": "opened"}));
        for (delivery, trigger, expected) in [
            (opened(), r#"{"type":"webhook"}"#, Wanted),
            (opened(), r#"{"type":"webhook","events":["push","issues"]}"#, Wanted),
            (opened(), r#"{"type":"webhook","events":["issues.opened"]}"#, Wanted),
            (opened(), r#"{"type":"webhook","events":["issues.closed"]}"#, Unwanted),
            (opened(), r#"{"type":"webhook","events":["push"]}"#, Unwanted),
            (webhook("", json!("plain")), r#"{"type":"webhook","events":["push"]}"#, Unwanted),
            (webhook("ping", json!({"zen": "x"})), r#"{"type":"webhook","events":["push"]}"#, Ping),
            (opened(), r#"{"type":"manual"}"#, WrongType),
            (opened(), r#"{"type":"chat"}"#, WrongType),
            (message("!go now"), r#"{"type":"chat"}"#, Wanted),
            (
                message("!go now"),
                r#"{"type":"chat","platform":"slack","channel":"C1","pattern":"^!go\\b"}"#,
                Wanted,
            ),
            (message("!going"), r#"{"type":"chat","pattern":"^!go\\b"}"#, Unwanted),
            (message("!go"), r#"{"type":"chat","platform":"discord"}"#, Unwanted),
            (message("!go"), r#"{"type":"chat","channel":"C2"}"#, Unwanted),
            (message("!go"), r#"{"type":"chat","channels":["C2","C1"]}"#, Wanted),
            (message("!go"), r#"{"type":"chat","channels":["C2"],"channel":"C1"}"#, Wanted),
            (message("!go"), r#"{"type":"chat","channels":["C2","C3"]}"#, Unwanted),
            (in_thread("T9"), r#"{"type":"chat","channels":["C2","T9"]}"#, Wanted),
            (in_thread("T9"), r#"{"type":"chat","channel":"C1"}"#, Wanted),
            (in_thread("T9"), r#"{"type":"chat","channels":["T8"]}"#, Unwanted),
            (message("!go"), r#"{"type":"chat","channels":["T9"]}"#, Unwanted),
            (message("!go"), r#"{"type":"chat","patterns":["^x","^!"]}"#, Wanted),
            (message("!go"), r#"{"type":"chat","patterns":["^x"],"pattern":"go$"}"#, Wanted),
            (message("!go"), r#"{"type":"chat","patterns":["^x","y"]}"#, Unwanted),
            (message("!go"), r#"{"type":"webhook"}"#, WrongType),
        ] {
            let trigger = serde_json::from_str(trigger).unwrap();
            assert_eq!(delivery.reception(&trigger), expected, "{delivery:?} {trigger:?}");
        }
    }

    #[test]
    fn bodies() {
        for (body, expected) in [
            (&b"{\"a\": 1}"[..], json!({"a": 1})),
            (b"a=1&b=2", json!("a=1&b=2")),
            (b"\xff", json!("\u{fffd}")),
            (b"", json!("")),
        ] {
            assert_eq!(Webhook::of_body("1", "push", body).unwrap().payload, expected);
        }
        let deep = "[".repeat(100_000);
        assert_eq!(Webhook::of_body("1", "push", deep.as_bytes()).unwrap().payload, json!(deep));
        let error = Webhook::of_body("1", "push", &vec![b' '; MAX_BODY_BYTES + 1]).unwrap_err();
        assert_eq!(error.to_string(), "the delivery is too large; the maximum is 26214400 bytes");
    }

    #[test]
    fn the_slack_url_verification_challenge_is_recognized() {
        for (payload, expected) in [
            (json!({"type": "url_verification", "challenge": "c-1"}), Some("c-1")),
            (json!({"type": "event_callback", "challenge": "c-1"}), None),
            (json!({"type": "url_verification", "challenge": 5}), None),
            (json!({"challenge": "c-1"}), None),
            (json!("url_verification"), None),
        ] {
            let Delivery::Webhook(webhook) = webhook("", payload) else { unreachable!() };
            assert_eq!(webhook.challenge(), expected, "{webhook:?}");
        }
    }

    #[test]
    fn deliveries_become_tasks_with_metadata() {
        let now: Timestamp = "2026-01-05T09:00:00Z".parse().unwrap();
        let payload = json!({
            "action": "labeled",
            "issue": {"number": 7, "title": "T", "body": "B", "html_url": "https://x/7", "user": {"login": "ann"},
                "labels": [{"name": "bug"}, "plain"], "assignee": {"login": "bob"}},
            "sender": {"login": "carl"}, "repository": {"full_name": "o/r"},
        });
        let FiringContext { task, payload: kept, .. } =
            webhook("issues", payload.clone()).firing_context(now);
        assert_eq!(kept, Some(payload));
        assert_eq!((task.title.as_str(), task.body.as_str(), task.url.as_str()), ("T", "B", "https://x/7"));
        assert_eq!(
            (task.labels, task.assignee.as_deref()),
            (vec!["bug".into(), "plain".into()], Some("bob"))
        );
        assert_eq!(
            json!(task.metadata),
            json!({
                "github_event": "issues", "action": "labeled", "delivery_id": "d-1", "issue_number": "7", "author": "ann",
                "sender": "carl", "repository": "o/r", "timestamp": "2026-01-05T09:00:00Z",
            })
        );

        for odd in [json!(null), json!([1]), json!("text"), json!({"issue": 5, "labels": {}, "action": {}})] {
            let task = webhook("push", odd).firing_context(now).task;
            assert_eq!((task.title.as_str(), task.body.as_str()), ("Webhook: push", ""));
        }
        assert_eq!(webhook("", json!({})).firing_context(now).task.title, "Webhook");
        let task = message("!go\nplease").firing_context(now).task;
        assert_eq!(
            (task.title.as_str(), task.body.as_str(), task.source_id.as_str()),
            ("!go", "!go\nplease", "1.2")
        );
        assert_eq!(
            json!(task.metadata),
            json!({
                "platform": "slack", "channel": "C1", "author": "U1", "author_name": "ann",
                "attachments": "photo.png\nplan.txt:\n1. Rest", "timestamp": "2026-01-05T09:00:00Z",
            })
        );
    }
}
