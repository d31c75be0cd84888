//! A fake GitHub in memory: issues, labels, comments, pages with `Link`, `ETag`s, a rate limit, and planned faults.
//!
//! The fake records every request, so that a test can check the requests and their order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

mod routes;

pub const REPO: &str = "my-org/my-repo";
pub const LOGIN: &str = "cowhand-bot";

/// Fault in the handling of the next request that matches.
#[derive(Debug, Clone)]
pub enum FakeFault {
    /// Returns this answer, and does not execute the request.
    Answer { status: u16, headers: Vec<(&'static str, String)>, body: String },
    /// Executes the request, then returns this status.
    DoneWithStatus(u16),
    /// Executes the request, but ends the connection in the middle of the answer.
    CutAnswer,
    /// Executes the request, but answers only after ten minutes.
    NoAnswer,
}

impl FakeFault {
    pub fn status(status: u16) -> Self {
        Self::Answer { status, headers: Vec::new(), body: json!({ "message": "planned" }).to_string() }
    }

    pub fn with(status: u16, headers: &[(&'static str, &str)], message: &str) -> Self {
        let headers = headers.iter().map(|&(name, value)| (name, value.to_owned())).collect();
        Self::Answer { status, headers, body: json!({ "message": message }).to_string() }
    }
}

#[derive(Debug, Clone, Default, Hash)]
pub struct FakeIssue {
    pub title: String,
    pub body: String,
    pub labels: Vec<String>,
    pub is_closed: bool,
    pub state_reason: Option<String>,
    pub is_pull_request: bool,
    pub created_at: Timestamp,
    pub comments: Vec<FakeComment>,
    /// Fields that replace those of the answer, for unusual answers.
    pub overridden_fields: Option<Value>,
}

#[derive(Debug, Clone, Hash)]
pub struct FakeComment {
    pub id: u64,
    pub login: String,
    pub body: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

#[derive(Debug)]
pub struct FakeState {
    pub issues: BTreeMap<u64, FakeIssue>,
    pub next_comment: u64,
    /// Clock of the fake, which tests advance. It is the `Date` of answers.
    pub now: Timestamp,
    pub remaining: u64,
    pub scopes: Option<&'static str>,
    pub is_private: bool,
    pub has_issues: bool,
    /// Labels of the repository.
    pub labels: Vec<&'static str>,
    /// `(method and beginning of the path, fault)`. A request gets the first fault that matches. Each fault is used
    /// once.
    pub faults: VecDeque<(String, FakeFault)>,
    /// Paths that have moved, with their new paths.
    pub moved: BTreeMap<String, String>,
    pub requests: Vec<String>,
    pub tokens: Vec<String>,
    pub user_agents: Vec<String>,
    /// Number of answers that reduce `remaining`. All answers do, except those with 304, redirects, refusals of tokens
    /// that are not in `good_tokens`, and [`FakeFault::Answer`].
    pub counted_requests: usize,
    /// Function that is called with each request before it is answered, for simultaneous actions of other users.
    pub on_request: Option<OnRequest>,
    /// Number of the next lists of comments that leave out the newest comment, as the list of a delayed replica does.
    pub lag: usize,
    /// Public key of the GitHub App.
    pub app_key: Option<Vec<u8>>,
    /// Number of tokens that were issued for the GitHub App.
    pub issued_tokens: usize,
    pub token_life: SignedDuration,
    pub good_tokens: Option<Vec<String>>,
    /// `(login, role)` of the people in the repository.
    pub people: Vec<(&'static str, &'static str)>,
}

type Action = Box<dyn FnMut(&str, &mut FakeState) + Send>;

pub struct OnRequest(pub Action);

impl std::fmt::Debug for OnRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OnRequest")
    }
}

impl FakeState {
    pub fn comment(&mut self, number: u64, login: &str, body: &str) -> u64 {
        self.next_comment += 1;
        let (id, now) = (self.next_comment, self.now);
        let (login, body) = (login.to_owned(), body.to_owned());
        let comment = FakeComment { id, login, body, created_at: now, updated_at: now };
        self.issues.get_mut(&number).unwrap().comments.push(comment);
        id
    }

    pub fn advance(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }
}

#[derive(Debug)]
pub struct Fake {
    state: Arc<Mutex<FakeState>>,
    pub url: String,
    server: JoinHandle<()>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Fake {
    pub async fn start() -> Self {
        // The current time in whole seconds, because the client compares it with its own clock.
        let now = Timestamp::from_second(Timestamp::now().as_second()).unwrap();
        let fake_state = FakeState {
            issues: BTreeMap::new(),
            next_comment: 0,
            now,
            remaining: 5000,
            scopes: Some("repo"),
            is_private: true,
            has_issues: true,
            labels: vec!["ready", "agent-working"],
            faults: VecDeque::new(),
            moved: BTreeMap::new(),
            requests: Vec::new(),
            tokens: Vec::new(),
            user_agents: Vec::new(),
            counted_requests: 0,
            on_request: None,
            lag: 0,
            app_key: None,
            issued_tokens: 0,
            token_life: SignedDuration::from_hours(1),
            good_tokens: None,
            people: Vec::new(),
        };
        let fake_state = Arc::new(Mutex::new(fake_state));
        let router = Router::new().fallback(answer).with_state(Arc::clone(&fake_state));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { state: fake_state, url, server }
    }

    pub fn state(&self) -> MutexGuard<'_, FakeState> {
        self.state.lock().unwrap()
    }

    /// Adds an issue with these labels; a smaller number is older.
    pub fn add(&self, number: u64, labels: &[&str]) {
        let mut fake_state = self.state();
        let created_at = fake_state.now - SignedDuration::from_hours(1000)
            + SignedDuration::from_secs(number.cast_signed());
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        let issue =
            FakeIssue { title: format!("Issue {number}"), labels, created_at, ..FakeIssue::default() };
        fake_state.issues.insert(number, issue);
    }

    pub fn fault(&self, request: &str, fault: FakeFault) {
        self.state().faults.push_back((request.to_owned(), fault));
    }

    /// Returns the requests since the last call, for example `GET /issues/1`. The part `/repos/OWNER/NAME` is left out.
    pub fn requests(&self) -> Vec<String> {
        let requests = std::mem::take(&mut self.state().requests);
        requests.into_iter().map(|request| request.replace(&format!("/repos/{REPO}"), "")).collect()
    }

    pub fn issue(&self, number: u64) -> FakeIssue {
        self.state().issues[&number].clone()
    }
}

async fn answer(State(fake_state): State<Arc<Mutex<FakeState>>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let request = routes::FakeRequest::new(&parts, &body);
    let (fault, response) = {
        let mut fake_state = fake_state.lock().unwrap();
        if let Some(mut on_request) = fake_state.on_request.take() {
            (on_request.0)(&request.line, &mut fake_state);
            fake_state.on_request.get_or_insert(on_request);
        }
        let matches = |(prefix, _): &(String, FakeFault)| request.line.starts_with(prefix.as_str());
        let index = fake_state.faults.iter().position(matches);
        let fault = index.and_then(|index| fake_state.faults.remove(index)).map(|(_, fault)| fault);
        fake_state.record(&request);
        let response = if let Some(FakeFault::Answer { status, headers, body }) = &fault {
            let mut response = plain(*status, Bytes::from(body.clone()));
            for (name, value) in headers {
                response.headers_mut().insert(*name, HeaderValue::from_str(value).unwrap());
            }
            response
        } else {
            fake_state.route(&request)
        };
        (fault, response)
    };
    let date = { fake_state.lock().unwrap().now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string() };
    let mut response = match fault {
        None | Some(FakeFault::Answer { .. }) => response,
        Some(FakeFault::DoneWithStatus(status)) => {
            plain(status, Bytes::from_static(b"<html>bad gateway</html>"))
        }
        Some(FakeFault::CutAnswer) => {
            let chunks = [Ok(Bytes::from_static(b"{\"id\": ")), Err(std::io::Error::other("cut"))];
            Response::new(Body::from_stream(futures_util::stream::iter(chunks)))
        }
        Some(FakeFault::NoAnswer) => {
            tokio::time::sleep(Duration::from_mins(10)).await;
            response
        }
    };
    response.headers_mut().insert(header::DATE, HeaderValue::from_str(&date).unwrap());
    response
}

pub fn plain(status: u16, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}
