//! Events: what happened, in order.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::follow::{self, Growing};
use super::given::Params;
use super::{Api, Page, Problem};

#[derive(Debug, Deserialize)]
pub(super) struct Asked {
    /// Only what has a greater number; unset means the newest `limit`.
    after: Option<i64>,
    #[serde(default = "most")]
    limit: u32,
    /// 1 means: go on with what happens from now on, one event a line.
    #[serde(default)]
    follow: u8,
}

fn most() -> u32 {
    100
}

/// The most of one part of a list.
const MOST: u32 = 1000;

pub(super) async fn list(State(api): State<Api>, Params(asked): Params<Asked>) -> Result<Response, Problem> {
    let limit = asked.limit.min(MOST);
    let after = match asked.after {
        Some(after) => after,
        None => api.store.last_event().await? - i64::from(limit),
    };
    if asked.follow == 1 {
        return Ok(follow::answer(Log { api, after }));
    }
    let items = api.store.events_after(after, limit).await?;
    let full = items.len() == limit as usize;
    let next_cursor = items.last().filter(|_| full).map(|event| event.seq.to_string());
    Ok(Json(Page { items, next_cursor }).into_response())
}

/// The log from some place on.
struct Log {
    api: Api,
    after: i64,
}

impl Growing for Log {
    async fn more(&mut self) -> Result<Option<Bytes>, Problem> {
        let events = self.api.store.events_after(self.after, MOST).await?;
        let mut lines = Vec::new();
        for event in events {
            self.after = event.seq;
            serde_json::to_writer(&mut lines, &event)
                .map_err(|error| Problem::unavailable(error.to_string()))?;
            lines.push(b'\n');
        }
        // Without a daemon nothing more will happen.
        let over = lines.is_empty() && self.api.daemon().is_err();
        Ok((!over).then(|| lines.into()))
    }

    async fn grown(&mut self) {
        self.api.store.changed(self.after).await;
    }
}
