//! The contract of every work source: a test that authors of sources run.

use std::sync::Arc;

use cowhand_core::work::{
    ClaimFailureReason, ClaimResult, FetchOptions, ReleaseOptions, WorkItem, WorkItemId, WorkOutcome,
    WorkResult,
};
use futures_util::future::join_all;
use jiff::Timestamp;

use super::{Claimant, WorkSource};

/// Claims, completes and releases items, and panics at the first violation of the contract.
///
/// - `handles` are several handles to the same queue, as separate programs have them. The queue needs at least four
///   available items, and nothing else may use it.
/// - `until` is the end of all claims. It has to be in the future.
/// - `outside_state` returns the whole state of the outside system as a text of any form. A completion or release that
///   is repeated must not change this text.
pub async fn assert_work_source_contract(
    handles: &[Arc<dyn WorkSource>],
    until: Timestamp,
    outside_state: impl AsyncFn() -> String,
) {
    let source = Subject { source: handles.first().map(Arc::clone), until };
    source.lists_pages_oldest_first().await;
    let [first, second, third, fourth] = source.first_four().await;
    let winner = source.one_of_many_wins(handles, &first).await;
    source.a_claimed_item_is_taken(&first).await;
    source.success_is_reported_once(&first, &winner, &outside_state).await;
    source.a_release_gives_it_back(&second, &outside_state).await;
    source.only_the_holder_gives_back(&third).await;
    source.a_failure_waits_for_a_person(&fourth).await;
    source.an_unknown_item_is_not_found().await;
}

struct Subject {
    source: Option<Arc<dyn WorkSource>>,
    until: Timestamp,
}

impl Subject {
    fn source(&self) -> &dyn WorkSource {
        let Some(source) = &self.source else { panic!("the contract needs a handle") };
        source.as_ref()
    }

    fn claimant(&self, holder: &str) -> Claimant {
        Claimant { fleet: format!("fleet-of-{holder}"), holder: holder.to_owned(), until: self.until }
    }

    async fn list(&self, options: FetchOptions) -> Vec<WorkItem> {
        let (mut options, mut items) = (options, Vec::new());
        for _ in 0..10_000 {
            let page = self.source().fetch_available_work(&options).await;
            let page = page.unwrap_or_else(|error| panic!("fetching fails: {error}"));
            let limit = options.limit.unwrap_or(usize::MAX);
            assert!(page.items.len() <= limit, "{} items, but the limit is {limit}", page.items.len());
            items.extend(page.items);
            options.cursor = page.next_cursor;
            if options.cursor.is_none() {
                return items;
            }
        }
        panic!("the list has more than 10,000 pages");
    }

    async fn available(&self, id: &WorkItemId) -> bool {
        self.list(FetchOptions::default()).await.iter().any(|item| item.id == *id)
    }

    async fn claim(&self, id: &WorkItemId, claimant: &Claimant) -> ClaimResult {
        let claim = self.source().claim_work(id, claimant).await;
        claim.unwrap_or_else(|error| panic!("claiming {id} fails: {error}"))
    }

    async fn must_claim(&self, id: &WorkItemId, claimant: &Claimant) -> WorkItem {
        match self.claim(id, claimant).await {
            ClaimResult::Claimed(item) => *item,
            refused @ ClaimResult::Refused { .. } => panic!("{id} is available, but {refused:?}"),
        }
    }

    async fn lists_pages_oldest_first(&self) {
        let whole = self.list(FetchOptions::default()).await;
        for item in &whole {
            let source = self.source().source_type();
            assert_eq!(item.id.source(), source, "{} does not begin with the source's type", item.id);
        }
        let ordered = whole.is_sorted_by_key(|item| item.created_at);
        assert!(ordered, "the items are not sorted, the oldest first");
        let by_two = self.list(FetchOptions { limit: Some(2), ..FetchOptions::default() }).await;
        let ids = |items: &[WorkItem]| items.iter().map(|item| item.id.to_string()).collect::<Vec<_>>();
        assert_eq!(ids(&by_two), ids(&whole), "pages of two items show other items than one page");
    }

    async fn first_four(&self) -> [WorkItemId; 4] {
        let mut ids = self.list(FetchOptions::default()).await.into_iter().map(|item| item.id);
        let mut next = || ids.next().unwrap_or_else(|| panic!("the contract needs four available items"));
        let ids = [next(), next(), next(), next()];
        for id in &ids {
            let item = self.source().get_work(id).await;
            let item = item.unwrap_or_else(|error| panic!("getting {id} fails: {error}"));
            assert_eq!(item.map(|item| item.id).as_ref(), Some(id), "`get_work` does not return {id}");
        }
        ids
    }

