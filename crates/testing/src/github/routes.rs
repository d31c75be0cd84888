//! The answers of the fake GitHub to each request.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::body::Bytes;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::SignedDuration;
use percent_encoding::percent_decode_str;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde_json::{Value, json};

use super::{FakeIssue, FakeState, LOGIN, REPO, plain};

pub(crate) struct FakeRequest {
    /// Method and path, with the query.
    pub(crate) line: String,
    method: String,
    path: String,
    query: Vec<(String, String)>,
    headers: HeaderMap,
    body: Value,
}

impl FakeRequest {
    pub(crate) fn new(parts: &Parts, body: &Bytes) -> Self {
        let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
        let query = parts.uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
        let path_and_query = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        Self {
            line: format!("{} {path_and_query}", parts.method),
            method: parts.method.to_string(),
            path: parts.uri.path().to_owned(),
            query: query.map(|(key, value)| (key.to_owned(), decoded(value))).collect(),
            headers: parts.headers.clone(),
            body: serde_json::from_slice(body).unwrap_or(Value::Null),
        }
    }

    fn header(&self, name: &str) -> String {
        self.headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
    }

    fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn number(&self, name: &str, default: usize) -> usize {
        self.parameter(name).map_or(default, |value| value.parse().unwrap())
    }
}

fn not_found() -> Response {
    plain(404, json!({ "message": "Not Found" }).to_string())
}

fn ok(value: &Value) -> Response {
    plain(200, value.to_string())
}

impl FakeState {
    pub(crate) fn record(&mut self, request: &FakeRequest) {
        self.requests.push(request.line.clone());
        self.tokens.push(request.header("authorization"));
        self.user_agents.push(request.header("user-agent"));
    }

    pub(crate) fn route(&mut self, request: &FakeRequest) -> Response {
        if let Some(to) = self.moved.get(&request.path) {
            let status = if request.method == "GET" { 301 } else { 307 };
            let mut response = plain(status, json!({ "message": "Moved" }).to_string());
            response.headers_mut().insert("location", HeaderValue::from_str(to).unwrap());
            return response;
        }
        let token = request.header("authorization").replace("Bearer ", "");
        let is_about_apps = request.path.starts_with("/app") || request.path.ends_with("/installation");
        if !is_about_apps && self.good_tokens.as_ref().is_some_and(|good| !good.contains(&token)) {
            return plain(401, json!({ "message": "Bad credentials" }).to_string());
        }
        let mut response = self.api(request, &token);
        let etag = HeaderValue::from_static("etag");
        if request.method == "GET" && response.status() == 200 {
            let tag = response.headers().get("x-etag").cloned().unwrap_or(etag);
            if request.header("if-none-match") == tag.to_str().unwrap() {
                response = plain(304, "");
            }
            response.headers_mut().insert("etag", tag);
        }
        if response.status() != 304 {
            self.counted_requests += 1;
            self.remaining = self.remaining.saturating_sub(1);
        }
        let reset = (self.now + SignedDuration::from_hours(1)).as_second();
        let budget = [("limit", 5000), ("remaining", self.remaining.cast_signed()), ("reset", reset)];
        for (name, value) in budget {
            let name = HeaderName::try_from(format!("x-ratelimit-{name}")).unwrap();
            response.headers_mut().insert(name, HeaderValue::from(value));
        }
        if let Some(scopes) = self.scopes {
            response.headers_mut().insert("x-oauth-scopes", HeaderValue::from_static(scopes));
        }
        response
    }

