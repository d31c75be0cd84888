//! Messages of a channel and of its threads since a given time.

use cowhand_core::chat::{ChatMessage, ChatPlace};
use jiff::Timestamp;

use super::directory::Directory;
use super::history::{history, time_of_id};
use super::rest::{DiscordRest, RestError};

/// Returns the messages that were sent after `after`, the oldest first. If there are more than `limit`, returns the
/// newest ones. A channel or thread whose last message is older, according to the events of Discord's gateway, is not
/// read.
pub(super) async fn missed(
    rest: &DiscordRest,
    directory: &Directory,
    channel: &ChatPlace,
    threads: &[String],
    after: Timestamp,
    limit: usize,
) -> Result<Vec<ChatMessage>, RestError> {
    let is_quiet = |id: &str| {
        let last_message = directory.last_message_at_begin(id);
        last_message.and_then(|message| time_of_id(&message)).is_some_and(|time| time <= after)
    };
    let (mut missed, mut channel_error) = (Vec::new(), None);
    if !is_quiet(&channel.channel) {
        // A thread can be listed in the config as a channel.
        let place = directory.place(rest, channel.space.clone(), &channel.channel).await?;
        match history(rest, directory, &place, Some(after), None, limit).await {
            Ok(messages) => missed = messages,
            // A forum has only threads, so Discord may refuse to list its messages. The refusal is returned only if no
            // thread can be read either.
            Err(error @ RestError::Refused { .. }) => channel_error = Some(error),
            Err(error) => return Err(error),
        }
    }
    let mut of_channel = directory.threads_of(&channel.channel);
    of_channel.extend(threads.iter().filter(|&thread| !directory.is_known(thread)).cloned());
    for thread in of_channel.into_iter().filter(|thread| !is_quiet(thread)) {
        let place = ChatPlace { thread: Some(thread), ..channel.clone() };
        match history(rest, directory, &place, Some(after), None, limit).await {
            Ok(messages) => {
                missed.extend(messages);
                channel_error = None;
            }
            // The thread was deleted, or the bot is no longer allowed to read it.
            Err(RestError::Refused { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    if let Some(error) = channel_error {
        return Err(error);
    }
    missed.sort_by(|one, other| (one.sent_at, &one.id).cmp(&(other.sent_at, &other.id)));
    missed.drain(..missed.len().saturating_sub(limit));
    Ok(missed)
}
