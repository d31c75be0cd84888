//! Leases: renewed, given back, and run out.

use cowhand_core::event::Fact;
use cowhand_core::job::{Job, JobStatus, JobUsage, MAX_REQUEUES, NotBegun};
use cowhand_core::policy::Retry;
use cowhand_store::{GivenBack, Settled};
use jiff::SignedDuration;

use crate::conformance::{claim, event_types, fire};
use crate::{Place, at, hand_job, on_both, with_schedule};

on_both! {
    renewal_names_what_is_still_held,
    an_attempt_that_never_began_is_given_back,
    a_job_is_put_back_so_often_for_one_reason,
    what_is_not_current_any_more_gets_no_place,
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
        store.release_expired(job.id().clone(), 1, false, Retry::default(), at(470)).await.unwrap()
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
    let requeue = async |epoch, second| {
        store.requeue(job.id().clone(), epoch, NotBegun::Interrupted, at(second)).await.unwrap()
    };
    let GivenBack::Done(back) = requeue(epoch, 5).await else { panic!() };
    assert_eq!(back.status(), JobStatus::Pending);
    assert_eq!(requeue(epoch, 6).await, GivenBack::Fenced);
    let (again, newer) = claim(&store, &job, 6).await;
    assert_eq!((again.attempts(), newer), (2, epoch + 1));
    assert_eq!(event_types(&store).await[2..], ["job:started", "job:requeued", "job:started"]);

    // This one has told what it uses: it has begun, whatever else is known of it.
    let usage = JobUsage { total_cost_usd: Some(0.25), ..JobUsage::default() };
    store.hear(job.id().clone(), newer, usage, None).await.unwrap();
    assert_eq!(requeue(newer, 7).await, GivenBack::Began);
    assert_eq!(store.job(job.id().clone()).await.unwrap(), Some(again), "nothing was written");
    assert_eq!(store.history(job.id().clone()).await.unwrap().unwrap().attempts.len(), 1);
}

/// What is known of it outlives the store's connection.
async fn a_job_is_put_back_so_often_for_one_reason(place: Place) {
    let (store, schedule) = with_schedule(&place).await;
    let job = fire(&store, schedule, 0).await;
    let no_keeper = |round: u32| NotBegun::Failed(format!("the keeper in /x/job.{round} ended"));
    let mut second = 0;
    for round in 1..=MAX_REQUEUES {
        let (_, epoch) = claim(&store, &job, second).await;
        let back = store.requeue(job.id().clone(), epoch, no_keeper(round), at(second)).await.unwrap();
        let GivenBack::Done(back) = back else { panic!("{back:?}") };
        assert_eq!((back.requeued().times, back.requeued().in_all), (round, round));
        assert_eq!(store.job(job.id().clone()).await.unwrap(), Some(back));
        second += 100;
    }
    let snapshot = store.snapshot().await.unwrap();
    let told = snapshot.jobs[0].put_back(at(second - 100)).unwrap().1;
    assert!(told.contains("5 times") && told.contains("the keeper in /x/job.5 ended"), "{told}");
    let (_, epoch) = claim(&store, &job, second).await;
    let back = |why| store.requeue(job.id().clone(), epoch, why, at(second));
    assert_eq!(back(no_keeper(6)).await.unwrap(), GivenBack::TooOften);
    let full = NotBegun::Shortage("no space left on device".to_owned());
    let GivenBack::Done(waits) = back(full).await.unwrap() else { panic!() };
    assert_eq!((waits.requeued().times, waits.requeued().in_all), (1, 6), "that is another reason");
    let events = store.events_after(0, 100).await.unwrap();
    let reason = |fact: &Fact| match fact {
        Fact::JobRequeued { reason, .. } => reason.clone(),
        _ => None,
    };
    let reasons: Vec<String> = events.iter().filter_map(|event| reason(&event.fact)).collect();
    assert_eq!(reasons.len(), 6);
    assert_eq!(reasons[5], "no space left on device");
}

async fn what_is_not_current_any_more_gets_no_place(place: Place) {
    let (store, schedule) = with_schedule(&place).await;
    let job = fire(&store, schedule, 0).await;
    let (_, epoch) = claim(&store, &job, 0).await;
    let set = async || store.set_place(job.id().clone(), 1, "/srv".as_ref(), "codex").await.unwrap();
    assert!(set().await);
    let lapsed = store.release_expired(job.id().clone(), epoch, false, Retry::default(), at(10_000)).await;
    assert!(matches!(lapsed.unwrap(), Settled::Done(_)));
    assert!(!set().await, "another node has settled it");
}
