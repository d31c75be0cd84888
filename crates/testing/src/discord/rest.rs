//! The routes of the REST API and the files.

use std::sync::{Arc, Mutex};

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::header::DATE;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use jiff::fmt::rfc2822::DateTimePrinter;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::faults::FakeDiscordFaultKind;
use super::interactions::AUTOCOMPLETE_RESULT;
use super::multipart::parts;
use super::state::{
    FakeDiscordBot, FakeDiscordFile, FakeDiscordInteraction, FakeDiscordMessage, FakeDiscordState,
};
use crate::streamed_body::streamed_body;

const MOST_BODY_BYTES: usize = 200 << 20;
/// Maximum length of a message, of a nonce and of the value of a button.
const MOST_CHARACTERS: usize = 2000;
const MOST_NONCE_CHARACTERS: usize = 25;
const MOST_VALUE_CHARACTERS: usize = 100;

/// Status and body of an answer.
type Answered = (u16, Value);

pub(super) async fn answer(State(state): State<Arc<Mutex<FakeDiscordState>>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, MOST_BODY_BYTES).await.unwrap();
    let mut state = state.lock().unwrap();
    let mut response = execute(&mut state, &parts, &body);
    let date = DateTimePrinter::new().timestamp_to_rfc9110_string(&state.now()).unwrap();
    response.headers_mut().insert(DATE, date.parse().unwrap());
    response
}

fn execute(state: &mut FakeDiscordState, parts: &Parts, body: &Bytes) -> Response {
    let path = parts.uri.path();
    if state.files.contains_key(path) {
        let (status, body) = state.download(parts);
        return Response::builder().status(status).body(body).unwrap();
    }
    let Some(path) = path.strip_prefix("/api/v10") else { return respond(path, unknown()) };
    let line = format!("{} {path}", parts.method);
    state.requests.push(line.clone());
    let fault = state.take_fault(&line);
    match fault {
        Some(FakeDiscordFaultKind::RateLimit { retry_after, is_global }) => {
            return rate_limited(&line, retry_after, is_global);
        }
        Some(FakeDiscordFaultKind::Status(status)) => {
            return respond(&line, (status, json!({ "message": "planned", "code": 0 })));
        }
        Some(FakeDiscordFaultKind::StatusAfterEffect(_)) | None => {}
    }
    let query = parts.uri.query().unwrap_or_default();
    let answered = FakeDiscordRequest::read(&parts.headers, body)
        .map_or((400, json!({ "message": "400: Bad Request", "code": 0 })), |request| {
            state.route(parts.method.as_str(), path, query, &parts.headers, request)
        });
    if let Some(FakeDiscordFaultKind::StatusAfterEffect(status)) = fault {
        return respond(&line, (status, json!({ "message": "planned", "code": 0 })));
    }
    respond(&line, answered)
}

/// Body of a request.
#[derive(Debug)]
struct FakeDiscordRequest {
    payload: Value,
    files: Vec<FakeDiscordFile>,
}

impl FakeDiscordRequest {
    fn read(headers: &HeaderMap, body: &Bytes) -> Option<Self> {
        let content_type = headers.get("content-type").and_then(|value| value.to_str().ok());
        let mut request = Self { payload: Value::Null, files: Vec::new() };
        if body.is_empty() {
            return Some(request);
        }
        let content_type = content_type?;
        if !content_type.starts_with("multipart/form-data") {
            request.payload = serde_json::from_slice(body).ok()?;
            return Some(request);
        }
        for part in parts(content_type, body)? {
            if part.name == "payload_json" {
                request.payload = serde_json::from_slice(&part.content).ok()?;
            } else if part.name.starts_with("files[") {
                request.files.push(FakeDiscordFile {
                    id: String::new(),
                    name: part.file_name?,
                    media_type: part.media_type.unwrap_or_default(),
                    content: part.content,
                    url: String::new(),
                });
            }
        }
        Some(request)
    }
}

