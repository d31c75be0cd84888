//! Hooks that are an HTTP request with the hook context as its body.

use std::fmt::Write;

use cowhand_core::hook::{HookAction, HookMethod};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use ring::hmac::{HMAC_SHA256, Key, sign};

use super::request::{Reply, Request, RequestError};
use super::{HookCall, HookResult};

pub(crate) const SIGNATURE: HeaderName = HeaderName::from_static("x-cowhand-signature-256");
/// Header with an id that is the same for each try, so that a receiver recognises a repetition.
pub(crate) const DELIVERY: HeaderName = HeaderName::from_static("x-cowhand-delivery");

pub(super) async fn send(call: &HookCall<'_>, action: &HookAction) -> Result<HookResult, HookResult> {
    let HookAction::Webhook { url, method, headers, timeout, secret, secret_env, retries, allow_private } =
        action
    else {
        return Err(HookResult::failed("it is not a webhook"));
    };
    let body = call.context.to_string().into_bytes();
    let secret = match (secret, secret_env) {
        (Some(secret), _) => Some(secret.clone()),
        (None, Some(name)) => Some(call.variable(name)?),
        (None, None) => None,
    };
    let mut public_headers = HeaderMap::new();
    public_headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    public_headers.insert(DELIVERY, value(&format!("{}.{}", call.taken.job, call.taken.run.number))?);
    if let Some(secret) = secret {
        public_headers.insert(SIGNATURE, value(&signature(secret.as_bytes(), &body))?);
    }
    let mut own_headers = HeaderMap::new();
    for (name, text) in headers {
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| HookResult::failed(format!("{name:?} is not the name of a header")))?;
        own_headers.insert(name, value(text)?);
    }
    let request = Request {
        method: match method {
            HookMethod::Put => Method::PUT,
            HookMethod::Post => Method::POST,
        },
        url: Url::parse(url)
            .map_err(|error| HookResult::failed(format!("`url` is not a web address: {error}")))?,
        headers: public_headers,
        own_headers,
        body,
        timeout: *timeout,
        allow_private: *allow_private,
        sender: "hook",
    };
    let reply: Result<Reply, RequestError> = request.send().await;
    Ok(match reply {
        Ok(reply) => reply.result(*retries),
        Err(unsent) => unsent.result(*retries),
    })
}

/// Parses a header value. The error does not contain the value, which may be a secret.
pub(super) fn value(text: &str) -> Result<HeaderValue, HookResult> {
    HeaderValue::from_str(text)
        .map_err(|_| HookResult::failed("a header has characters that headers cannot have"))
}

pub(crate) fn signature(secret: &[u8], body: &[u8]) -> String {
    let tag = sign(&Key::new(HMAC_SHA256, secret), body);
    tag.as_ref().iter().fold("sha256=".to_owned(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GitHub documents this secret, body and signature.
    #[test]
    fn the_signature_is_the_one_that_github_documents() {
        assert_eq!(
            signature(b"It's a Secret to Everybody", b"Hello, World!"),
            "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
        );
    }
}
