//! Events: what happened, in order.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use cowhand_core::event::Event;
use schemars::JsonSchema;
use serde::Deserialize;

use super::follow::{self, Form, Growing, Part};
use super::given::{Count, Params, Switch};
use super::{Api, Page, Problem};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Asked {
    /// Only what has a greater number; unset means the newest `limit`.
    #[schemars(range(min = 0))]
    after: Option<i64>,
    /// How many at most, unless it goes on; unset means 100.
    limit: Option<Count>,
    /// Go on with what happens from now on, one event a line. Clients that accept `text/event-stream` get that, with
    /// the numbers as ids; they always go on, and go on after `Last-Event-ID`.
    follow: Switch,
    /// Only what somebody asked for, which says who.
    audit: Switch,
}

const USUAL: u32 = 100;

pub(super) async fn list(
    State(api): State<Api>,
    headers: HeaderMap,
    Params(asked): Params<Asked>,
) -> Result<Response, Problem> {
    let limit = Count::or(asked.limit, USUAL);
    let last_id = follow::last_event_id(&headers)?.and_then(|id| i64::try_from(id).ok());
    let (form, audit) = (Form::of(&headers), asked.audit.is_on());
    let after = match last_id.or(asked.after) {
        Some(after) => Some(after),
        None if audit => None,
        None => Some(api.store.last_event().await? - i64::from(limit)),
    };
    if asked.follow.is_on() || form == Form::Events {
        return Ok(follow::answer(form, Log { api, after: after.unwrap_or_default(), audit }));
    }
    let items = match after {
        Some(after) if audit => api.store.asked_after(after, limit).await?,
        Some(after) => api.store.events_after(after, limit).await?,
        None => api.store.last_asked(limit).await?,
    };
    let full = items.len() == limit as usize;
    let next_cursor = items.last().filter(|_| full).map(|event| event.seq.to_string());
    Ok(Json(Page { items, next_cursor }).into_response())
}

/// The log from some place on.
struct Log {
    api: Api,
    after: i64,
    audit: bool,
}

impl Growing for Log {
    async fn more(&mut self) -> Result<Option<Part>, Problem> {
        let events = self.api.store.events_after(self.after, Count::MOST).await?;
        let Some(number) = events.first().map(|event| event.seq) else {
            // Without a daemon nothing more will happen.
            return Ok(self.api.daemon().is_ok().then(Part::default));
        };
        let mut lines = Vec::new();
        // One by one: what stands behind a gap comes with the next look.
        for (_, event) in (number..).zip(events).take_while(|(number, event)| *number == event.seq) {
            self.after = event.seq;
            if !self.audit || event.by.is_some() {
                write_line(&mut lines, &event)?;
            }
        }
        Ok(Some(Part { lines: lines.into(), number }))
    }

    async fn grown(&mut self) {
        self.api.store.changed(self.after).await;
    }
}

fn write_line(lines: &mut Vec<u8>, event: &Event) -> Result<(), Problem> {
    serde_json::to_writer(&mut *lines, event).map_err(|error| Problem::unavailable(error.to_string()))?;
    lines.push(b'\n');
    Ok(())
}
