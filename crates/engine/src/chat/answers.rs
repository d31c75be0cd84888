//! Posts the answers of all conversations. The answers of one conversation are posted one after the other.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use cowhand_core::id::AgentName;
use tokio::task::JoinSet;
use tracing::warn;

use super::answer::{AnswerStep, AnswerTurn, post_answer, turn_of};
use super::context::ChatContext;
use cowhand_store::{OpenAnswer, StoreError};
use cowhand_system::panic::{caught, restart_on_panic};

/// Shortest time between two searches for open answers.
const SEARCH_PAUSE: Duration = Duration::from_millis(200);
/// Longest time between two searches for open answers.
const SEARCH_EVERY: Duration = Duration::from_secs(2);
/// Time after which an answer that this node could not continue is tried again.
const CONTINUE_AFTER: Duration = Duration::from_secs(2);

type ConversationKey = (AgentName, String);
/// A conversation with the answers that are continued now.
type NextAnswers = (ConversationKey, Vec<OpenAnswer>);

/// Posts answers until the task is aborted.
pub(super) async fn post_answers(context: Arc<ChatContext>) {
    restart_on_panic("the task that posts chat answers", || search_and_post(&context)).await;
}

/// Searches for answers that this node can continue. A message that waits costs nothing but its row in this search.
async fn search_and_post(context: &Arc<ChatContext>) {
    let (mut posting, mut busy) = (JoinSet::new(), HashSet::<ConversationKey>::new());
    loop {
        let seen = context.store().committed();
        match all_next_answers(context).await {
            Ok(next) => {
                for (conversation, answers) in next {
                    if busy.insert(conversation.clone()) {
                        posting.spawn(post_conversation(Arc::clone(context), conversation, answers));
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

async fn all_next_answers(context: &ChatContext) -> Result<Vec<NextAnswers>, StoreError> {
    let open = context.store().open_answers().await?;
    let stopped = stopped_nodes(context, &open).await?;
    Ok(next_answers(context, open, &stopped))
}

/// Returns the nodes whose output the answers need, and whose daemons do not run.
async fn stopped_nodes(context: &ChatContext, open: &[OpenAnswer]) -> Result<HashSet<String>, StoreError> {
    let mut stopped: HashSet<String> =
        open.iter().filter_map(|answer| answer.job.node()).map(str::to_owned).collect();
    stopped.remove(&context.node());
    for node in stopped.clone() {
        if context.store().is_node_running(node.clone()).await? {
            stopped.remove(&node);
        }
    }
    Ok(stopped)
}

/// Returns the answers that this node continues now. In each conversation, this is the oldest answer that has something
/// to post; answers before it that have nothing to post yet do not hold it up.
fn next_answers(context: &ChatContext, open: Vec<OpenAnswer>, stopped: &HashSet<String>) -> Vec<NextAnswers> {
    let mut next: Vec<NextAnswers> = Vec::new();
    let mut blocked = HashSet::<ConversationKey>::new();
    for answer in open {
        let conversation = (answer.agent.clone(), answer.conversation.clone());
        if blocked.contains(&conversation) {
            continue;
        }
        let turn = turn_of(context, &answer, stopped);
        if matches!(turn, AnswerTurn::Post | AnswerTurn::Blocked) {
            blocked.insert(conversation.clone());
        }
        if matches!(turn, AnswerTurn::Post | AnswerTurn::Check) {
            match next.last_mut().filter(|(last, _)| *last == conversation) {
                Some((_, answers)) => answers.push(answer),
                None => next.push((conversation, vec![answer])),
            }
        }
    }
    next
}

/// Continues the answers of a conversation as far as this node can. Returns the conversation.
async fn post_conversation(
    context: Arc<ChatContext>,
    conversation: ConversationKey,
    answers: Vec<OpenAnswer>,
) -> ConversationKey {
    let name = &conversation.1;
    let is_done = match caught(post_all(&context, &conversation, answers)).await {
        Ok(Ok(is_done)) => is_done,
        Ok(Err(error)) => {
            warn!(conversation = name, "cannot continue a chat answer now; it is tried again: {error}");
            false
        }
        Err(panicked) => {
            warn!(conversation = name, "the task of a chat answer {panicked}; it is tried again");
            false
        }
    };
    if !is_done {
        tokio::time::sleep(CONTINUE_AFTER).await;
    }
    conversation
}

/// Posts answers, and the answers after them, as long as one is completed. Returns false if this node cannot continue.
async fn post_all(
    context: &ChatContext,
    (agent, conversation): &ConversationKey,
    mut answers: Vec<OpenAnswer>,
) -> Result<bool, StoreError> {
    while !answers.is_empty() {
        let mut is_any_done = false;
        for answer in answers {
            is_any_done |= Box::pin(post_answer(context, answer)).await? == AnswerStep::Done;
        }
        if !is_any_done {
            return Ok(false);
        }
        let open = context.store().open_answers_of(agent.clone(), conversation.clone()).await?;
        let stopped = stopped_nodes(context, &open).await?;
        answers =
            next_answers(context, open, &stopped).into_iter().flat_map(|(_, answers)| answers).collect();
    }
    Ok(true)
}
