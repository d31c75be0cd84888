//! Issues of a repository as a work source.

use async_trait::async_trait;
use cowhand_core::github;
use cowhand_core::work::{
    ClaimFailureReason, ClaimResult, FetchOptions, FetchResult, Priority, ReleaseOptions, ReleaseResult,
    WorkItem, WorkItemId, WorkResult,
};
use cowhand_core::work_source::ConfiguredSource;
use serde_json::{Map, json};

use super::client::GitHubClient;
use super::comment_text::CommentAuthor;
use super::cursor::{Cursor, Listing};
use super::expired::ClaimedIssues;
use super::issues::Issues;
use super::models::{Issue, IssueState};
use super::settings::{ClaimMethod, GitHubSettings};
use crate::error::github::GitHubApiError;
use crate::quota::Quota;
use crate::{
    Claimant, ExpiredClaim, QueueState, SourceContext, SourceFinding, StatedClaimant, WorkSource,
    WorkSourceError,
};

/// First part of the ids of the items.
pub const SOURCE_TYPE: &str = "github";

/// Issues of one repository. Labels store their state. Comments with a hidden marker store the claimant.
#[derive(Debug)]
pub struct GitHubWorkSource {
    pub(super) settings: GitHubSettings,
    pub(super) client: GitHubClient,
    pub(super) claimed_issues: ClaimedIssues,
    /// Name of the fleet, for people.
    pub(super) fleet_name: Option<String>,
}

impl GitHubWorkSource {
    pub fn from_config(source: &ConfiguredSource, context: &SourceContext) -> Result<Self, WorkSourceError> {
        let (settings, auth) = GitHubSettings::from_config(source)?;
        Self::new(settings, auth, context)
    }

    pub fn new(
        settings: GitHubSettings,
        auth: &github::Auth,
        context: &SourceContext,
    ) -> Result<Self, WorkSourceError> {
        let is_plain = |part: &str| {
            let has_plain_bytes = part.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b));
            has_plain_bytes && !matches!(part, "" | "." | "..")
        };
        if !settings.repo.split_once('/').is_some_and(|(owner, name)| is_plain(owner) && is_plain(name)) {
            return Err(WorkSourceError::Config(format!("repo: {:?} is not owner/repo", settings.repo)));
        }
        let client = GitHubClient::new(&settings, auth, context)?;
        let fleet_name = context.fleet_name().map(str::to_owned);
        Ok(Self { settings, client, claimed_issues: ClaimedIssues::default(), fleet_name })
    }

    /// Returns the client, which also counts requests.
    pub fn client(&self) -> &GitHubClient {
        &self.client
    }

    pub fn settings(&self) -> &GitHubSettings {
        &self.settings
    }

    /// Returns the author that a comment names.
    pub(super) fn comment_author<'a>(&'a self, by: &'a Claimant) -> CommentAuthor<'a> {
        CommentAuthor { fleet: self.fleet_name.as_deref(), holder: &by.holder }
    }

    pub(super) fn issues(&self) -> Issues<'_> {
        Issues { client: &self.client, repo: &self.settings.repo }
    }

    fn is_available(&self, issue: &Issue, listing: Listing, options: &FetchOptions) -> bool {
        let is_claimed = issue.has_label(&self.settings.in_progress);
        let belongs = match listing {
            Listing::Ready => {
                issue.has_label(&self.settings.ready) && (options.include_claimed || !is_claimed)
            }
            // Issues with both labels are already in the list `Ready`.
            Listing::Claimed => is_claimed && !issue.has_label(&self.settings.ready),
        };
        belongs && self.is_offered(issue)
    }

    /// Returns the queue state from the issue itself and not from a list. A release removes the label of the claim
    /// before it removes the marker. So an issue with neither this label nor the ready label is still claimed while it
    /// has a marker that has not expired.
    async fn state_of(&self, number: u64) -> Result<QueueState, GitHubApiError> {
        let Some(issue) = self.issues().get(number).await?.filter(|issue| issue.state == IssueState::Open)
        else {
            return Ok(QueueState::Done);
        };
        if issue.has_label(&self.settings.in_progress) {
            return Ok(QueueState::Claimed);
        }
        if issue.has_label(&self.settings.ready) && self.is_offered(&issue) {
            return Ok(QueueState::Available);
        }
        let claimed = matches!(self.settings.claim_method, ClaimMethod::Marker { .. })
            && self.issues().marks(number).await?.holder().is_some();
        Ok(if claimed { QueueState::Claimed } else { QueueState::Withdrawn })
    }

    pub(super) fn is_offered(&self, issue: &Issue) -> bool {
        issue.state == IssueState::Open
            && !self.settings.exclude_labels.iter().any(|label| issue.has_label(label))
    }
}