impl FakeDiscordState {
    fn route(
        &mut self,
        method: &str,
        path: &str,
        query: &str,
        headers: &HeaderMap,
        request: FakeDiscordRequest,
    ) -> Answered {
        let decoded: Vec<String> = path
            .split('/')
            .filter(|segment| !segment.is_empty())
            .map(|segment| percent_decode_str(segment).decode_utf8_lossy().into_owned())
            .collect();
        let segments: Vec<&str> = decoded.iter().map(String::as_str).collect();
        if let ["interactions", _, token, "callback"] = segments[..] {
            return self.callback(token, &request.payload);
        }
        if let ["webhooks", application, token, rest @ ..] = &segments[..] {
            return self.change_answer(method, application, token, rest, &request.payload);
        }
        let authorization = headers.get("authorization").and_then(|value| value.to_str().ok());
        let token = authorization.and_then(|value| value.strip_prefix("Bot "));
        let Some(bot) = token.and_then(|token| self.bot_with_token(token)) else {
            return (401, json!({ "message": "401: Unauthorized", "code": 0 }));
        };
        if let ["applications", application, rest @ ..] = &segments[..] {
            return self.application_route(method, &bot, application, rest, &request.payload);
        }
        match (method, &segments[..]) {
            ("GET", ["gateway"]) => (200, json!({ "url": self.gateway_url })),
            ("GET", ["gateway", "bot"]) => {
                let limit = json!({
                    "total": 1000,
                    "remaining": self.starts_remaining,
                    "reset_after": 3_600_000,
                    "max_concurrency": 1,
                });
                (200, json!({ "url": self.gateway_url, "shards": 1, "session_start_limit": limit }))
            }
            ("GET", ["users", "@me"]) => (200, self.user_json(&bot)),
            ("GET", ["users", "@me", "guilds"]) => {
                let guilds = self.guilds.iter().map(|(id, guild)| {
                    json!({ "id": id, "name": guild.name, "permissions": guild.permissions.to_string() })
                });
                (200, guilds.collect())
            }
            ("POST", ["users", "@me", "channels"]) => {
                let user = request.payload["recipient_id"].as_str().unwrap_or_default().to_owned();
                let channel = self.direct_channel(&bot, &user);
                (200, self.channel_json(&channel))
            }
            ("GET", ["guilds", _, "members", user]) => match self.users.get(*user) {
                Some(_) => (200, self.full_member_json(user)),
                None => (404, json!({ "message": "Unknown Member", "code": 10007 })),
            },
            (_, ["channels", channel, rest @ ..]) if self.is_visible(channel, &bot) => {
                self.channel_route(method, &bot, channel, rest, query, request)
            }
            (_, ["channels", ..]) => (404, json!({ "message": "Unknown Channel", "code": 10003 })),
            _ => unknown(),
        }
    }

    /// Returns whether a bot sees a channel. It does not see the direct conversations of other bots.
    fn is_visible(&self, channel: &str, bot: &str) -> bool {
        let direct = self.channels.get(channel).map(|channel| &channel.direct);
        direct.is_some_and(|direct| direct.as_ref().is_none_or(|direct| direct.bot == bot))
    }

    /// Answers a request of a bot about its application.
    fn application_route(
        &mut self,
        method: &str,
        bot: &str,
        application: &str,
        rest: &[&str],
        payload: &Value,
    ) -> Answered {
        if method == "GET" && application == "@me" && rest.is_empty() {
            return (200, self.application_json(bot));
        }
        if self.bot(bot).unwrap().account.application != application {
            return (403, json!({ "message": "You do not have permissions", "code": 20012 }));
        }
        match (method, rest) {
            (_, ["commands"]) => self.commands(method, bot, "", payload),
            (_, ["guilds", guild, "commands"]) => self.commands(method, bot, guild, payload),
            ("DELETE", ["commands", id]) => self.remove_command(bot, "", id),
            ("DELETE", ["guilds", guild, "commands", id]) => self.remove_command(bot, guild, id),
            _ => unknown(),
        }
    }