    async fn one_of_many_wins(&self, handles: &[Arc<dyn WorkSource>], id: &WorkItemId) -> Claimant {
        let claimants: Vec<Claimant> =
            (0..8).map(|number| self.claimant(&format!("claimant-{number}"))).collect();
        let claims = claimants
            .iter()
            .zip(handles.iter().cycle())
            .map(|(claimant, handle)| handle.claim_work(id, claimant));
        let mut winners = Vec::new();
        for (claimant, claim) in claimants.iter().zip(join_all(claims).await) {
            match claim.unwrap_or_else(|error| panic!("claiming {id} fails: {error}")) {
                ClaimResult::Claimed(item) => {
                    assert_eq!(item.id, *id, "a claim answers with another item");
                    winners.push(claimant.clone());
                }
                ClaimResult::Refused { reason, message } => {
                    assert_eq!(
                        reason,
                        ClaimFailureReason::AlreadyClaimed,
                        "a lost claim has another reason: {message:?}"
                    );
                }
            }
        }
        assert_eq!(winners.len(), 1, "of {} claimants of {id}, these won: {winners:?}", claimants.len());
        winners.swap_remove(0)
    }

    async fn a_claimed_item_is_taken(&self, id: &WorkItemId) {
        assert!(!self.available(id).await, "{id} is claimed and still listed");
        let everything = self.list(FetchOptions { include_claimed: true, ..FetchOptions::default() }).await;
        assert!(everything.iter().any(|item| item.id == *id), "`include_claimed` does not show {id}");
        self.is_refused(id, &[ClaimFailureReason::AlreadyClaimed]).await;
    }

    async fn is_refused(&self, id: &WorkItemId, reasons: &[ClaimFailureReason]) {
        match self.claim(id, &self.claimant("latecomer")).await {
            ClaimResult::Claimed(_) => panic!("{id} was claimed, though it is not available"),
            ClaimResult::Refused { reason, message } => {
                assert!(reasons.contains(&reason), "{id}: {reason:?} ({message:?}) is none of {reasons:?}");
            }
        }
    }

    async fn complete(&self, id: &WorkItemId, outcome: WorkOutcome, claimant: &Claimant) {
        let result = WorkResult {
            outcome,
            summary: "The contract says so.".to_owned(),
            details: Some("Line one.\nLine two.".to_owned()),
            artifacts: vec!["abc123".to_owned()],
            error: (outcome != WorkOutcome::Success).then(|| "it did not work".to_owned()),
        };
        let completed = self.source().complete_work(id, &result, claimant).await;
        completed.unwrap_or_else(|error| panic!("completing {id} fails: {error}"));
    }

    async fn success_is_reported_once(
        &self,
        id: &WorkItemId,
        claimant: &Claimant,
        outside_state: &impl AsyncFn() -> String,
    ) {
        self.complete(id, WorkOutcome::Success, claimant).await;
        let once = outside_state().await;
        self.complete(id, WorkOutcome::Success, claimant).await;
        assert_eq!(outside_state().await, once, "completing {id} again changes the outside state");
        self.is_over(id).await;
    }

    async fn is_over(&self, id: &WorkItemId) {
        use ClaimFailureReason::{AlreadyClaimed, InvalidState, NotFound};
        assert!(!self.available(id).await, "{id} was reported and is available");
        // A source that does not list closed items may also report them as not found.
        self.is_refused(id, &[InvalidState, NotFound, AlreadyClaimed]).await;
    }

    async fn a_release_gives_it_back(&self, id: &WorkItemId, outside_state: &impl AsyncFn() -> String) {
        let claimant = self.claimant("releaser");
        self.must_claim(id, &claimant).await;
        let options = ReleaseOptions {
            reason: Some("The machine is going down.".to_owned()),
            add_comment: true,
            undoes_claim: false,
        };
        let released = self.source().release_work(id, &options, &claimant).await;
        let released = released.unwrap_or_else(|error| panic!("releasing {id} fails: {error}"));
        assert!(released.success, "the holder cannot release {id}: {:?}", released.message);
        let once = outside_state().await;
        let again = self.source().release_work(id, &options, &claimant).await;
        again.unwrap_or_else(|error| panic!("releasing {id} a second time fails: {error}"));
        assert_eq!(outside_state().await, once, "releasing {id} again changes the outside state");
        assert!(self.available(id).await, "{id} was released and is not available");
        let item = self.must_claim(id, &self.claimant("successor")).await;
        assert_eq!(item.id, *id, "a claim answers with another item");
    }

    async fn only_the_holder_gives_back(&self, id: &WorkItemId) {
        self.must_claim(id, &self.claimant("holder")).await;
        // The source may return an error or a result, as long as the claim remains.
        let other = self.claimant("other");
        _ = self.source().release_work(id, &ReleaseOptions::default(), &other).await;
        assert!(!self.available(id).await, "another claimant released {id}");
        self.is_refused(id, &[ClaimFailureReason::AlreadyClaimed]).await;
    }

    async fn a_failure_waits_for_a_person(&self, id: &WorkItemId) {
        let claimant = self.claimant("failing");
        self.must_claim(id, &claimant).await;
        self.complete(id, WorkOutcome::Failure, &claimant).await;
        assert!(!self.available(id).await, "{id} failed and is available before anybody looked at it");
    }

    async fn an_unknown_item_is_not_found(&self) {
        let source = self.source().source_type();
        let id = WorkItemId::new(source, "999999999").unwrap_or_else(|error| panic!("{error}"));
        let got = self.source().get_work(&id).await;
        let got = got.unwrap_or_else(|error| panic!("getting {id}, which does not exist, fails: {error}"));
        assert!(got.is_none(), "`get_work` returns {id}, which does not exist");
        self.is_refused(&id, &[ClaimFailureReason::NotFound]).await;
    }
}
