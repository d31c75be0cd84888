//! Edits and deletions of messages that were received. They are applied in tasks of their own, so that the bot receives
//! further events meanwhile; those of one message are applied in their order.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cowhand_chat::EventReply;
use cowhand_core::chat::ChatMessage;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::bot::{Bot, retried};
use super::context::ChatContext;
use super::intake;
use cowhand_system::panic;

/// Time after which a change is confirmed to the platform, even if it is not applied yet. The platform delivers no
/// further message before the confirmation.
const CONFIRM_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) enum MessageChange {
    Edited(ChatMessage),
    Deleted { message: String },
}

/// The changes that are being applied.
#[derive(Debug, Default)]
pub(super) struct MessageChanges {
    tasks: JoinSet<()>,
    /// The last change of each message. The sender is dropped when the change is applied.
    last: HashMap<String, oneshot::Receiver<()>>,
}

impl MessageChange {
    fn message(&self) -> &str {
        match self {
            Self::Edited(message) => &message.id,
            Self::Deleted { message } => message,
        }
    }

    async fn apply(&self, context: &ChatContext, bot: &Bot) {
        match self {
            Self::Edited(message) => retried(|| intake::apply_edit(context, bot, message)).await,
            Self::Deleted { message } => retried(|| intake::apply_deletion(context, bot, message)).await,
        }
    }
}

impl MessageChanges {
    /// Stores a change of a message that is not handled yet. Then begins to apply the change to the answer, and confirms
    /// it.
    pub(super) async fn begin(
        &mut self,
        context: &Arc<ChatContext>,
        bot: &Arc<Bot>,
        change: MessageChange,
        reply: oneshot::Sender<EventReply>,
    ) {
        retried(|| intake::store_change(context, bot, &change)).await;
        while let Some(ended) = self.tasks.try_join_next() {
            panic::log_panic("the task of an edit or a deletion in a chat", ended);
        }
        self.last.retain(|_, applied| matches!(applied.try_recv(), Err(TryRecvError::Empty)));
        let (applied, is_applied) = oneshot::channel::<()>();
        let before = self.last.insert(change.message().to_owned(), is_applied);
        let (context, bot) = (Arc::clone(context), Arc::clone(bot));
        self.tasks.spawn(async move {
            let mut applying = std::pin::pin!(async {
                if let Some(before) = before {
                    // An error means that the earlier change is applied.
                    let _ = before.await;
                }
                change.apply(&context, &bot).await;
            });
            let is_slow = timeout(CONFIRM_WITHIN, &mut applying).await.is_err();
            // An error means that the connection has ended.
            let _ = reply.send(EventReply::Stored);
            if is_slow {
                applying.await;
            }
            drop(applied);
        });
    }
}
