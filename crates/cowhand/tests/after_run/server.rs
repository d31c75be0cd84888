//! A server on loopback that records its requests, with a fake chat of each kind.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) asked: Vec<Asked>,
    /// Messages by channel.
    pub(crate) messages: BTreeMap<String, Vec<Value>>,
    /// Target of `/redirect`.
    pub(crate) redirect: String,
    /// Number of further answers with 429.
    pub(crate) slower: u32,
}

pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) kept: Arc<Mutex<Kept>>,
    _runtime: tokio::runtime::Runtime,
}

pub(crate) const TOKEN: &str = "xoxb-canary-of-the-chat";

impl Server {
    pub(crate) fn start() -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let kept = Arc::new(Mutex::new(Kept::default()));
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(answer).with_state(Arc::clone(&kept));
        runtime.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, kept, _runtime: runtime }
    }

    /// Returns the requests for this path.
    pub(crate) fn asked(&self, path: &str) -> Vec<Asked> {
        self.kept.lock().unwrap().asked.iter().filter(|asked| asked.path == path).cloned().collect()
    }

    pub(crate) fn messages(&self, channel: &str) -> Vec<Value> {
        self.kept.lock().unwrap().messages.get(channel).cloned().unwrap_or_default()
    }
}

async fn answer(
    State(kept): State<Arc<Mutex<Kept>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let path = uri.path().to_owned();
    let body = String::from_utf8_lossy(&body).into_owned();
    let (turn, redirect) = {
        let mut kept = kept.lock().unwrap();
        kept.asked.push(Asked { method, path: path.clone(), headers: headers.clone(), body: body.clone() });
        (kept.asked.iter().filter(|asked| asked.path == path).count(), kept.redirect.clone())
    };
    let to = |status: u16, to: &str| {
        (StatusCode::from_u16(status).unwrap(), [("location", to.to_owned())]).into_response()
    };
    match path.as_str() {
        "/ok" => "thank you".into_response(),
        // Returns all headers of the request, as some servers do.
        "/echo" => format!("{headers:?}").into_response(),
        "/broken" => (StatusCode::INTERNAL_SERVER_ERROR, "x".repeat(1 << 20)).into_response(),
        "/flaky" if turn == 1 => (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "1")]).into_response(),
        "/flaky" => "at last".into_response(),
        "/silent" => std::future::pending().await,
        "/moved" => to(308, "/ok"),
        "/circle" => to(302, "/circle"),
        "/elsewhere" => to(303, "/ok"),
        "/redirect" => to(307, &redirect),
        "/slack/chat.postMessage" => slack(&kept, &headers, &body),
        path => match path
            .strip_prefix("/discord/api/v10/channels/")
            .and_then(|rest| rest.strip_suffix("/messages"))
        {
            Some(channel) => discord(&kept, channel, &headers, &body),
            None => StatusCode::NOT_FOUND.into_response(),
        },
    }
}

fn slack(kept: &Mutex<Kept>, headers: &HeaderMap, body: &str) -> Response {
    let mut kept = kept.lock().unwrap();
    let refused = |error: &str| json!({ "ok": false, "error": error }).to_string().into_response();
    if headers.get("authorization").is_none_or(|token| token != &format!("Bearer {TOKEN}")) {
        return refused("invalid_auth");
    }
    if kept.slower > 0 {
        kept.slower -= 1;
        return (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "1")]).into_response();
    }
    let message: Value = serde_json::from_str(body).unwrap();
    match message["channel"].as_str() {
        Some(channel) if channel.starts_with('C') => {
            let messages = kept.messages.entry(channel.to_owned()).or_default();
            messages.push(message.clone());
            json!({ "ok": true, "channel": channel, "ts": messages.len().to_string() })
                .to_string()
                .into_response()
        }
        _ => refused("channel_not_found"),
    }
}

fn discord(kept: &Mutex<Kept>, channel: &str, headers: &HeaderMap, body: &str) -> Response {
    let mut kept = kept.lock().unwrap();
    let refused =
        |status: u16, told: Value| (StatusCode::from_u16(status).unwrap(), told.to_string()).into_response();
    if headers.get("authorization").is_none_or(|token| token != &format!("Bot {TOKEN}")) {
        return refused(401, json!({ "message": "401: Unauthorized", "code": 0 }));
    }
    if kept.slower > 0 {
        kept.slower -= 1;
        return refused(
            429,
            json!({ "message": "You are being rate limited.", "retry_after": 0.2, "global": false }),
        );
    }
    if !channel.bytes().all(|byte| byte.is_ascii_digit()) {
        return refused(404, json!({ "message": "Unknown Channel", "code": 10003 }));
    }
    let message: Value = serde_json::from_str(body).unwrap();
    let nonce = message["nonce"].as_str().unwrap();
    assert!(nonce.len() <= 25, "Discord takes no longer one: {nonce}");
    let messages = kept.messages.entry(channel.to_owned()).or_default();
    // A repeated nonce means the same message.
    if !messages.iter().any(|known| known["nonce"] == message["nonce"]) {
        messages.push(message.clone());
    }
    json!({ "id": messages.len().to_string() }).to_string().into_response()
}
