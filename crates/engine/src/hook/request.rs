//! One HTTP request of a hook or to the target of a notification. The addresses of the request and of each redirect are checked, and only the beginning of
//! the answer is read.

use std::net::SocketAddr;
use std::time::Duration;

use cowhand_core::duration;
use reqwest::header::{HeaderMap, LOCATION, RETRY_AFTER};
use reqwest::{Client, Method, Response, StatusCode, Url};

use super::HookResult;
use cowhand_run::address::{self, Unreachable};
use cowhand_system::http;

const MAX_REDIRECTS: usize = 5;
const BODY_CAP: usize = 64 << 10;
/// Longest pause that a receiver can ask for. If it asks for a longer pause, this pause is used.
const MAX_REQUEST_PAUSE: Duration = Duration::from_mins(5);

#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) url: Url,
    /// Headers that may be sent to any host.
    pub(crate) headers: HeaderMap,
    /// Headers that may contain secrets; they are sent only to the scheme, host and port of `url`.
    pub(crate) own_headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) timeout: Duration,
    pub(crate) allow_private: bool,
    /// What sends the request, for messages: `hook` or `target`.
    pub(crate) sender: &'static str,
}

#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: String,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequestError {
    Refused(String),
    /// A later try may succeed.
    Temporary(String),
}

impl RequestError {
    pub(crate) fn result(self, retries: u32) -> HookResult {
        match self {
            Self::Refused(reason) => HookResult::failed(reason),
            Self::Temporary(reason) => {
                HookResult::Retry { reason, output: None, retry_after: None, max_tries: retries + 1 }
            }
        }
    }
}

impl Reply {
    /// Interprets the answer of the receiver.
    pub(crate) fn result(self, retries: u32) -> HookResult {
        let (status, output) = (self.status, Some(self.body));
        let reason = format!("it answered {status}");
        if status.is_success() {
            HookResult::Done { output, note: None }
        } else if is_temporary(status) {
            HookResult::Retry { reason, output, retry_after: self.retry_after, max_tries: retries + 1 }
        } else {
            HookResult::Failed { reason, output }
        }
    }
}

fn is_temporary(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT)
}

impl Request {
    pub(crate) async fn send(self) -> Result<Reply, RequestError> {
        let timeout = self.timeout;
        let in_time = tokio::time::timeout(timeout, self.follow()).await;
        let silent = || RequestError::Temporary(format!("no answer within {}", duration::exact(timeout)));
        in_time.unwrap_or_else(|_| Err(silent()))
    }

    async fn follow(self) -> Result<Reply, RequestError> {
        let mut url = self.url.clone();
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send_to(&url).await?;
            let Some(next) = redirect(&url, &response)? else { return reply(response).await };
            if url.scheme() == "https" && next.scheme() == "http" {
                return Err(RequestError::Refused("it redirects from https to http".to_owned()));
            }
            url = next;
        }
        Err(RequestError::Refused(format!("it redirects more than {MAX_REDIRECTS} times")))
    }

    async fn send_to(&self, url: &Url) -> Result<Response, RequestError> {
        let (is_redirected, is_configured_host) = (*url != self.url, url.origin() == self.url.origin());
        // `allow_private` applies to the configured host, not to another host to which it redirects.
        let addresses = address::addresses(url, self.allow_private && is_configured_host).await.map_err(
            |unreachable| match unreachable {
                Unreachable::Refused(why) | Unreachable::Private(why) if is_redirected => {
                    RequestError::Refused(format!("it redirects to an address that is not allowed: {why}"))
                }
                Unreachable::Refused(why) => RequestError::Refused(why),
                Unreachable::Private(why) => {
                    let sender = self.sender;
                    RequestError::Refused(format!("{why}; `allow_private: true` lets this {sender} reach it"))
                }
                Unreachable::NotFound(why) => RequestError::Temporary(why),
            },
        )?;
        let client = client(addresses).map_err(|error| RequestError::Refused(error_text(error)))?;
        let mut request = client.request(self.method.clone(), url.clone()).headers(self.headers.clone());
        if is_configured_host {
            request = request.headers(self.own_headers.clone());
        }
        request
            .body(self.body.clone())
            .send()
            .await
            .map_err(|error| RequestError::Temporary(error_text(error)))
    }
}

/// Builds a client that connects only to these addresses, whatever host the request names.
fn client(addresses: Vec<SocketAddr>) -> reqwest::Result<Client> {
    http::connect_only_to(http::client_builder().user_agent(http::USER_AGENT), addresses).build()
}

/// Returns the target of a redirect, or `None` for another answer. `See Other` asks for a GET of another page instead
/// of a repeated request. It is not followed, so the hook fails.
fn redirect(from: &Url, response: &Response) -> Result<Option<Url>, RequestError> {
    if !matches!(response.status().as_u16(), 301 | 302 | 307 | 308) {
        return Ok(None);
    }
    let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
    let to = to.and_then(|to| from.join(to).ok());
    to.map(Some).ok_or_else(|| RequestError::Refused("it redirects without a valid `Location`".to_owned()))
}

async fn reply(mut response: Response) -> Result<Reply, RequestError> {
    let status = response.status();
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse().ok());
    let mut body = Vec::new();
    while body.len() < BODY_CAP {
        match response.chunk().await {
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            // The status is known, which is sufficient.
            Ok(None) | Err(_) => break,
        }
    }
    body.truncate(BODY_CAP);
    let retry_after = retry_after.map(|seconds| Duration::from_secs(seconds).min(MAX_REQUEST_PAUSE));
    Ok(Reply { status, retry_after, body: String::from_utf8_lossy(&body).into_owned() })
}

/// Describes an error with its innermost cause, because the error itself may state only "error sending request". The
/// URL is left out, because it may contain a secret.
fn error_text(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut last: &dyn std::error::Error = &error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    format!("{error}: {last}")
}
