//! Answers that go on: what is there already, then what comes, until there can be no more.

use std::io;

use axum::body::{Body, Bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::stream;

use super::Problem;

/// Something that grows.
pub(super) trait Growing: Send + 'static {
    /// The next part; empty while there is none, none when there will be none.
    fn more(&mut self) -> impl Future<Output = Result<Option<Bytes>, Problem>> + Send;

    /// Returns when there may be something that the last look did not see, also if it came during that look. It
    /// may return for nothing, but not so often that waiting costs anything.
    fn grown(&mut self) -> impl Future<Output = ()> + Send;
}

/// Lines of JSON.
pub(super) fn answer(growing: impl Growing) -> Response {
    let parts = stream::unfold(Some(growing), |growing| async {
        let mut growing = growing?;
        loop {
            match growing.more().await {
                Ok(Some(part)) if part.is_empty() => growing.grown().await,
                Ok(Some(part)) => return Some((Ok(part), Some(growing))),
                Ok(None) => return None,
                // Cutting the answer off is all that can be said this late.
                Err(problem) => return Some((Err(io::Error::other(problem)), None)),
            }
        }
    });
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(parts)).into_response()
}