#[async_trait]
impl WorkSource for GitHubWorkSource {
    fn source_type(&self) -> &str {
        SOURCE_TYPE
    }

    /// Without a limit, reads pages until one of them has an item. With a limit, reads pages until there are that many
    /// items. Stops in both cases at the end of the list. With `include_claimed`, the list of claimed issues follows
    /// the list of ready issues.
    async fn fetch_available_work(&self, options: &FetchOptions) -> Result<FetchResult, WorkSourceError> {
        let mut cursor = options.cursor.as_deref().map_or(Ok(Cursor::default()), str::parse)?;
        let limit = options.limit.unwrap_or(usize::MAX);
        let mut items = Vec::new();
        loop {
            let label = match cursor.listing {
                Listing::Ready => &self.settings.ready,
                Listing::Claimed => &self.settings.in_progress,
            };
            let page = self.issues().page(label, cursor.page).await?;
            for (place, issue) in page.entries.into_iter().enumerate().skip(cursor.skip) {
                if items.len() == limit {
                    let next_cursor = Some(Cursor { skip: place, ..cursor }.to_string());
                    return Ok(FetchResult { items, next_cursor, total_count: None });
                }
                if self.is_available(&issue, cursor.listing, options) {
                    items.extend(Some(work_item(issue)?).filter(|item| options.admits(item)));
                }
            }
            let following = cursor.following(page.next, options.include_claimed);
            let is_enough = !items.is_empty() && (options.limit.is_none() || items.len() == limit);
            match following {
                Some(following) if !is_enough => cursor = following,
                following => {
                    let next_cursor = following.map(|cursor| cursor.to_string());
                    return Ok(FetchResult { items, next_cursor, total_count: None });
                }
            }
        }
    }

    async fn claim_work(&self, item: &WorkItemId, by: &Claimant) -> Result<ClaimResult, WorkSourceError> {
        let Some(number) = number(item) else { return Ok(no_issue(item)) };
        let claimed = self.claim_issues(&[(number, by)]).await.pop();
        claimed.unwrap_or_else(|| Ok(no_issue(item)))
    }

    async fn claim_all(
        &self,
        claims: &[(WorkItemId, Claimant)],
    ) -> Vec<Result<ClaimResult, WorkSourceError>> {
        let issues: Vec<(u64, &Claimant)> =
            claims.iter().filter_map(|(item, by)| Some((number(item)?, by))).collect();
        let mut claimed = self.claim_issues(&issues).await.into_iter();
        let mut of_item = |item: &WorkItemId| number(item).and_then(|_| claimed.next());
        claims.iter().map(|(item, _)| of_item(item).unwrap_or_else(|| Ok(no_issue(item)))).collect()
    }

    async fn renew_claim(&self, item: &WorkItemId, by: &Claimant) -> Result<(), WorkSourceError> {
        self.renew(item, existing(item)?, by).await
    }

    async fn complete_work(
        &self,
        item: &WorkItemId,
        result: &WorkResult,
        by: &Claimant,
    ) -> Result<(), WorkSourceError> {
        self.complete(item, existing(item)?, result, by).await
    }

