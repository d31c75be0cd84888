//! Commands of people about issues that are closed, or that GitHub could not show for a while.

use std::time::Duration;

use cowhand::fleet::{Fleet, FleetError};
use cowhand::queues::{ItemScope, ItemView};
use cowhand_core::event::Fact;
use cowhand_core::work::{ReleaseOptions, WorkItemId, WorkOutcome, WorkResult};

use super::{BY_HAND, Hub, WAIT, said, trigger};
use crate::fake::FakeFault;
use crate::{stop, until};

const ISSUE: &str = "GET /repos/my-org/my-repo/issues/7";

fn id() -> WorkItemId {
    "github-7".parse().unwrap()
}

async fn release(fleet: &Fleet) -> Result<ItemView, FleetError> {
    fleet.release_item(&id(), ItemScope::default(), ReleaseOptions::default()).await
}

async fn complete(fleet: &Fleet) -> Result<ItemView, FleetError> {
    let done = WorkResult {
        outcome: WorkOutcome::Success,
        summary: "Done.".into(),
        details: None,
        artifacts: Vec::new(),
        error: None,
    };
    fleet.complete_item(&id(), ItemScope::default(), done).await
}

/// The fleet has forgotten the claim of its job while the issue could not be found, but the issue still has it.
#[tokio::test]
async fn claim_of_an_ended_job_can_be_released_and_completed() {
    for releases in [true, false] {
        let hub = Hub::new(WAIT, "", BY_HAND).await;
        hub.fake.add(7, &["ready"]);
        let fleet = hub.started().await;
        let mut events = fleet.subscribe_after(0);
        let job = trigger(&fleet).await;
        until(&mut events, 1, |fact| matches!(fact, Fact::JobStarted { .. })).await;
        let refused = if releases { release(&fleet).await } else { complete(&fleet).await };
        assert!(matches!(refused, Err(FleetError::ItemHeld { .. })), "the job runs: {refused:?}");
        for _ in 0..100 {
            hub.fake.fault(ISSUE, FakeFault::status(404));
        }
        fleet.cancel(job.id().clone()).await.unwrap();
        until(&mut events, 1, |fact| matches!(fact, Fact::WorkDelayed { .. })).await;
        assert!(release(&fleet).await.unwrap().forgotten);
        hub.fake.state().faults.clear();
        assert_eq!(hub.fake.issue(7).labels, ["agent-working"]);
        if releases {
            release(&fleet).await.unwrap();
        } else {
            complete(&fleet).await.unwrap();
        }
        let issue = hub.fake.issue(7);
        let labels: &[String] = if releases { &["ready".to_owned()] } else { &[] };
        assert_eq!((&issue.labels[..], issue.is_closed), (labels, !releases), "{issue:?}");
        assert!(said(&issue, "cowhand:claim").is_empty(), "{issue:?}");
        stop(fleet).await;
    }
}

/// The issue cannot be read now: the release is stored and delivered later.
#[tokio::test]
async fn release_is_stored_while_the_issue_cannot_be_read() {
    let hub = Hub::new("cat", "", BY_HAND).await;
    hub.fake.add(7, &["ready"]);
    let fleet = hub.started().await;
    let mut events = fleet.subscribe_after(0);
    fleet.claim_item(&id(), ItemScope::default(), "kim").await.unwrap();
    for _ in 0..100 {
        hub.fake.fault(ISSUE, FakeFault::status(503));
    }
    let view = release(&fleet).await.unwrap();
    assert!(view.undelivered && view.releasing, "{view:?}");
    hub.fake.state().faults.clear();
    let released = until(&mut events, 1, |fact| matches!(fact, Fact::WorkReleased { .. }));
    tokio::time::timeout(Duration::from_mins(1), released).await.expect("it is not released");
    assert_eq!(hub.fake.issue(7).labels, ["ready"]);
    stop(fleet).await;
}

#[tokio::test]
async fn closed_issue_is_not_released_or_completed() {
    let hub = Hub::new("cat", "", BY_HAND).await;
    hub.fake.add(7, &["ready"]);
    let fleet = hub.started().await;
    complete(&fleet).await.unwrap();
    let before = hub.fake.issue(7);
    assert!(before.is_closed);
    for refused in [release(&fleet).await, complete(&fleet).await] {
        let error = refused.unwrap_err();
        assert!(matches!(error, FleetError::ItemLeftAlone { .. }), "{error:?}");
        assert!(error.to_string().contains("the item is completed"), "{error}");
    }
    let after = hub.fake.issue(7);
    assert_eq!((after.labels, after.comments.len()), (before.labels, before.comments.len()));
    stop(fleet).await;
}

