//! Files: upload in three steps, and download.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};

use super::api::{MethodResult, SlackError, plain};
use super::events::add_message;
use super::request::uploaded_bytes;
use super::{BOT_ID, BOT_USER, DOWNLOAD, FakeCall, FakeFile, FakeWorkspace};
use crate::streamed_body::streamed_body;

pub(crate) fn begin(workspace: &FakeWorkspace, params: &Value) -> MethodResult {
    let length = params["length"].as_u64().or_else(|| params["length"].as_str()?.parse().ok()).unwrap_or(0);
    let Some(name) = params["filename"].as_str().filter(|name| !name.is_empty() && length > 0) else {
        return Err(SlackError::Code("invalid_arguments"));
    };
    let mut state = workspace.state();
    let id = state.next_id("F");
    let file = FakeFile {
        name: name.to_owned(),
        media_type: "text/plain".to_owned(),
        content: Vec::new(),
        is_uploaded: false,
        is_voice: false,
        shares: Vec::new(),
    };
    state.files.insert(id.clone(), file);
    Ok(json!({ "upload_url": format!("{}/upload/{id}", workspace.base), "file_id": id }))
}

pub(crate) fn receive(workspace: &FakeWorkspace, id: &str, content_type: &str, body: &Bytes) -> Response {
    let mut state = workspace.state();
    let Some(file) = state.files.get_mut(id) else { return plain(StatusCode::NOT_FOUND) };
    file.content = uploaded_bytes(content_type, body);
    file.is_uploaded = true;
    plain(StatusCode::OK)
}

/// Shares uploaded files in a message.
pub(crate) fn complete(workspace: &Arc<FakeWorkspace>, params: &Value) -> MethodResult {
    let files = params["files"].as_array().cloned().unwrap_or_default();
    let ids: Vec<String> = files.iter().filter_map(|file| file["id"].as_str()).map(str::to_owned).collect();
    {
        let state = workspace.state();
        if !ids.iter().all(|id| state.files.get(id).is_some_and(|file| file.is_uploaded)) {
            return Err(SlackError::Code("file_not_found"));
        }
    }
    let objects: Vec<Value> = ids.iter().map(|id| workspace.file_object(id)).collect();
    let Some(channel) = params["channel_id"].as_str() else { return Ok(json!({ "files": objects })) };
    if !workspace.state().channels.contains_key(channel) {
        return Err(SlackError::Code("channel_not_found"));
    }
    let comment = params["initial_comment"].as_str().unwrap_or_default();
    let mut message = json!({ "subtype": "file_share", "user": BOT_USER, "bot_id": BOT_ID, "text": comment,
        "files": objects });
    if let Some(thread) = params["thread_ts"].as_str() {
        message["thread_ts"] = json!(thread);
    }
    let ts = add_message(workspace, channel, message);
    let mut state = workspace.state();
    for id in &ids {
        state.files.get_mut(id).unwrap().shares.push((channel.to_owned(), ts.clone()));
    }
    Ok(json!({ "files": objects }))
}

pub(crate) fn info(workspace: &FakeWorkspace, params: &Value) -> MethodResult {
    let id = params["file"].as_str().unwrap_or_default();
    if !workspace.state().files.contains_key(id) {
        return Err(SlackError::Code("file_not_found"));
    }
    Ok(json!({ "file": workspace.file_object(id) }))
}

/// Sends the content of a file. Without the token, Slack answers with its login page.
pub(crate) fn send(workspace: &FakeWorkspace, path: &str, is_authorized: bool) -> Response {
    let mut state = workspace.state();
    let call = FakeCall { method: DOWNLOAD.to_owned(), params: json!(path), token: String::new() };
    state.calls.push(call);
    if state.take_fault(DOWNLOAD).is_some() {
        return plain(StatusCode::INTERNAL_SERVER_ERROR);
    }
    if let Some(target) = &state.file_redirect {
        let mut response = plain(StatusCode::FOUND);
        response.headers_mut().insert(header::LOCATION, target.parse().unwrap());
        return response;
    }
    let id = path.split('/').next().unwrap_or_default();
    let Some(file) = state.files.get(id) else { return plain(StatusCode::NOT_FOUND) };
    let is_shown = is_authorized && state.accepts_tokens && state.scopes.contains("files:read");
    let (media_type, body) = match state.streamed_file_size {
        Some(bytes) if is_shown => (file.media_type.as_str(), streamed_body(bytes)),
        None if is_shown => (file.media_type.as_str(), Body::from(file.content.clone())),
        Some(_) | None => ("text/html; charset=utf-8", Body::from("<html>Sign in</html>")),
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, media_type.parse().unwrap());
    response
}

impl FakeWorkspace {
    /// Returns a file as messages and `files.info` show it.
    pub(crate) fn file_object(&self, id: &str) -> Value {
        let state = self.state();
        let file = &state.files[id];
        let url = format!("{}/files-pri/{id}/{}", self.base, file.name.replace(' ', "_"));
        let mut shares = serde_json::Map::new();
        for (channel, ts) in &file.shares {
            shares.insert(channel.clone(), json!([{ "ts": ts }]));
        }
        let channels: Vec<&String> = file.shares.iter().map(|(channel, _)| channel).collect();
        let mut object = json!({
            "id": id, "name": file.name, "title": file.name, "mimetype": file.media_type,
            "size": state.stated_file_size.unwrap_or(file.content.len()), "url_private": url, "url_private_download": url,
            "channels": channels, "shares": { "public": shares },
        });
        if file.is_voice {
            object["subtype"] = json!("slack_audio");
        }
        object
    }
}