    fn api(&mut self, request: &FakeRequest, token: &str) -> Response {
        let path = request.path.trim_start_matches("/api/v3");
        // A repository that moved is addressed by its number.
        let path = path.replace("/repositories/1", &format!("/repos/{REPO}"));
        let parts: Vec<String> = path
            .split('/')
            .skip(1)
            .map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned())
            .collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (owner, name) = REPO.split_once('/').unwrap();
        match (request.method.as_str(), &parts[..]) {
            ("GET", ["user"]) => ok(&json!({ "login": LOGIN })),
            ("GET", ["app"]) => self.for_apps(token, &json!({ "slug": "cowhand" })),
            ("POST", ["app", "installations", "77", "access_tokens"]) => {
                let name = format!("ghs_{}", self.issued_tokens + 1);
                let ends = self.now + self.token_life;
                let response = self.for_apps(token, &json!({ "token": name, "expires_at": ends }));
                if response.status() == 200 {
                    self.issued_tokens += 1;
                    self.good_tokens.get_or_insert_default().push(name);
                }
                response
            }
            ("GET", ["repos", o, n, "installation"]) if *o == owner && *n == name => {
                self.for_apps(token, &json!({ "id": 77 }))
            }
            ("GET", ["repos", "other", "place", "issues", number]) => {
                self.one_issue(number, "https://api/repos/other/place")
            }
            (method, ["repos", o, n, rest @ ..]) if *o == owner && *n == name => {
                self.repository(method, rest, request)
            }
            _ => not_found(),
        }
    }

    /// Returns the answer if the token is a valid JWT of the GitHub App, checked as GitHub does, else 401.
    fn for_apps(&self, token: &str, answer: &Value) -> Response {
        let verified = || {
            let (signed_part, signature) = token.rsplit_once('.')?;
            let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).ok()?;
            let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, self.app_key.as_ref()?);
            key.verify(signed_part.as_bytes(), &signature).ok()?;
            let (_, claims) = signed_part.split_once('.')?;
            let claims: Value = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
            let (iat, exp) = (claims["iat"].as_i64()?, claims["exp"].as_i64()?);
            let now = self.now.as_second();
            (claims["iss"] == "4711" && iat <= now && exp > now && exp - iat <= 600).then_some(())
        };
        if verified().is_some() { ok(answer) } else { plain(401, "{}") }
    }

    fn repository(&mut self, method: &str, rest: &[&str], request: &FakeRequest) -> Response {
        match (method, rest) {
            ("GET", []) => {
                ok(&json!({ "full_name": REPO, "private": self.is_private, "has_issues": self.has_issues }))
            }
            ("GET", ["labels", label]) if self.labels.contains(label) => ok(&json!({ "name": label })),
            ("GET", ["collaborators", login, "permission"]) => {
                let found = self.people.iter().find(|(name, _)| name == login);
                found
                    .map_or_else(not_found, |(_, role)| ok(&json!({ "permission": role, "role_name": role })))
            }
            ("GET", ["issues"]) => self.list(request),
            ("GET", ["issues", number]) => self.one_issue(number, &format!("https://api/repos/{REPO}")),
            ("PATCH", ["issues", "comments", id]) => self.edit_comment(id, request),
            ("DELETE", ["issues", "comments", id]) => self.delete_comment(id),
            (_, ["issues", number, rest @ ..]) => {
                let number = number.parse().unwrap();
                if self.issues.contains_key(&number) {
                    self.change(method, number, rest, request)
                } else {
                    not_found()
                }
            }
            _ => not_found(),
        }
    }

    fn change(&mut self, method: &str, number: u64, rest: &[&str], request: &FakeRequest) -> Response {
        let Some(issue) = self.issues.get_mut(&number) else { return not_found() };
        match (method, rest) {
            ("PATCH", []) => {
                assert_eq!(request.body["state"], "closed");
                issue.is_closed = true;
                issue.state_reason = request.body["state_reason"].as_str().map(str::to_owned);
                plain(200, issue_text(number, issue))
            }
            ("POST", ["labels"]) => {
                let added =
                    request.body["labels"].as_array().unwrap().iter().map(|label| label.as_str().unwrap());
                for label in added {
                    if !issue.labels.iter().any(|present| present == label) {
                        issue.labels.push(label.to_owned());
                    }
                }
                ok(&json!([]))
            }
            ("DELETE", ["labels", label]) => {
                let before = issue.labels.len();
                issue.labels.retain(|present| present != label);
                if issue.labels.len() == before { not_found() } else { ok(&json!([])) }
            }
            ("GET", ["comments"]) => {
                let is_behind = self.lag > 0 && !issue.comments.is_empty();
                self.lag -= usize::from(is_behind);
                let visible = issue.comments.len() - usize::from(is_behind);
                paged(&issue.comments[..visible], comment_json, request)
            }
            ("POST", ["comments"]) => {
                self.comment(number, LOGIN, request.body["body"].as_str().unwrap());
                let comments = &self.issues[&number].comments;
                plain(201, comment_json(comments.last().unwrap()))
            }
            _ => not_found(),
        }
    }

    fn edit_comment(&mut self, id: &str, request: &FakeRequest) -> Response {
        let (id, now): (u64, _) = (id.parse().unwrap(), self.now);
        let mut comments = self.issues.values_mut().flat_map(|issue| issue.comments.iter_mut());
        let Some(comment) = comments.find(|comment| comment.id == id) else { return not_found() };
        request.body["body"].as_str().unwrap().clone_into(&mut comment.body);
        comment.updated_at = now;
        plain(200, comment_json(comment))
    }

    fn delete_comment(&mut self, id: &str) -> Response {
        let id: u64 = id.parse().unwrap();
        for issue in self.issues.values_mut() {
            let before = issue.comments.len();
            issue.comments.retain(|comment| comment.id != id);
            if issue.comments.len() < before {
                return plain(204, "");
            }
        }
        not_found()
    }

    fn one_issue(&self, number: &str, repository_url: &str) -> Response {
        let number = number.parse().unwrap();
        let Some(issue) = self.issues.get(&number) else { return not_found() };
        let at = format!(r#"{{"repository_url":"{repository_url}","#);
        plain(200, issue_text(number, issue).replacen('{', &at, 1))
    }

    fn list(&self, request: &FakeRequest) -> Response {
        assert_eq!(request.parameter("state"), Some("open"));
        assert_eq!(
            (request.parameter("sort"), request.parameter("direction")),
            (Some("created"), Some("asc"))
        );
        let label = request.parameter("labels");
        let matches = |issue: &&(u64, &FakeIssue)| {
            !issue.1.is_closed
                && label.is_none_or(|label| issue.1.labels.iter().any(|present| present == label))
        };
        let mut all: Vec<(u64, &FakeIssue)> = self
            .issues
            .iter()
            .map(|(&number, issue)| (number, issue))
            .filter(|issue| matches(&issue))
            .collect();
        all.sort_by_key(|(_, issue)| issue.created_at);
        paged(&all, |(number, issue)| issue_text(*number, issue), request)
    }
}