/// A person closes the issue while its job runs, with and without the label of the claim.
#[tokio::test]
async fn release_removes_only_the_claim_from_a_closed_issue() {
    for labels in [&["agent-working", "bug"][..], &["bug"]] {
        let hub = Hub::new(WAIT, "", BY_HAND).await;
        hub.fake.add(7, &["ready", "bug"]);
        let fleet = hub.started().await;
        let mut events = fleet.subscribe_after(0);
        let job = trigger(&fleet).await;
        until(&mut events, 1, |fact| matches!(fact, Fact::JobStarted { .. })).await;
        {
            let mut github = hub.fake.state();
            let issue = github.issues.get_mut(&7).unwrap();
            issue.is_closed = true;
            issue.labels = labels.iter().map(|&label| label.to_owned()).collect();
        }
        fleet.cancel(job.id().clone()).await.unwrap();
        until(&mut events, 1, |fact| matches!(fact, Fact::WorkReleased { .. })).await;
        let issue = hub.fake.issue(7);
        assert_eq!((&issue.labels[..], issue.comments.len()), (&["bug".to_owned()][..], 0), "{issue:?}");
        stop(fleet).await;
    }
}

/// A person closes an issue that was given up. A command that reads the issue afterwards removes its failures.
#[tokio::test]
async fn closed_issue_is_no_longer_given_up() {
    for by_list in [true, false] {
        let hub = Hub::new("exit 3", "", BY_HAND).await;
        hub.fake.add(7, &["ready"]);
        let fleet = hub.started().await;
        let mut events = fleet.subscribe_after(0);
        trigger(&fleet).await;
        until(&mut events, 1, |fact| matches!(fact, Fact::WorkReported { .. })).await;
        assert_eq!(fleet.store().item_failures().await.unwrap().len(), 1);
        hub.fake.state().issues.get_mut(&7).unwrap().is_closed = true;
        if by_list {
            let (sources, roster) = (fleet.sources(), fleet.roster());
            let queue = cowhand::queues::queues(&sources, &roster, None).pop().unwrap();
            cowhand::queues::items(&queue, &sources, fleet.store(), false).await.unwrap();
        } else {
            let refused = fleet.retry_item(&id(), ItemScope::default()).await.unwrap_err();
            assert!(refused.to_string().contains("the issue is closed"), "{refused}");
        }
        assert!(fleet.store().item_failures().await.unwrap().is_empty(), "by list: {by_list}");
        stop(fleet).await;
    }
}

/// A person who solved an issue that was given up completes it.
#[tokio::test]
async fn given_up_issue_can_be_completed() {
    let hub = Hub::new("exit 3", "", BY_HAND).await;
    hub.fake.add(7, &["ready"]);
    let fleet = hub.started().await;
    let mut events = fleet.subscribe_after(0);
    trigger(&fleet).await;
    until(&mut events, 1, |fact| matches!(fact, Fact::WorkReported { .. })).await;
    assert_eq!(fleet.store().item_failures().await.unwrap().len(), 1);
    let summary = "Done by hand.".to_owned();
    let (outcome, artifacts) = (WorkOutcome::Success, Vec::new());
    let result = WorkResult { outcome, summary, details: None, artifacts, error: None };
    fleet.complete_item(&id(), ItemScope::default(), result).await.unwrap();
    assert!(hub.fake.state().issues[&7].is_closed);
    assert!(fleet.store().item_failures().await.unwrap().is_empty());
    stop(fleet).await;
}

/// Nobody has claimed the issue: a person reports that it cannot be done.
#[tokio::test]
async fn available_issue_is_given_up_after_a_report_of_a_person() {
    for outcome in [WorkOutcome::Failure, WorkOutcome::Partial] {
        let hub = Hub::new("cat", "", BY_HAND).await;
        hub.fake.add(7, &["ready", "bug"]);
        let fleet = hub.started().await;
        let summary = "It needs a decision.".to_owned();
        let result = WorkResult { outcome, summary, details: None, artifacts: Vec::new(), error: None };
        fleet.complete_item(&id(), ItemScope::default(), result).await.unwrap();
        let issue = hub.fake.issue(7);
        assert_eq!((&issue.labels[..], issue.is_closed), (&["bug".to_owned()][..], false), "{issue:?}");
        assert_eq!(said(&issue, "cowhand:report").len(), 1, "{issue:?}");
        let failures = fleet.store().item_failures().await.unwrap();
        assert_eq!(failures.len(), usize::from(outcome == WorkOutcome::Failure), "{failures:?}");
        stop(fleet).await;
    }
}
