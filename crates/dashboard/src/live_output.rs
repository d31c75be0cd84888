//! Streams the output of a running job as rendered lines, in server-sent events, to the script of the job's page.

use std::convert::Infallible;
use std::time::Duration;

use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use cowhand_core::id::JobId;
use cowhand_core::job::JobRecord;
use futures_util::stream;
use maud::Markup;
use serde::Deserialize;

use super::output::{OutputForm, render_partial};
use super::{Pages, answer};
use cowhand_web::api::{ApiProblem, KEEP_ALIVE_EVERY, Lines, segment};

#[derive(Debug, Deserialize)]
pub(super) struct LiveQuery {
    #[serde(default)]
    after: u64,
    #[serde(default)]
    raw: u8,
    /// Lines as a conversation shows them: 1 without the results of tools, 2 with them.
    #[serde(default)]
    chat: u8,
}

/// Maximum number of lines in one event.
const MAX_LINES_PER_EVENT: usize = 250;
/// Time for which an event with fewer lines waits for the next line.
const NEXT_LINE_TIMEOUT: Duration = Duration::from_millis(40);

struct Live {
    lines: Lines,
    line: u64,
    job: JobId,
    form: LiveForm,
    end: EndEvent,
}

/// Form of the lines.
#[derive(Debug, Clone, Copy)]
enum LiveForm {
    /// As on the page of the job.
    Lines(OutputForm),
    /// As in a conversation.
    Answer { tool_results: bool },
}

impl LiveForm {
    fn render(self, job: &JobId, number: u64, line: &str) -> Markup {
        match self {
            Self::Lines(view) => render_partial(number, line, view),
            Self::Answer { tool_results } => answer::render_line(job.as_str(), number, line, tool_results),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum EndEvent {
    NotYet,
    /// The job has ended and all its lines were read; the `end` event has not been sent yet.
    Pending,
    /// The `end` event was sent, or an error has ended the response.
    Closed,
}

/// Streams the output. The id of each event is the number of its last line, so that a browser can continue
/// after a lost connection.
pub(super) async fn stream(
    State(pages): State<Pages>,
    Path(job): Path<String>,
    Query(params): Query<LiveQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiProblem> {
    let JobRecord { id: job, .. } = pages.client.get(&format!("jobs/{}", segment(&job))).await?;
    let last_event_id = headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let line = last_event_id.unwrap_or(params.after);
    let lines = pages.client.lines(&format!("jobs/{job}/output?follow=1&after={line}")).await?;
    let form = match (params.chat, params.raw) {
        (0, 1) => LiveForm::Lines(OutputForm::Raw),
        (0, _) => LiveForm::Lines(OutputForm::Transcript),
        (chat, _) => LiveForm::Answer { tool_results: chat == 2 },
    };
    let start = Live { lines, line, job, form, end: EndEvent::NotYet };
    let events = stream::unfold(start, |mut live| async {
        let event = live.next().await?;
        Some((Ok::<_, Infallible>(event), live))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE_EVERY)).into_response())
}

impl Live {
    /// Returns the next event; none ends the response. After an error, no `end` event is sent, so that the page
    /// reconnects.
    async fn next(&mut self) -> Option<Event> {
        let mut html = String::new();
        let mut line_count = 0;
        // Wait for the first line without a limit, and only briefly for further lines.
        while self.end == EndEvent::NotYet && line_count < MAX_LINES_PER_EVENT {
            let next = self.lines.next();
            let line = if line_count == 0 {
                next.await
            } else {
                match tokio::time::timeout(NEXT_LINE_TIMEOUT, next).await {
                    Ok(line) => line,
                    Err(_) => break,
                }
            };
            match line {
                Ok(Some(line)) => {
                    self.line += 1;
                    line_count += 1;
                    html.push_str(&self.form.render(&self.job, self.line, &line).into_string());
                }
                Ok(None) => self.end = EndEvent::Pending,
                Err(_) => self.end = EndEvent::Closed,
            }
        }
        let event = Event::default().id(self.line.to_string());
        if line_count > 0 {
            return Some(event.data(html));
        }
        let is_pending = self.end == EndEvent::Pending;
        self.end = EndEvent::Closed;
        is_pending.then(|| event.event("end").data("the job has ended"))
    }
}
