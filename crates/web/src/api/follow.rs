//! Answers that follow a growing list: first the existing lines, then new ones, until no more can come. An answer
//! consists of lines of JSON, or of server-sent events for clients that accept these.

use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;

use super::ApiProblem;

/// Source of lines to which more lines may be added.
pub(super) trait GrowingLines: Send + 'static {
    /// Returns the next part; an empty part if there is nothing new yet, and none if there will be no more.
    fn next_part(&mut self) -> impl Future<Output = Result<Option<LinesPart>, ApiProblem>> + Send;

    /// Waits until there may be lines that the last `next_part` did not return, including lines that arrived during
    /// that call. Sometimes returns although there are no new lines.
    fn wait_for_growth(&mut self) -> impl Future<Output = ()> + Send;
}

/// Complete lines. If they have numbers, the numbers are consecutive, and a client that has the number of a line can
/// continue after that line.
#[derive(Debug, Default)]
pub(super) struct LinesPart {
    pub(super) lines: Bytes,
    /// Number of the first line; none if the lines have no numbers.
    pub(super) number: Option<i64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamFormat {
    /// Lines of JSON.
    Lines,
    /// Server-sent events, with the numbers of the lines as ids.
    Events,
}

impl StreamFormat {
    /// Returns server-sent events if the header `Accept` names them, and lines of JSON if not.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let accepts = |value: &str| value.split(',').any(|kind| kind.trim().starts_with(EVENT_STREAM));
        let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        if accepted.into_iter().any(accepts) { Self::Events } else { Self::Lines }
    }

    const fn content_type(self) -> &'static str {
        match self {
            Self::Lines => "application/x-ndjson",
            Self::Events => EVENT_STREAM,
        }
    }

    fn write(self, part: LinesPart) -> Bytes {
        match self {
            Self::Lines => part.lines,
            Self::Events => as_events(&part),
        }
    }
}

const EVENT_STREAM: &str = "text/event-stream";

/// Time after which an idle answer in the form of server-sent events gets an empty comment. Proxies close an idle
/// connection, and only a write shows that a client has disconnected.
pub const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);

/// Last event, after which a client must not reconnect. Without it, a browser would reconnect forever.
const END_EVENT: &str = "event: end\ndata: {}\n\n";

/// Returns the id of the last event that a client has, from the header that browsers send when they reconnect.
pub(super) fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, ApiProblem> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let number = value.to_str().ok().and_then(|value| value.parse().ok());
    number.map(Some).ok_or_else(|| ApiProblem::bad_request("Last-Event-ID is not a number"))
}

pub(super) fn answer(format: StreamFormat, growing: impl GrowingLines) -> Response {
    let parts = stream::unfold(Some(growing), move |growing| async move {
        let mut growing = growing?;
        loop {
            match growing.next_part().await {
                Ok(Some(part)) if part.lines.is_empty() => {
                    let is_idle =
                        tokio::time::timeout(KEEP_ALIVE_EVERY, growing.wait_for_growth()).await.is_err();
                    if is_idle && format == StreamFormat::Events {
                        return Some((Ok(Bytes::from_static(b":\n\n")), Some(growing)));
                    }
                }
                Ok(Some(part)) => return Some((Ok(format.write(part)), Some(growing))),
                Ok(None) if format == StreamFormat::Events => {
                    return Some((Ok(Bytes::from_static(END_EVENT.as_bytes())), None));
                }
                Ok(None) => return None,
                // The headers are already sent, so an error can only end the answer.
                Err(problem) => return Some((Err(io::Error::other(problem)), None)),
            }
        }
    });
    let headers = [(header::CONTENT_TYPE, format.content_type()), (header::CACHE_CONTROL, "no-store")];
    (headers, Body::from_stream(parts)).into_response()
}

/// Formats lines as events. A line of JSON contains no line break, so each line is one `data` field.
fn as_events(part: &LinesPart) -> Bytes {
    let mut events = Vec::with_capacity(part.lines.len() * 5 / 4);
    let lines = part.lines.split_inclusive(|byte| *byte == b'\n');
    for (offset, line) in (0..).zip(lines) {
        if let Some(first) = part.number {
            events.extend_from_slice(format!("id: {}\n", first + offset).as_bytes());
        }
        events.extend_from_slice(b"data: ");
        // A carriage return would end the field for a client.
        events.extend(line.iter().copied().filter(|byte| !matches!(byte, b'\n' | b'\r')));
        events.extend_from_slice(b"\n\n");
    }
    events.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_events_with_their_numbers() {
        let part = LinesPart { lines: Bytes::from_static(b"{\"a\":1}\n{\"b\":\r2}\n"), number: Some(7) };
        assert_eq!(as_events(&part), "id: 7\ndata: {\"a\":1}\n\nid: 8\ndata: {\"b\":2}\n\n");
        let part = LinesPart { number: None, ..part };
        assert_eq!(as_events(&part), "data: {\"a\":1}\n\ndata: {\"b\":2}\n\n");
    }

    #[test]
    fn the_format_follows_the_accept_header() {
        for (accept, expected) in [
            (&[][..], StreamFormat::Lines),
            (&["*/*"], StreamFormat::Lines),
            (&["text/event-stream"], StreamFormat::Events),
            (&["text/html, text/event-stream;q=0.9"], StreamFormat::Events),
            (&["application/json", "text/event-stream"], StreamFormat::Events),
        ] {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(header::ACCEPT, value.parse().unwrap());
            }
            assert_eq!(StreamFormat::of(&headers), expected, "{accept:?}");
        }
    }
}
