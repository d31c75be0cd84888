//! Reads whole lists for triggers: all issues or all pull requests in a state, the oldest first.

use std::collections::BTreeMap;

use cowhand_core::github;
use cowhand_core::trigger::{IssueState, PullState};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::client::GitHubClient;
use super::issues::encoded;
use super::models::{Issue, User, label_names};
use super::settings::GitHubSettings;
use crate::error::github::GitHubApiError;
use crate::{SourceContext, WorkSourceError};

/// Fields of an issue or a pull request that a trigger passes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssueOrPull {
    pub number: u64,
    pub title: String,
    pub body: String,
    pub url: String,
    pub labels: Vec<String>,
    pub assignee: Option<String>,
    pub author: String,
    pub created_at: Timestamp,
    /// Details of a pull request; `None` for an issue.
    pub pull: Option<PullDetails>,
}

/// Fields that only a pull request has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullDetails {
    pub head_ref: String,
    pub head_sha: String,
    pub base_ref: String,
    pub is_draft: bool,
    /// Repository of the head branch; empty if that repository was deleted.
    pub head_repo: String,
}

/// Lists of one repository.
#[derive(Debug)]
pub struct Lists {
    client: GitHubClient,
    repo: String,
}

impl Lists {
    pub fn new(
        repo: &str,
        api_url: Option<&str>,
        auth: &github::Auth,
        context: &SourceContext,
    ) -> Result<Self, WorkSourceError> {
        let mut settings = GitHubSettings::new(repo);
        if let Some(api_url) = api_url {
            api_url.clone_into(&mut settings.api_url);
        }
        let client = GitHubClient::new(&settings, auth, context)?;
        Ok(Self { client, repo: repo.to_owned() })
    }

    /// Returns issues without pull requests. The caller has to check whether they have all the labels.
    pub async fn issues(
        &self,
        labels: &[String],
        state: IssueState,
    ) -> Result<Vec<IssueOrPull>, WorkSourceError> {
        let state = match state {
            IssueState::Open => "open",
            IssueState::Closed => "closed",
            IssueState::All => "all",
        };
        // Commas separate labels in a query, so a label with a comma cannot be queried.
        let names: Vec<String> =
            labels.iter().filter(|label| !label.contains(',')).map(|label| encoded(label)).collect();
        let labels = if names.is_empty() { String::new() } else { format!("&labels={}", names.join(",")) };
        let path = format!("repos/{}/issues?state={state}&sort=created&direction=asc{labels}", self.repo);
        let issues = self.all(&path, |issue: &Issue| !issue.is_pull_request).await?;
        Ok(issues.into_iter().map(IssueOrPull::from).collect())
    }

    pub async fn pulls(&self, state: PullState) -> Result<Vec<IssueOrPull>, WorkSourceError> {
        let query_state = match state {
            PullState::Open => "open",
            PullState::Closed | PullState::Merged => "closed",
            PullState::All => "all",
        };
        let path = format!("repos/{}/pulls?state={query_state}&sort=created&direction=asc", self.repo);
        let pulls = self.all(&path, |_: &Pull| true).await?;
        let matches_state = |pull: &Pull| state != PullState::Merged || pull.merged_at.is_some();
        Ok(pulls.into_iter().filter(matches_state).map(IssueOrPull::from).collect())
    }

    /// Reads all pages. If an entry disappears while the list is read, other entries move to a page that was already
    /// read, and they would seem to be missing. So a list of several pages is read twice. Most pages of the second read
    /// come from the cache.
    async fn all<T>(&self, path: &str, is_wanted: fn(&T) -> bool) -> Result<Vec<T>, GitHubApiError>
    where
        T: DeserializeOwned + Serialize + ListEntry,
    {
        let mut found = BTreeMap::new();
        for _ in 0..2 {
            if self.walk(path, is_wanted, &mut found).await? == 1 {
                break;
            }
        }
        Ok(found.into_values().collect())
    }

    /// Reads all pages once, adds their entries to `found`, and returns the number of pages.
    async fn walk<T>(
        &self,
        path: &str,
        is_wanted: fn(&T) -> bool,
        found: &mut BTreeMap<(Timestamp, u64), T>,
    ) -> Result<usize, GitHubApiError>
    where
        T: DeserializeOwned + Serialize + ListEntry,
    {
        let (mut next, mut pages) = (1, 0);
        loop {
            let page = self.client.polled_page(path, next, is_wanted).await?;
            pages += 1;
            found.extend(page.entries.into_iter().map(|entry: T| (entry.position(), entry)));
            match page.next.filter(|&following| following > next) {
                Some(following) => next = following,
                None => return Ok(pages),
            }
        }
    }
}

/// An entry with a position in a list.
trait ListEntry {
    fn position(&self) -> (Timestamp, u64);
}

impl ListEntry for Issue {
    fn position(&self) -> (Timestamp, u64) {
        (self.created_at, self.number)
    }
}

impl ListEntry for Pull {
    fn position(&self) -> (Timestamp, u64) {
        (self.created_at, self.number)
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Pull {
    number: u64,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    html_url: String,
    #[serde(default, deserialize_with = "label_names")]
    labels: Vec<String>,
    #[serde(default)]
    assignee: Option<User>,
    #[serde(default)]
    user: Option<User>,
    created_at: Timestamp,
    #[serde(default)]
    merged_at: Option<Timestamp>,
    #[serde(default)]
    draft: Option<bool>,
    head: PullEnd,
    base: PullEnd,
}

#[derive(Debug, Serialize, Deserialize)]
struct PullEnd {
    #[serde(default)]
    r#ref: String,
    #[serde(default)]
    sha: String,
    /// Repository; `None` for a fork that was deleted.
    #[serde(default)]
    repo: Option<PullRepository>,
}

#[derive(Debug, Serialize, Deserialize)]
struct PullRepository {
    #[serde(default)]
    full_name: String,
}

impl From<Issue> for IssueOrPull {
    fn from(issue: Issue) -> Self {
        Self {
            number: issue.number,
            title: issue.title.unwrap_or_default(),
            body: issue.body.unwrap_or_default(),
            url: issue.html_url,
            labels: issue.labels,
            assignee: issue.assignee.map(|user| user.login),
            author: issue.user.map(|user| user.login).unwrap_or_default(),
            created_at: issue.created_at,
            pull: None,
        }
    }
}

impl From<Pull> for IssueOrPull {
    fn from(pull: Pull) -> Self {
        let details = PullDetails {
            head_ref: pull.head.r#ref,
            head_sha: pull.head.sha,
            base_ref: pull.base.r#ref,
            is_draft: pull.draft.unwrap_or_default(),
            head_repo: pull.head.repo.map(|home| home.full_name).unwrap_or_default(),
        };
        Self {
            number: pull.number,
            title: pull.title.unwrap_or_default(),
            body: pull.body.unwrap_or_default(),
            url: pull.html_url,
            labels: pull.labels,
            assignee: pull.assignee.map(|user| user.login),
            author: pull.user.map(|user| user.login).unwrap_or_default(),
            created_at: pull.created_at,
            pull: Some(details),
        }
    }
}
