//! Asks of agents that are posted and answered in a chat.

use super::bot::Bot;
use super::context::ChatContext;
use super::intake::{Addressee, HandleError};
use cowhand_store::ReceivedChatMessage;

/// Takes a message as the answer to an open ask of its conversation. Returns false if it is none.
pub(super) async fn answer_by_reply(
    _context: &ChatContext,
    _bot: &Bot,
    _addressee: &Addressee,
    _received: &ReceivedChatMessage,
) -> Result<bool, HandleError> {
    Ok(false)
}
