//! Removes known secrets from answers. An item, a prompt or a message from outside may contain a secret.

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::{Api, ApiProblem};

/// Prefixes of the paths that are not masked, because an endpoint there returns a secret to the caller on purpose.
const UNMASKED_PATHS: [&str; 2] = ["/api/v1/tokens", "/api/v1/login"];

pub(super) async fn mask_secrets(State(api): State<Api>, request: Request, next: Next) -> Response {
    let is_unmasked = UNMASKED_PATHS.iter().any(|path| request.uri().path().starts_with(path));
    let answer = next.run(request).await;
    // Streams of lines need no masking here: job output is stored without secrets, and `EventLogReader` masks each
    // event before it adds the event to the stream.
    if is_unmasked || !is_json(&answer) {
        return answer;
    }
    let (mut parts, body) = answer.into_parts();
    let bytes = match to_bytes(body, usize::MAX).await {
        Ok(bytes) => bytes,
        Err(error) => return ApiProblem::unavailable(error.to_string()).into_response(),
    };
    match api.redactor().redact_json(&bytes) {
        None => Response::from_parts(parts, Body::from(bytes)),
        Some(masked) => {
            parts.headers.remove(header::CONTENT_LENGTH);
            Response::from_parts(parts, Body::from(masked))
        }
    }
}

fn is_json(answer: &Response) -> bool {
    let kind = answer.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
    kind.is_some_and(|kind| kind == "application/json" || kind == "application/problem+json")
}
