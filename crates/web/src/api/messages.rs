//! Steering messages: messages to jobs that have not ended.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use cowhand_core::steering::SteeringMessage;

use super::extract::JsonBody;
use super::jobs::find;
use super::{Api, ApiProblem, Page};
use cowhand_engine::fleet::{Said, SayRequest};

/// Stores a message to a job.
pub(super) async fn send(
    State(api): State<Api>,
    Path(job): Path<String>,
    JsonBody(request): JsonBody<SayRequest>,
) -> Result<(StatusCode, Json<SteeringMessage>), ApiProblem> {
    let job = find(&api, &job).await?;
    Ok(match api.daemon()?.say(job.id(), request).await? {
        Said::New(message) => (StatusCode::CREATED, Json(message)),
        Said::Existing(message) => (StatusCode::OK, Json(message)),
    })
}

pub(super) async fn list(
    State(api): State<Api>,
    Path(job): Path<String>,
) -> Result<Json<Page<SteeringMessage>>, ApiProblem> {
    let job = find(&api, &job).await?;
    Ok(Json(Page::all(api.store.messages_of(job.id().clone()).await?)))
}
