//! Requests about issues.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use serde_json::json;

use super::client::{ApiRequest, GitHubClient};
use super::marker::{Marked, Marker, Marks};
use super::models::{Comment, Issue, RepositoryInfo};
use super::pages::ListPage;
use super::retry::Repeat;
use crate::error::github::GitHubApiError;

/// Issues of one repository.
#[derive(Debug, Clone, Copy)]
pub(super) struct Issues<'a> {
    pub(super) client: &'a GitHubClient,
    pub(super) repo: &'a str,
}

impl Issues<'_> {
    /// Returns a page of open issues with this label, the oldest first, without pull requests.
    pub(super) async fn page(self, label: &str, number: u64) -> Result<ListPage<Issue>, GitHubApiError> {
        // Commas separate labels in a query, so a label with a comma cannot be queried; the caller filters again.
        let filter = if label.contains(',') { String::new() } else { format!("&labels={}", encoded(label)) };
        let path = format!("repos/{}/issues?state=open&sort=created&direction=asc{filter}", self.repo);
        self.client.polled_page(&path, number, |issue: &Issue| !issue.is_pull_request).await
    }

    /// Returns the issue; `None` if it was deleted, was moved to another repository, is not visible, or is a pull
    /// request.
    pub(super) async fn get(self, number: u64) -> Result<Option<Issue>, GitHubApiError> {
        let call = ApiRequest::get(format!("repos/{}/issues/{number}", self.repo));
        let reply = match self.client.call(&call).await {
            Err(error) if error.is_not_found() => return Ok(None),
            reply => reply?,
        };
        let issue: Issue = reply.json(&call.endpoint())?;
        if issue.is_pull_request || (reply.was_redirected && !self.is_of_this_repository(&issue).await?) {
            return Ok(None);
        }
        Ok(Some(issue))
    }

    /// Returns true if the issue belongs to this repository. After a redirect, either the repository was renamed, or
    /// the issue was moved to another repository.
    async fn is_of_this_repository(self, issue: &Issue) -> Result<bool, GitHubApiError> {
        let repository: RepositoryInfo =
            self.client.ask(ApiRequest::get(format!("repos/{}", self.repo))).await?;
        let home = issue.repository_url.as_deref().and_then(|url| url.split_once("/repos/"));
        Ok(home.is_some_and(|(_, name)| name.eq_ignore_ascii_case(&repository.full_name)))
    }

    /// Returns true if the repository has this label.
    pub(super) async fn has_label(self, label: &str) -> Result<bool, GitHubApiError> {
        match self
            .client
            .call(&ApiRequest::get(format!("repos/{}/labels/{}", self.repo, encoded(label))))
            .await
        {
            Err(error) if error.is_not_found() => Ok(false),
            answer => answer.map(|_| true),
        }
    }

    pub(super) async fn add_label(self, number: u64, label: &str) -> Result<(), GitHubApiError> {
        let path = format!("repos/{}/issues/{number}/labels", self.repo);
        self.client.call(&ApiRequest::new(Method::POST, path).with(json!({ "labels": [label] }))).await?;
        Ok(())
    }

    /// Removes a label. A label that the issue does not have counts as removed.
    pub(super) async fn remove_label(self, number: u64, label: &str) -> Result<(), GitHubApiError> {
        let path = format!("repos/{}/issues/{number}/labels/{}", self.repo, encoded(label));
        ignore_missing(self.client.call(&ApiRequest::new(Method::DELETE, path)).await)
    }

    pub(super) async fn close_as_completed(self, number: u64) -> Result<(), GitHubApiError> {
        let call = ApiRequest::new(Method::PATCH, format!("repos/{}/issues/{number}", self.repo));
        self.client.call(&call.with(json!({ "state": "closed", "state_reason": "completed" }))).await?;
        Ok(())
    }

    /// Reads the markers of all comments. Comments without a marker are not kept.
    pub(super) async fn marks(self, number: u64) -> Result<Marks, GitHubApiError> {
        let viewer = self.client.viewer().await?.map(str::to_owned);
        let path = format!("repos/{}/issues/{number}/comments", self.repo);
        let (mut all, mut next) = (Vec::new(), 1);
        loop {
            let page: ListPage<Comment> = self.client.page(&path, next).await?;
            all.extend(page.entries.into_iter().filter_map(Marked::read));
            match page.next.filter(|&following| following > next) {
                Some(following) => next = following,
                None => return Ok(Marks { all, now: page.now, viewer }),
            }
        }
    }

    /// Writes a comment once, even if GitHub's answer is lost, and returns its id. Before the comment is sent again,
    /// the function checks whether it exists.
    pub(super) async fn comment_once(
        self,
        number: u64,
        marker: &Marker,
        text: &str,
    ) -> Result<u64, GitHubApiError> {
        let mut call = ApiRequest::new(Method::POST, format!("repos/{}/issues/{number}/comments", self.repo))
            .with(json!({ "body": format!("{}\n{text}", marker.line()) }));
        call.repeat = Repeat::CheckFirst;
        let mut attempt = 0;
        loop {
            let error = match self.client.call(&call).await {
                Ok(reply) => return Ok(reply.json::<Comment>(&call.endpoint())?.id),
                Err(error) => error,
            };
            if !error.may_have_happened() {
                return Err(error);
            }
            self.client.back_off(attempt).await;
            let marks = self.marks(number).await?;
            if let Some(found) = marks.own(marker) {
                return Ok(found.id);
            }
            if attempt >= self.client.retry.max_retries {
                return Err(error);
            }
            attempt += 1;
        }
    }

    pub(super) async fn edit_comment(
        self,
        comment: u64,
        marker: &Marker,
        text: &str,
    ) -> Result<Comment, GitHubApiError> {
        let call = ApiRequest::new(Method::PATCH, format!("repos/{}/issues/comments/{comment}", self.repo));
        self.client.ask(call.with(json!({ "body": format!("{}\n{text}", marker.line()) }))).await
    }

    pub(super) async fn delete_comment(self, comment: u64) -> Result<(), GitHubApiError> {
        let path = format!("repos/{}/issues/comments/{comment}", self.repo);
        ignore_missing(self.client.call(&ApiRequest::new(Method::DELETE, path)).await)
    }
}

fn ignore_missing<T>(result: Result<T, GitHubApiError>) -> Result<(), GitHubApiError> {
    match result {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

pub fn encoded(text: &str) -> String {
    const UNESCAPED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');
    utf8_percent_encode(text, &UNESCAPED).to_string()
}