    fn channel_route(
        &mut self,
        method: &str,
        bot: &str,
        channel: &str,
        rest: &[&str],
        query: &str,
        request: FakeDiscordRequest,
    ) -> Answered {
        match (method, rest) {
            ("GET", []) => (200, self.channel_json(channel)),
            ("POST", ["typing"]) => {
                *self.typing.entry(channel.to_owned()).or_default() += 1;
                (204, Value::Null)
            }
            ("POST", ["threads"] | ["messages", _, "threads"]) => {
                let name = request.payload["name"].as_str().unwrap_or_default().to_owned();
                let thread = self.create_thread(channel, &name, true);
                (201, self.channel_json(&thread))
            }
            ("GET", ["messages"]) => (200, self.page(bot, channel, query)),
            ("POST", ["messages"]) => self.post(bot, channel, request),
            (_, ["messages", message, rest @ ..]) => {
                let known = self.message(message).filter(|message| message.channel == channel);
                let Some(known) = known else {
                    return (404, json!({ "message": "Unknown Message", "code": 10008 }));
                };
                let is_own = known.author == bot;
                match (method, rest) {
                    ("GET", []) => (200, self.message_json(known, bot)),
                    ("PATCH", []) if !is_own => {
                        let text = "Cannot edit a message authored by another user";
                        (403, json!({ "message": text, "code": 50005 }))
                    }
                    ("PATCH", []) => {
                        if let Some(refusal) = refusal(&request.payload) {
                            return refusal;
                        }
                        self.edit_message(message, &request.payload);
                        let FakeDiscordMessage { content, flags, .. } =
                            self.message(message).unwrap().clone();
                        self.fetch_links(&content, flags);
                        (200, self.message_json(self.message(message).unwrap(), bot))
                    }
                    ("DELETE", []) => {
                        self.delete_message(message);
                        (204, Value::Null)
                    }
                    ("PUT" | "DELETE", ["reactions", emoji, "@me"]) => {
                        self.react(bot, message, emoji, method == "PUT")
                    }
                    _ => unknown(),
                }
            }
            _ => unknown(),
        }
    }

    fn react(&mut self, bot: &str, message: &str, emoji: &str, is_added: bool) -> Answered {
        if emoji.is_ascii() && !emoji.contains(':') {
            return (400, json!({ "message": "Unknown Emoji", "code": 10014 }));
        }
        let reaction = (emoji.to_owned(), bot.to_owned());
        let reactions = &mut self.message_mut(message).unwrap().reactions;
        reactions.retain(|held| *held != reaction);
        if is_added {
            reactions.push(reaction);
        }
        (204, Value::Null)
    }

    /// Returns the status and the content of a file.
    fn download(&mut self, request: &axum::http::request::Parts) -> (u16, Body) {
        let path = request.uri.path();
        self.requests.push(format!("GET {path}"));
        if let Some(FakeDiscordFaultKind::Status(status)) = self.take_fault(&format!("GET {path}")) {
            return (status, Body::empty());
        }
        // A client that sends its token to the file server gives it away.
        if request.headers.contains_key("authorization") {
            return (400, Body::empty());
        }
        let is_current = request.uri.query() == Some(&self.file_query());
        match self.streamed_file_size {
            Some(bytes) if is_current => (200, streamed_body(bytes)),
            None if is_current => (200, Body::from(self.files[path].clone())),
            Some(_) | None => (404, Body::from("This content is no longer available.")),
        }
    }

