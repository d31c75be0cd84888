//! A fake of GitHub's lists of issues and pull requests: pages with `Link`, and `ETag`s.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

#[derive(Debug, Default)]
pub struct FakeListsState {
    pub issues: Vec<Value>,
    pub pulls: Vec<Value>,
    /// Number of lists that were returned with another status than 304, plus the number of refused requests.
    pub counted_requests: usize,
    /// Number of all requests.
    pub requests: usize,
    /// Issue that disappears after the next answer with a list.
    pub disappearing_issue: Option<u64>,
    /// Status with which every request is refused.
    pub refuses: Option<u16>,
    /// The only token that is accepted; unset means every token.
    pub token: Option<&'static str>,
    /// `(login, permission, role)` of people. The answer for other people is 404.
    pub people: Vec<(&'static str, &'static str, &'static str)>,
    /// Logins in requests about people.
    pub asked_about: Vec<String>,
}

#[derive(Debug)]
pub struct FakeLists {
    pub fake_state: Arc<Mutex<FakeListsState>>,
    pub url: String,
    server: JoinHandle<()>,
}

impl Drop for FakeLists {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl FakeLists {
    pub async fn start(issues: Vec<Value>, pulls: Vec<Value>) -> Self {
        let fake_state = Arc::new(Mutex::new(FakeListsState { issues, pulls, ..FakeListsState::default() }));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let app = Router::new().fallback(answer).with_state(Arc::clone(&fake_state));
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { fake_state, url, server }
    }

    /// Starts a fake with `count` issues, the oldest first.
    pub async fn with_issues(count: u64) -> Self {
        Self::start((1..=count).map(issue).collect(), Vec::new()).await
    }
}

impl FakeListsState {
    /// Returns the permission of a person, or a single pull request, with the status; `None` for other paths.
    fn about(&mut self, path: &str) -> Option<(u16, Value)> {
        let parts: Vec<&str> = path.split('/').skip(4).collect();
        let missing = (404, json!({"message": "Not Found"}));
        Some(match parts[..] {
            ["collaborators", login, "permission"] => {
                self.asked_about.push(login.to_owned());
                let found = self.people.iter().find(|(name, ..)| *name == login);
                found.map_or(missing, |(_, permission, role)| {
                    (200, json!({"permission": permission, "role_name": role}))
                })
            }
            ["pulls", number] => {
                let number: u64 = number.parse().unwrap();
                let found = self.pulls.iter().find(|pull| pull["number"] == number);
                found.map_or(missing, |pull| (200, pull.clone()))
            }
            _ => return None,
        })
    }
}

pub fn issue(number: u64) -> Value {
    let created_at = jiff::Timestamp::from_second(1_767_600_000 + i64::try_from(number).unwrap()).unwrap();
    json!({"number": number, "title": format!("Issue {number}"), "labels": [{"name": "agent"}], "created_at": created_at})
}

async fn answer(State(fake_state): State<Arc<Mutex<FakeListsState>>>, request: Request) -> Response {
    let about = {
        let mut fake_state = fake_state.lock().unwrap();
        fake_state.requests += 1;
        let given = request.headers().get(header::AUTHORIZATION).and_then(|given| given.to_str().ok());
        let is_accepted = |token: &str| given.is_some_and(|given| given.ends_with(token));
        let unauthorized = (!fake_state.token.is_none_or(is_accepted)).then_some(401);
        if let Some(status) = fake_state.refuses.or(unauthorized) {
            fake_state.counted_requests += 1;
            return Response::builder().status(status).body(Body::from(r#"{"message":"no"}"#)).unwrap();
        }
        fake_state.about(request.uri().path())
    };
    if let Some((status, body)) = about {
        // Enough time for another client to send the same request.
        tokio::time::sleep(Duration::from_millis(100)).await;
        return Response::builder().status(status).body(Body::from(body.to_string())).unwrap();
    }
    let mut fake_state = fake_state.lock().unwrap();
    let query = request.uri().query().unwrap_or_default();
    let number =
        |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.parse::<usize>().ok());
    let (page, size) = (number("page=").unwrap_or(1), number("per_page=").unwrap_or(30));
    let path = request.uri().path();
    let all = if path.ends_with("/pulls") { &fake_state.pulls } else { &fake_state.issues };
    let entries: Vec<&Value> = all.iter().skip((page - 1) * size).take(size).collect();
    let body = serde_json::to_string(&entries).unwrap();
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    let etag = format!("\"{:x}\"", hasher.finish());
    let mut response = Response::builder().header(header::ETAG, &etag);
    if all.len() > page * size {
        response = response.header(header::LINK, format!("<http://x{path}?page={}>; rel=\"next\"", page + 1));
    }
    if let Some(removed) = fake_state.disappearing_issue.take() {
        fake_state.issues.retain(|issue| issue["number"] != removed);
    }
    if request.headers().get(header::IF_NONE_MATCH).is_some_and(|tag| tag.as_bytes() == etag.as_bytes()) {
        return response.status(StatusCode::NOT_MODIFIED).body(Body::empty()).unwrap();
    }
    fake_state.counted_requests += 1;
    response.body(Body::from(body)).unwrap()
}
