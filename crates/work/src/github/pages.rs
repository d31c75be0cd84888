//! Reads lists of GitHub page by page, with or without the cache.

use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::cache::KeptPage;
use super::client::{ApiRequest, GitHubClient};
use super::models::{Entries, entries};
use crate::error::github::GitHubApiError;

/// Largest page size of GitHub.
pub(super) const PAGE_SIZE: usize = 100;

#[derive(Debug)]
pub(super) struct ListPage<T> {
    pub(super) entries: Vec<T>,
    pub(super) next: Option<u64>,
    /// GitHub's time, or the local time if GitHub does not state it.
    pub(super) now: Timestamp,
}

fn page_path(path: &str, number: u64) -> String {
    let separator = if path.contains('?') { '&' } else { '?' };
    format!("{path}{separator}per_page={PAGE_SIZE}&page={number}")
}

impl GitHubClient {
    /// Reads a page without the cache.
    pub(super) async fn page<T: DeserializeOwned>(
        &self,
        path: &str,
        number: u64,
    ) -> Result<ListPage<T>, GitHubApiError> {
        let call = ApiRequest::get(page_path(path, number));
        let reply = self.call(&call).await?;
        let read = entries(&reply.body, &call.endpoint());
        let Entries { good, .. } = read.map_err(|error| reply.unreadable(&call.endpoint(), &error))?;
        let now = reply.date().unwrap_or_else(Timestamp::now);
        Ok(ListPage { entries: good, next: reply.next_page(), now })
    }

    /// Reads a page with the cache: an unchanged page does not count against the rate limit. Entries that `is_wanted`
    /// rejects are neither cached nor returned.
    pub(super) async fn polled_page<T: DeserializeOwned + Serialize>(
        &self,
        path: &str,
        number: u64,
        is_wanted: fn(&T) -> bool,
    ) -> Result<ListPage<T>, GitHubApiError> {
        let mut call = ApiRequest::get(page_path(path, number));
        let kept = self.cache.get(&call.path);
        call.etag = kept.as_ref().map(|kept| kept.etag.clone());
        let reply = self.call(&call).await?;
        let now = reply.date().unwrap_or_else(Timestamp::now);
        if let (304, Some(kept)) = (reply.status, kept) {
            let unreadable = |error| reply.unreadable(&call.endpoint(), &error);
            let entries = serde_json::from_slice(&kept.entries).map_err(unreadable)?;
            // The ETag covers only the entries. A full last page does not change if another page is added after it.
            let following = kept.is_full.then_some(number + 1);
            return Ok(ListPage { entries, next: reply.next_page().or(kept.next).or(following), now });
        }
        let read = entries::<T>(&reply.body, &call.endpoint());
        let Entries { mut good, all } = read.map_err(|error| reply.unreadable(&call.endpoint(), &error))?;
        good.retain(is_wanted);
        let next = reply.next_page();
        if let (Some(etag), Ok(entries)) = (reply.headers.get("etag"), serde_json::to_vec(&good)) {
            let page = KeptPage { etag: etag.clone(), entries, next, is_full: all >= PAGE_SIZE };
            self.cache.put(&call.path, page);
        }
        Ok(ListPage { entries: good, next, now })
    }
}
