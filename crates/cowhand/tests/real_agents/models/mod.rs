//! A fake model on loopback, with the APIs of four vendors. A word in the prompt selects its behaviour.

mod anthropic;
mod chat;
mod gemini;
mod responses;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Tokens of every answer.
pub(crate) const INPUT: u64 = 700;
pub(crate) const CACHED: u64 = 300;
pub(crate) const OUTPUT: u64 = 50;

/// Server on its own thread, which ends when this is dropped.
pub(crate) struct Models {
    address: SocketAddr,
    shared: Arc<Shared>,
    _runtime: tokio::runtime::Runtime,
}

/// State that all requests share.
#[derive(Default)]
struct Shared {
    served: Mutex<Vec<Served>>,
    /// End of the current limit.
    opens: Mutex<Option<SystemTime>>,
    /// Directories of the agents that have reached the limit.
    desks: watch::Sender<HashSet<String>>,
    /// Number of further answers for a loop, if limited.
    answers: Mutex<Option<usize>>,
}

/// Duration of a limit, from the moment at which all agents have reached it.
const LIMIT: Duration = Duration::from_secs(5);
/// Number of agents that share the provider.
pub(crate) const SHARING: usize = 3;

/// Request with its answer.
#[derive(Debug, Clone)]
pub(crate) struct Served {
    pub(crate) path: String,
    pub(crate) body: Value,
    /// Key, with the header and the prefix with which it came.
    pub(crate) key: Option<String>,
    pub(crate) scenario: Scenario,
    pub(crate) got: Got,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Got {
    Words,
    Shell,
    Error,
    /// The request waits for an answer until the client disconnects.
    Nothing,
}

/// Behaviour that the prompt selects, by a word such as `SCENARIO:tool`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scenario {
    Text,
    /// One shell command, then a text.
    Tool,
    /// One shell command that is not harmless, then a text.
    Write,
    /// A question to a person, then a text.
    Question,
    /// One shell command after another, with a delay before each answer.
    Loop,
    /// One shell command after another, without a delay.
    Spin,
    /// A shell command that does not end, with a child in its own session.
    Setsid,
    /// One shell command that ends when the file `go` exists, then a text.
    Gate,
    /// Text that takes longer than any test waits.
    Slow,
    /// Some text, then the connection is closed.
    Cut,
    /// One shell command, then a limit, and a text after its end.
    Limited,
    /// Some text, with the usage windows of the account: 90% of the 5-hour window and 40% of the week are used.
    Windows,
    Error(u16),
}

impl Scenario {
    /// Returns the scenario of the last such word. A continued session contains earlier words too.
    fn of(messages: &str) -> Self {
        let Some((_, word)) = messages.rsplit_once("SCENARIO:") else { return Self::Text };
        let end = word.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(word.len());
        match &word[..end] {
            "tool" => Self::Tool,
            "write" => Self::Write,
            "question" => Self::Question,
            "loop" => Self::Loop,
            "spin" => Self::Spin,
            "setsid" => Self::Setsid,
            "gate" => Self::Gate,
            "slow" => Self::Slow,
            "cut" => Self::Cut,
            "limited" => Self::Limited,
            "windows" => Self::Windows,
            word => {
                word.strip_prefix("err").and_then(|code| code.parse().ok()).map_or(Self::Text, Self::Error)
            }
        }
    }
}

/// Answer to a request.
enum Reply {
    Words(String),
    Shell(String),
    Question,
}

/// API of a vendor.
struct Vendor {
    /// Field of a request with its conversation.
    conversation: &'static str,
    /// Text that only an answered tool call contains.
    answered: &'static str,
    words: fn(&Value, &[&str]) -> Vec<String>,
    shell: fn(&Value, &str) -> Vec<String>,
}

impl Models {
    pub(crate) fn start() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let shared = Arc::<Shared>::default();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().fallback(serve).with_state(Arc::clone(&shared));
        runtime.spawn(async move { axum::serve(listener, app).await });
        Self { address, shared, _runtime: runtime }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Limits the number of answers for a loop; the next request gets none.
    pub(crate) fn answers(&self, count: usize) {
        *self.shared.answers.lock().unwrap_or_else(PoisonError::into_inner) = Some(count);
    }

