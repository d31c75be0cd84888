//! `reset`: a new session for the conversation.

use cowhand_core::chat::texts;
use tracing::info;

use super::UsedCommand;
use crate::fleet::FleetError;
use cowhand_store::audit;

impl UsedCommand<'_> {
    pub(super) async fn reset(&self) -> Result<String, FleetError> {
        let (agent, conversation) = (self.agent_name().clone(), self.addressee.conversation.name.clone());
        let reset = self.store().reset_chat(self.sent.id.to_owned(), agent, conversation, self.now());
        if audit::by(self.sent.actor(), reset).await? {
            let (agent, actor) = (self.agent_name(), self.sent.actor());
            info!(%agent, conversation = self.addressee.conversation.name, "{actor} has reset a conversation");
        }
        Ok(texts::conversation_reset(self.agent_name(), self.platform()))
    }
}
