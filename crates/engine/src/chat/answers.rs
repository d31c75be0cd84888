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

/// Posts answers until the task is aborted.
pub(super) async fn post_answers(context: Arc<ChatContext>) {
    restart_on_panic("the task that posts chat answers", || search_and_post(&context)).await;
}

/// Searches for answers that this node can continue. A message that waits costs nothing but its row in this search.
async fn search_and_post(context: &Arc<ChatContext>) {
    let (mut posting, mut busy) = (JoinSet::new(), HashSet::<ConversationKey>::new());
    loop {
        let seen = context.store().committed();
        match open_answers(context).await {
            Ok((open, stopped)) => {
                for (conversation, answers) in next_answers(context, open, &stopped) {
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

/// Returns the open answers, and the nodes whose output they need and whose daemons do not run.
async fn open_answers(context: &ChatContext) -> Result<(Vec<OpenAnswer>, HashSet<String>), StoreError> {
    let open = context.store().open_answers().await?;
    let mut nodes: HashSet<String> =
        open.iter().filter_map(|answer| answer.job.node()).map(str::to_owned).collect();
    nodes.remove(&context.node());
    let mut stopped = HashSet::new();
    for node in nodes {
        if !context.store().is_node_running(node.clone()).await? {
            stopped.insert(node);
        }
    }
    Ok((open, stopped))
}

/// Returns the answers that this node continues now. In each conversation, this is the oldest answer that has something
/// to post; answers before it that have nothing to post yet do not hold it up.
fn next_answers(
    context: &ChatContext,
    open: Vec<OpenAnswer>,
    stopped: &HashSet<String>,
) -> Vec<(ConversationKey, Vec<OpenAnswer>)> {
    let mut next: Vec<(ConversationKey, Vec<OpenAnswer>)> = Vec::new();
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

/// Continues answers of a conversation as far as this node can. Returns the conversation.
async fn post_conversation(
    context: Arc<ChatContext>,
    conversation: ConversationKey,
    answers: Vec<OpenAnswer>,
) -> ConversationKey {
    let name = &conversation.1;
    let posted = caught(async {
        let mut is_done = true;
        for answer in answers {
            is_done &= post_answer(&context, answer).await? == AnswerStep::Done;
        }
        Ok::<_, StoreError>(is_done)
    });
    let is_done = match posted.await {
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
