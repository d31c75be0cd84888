//! Messages of the web chat: each becomes a firing of the agent's schedule for web chat, with one job.

use cowhand_core::firing::{Decision, Firing, NewFiring};
use cowhand_core::id::{AgentName, JobId};
use cowhand_core::job::{Job, JobStatus};
use cowhand_core::roster::{Agent, WebChat};
use cowhand_core::schedule::{ScheduleRecord, ScheduleState};
use cowhand_core::trigger::{FiringContext, MAX_KEY_BYTES, Occurrence};
use cowhand_core::web_chat::{MAX_WEB_MESSAGE_BYTES, chat_text, conversation_id, title_of};
use uuid::Uuid;

use super::trigger::fork_refusal;
use super::{Fleet, FleetError};
use cowhand_store::{NewWebConversation, NewWebMessage, WebConversation, WebMessage, WebMessageSent};
use cowhand_system::fault;

/// A message with which a conversation begins.
#[derive(Debug, Clone)]
pub struct FirstWebMessage {
    pub with: ConversationStart,
    pub text: String,
    /// Key of the client: the same key for the same agent gives the same conversation.
    pub key: Option<String>,
}

/// Session with which a conversation begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConversationStart {
    /// A new session of an agent.
    Agent(AgentName),
    /// A copy of the session of a finished job.
    Job(JobId),
}

/// A stored message, with its job.
#[derive(Debug, Clone, PartialEq)]
pub struct SentWebMessage {
    pub message: WebMessage,
    pub job: Job,
    /// False if an earlier request with the same key has sent the message.
    pub is_new: bool,
}

impl Fleet {
    /// Begins a conversation. The message is stored when this function returns, and has exactly one job.
    pub async fn begin_conversation(&self, first: FirstWebMessage) -> Result<SentWebMessage, FleetError> {
        let FirstWebMessage { with, text, key } = first;
        let (agent, continued) = match with {
            ConversationStart::Agent(agent) => (agent, None),
            ConversationStart::Job(job) => {
                let job = self.job(&job).await?;
                (job.agent().clone(), Some(job))
            }
        };
        let roster = self.roster();
        let Some(agent) = roster.agent(&agent) else { return Err(self.missing_agent_error(&agent).await) };
        if let Some(job) = &continued {
            check_continued(agent, job)?;
        }
        let begin = NewWebConversation {
            title: title_of(&text),
            continues: continued.as_ref().map(|job| job.id().clone()),
            confined: continued.as_ref().and_then(Job::confined).map(str::to_owned),
        };
        let id = conversation_id(&agent.name, begin.continues.as_ref(), key.as_deref());
        self.send(agent, id, Some(begin), text, key).await
    }

    /// Sends a message in a conversation. The message is stored when this function returns, and has exactly one job.
    pub async fn send_web_message(
        &self,
        conversation: &str,
        text: String,
        key: Option<String>,
    ) -> Result<SentWebMessage, FleetError> {
        let WebConversation { id, agent, .. } = self.web_conversation(conversation).await?;
        let roster = self.roster();
        let Some(agent) = roster.agent(&agent) else { return Err(self.missing_agent_error(&agent).await) };
        self.send(agent, id, None, text, key).await
    }

    /// Resets the session of a conversation: its next message starts a new session.
    pub async fn reset_conversation(&self, conversation: &str) -> Result<WebConversation, FleetError> {
        self.accept().await?;
        let reset = self.store().reset_web_conversation(conversation.to_owned(), self.clock().now()).await?;
        reset.ok_or_else(|| FleetError::NoConversation(conversation.to_owned()))
    }

    async fn web_conversation(&self, id: &str) -> Result<WebConversation, FleetError> {
        let conversation = self.store().web_conversation(id.to_owned()).await?;
        conversation.ok_or_else(|| FleetError::NoConversation(id.to_owned()))
    }

    async fn send(
        &self,
        agent: &Agent,
        conversation: String,
        begin: Option<NewWebConversation>,
        text: String,
        key: Option<String>,
    ) -> Result<SentWebMessage, FleetError> {
        self.accept().await?;
        check_message(&text, key.as_deref())?;
        let Some(WebChat { schedule, .. }) = &agent.web_chat else {
            return Err(FleetError::WebChatOff { agent: agent.name.clone() });
        };
        let now = self.clock().now();
        let stored = self.store().schedule(schedule.id).await?;
        if stored.is_some_and(|stored| {
            matches!(stored.state, ScheduleState::Disabled { .. } | ScheduleState::Error { .. })
        }) {
            let (agent, schedule) = (agent.name.clone(), schedule.name.clone());
            return Err(FleetError::ScheduleOff { agent, schedule });
        }
        let confined = match &begin {
            Some(begin) => begin.confined.clone(),
            None => self.web_conversation(&conversation).await?.confined,
        };
        let occurrence = match &key {
            Some(key) => Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{conversation} {key}").as_bytes()),
            None => Uuid::now_v7(),
        };
        let firing_key = Occurrence::Manual(&format!("web:{occurrence}")).key(0);
        let context = FiringContext {
            from_dashboard: true,
            chat: Some(chat_text(&conversation, 0)),
            confined,
            ..FiringContext::by_hand(&firing_key, Some(text.clone()))
        };
        let firing = Firing {
            agent,
            schedule: Some(schedule),
            key: &firing_key,
            due: None,
            firing_context: &context,
            zone: schedule.zone.time_zone(),
        };
        let decision = Decision::Run(firing.job(None, now));
        let firing = NewFiring { schedule: schedule.id, key: firing_key, due: now, decision, note: None };
        let message = NewWebMessage {
            conversation: conversation.clone(),
            begin,
            agent: agent.name.clone(),
            key,
            text,
            schedule: ScheduleRecord::new(&agent.name, schedule, now),
            firing,
        };
        fault::point("web_message_received");
        let sent = self.store().send_web_message(message, now).await?;
        fault::point("web_message_stored");
        match sent {
            WebMessageSent::New(message, job) => {
                self.engine.count_trigger();
                self.nudge();
                Ok(SentWebMessage { message, job: *job, is_new: true })
            }
            WebMessageSent::Existing(message, job) => {
                Ok(SentWebMessage { message, job: *job, is_new: false })
            }
            WebMessageSent::Removed => {
                let (agent, schedule) = (agent.name.clone(), schedule.name.clone());
                Err(FleetError::KeyUsed { agent, schedule })
            }
            WebMessageSent::NoConversation => Err(FleetError::NoConversation(conversation)),
        }
    }
}

/// Refuses to continue a job that has not ended, or whose session cannot be copied.
fn check_continued(agent: &Agent, job: &Job) -> Result<(), FleetError> {
    if matches!(job.status(), JobStatus::Pending | JobStatus::Running) {
        let status = job.status();
        return Err(FleetError::NotFinished { job: job.id().clone(), status, can_fork: false });
    }
    fork_refusal(agent, job).map_or(Ok(()), |refusal| Err(FleetError::CannotFork(refusal)))
}

fn check_message(text: &str, key: Option<&str>) -> Result<(), FleetError> {
    if text.trim().is_empty() {
        return Err(FleetError::EmptyMessage);
    }
    if text.len() > MAX_WEB_MESSAGE_BYTES {
        return Err(FleetError::MessageTooLong { bytes: text.len() });
    }
    match key.map(str::len).filter(|bytes| !(1..=MAX_KEY_BYTES).contains(bytes)) {
        Some(bytes) => Err(FleetError::KeyLength { bytes }),
        None => Ok(()),
    }
}
