//! Conversations of the web chat: listing, messages, sending, and resets.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use cowhand_core::actor::Actor;
use cowhand_core::id::{AgentName, JobId};
use cowhand_core::job::{Job, JobRecord, JobStatus};
use cowhand_core::roster::{Roster, WebChat};
use cowhand_core::shape::MessageGrouping;
use cowhand_core::trigger::MAX_KEY_BYTES;
use cowhand_core::web_chat::MAX_WEB_MESSAGE_BYTES;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{Count, JsonBody, Params, require_fields};
use super::{Api, ApiProblem, Page, Waits, waits};
use cowhand_engine::fleet::{ConversationStart, FirstWebMessage, FleetError, SentWebMessage};
use cowhand_run::runtime::description::description;
use cowhand_store::{JobFilter, WebConversation, WebMessage, WebMessageJob};

/// Conversation of people with an agent in the web chat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Conversation")]
pub struct ConversationView {
    pub id: String,
    pub agent: AgentName,
    /// First words of the first message.
    pub title: String,
    pub state: ConversationState,
    pub created_at: Timestamp,
    /// Time of the newest message.
    pub updated_at: Timestamp,
    /// Number of the newest message.
    pub messages: u32,
    /// Number of messages that wait for their job, among the newest 20.
    pub waiting: usize,
    /// Job that runs for the conversation.
    pub running: Option<JobId>,
    /// Job with whose session the conversation began; none if it began with a new session.
    pub continues: Option<JobId>,
    /// Number of times that the session was reset.
    pub resets: u32,
    /// Whether the results of tools are shown to people.
    pub tool_results: bool,
    pub message_grouping: MessageGrouping,
    /// True if the running job can get messages while it runs.
    pub takes_messages: bool,
    /// Why no message can be sent now; none if messages can be sent.
    pub closed: Option<String>,
}

/// State of a conversation, or of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConversationState {
    Waiting,
    Running,
    Answered,
    Failed,
    Cancelled,
}

impl ConversationState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Answered => "answered",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    const fn of(status: JobStatus) -> Self {
        match status {
            JobStatus::Pending => Self::Waiting,
            JobStatus::Running => Self::Running,
            JobStatus::Completed => Self::Answered,
            JobStatus::Failed => Self::Failed,
            JobStatus::Cancelled => Self::Cancelled,
        }
    }

    /// Returns the state of a conversation: that of a running message, else that of a waiting message, else that of the
    /// newest message.
    fn of_jobs(jobs: &[WebMessageJob]) -> Self {
        let has = |status| jobs.iter().any(|job| job.status == status);
        let live = [JobStatus::Running, JobStatus::Pending].into_iter().find(|status| has(*status));
        live.or_else(|| jobs.first().map(|job| job.status)).map_or(Self::Answered, Self::of)
    }
}

/// Message of a person in a conversation, with the job that answers it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "ConversationMessage")]
pub struct ConversationMessage {
    pub conversation: String,
    /// Number within the conversation, from 1.
    pub number: u32,
    pub text: String,
    pub sender: Option<Actor>,
    pub sent_at: Timestamp,
    /// Number of times that the session was reset before this message.
    pub resets: u32,
    pub state: ConversationState,
    /// Position of a waiting message among the waiting jobs of the agent, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<usize>,
    /// Reason why the message waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Waits>,
    /// Job that answers the message. Its `summary` is the answer.
    pub job: JobRecord,
}

/// A stored message, with its conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "SentMessage")]
pub struct SentMessageView {
    pub conversation: ConversationView,
    pub message: ConversationMessage,
}

/// Request to begin a conversation: with an agent, or with a finished job whose session it continues.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(transform = require_fields(["text"]))]
#[schemars(rename = "NewConversation")]
pub struct NewConversationRequest {
    pub agent: Option<AgentName>,
    /// Finished job with a copy of whose session the conversation begins.
    pub job: Option<String>,
    /// First message.
    #[schemars(length(min = 1, max = MAX_WEB_MESSAGE_BYTES))]
    pub text: String,
    /// Key of the request: a repeated request with the same key begins one conversation.
    #[schemars(length(min = 1, max = MAX_KEY_BYTES))]
    pub key: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(transform = require_fields(["text"]))]