    /// Returns all requests so far, including internal ones of the programs.
    pub(crate) fn served(&self) -> Vec<Served> {
        self.shared.served.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn serve(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let header = ["x-api-key", "x-goog-api-key", "authorization"].into_iter().find_map(|name| {
        let value = request.headers().get(name)?.to_str().ok()?;
        Some(format!("{name}: {value}"))
    });
    let body = axum::body::to_bytes(request.into_body(), 64 << 20).await.unwrap_or_default();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let (vendor, streamed) = match path.as_str() {
        "/v1/messages" => (anthropic::VENDOR, body["stream"] == true),
        "/v1/responses" => (responses::VENDOR, true),
        "/v1/chat/completions" => (chat::VENDOR, body["stream"] == true),
        path if path.ends_with(":streamGenerateContent") => (gemini::VENDOR, true),
        path if path.ends_with(":generateContent") => (gemini::VENDOR, false),
        _ => {
            return (StatusCode::NOT_FOUND, Json(json!({"error": {"message": "no such thing here"}})))
                .into_response();
        }
    };
    let conversation = body[vendor.conversation].to_string();
    let scenario = Scenario::of(&conversation);
    let since = conversation.rfind("SCENARIO:").map_or("", |at| &conversation[at..]);
    let answered = since.contains(vendor.answered);
    if scenario == Scenario::Limited && answered {
        shared.everybody(&body.to_string()).await;
    }
    let limit = (scenario == Scenario::Limited).then(|| shared.limit(answered)).flatten();
    let got = match scenario {
        Scenario::Error(_) => Got::Error,
        _ if limit.is_some() => Got::Error,
        // A request without a shell tool is an internal one beside the loop.
        Scenario::Loop if shell_of(&body["tools"]).is_some() && !shared.has_an_answer() => Got::Nothing,
        Scenario::Tool | Scenario::Setsid | Scenario::Gate | Scenario::Limited if !answered => Got::Shell,
        _ => Got::Words,
    };
    let request = Served { path, body: body.clone(), key: header, scenario, got };
    shared.served.lock().unwrap_or_else(PoisonError::into_inner).push(request);
    if let Scenario::Error(code) = scenario {
        return error(code);
    }
    if got == Got::Nothing {
        std::future::pending::<()>().await;
    }
    if let Some(opens) = limit {
        return used_up(opens);
    }
    let mut response = answer(&vendor, &body, scenario, answered, streamed);
    if scenario == Scenario::Windows {
        report_windows(response.headers_mut());
    }
    response
}

/// Adds the headers in which the vendors report the usage windows of subscription accounts.
fn report_windows(headers: &mut HeaderMap) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    let [five, week] = [2, 3 * 24].map(|hours| (now + hours * 3_600).to_string());
    for (name, value) in [
        ("anthropic-ratelimit-unified-status", "allowed"),
        ("anthropic-ratelimit-unified-reset", &five),
        ("anthropic-ratelimit-unified-representative-claim", "five_hour"),
        ("anthropic-ratelimit-unified-5h-status", "allowed_warning"),
        ("anthropic-ratelimit-unified-5h-utilization", "0.9"),
        ("anthropic-ratelimit-unified-5h-reset", &five),
        ("anthropic-ratelimit-unified-7d-status", "allowed"),
        ("anthropic-ratelimit-unified-7d-utilization", "0.4"),
        ("anthropic-ratelimit-unified-7d-reset", &week),
        ("x-codex-primary-used-percent", "90"),
        ("x-codex-primary-window-minutes", "300"),
        ("x-codex-primary-reset-at", &five),
        ("x-codex-secondary-used-percent", "40"),
        ("x-codex-secondary-window-minutes", "10080"),
        ("x-codex-secondary-reset-at", &week),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    }
}

impl Shared {
    fn has_an_answer(&self) -> bool {
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(left) = answers.as_mut() else { return true };
        let has_one = *left > 0;
        *left = left.saturating_sub(1);
        has_one
    }

    /// Waits until all agents have reached the limit, however slow one of them is.
    async fn everybody(&self, request: &str) {
        let desk = request.split_once("/desk-").map_or("", |(_, rest)| rest);
        let end = desk.find(|letter: char| !letter.is_ascii_alphanumeric()).unwrap_or(desk.len());
        self.desks.send_if_modified(|desks| desks.insert(desk[..end].to_owned()));
        // This needs no time limit: if an agent is missing, the test fails before the other agents time out.
        let _ = self.desks.subscribe().wait_for(|desks| desks.len() >= SHARING).await;
    }

