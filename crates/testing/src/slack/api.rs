//! The Web API: tokens, scopes, planned faults, and the methods that do not concern conversations or files.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};

use super::{
    APP_TOKEN, BOT_ID, BOT_TOKEN, BOT_USER, FakeCall, FakeEphemeral, FakeWorkspace, SlackFault, TEAM,
    conversations, uploads,
};

const MAX_REQUEST_BYTES: usize = 64 << 20;

/// Scopes that methods need. The scope of a history depends on the channel.
const METHOD_SCOPES: [(&str, &str); 9] = [
    ("chat.postMessage", "chat:write"),
    ("chat.update", "chat:write"),
    ("reactions.add", "reactions:write"),
    ("reactions.remove", "reactions:write"),
    ("users.info", "users:read"),
    ("files.info", "files:read"),
    ("files.getUploadURLExternal", "files:write"),
    ("files.completeUploadExternal", "files:write"),
    ("conversations.open", "chat:write"),
];

/// Result of a method: the fields of the answer, or the error.
pub(crate) type MethodResult = Result<Value, SlackError>;

pub(crate) enum SlackError {
    Code(&'static str),
    MissingScope(&'static str),
}

pub(crate) async fn answer(State(workspace): State<Arc<FakeWorkspace>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, MAX_REQUEST_BYTES).await.unwrap();
    let path = parts.uri.path().to_owned();
    let response = if let Some(method) = path.strip_prefix("/api/") {
        call(&workspace, method, &parts, &body)
    } else if let Some(file) = path.strip_prefix("/upload/") {
        uploads::receive(&workspace, file, header_of(&parts, header::CONTENT_TYPE), &body)
    } else if let Some(file) = path.strip_prefix("/files-pri/") {
        uploads::send(&workspace, file, token(&parts, &Value::Null) == BOT_TOKEN)
    } else if let Some(trigger) = path.strip_prefix("/response/") {
        respond(&workspace, trigger, &parts, &body)
    } else {
        plain(StatusCode::NOT_FOUND)
    };
    workspace.notify();
    response
}

fn call(workspace: &Arc<FakeWorkspace>, method: &str, parts: &Parts, body: &Bytes) -> Response {
    let content_type = header_of(parts, header::CONTENT_TYPE);
    let params = super::request::params(content_type, parts.uri.query().unwrap_or_default(), body);
    let token = token(parts, &params);
    let fault = {
        let mut state = workspace.state();
        let call = FakeCall { method: method.to_owned(), params: params.clone(), token: token.clone() };
        state.calls.push(call);
        state.take_fault(method)
    };
    match fault {
        Some(SlackFault::RateLimited { retry_after }) => {
            let mut response = json_response(&json!({ "ok": false, "error": "ratelimited" }));
            *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
            response.headers_mut().insert(header::RETRY_AFTER, retry_after.into());
            return response;
        }
        Some(SlackFault::Refused { code }) => {
            return json_response(&json!({ "ok": false, "error": code }));
        }
        Some(SlackFault::Failed) => return plain(StatusCode::INTERNAL_SERVER_ERROR),
        Some(SlackFault::FailedAfterEffect) | None => {}
    }
    let result = authorize(workspace, method, &token).and_then(|()| execute(workspace, method, &params));
    if matches!(fault, Some(SlackFault::FailedAfterEffect)) {
        return plain(StatusCode::INTERNAL_SERVER_ERROR);
    }
    let scopes: Vec<String> = workspace.state().scopes.iter().cloned().collect();
    let scopes = scopes.join(",");
    let body = match result {
        Ok(mut body) => {
            body["ok"] = json!(true);
            body
        }
        Err(SlackError::Code(code)) => json!({ "ok": false, "error": code }),
        Err(SlackError::MissingScope(needed)) => {
            json!({ "ok": false, "error": "missing_scope", "needed": needed, "provided": scopes })
        }
    };
    let mut response = json_response(&body);
    response.headers_mut().insert("x-oauth-scopes", scopes.parse().unwrap());
    response
}

fn authorize(workspace: &FakeWorkspace, method: &str, token: &str) -> Result<(), SlackError> {
    let state = workspace.state();
    let is_app_method = method == "apps.connections.open";
    match token {
        "" => return Err(SlackError::Code("not_authed")),
        BOT_TOKEN | APP_TOKEN if !state.accepts_tokens => return Err(SlackError::Code("token_revoked")),
        BOT_TOKEN if !is_app_method => {}
        APP_TOKEN if is_app_method => {}
        BOT_TOKEN | APP_TOKEN => return Err(SlackError::Code("not_allowed_token_type")),
        _ => return Err(SlackError::Code("invalid_auth")),
    }
    match METHOD_SCOPES.iter().find(|(name, _)| *name == method) {
        Some((_, scope)) if !state.scopes.contains(*scope) => Err(SlackError::MissingScope(scope)),
        Some(_) | None => Ok(()),
    }
}

fn execute(workspace: &Arc<FakeWorkspace>, method: &str, params: &Value) -> MethodResult {
    match method {
        "auth.test" => Ok(json!({
            "url": format!("{}/", workspace.base), "team": "Fake", "team_id": TEAM,
            "user": "cowhand", "user_id": BOT_USER, "bot_id": BOT_ID,
        })),
        "apps.connections.open" => {
            let mut state = workspace.state();
            let ticket = state.next_id("ticket-");
            state.tickets.insert(ticket.clone());
            Ok(json!({ "url": format!("{}/link/?ticket={ticket}", workspace.socket_base) }))
        }
        "users.info" => {
            let state = workspace.state();
            let user = state.users.get(params["user"].as_str().unwrap_or_default());
            Ok(json!({ "user": user.ok_or(SlackError::Code("user_not_found"))? }))
        }
        "chat.postMessage" => conversations::post(workspace, params),
        "chat.update" => conversations::update(workspace, params),
        "conversations.history" => conversations::history(workspace, params),
        "conversations.replies" => conversations::replies(workspace, params),
        "reactions.add" => conversations::react(workspace, params, true),
        "reactions.remove" => conversations::react(workspace, params, false),
        "files.getUploadURLExternal" => uploads::begin(workspace, params),
        "files.completeUploadExternal" => uploads::complete(workspace, params),
        "files.info" => uploads::info(workspace, params),
        _ => Err(SlackError::Code("unknown_method")),
    }
}

/// Shows a text to the user who called a command or pressed a button.
fn respond(workspace: &FakeWorkspace, trigger: &str, parts: &Parts, body: &Bytes) -> Response {
    if parts.method != Method::POST || parts.headers.contains_key(header::AUTHORIZATION) {
        return plain(StatusCode::BAD_REQUEST);
    }
    let Ok(body) = serde_json::from_slice::<Value>(body) else { return plain(StatusCode::BAD_REQUEST) };
    let mut state = workspace.state();
    let Some(user) = state.triggers.get(trigger).cloned() else { return plain(StatusCode::NOT_FOUND) };
    let text = body["text"].as_str().unwrap_or_default().to_owned();
    state.ephemerals.push(FakeEphemeral { trigger: trigger.to_owned(), user, text });
    plain(StatusCode::OK)
}

fn header_of(parts: &Parts, name: header::HeaderName) -> &str {
    parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn token(parts: &Parts, params: &Value) -> String {
    let bearer = header_of(parts, header::AUTHORIZATION).strip_prefix("Bearer ");
    bearer.or_else(|| params["token"].as_str()).unwrap_or_default().to_owned()
}

fn json_response(body: &Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    response.headers_mut().insert(header::CONTENT_TYPE, "application/json; charset=utf-8".parse().unwrap());
    response
}

pub(crate) fn plain(status: StatusCode) -> Response {
    let mut response = Response::new(Body::from(if status.is_success() { "ok" } else { "planned" }));
    *response.status_mut() = status;
    response
}
