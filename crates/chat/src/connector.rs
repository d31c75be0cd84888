//! The trait of a chat platform, with its two implementations in [`crate::slack`] and [`crate::discord`].

use std::fmt;

use async_trait::async_trait;
use cowhand_core::chat::{BotAccount, ChatAttachment, ChatEvent, ChatMessage, ChatPlace};
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};

use crate::ChatError;

/// One bot on a chat platform.
#[async_trait]
pub trait Connector: fmt::Debug + Send + Sync {
    /// Connects, and passes on each event in the order in which it arrived. Connects again after each loss of the
    /// connection, with a growing wait. Returns only if the platform refuses the bot, or if the receiver is dropped.
    ///
    /// An event is confirmed to the platform after its reply has arrived. If the channel end for the reply is dropped,
    /// the event is not confirmed. A command or a button is also confirmed if its reply is still missing shortly before
    /// the time limit of the platform. The next event is passed on without waiting for the reply to a command, a
    /// request for suggestions or a button, but only after the reply to a message, an edit or a deletion.
    async fn run(&self, events: mpsc::Sender<ReceivedEvent>) -> ConnectionEnd;

    /// Returns the state of the connection. It is never `Connected` while `run` does not run, even if `run` was dropped
    /// before its end.
    fn state(&self) -> watch::Receiver<ConnectionState>;

    /// Returns the time by the clock of the platform, as far as it is known: the times of messages are by this clock.
    fn now(&self) -> Timestamp;

    /// Posts a message. A repeated call with the same key does not post twice: the connector finds the earlier message
    /// if the platform does not detect the repetition itself.
    async fn post(&self, post: &Post) -> Result<Posted, ChatError>;

    /// Replaces the text and the buttons of a message of the bot. `message` is the id of the message, as in
    /// [`Posted::id`].
    async fn edit(
        &self,
        place: &ChatPlace,
        message: &str,
        text: &str,
        buttons: &[Button],
    ) -> Result<(), ChatError>;

    /// Adds a reaction to a message, or removes it. `emoji` is a name or the emoji itself. It is no error if the
    /// reaction is already there or already gone.
    async fn react(
        &self,
        place: &ChatPlace,
        message: &str,
        emoji: &str,
        is_added: bool,
    ) -> Result<(), ChatError>;

    /// Shows for some seconds that the bot types, if the platform can show this.
    async fn show_typing(&self, place: &ChatPlace) -> Result<(), ChatError>;

    /// Returns at most `limit` messages of the place that were sent after `after` and before `before`. If there are
    /// more, it returns the newest ones. The oldest message comes first.
    async fn history(
        &self,
        place: &ChatPlace,
        after: Option<Timestamp>,
        before: Option<Timestamp>,
        limit: usize,
    ) -> Result<Vec<ChatMessage>, ChatError>;

    /// Returns at most `limit` messages that were sent after `after` in a channel and in its threads. The threads are
    /// those in `threads`, and others that the platform names. If there are more messages, old messages and the
    /// messages of some threads are left out. The oldest message comes first.
    async fn missed(
        &self,
        channel: &ChatPlace,
        threads: &[String],
        after: Timestamp,
        limit: usize,
    ) -> Result<Vec<ChatMessage>, ChatError>;

    /// Returns the content of an attachment, or an error if it has more than `limit` bytes, whatever size the platform
    /// stated.
    async fn download(&self, attachment: &ChatAttachment, limit: u64) -> Result<Vec<u8>, ChatError>;

    /// Returns the current address of an attachment of a message, if it differs from the known address. The addresses
    /// of some platforms expire. `message` is the id of the message.
    async fn current_url(
        &self,
        _place: &ChatPlace,
        _message: &str,
        _attachment: &ChatAttachment,
    ) -> Result<Option<String>, ChatError> {
        Ok(None)
    }

    /// Checks the tokens, scopes, permissions and intents, and whether the bot sees these places. Returns what is
    /// missing.
    async fn check(&self, places: &ExpectedPlaces) -> Result<Vec<SetupProblem>, ChatError>;
}

/// An event with the channel end for its reply.
#[derive(Debug)]
pub struct ReceivedEvent {
    pub event: ChatEvent,
    pub reply: oneshot::Sender<EventReply>,
}

/// Reply to an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EventReply {
    /// The event is stored.
    Stored,
    /// Text that only the sender of the command or the presser of the button sees. If the text comes late, the
    /// connector first tells the platform that it follows.
    Text(String),
    /// Values that a person may choose, as the answer to a [`ChatEvent::Suggest`].
    Suggestions(Vec<String>),
}

/// Reason why a connection ended and is not opened again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionEnd {
    /// The receiver of the events was dropped.
    Stopped,
    /// The platform refuses the bot, for example because its token was revoked or an intent is not enabled.
    Refused { reason: String },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectionState {
    /// Not connected. `problem` is the reason why the last connection ended or could not be made; none before the first
    /// try.
    Connecting {
        problem: Option<String>,
    },
    Connected(BotAccount),
    Refused {
        reason: String,
    },
}

/// A message to post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Post {
    pub place: ChatPlace,
    /// Key that identifies the message among the messages of the bot; at most 25 characters.
    pub key: String,
    /// Time of the first try. No message with this key was posted before.
    pub first_tried_at: Timestamp,
    /// Message to which this is a reply, as in [`ChatMessage::id`].
    pub reply_to: Option<String>,
    /// Text in the notation of the platform, within its length limit.
    pub text: String,
    pub buttons: Vec<Button>,
    pub files: Vec<OutgoingFile>,
}

impl Post {
    /// Returns the post for the channel of its thread, for a thread that does not exist any more.
    pub(crate) fn outside_thread(&self) -> Self {
        let place = ChatPlace { thread: None, ..self.place.clone() };
        Self { place, reply_to: None, ..self.clone() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posted {
    /// Id of the message, as in [`ChatMessage::id`].
    pub id: String,
    /// True if an earlier call had posted the message.
    pub is_repeated: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Button {
    pub label: String,
    /// Value that a press returns, at most 100 characters.
    pub value: String,
    pub style: ButtonStyle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ButtonStyle {
    Neutral,
    Approve,
    Deny,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutgoingFile {
    pub name: String,
    pub content: Vec<u8>,
}

/// Places of the config that the bot has to see.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExpectedPlaces {
    /// Ids of channels.
    pub channels: Vec<String>,
    /// Ids of guilds on Discord.
    pub guilds: Vec<String>,
}

/// A setting of the app or bot that is missing on the platform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetupProblem {
    /// Sentence that names what is missing, and what does not work without it.
    pub problem: String,
    /// Action that corrects the problem, for the owner of the bot.
    pub advice: String,
    /// True if the bot cannot receive or answer any message.
    pub is_fatal: bool,
}
