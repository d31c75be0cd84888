//! Issues with claims of a fleet that no longer exists.

use cowhand_core::event::Fact;
use cowhand_core::schedule::SkipReason;

use super::{Hub, OFTEN, marker_of_another_fleet, minutes, said};
use crate::{jobs, stop, until};

#[tokio::test]
async fn expired_claims_of_dead_fleet_are_put_back_and_done() {
    let hub = Hub::new("cat", "", OFTEN).await;
    // The claimant of issue 1 died after it had changed both labels, the claimant of issue 2 between the two changes.
    hub.fake.add(1, &["agent-working", "bug"]);
    hub.fake.add(2, &["ready", "agent-working"]);
    // The claim of issue 3 has not expired, issue 4 was claimed by hand, and issue 5 is blocked by a person.
    hub.fake.add(3, &["agent-working"]);
    hub.fake.add(4, &["agent-working"]);
    hub.fake.add(5, &["agent-working", "blocked"]);
    let now = hub.fake.state().now;
    for (number, until) in
        [(1, now - minutes(1)), (2, now - minutes(60)), (3, now + minutes(5)), (5, now - minutes(60))]
    {
        hub.fake.state().comment(number, "somebody", &marker_of_another_fleet(until));
    }
    hub.fake.state().comment(4, "somebody", "I have this one.");
    let untouched: Vec<String> = [3, 4, 5].map(|number| format!("{:?}", hub.fake.issue(number))).into();
    let fleet = hub.started().await;
    let mut events = fleet.subscribe_after(0);
    let seen = until(&mut events, 2, |fact| matches!(fact, Fact::WorkReported { .. })).await;
    let released = seen.iter().filter(|event| matches!(event.fact, Fact::WorkReleased { .. })).count();
    assert_eq!((released, jobs(&fleet).await.len()), (2, 2));
    for (number, labels) in [(1, &["bug"][..]), (2, &[])] {
        let issue = hub.fake.issue(number);
        assert!(issue.is_closed && issue.labels == labels, "{issue:?}");
        assert_eq!(issue.comments.len(), 2, "one for each fact: {issue:?}");
        assert_eq!(
            said(&issue, "The claim of job-x of fleet others, which claimed it until").len(),
            1,
            "{issue:?}"
        );
        assert_eq!(said(&issue, "cowhand: done").len(), 1, "{issue:?}");
    }
    let after: Vec<String> = [3, 4, 5].map(|number| format!("{:?}", hub.fake.issue(number))).into();
    assert_eq!(after, untouched);
    until(&mut events, 1, |fact| matches!(fact, Fact::ScheduleSkipped { reason: SkipReason::NoWork, .. }))
        .await;
    assert!(fleet.store().items().await.unwrap().is_empty());
    stop(fleet).await;
}