    async fn release_work(
        &self,
        item: &WorkItemId,
        options: &ReleaseOptions,
        by: &Claimant,
    ) -> Result<ReleaseResult, WorkSourceError> {
        self.release(item, existing(item)?, options, by).await
    }

    async fn get_work(&self, item: &WorkItemId) -> Result<Option<WorkItem>, WorkSourceError> {
        match number(item) {
            Some(number) => self.issues().get(number).await?.map(work_item).transpose(),
            None => Ok(None),
        }
    }

    async fn queue_state(&self, item: &WorkItemId) -> Result<QueueState, WorkSourceError> {
        match number(item) {
            Some(number) => Ok(self.state_of(number).await?),
            None => Ok(QueueState::Done),
        }
    }

    async fn offer_work(
        &self,
        item: &WorkItemId,
        options: &ReleaseOptions,
        by: &Claimant,
    ) -> Result<ReleaseResult, WorkSourceError> {
        let number = existing(item)?;
        let answer = |success, message| Ok(ReleaseResult { success, message });
        match self.state_of(number).await? {
            QueueState::Available => {
                self.comment_on_offer(number, options, by).await?;
                answer(true, None)
            }
            QueueState::Claimed => answer(false, Some("the issue is claimed".to_owned())),
            QueueState::Done => {
                answer(false, Some("the issue is closed, or not in the repository".to_owned()))
            }
            QueueState::Withdrawn => {
                self.comment_on_offer(number, options, by).await?;
                self.issues().add_label(number, &self.settings.ready).await?;
                answer(true, None)
            }
        }
    }

    async fn current_claimant(&self, item: &WorkItem) -> Result<Option<StatedClaimant>, WorkSourceError> {
        let Some(number) = number(&item.id) else { return Ok(None) };
        let marks = self.issues().marks(number).await?;
        Ok(marks
            .holder()
            .map(|(_, claim)| StatedClaimant { fleet: claim.fleet.clone(), holder: claim.holder.clone() }))
    }

    async fn expired_claims(&self) -> Result<Vec<ExpiredClaim>, WorkSourceError> {
        self.find_expired().await
    }

    async fn check(&self) -> Vec<SourceFinding> {
        self.findings().await
    }

    fn quota(&self) -> Option<Quota> {
        Some(self.client.quota())
    }
}

/// Returns the issue number; `None` if the item belongs to another source or its id has another form.
fn number(item: &WorkItemId) -> Option<u64> {
    let number: u64 = item.external_id().parse().ok()?;
    (item.source() == SOURCE_TYPE && number.to_string() == item.external_id()).then_some(number)
}

fn no_issue(item: &WorkItemId) -> ClaimResult {
    let message = Some(format!("{item} is not the id of a GitHub issue"));
    ClaimResult::Refused { reason: ClaimFailureReason::NotFound, message }
}

fn existing(item: &WorkItemId) -> Result<u64, WorkSourceError> {
    number(item).ok_or_else(|| WorkSourceError::NotFound(item.clone()))
}

pub(super) fn work_item(issue: Issue) -> Result<WorkItem, WorkSourceError> {
    let id = WorkItemId::new(SOURCE_TYPE, &issue.number.to_string())
        .map_err(|error| WorkSourceError::Config(error.to_string()))?;
    let login = |user: Option<super::models::User>| user.map(|user| user.login);
    let metadata = Map::from_iter([
        ("number".to_owned(), json!(issue.number)),
        ("author".to_owned(), json!(login(issue.user))),
        ("author_association".to_owned(), json!(issue.author_association)),
        ("assignee".to_owned(), json!(login(issue.assignee))),
        ("milestone".to_owned(), json!(issue.milestone)),
    ]);
    Ok(WorkItem {
        id,
        title: issue.title.unwrap_or_default(),
        description: issue.body.unwrap_or_default(),
        priority: Priority::of_labels(&issue.labels),
        labels: issue.labels,
        metadata,
        url: issue.html_url,
        created_at: issue.created_at,
        updated_at: issue.updated_at.unwrap_or(issue.created_at),
    })
}
