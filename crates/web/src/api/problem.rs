//! The form of errors, which is the same for all endpoints.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use cowhand_core::ask::AskId;
use cowhand_core::id::{AgentName, JobId};
use cowhand_core::job::Job;
use cowhand_core::roster::{Agent, Roster};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use cowhand_engine::fleet::{FleetError, Unready};
use cowhand_store::StoreError;
use cowhand_work::WorkSourceError;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct ApiProblem {
    pub code: Code,
    #[serde(rename = "detail")]
    pub message: String,
}

/// Serialised form of a problem: the problem details of RFC 9457, and a code for programs.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(super) struct Details {
    /// Text of the status.
    title: &'static str,
    status: u16,
    code: Code,
    /// Description of the error, and the remedy.
    detail: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    BadRequest,
    /// The path exists, but not with this method.
    BadMethod,
    /// The token is missing or not valid.
    Unauthorized,
    /// The caller may not send this request, or the request comes from a page of another site.
    Forbidden,
    /// The request names a host that the server does not accept.
    Misdirected,
    TooLarge,
    TooSlow,
    TooMany,
    NotFound,
    /// The current state does not allow the request.
    Conflict,
    /// The job has ended, and never changes again.
    AlreadyStopped,
    BadConfig,
    /// The schedule accepts no deliveries of this kind.
    NotAWebhook,
    Stopping,
    NoDaemon,
    /// The store does not answer, or the store or the state folder cannot be written.
    StoreUnavailable,
    /// The daemon has no file descriptors or memory left for the request. It did nothing; try again.
    Busy,
    /// Another failure outside the request, for example of a work source, of a file with output, or of the daemon.
    Unavailable,
}

impl ApiProblem {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Code::BadRequest, message)
    }

    /// Builds the problem for a wrong query; `text` is the message of axum, which contains the message of Serde.
    pub fn bad_query(text: &str) -> Self {
        let text = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(text);
        let (field, error) = text.split_once(": ").unwrap_or(("", text));
        let prefix = if field.is_empty() { String::new() } else { format!("`{field}`: ") };
        let explain = |kind: &str| {
            let (value, expected) = error.strip_prefix(kind)?.split_once(", expected ")?;
            let expected = expected.strip_prefix("one of ").unwrap_or(expected).replace('`', "");
            Some(format!("{} is not one of {expected}", value.replace('`', "")))
        };
        let message = match (explain("unknown variant "), explain("unknown field ")) {
            (Some(sentence), _) => sentence,
            (_, Some(sentence)) => format!("the parameter {sentence}"),
            _ => error.to_owned(),
        };
        Self::bad_request(format!("{prefix}{message}"))
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }

    pub fn no_job(id: &JobId) -> Self {
        FleetError::NoJob(id.clone()).into()
    }

    pub fn no_ask(id: &AskId) -> Self {
        FleetError::NoAsk(id.clone()).into()
    }

    pub fn no_agent(roster: &Roster, name: &AgentName) -> Self {
        FleetError::no_agent(roster, name).into()
    }

    pub fn no_schedule(agent: &Agent, schedule: &str) -> Self {
        FleetError::no_schedule(agent, schedule).into()
    }

    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(Code::Conflict, message)
    }

    pub fn already_stopped(job: &Job) -> Self {
        let message =
            format!("{} has already ended ({}); there is nothing to cancel", job.id(), job.status());
        Self::new(Code::AlreadyStopped, message)
    }

    pub fn stopping() -> Self {
        FleetError::Stopping.into()
    }

    pub fn no_daemon() -> Self {
        Self::new(Code::NoDaemon, "no daemon runs for this fleet; start one with `cowhand start -d`")
    }

    pub fn store_unavailable(message: impl Into<String>) -> Self {
        Self::new(Code::StoreUnavailable, message)
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Code::Unavailable, message)
    }
}

impl Code {
    pub(super) const fn status(self) -> StatusCode {
        match self {
            Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::BadMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::Misdirected => StatusCode::MISDIRECTED_REQUEST,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Conflict | Self::AlreadyStopped => StatusCode::CONFLICT,
            Self::BadConfig | Self::NotAWebhook => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Stopping | Self::NoDaemon | Self::StoreUnavailable | Self::Busy => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::Unavailable => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    pub(super) fn as_str(self) -> String {
        serde_json::to_value(self).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
    }
}

impl From<StoreError> for ApiProblem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NoJob(id) => Self::no_job(&id),
            StoreError::NoSchedule(_) => Self::not_found(error.to_string()),
            StoreError::Refused(refused) => Self::conflict(refused.to_string()),
            StoreError::Closed => Self::stopping(),
            StoreError::PostgresBackup => Self::conflict(error.to_string()),
            StoreError::Connection(_)
            | StoreError::NoAnswer { .. }
            | StoreError::Statement { .. }
            | StoreError::Commit(_)
            | StoreError::Disk { .. }
            | StoreError::ServerFull { .. }
            | StoreError::ServerReadOnly { .. }
            | StoreError::ServerRefuses { .. }
            | StoreError::NoRights { .. }
            | StoreError::Locked { .. }
            | StoreError::Damaged(_)
            | StoreError::PermissionDenied { .. }
            | StoreError::FileChanged { .. } => Self::store_unavailable(error.to_string()),
            other => Self::unavailable(other.to_string()),
        }
    }
}

