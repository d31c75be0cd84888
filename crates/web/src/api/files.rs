//! Files that running attempts send into the chats that their jobs answer.

use axum::Json;
use axum::extract::{Path, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::extract::{JsonBody, require_attempt, require_fields};
use super::{Api, ApiProblem};
use cowhand_engine::fleet::FileToSend;

#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(transform = require_fields(["attempt", "key", "file_path"]))]
#[schemars(rename = "JobFiles")]
pub struct SendFileRequest {
    /// The number of the attempt that sends the file.
    #[schemars(range(min = 1))]
    pub attempt: u32,
    /// Key of the request. A repeated request of the same job with the same key sends the file once.
    #[schemars(length(min = 1, max = 200))]
    pub key: String,
    /// Path of the file, inside the working directory of the job.
    pub file_path: String,
    /// Text that is posted with the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Name of the file in the chat; unset means its own name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
}

/// File that will be posted.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AcceptedFile {
    /// Name of the file in the chat.
    pub name: String,
}

pub(super) async fn send(
    State(api): State<Api>,
    Path(job): Path<String>,
    JsonBody(request): JsonBody<SendFileRequest>,
) -> Result<Json<AcceptedFile>, ApiProblem> {
    let SendFileRequest { attempt, key, file_path, message, filename } = request;
    let (fleet, attempt) = (api.daemon()?, require_attempt(attempt)?);
    if key.is_empty() || key.len() > 200 {
        return Err(ApiProblem::bad_request("`key` must have 1 to 200 bytes"));
    }
    let file = FileToSend { key, path: file_path, name: filename, message: message.unwrap_or_default() };
    let name = fleet.send_file(&api.job_id(&job).await?, attempt, file).await?;
    Ok(Json(AcceptedFile { name }))
}