#[schemars(rename = "NewMessage")]
pub struct NewMessageRequest {
    #[schemars(length(min = 1, max = MAX_WEB_MESSAGE_BYTES))]
    pub text: String,
    /// Key of the request: a repeated request with the same key sends one message.
    #[schemars(length(min = 1, max = MAX_KEY_BYTES))]
    pub key: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ConversationsQuery {
    agent: Option<AgentName>,
    /// The `next_cursor` of the previous page.
    after: Option<String>,
    /// Maximum number of conversations; unset means 50.
    limit: Option<Count>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct MessagesQuery {
    /// The `next_cursor` of the previous page.
    after: Option<u32>,
    /// Maximum number of messages; unset means 50.
    limit: Option<Count>,
}

const DEFAULT_COUNT: u32 = 50;
/// Maximum number of waiting jobs of an agent that are counted for a position.
const MAX_COUNTED_JOBS: u32 = 1_000;

pub(super) async fn list(
    State(api): State<Api>,
    Params(ConversationsQuery { agent, after, limit }): Params<ConversationsQuery>,
) -> Result<Json<Page<ConversationView>>, ApiProblem> {
    let limit = Count::or(limit, DEFAULT_COUNT);
    api.require_known(agent.as_ref(), None).await?;
    let after = match after {
        Some(id) => Some(conversation(&api, &id).await?),
        None => None,
    };
    let roster = api.roster();
    let found = api.store.web_conversations(agent, after, limit).await?;
    let is_full = found.len() == limit as usize;
    let next_cursor = found.last().filter(|_| is_full).map(|(last, _)| last.id.clone());
    let view = |(conversation, jobs): (WebConversation, Vec<WebMessageJob>)| {
        ConversationView::of(conversation, &jobs, &roster)
    };
    Ok(Json(Page { items: found.into_iter().map(view).collect(), next_cursor }))
}

pub(super) async fn one(
    State(api): State<Api>,
    Path(id): Path<String>,
) -> Result<Json<ConversationView>, ApiProblem> {
    let found = conversation(&api, &id).await?;
    view(&api, found).await.map(Json)
}

pub(super) async fn messages(
    State(api): State<Api>,
    Path(id): Path<String>,
    Params(MessagesQuery { after, limit }): Params<MessagesQuery>,
) -> Result<Json<Page<ConversationMessage>>, ApiProblem> {
    let limit = Count::or(limit, DEFAULT_COUNT);
    let WebConversation { id, agent, .. } = conversation(&api, &id).await?;
    let before = after.unwrap_or(u32::MAX);
    let found = api.store.web_messages(id, before, limit).await?;
    let is_full = found.len() == limit as usize;
    let next_cursor = found.last().filter(|(last, _)| is_full && last.number > 1);
    let next_cursor = next_cursor.map(|(last, _)| last.number.to_string());
    Ok(Json(Page { items: message_views(&api, &agent, found).await?, next_cursor }))
}

pub(super) async fn begin(
    State(api): State<Api>,
    JsonBody(request): JsonBody<NewConversationRequest>,
) -> Result<(StatusCode, Json<SentMessageView>), ApiProblem> {
    let NewConversationRequest { agent, job, text, key } = request;
    let with = match (agent, job) {
        (Some(agent), None) => ConversationStart::Agent(agent),
        (None, Some(job)) => ConversationStart::Job(api.job_id(&job).await?),
        _ => return Err(ApiProblem::bad_request("a conversation begins with either an `agent` or a `job`")),
    };
    sent(&api, api.daemon()?.begin_conversation(FirstWebMessage { with, text, key }).await?).await
}

pub(super) async fn send(
    State(api): State<Api>,
    Path(id): Path<String>,
    JsonBody(NewMessageRequest { text, key }): JsonBody<NewMessageRequest>,
) -> Result<(StatusCode, Json<SentMessageView>), ApiProblem> {
    sent(&api, api.daemon()?.send_web_message(&id, text, key).await?).await
}

pub(super) async fn reset(
    State(api): State<Api>,
    Path(id): Path<String>,
) -> Result<Json<ConversationView>, ApiProblem> {
    let reset = api.daemon()?.reset_conversation(&id).await?;
    view(&api, reset).await.map(Json)
}

/// Answers with `CREATED` for a new message, and with `OK` for the message that the same key has sent before.
async fn sent(
    api: &Api,
    SentWebMessage { message, job, is_new }: SentWebMessage,
) -> Result<(StatusCode, Json<SentMessageView>), ApiProblem> {
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let found = conversation(api, &message.conversation).await?;
    let agent = found.agent.clone();
    let conversation = view(api, found).await?;
    let mut messages = message_views(api, &agent, vec![(message, job)]).await?;
    let message = messages.pop().ok_or_else(|| ApiProblem::unavailable("the message cannot be shown"))?;
    Ok((status, Json(SentMessageView { conversation, message })))
}

async fn conversation(api: &Api, id: &str) -> Result<WebConversation, ApiProblem> {
    let found = api.store.web_conversation(id.to_owned()).await?;
    found.ok_or_else(|| FleetError::NoConversation(id.to_owned()).into())
}

async fn view(api: &Api, conversation: WebConversation) -> Result<ConversationView, ApiProblem> {
    let jobs = api.store.recent_web_jobs(conversation.id.clone()).await?;
    Ok(ConversationView::of(conversation, &jobs, &api.roster()))
}

async fn message_views(
    api: &Api,
    agent: &AgentName,
    messages: Vec<(WebMessage, Job)>,
) -> Result<Vec<ConversationMessage>, ApiProblem> {
    let (messages, jobs): (Vec<_>, Vec<_>) = messages.into_iter().unzip();
    let waits = waits::of_jobs(api, &jobs).await?;
    let queue = if jobs.iter().any(|job| job.status() == JobStatus::Pending) {
        let (agent, status) = (Some(agent.clone()), Some(JobStatus::Pending));
        api.store.jobs(JobFilter { agent, status, ..JobFilter::default() }, MAX_COUNTED_JOBS).await?
    } else {
        Vec::new()
    };
    let view = |((message, job), waits): ((WebMessage, Job), Option<Waits>)| {
        // The list begins with the newest job.
        let position = queue.iter().position(|waiting| waiting.id() == job.id()).map(|at| queue.len() - at);
        let WebMessage { conversation, number, text, sender, sent_at, resets, .. } = message;
        let state = ConversationState::of(job.status());
        let job = job.into();
        ConversationMessage {
            conversation,
            number,
            text,
            sender,
            sent_at,
            resets,
            state,
            position,
            waits,
            job,
        }
    };
    Ok(messages.into_iter().zip(jobs).zip(waits).map(view).collect())
}

impl ConversationView {
    fn of(conversation: WebConversation, jobs: &[WebMessageJob], roster: &Roster) -> Self {
        let WebConversation {
            id, agent, title, created_at, updated_at, continues, resets, last_number, ..
        } = conversation;
        let configured = roster.agent(&agent);
        let settings = configured.and_then(|agent| agent.web_chat.as_ref());
        let closed = match (configured, settings) {
            (None, _) => Some(format!("the agent {agent} is not in the config any more")),
            (Some(_), None) => Some(FleetError::WebChatOff { agent: agent.clone() }.to_string()),
            (Some(_), Some(_)) => None,
        };
        let running = jobs.iter().find(|job| job.status == JobStatus::Running);
        Self {
            state: ConversationState::of_jobs(jobs),
            waiting: jobs.iter().filter(|job| job.status == JobStatus::Pending).count(),
            takes_messages: running.is_some()
                && configured.is_some_and(|agent| description(agent.runtime()).capabilities.messages),
            running: running.map(|running| running.job.clone()),
            tool_results: settings.is_none_or(|WebChat { tool_results, .. }| *tool_results),
            message_grouping: settings.map_or(MessageGrouping::Separate, |chat| chat.grouping),
            id,
            agent,
            title,
            created_at,
            updated_at,
            messages: last_number,
            continues,
            resets,
            closed,
        }
    }
}
