//! What went wrong, in the one shape that every endpoint answers with.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use cowhand_core::id::{AgentName, JobId};
use cowhand_core::job::Job;
use serde::{Deserialize, Serialize};

use crate::fleet::FleetError;
use crate::store::StoreError;
use crate::work::WorkSourceError;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Problem {
    pub code: Code,
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    BadRequest,
    /// No token, or none that is good.
    Unauthorized,
    /// A good token that does not allow this, or a page of somebody else's that asks.
    Forbidden,
    /// The request names another host.
    Misdirected,
    TooLarge,
    TooMany,
    NotFound,
    /// Things are not such that it could be done.
    Conflict,
    /// The job has ended, and never changes again.
    AlreadyStopped,
    BadConfig,
    /// The schedule takes no deliveries of this kind.
    NotAWebhook,
    Stopping,
    NoDaemon,
    /// The store, the disk or the connection.
    Unavailable,
}

impl Problem {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Code::BadRequest, message)
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    pub fn no_job(id: &JobId) -> Self {
        FleetError::NoJob(id.clone()).into()
    }

    pub fn no_agent(name: &AgentName) -> Self {
        FleetError::NoAgent(name.clone()).into()
    }

    pub fn no_schedule(agent: &AgentName, schedule: &str) -> Self {
        FleetError::NoSchedule { agent: agent.clone(), schedule: schedule.to_owned() }.into()
    }

    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(Code::Conflict, message)
    }

    pub fn already_stopped(job: &Job) -> Self {
        let message = format!("{} is {} already; there is nothing to cancel", job.id(), job.status());
        Self::new(Code::AlreadyStopped, message)
    }

    pub fn bad_config(report: impl Into<String>) -> Self {
        Self::new(Code::BadConfig, report)
    }

    pub fn stopping() -> Self {
        FleetError::Stopping.into()
    }

    pub fn no_daemon() -> Self {
        Self::new(Code::NoDaemon, "no daemon runs for this fleet; start one with `cowhand start -d`")
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Code::Unavailable, message)
    }

    const fn status(&self) -> StatusCode {
        match self.code {
            Code::BadRequest => StatusCode::BAD_REQUEST,
            Code::Unauthorized => StatusCode::UNAUTHORIZED,
            Code::Forbidden => StatusCode::FORBIDDEN,
            Code::Misdirected => StatusCode::MISDIRECTED_REQUEST,
            Code::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Code::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Code::NotFound => StatusCode::NOT_FOUND,
            Code::Conflict | Code::AlreadyStopped => StatusCode::CONFLICT,
            Code::BadConfig | Code::NotAWebhook => StatusCode::UNPROCESSABLE_ENTITY,
            Code::Stopping | Code::NoDaemon => StatusCode::SERVICE_UNAVAILABLE,
            Code::Unavailable => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NoJob(id) => Self::no_job(&id),
            StoreError::NoSchedule(_) => Self::not_found(error.to_string()),
            StoreError::Refused(refused) => Self::conflict(refused.to_string()),
            StoreError::Closed => Self::stopping(),
            other => Self::unavailable(other.to_string()),
        }
    }
}

impl From<FleetError> for Problem {
    fn from(error: FleetError) -> Self {
        let code = match error {
            FleetError::Store(error) => return error.into(),
            FleetError::NoAgent(_)
            | FleetError::NoSchedule { .. }
            | FleetError::NoJob(_)
            | FleetError::NoItem(_) => Code::NotFound,
            FleetError::InUse { .. }
            | FleetError::ItemHeld { .. }
            | FleetError::ItemRefused { .. }
            | FleetError::NotFinished { .. }
            | FleetError::NotRun { .. }
            | FleetError::KeyUsed { .. }
            | FleetError::ScheduleOff { .. } => Code::Conflict,
            FleetError::KeyWithoutSchedule => Code::BadRequest,
            FleetError::TakesNoDeliveries { .. } => Code::NotAWebhook,
            FleetError::Config(_) => Code::BadConfig,
            FleetError::Stopping | FleetError::StopTimedOut { .. } => Code::Stopping,
            FleetError::WorkSource(_)
            | FleetError::Output { .. }
            | FleetError::Prune(_)
            | FleetError::AlreadyRunning(_)
            | FleetError::State { .. }
            | FleetError::Died => Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

impl From<WorkSourceError> for Problem {
    fn from(error: WorkSourceError) -> Self {
        Self::unavailable(error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.status(), Json(self)).into_response()
    }
}
