//! The trait of work sources, the types that its methods use, and functions that guard the calls of a source.

use std::time::Duration;

use async_trait::async_trait;
use cowhand_core::work::{
    ClaimFailureReason, ClaimResult, FetchOptions, FetchResult, ReleaseOptions, ReleaseResult, WorkItem,
    WorkItemId, WorkResult,
};
use jiff::Timestamp;

use super::quota::Quota;
use super::{SourceFinding, WorkSourceError};
use cowhand_system::panic::{Panicked, caught};

/// The fleet and the holder that claim an item, and the time until which the claim is valid without a renewal.
///
/// The claimant is stored in the outside system beside the item, so that fleets with different stores do not claim the
/// same item, and so that a repeated report can be detected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimant {
    /// Id of the fleet, which all nodes with the same store share.
    pub fleet: String,
    /// Job, or person who claimed by hand.
    pub holder: String,
    pub until: Timestamp,
}

impl Claimant {
    /// Returns true if the holder is a person and not a job. The holder name of a person contains an `@` and the id of
    /// the item.
    pub fn is_person(&self) -> bool {
        self.holder.contains('@')
    }
}

/// The fleet and the holder that have claimed an item, as its source states them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatedClaimant {
    pub fleet: String,
    /// Job, or person who claimed by hand.
    pub holder: String,
}

/// State of an item in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueState {
    /// The item can be claimed.
    Available,
    Claimed,
    /// The item exists but is not offered: a person has to decide.
    Withdrawn,
    /// The item is completed or does not exist.
    Done,
}

/// An item whose claim was not renewed in time.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpiredClaim {
    pub item: WorkItem,
    /// Claimant and end of the claim, as a part of the sentence "the claim of … has expired".
    pub left_by: String,
    /// Claimant, if the source states it.
    pub claimant: Option<StatedClaimant>,
}

/// A queue of work outside cowhand. The methods fit queues that use labels, columns or files.
///
/// `complete_work` and `release_work` are repeated after a crash or a lost answer. For the same [`Claimant`], the
/// second call must not post, move or close anything again.
#[async_trait]
pub trait WorkSource: Send + Sync + std::fmt::Debug {
    /// Returns the first part of the ids of the items.
    fn source_type(&self) -> &str;

    /// Returns one page of items, the oldest first.
    async fn fetch_available_work(&self, options: &FetchOptions) -> Result<FetchResult, WorkSourceError>;

    /// Claims an item. A lost or refused claim is a result; an error means that the state of the claim is unknown.
    async fn claim_work(&self, item: &WorkItemId, by: &Claimant) -> Result<ClaimResult, WorkSourceError>;

    /// Claims several items, each as [`Self::claim_work`] does, and returns the results in the same order. A source
    /// that has to wait within a claim can wait once for all of them.
    async fn claim_all(
        &self,
        claims: &[(WorkItemId, Claimant)],
    ) -> Vec<Result<ClaimResult, WorkSourceError>> {
        let mut results = Vec::with_capacity(claims.len());
        for (item, by) in claims {
            results.push(catch_panic(self.claim_work(item, by)).await);
        }
        results
    }

    /// Returns the current queue state of an item. The default searches the lists of items. A source should query the
    /// item directly, because a list may be out of date.
    async fn queue_state(&self, item: &WorkItemId) -> Result<QueueState, WorkSourceError> {
        for (include_claimed, queue_state) in [(false, QueueState::Available), (true, QueueState::Claimed)] {
            let mut options = FetchOptions { include_claimed, ..FetchOptions::default() };
            loop {
                let page = self.fetch_available_work(&options).await?;
                if page.items.iter().any(|listed| listed.id == *item) {
                    return Ok(queue_state);
                }
                match page.next_cursor {
                    Some(cursor) if options.cursor.as_ref() != Some(&cursor) => options.cursor = Some(cursor),
                    _ => break,
                }
            }
        }
        Ok(if self.get_work(item).await?.is_some() { QueueState::Withdrawn } else { QueueState::Done })
    }