impl From<FleetError> for ApiProblem {
    fn from(error: FleetError) -> Self {
        let code = match error {
            FleetError::Store(error) => return error.into(),
            FleetError::NoAgent { .. }
            | FleetError::AgentRemoved { .. }
            | FleetError::NoSchedule { .. }
            | FleetError::NoScheduleAnywhere { .. }
            | FleetError::ScheduleRemovedWhilePreparing { .. }
            | FleetError::ScheduleRemoved { .. }
            | FleetError::NoJob(_)
            | FleetError::NoConversation(_)
            | FleetError::NoAsk(_)
            | FleetError::NoItem(_)
            | FleetError::ItemElsewhere { .. }
            | FleetError::NoQueue { .. }
            | FleetError::NotInQueue { .. }
            | FleetError::ItemForgotten(_) => Code::NotFound,
            FleetError::InUse { .. }
            | FleetError::HooksOpen(_)
            | FleetError::AskRefused(_)
            | FleetError::NoAttempt { .. }
            | FleetError::CannotFork(_)
            | FleetError::WebChatOff { .. }
            | FleetError::JobEnded { .. }
            | FleetError::JobCancelling(_)
            | FleetError::TooManyMessages(_)
            | FleetError::MessagesTooLarge(_)
            | FleetError::SeveralItems { .. }
            | FleetError::ItemHeld { .. }
            | FleetError::ItemBeingClaimed { .. }
            | FleetError::ItemRefused { .. }
            | FleetError::ItemNotOffered { .. }
            | FleetError::ItemLeftAlone { .. }
            | FleetError::NotFinished { .. }
            | FleetError::NotRun { .. }
            | FleetError::KeyUsed { .. }
            | FleetError::ScheduleOff { .. }
            | FleetError::OffInFile { .. }
            | FleetError::Finished { .. }
            | FleetError::HasFired { .. }
            | FleetError::PassedWhileOff { .. } => Code::Conflict,
            FleetError::MayNotAsk(_) => Code::Forbidden,
            FleetError::KeyWithoutSchedule
            | FleetError::UnusedValues
            | FleetError::NeedsMessage { .. }
            | FleetError::ReservedValue { .. }
            | FleetError::UnknownValues { .. }
            | FleetError::KeyLength { .. }
            | FleetError::EmptyMessage
            | FleetError::MessageTooLong { .. }
            | FleetError::ReportRefused(_)
            | FleetError::SendRefused(_) => Code::BadRequest,
            FleetError::TakesNoDeliveries { .. } => Code::NotAWebhook,
            FleetError::Config(_) => Code::BadConfig,
            FleetError::Unready(Unready::Store(_) | Unready::Folder(_)) => Code::StoreUnavailable,
            FleetError::Unready(Unready::Stopping)
            | FleetError::Stopping
            | FleetError::StopTimedOut { .. } => Code::Stopping,
            FleetError::WorkSource(_)
            | FleetError::Output { .. }
            | FleetError::Prune(_)
            | FleetError::AlreadyRunning(_)
            | FleetError::Herdctl(_)
            | FleetError::State { .. }
            | FleetError::StoreGone { .. }
            | FleetError::OtherStore(_)
            | FleetError::DamagedStoreRecord(_)
            | FleetError::NodeTaken { .. }
            | FleetError::HomeGone { .. }
            | FleetError::HomeTaken { .. }
            | FleetError::Died => Code::Unavailable,
        };
        Self::new(code, error.to_string())
    }
}

impl From<WorkSourceError> for ApiProblem {
    fn from(error: WorkSourceError) -> Self {
        Self::unavailable(error.to_string())
    }
}

impl IntoResponse for ApiProblem {
    fn into_response(self) -> Response {
        let status = self.code.status();
        let title = status.canonical_reason().unwrap_or("Problem");
        let details = Details { title, status: status.as_u16(), code: self.code, detail: self.message };
        let kind = [(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"))];
        (status, kind, Json(details)).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_invalid_queries_are_reworded() {
        for (text, expected) in [
            (
                "Failed to deserialize query string: status: unknown variant `foo`, expected one of `pending`, `running`",
                "`status`: foo is not one of pending, running",
            ),
            (
                "Failed to deserialize query string: unknown field `statsu`, expected one of `agent`, `status`",
                "the parameter statsu is not one of agent, status",
            ),
            (
                "Failed to deserialize query string: limit: 0 is not from 1 to 1000",
                "`limit`: 0 is not from 1 to 1000",
            ),
        ] {
            assert_eq!(ApiProblem::bad_query(text).message, expected);
        }
    }
}
