//! Notifications as HTTP requests. The delivery id is the same for each try, so a receiver recognises a repetition.

use cowhand_core::notification::TargetAction;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};

use super::{SendError, Sending};
use crate::hook::request::{Request, RequestError};
use crate::hook::webhook::{DELIVERY, SIGNATURE, signature};

pub(super) async fn send(sending: &Sending<'_>) -> Result<(), SendError> {
    let TargetAction::Webhook { url, headers, secret, secret_env, allow_private } = &sending.target.action
    else {
        return Err(SendError::new("it is not a webhook"));
    };
    let body = sending.payload()?;
    let secret = match (secret, secret_env) {
        (Some(secret), _) => Some(secret.clone()),
        (None, Some(name)) => Some(sending.variable(name)?),
        (None, None) => None,
    };
    let mut public_headers = HeaderMap::new();
    public_headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    public_headers.insert(DELIVERY, value(&sending.delivery)?);
    if let Some(secret) = secret {
        public_headers.insert(SIGNATURE, value(&signature(secret.as_bytes(), &body))?);
    }
    let mut own_headers = HeaderMap::new();
    for (name, text) in headers {
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| SendError::new(format!("{name:?} is not the name of a header")))?;
        own_headers.insert(name, value(text)?);
    }
    let request = Request {
        method: Method::POST,
        url: Url::parse(url)
            .map_err(|error| SendError::new(format!("`url` is not a web address: {error}")))?,
        headers: public_headers,
        own_headers,
        body,
        timeout: sending.target.timeout,
        allow_private: *allow_private,
        sender: "target",
    };
    match request.send().await {
        Ok(reply) if reply.status.is_success() => Ok(()),
        Ok(reply) => {
            let reason = format!("it answered {}", reply.status);
            Err(SendError { retry_after: reply.retry_after, ..SendError::new(reason) })
        }
        Err(RequestError::Refused(reason) | RequestError::Temporary(reason)) => Err(SendError::new(reason)),
    }
}

/// Parses a header value. The error does not contain the value, which may be a secret.
fn value(text: &str) -> Result<HeaderValue, SendError> {
    HeaderValue::from_str(text)
        .map_err(|_| SendError::new("a header has characters that headers cannot have"))
}
