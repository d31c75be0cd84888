//! Access to the model's provider with a key that the agent does not have. The agent's program sends its requests to
//! this proxy, and the proxy adds the key.

use std::borrow::Cow;
use std::fs;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;

use hyper::body::Incoming;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response};
use percent_encoding::percent_decode_str;
use reqwest::Body;
use serde::{Deserialize, Serialize};

use super::ProxyError;
use crate::attempt::{Attempt, CREDENTIALS_FILE};
use cowhand_system::http;

/// Address and key of the provider. They are in a private file, which the keeper reads and removes before the agent
/// starts.
#[derive(Serialize, Deserialize)]
pub struct ProxyCredentials {
    #[serde(rename = "upstream")]
    pub provider_address: String,
    pub header: String,
    pub value: String,
}

impl std::fmt::Debug for ProxyCredentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ProxyCredentials").field("header", &self.header).finish_non_exhaustive()
    }
}

impl Attempt {
    /// Writes the file with the credentials, for the keeper. No sandbox gives the agent access to this file.
    pub fn write_credentials(&self, credentials: &ProxyCredentials) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(self.folder())?;
        let mut file = self.create(CREDENTIALS_FILE)?;
        file.write_all(&serde_json::to_vec(credentials)?)
    }

    /// Reads the credentials and removes the file.
    pub(in crate::sandbox) fn take_credentials(&self) -> io::Result<ProxyCredentials> {
        let path = self.folder().join(CREDENTIALS_FILE);
        let credentials = self.read(CREDENTIALS_FILE)?.ok_or_else(|| {
            io::Error::other(format!("the credentials of the proxy were not found in {}", path.display()))
        })?;
        fs::remove_file(path)?;
        Ok(credentials)
    }
}

/// Forwards requests of the agent to the provider, and adds the key.
pub(super) struct Gateway {
    provider_address: String,
    key: (HeaderName, HeaderValue),
    client: reqwest::Client,
}

/// Headers that are not forwarded: headers about one connection, headers for a proxy, and headers that the HTTP client
/// of this proxy sets itself.
const DROPPED_HEADERS: [&str; 12] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "host",
    "content-length",
    "expect",
];
/// Headers with a key. If the proxy adds a key, it removes these headers of the agent first.
const KEY_HEADERS: [&str; 4] = ["authorization", "x-api-key", "x-goog-api-key", "api-key"];

impl Gateway {
    pub(super) fn new(credentials: &ProxyCredentials) -> io::Result<Self> {
        let name: HeaderName = credentials.header.parse().map_err(io::Error::other)?;
        let mut value: HeaderValue = credentials.value.parse().map_err(|_| {
            io::Error::other("the key of the provider contains characters that an HTTP header cannot contain")
        })?;
        value.set_sensitive(true);
        let provider_address = credentials.provider_address.trim_end_matches('/').to_owned();
        Ok(Self { provider_address, key: (name, value), client: client(None).map_err(io::Error::other)? })
    }

    /// Forwards a request to the provider. The agent chooses only the path and the query, which are appended to the
    /// provider's address.
    pub(super) async fn pass(&self, request: Request<Incoming>) -> Result<Response<Body>, ProxyError> {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        // A path without a slash would become part of the host name.
        if !path.starts_with('/') {
            return Err(ProxyError::NoPath);
        }
        if has_dot_segment(request.uri().path()) {
            return Err(ProxyError::DotSegment);
        }
        let url = format!("{}{path}", self.provider_address);
        forward(&self.client, &url, request, std::slice::from_ref(&self.key)).await
    }
}

/// Returns true if a path has a segment `.` or `..`. Such a path can lead out of the folder of the provider's address,
/// and the key is only for paths in that folder. Every form that a server may read as such a segment counts:
/// percent-encoded once or several times, separated by a backslash, with parameters after a semicolon, or with spaces or
/// control characters around it.
fn has_dot_segment(path: &str) -> bool {
    /// A path with this number of layers of percent-encoding, or more, counts as a path with such a segment. No real
    /// program needs so many layers.
    const REFUSED_LAYERS: usize = 4;
    let mut path = Cow::Borrowed(path);
    for _ in 0..REFUSED_LAYERS {
        let decoded = percent_decode_str(&path).decode_utf8_lossy().into_owned();
        if decoded == path {
            return path.split(['/', '\\']).any(is_dots);
        }
        path = Cow::Owned(decoded);
    }
    true
}

