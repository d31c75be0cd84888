//! Requests to GitHub, with retries, redirects and rate limits.

use std::time::Duration;

use cowhand_core::github;
use jiff::Timestamp;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, IF_NONE_MATCH};
use reqwest::{Method, Url};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::OnceCell;
use tracing::{debug, warn};

use super::advice;
use super::auth::{ApiAuth, Secret};
use super::cache::PageCache;
use super::limits::{RateLimitKind, extract_rate_limit_info};
use super::models::RefusalBody;
use super::quota::Meter;
use super::response::{ApiResponse, read_body};
use super::retry::{Repeat, RetryOptions, calculate_backoff_delay, next_delay};
use super::settings::GitHubSettings;
use crate::error::github::{ApiFailure, GitHubApiError, TokenFacts};
use crate::quota::Quota;
use crate::{SourceContext, WorkSourceError};
use cowhand_system::http;

/// Largest number of redirects of a request. Transferred repositories need one redirect; the limit ends loops.
const MAX_REDIRECTS: usize = 5;

/// Client of one GitHub server. It keeps the rate limit and cached pages between its requests.
#[derive(Debug)]
pub struct GitHubClient {
    http: reqwest::Client,
    /// URL of the API, without a slash at its end.
    base: String,
    pub(super) auth: ApiAuth,
    /// Description of where the credentials come from, for messages.
    pub(super) origin: String,
    /// Repository that messages name. A GitHub App requests its token for the installation in this repository, unless
    /// the config names the installation.
    pub(super) repo: String,
    pub(super) retry: RetryOptions,
    meter: Meter,
    pub(super) cache: PageCache,
    pub(super) viewer: OnceCell<Option<String>>,
}

/// One request.
#[derive(Debug)]
pub(super) struct ApiRequest {
    pub(super) method: Method,
    /// Path from the root of the API, without a leading slash, with the query.
    pub(super) path: String,
    pub(super) body: Option<Value>,
    pub(super) repeat: Repeat,
    pub(super) etag: Option<HeaderValue>,
}

impl ApiRequest {
    pub(super) fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), body: None, repeat: Repeat::Safe, etag: None }
    }

    pub(super) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub(super) fn with(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    /// Returns method and path for messages, without the query.
    pub(super) fn endpoint(&self) -> String {
        let path = self.path.split('?').next().unwrap_or_default();
        format!("{} /{path}", self.method)
    }

    pub(super) fn failed(&self, kind: ApiFailure, message: impl Into<String>) -> GitHubApiError {
        let (endpoint, message) = (self.endpoint(), message.into());
        GitHubApiError { status: None, endpoint, message, rate_limit: None, kind, token: Box::default() }
    }
}

impl GitHubClient {
    pub(super) fn new(
        settings: &GitHubSettings,
        auth: &github::Auth,
        context: &SourceContext,
    ) -> Result<Self, WorkSourceError> {
        let origin = ApiAuth::origin(auth);
        let auth = ApiAuth::from_config(auth, &settings.repo, context)?;
        // The HTTP client does not follow redirects; `exchange` does. The token must not be sent to another host, and a
        // POST must remain a POST.
        let http = http::client_builder()
            .user_agent(http::USER_AGENT)
            .connect_timeout(settings.connect_timeout)
            .timeout(settings.timeout)
            .build()
            .map_err(|error| {
                WorkSourceError::Config(format!("GitHub: no HTTPS client can be made: {error}"))
            })?;
        let base = settings.api_url.trim_end_matches('/').to_owned();
        let named = Url::parse(&base).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        if named.is_none_or(|url| url.host().is_none()) {
            return Err(WorkSourceError::Config(format!(
                "api_url: {base:?} is not the address of an API; expected for example https://github.example.com/api/v3"
            )));
        }
        Ok(Self {
            http,
            base,
            auth,
            origin,
            repo: settings.repo.clone(),
            retry: settings.retry.clone(),
            meter: Meter::new(settings.warning.clone()),
            cache: PageCache::default(),
            viewer: OnceCell::new(),
        })
    }

    pub fn quota(&self) -> Quota {
        self.meter.quota()
    }

    pub(super) async fn ask<T: DeserializeOwned>(&self, call: ApiRequest) -> Result<T, GitHubApiError> {
        self.call(&call).await?.json(&call.endpoint())
    }

    /// Sends a request, with waits and retries. Dropping the future ends the waits.
    pub(super) async fn call(&self, call: &ApiRequest) -> Result<ApiResponse, GitHubApiError> {
        let (mut attempt, mut renewed) = (0, false);
        loop {
            self.wait_while_blocked(call).await?;
            let error = match self.token(call).await {
                Ok(token) => match self.exchange(call, &token).await {
                    Ok(reply) => return Ok(reply),
                    Err(error) => {
                        if let (Some(401), false, ApiAuth::App(app)) = (error.status, renewed, &self.auth) {
                            app.forget(&token).await;
                            renewed = true;
                            continue;
                        }
                        error
                    }
                },
                Err(error) => error,
            };
            let Some(delay) = next_delay(&error, attempt, call.repeat, &self.retry, fastrand::f64()) else {
                return Err(error);
            };
            debug!(%error, ?delay, "GitHub: trying again");
            attempt += 1;
            // If GitHub stated the wait, `wait_while_blocked` waits at the start of the loop, as for all other calls.
            if !matches!(error.kind, ApiFailure::RateLimit { wait: Some(_), .. }) {
                self.wait(delay).await;
            }
        }
    }

