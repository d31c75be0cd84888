//! Requests to Discord's REST API: rate limits, repetitions and errors.

use std::time::Duration;

use cowhand_system::wait;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Method, StatusCode, Url};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout};

use super::rate_limit::{DiscordLimits, RestRoute};
use crate::ChatError;
use crate::platform_clock::{PlatformClock, date_of};
use crate::request_timeout::request_timeout;
use crate::retry_after::wait_of_seconds;
use crate::token_refusal::TokenRefusal;

pub(super) const PLATFORM: &str = "Discord";
/// Longest time that a request waits for rate limits.
const MOST_WAIT: Duration = Duration::from_mins(1);
/// Waits before the repetitions of a request that got no answer or an error of the server.
const REPEAT_WAITS: [Duration; 3] =
    [Duration::from_millis(300), Duration::from_secs(1), Duration::from_secs(3)];
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time without new bytes of a download.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// Client of the REST API with the token of one bot.
#[derive(Debug)]
pub(super) struct DiscordRest {
    client: Client,
    /// Address of the platform without a slash at its end.
    api_url: String,
    /// Marked as sensitive, so that debug output does not show it.
    authorization: HeaderValue,
    limits: DiscordLimits,
    /// The last refusal of the token. For some minutes after it, no request is made with the token.
    pub(super) refusal: TokenRefusal,
    pub(super) clock: PlatformClock,
}

#[derive(Debug)]
pub(super) struct RestRequest {
    pub(super) method: Method,
    /// Path below `/api/v10`.
    pub(super) path: String,
    pub(super) body: RestBody,
    /// True if a second execution has no further effect.
    pub(super) is_repeatable: bool,
    /// False for the routes of an interaction, whose path contains a token of its own.
    pub(super) with_token: bool,
}

#[derive(Debug)]
pub(super) enum RestBody {
    Empty,
    Json(Value),
    Multipart { boundary: String, bytes: Vec<u8> },
}

impl RestBody {
    /// Returns the size of a file upload. Other bodies are small.
    const fn length(&self) -> usize {
        match self {
            Self::Empty | Self::Json(_) => 0,
            Self::Multipart { bytes, .. } => bytes.len(),
        }
    }
}

#[derive(Debug)]
pub(super) struct RestAnswer {
    pub(super) body: Value,
    /// Time of the answer in whole seconds, by the clock of the platform.
    pub(super) date: Option<jiff::Timestamp>,
}

/// Reason why a request did not succeed. The texts contain no token.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum RestError {
    #[error("{0}")]
    Revoked(String),
    #[error("{message} (status {status}, code {code})")]
    Refused { status: u16, code: u64, message: String },
    #[error("the rate limit is reached for {} s", .0.as_secs())]
    RateLimited(Duration),
    #[error("{0}")]
    Unavailable(String),
}

impl From<RestError> for ChatError {
    fn from(error: RestError) -> Self {
        let reason = error.to_string();
        match error {
            RestError::Revoked(_) => Self::Revoked { platform: PLATFORM, reason },
            RestError::Refused { .. } => Self::Refused { platform: PLATFORM, reason },
            RestError::RateLimited(retry_after) => Self::RateLimited { platform: PLATFORM, retry_after },
            RestError::Unavailable(_) => Self::Unavailable { platform: PLATFORM, reason },
        }
    }
}

impl RestRequest {
    pub(super) fn new(method: Method, path: impl Into<String>) -> Self {
        let is_repeatable = method != Method::POST;
        Self { method, path: path.into(), body: RestBody::Empty, is_repeatable, with_token: true }
    }

    pub(super) fn json(mut self, body: Value) -> Self {
        self.body = RestBody::Json(body);
        self
    }
}

/// Body of an answer with an error.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ErrorBody {
    code: u64,
    message: String,
    retry_after: Option<f64>,
    global: bool,
    errors: Option<Value>,
}

impl DiscordRest {
    pub(super) fn new(token: &str, api_url: &str) -> Result<Self, ChatError> {
        let unusable = |reason: &str| ChatError::Revoked { platform: PLATFORM, reason: reason.to_owned() };
        if token.is_empty() {
            return Err(unusable("the token is empty"));
        }
        let mut authorization = HeaderValue::from_str(&format!("Bot {token}"))
            .map_err(|_| unusable("the token contains characters that no token has"))?;
        authorization.set_sensitive(true);
        let client = cowhand_system::http::client_builder()
            .user_agent(concat!("DiscordBot (cowhand, ", env!("CARGO_PKG_VERSION"), ")"))
            .connect_timeout(CONNECT_TIMEOUT)
            .build()
            .map_err(|error| unavailable(error.without_url()))?;
        let api_url = api_url.trim_end_matches('/').to_owned();
        let limits = DiscordLimits::default();
        let (refusal, clock) = (TokenRefusal::default(), PlatformClock::default());
        Ok(Self { client, api_url, authorization, limits, refusal, clock })
    }

    pub(super) fn api_url(&self) -> &str {
        &self.api_url
    }

    pub(super) async fn get(&self, path: impl Into<String>) -> Result<Value, RestError> {
        Ok(self.send(&RestRequest::new(Method::GET, path)).await?.body)
    }

    pub(super) async fn send(&self, request: &RestRequest) -> Result<RestAnswer, RestError> {
        let route = RestRoute::new(&request.method, &request.path);
        let mut repeat_waits = REPEAT_WAITS.iter();
        let deadline = Instant::now() + MOST_WAIT;
        loop {
            let error = match self.try_once(request, &route, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(TryError::Waited) => continue,
                Err(TryError::NotSent(error)) => error,
                Err(TryError::Unclear(error)) if request.is_repeatable => error,
                Err(TryError::Unclear(error) | TryError::Final(error)) => return Err(error),
            };
            let Some(wait) = repeat_waits.next() else { return Err(error) };
            sleep(wait::length("chat_retry", *wait)).await;
        }
    }

