//! Leases: renewed, given back, and run out.

use cowhand::store::{GivenBack, Settled};
use cowhand_core::job::{Job, JobStatus, JobUsage};
use cowhand_core::policy::Retry;
use jiff::SignedDuration;

use crate::conformance::{claim, event_types, fire};
use crate::{Place, at, hand_job, on_both, with_schedule};

on_both! {
    renewal_names_what_is_still_held,
    an_attempt_that_never_began_is_given_back,
}

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

async fn renewal_names_what_is_still_held(place: Place) {
    let store = place.open().await;
    let first = store.add_job(hand_job(), at(0)).await.unwrap();
    let second = store.add_job(hand_job(), at(0)).await.unwrap();
    store.claim(first.id().clone(), 2, "node-a".into(), MINUTE, at(0)).await.unwrap();
    store.claim(second.id().clone(), 2, "node-a".into(), MINUTE, at(30)).await.unwrap();
    let both = || vec![first.id().clone(), second.id().clone()];
    assert_eq!(store.renew("node-a".into(), both(), MINUTE, at(40)).await.unwrap().len(), 2);
    assert!(store.renew("node-b".into(), both(), MINUTE, at(40)).await.unwrap().is_empty());
    let lapsed = store.renew("node-a".into(), both(), MINUTE, at(200)).await.unwrap();
    assert_eq!(lapsed.len(), 2, "both had run out, but nobody took them");
    assert_eq!(store.adopt("node-a".into(), MINUTE, at(400)).await.unwrap().len(), 2);
    assert!(store.adopt("node-b".into(), MINUTE, at(400)).await.unwrap().is_empty());

    // Of the second nobody speaks any more, so it runs out while the first goes on.
    let renewed = store.renew("node-a".into(), vec![first.id().clone()], MINUTE, at(430)).await.unwrap();
    assert_eq!(renewed.iter().map(|held| &held.job).collect::<Vec<_>>(), [first.id()]);
    let lapse = async |job: &Job| {
        store.release_lapsed(job.id().clone(), 1, false, Retry::default(), at(470)).await.unwrap()
    };
    assert_eq!(lapse(&first).await, Settled::Fenced);
    assert!(matches!(lapse(&second).await, Settled::Done(_)));
    let renewed = store.renew("node-a".into(), both(), MINUTE, at(480)).await.unwrap();
    assert_eq!(renewed.iter().map(|held| &held.job).collect::<Vec<_>>(), [first.id()]);
    assert!(store.renew("node-a".into(), vec![], MINUTE, at(480)).await.unwrap().is_empty());
}

async fn an_attempt_that_never_began_is_given_back(place: Place) {
    let (store, schedule) = with_schedule(&place).await;
    let job = fire(&store, schedule, 0).await;
    let (_, epoch) = claim(&store, &job, 0).await;
    let GivenBack::Done(back) = store.give_back(job.id().clone(), epoch, at(5)).await.unwrap() else {
        panic!()
    };
    assert_eq!(back.status(), JobStatus::Pending);
    assert_eq!(store.give_back(job.id().clone(), epoch, at(6)).await.unwrap(), GivenBack::Fenced);
    let (again, newer) = claim(&store, &job, 6).await;
    assert_eq!((again.attempts(), newer), (2, epoch + 1));
    assert_eq!(event_types(&store).await[2..], ["job:started", "job:requeued", "job:started"]);

    // This one has told what it uses: it has begun, whatever else is known of it.
    let usage = JobUsage { total_cost_usd: Some(0.25), ..JobUsage::default() };
    store.hear(job.id().clone(), newer, usage, None).await.unwrap();
    assert_eq!(store.give_back(job.id().clone(), newer, at(7)).await.unwrap(), GivenBack::Began);
    assert_eq!(store.job(job.id().clone()).await.unwrap(), Some(again), "nothing was written");
    assert_eq!(store.history(job.id().clone()).await.unwrap().unwrap().attempts.len(), 1);
}
