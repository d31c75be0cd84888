//! The growing output of a job, for the script on its page: rendered lines, as server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use cowhand_core::job::JobRecord;
use futures_util::stream;
use serde::Deserialize;

use super::Pages;
use super::output::{View, growing};
use crate::api::{ApiProblem, Lines, segment};

#[derive(Debug, Deserialize)]
pub(super) struct LiveQuery {
    #[serde(default)]
    after: u64,
    #[serde(default)]
    raw: u8,
}

/// Largest number of lines in one event; `GATHER_TIME` is how long an event that is not full waits for more.
const MAX_LINES_PER_EVENT: usize = 250;
const GATHER_TIME: Duration = Duration::from_millis(40);

struct Live {
    lines: Lines,
    line: u64,
    view: View,
    end: End,
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    NotYet,
    /// The job has ended and all its lines were sent; the page has not been notified yet.
    Pending,
    Sent,
}

/// Streams the output. The id of each event is the number of its last line, so that a browser can continue
/// after a lost connection.
pub(super) async fn stream(
    State(pages): State<Pages>,
    Path(job): Path<String>,
    Query(asked): Query<LiveQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiProblem> {
    let JobRecord { id: job, .. } = pages.client.get(&format!("jobs/{}", segment(&job))).await?;
    let known = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let line = known.unwrap_or(asked.after);
    let lines = pages.client.lines(&format!("jobs/{job}/output?follow=1&after={line}")).await?;
    let view = if asked.raw == 1 { View::Raw } else { View::Transcript };
    let begin = Live { lines, line, view, end: End::NotYet };
    let events = stream::unfold(begin, |mut live| async {
        let event = live.next().await?;
        Some((Ok::<_, Infallible>(event), live))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

impl Live {
    /// Returns the next event; none ends the answer. A page that was not notified of the job's end
    /// reconnects.
    async fn next(&mut self) -> Option<Event> {
        let mut page = String::new();
        let mut gathered = 0;
        // Wait for the first line, and only briefly for those after it.
        while self.end == End::NotYet && gathered < MAX_LINES_PER_EVENT {
            let next = self.lines.next();
            let line = if gathered == 0 {
                next.await
            } else {
                match tokio::time::timeout(GATHER_TIME, next).await {
                    Ok(line) => line,
                    Err(_) => break,
                }
            };
            match line {
                Ok(Some(line)) => {
                    self.line += 1;
                    gathered += 1;
                    page.push_str(&growing(self.line, &line, self.view).into_string());
                }
                Ok(None) => self.end = End::Pending,
                Err(_) => self.end = End::Sent,
            }
        }
        let event = Event::default().id(self.line.to_string());
        if gathered > 0 {
            return Some(event.data(page));
        }
        let is_pending = self.end == End::Pending;
        self.end = End::Sent;
        is_pending.then(|| event.event("end").data("the job has ended"))
    }
}