    /// Returns the end of the current limit, if there is one. The first request with the answer of a tool begins the
    /// limit.
    fn limit(&self, begins: bool) -> Option<SystemTime> {
        let mut opens = self.opens.lock().unwrap_or_else(PoisonError::into_inner);
        if begins {
            opens.get_or_insert_with(|| SystemTime::now() + LIMIT);
        }
        opens.filter(|opens| *opens > SystemTime::now())
    }
}

/// Builds the error of a used-up limit, as the vendors return it to subscription accounts.
fn used_up(opens: SystemTime) -> Response {
    let second = opens.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() + 1;
    let reset = second.to_string();
    let headers = [
        ("anthropic-ratelimit-unified-status", "rejected"),
        ("anthropic-ratelimit-unified-representative-claim", "five_hour"),
        ("anthropic-ratelimit-unified-reset", reset.as_str()),
        ("x-should-retry", "false"),
        ("x-codex-primary-used-percent", "100"),
        ("x-codex-primary-window-minutes", "300"),
        ("x-codex-primary-reset-at", reset.as_str()),
    ];
    let body = json!({
        "type": "error",
        "error": {"type": "usage_limit_reached", "message": "the limit is reached", "resets_at": second},
    });
    (StatusCode::TOO_MANY_REQUESTS, headers, Json(body)).into_response()
}

fn error(code: u16) -> Response {
    let kind = match code {
        400 => "invalid_request_error",
        401 => "authentication_error",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        _ => "api_error",
    };
    let body = json!({
        "type": "error",
        "error": {"type": kind, "code": code, "message": format!("the model says {code}"), "status": "FAKE"},
    });
    // Programs that retry do not have to wait.
    (StatusCode::from_u16(code).unwrap(), [("retry-after-ms", "1")], Json(body)).into_response()
}

fn answer(vendor: &Vendor, body: &Value, scenario: Scenario, answered: bool, streamed: bool) -> Response {
    let reply = match scenario {
        Scenario::Loop | Scenario::Spin => Reply::Shell("echo once more".to_owned()),
        Scenario::Tool if !answered => Reply::Shell("echo from-the-tool".to_owned()),
        Scenario::Setsid if !answered => {
            // The child writes its pid; neither of the two ends by itself.
            Reply::Shell("setsid sh -c 'echo $$ > child.pid; exec sleep 600' & sleep 600; wait".to_owned())
        }
        Scenario::Gate if !answered => {
            Reply::Shell("echo up > up; while [ ! -e go ]; do sleep 0.1; done; echo went".to_owned())
        }
        Scenario::Question if !answered => Reply::Question,
        Scenario::Write if !answered => Reply::Shell("touch was-here.txt".to_owned()),
        Scenario::Limited if !answered => Reply::Shell("echo once >> done.txt".to_owned()),
        Scenario::Tool
        | Scenario::Write
        | Scenario::Setsid
        | Scenario::Gate
        | Scenario::Limited
        | Scenario::Question => Reply::Words("The tool has answered.".to_owned()),
        Scenario::Slow => Reply::Words("One word after the other. ".repeat(200)),
        _ => Reply::Words("Hello from the model.".to_owned()),
    };
    let events = match &reply {
        Reply::Words(text) => (vendor.words)(body, &text.split_inclusive(' ').collect::<Vec<_>>()),
        Reply::Shell(command) => (vendor.shell)(body, command),
        Reply::Question => anthropic::question(body),
    };
    let pause = Duration::from_millis(match scenario {
        Scenario::Slow => 100,
        Scenario::Loop => 250,
        _ => 0,
    });
    // A cut stream breaks off after half of its events.
    let count = if scenario == Scenario::Cut { events.len() / 2 } else { events.len() };
    let events = stream::iter(events.into_iter().take(count)).then(move |event| async move {
        tokio::time::sleep(pause).await;
        Ok::<_, std::io::Error>(Bytes::from(event))
    });
    let torn = scenario == Scenario::Cut;
    let end = stream::iter(torn.then(|| Err(std::io::Error::other("cut"))));
    let body = Body::from_stream(events.chain(end));
    let kind = if streamed { "text/event-stream" } else { "application/json" };
    (StatusCode::OK, [(header::CONTENT_TYPE, kind)], body).into_response()
}

/// Formats a server-sent event.
fn event(name: Option<&str>, data: &Value) -> String {
    let name = name.map(|name| format!("event: {name}\n")).unwrap_or_default();
    format!("{name}data: {data}\n\n")
}

/// Returns the shell among the tools of a request, by the names that the four programs use.
fn shell_of(tools: &Value) -> Option<String> {
    const SHELLS: [&str; 6] = ["Bash", "exec_command", "shell_command", "shell", "run_shell_command", "bash"];
    let offered = tools.to_string();
    SHELLS.into_iter().find(|name| offered.contains(&format!("\"name\":\"{name}\""))).map(str::to_owned)
}
