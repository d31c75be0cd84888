//! Requests to Slack's Web API: tokens, rate limits, errors and repetition.

use std::time::Duration;

use cowhand_core::backoff::Backoff;
use cowhand_system::http::{USER_AGENT, client_builder};
use cowhand_system::wait;
use jiff::SignedDuration;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, StatusCode, Url};
use serde_json::Value;
use tokio::time::sleep;

use super::PLATFORM;
use crate::ChatError;
use crate::platform_clock::PlatformClock;
use crate::retry_after::wait_of_seconds;
use crate::token_refusal::TokenRefusal;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time that a request waits for the end of rate limits.
const MAX_RATE_LIMIT_WAIT: Duration = Duration::from_mins(1);
/// Wait if Slack does not state how long the rate limit lasts.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);
const MAX_TRIES: u32 = 4;
const RETRY_WAITS: Backoff =
    Backoff::doubling(SignedDuration::from_millis(500), SignedDuration::from_secs(5));
/// Errors that mean that a token is not valid any more.
const REVOKED: [&str; 6] = [
    "account_inactive",
    "invalid_auth",
    "not_authed",
    "token_expired",
    "token_revoked",
    "user_removed_from_team",
];
/// Errors that mean that too many requests were made.
const RATE_LIMITED: [&str; 2] = ["rate_limited", "ratelimited"];
/// Temporary errors, some of them of a workspace that is being moved. The request may have been executed.
const TEMPORARY: [&str; 9] = [
    "external_channel_migrating",
    "fatal_error",
    "internal_error",
    "message_limit_exceeded",
    "org_login_required",
    "request_timeout",
    "service_unavailable",
    "team_added_to_org",
    "unknown_error",
];

/// Token with which a request is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    Bot,
    App,
}

/// Condition under which a request is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallRepeat {
    /// After temporary errors and rate limits: a second execution has no further effect.
    Always,
    /// Only if Slack has certainly not executed it.
    IfNotExecuted,
    /// Never, because the caller can continue without the answer.
    Never,
}

/// Reason why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallError {
    /// Slack answered with this error.
    Code {
        method: &'static str,
        code: String,
        needed_scope: Option<String>,
    },
    RateLimited {
        retry_after: Duration,
    },
    /// The request was not sent.
    NotSent {
        reason: String,
    },
    /// The request may have been executed.
    Unknown {
        reason: String,
    },
}

impl CallError {
    pub(super) fn code(&self) -> Option<&str> {
        match self {
            Self::Code { code, .. } => Some(code),
            Self::RateLimited { .. } | Self::NotSent { .. } | Self::Unknown { .. } => None,
        }
    }

    pub(super) fn is_revoked(&self) -> bool {
        self.code().is_some_and(|code| REVOKED.contains(&code))
    }
}

impl From<CallError> for ChatError {
    fn from(error: CallError) -> Self {
        let is_revoked = error.is_revoked();
        match error {
            CallError::Code { code, .. } if is_revoked => Self::Revoked { platform: PLATFORM, reason: code },
            CallError::Code { method, code, needed_scope } => {
                let scope = needed_scope.map_or_else(String::new, |scope| format!(" (needed: {scope})"));
                Self::Refused { platform: PLATFORM, reason: format!("{method}: {code}{scope}") }
            }
            CallError::RateLimited { retry_after } => Self::RateLimited { platform: PLATFORM, retry_after },
            CallError::NotSent { reason } | CallError::Unknown { reason } => {
                Self::Unavailable { platform: PLATFORM, reason }
            }
        }
    }
}

