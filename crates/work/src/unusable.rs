//! A source that cannot be used because of its config or token. Each operation for which [`WorkSource`] has no default
//! returns the reason as an error.

use async_trait::async_trait;
use cowhand_core::work::{
    ClaimResult, FetchOptions, FetchResult, ReleaseOptions, ReleaseResult, WorkItem, WorkItemId, WorkResult,
};

use super::{Claimant, WorkSource, WorkSourceError};

/// Source that replaces an unusable source in a list of queues, so that the other queues are still shown.
#[derive(Debug)]
pub struct Unusable {
    pub source_type: String,
    pub why: String,
}

impl Unusable {
    fn refuse<T>(&self) -> Result<T, WorkSourceError> {
        Err(WorkSourceError::Config(self.why.clone()))
    }
}

#[async_trait]
impl WorkSource for Unusable {
    fn source_type(&self) -> &str {
        &self.source_type
    }

    async fn fetch_available_work(&self, _: &FetchOptions) -> Result<FetchResult, WorkSourceError> {
        self.refuse()
    }

    async fn claim_work(&self, _: &WorkItemId, _: &Claimant) -> Result<ClaimResult, WorkSourceError> {
        self.refuse()
    }

    async fn complete_work(
        &self,
        _: &WorkItemId,
        _: &WorkResult,
        _: &Claimant,
    ) -> Result<(), WorkSourceError> {
        self.refuse()
    }

    async fn release_work(
        &self,
        _: &WorkItemId,
        _: &ReleaseOptions,
        _: &Claimant,
    ) -> Result<ReleaseResult, WorkSourceError> {
        self.refuse()
    }

    async fn get_work(&self, _: &WorkItemId) -> Result<Option<WorkItem>, WorkSourceError> {
        self.refuse()
    }
}