    /// Offers an unclaimed item again, on request of a person. With `add_comment`, the reason is written to the item,
    /// with `by` as the author of the reason. An item that is done or claimed is not changed, and the result states
    /// this. The default changes no item.
    async fn offer_work(
        &self,
        item: &WorkItemId,
        _options: &ReleaseOptions,
        _by: &Claimant,
    ) -> Result<ReleaseResult, WorkSourceError> {
        let message = match self.queue_state(item).await? {
            QueueState::Available => return Ok(ReleaseResult { success: true, message: None }),
            QueueState::Claimed => format!("{item} is claimed"),
            QueueState::Done => format!("{item} is done or no longer exists"),
            QueueState::Withdrawn => format!("{item} was withdrawn; make it available in its work source"),
        };
        Ok(ReleaseResult { success: false, message: Some(message) })
    }

    /// Extends a claim to `by.until`. The default does nothing.
    async fn renew_claim(&self, _item: &WorkItemId, _by: &Claimant) -> Result<(), WorkSourceError> {
        Ok(())
    }

    async fn complete_work(
        &self,
        item: &WorkItemId,
        result: &WorkResult,
        by: &Claimant,
    ) -> Result<(), WorkSourceError>;

    async fn release_work(
        &self,
        item: &WorkItemId,
        options: &ReleaseOptions,
        by: &Claimant,
    ) -> Result<ReleaseResult, WorkSourceError>;

    async fn get_work(&self, item: &WorkItemId) -> Result<Option<WorkItem>, WorkSourceError>;

    /// Returns the current id of the claimant's item, if a person changed its id after the claim. This method is called
    /// if `item` does not exist or is now the id of another item.
    async fn moved(&self, _item: &WorkItemId, _by: &Claimant) -> Result<Option<WorkItemId>, WorkSourceError> {
        Ok(None)
    }

    /// Returns who has claimed the item, if the item states it. The claim may have expired.
    fn stated_claimant(&self, _item: &WorkItem) -> Option<StatedClaimant> {
        None
    }

    /// Returns who has claimed the item now. The default returns [`Self::stated_claimant`]; a source whose items do not
    /// show their claim has to ask the outside system.
    async fn current_claimant(&self, item: &WorkItem) -> Result<Option<StatedClaimant>, WorkSourceError> {
        Ok(self.stated_claimant(item))
    }

    /// Returns items whose claim has expired and that the source does not list as available, although `claim_work`
    /// accepts them. This method is called regularly on every node, so it has to be cheap.
    async fn expired_claims(&self) -> Result<Vec<ExpiredClaim>, WorkSourceError> {
        Ok(Vec::new())
    }

    /// Checks that the source exists and may be changed, for `doctor`. The check changes nothing.
    async fn check(&self) -> Vec<SourceFinding> {
        Vec::new()
    }

    /// Returns the number of entries of the source that look like items and are not items, so that no agent takes them.
    /// `check` explains the reasons. This method is called whenever a person looks at the fleet, so it has to be cheap.
    async fn skipped(&self) -> Result<usize, WorkSourceError> {
        Ok(0)
    }

    /// Returns the number of answered requests, and of requests that the outside system still allows; `None` if the
    /// source does not count requests.
    fn quota(&self) -> Option<Quota> {
        None
    }
}

/// Returns true if the claim of another item can succeed after a claim was refused for this reason. Without write
/// permission, or if the source fails, every other claim fails as well.
pub const fn can_claim_another(reason: ClaimFailureReason) -> bool {
    match reason {
        ClaimFailureReason::AlreadyClaimed
        | ClaimFailureReason::NotFound
        | ClaimFailureReason::InvalidState => true,
        ClaimFailureReason::PermissionDenied | ClaimFailureReason::SourceError => false,
    }
}

/// Calls a source and turns a panic into an error, because anybody can write a source.
pub async fn catch_panic<T>(
    call: impl Future<Output = Result<T, WorkSourceError>>,
) -> Result<T, WorkSourceError> {
    let panicked =
        |panicked: Panicked| WorkSourceError::Other(anyhow::Error::from(panicked).context("the work source"));
    caught(call).await.unwrap_or_else(|error| Err(panicked(error)))
}

/// Time limit of a call that reads a source while a person waits.
pub const SOURCE_READ_TIMEOUT: Duration = Duration::from_secs(15);
/// Time limit of a call that changes a source while a person waits.
pub const SOURCE_CHANGE_TIMEOUT: Duration = Duration::from_secs(30);

/// Limits the time of a call, because a source may never answer.
pub async fn with_timeout<T>(
    timeout: Duration,
    call: impl Future<Output = Result<T, WorkSourceError>>,
) -> Result<T, WorkSourceError> {
    tokio::time::timeout(timeout, call).await.unwrap_or(Err(WorkSourceError::Silent(timeout)))
}
