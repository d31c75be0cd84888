//! A fake collector on loopback, which keeps what it receives and can misbehave.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use tokio::runtime::Runtime;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Mood {
    Well,
    /// Answers late.
    Slow,
    /// Accepts requests and never answers.
    Silent,
    Refusing(u16),
    /// Refuses this many requests, then works.
    Recovering(u16, usize),
    /// Accepts all but one span.
    Picky,
}

impl Mood {
    fn now(&mut self) -> Self {
        let now = *self;
        if let Self::Recovering(code, left) = now {
            *self = if left > 1 { Self::Recovering(code, left - 1) } else { Self::Well };
        }
        now
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Heard {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
    /// Set if the request is not refused, and will be answered.
    taken: bool,
}

#[derive(Debug, Clone)]
struct Memory {
    mood: Arc<Mutex<Mood>>,
    heard: Arc<Mutex<Vec<Heard>>>,
}

pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    memory: Memory,
    /// Runtime of the server. The server ends when the runtime is dropped.
    _runtime: Runtime,
}

impl Collector {
    pub(crate) fn new() -> Self {
        Self::at("127.0.0.1:0".parse().unwrap())
    }

    pub(crate) fn at(address: SocketAddr) -> Self {
        let runtime = Runtime::new().unwrap();
        let memory = Memory { mood: Arc::new(Mutex::new(Mood::Well)), heard: Arc::default() };
        let listener = runtime.block_on(tokio::net::TcpListener::bind(address)).unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(take).with_state(memory.clone());
        runtime.spawn(async { axum::serve(listener, router).await.unwrap() });
        Self { address, memory, _runtime: runtime }
    }

    /// Returns an address at which nothing listens for now.
    pub(crate) fn nowhere() -> SocketAddr {
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn turn(&self, mood: Mood) {
        *self.memory.mood.lock().unwrap() = mood;
    }

    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.memory.heard.lock().unwrap().clone()
    }

    /// Returns every accepted span once, even if it came twice.
    pub(crate) fn spans(&self) -> Vec<Value> {
        let mut spans: Vec<Value> = Vec::new();
        for heard in self.heard().into_iter().filter(|heard| heard.taken) {
            let document: Value = serde_json::from_str(&heard.body).unwrap();
            for resource in document["resourceSpans"].as_array().unwrap() {
                for scope in resource["scopeSpans"].as_array().unwrap() {
                    spans.extend(scope["spans"].as_array().unwrap().iter().cloned());
                }
            }
        }
        let mut seen: Vec<Value> = Vec::new();
        for span in spans {
            match seen.iter().find(|known| known["spanId"] == span["spanId"]) {
                Some(known) => assert_eq!(*known, span, "sent twice, it is the same"),
                None => seen.push(span),
            }
        }
        seen
    }

    /// Returns all spans of a job, when its root has arrived.
    pub(crate) fn trace(&self, job: &str) -> Option<Vec<Value>> {
        let spans = self.spans();
        let is_root = |span: &&Value| text(span, "cowhand.job") == Some(job.to_owned());
        let roots: Vec<_> = spans.iter().filter(is_root).collect();
        assert!(roots.len() <= 1, "{roots:?}");
        let trace = roots.first()?["traceId"].clone();
        Some(spans.into_iter().filter(|span| span["traceId"] == trace).collect())
    }

    /// Checks all received requests against the official schema, and returns the number of spans.
    pub(crate) fn check(&self) -> usize {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let python = target.join(format!("tools/otlp-{VERSION}/bin/python"));
        assert!(python.exists(), "{} is missing; scripts/test installs it", python.display());
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces/check.py");
        let mut command = Command::new(python);
        command.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        for heard in self.heard() {
            writeln!(stdin, "{}", heard.body).unwrap();
        }
        drop(stdin);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
    }
}

/// Version of opentelemetry-proto that `scripts/test` installs.
const VERSION: &str = "1.45.2";

async fn take(State(memory): State<Memory>, uri: Uri, headers: HeaderMap, body: String) -> Response {
    let mood = memory.mood.lock().unwrap().now();
    let taken = matches!(mood, Mood::Well | Mood::Slow | Mood::Picky);
    memory.heard.lock().unwrap().push(Heard { path: uri.path().to_owned(), headers, body, taken });
    let json = [("content-type", "application/json")];
    match mood {
        Mood::Well => (json, "{}").into_response(),
        Mood::Slow => {
            tokio::time::sleep(Duration::from_secs(2)).await;
            (json, "{}").into_response()
        }
        Mood::Silent => std::future::pending().await,
        Mood::Refusing(code) | Mood::Recovering(code, _) => {
            let headers = [("retry-after", "0"), ("location", "/elsewhere")];
            (StatusCode::from_u16(code).unwrap(), headers, "no").into_response()
        }
        Mood::Picky => {
            let said = r#"{"partialSuccess": {"rejectedSpans": "1", "errorMessage": "too blue"}}"#;
            (json, said).into_response()
        }
    }
}

fn value<'v>(span: &'v Value, key: &str) -> Option<&'v Value> {
    let attributes = span["attributes"].as_array().unwrap();
    attributes.iter().find(|attribute| attribute["key"] == key).map(|attribute| &attribute["value"])
}

/// Returns an attribute of any type as text.
pub(crate) fn text(span: &Value, key: &str) -> Option<String> {
    let value = value(span, key)?.as_object().unwrap().values().next().unwrap();
    Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

/// Returns start and end, in nanoseconds.
pub(crate) fn times(span: &Value) -> (u64, u64) {
    let time = |key: &str| span[key].as_str().unwrap().parse().unwrap();
    (time("startTimeUnixNano"), time("endTimeUnixNano"))
}

pub(crate) fn names(spans: &[Value]) -> Vec<&str> {
    let mut names: Vec<_> = spans.iter().map(|span| span["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    names
}

pub(crate) fn named<'s>(spans: &'s [Value], name: &str) -> &'s Value {
    spans.iter().find(|span| span["name"] == name).unwrap_or_else(|| panic!("no {name} in {spans:#?}"))
}
