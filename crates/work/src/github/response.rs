//! An answer of GitHub, successful or not: its headers, its body and its size limit.

use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use reqwest::header::HeaderMap;
use serde::de::DeserializeOwned;

use crate::error::github::{ApiFailure, GitHubApiError};

/// Maximum size of an answer. A hundred issues with the longest texts that GitHub allows are 26 MB.
const MAX_RESPONSE_BYTES: usize = 32 << 20;

#[derive(Debug)]
pub(super) struct ApiResponse {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
    pub(super) was_redirected: bool,
}

impl ApiResponse {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    pub(super) fn json<T: DeserializeOwned>(&self, endpoint: &str) -> Result<T, GitHubApiError> {
        serde_json::from_slice(&self.body).map_err(|error| self.unreadable(endpoint, &error))
    }

    pub(super) fn unreadable(&self, endpoint: &str, error: &serde_json::Error) -> GitHubApiError {
        GitHubApiError {
            status: Some(self.status),
            endpoint: endpoint.to_owned(),
            message: format!("the answer cannot be read: {error}"),
            rate_limit: None,
            kind: ApiFailure::Unreadable,
            token: Box::default(),
        }
    }

    /// Returns the time in the `Date` header, by GitHub's clock.
    pub(super) fn date(&self) -> Option<Timestamp> {
        static PARSER: DateTimeParser = DateTimeParser::new();
        PARSER.parse_timestamp(self.header("date")?).ok()
    }

    /// Returns the number of the next page in the `Link` header.
    pub(super) fn next_page(&self) -> Option<u64> {
        let link = self.header("link")?;
        let next =
            link.split(',').find(|link| link.split(';').skip(1).any(|part| part.trim() == "rel=\"next\""))?;
        let url = next.split(';').next()?.trim().strip_prefix('<')?.strip_suffix('>')?;
        let (_, query) = url.split_once('?')?;
        query.split('&').find_map(|pair| pair.strip_prefix("page=")?.parse().ok())
    }
}

/// Reads the body; `None` if it is too long. The limit applies after decompression.
pub(super) async fn read_body(response: &mut reqwest::Response) -> reqwest::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
            return Ok(None);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Some(body))
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;

    use super::*;

    fn response(name: &'static str, value: &'static str) -> ApiResponse {
        let headers = HeaderMap::from_iter([(name.parse().unwrap(), HeaderValue::from_static(value))]);
        ApiResponse { status: 200, headers, body: Vec::new(), was_redirected: false }
    }

    #[test]
    fn pages() {
        for (link, page) in [
            ("<https://x/r?page=2>; rel=\"next\", <https://x/r?page=9>; rel=\"last\"", Some(2)),
            ("<https://x/r?page=1>; rel=\"prev\", <https://x/r?per_page=5&page=3>; rel=\"next\"", Some(3)),
            ("<https://x/r?page=1>; rel=\"first\"", None),
            ("<https://x/r>; rel=\"next\"", None),
            ("<https://x/r?page=two>; rel=\"next\"", None),
            ("https://x/r?page=2; rel=\"next\"", None),
            ("", None),
        ] {
            assert_eq!(response("link", link).next_page(), page, "{link}");
        }
    }

    #[test]
    fn dates() {
        let date = response("date", "Sun, 06 Nov 1994 08:49:37 GMT").date().unwrap();
        assert_eq!(date.to_string(), "1994-11-06T08:49:37Z");
        assert_eq!(response("date", "today").date(), None);
        assert_eq!(response("x", "y").date(), None);
    }
}
