//! Claims that take long, or that GitHub accepts only in part.

use std::time::Duration;

use cowhand_core::event::Fact;
use cowhand_core::schedule::SkipReason;

use super::{BY_HAND, Hub, OFTEN};
use crate::fake::{FakeFault, FakeState, OnRequest};
use crate::{stop, until};

/// While one schedule claims an item, the other schedule waits for the place of the agent.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn slow_claim_does_not_make_another_schedule_fire_again_and_again() {
    let hub = Hub::new("cat", "", OFTEN).await;
    let file = hub.scene.path("cowhand.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{text}      second: {{type: interval, interval: 2s}}\n")).unwrap();
    for number in [1, 2, 3] {
        hub.fake.add(number, &["ready"]);
    }
    let mut is_slow = true;
    let slow = move |line: &str, _: &mut FakeState| {
        if line.starts_with("POST") && line.ends_with("/labels") && std::mem::take(&mut is_slow) {
            // Longer than a place is kept for a poll.
            std::thread::sleep(Duration::from_secs(4));
        }
    };
    hub.fake.state().on_request = Some(OnRequest(Box::new(slow)));
    let fleet = hub.started().await;
    let mut events = fleet.subscribe_after(0);
    let seen = until(&mut events, 3, |fact| matches!(fact, Fact::WorkReported { .. })).await;
    let is_full = |fact: &Fact| matches!(fact, Fact::ScheduleSkipped { reason: SkipReason::AtCapacity, .. });
    let skipped = seen.iter().filter(|event| is_full(&event.fact)).count();
    assert!(skipped <= 6, "{skipped} firings found no place");
    stop(fleet).await;
}

/// The label of the claim is set, but the ready label cannot be removed: nothing of the claim stays.
#[tokio::test]
async fn claim_with_a_refused_change_is_undone() {
    let hub = Hub::new("cat", "", BY_HAND).await;
    hub.fake.add(7, &["ready"]);
    let path = "DELETE /repos/my-org/my-repo/issues/7/labels/";
    hub.fake.fault(&format!("{path}ready"), FakeFault::status(403));
    // The first try to undo the claim fails, too.
    hub.fake.fault(&format!("{path}agent-working"), FakeFault::status(403));
    let fleet = hub.started().await;
    let mut events = fleet.subscribe_after(0);
    let claimed =
        fleet.claim_item(&"github-7".parse().unwrap(), cowhand::queues::ItemScope::default(), "kim").await;
    let error = claimed.unwrap_err().to_string();
    assert!(error.contains("403"), "{error}");
    let undone = until(&mut events, 1, |fact| matches!(fact, Fact::WorkReleased { .. }));
    let seen = tokio::time::timeout(Duration::from_mins(1), undone).await.expect("the claim is not undone");
    assert!(seen.iter().any(|event| matches!(event.fact, Fact::WorkDelayed { .. })), "{seen:?}");
    let issue = hub.fake.issue(7);
    assert_eq!((issue.labels, issue.comments.len()), (vec!["ready".to_owned()], 0));
    stop(fleet).await;
}
