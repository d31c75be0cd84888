//! The search for claims of dead fleets, and its cost in requests.

use cowhand::work::{Claimant, WorkSource};
use cowhand_core::work::ClaimResult;
use jiff::{SignedDuration, Timestamp};

use crate::{claimant, id, scene};

fn marker_of_another_fleet(until: Timestamp) -> String {
    let json = serde_json::json!({ "fleet": "others", "holder": "job-x", "until": until });
    format!("<!-- cowhand:claim {json} -->")
}

#[tokio::test]
async fn expired_claims_are_found_with_few_paid_requests() {
    let (fake, source) = scene().await;
    let now = fake.state().now;
    for number in 1..=120 {
        fake.add(number, &["agent-working"]);
        // Every third issue was claimed by hand.
        if number % 3 != 0 {
            fake.state().comment(
                number,
                "somebody",
                &marker_of_another_fleet(now + SignedDuration::from_mins(30)),
            );
        }
    }
    assert!(source.expired_claims().await.unwrap().is_empty());
    let first = std::mem::take(&mut fake.state().counted_requests);
    assert_eq!(first, 2 + 1 + 120, "two pages, our own name, and the comments of each issue");
    for _ in 0..100 {
        fake.state().advance(10);
        assert!(source.expired_claims().await.unwrap().is_empty());
    }
    assert_eq!(
        fake.state().counted_requests,
        0,
        "a list that has not changed is free, and no comments are read"
    );

    // One claim is renewed, and then all others expire.
    let until = now + SignedDuration::from_mins(600);
    fake.state().issues.get_mut(&1).unwrap().comments[0].body = marker_of_another_fleet(until);
    fake.state().advance(1800);
    let lapsed = source.expired_claims().await.unwrap();
    assert_eq!(lapsed.len(), 79);
    assert_eq!(lapsed[0].item.id.to_string(), "github-2");
    assert!(
        lapsed[0].left_by.starts_with("job-x of fleet others, which claimed it until "),
        "{:?}",
        lapsed[0]
    );
    let paid = std::mem::take(&mut fake.state().counted_requests);
    assert_eq!(paid, 1 + 80, "one page has changed, and those claimed by hand are not looked at again");

    // A claimed issue is no longer found.
    let by = Claimant { until: fake.state().now + SignedDuration::from_mins(10), ..claimant("job-1") };
    assert!(matches!(source.claim_work(&id(2), &by).await, Ok(ClaimResult::Claimed(_))));
    assert_eq!(source.expired_claims().await.unwrap().len(), 78);
}
