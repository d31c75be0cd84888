//! OTLP over HTTP with JSON: serialises spans and sends them to a collector.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use tracing::{debug, warn};

use super::collector::Collector;
use super::error::TraceError;
use super::span::{Attribute, Span, SpanStatus};
use cowhand_system::digest::hex;
use cowhand_system::http;

pub(super) struct Exporter {
    http: Client,
    collector: Collector,
    node: String,
    /// False after a request whose last try had a temporary error, until a request succeeds. While it is false, each
    /// request is tried only once.
    is_available: bool,
}

/// Time limit of one try.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
const EXPORT_TRIES: u32 = 4;
/// Pause before the second try; it doubles each time.
const FIRST_EXPORT_PAUSE: Duration = Duration::from_millis(500);
const MAX_EXPORT_PAUSE: Duration = Duration::from_secs(30);
/// Longest part of an answer that is read.
const MAX_ANSWER: usize = 64 << 10;

/// Error of one try.
#[derive(Debug)]
enum ExportError {
    /// A temporary error, perhaps with the pause that the collector asked for.
    Temporary {
        message: String,
        retry_after: Option<Duration>,
    },
    Permanent(String),
}

impl Exporter {
    pub(super) fn new(collector: Collector, node: &str) -> Result<Self, TraceError> {
        let client = http::client_builder().user_agent(http::USER_AGENT).timeout(EXPORT_TIMEOUT);
        let http = client.build().map_err(TraceError::NoClient)?;
        Ok(Self { http, collector, node: node.to_owned(), is_available: true })
    }

    pub(super) fn display_address(&self) -> String {
        self.collector.display_address()
    }

    /// Sends spans, with several tries if necessary. While the collector is unavailable, only one try is made.
    pub(super) async fn send(&mut self, spans: &[Span]) -> Result<(), TraceError> {
        let body = document(spans, &self.node).to_string();
        let tries = if self.is_available { EXPORT_TRIES } else { 1 };
        let mut pause = FIRST_EXPORT_PAUSE;
        for tries_left in (0..tries).rev() {
            let message = match self.post(body.clone()).await {
                Ok(()) => {
                    self.is_available = true;
                    return Ok(());
                }
                Err(ExportError::Temporary { message, retry_after }) if tries_left > 0 => {
                    // The wait is never shorter than the exporter's own pause.
                    let wait = retry_after.unwrap_or_default().max(pause).min(MAX_EXPORT_PAUSE);
                    debug!(?wait, "traces are sent again: {message}");
                    tokio::time::sleep(wait).await;
                    pause *= 2;
                    continue;
                }
                Err(ExportError::Temporary { message, .. }) => {
                    self.is_available = false;
                    message
                }
                // The collector is available and refuses these spans.
                Err(ExportError::Permanent(message)) => message,
            };
            return Err(TraceError::NotSent(message));
        }
        Ok(())
    }

    async fn post(&self, body: String) -> Result<(), ExportError> {
        let request = self.http.post(self.collector.url.clone()).headers(self.collector.headers.clone());
        let json = HeaderValue::from_static("application/json");
        let answer = request.header(CONTENT_TYPE, json).body(body).send().await.map_err(no_answer)?;
        let (status, retry_after) = (answer.status(), retry_after(&answer));
        if status.is_success() {
            note_rejected(&read(answer).await.map_err(no_answer)?);
            return Ok(());
        }
        let message = format!("the collector answered {status}");
        // OTLP allows retries for these status codes only.
        if [429, 502, 503, 504].map(|code| StatusCode::from_u16(code).ok()).contains(&Some(status)) {
            return Err(ExportError::Temporary { message, retry_after });
        }
        Err(ExportError::Permanent(message))
    }
}

/// Converts an error. Leaves out the address, which may contain a key.
fn no_answer(error: reqwest::Error) -> ExportError {
    let error = error.without_url();
    let (mut message, mut cause) = (error.to_string(), std::error::Error::source(&error));
    while let Some(source) = cause {
        message = format!("{message}: {source}");
        cause = source.source();
    }
    ExportError::Temporary { message, retry_after: None }
}

/// Returns the pause that the collector asks for in seconds; a date is ignored.
fn retry_after(answer: &Response) -> Option<Duration> {
    answer.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

async fn read(mut answer: Response) -> reqwest::Result<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(part) = answer.chunk().await? {
        body.extend_from_slice(&part);
        if body.len() > MAX_ANSWER {
            break;
        }
    }
    Ok(body)
}

/// Logs rejected spans. A collector reports them in a successful answer.
fn note_rejected(body: &[u8]) {
    let Ok(answer) = serde_json::from_slice::<Value>(body) else { return };
    let rejected = &answer["partialSuccess"]["rejectedSpans"];
    let count = rejected.as_u64().or_else(|| rejected.as_str()?.parse().ok()).unwrap_or_default();
    if count > 0 {
        let why = answer["partialSuccess"]["errorMessage"].as_str().unwrap_or("it gave no reason");
        warn!(spans = count, "the collector rejected some spans: {}", cowhand_core::cut::cut(why, 0, 500));
    }
}

/// Builds the body of a request with these spans.
fn document(spans: &[Span], node: &str) -> Value {
    let resource = [
        ("service.name", Attribute::Text("cowhand".to_owned())),
        ("service.version", Attribute::Text(env!("CARGO_PKG_VERSION").to_owned())),
        ("service.instance.id", Attribute::Text(node.to_owned())),
    ];
    let spans: Vec<Value> = spans.iter().map(span_json).collect();
    json!({"resourceSpans": [{
        "resource": {"attributes": attributes(&resource)},
        "scopeSpans": [{"scope": {"name": "cowhand", "version": env!("CARGO_PKG_VERSION")}, "spans": spans}],
    }]})
}

fn span_json(span: &Span) -> Value {
    const INTERNAL: u32 = 1;
    let mut json = json!({
        "traceId": hex(&span.trace),
        "spanId": hex(&span.id),
        "name": span.name,
        "kind": INTERNAL,
        "startTimeUnixNano": nanoseconds(span.start),
        "endTimeUnixNano": nanoseconds(span.end),
        "attributes": attributes(&span.attributes),
        "status": match &span.status {
            SpanStatus::Unset => json!({}),
            SpanStatus::Ok => json!({"code": 1}),
            SpanStatus::Error(None) => json!({"code": 2}),
            SpanStatus::Error(Some(message)) => json!({"code": 2, "message": message}),
        },
    });
    if let Some(parent) = &span.parent {
        json["parentSpanId"] = hex(parent).into();
    }
    if let Some((trace, id)) = &span.link {
        json["links"] = json!([{"traceId": hex(trace), "spanId": hex(id)}]);
    }
    json
}

fn attributes(pairs: &[(&'static str, Attribute)]) -> Vec<Value> {
    let value = |attribute: &Attribute| match attribute {
        Attribute::Text(text) => json!({"stringValue": text}),
        // A 64-bit integer is written as text, and is signed.
        Attribute::Integer(number) => json!({"intValue": number.min(&i64::MAX.cast_unsigned()).to_string()}),
        Attribute::Number(number) => json!({"doubleValue": number}),
        Attribute::Boolean(truth) => json!({"boolValue": truth}),
    };
    pairs.iter().map(|(key, attribute)| json!({"key": key, "value": value(attribute)})).collect()
}

/// Returns the time as text, because JSON cannot represent such large numbers exactly. Times before 1970 become 0.
fn nanoseconds(at: Timestamp) -> String {
    at.as_nanosecond().max(0).to_string()
}
