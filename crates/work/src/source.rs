//! What every source can do.

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

/// Who takes an item, and until when that holds without another word.
///
/// It stands in the outside system beside the item, so that fleets that share no store do not take the same one, and
/// so that telling a fact twice can be noticed there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimant {
    /// Of everybody who shares our store.
    pub fleet: String,
    /// The job, or the person who claimed by hand.
    pub holder: String,
    pub until: Timestamp,
}

/// Who has claimed an item, as its source tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claimer {
    pub fleet: String,
    /// The job, or the person who claimed by hand.
    pub holder: String,
}

/// How an item stands in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueState {
    /// Anybody may claim it.
    Available,
    Claimed,
    /// It is there, and not offered: a person has to decide about it.
    Withdrawn,
    /// Nothing is left to do, or it is gone.
    Done,
}

/// An item that stands as claimed although its claimer has been silent for too long.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpiredClaim {
    pub item: WorkItem,
    /// In words: who, and until when.
    pub left_by: String,
    /// The same for programs, if the source tells: the fleet, and the job or the person.
    pub claimer: Option<Claimer>,
}

/// A queue of work outside cowhand, in words that fit labels, columns and files alike.
///
/// `complete_work` and `release_work` are told again after a crash or a lost answer. For one [`Claimant`] the second
/// time must not post, move or close anything twice.
#[async_trait]
pub trait WorkSource: Send + Sync + std::fmt::Debug {
    /// The first half of its items' ids.
    fn source_type(&self) -> &str;

    /// One page of items, the oldest first.
    async fn fetch_available_work(&self, options: &FetchOptions) -> Result<FetchResult, WorkSourceError>;

    /// A claim that is lost or refused is an answer, not an error; an error means that nobody knows.
    async fn claim_work(&self, item: &WorkItemId, by: &Claimant) -> Result<ClaimResult, WorkSourceError>;

    /// Claims several items, each as [`Self::claim_work`] does, and answers in their order. A source that has to wait
    /// within a claim can wait once for all of them.
    async fn claim_all(
        &self,
        claims: &[(WorkItemId, Claimant)],
    ) -> Vec<Result<ClaimResult, WorkSourceError>> {
        let mut results = Vec::with_capacity(claims.len());
        for (item, by) in claims {
            results.push(guarded(self.claim_work(item, by)).await);
        }
        results
    }

    /// How an item stands now, asked about directly: a list may be a moment old.
    async fn standing(&self, item: &WorkItemId) -> Result<QueueState, WorkSourceError> {
        for (include_claimed, standing) in [(false, QueueState::Available), (true, QueueState::Claimed)] {
            let mut options = FetchOptions { include_claimed, ..FetchOptions::default() };
            loop {
                let page = self.fetch_available_work(&options).await?;
                if page.items.iter().any(|listed| listed.id == *item) {
                    return Ok(standing);
                }
                match page.next_cursor {
                    Some(cursor) if options.cursor.as_ref() != Some(&cursor) => options.cursor = Some(cursor),
                    _ => break,
                }
            }
        }
        Ok(if self.get_work(item).await?.is_some() { QueueState::Withdrawn } else { QueueState::Done })
    }

    /// Offers an item again that nobody holds, because a person wants it to be tried once more. What is done or claimed
    /// is left alone, and the answer says so.
    async fn offer_work(&self, item: &WorkItemId) -> Result<ReleaseResult, WorkSourceError> {
        let message = match self.standing(item).await? {
            QueueState::Available => return Ok(ReleaseResult { success: true, message: None }),
            QueueState::Claimed => format!("{item} is claimed"),
            QueueState::Done => format!("{item} is done, or gone"),
            QueueState::Withdrawn => format!("{item} has to be made available where it is kept"),
        };
        Ok(ReleaseResult { success: false, message: Some(message) })
    }

    /// Says that the claim still holds, for longer than was said before.
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

    /// The id under which the claimant's item stands now, if a person gave it another id since it was claimed. Asked if
    /// `item` is not there, or is another item by now.
    async fn moved(&self, _item: &WorkItemId, _by: &Claimant) -> Result<Option<WorkItemId>, WorkSourceError> {
        Ok(None)
    }

    /// Who has claimed the item, if the item itself says so. The claim may have run out.
    fn claimer(&self, _item: &WorkItem) -> Option<Claimer> {
        None
    }

    /// Items that are claimed by the dead and are not listed as available for that reason; `claim_work` takes them all
    /// the same. Asked now and then by everybody who takes work from here, so it has to be cheap.
    async fn expired_claims(&self) -> Result<Vec<ExpiredClaim>, WorkSourceError> {
        Ok(Vec::new())
    }

    /// Whether it could do its work: it is there, and we may change it. For `doctor`; changes nothing.
    async fn check(&self) -> Vec<SourceFinding> {
        Vec::new()
    }

    /// What the outside system still lets us ask, if it counts that.
    fn quota(&self) -> Option<Quota> {
        None
    }
}

/// Whether another item may go better. If we may not write, or the source is ill, every other one ends the same way.
pub const fn tries_the_next(reason: ClaimFailureReason) -> bool {
    match reason {
        ClaimFailureReason::AlreadyClaimed
        | ClaimFailureReason::NotFound
        | ClaimFailureReason::InvalidState => true,
        ClaimFailureReason::PermissionDenied | ClaimFailureReason::SourceError => false,
    }
}

/// A source may be anybody's, so it can panic as well as fail; what it had in hand is then treated as after an error.
pub async fn guarded<T>(
    asked: impl Future<Output = Result<T, WorkSourceError>>,
) -> Result<T, WorkSourceError> {
    let panicked =
        |panicked: Panicked| WorkSourceError::Other(anyhow::Error::from(panicked).context("the work source"));
    caught(asked).await.unwrap_or_else(|error| Err(panicked(error)))
}

/// So long a person waits for a source that is only read, and for one that is to change something.
pub const SOURCE_READ_TIMEOUT: Duration = Duration::from_secs(15);
pub const SOURCE_CHANGE_TIMEOUT: Duration = Duration::from_secs(30);

/// A source that accepts the question and never answers is no reason to wait for ever.
pub async fn within<T>(
    most: Duration,
    asked: impl Future<Output = Result<T, WorkSourceError>>,
) -> Result<T, WorkSourceError> {
    tokio::time::timeout(most, asked).await.unwrap_or(Err(WorkSourceError::Silent(most)))
}
