//! Commands of people in a chat.

use cowhand_chat::discord::SlashCommand;
use cowhand_core::chat::CommandCall;
use cowhand_core::chat::command::{CommandMistake, CommandTarget};

use super::bot::Bot;
use super::context::ChatContext;
use super::intake::Addressee;
use cowhand_store::ReceivedChatMessage;

pub(super) fn slash_commands() -> Vec<SlashCommand> {
    Vec::new()
}

/// Answers a slash command. Returns the text for its sender.
pub(super) async fn answer_call(_context: &ChatContext, _bot: &Bot, _call: &CommandCall) -> String {
    String::new()
}

/// Answers a command that was written as a message.
pub(super) async fn answer_message(
    _context: &ChatContext,
    _bot: &Bot,
    _addressee: &Addressee,
    _received: &ReceivedChatMessage,
    _command: Result<CommandTarget, CommandMistake>,
) {
}
