//! The events of the fleet, in the order of their numbers. The output of jobs is included if it is requested.

use std::collections::VecDeque;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use cowhand_core::event::Event;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::event_output::LiveOutput;
use super::extract::{Count, Params, Switch};
use super::follow::{self, GrowingLines, LinesPart, StreamFormat};
use super::{Api, ApiProblem, OutputCursor, Page};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EventsQuery {
    /// Only events with a number greater than this one. Unset means the newest `limit` events, or all events if both
    /// `audit` and `follow` are set.
    #[schemars(range(min = 0))]
    after: Option<i64>,
    /// Maximum number of events. When following without `after`: the number of earlier events with which the answer
    /// begins. Unset means 100.
    limit: Option<Count>,
    /// Continue with new events as they happen, one event per line. Clients that accept `text/event-stream`
    /// get that format, with the numbers as ids; they always follow, and continue after `Last-Event-ID`.
    follow: Switch,
    /// Only events that somebody requested, with their actor.
    audit: Switch,
    /// Include new output of jobs as `job:output`. These lines are not in the event log and have no number: job and
    /// line identify them.
    output: Switch,
    /// With `output`: the lines that the client has of each job, as `JOB:LINES`, separated by commas. The output
    /// continues there, and jobs that started after the event `after` are read from their first line. The header
    /// `cowhand-output-after` of an answer is the position at which that answer begins.
    output_after: Option<OutputCursor>,
}

const DEFAULT_EVENT_COUNT: u32 = 100;

pub(super) async fn list(
    State(api): State<Api>,
    headers: HeaderMap,
    Params(query): Params<EventsQuery>,
) -> Result<Response, ApiProblem> {
    let limit = Count::or(query.limit, DEFAULT_EVENT_COUNT);
    let last_id = follow::last_event_id(&headers)?.and_then(|id| i64::try_from(id).ok());
    let (format, audit, output) = (StreamFormat::of(&headers), query.audit.is_on(), query.output.is_on());
    let follows = query.follow.is_on() || format == StreamFormat::Events;
    if query.output_after.is_some() && !output {
        return Err(ApiProblem::bad_request("`output_after` needs `output`"));
    }
    if output && (!follows || audit) {
        return Err(ApiProblem::bad_request("`output` needs `follow`, and cannot be combined with `audit`"));
    }
    let after = match last_id.or(query.after) {
        Some(after) => Some(after),
        None if audit => None,
        None => Some(api.store.last_event().await? - i64::from(limit)),
    };
    if follows {
        let after = after.unwrap_or_default();
        let outputs = match &query.output_after {
            _ if !output => None,
            Some(cursor) => Some(LiveOutput::after(&api, after, cursor).await?),
            None => Some(LiveOutput::of_live_jobs(&api).await?),
        };
        let cursor = outputs.as_ref().map(LiveOutput::cursor);
        let log = EventLogReader { api, after, audit, pending: VecDeque::new(), outputs };
        return Ok(with_cursor(follow::answer(format, log), cursor));
    }
    let items = match after {
        Some(after) if audit => api.store.audit_events_after(after, limit).await?,
        Some(after) => api.store.events_after(after, limit).await?,
        None => api.store.last_audit_events(limit).await?,
    };
    let items = api.store.with_jobs(items).await?;
    let is_full = items.len() == limit as usize;
    let next_cursor = items.last().filter(|_| is_full).map(|event| event.seq.to_string());
    Ok(Json(Page { items, next_cursor }).into_response())
}

/// Adds a header with the position at which the output of jobs begins, if there is a cursor.
fn with_cursor(mut answer: Response, cursor: Option<OutputCursor>) -> Response {
    if let Some(value) = cursor.and_then(|cursor| HeaderValue::try_from(cursor.to_string()).ok()) {
        answer.headers_mut().insert(OutputCursor::HEADER, value);
    }
    answer
}

/// Reader of the event log, from a position on.
struct EventLogReader {
    api: Api,
    /// Number of the last event that was passed on or, with `audit`, left out.
    after: i64,
    audit: bool,
    /// Events that were read and not passed on yet.
    pending: VecDeque<Event>,
    /// Output of jobs, if requested.
    outputs: Option<LiveOutput>,
}

/// Number of events that are read together.
const EVENTS_PER_READ: u32 = 100;
/// Size of a part of an answer, in bytes. A part that has reached this size gets no more lines.
pub(super) const PART_BYTES: usize = 1 << 20;

impl GrowingLines for EventLogReader {
    async fn next_part(&mut self) -> Result<Option<LinesPart>, ApiProblem> {
        if self.pending.is_empty() {
            let events = self.api.store.events_after(self.after, EVENTS_PER_READ).await?;
            self.pending = self.api.store.with_jobs(events).await?.into();
            // The numbers in a part have to be consecutive. The next call reads the events after a gap.
            let first = self.pending.front().map_or(0, |event| event.seq);
            let consecutive =
                (first..).zip(&self.pending).take_while(|(number, event)| *number == event.seq).count();
            self.pending.truncate(consecutive);
        }
        if self.pending.is_empty() {
            return self.output_part();
        }
        self.events_part()
    }

    async fn wait_for_growth(&mut self) {
        let changed = self.api.store.changed(self.after);
        match &mut self.outputs {
            Some(outputs) => tokio::select! {
                () = changed => {}
                () = outputs.wait_for_growth() => {}
            },
            None => changed.await,
        }
    }
}

impl EventLogReader {
    /// Passes on events, each after the earlier output of its job.
    fn events_part(&mut self) -> Result<Option<LinesPart>, ApiProblem> {
        let (mut lines, mut first, redactor) = (Vec::new(), None, self.api.redactor());
        while let Some(event) = self.pending.front() {
            if let Some(outputs) = &mut self.outputs {
                let output = outputs.output_before_event(event)?;
                if !output.is_empty() {
                    if first.is_none() {
                        return Ok(Some(LinesPart { lines: output.into(), number: None }));
                    }
                    // The output comes with the next part, before the event.
                    outputs.give_back(output);
                    break;
                }
                outputs.follow(event);
            }
            if !self.audit || event.by.is_some() {
                first.get_or_insert(event.seq);
                let line_start = lines.len();
                write_line(&mut lines, event)?;
                if let Some(masked) = redactor.redact_json(&lines[line_start..]) {
                    lines.truncate(line_start);
                    lines.extend_from_slice(&masked);
                    lines.push(b'\n');
                }
            } else if first.is_some() {
                // Numbers within a part must have no gaps.
                break;
            }
            self.after = event.seq;
            self.pending.pop_front();
            if lines.len() >= PART_BYTES {
                break;
            }
        }
        Ok(Some(LinesPart { lines: lines.into(), number: first }))
    }

    /// Passes on the output of jobs when there is no new event. Returns `None` at the end of the answer.
    fn output_part(&mut self) -> Result<Option<LinesPart>, ApiProblem> {
        let output = match &mut self.outputs {
            Some(outputs) => outputs.new_output()?,
            None => Vec::new(),
        };
        // Without a daemon there will be no more events.
        let continues = self.api.daemon().is_ok() || !output.is_empty();
        Ok(continues.then(|| LinesPart { lines: output.into(), number: None }))
    }
}

pub(super) fn write_line(lines: &mut Vec<u8>, line: &impl Serialize) -> Result<(), ApiProblem> {
    serde_json::to_writer(&mut *lines, line).map_err(|error| ApiProblem::unavailable(error.to_string()))?;
    lines.push(b'\n');
    Ok(())
}
