//! Posts the answers of all conversations. The answers of one conversation are posted one after the other.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use cowhand_core::id::AgentName;
use tokio::task::JoinSet;
use tracing::warn;

use super::answer::{AnswerStep, post_answer};
use super::context::ChatContext;
use cowhand_store::StoreError;
use cowhand_system::panic::{caught, restart_on_panic};

/// Shortest time between two searches for open answers.
const SEARCH_PAUSE: Duration = Duration::from_millis(200);
/// Longest time between two searches for open answers.
const SEARCH_EVERY: Duration = Duration::from_secs(2);
/// Time after which an answer that this node could not continue is tried again.
const CONTINUE_AFTER: Duration = Duration::from_secs(2);

type ConversationKey = (AgentName, String);

/// Posts answers until the task is aborted.
pub(super) async fn post_answers(context: Arc<ChatContext>) {
    restart_on_panic("the task that posts chat answers", || search_and_post(&context)).await;
}

async fn search_and_post(context: &Arc<ChatContext>) {
    let (mut posting, mut busy) = (JoinSet::new(), HashSet::<ConversationKey>::new());
    loop {
        let seen = context.store().committed();
        match context.store().open_chat_conversations().await {
            Ok(conversations) => {
                for conversation in conversations {
                    if busy.insert(conversation.clone()) {
                        posting.spawn(post_conversation(Arc::clone(context), conversation));
                    }
                }
            }
            Err(error) => warn!("cannot read the open chat answers: {error}"),
        }
        tokio::time::sleep(SEARCH_PAUSE).await;
        tokio::select! {
            () = context.store().changed(seen) => {}
            () = tokio::time::sleep(SEARCH_EVERY) => {}
            Some(ended) = posting.join_next() => if let Ok(conversation) = ended {
                busy.remove(&conversation);
            }
        }
        while let Some(ended) = posting.try_join_next() {
            if let Ok(conversation) = ended {
                busy.remove(&conversation);
            }
        }
    }
}

/// Posts the open answers of a conversation until none is left, or until this node cannot continue.
async fn post_conversation(context: Arc<ChatContext>, conversation: ConversationKey) -> ConversationKey {
    let (agent, name) = conversation.clone();
    let posted = caught(async {
        while let Some(answer) = context.store().first_open_chat_answer(agent.clone(), name.clone()).await? {
            match Box::pin(post_answer(&context, answer)).await? {
                AnswerStep::Done => {}
                AnswerStep::Later => {
                    tokio::time::sleep(CONTINUE_AFTER).await;
                    break;
                }
            }
        }
        Ok::<(), StoreError>(())
    });
    match posted.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            warn!(conversation = name, "cannot continue a chat answer now; it is tried again: {error}");
            tokio::time::sleep(CONTINUE_AFTER).await;
        }
        Err(panicked) => {
            warn!(conversation = name, "the task of a chat answer {panicked}; it is tried again");
            tokio::time::sleep(CONTINUE_AFTER).await;
        }
    }
    conversation
}
