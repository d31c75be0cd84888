//! Shows in the last post of an ask who answered it. This does not depend on how it was answered.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cowhand_chat::ChatError;
use cowhand_core::ask::{Ask, AskId, AskState};
use cowhand_core::chat::texts::ask_posts;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::super::context::ChatContext;
use super::super::posts::wait_after;
use cowhand_store::{ChatAsk, StoreError};
use cowhand_system::fault;
use cowhand_system::panic::restart_on_panic;

/// Shortest time between two checks of the posted asks.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// Longest time between two checks.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Asks whose edit failed: the number of failures, and the time of the next try.
type FailedEdits = HashMap<AskId, (u32, Instant)>;

/// Edits the posts of closed asks until the task is aborted.
pub(in crate::chat) async fn close_asks(context: Arc<ChatContext>) {
    restart_on_panic("the task that closes asks in chats", || look_and_close(&context)).await;
}

async fn look_and_close(context: &ChatContext) {
    let mut failed = FailedEdits::new();
    loop {
        let seen = context.store().committed();
        if let Err(error) = close_all(context, &mut failed).await {
            warn!("cannot read which asks in chats are closed; it is tried again: {error}");
        }
        tokio::time::sleep(LOOK_PAUSE).await;
        tokio::select! {
            () = context.store().changed(seen) => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

async fn close_all(context: &ChatContext, failed: &mut FailedEdits) -> Result<(), StoreError> {
    let store = context.store();
    let open = store.open_chat_asks().await?;
    failed.retain(|id, _| open.iter().any(|ask| ask.id == *id));
    if open.is_empty() {
        return Ok(());
    }
    store.expire_asks(context.now()).await?;
    for posted in open {
        let is_later = |(_, at): &(u32, Instant)| *at > Instant::now();
        if !posted.posted.is_complete || failed.get(&posted.id).is_some_and(is_later) {
            continue;
        }
        match context.shown_ask(&posted.id).await? {
            Some(ask) if ask.state == AskState::Open => {}
            Some(ask) => close(context, &ask, &posted, failed).await?,
            // The job was removed.
            None => store.close_chat_ask(posted.id).await?,
        }
    }
    Ok(())
}

/// Edits the last post of a closed ask, if this node is connected for the bot.
async fn close(
    context: &ChatContext,
    ask: &Ask,
    ChatAsk { id, posted, .. }: &ChatAsk,
    failed: &mut FailedEdits,
) -> Result<(), StoreError> {
    let bot = context.bot_of(&posted.agent, posted.platform).filter(|bot| ChatContext::is_connected(bot));
    let Some(bot) = bot else { return Ok(()) };
    let last = ask_posts(ask, posted.is_answerable, posted.platform).pop();
    let (Some(message), Some(last)) = (posted.messages.last(), last) else {
        return context.store().close_chat_ask(id.clone()).await;
    };
    match bot.connector.edit(&posted.place, message, &last.text, &[]).await {
        Ok(()) => {}
        Err(error) if error.is_temporary() || matches!(error, ChatError::Revoked { .. }) => {
            debug!(bot = bot.key, ask = %id, "cannot edit the post of an ask; it is tried again: {error}");
            let failures = failed.get(id).map_or(0, |(failures, _)| *failures) + 1;
            failed.insert(id.clone(), (failures, Instant::now() + wait_after(&error, failures)));
            return Ok(());
        }
        Err(error) => warn!(bot = bot.key, ask = %id, "the post of an ask keeps its buttons: {error}"),
    }
    fault::point("chat_ask_edited");
    context.store().close_chat_ask(id.clone()).await
}
