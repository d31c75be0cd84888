//! The answers to commands that were written as messages. A command acts at once. Its answer waits here until the platform
//! accepts another post in the channel, so later messages do not wait for it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cowhand_core::chat::{ChatMessage, texts};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tracing::warn;

use super::bot::Bot;
use super::command_limits::{MAX_COMMANDS, WITHIN};
use super::context::ChatContext;
use super::conversation::answer_place;
use super::posts::ChatReply;
use cowhand_store::ReceivedChatMessage;
use cowhand_system::panic::caught;

/// Maximum number of answers to one person that wait in a channel.
const MAX_WAITING_OF_AUTHOR: usize = 5;
/// Maximum number of answers that wait in a channel.
const MAX_WAITING: usize = 100;
/// Time in which a person is told to slow down only once in a channel.
const SAME_NOTE_WITHIN: SignedDuration = SignedDuration::from_mins(1);

/// The answers that wait, for each channel.
#[derive(Debug, Default)]
pub(super) struct CommandAnswers {
    channels: Mutex<HashMap<String, ChannelAnswers>>,
    /// Last time at which a person was told to slow down in a channel.
    told: Mutex<HashMap<(String, String), Timestamp>>,
    added: Notify,
}

#[derive(Debug, Default)]
struct ChannelAnswers {
    waiting: VecDeque<CommandAnswer>,
    /// True while a task posts the answers of the channel.
    is_posting: bool,
    /// Author of the command that was answered last.
    last_author: Option<String>,
}

/// An answer that waits for its post.
#[derive(Debug, Clone)]
struct CommandAnswer {
    message: ChatMessage,
    received_at: Timestamp,
    /// Part of the key of the post. A message has at most one post of each kind.
    kind: &'static str,
    text: String,
}

impl CommandAnswers {
    /// Adds the answer to a command. Returns false if too many answers wait, so that this answer is not posted. In this
    /// case, the author is told once.
    pub(super) fn add(&self, received: &ReceivedChatMessage, text: String, now: Timestamp) -> bool {
        let message = &received.message;
        let is_added = {
            let mut channels = self.lock();
            let waiting = &mut channels.entry(message.place.channel.clone()).or_default().waiting;
            let of_author = waiting.iter().filter(|one| one.message.author.id == message.author.id).count();
            let has_room = of_author < MAX_WAITING_OF_AUTHOR && waiting.len() < MAX_WAITING;
            if has_room {
                waiting.push_back(CommandAnswer::new(received, "command", text));
            }
            has_room
        };
        self.added.notify_one();
        if !is_added {
            self.add_note(received, now);
        }
        is_added
    }

    /// Tells the author of a command to slow down, unless the author was told so in the channel shortly before.
    pub(super) fn add_note(&self, received: &ReceivedChatMessage, now: Timestamp) {
        let message = &received.message;
        {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            told.retain(|_, at| now.duration_since(*at) < SAME_NOTE_WITHIN);
            let person = (message.place.channel.clone(), message.author.id.clone());
            if told.contains_key(&person) {
                return;
            }
            told.insert(person, now);
        }
        let text = texts::too_many_commands(MAX_COMMANDS, WITHIN, message.platform);
        let mut channels = self.lock();
        let waiting = &mut channels.entry(message.place.channel.clone()).or_default().waiting;
        if waiting.len() < 2 * MAX_WAITING {
            waiting.push_back(CommandAnswer::new(received, "pace", text));
        }
        drop(channels);
        self.added.notify_one();
    }

    /// Returns the number of answers that wait in a channel.
    pub(super) fn count(&self, channel: &str) -> usize {
        self.lock().get(channel).map_or(0, |answers| answers.waiting.len())
    }

    /// Returns whether the answer to a message waits.
    pub(super) fn contains(&self, channel: &str, message: &str) -> bool {
        let channels = self.lock();
        channels
            .get(channel)
            .is_some_and(|answers| answers.waiting.iter().any(|one| one.message.id == message))
    }

    /// Removes all answers. Their messages are not handled yet, so their commands are answered again.
    pub(super) fn clear(&self) {
        self.lock().clear();
    }

    /// Returns the channels with answers that no task posts. A task for each of them has to begin.
    fn begin_channels(&self) -> Vec<String> {
        let mut begun = Vec::new();
        for (channel, answers) in self.lock().iter_mut() {
            if !std::mem::replace(&mut answers.is_posting, true) {
                begun.push(channel.clone());
            }
        }
        begun
    }

    /// Returns the next answer of a channel; none if none waits any more. If several people wait, the same person does
    /// not get two answers in a row.
    fn next(&self, channel: &str) -> Option<CommandAnswer> {
        let mut channels = self.lock();
        let answers = channels.get_mut(channel)?;
        let is_other = |one: &&CommandAnswer| Some(&one.message.author.id) != answers.last_author.as_ref();
        let next = answers.waiting.iter().find(is_other).or_else(|| answers.waiting.front()).cloned();
        match &next {
            Some(next) => answers.last_author = Some(next.message.author.id.clone()),
            None => drop(channels.remove(channel)),
        }
        next
    }

    fn remove(&self, channel: &str, posted: &CommandAnswer) {
        if let Some(answers) = self.lock().get_mut(channel) {
            answers.waiting.retain(|one| one.message.id != posted.message.id || one.kind != posted.kind);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, ChannelAnswers>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CommandAnswer {
    fn new(received: &ReceivedChatMessage, kind: &'static str, text: String) -> Self {
        Self { message: received.message.clone(), received_at: received.received_at, kind, text }
    }
}

/// Posts the answers of a bot, those of a channel one after the other, until the task is aborted.
pub(super) async fn post_command_answers(context: Arc<ChatContext>, bot: Arc<Bot>) {
    let mut posting = JoinSet::new();
    loop {
        for channel in bot.answers.begin_channels() {
            posting.spawn(post_channel(Arc::clone(&context), Arc::clone(&bot), channel));
        }
        tokio::select! {
            () = bot.answers.added.notified() => {}
            Some(_) = posting.join_next() => {}
        }
    }
}

async fn post_channel(context: Arc<ChatContext>, bot: Arc<Bot>, channel: String) {
    while let Some(answer) = bot.answers.next(&channel) {
        if let Err(panicked) = caught(post(&context, &bot, &answer)).await {
            warn!(bot = bot.key, channel, "the task that answers a command {panicked}");
        }
        bot.answers.remove(&channel, &answer);
    }
}

/// Posts an answer. After that, the message of the command is handled.
async fn post(context: &ChatContext, bot: &Bot, answer: &CommandAnswer) {
    let message = &answer.message;
    let reply = ChatReply {
        place: answer_place(message),
        reply_to: Some(message.id.clone()),
        key: &[&message.id, answer.kind],
        first_tried_at: answer.received_at,
        text: answer.text.clone(),
        buttons: Vec::new(),
    };
    context.reply(bot, reply).await;
    let Some(inbox) = bot.inbox() else { return };
    if let Err(error) = context.store().chat_message_handled(inbox, message.id.clone()).await {
        // The command acts once, and its answer is posted once, so the message can be handled again.
        warn!(bot = bot.key, "cannot record that a command was answered; it is answered again: {error}");
        bot.received.notify_one();
    }
}
