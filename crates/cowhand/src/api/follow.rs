//! Answers that go on: what is there already, then what comes, until there can be no more.

use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;

use super::Problem;

/// How soon somebody who follows sees what is new.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// Something that grows.
pub(super) trait Growing: Send + 'static {
    /// The next part; empty while there is none, none when there will be none.
    fn more(&mut self) -> impl Future<Output = Result<Option<Bytes>, Problem>> + Send;
}

/// Lines of JSON.
pub(super) fn answer(growing: impl Growing) -> Response {
    let parts = stream::unfold(Some(growing), |growing| async {
        let mut growing = growing?;
        loop {
            match growing.more().await {
                Ok(Some(part)) if part.is_empty() => tokio::time::sleep(LOOK).await,
                Ok(Some(part)) => return Some((Ok(part), Some(growing))),
                Ok(None) => return None,
                // Cutting the answer off is all that can be said this late.
                Err(problem) => return Some((Err(io::Error::other(problem)), None)),
            }
        }
    });
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(parts)).into_response()
}