/// Parameters of a request.
pub(super) type MethodParams = Vec<(&'static str, String)>;

/// Answer of Slack with `ok: true`.
pub(super) struct SlackAnswer {
    pub(super) body: Value,
    /// Scopes of the token; none if the answer does not state them.
    pub(super) scopes: Option<Vec<String>>,
}

/// Client of the Web API.
pub(super) struct SlackApi {
    pub(super) http: Client,
    pub(super) base: Url,
    pub(super) bot_authorization: HeaderValue,
    app_authorization: HeaderValue,
    /// The last refusal of the bot's token, with the error of Slack. While there is one, no request is made with this
    /// token.
    pub(super) refusal: TokenRefusal,
    pub(super) clock: PlatformClock,
}

impl SlackApi {
    pub(super) fn new(url: &str, bot_token: &str, app_token: &str) -> Result<Self, ChatError> {
        let refused = |reason: &str| ChatError::Refused { platform: PLATFORM, reason: reason.to_owned() };
        let url = if url.ends_with('/') { url.to_owned() } else { format!("{url}/") };
        let base = Url::parse(&url).map_err(|_| refused("the address of the API is not a URL"))?;
        if !matches!(base.scheme(), "http" | "https") || base.host().is_none() {
            return Err(refused("the address of the API does not begin with https:// or http://"));
        }
        let http = client_builder().user_agent(USER_AGENT).connect_timeout(CONNECT_TIMEOUT).build();
        let http = http.map_err(|error| refused(&format!("the HTTP client cannot be built: {error}")))?;
        let header = |token: &str| {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
                .map_err(|_| refused("a token contains a character that no token contains"))?;
            value.set_sensitive(true);
            Ok::<_, ChatError>(value)
        };
        let (bot_authorization, app_authorization) = (header(bot_token)?, header(app_token)?);
        let (refusal, clock) = (TokenRefusal::default(), PlatformClock::default());
        Ok(Self { http, base, bot_authorization, app_authorization, refusal, clock })
    }

    /// Calls a method with the bot's token.
    pub(super) async fn call(
        &self,
        method: &'static str,
        params: &MethodParams,
        repeat: CallRepeat,
    ) -> Result<Value, CallError> {
        self.call_as(TokenKind::Bot, method, params, repeat).await.map(|answer| answer.body)
    }

    pub(super) async fn call_as(
        &self,
        token: TokenKind,
        method: &'static str,
        params: &MethodParams,
        repeat: CallRepeat,
    ) -> Result<SlackAnswer, CallError> {
        let (mut failures, mut waited) = (0, Duration::ZERO);
        loop {
            if let Some(code) = self.refusal.reason().filter(|_| token == TokenKind::Bot) {
                return Err(CallError::Code { method, code, needed_scope: None });
            }
            let error = match self.call_once(token, method, params).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if let Some(code) = error.code().filter(|_| token == TokenKind::Bot && error.is_revoked()) {
                self.refusal.record(code.to_owned());
            }
            let wait = match &error {
                _ if repeat == CallRepeat::Never => return Err(error),
                CallError::Code { .. } => return Err(error),
                CallError::RateLimited { retry_after } => {
                    waited += *retry_after;
                    if waited > MAX_RATE_LIMIT_WAIT {
                        return Err(error);
                    }
                    *retry_after
                }
                CallError::Unknown { .. } if repeat != CallRepeat::Always => return Err(error),
                CallError::Unknown { .. } | CallError::NotSent { .. } => {
                    failures += 1;
                    if failures >= MAX_TRIES {
                        return Err(error);
                    }
                    wait::length("chat_retry", RETRY_WAITS.wait_after(failures))
                }
            };
            sleep(wait).await;
        }
    }

    async fn call_once(
        &self,
        token: TokenKind,
        method: &'static str,
        params: &MethodParams,
    ) -> Result<SlackAnswer, CallError> {
        let url = self.base.join(method).map_err(|error| CallError::NotSent { reason: error.to_string() })?;
        let authorization = match token {
            TokenKind::Bot => &self.bot_authorization,
            TokenKind::App => &self.app_authorization,
        };
        let request = self
            .http
            .post(url)
            .timeout(REQUEST_TIMEOUT)
            .header(reqwest::header::AUTHORIZATION, authorization)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form(params));
        let response = request.send().await.map_err(|error| transport_error(method, error))?;
        let (status, headers) = (response.status(), response.headers().clone());
        self.clock.note(&headers);
        if status == StatusCode::TOO_MANY_REQUESTS {
            return Err(CallError::RateLimited { retry_after: retry_after(&headers) });
        }
        if !status.is_success() {
            return Err(CallError::Unknown { reason: format!("{method}: HTTP status {}", status.as_u16()) });
        }
        let bytes = response.bytes().await.map_err(|error| transport_error(method, error))?;
        let body: Value = serde_json::from_slice(&bytes)
            .map_err(|_| CallError::Unknown { reason: format!("{method}: the answer is not JSON") })?;
        read_answer(method, body, &headers)
    }
}

fn read_answer(method: &'static str, body: Value, headers: &HeaderMap) -> Result<SlackAnswer, CallError> {
    if body["ok"] == true {
        let scopes = headers.get("x-oauth-scopes").and_then(|scopes| scopes.to_str().ok());
        let scopes = scopes.map(|scopes| scopes.split(',').map(|scope| scope.trim().to_owned()).collect());
        return Ok(SlackAnswer { body, scopes });
    }
    let code = body["error"].as_str().unwrap_or("unknown_error").to_owned();
    if RATE_LIMITED.contains(&code.as_str()) {
        return Err(CallError::RateLimited { retry_after: retry_after(headers) });
    }
    if TEMPORARY.contains(&code.as_str()) {
        return Err(CallError::Unknown { reason: format!("{method}: {code}") });
    }
    let needed_scope = body["needed"].as_str().map(str::to_owned);
    Err(CallError::Code { method, code, needed_scope })
}

/// Describes an error of a connection without the URL, because some URLs are secret.
pub(super) fn transport_error(what: &str, error: reqwest::Error) -> CallError {
    let is_sent = !error.is_connect();
    let reason = format!("{what}: {}", error.without_url());
    if is_sent { CallError::Unknown { reason } } else { CallError::NotSent { reason } }
}

fn retry_after(headers: &HeaderMap) -> Duration {
    let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
    seconds.map_or(DEFAULT_RETRY_AFTER, wait_of_seconds)
}

/// Encodes parameters as a form. Every method accepts forms, but only some accept JSON.
fn form(params: &MethodParams) -> String {
    let Ok(mut url) = Url::parse("form:/") else { return String::new() };
    url.query_pairs_mut().extend_pairs(params);
    url.query().unwrap_or_default().to_owned()
}