/// Returns a page, with `Link` as GitHub writes it, and an `ETag` of the entries.
fn paged<T: Hash>(all: &[T], show: impl Fn(&T) -> String, request: &FakeRequest) -> Response {
    let (size, page) = (request.number("per_page", 30), request.number("page", 1));
    let entries: Vec<&T> = all.iter().skip((page - 1) * size).take(size).collect();
    let mut hasher = DefaultHasher::new();
    entries.hash(&mut hasher);
    let etag = format!("W/\"{:x}\"", hasher.finish());
    // The answer will be 304, so its entries are not needed.
    let is_cached = request.header("if-none-match") == etag;
    let texts: Vec<String> = if is_cached { Vec::new() } else { entries.into_iter().map(show).collect() };
    let mut response = plain(200, format!("[{}]", texts.join(",")));
    response.headers_mut().insert("x-etag", HeaderValue::from_str(&etag).unwrap());
    if page * size < all.len() {
        let next = format!("<http://x{}?page={}>; rel=\"next\"", request.path, page + 1);
        let link = format!("{next}, <http://x?page=9999>; rel=\"last\"");
        response.headers_mut().insert("link", HeaderValue::from_str(&link).unwrap());
    }
    response
}

fn comment_json(comment: &super::FakeComment) -> String {
    json!({
        "id": comment.id, "body": comment.body, "user": { "login": comment.login },
        "created_at": comment.created_at, "updated_at": comment.updated_at,
    })
    .to_string()
}

/// Formats an issue. Its labels are inserted as text, because there can be a million of them.
fn issue_text(number: u64, issue: &FakeIssue) -> String {
    let value = issue_json(number, issue).to_string();
    let label = |name: &String| {
        let description = "x".repeat(80);
        format!(r#"{{"id":1,"name":{},"color":"ededed","description":"{description}"}}"#, json!(name))
    };
    let labels: Vec<String> = issue.labels.iter().map(label).collect();
    value.replace(LABELS_PLACEHOLDER, &format!(r#""labels":[{}]"#, labels.join(",")))
}

const LABELS_PLACEHOLDER: &str = r#""labels":"put in later""#;

fn issue_json(number: u64, issue: &FakeIssue) -> Value {
    let mut value = json!({
        "id": 1_000_000 + number, "number": number, "title": issue.title, "body": issue.body,
        "state": if issue.is_closed { "closed" } else { "open" }, "state_reason": issue.state_reason,
        "labels": "put in later",
        "user": { "login": "octocat" }, "assignee": { "login": "hubot" },
        "milestone": { "number": 3, "title": "v1" }, "author_association": "CONTRIBUTOR",
        "html_url": format!("https://github.com/{REPO}/issues/{number}"),
        "created_at": issue.created_at, "updated_at": issue.created_at,
    });
    if issue.is_pull_request {
        value["pull_request"] = json!({ "url": "https://x" });
    }
    if let (Some(Value::Object(odd)), Value::Object(value)) = (&issue.overridden_fields, &mut value) {
        value.extend(odd.clone());
    }
    value
}