    /// Waits after a failed request, before the caller checks whether GitHub carried it out (`Repeat::CheckFirst`).
    pub(super) async fn back_off(&self, attempt: u32) {
        self.wait(calculate_backoff_delay(attempt, &self.retry, fastrand::f64())).await;
    }

    async fn wait(&self, delay: Duration) {
        self.meter.record_wait(delay);
        tokio::time::sleep(delay).await;
    }

    async fn wait_while_blocked(&self, call: &ApiRequest) -> Result<(), GitHubApiError> {
        while let Some((left, until)) = self.meter.blocked_for(Timestamp::now()) {
            if left > self.retry.max_delay {
                let kind = ApiFailure::RateLimit { wait: Some(left), ends: Some(until) };
                return Err(call.failed(kind, "no request was sent, because GitHub's rate limit is reached"));
            }
            self.wait(left).await;
        }
        Ok(())
    }

    /// Sends one request. Redirects are followed on the same host, with the same method.
    pub(super) async fn exchange(
        &self,
        call: &ApiRequest,
        token: &Secret,
    ) -> Result<ApiResponse, GitHubApiError> {
        let first = format!("{}/{}", self.base, call.path);
        let mut url = Url::parse(&first)
            .map_err(|error| call.failed(ApiFailure::Unreadable, format!("{first}: {error}")))?;
        for redirects in 0..=MAX_REDIRECTS {
            let (status, headers, body) = self.send(call, url.clone(), token).await?;
            let reply = ApiResponse { status, headers, body, was_redirected: redirects > 0 };
            match status {
                200..=299 | 304 => {
                    self.meter.record_response(extract_rate_limit_info(&reply.headers), status == 304);
                    return Ok(reply);
                }
                301 | 302 | 307 | 308 => url = redirect_target(call, &url, &reply)?,
                _ => {
                    self.meter.record_response(extract_rate_limit_info(&reply.headers), false);
                    return Err(self.refused(call, &reply, token));
                }
            }
        }
        Err(call.failed(ApiFailure::Unreadable, "redirected in a circle"))
    }

    async fn send(
        &self,
        call: &ApiRequest,
        url: Url,
        token: &Secret,
    ) -> Result<(u16, HeaderMap, Vec<u8>), GitHubApiError> {
        let mut request = self
            .http
            .request(call.method.clone(), url)
            .header(ACCEPT, "application/vnd.github+json")
            .header("x-github-api-version", "2022-11-28");
        if let Some(bearer) = token.bearer() {
            request = request.header(AUTHORIZATION, bearer);
        }
        if let Some(etag) = &call.etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        if let Some(body) = &call.body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let network_failure = |error: reqwest::Error| {
            let message = if error.is_timeout() {
                "no answer in time".into()
            } else {
                with_causes(&error.without_url())
            };
            call.failed(ApiFailure::Network, token.mask(&message))
        };
        let mut response = request.send().await.map_err(network_failure)?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = read_body(&mut response).await.map_err(network_failure)?;
        let body = body.ok_or_else(|| call.failed(ApiFailure::Unreadable, "the answer is too large"))?;
        Ok((status, headers, body))
    }

    fn refused(&self, call: &ApiRequest, reply: &ApiResponse, token: &Secret) -> GitHubApiError {
        let message = serde_json::from_slice::<RefusalBody>(&reply.body).map(|refusal| refusal.message);
        let message = message.unwrap_or_else(|_| String::from_utf8_lossy(&reply.body).into_owned());
        let message = cowhand_core::cut::cut(token.mask(&message).trim(), 0, 300);
        let rate_limit = extract_rate_limit_info(&reply.headers).map(Box::new);
        let mut error = call.failed(ApiFailure::Status, message);
        if let Some(limit) = RateLimitKind::of(reply.status, &reply.headers, &error.message) {
            let now = reply.date().unwrap_or_else(Timestamp::now);
            let wait = limit.wait(now);
            let ends = wait.and_then(|wait| now.checked_add(wait).ok());
            if let Some(until) = wait.and_then(|wait| Timestamp::now().checked_add(wait).ok()) {
                warn!(endpoint = call.endpoint(), ?wait, "GitHub: a limit is reached");
                self.meter.block(until);
            }
            error.kind = ApiFailure::RateLimit { wait, ends };
        }
        let token = match error.kind {
            ApiFailure::Status => advice::read(call, reply, &self.repo, &self.origin),
            ApiFailure::Network | ApiFailure::RateLimit { .. } | ApiFailure::Unreadable => {
                TokenFacts::default()
            }
        };
        GitHubApiError { status: Some(reply.status), rate_limit, token: Box::new(token), ..error }
    }
}

fn redirect_target(call: &ApiRequest, from: &Url, reply: &ApiResponse) -> Result<Url, GitHubApiError> {
    let wrong = |message: String| call.failed(ApiFailure::Unreadable, message);
    let location = reply.header("location").ok_or_else(|| wrong("redirected to nowhere".into()))?;
    let to = from.join(location).map_err(|error| wrong(format!("redirected to {location:?}: {error}")))?;
    if to.origin() == from.origin() {
        Ok(to)
    } else {
        let host = to.host_str().unwrap_or_default();
        Err(wrong(format!("redirected to another host ({host}), which does not get the token")))
    }
}

/// Adds the causes of an error to its message, because reqwest's own message does not contain them.
fn with_causes(error: &reqwest::Error) -> String {
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(deeper) = cause {
        message = format!("{message}: {deeper}");
        cause = deeper.source();
    }
    message
}
