//! A job takes longer than the duration of its claim. The test moves the time, here and on GitHub.

use cowhand::clock::Clock;
use cowhand::fleet::{Fleet, Stop};
use cowhand_core::event::Fact;
use jiff::{SignedDuration, Timestamp};

use super::{Hub, WAIT, heard, minutes, trigger};
use crate::fake::LOGIN;
use crate::{stop, until};

/// Duration of a claim without renewal.
const HELD: SignedDuration = SignedDuration::from_mins(60);
/// Time after which a claim is renewed.
const HALF: SignedDuration = SignedDuration::from_mins(31);

/// Returns the end of the claim in the marker on the issue.
fn holds_until(hub: &Hub) -> Timestamp {
    let issue = hub.fake.issue(7);
    let ours: Vec<_> = issue.comments.iter().filter(|comment| comment.login == LOGIN).collect();
    let [comment] = &ours[..] else { panic!("{issue:?}") };
    let line = comment.body.lines().next().unwrap();
    let json = line.trim_start_matches("<!-- cowhand:claim ").trim_end_matches(" -->");
    let claim: serde_json::Value = serde_json::from_str(json).unwrap();
    claim["until"].as_str().unwrap().parse().unwrap()
}

fn advance(hub: &Hub, clock: &Clock, time: SignedDuration) {
    hub.fake.state().advance(time.as_secs());
    clock.set(clock.now() + time);
}

#[tokio::test]
async fn a_claim_is_renewed_while_its_job_runs_and_after_a_restart() {
    let hub = Hub::new(WAIT, "", "type: manual, timeout: 12h, idle_timeout: 12h").await;
    hub.fake.add(7, &["ready"]);
    let clock = Clock::test(hub.fake.state().now);
    let fleet = hub.started_with(&clock).await;
    let mut events = fleet.subscribe_after(0);
    let job = trigger(&fleet).await;
    until(&mut events, 1, |fact| matches!(fact, Fact::JobStarted { .. })).await;
    assert_eq!(holds_until(&hub), clock.now() + HELD);

    let mut renewals = heard(&hub.fake, "PATCH /repos/my-org/my-repo/issues/comments/");
    advance(&hub, &clock, HALF);
    renewals.recv().await.unwrap();
    until_it_holds(&hub, &clock).await;

    drop(events);
    leave(fleet).await;
    advance(&hub, &clock, HALF);
    let fleet = hub.started_with(&clock).await;
    renewals.recv().await.unwrap();
    until_it_holds(&hub, &clock).await;

    // The machine is off for longer than the claim lasts. Nobody took the issue meanwhile, so it is claimed
    // again.
    leave(fleet).await;
    advance(&hub, &clock, minutes(120));
    let mut claims = heard(&hub.fake, "POST /repos/my-org/my-repo/issues/7/comments");
    let fleet = hub.started_with(&clock).await;
    claims.recv().await.unwrap();
    until_it_holds(&hub, &clock).await;

    let mut events = fleet.subscribe_after(0);
    hub.go();
    until(&mut events, 1, |fact| matches!(fact, Fact::WorkReported { .. })).await;
    let issue = hub.fake.issue(7);
    assert_eq!((issue.is_closed, issue.comments.len()), (true, 1), "{issue:?}");
    assert!(issue.comments[0].body.contains(job.id().as_str()), "{issue:?}");
    stop(fleet).await;
}

async fn leave(fleet: Fleet) {
    fleet.stop(Stop::KeepAgents).await.unwrap();
}

/// Waits until the claim has its full duration again. The fake changes the issue a moment after it receives the
/// request.
async fn until_it_holds(hub: &Hub, clock: &Clock) {
    let is_single = || {
        let issue = hub.fake.issue(7);
        issue.comments.iter().filter(|comment| comment.login == LOGIN).count() == 1
    };
    while !is_single() || holds_until(hub) != clock.now() + HELD {
        tokio::task::yield_now().await;
    }
}
