//! Issues that failed too often: they are tried again after a person sets the label again.

use std::time::Duration;

use cowhand::queues::ItemScope;
use cowhand::store::FailedItemState;
use cowhand_core::event::Fact;
use cowhand_core::work::{ReleaseOptions, WorkItemId, WorkOutcome};

use super::{Hub, OFTEN};
use crate::{jobs, stop, until};

const TWICE: &str = ", on_failure: release, max_item_attempts: 2";

#[tokio::test]
async fn action_of_person_resets_failure_count_of_issue() {
    // More jobs fail in the same way than the default breaker allows.
    let schedule = format!("{OFTEN}, breaker: {{failures: 0}}");
    let hub = Hub::new("exit 3", TWICE, &schedule).await;
    hub.fake.add(7, &["ready"]);
    let fleet = hub.started().await;
    let mut events = fleet.subscribe_after(0);
    let failed = |fact: &Fact| matches!(fact, Fact::WorkReported { outcome: WorkOutcome::Failure, .. });
    let mut expected = 0;
    let id: WorkItemId = "github-7".parse().unwrap();
    for act in ["nothing yet", "label", "retry", "release"] {
        match act {
            "label" => hub.fake.state().issues.get_mut(&7).unwrap().labels.push("ready".to_owned()),
            "retry" => drop(fleet.retry_item(&id, ItemScope::default()).await.unwrap()),
            "release" => {
                let reason = Some("The server is back.".to_owned());
                let options = ReleaseOptions { reason, add_comment: true, undoes_claim: false };
                drop(fleet.release_item(&id, ItemScope::default(), options).await.unwrap());
            }
            _ => {}
        }
        // After the first failure, cowhand itself sets the label again. This does not reset the failures.
        let told = tokio::time::timeout(Duration::from_mins(2), until(&mut events, 1, failed)).await;
        told.unwrap_or_else(|_| panic!("{act}: it was not tried again"));
        expected += 2;
        assert_eq!(jobs(&fleet).await.len(), expected, "{act}");
        let known = fleet.store().item_failures().await.unwrap().pop().unwrap();
        assert_eq!((known.failures, known.state), (2, FailedItemState::GivenUp), "{act}");
        assert!(hub.fake.issue(7).labels.is_empty(), "{act}");
    }
    let comments = hub.fake.issue(7).comments;
    let noted = comments.iter().filter(|comment| comment.body.contains("The server is back.")).count();
    assert_eq!(noted, 1, "{comments:?}");
    // A person closes the issue: its failures are forgotten, and it cannot be retried.
    hub.fake.state().issues.get_mut(&7).unwrap().is_closed = true;
    let closed = fleet.retry_item(&id, ItemScope::default()).await.unwrap_err();
    assert_eq!(
        closed.to_string(),
        "github-7 cannot be tried again: the issue is closed, or not in the repository"
    );
    stop(fleet).await;
}