    /// Returns the newest messages of a channel before or after an id, the newest first.
    fn page(&self, bot: &str, channel: &str, query: &str) -> Value {
        let parameter = |name: &str| -> Option<u64> {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name)?.1.parse().ok()
        };
        let limit = usize::try_from(parameter("limit").unwrap_or(50)).unwrap();
        let (before, after) = (parameter("before"), parameter("after"));
        let all = self.messages.iter().filter(|(id, message)| {
            message.channel == channel
                && before.is_none_or(|before| **id < before)
                && after.is_none_or(|after| **id > after)
        });
        let all: Vec<&FakeDiscordMessage> = all.map(|(_, message)| message).collect();
        let start = if after.is_some() { 0 } else { all.len().saturating_sub(limit) };
        all.iter().skip(start).take(limit).rev().map(|message| self.message_json(message, bot)).collect()
    }

    fn post(&mut self, bot: &str, channel: &str, request: FakeDiscordRequest) -> Answered {
        let payload = &request.payload;
        if let Some(refusal) = refusal(payload) {
            return refusal;
        }
        let content = payload["content"].as_str().unwrap_or_default().trim();
        let has_embeds = payload["embeds"].as_array().is_some_and(|embeds| !embeds.is_empty());
        if content.is_empty() && request.files.is_empty() && !has_embeds {
            return (400, json!({ "message": "Cannot send an empty message", "code": 50006 }));
        }
        let nonce = payload["nonce"].as_str().map(|nonce| (bot.to_owned(), nonce.to_owned()));
        let is_unique = payload["enforce_nonce"] == true;
        let earlier = nonce.as_ref().filter(|_| is_unique).and_then(|nonce| self.nonces.get(nonce));
        let id = if let Some(id) = earlier.map(u64::to_string) {
            id
        } else {
            let flags = payload["flags"].as_u64().unwrap_or_default();
            self.fetch_links(content, flags);
            self.add_post(bot, channel, &request.payload, request.files)
        };
        let mut answer = self.message_json(self.message(&id).unwrap(), bot);
        answer["nonce"] = json!(nonce.map(|(_, nonce)| nonce));
        (200, answer)
    }

    /// Stores a message of a bot and returns its id.
    fn add_post(&mut self, bot: &str, channel: &str, payload: &Value, files: Vec<FakeDiscordFile>) -> String {
        let reply_to = payload["message_reference"]["message_id"].as_str().map(str::to_owned);
        let message = FakeDiscordMessage {
            channel: channel.to_owned(),
            author: bot.to_owned(),
            content: payload["content"].as_str().unwrap_or_default().trim().to_owned(),
            nonce: payload["nonce"].as_str().map(str::to_owned),
            reply_to: reply_to.filter(|id| self.message(id).is_some()),
            files,
            components: payload["components"].clone(),
            embeds: payload["embeds"].clone(),
            flags: payload["flags"].as_u64().unwrap_or_default(),
            ..FakeDiscordMessage::default()
        };
        let nonce = message.nonce.clone();
        let allowed = payload.get("allowed_mentions").filter(|allowed| allowed.is_object());
        let id = self.add_message(message, allowed);
        if let Some(nonce) = nonce {
            self.nonces.insert((bot.to_owned(), nonce), id.parse().unwrap());
        }
        id
    }

    fn commands(&mut self, method: &str, bot: &str, guild: &str, payload: &Value) -> Answered {
        let FakeDiscordBot { account, commands: registered, .. } = self.bot(bot).unwrap();
        let application = account.application.clone();
        match method {
            "GET" => (200, json!(registered.get(guild).cloned().unwrap_or_default())),
            "PUT" => {
                let mut commands: Vec<Value> = payload.as_array().cloned().unwrap_or_default();
                for command in &mut commands {
                    command["id"] = json!(self.new_id());
                    (command["application_id"], command["version"]) = (json!(application), json!("1"));
                    if !guild.is_empty() {
                        command["guild_id"] = json!(guild);
                    }
                    // Discord leaves out empty lists and `false`.
                    for option in command["options"].as_array_mut().into_iter().flatten() {
                        let option = option.as_object_mut().unwrap();
                        option.retain(|_, value| *value != json!([]) && *value != json!(false));
                    }
                }
                self.bot_mut(bot).unwrap().commands.insert(guild.to_owned(), commands.clone());
                (200, json!(commands))
            }
            _ => unknown(),
        }
    }

    fn remove_command(&mut self, bot: &str, guild: &str, id: &str) -> Answered {
        let commands = self.bot_mut(bot).unwrap().commands.entry(guild.to_owned()).or_default();
        let before = commands.len();
        commands.retain(|command| command["id"] != id);
        if commands.len() < before { (204, Value::Null) } else { unknown() }
    }

    /// Takes the first answer to an interaction.
    fn callback(&mut self, token: &str, payload: &Value) -> Answered {
        let Some(interaction) = self.interactions.get_mut(token) else {
            return (404, json!({ "message": "Unknown interaction", "code": 10062 }));
        };
        if interaction.callback.is_some() {
            let text = "Interaction has already been acknowledged.";
            return (400, json!({ "message": text, "code": 40060 }));
        }
        let data = &payload["data"];
        if let Some(refusal) = refusal(data) {
            return refusal;
        }
        let kind = payload["type"].as_u64().unwrap_or_default();
        interaction.callback = Some(kind);
        interaction.flags = data["flags"].as_u64().unwrap_or_default();
        interaction.text = match kind {
            4 => data["content"].as_str().map(str::to_owned),
            6 => Some(String::new()),
            AUTOCOMPLETE_RESULT => data["choices"].as_array().map(|choices| {
                let names = choices.iter().filter_map(|choice| choice["name"].as_str());
                names.collect::<Vec<_>>().join("\n")
            }),
            _ => None,
        };
        if kind == 4 {
            let flags = interaction.flags;
            self.fetch_links(data["content"].as_str().unwrap_or_default(), flags);
        }
        (204, Value::Null)
    }

    /// Changes the answer to an interaction, or adds another one.
    fn change_answer(
        &mut self,
        method: &str,
        application: &str,
        token: &str,
        rest: &[&str],
        payload: &Value,
    ) -> Answered {
        let is_of = |bot: &FakeDiscordBot| bot.account.application == application;
        let bot = self.bots.iter().find(|bot| is_of(bot)).map(|bot| bot.account.id.clone());
        let is_open = |found: &&mut FakeDiscordInteraction| {
            found.callback.is_some() && Some(&found.bot) == bot.as_ref()
        };
        let Some(interaction) = self.interactions.get_mut(token).filter(is_open) else {
            return (404, json!({ "message": "Unknown Webhook", "code": 10015 }));
        };
        if let Some(refusal) = refusal(payload) {
            return refusal;
        }
        interaction.text = match (method, rest) {
            ("PATCH", ["messages", "@original"]) | ("POST", []) => {
                payload["content"].as_str().map(str::to_owned)
            }
            ("DELETE", ["messages", "@original"]) => Some(String::new()),
            _ => return unknown(),
        };
        if method == "DELETE" {
            return (204, Value::Null);
        }
        let message = FakeDiscordMessage {
            channel: interaction.channel.clone(),
            author: interaction.bot.clone(),
            content: interaction.text.clone().unwrap_or_default(),
            flags: interaction.flags,
            ..FakeDiscordMessage::default()
        };
        let flags = payload["flags"].as_u64().unwrap_or_default();
        self.fetch_links(&message.content, flags);
        let message = FakeDiscordMessage { id: self.new_id(), ..message };
        (200, self.message_json(&message, &message.author))
    }
}

