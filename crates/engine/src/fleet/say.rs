//! Messages to jobs that have not ended.

use cowhand_core::id::JobId;
use cowhand_core::job::{Job, JobStatus};
use cowhand_core::runtime::Runtime;
use cowhand_core::steering::{MAX_WAITING_MESSAGE_BYTES, SteeringMessage, SteeringRoute};
use cowhand_core::trigger::MAX_KEY_BYTES;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Fleet, FleetError};
use cowhand_run::runtime::description;
use cowhand_store::{MessageSent, NewJobMessage};
use cowhand_system::fault;

/// A request to send a message to a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Say")]
pub struct SayRequest {
    /// Text for the agent. It is used literally, not as a template.
    #[schemars(length(min = 1, max = MAX_WAITING_MESSAGE_BYTES))]
    pub text: String,
    /// End the current turn of the agent before the agent gets the message.
    pub interrupt: bool,
    /// Key of the request: the same key for the same job gives the same message.
    #[schemars(length(min = 1, max = MAX_KEY_BYTES))]
    pub key: Option<String>,
}

/// A stored message. Its `route` says how the agent gets it.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    New(SteeringMessage),
    /// The message that an earlier request with this key has sent.
    Existing(SteeringMessage),
}

impl Said {
    pub fn into_message(self) -> SteeringMessage {
        match self {
            Self::New(message) | Self::Existing(message) => message,
        }
    }
}

impl Fleet {
    /// Sends a message to a job that has not ended. The message is stored when this call returns. The agent gets it
    /// while it runs, if its runtime takes messages. Otherwise, and if the agent ends first, a new job gets the message
    /// as its prompt, and continues the session of this job. The sender is the current actor
    /// ([`cowhand_store::audit`]).
    pub async fn say(&self, job: &JobId, request: SayRequest) -> Result<Said, FleetError> {
        self.accept().await?;
        let SayRequest { text, interrupt, key } = request;
        let key_bytes = key.as_ref().map(String::len);
        if let Some(bytes) = key_bytes.filter(|bytes| !(1..=MAX_KEY_BYTES).contains(bytes)) {
            return Err(FleetError::KeyLength { bytes });
        }
        if text.trim().is_empty() {
            return Err(FleetError::EmptyMessage);
        }
        let job = self.job(job).await?;
        let route = self.route_to(&job).await?;
        let new = NewJobMessage { job: job.id().clone(), uuid: Uuid::now_v7(), key, text, interrupt, route };
        let sent = self.store().send_message(new, self.engine.clock.now()).await?;
        fault::point("message-stored");
        let job = job.id().clone();
        match sent {
            MessageSent::Sent(message) => {
                self.engine.wake_messages(&job);
                self.nudge();
                Ok(Said::New(message))
            }
            MessageSent::Existing(message) => Ok(Said::Existing(message)),
            MessageSent::Ended(ended) => Err(FleetError::JobEnded { job, status: ended.status() }),
            MessageSent::Cancelling => Err(FleetError::JobCancelling(job)),
            MessageSent::TooMany => Err(FleetError::TooManyMessages(job)),
            MessageSent::TooLarge => Err(FleetError::MessagesTooLarge(job)),
        }
    }

    /// Returns the messages to a job, in their order.
    pub async fn messages_of(&self, job: &JobId) -> Result<Vec<SteeringMessage>, FleetError> {
        Ok(self.store().messages_of(job.clone()).await?)
    }

    /// Decides how the job gets its messages, by the runtime of its running attempt, or else of its agent.
    async fn route_to(&self, job: &Job) -> Result<SteeringRoute, FleetError> {
        let is_running = job.status() == JobStatus::Running;
        let stored =
            if is_running { self.store().provider_and_runtime(job.id().clone()).await? } else { None };
        let running = stored.and_then(|stored| stored.runtime).and_then(|name| Runtime::named(&name));
        let roster = self.roster();
        let runtime = running.or_else(|| roster.agent(job.agent()).map(cowhand_core::roster::Agent::runtime));
        let is_live = runtime.is_some_and(|runtime| description::description(runtime).capabilities.messages);
        Ok(if is_live { SteeringRoute::Live } else { SteeringRoute::NextTurn })
    }
}