fn is_dots(segment: &str) -> bool {
    let name = segment.split(';').next().unwrap_or_default();
    let name = name.trim_matches(|c: char| c.is_whitespace() || c.is_control());
    matches!(name, "." | "..")
}

/// Creates a client that connects only to these addresses or, without a list, to any address.
pub(super) fn client(addresses: Option<Vec<SocketAddr>>) -> Result<reqwest::Client, ProxyError> {
    // The client neither adds a `User-Agent` nor decompresses the answer: it forwards what the other side sent.
    let client = http::client_builder().no_proxy().no_gzip();
    let client = match addresses {
        Some(addresses) => http::connect_only_to(client, addresses),
        None => client,
    };
    client.build().map_err(unreachable)
}

/// Sends the request to `url` with these keys as additional headers, and returns the answer with its body as a stream.
pub(super) async fn forward(
    client: &reqwest::Client,
    url: &str,
    request: Request<Incoming>,
    keys: &[(HeaderName, HeaderValue)],
) -> Result<Response<Body>, ProxyError> {
    let (head, body) = request.into_parts();
    let mut headers = passed_on(&head.headers);
    if !keys.is_empty() {
        for key in KEY_HEADERS {
            headers.remove(key);
        }
    }
    headers.extend(keys.iter().map(|(name, value)| (Some(name.clone()), value.clone())));
    // A request without a body must not get a body of unknown length, which confuses servers.
    let has_body =
        head.headers.contains_key("content-length") || head.headers.contains_key("transfer-encoding");
    let mut asked = client.request(head.method, url).headers(headers);
    if has_body {
        asked = asked.body(Body::wrap(body));
    }
    let answer = asked.send().await.map_err(unreachable)?;
    let (mut head, body) = Response::<Body>::from(answer).into_parts();
    head.headers = passed_on(&head.headers);
    head.version = hyper::Version::HTTP_11;
    Ok(Response::from_parts(head, body))
}

fn passed_on(headers: &HeaderMap) -> HeaderMap {
    let mut passed = headers.clone();
    for name in DROPPED_HEADERS {
        passed.remove(name);
    }
    passed
}

/// Converts an error of the client to its innermost cause, without the address, which the agent must not see.
fn unreachable(error: reqwest::Error) -> ProxyError {
    let error = error.without_url();
    let mut last: &dyn std::error::Error = &error;
    while let Some(cause) = last.source() {
        last = cause;
    }
    ProxyError::Unreachable(last.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_taken_once() {
        let state = tempfile::tempdir().unwrap();
        let attempt = Attempt::new(state.path(), &"job-2026-01-05-k3x9q2".parse().unwrap(), 1);
        let refusal = || attempt.take_credentials().unwrap_err().to_string();
        let path = attempt.folder().join(CREDENTIALS_FILE);
        let missing = format!("the credentials of the proxy were not found in {}", path.display());
        assert_eq!(refusal(), missing, "they were never written");
        let credentials = ProxyCredentials {
            provider_address: "https://provider".to_owned(),
            header: "x-api-key".to_owned(),
            value: "key".to_owned(),
        };
        attempt.write_credentials(&credentials).unwrap();
        assert_eq!(attempt.take_credentials().unwrap().value, "key");
        assert!(!path.exists());
        assert_eq!(refusal(), missing, "they are taken");
    }

    #[test]
    fn dot_segments_are_found_in_every_form() {
        for path in [
            "/..",
            "/../x",
            "/a/../../x",
            "/./x",
            "/%2e%2e/admin",
            "/%2E./x",
            "/.%2e",
            "/a%2f..%2fx",
            "/%252e%252e/x",
            "/%25252e%25252e/x",
            "/%2525252525252e/x",
            "/..\\x",
            "/a%5c..%5cx",
            "/..;a=b/x",
            "/%2e%2e%3ba/x",
            "/..%00/x",
            "/..%20/x",
        ] {
            assert!(has_dot_segment(path), "{path}");
        }
        for path in [
            "/",
            "/v1/messages",
            "//v1//messages",
            "/v1/models/claude-3.5",
            "/.well-known/x",
            "/a..b/...",
            "/files/a%20b.txt",
            "/100%",
            "/a%252Fb",
        ] {
            assert!(!has_dot_segment(path), "{path}");
        }
    }
}