/// Returns the error of a message that is too large.
fn refusal(payload: &Value) -> Option<Answered> {
    let invalid = |what: &str| {
        Some((400, json!({ "message": "Invalid Form Body", "code": 50035, "errors": { what: "too long" } })))
    };
    let length = |value: &Value| value.as_str().unwrap_or_default().chars().count();
    if length(&payload["content"]) > MOST_CHARACTERS {
        return invalid("content");
    }
    if length(&payload["nonce"]) > MOST_NONCE_CHARACTERS {
        return invalid("nonce");
    }
    let rows = payload["components"].as_array().map(Vec::as_slice).unwrap_or_default();
    for row in rows {
        let buttons = row["components"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_long = |button: &Value| length(&button["custom_id"]) > MOST_VALUE_CHARACTERS;
        if buttons.is_empty() || buttons.len() > 5 || buttons.iter().any(is_long) {
            return invalid("components");
        }
    }
    if rows.len() > 5 { invalid("components") } else { None }
}

fn unknown() -> Answered {
    (404, json!({ "message": "404: Not Found", "code": 0 }))
}

/// Returns the name of the limit of a route.
fn bucket_of(line: &str) -> String {
    line.chars().filter(char::is_ascii_alphabetic).collect()
}

fn respond(line: &str, (status, body): Answered) -> Response {
    let builder = Response::builder()
        .status(StatusCode::from_u16(status).unwrap())
        .header("x-ratelimit-bucket", bucket_of(line))
        .header("x-ratelimit-limit", "1000")
        .header("x-ratelimit-remaining", "999")
        .header("x-ratelimit-reset-after", "1.000");
    if status == 204 {
        return builder.body(Body::empty()).unwrap();
    }
    builder.header("content-type", "application/json").body(Body::from(body.to_string())).unwrap()
}

fn rate_limited(line: &str, retry_after: f64, is_global: bool) -> Response {
    let body =
        json!({ "message": "You are being rate limited.", "retry_after": retry_after, "global": is_global });
    let mut builder = Response::builder()
        .status(429)
        .header("content-type", "application/json")
        .header("retry-after", retry_after.ceil().to_string())
        .header("x-ratelimit-scope", if is_global { "global" } else { "user" });
    if is_global {
        builder = builder.header("x-ratelimit-global", "true");
    } else {
        builder = builder
            .header("x-ratelimit-bucket", bucket_of(line))
            .header("x-ratelimit-limit", "1000")
            .header("x-ratelimit-remaining", "0")
            .header("x-ratelimit-reset-after", retry_after.to_string());
    }
    builder.body(Body::from(body.to_string())).unwrap()
}
