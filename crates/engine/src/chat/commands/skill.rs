//! `skills` and `skill`: the skills of an agent, and the request to use one.

use cowhand_core::chat::escape::{escape, inline_code};
use cowhand_core::chat::prompt::skill_request;
use cowhand_core::chat::settings::ChatSkill;
use cowhand_core::chat::{ChatMessage, texts};

use super::super::accepted::AcceptedMessage;
use super::super::intake::{Addressee, HandleError};
use super::super::posts::ChatReply;
use super::UsedCommand;
use super::skill_files::skills_below;
use crate::fleet::FleetError;
use cowhand_store::ReceivedChatMessage;

/// Number of skills that are listed.
const MAX_LISTED_SKILLS: usize = 25;

/// Returns the skills of an agent: those of the config, or those in its directory.
pub(super) async fn skills_of(one: &Addressee, writable: &[std::path::PathBuf]) -> Vec<ChatSkill> {
    match &one.chat.skills {
        Some(configured) => configured.clone(),
        None => skills_below(one.agent.directory.clone(), writable.to_vec()).await,
    }
}

impl UsedCommand<'_> {
    pub(super) async fn skills(&self) -> Result<String, FleetError> {
        let skills = self.skills_of_agent().await;
        if skills.is_empty() {
            return Ok(texts::no_skills(self.agent_name(), self.platform()));
        }
        let platform = self.platform();
        let line = |skill: &ChatSkill| {
            let name = inline_code(&skill.name, platform);
            if skill.description.is_empty() {
                name
            } else {
                format!("{name} {}", escape(&skill.description, platform))
            }
        };
        let mut lines: Vec<String> = skills.iter().take(MAX_LISTED_SKILLS).map(line).collect();
        if skills.len() > MAX_LISTED_SKILLS {
            lines.push(format!("{} more skills are not shown.", skills.len() - MAX_LISTED_SKILLS));
        }
        Ok(lines.join("\n"))
    }

    /// Sends the agent the request to use a skill, as a message of the sender.
    pub(super) async fn skill(&self, name: &str, input: Option<&str>) -> Result<String, FleetError> {
        let skills = self.skills_of_agent().await;
        let Some(skill) = skills.iter().find(|skill| skill.name.eq_ignore_ascii_case(name)) else {
            return Ok(texts::no_such_skill(name, self.platform()));
        };
        let user = &self.sent.user.id;
        let refusal = self.addressee.limit_refusal(self.context(), self.platform(), user).await?;
        if let Some(refusal) = refusal {
            return Ok(self.refused(&refusal));
        }
        let Some(received) = self.message_for(skill, input).await else { return Ok(texts::not_posted()) };
        let (context, bot, addressee) = (self.sent.context, self.sent.bot, self.addressee);
        let message = AcceptedMessage { context, bot, addressee, received: &received };
        match message.try_fire().await {
            Ok(Some(refusal)) => {
                message.refuse(&refusal).await?;
                Ok(self.refused(&refusal))
            }
            Ok(None) => Ok(texts::skill_passed_on(self.agent_name(), &skill.name, self.platform())),
            Err(HandleError::Store(error)) => Err(error.into()),
            Err(HandleError::Fleet(error)) => Err(error),
        }
    }

    async fn skills_of_agent(&self) -> Vec<ChatSkill> {
        skills_of(self.addressee, &self.context().config().writable).await
    }

    /// Returns the message to the agent. Only the sender sees a slash command, so the bot posts which skill is used,
    /// and the answer is a reply to this post. Returns none if the platform does not accept the post.
    async fn message_for(&self, skill: &ChatSkill, input: Option<&str>) -> Option<ReceivedChatMessage> {
        let text = skill_request(&skill.name, input);
        if let Some(received) = self.sent.received {
            let message = ChatMessage { text, ..received.message.clone() };
            return Some(ReceivedChatMessage { message, ..received.clone() });
        }
        let (user, now) = (self.sent.user, self.now());
        let reply = ChatReply {
            place: self.sent.place.clone(),
            reply_to: None,
            key: &[self.sent.id, "skill"],
            first_tried_at: now,
            text: texts::skill_used(&user.name, &skill.name, input, self.platform()),
            buttons: Vec::new(),
        };
        let id = self.context().reply(self.sent.bot, reply).await?;
        let message = ChatMessage {
            platform: self.platform(),
            id: id.clone(),
            place: self.sent.place.clone(),
            author: user.clone(),
            text,
            mentions_bot: true,
            reply_to: None,
            attachments: Vec::new(),
            sent_at: now,
            url: String::new(),
        };
        Some(ReceivedChatMessage { id, received_at: now, message })
    }
}