    async fn try_once(
        &self,
        request: &RestRequest,
        route: &RestRoute,
        deadline: Instant,
    ) -> Result<RestAnswer, TryError> {
        if let (true, Some(reason)) = (request.with_token, self.refusal.reason()) {
            return Err(TryError::Final(RestError::Revoked(reason)));
        }
        if let Err(wait) = self.limits.reserve(route) {
            return Err(wait_or_refuse(wait, deadline).await);
        }
        let response = self.build(request).send().await.map_err(|error| {
            let is_unsent = error.is_connect();
            let error = RestError::Unavailable(connection_reason(error));
            if is_unsent { TryError::NotSent(error) } else { TryError::Unclear(error) }
        })?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = response
            .bytes()
            .await
            .map_err(|error| TryError::Unclear(RestError::Unavailable(connection_reason(error))))?;
        self.limits.note(route, &headers);
        self.clock.note(&headers);
        if status.is_success() {
            let body = if body.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(&body) };
            let body = body.map_err(|error| {
                TryError::Unclear(RestError::Unavailable(format!("the answer is not JSON: {error}")))
            })?;
            return Ok(RestAnswer { body, date: date_of(&headers) });
        }
        let details: ErrorBody = serde_json::from_slice(&body).unwrap_or_default();
        match status {
            StatusCode::TOO_MANY_REQUESTS => {
                let seconds = details
                    .retry_after
                    .or_else(|| headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok()));
                let wait = wait_of_seconds(seconds.unwrap_or(1.0));
                self.limits.note_refusal(route, wait, details.global);
                Err(wait_or_refuse(wait, deadline).await)
            }
            StatusCode::UNAUTHORIZED if request.with_token => {
                let reason =
                    "the token is wrong or was revoked; create a new one on the page Bot of the app in the \
                              Discord Developer Portal"
                        .to_owned();
                self.refusal.record(reason.clone());
                Err(TryError::Final(RestError::Revoked(reason)))
            }
            status if status.is_server_error() => {
                Err(TryError::Unclear(RestError::Unavailable(format!("status {status}"))))
            }
            status => Err(TryError::Final(refusal(status, details))),
        }
    }

    fn build(&self, request: &RestRequest) -> reqwest::RequestBuilder {
        let url = format!("{}/api/v10{}", self.api_url, request.path);
        let mut builder = self.client.request(request.method.clone(), url);
        // The limit is for the whole request. The `read_timeout` of reqwest also runs while the body is sent.
        builder = builder.timeout(request_timeout(request.body.length()));
        if request.with_token {
            builder = builder.header(AUTHORIZATION, self.authorization.clone());
        }
        match &request.body {
            RestBody::Empty => builder,
            RestBody::Json(value) => builder.header(CONTENT_TYPE, "application/json").body(value.to_string()),
            RestBody::Multipart { boundary, bytes } => {
                let content_type = format!("multipart/form-data; boundary={boundary}");
                builder.header(CONTENT_TYPE, content_type).body(bytes.clone())
            }
        }
    }

    /// Downloads a file, without sending the token. Returns an error if the file has more than `limit` bytes.
    pub(super) async fn download(&self, url: Url, limit: u64) -> Result<Vec<u8>, ChatError> {
        let failed = |error: reqwest::Error| unavailable(error.without_url());
        let too_slow = |_| unavailable(format!("no data for {} s", READ_TIMEOUT.as_secs()));
        let sent = timeout(READ_TIMEOUT, self.client.get(url).send()).await.map_err(too_slow)?;
        let mut response = sent.map_err(failed)?;
        let status = response.status();
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            return Err(unavailable(format!("status {status} for the file")));
        }
        if !status.is_success() {
            let reason = format!("status {status} for the file");
            return Err(ChatError::Refused { platform: PLATFORM, reason });
        }
        let mut content = Vec::new();
        while let Some(chunk) =
            timeout(READ_TIMEOUT, response.chunk()).await.map_err(too_slow)?.map_err(failed)?
        {
            content.extend_from_slice(&chunk);
            if content.len() as u64 > limit {
                return Err(ChatError::TooLarge { limit });
            }
        }
        Ok(content)
    }
}

/// Reason why one try of a request did not succeed.
enum TryError {
    /// The try has waited for the end of a rate limit. No request was executed.
    Waited,
    /// The request did not reach the platform.
    NotSent(RestError),
    /// The request may have been executed.
    Unclear(RestError),
    Final(RestError),
}

async fn wait_or_refuse(wait: Duration, deadline: Instant) -> TryError {
    if Instant::now() + wait > deadline {
        return TryError::Final(RestError::RateLimited(wait));
    }
    sleep(wait).await;
    TryError::Waited
}

fn refusal(status: StatusCode, details: ErrorBody) -> RestError {
    let mut message = details.message;
    if message.is_empty() {
        status.canonical_reason().unwrap_or("unknown status").clone_into(&mut message);
    }
    if let Some(errors) = details.errors {
        message = format!("{message}: {errors}");
    }
    RestError::Refused { status: status.as_u16(), code: details.code, message }
}

/// Returns the text of an error with its causes, without the address, which can contain the token of an interaction.
fn connection_reason(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut reason = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(inner) = cause {
        reason = format!("{reason}: {inner}");
        cause = inner.source();
    }
    reason
}

fn unavailable(reason: impl std::fmt::Display) -> ChatError {
    ChatError::Unavailable { platform: PLATFORM, reason: reason.to_string() }
}
