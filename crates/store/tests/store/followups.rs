//! Follow-ups: a running attempt requests them, and their limit applies to the whole chain.

use cowhand_core::followup::{FollowupRefused, Followups, RefusedFollowup};
use cowhand_core::id::JobId;
use cowhand_core::job::{JobRecord, NewJob, Outcome};
use cowhand_core::policy::Retry;
use cowhand_core::retention::RetentionLimit;
use cowhand_store::{Claim, FollowupOutcome, NewFollowup, Removal, Store};
use jiff::{SignedDuration, Timestamp};

use crate::conformance::event_types;
use crate::{TestDb, at, hand_job, on_both, with_schedule};

on_both! {
    a_chain_stops_at_its_bound,
    the_same_key_is_the_same_followup,
    only_an_attempt_that_runs_can_ask_for_one,
    concurrent_followups_do_not_exceed_the_limit,
    a_chain_is_forgotten_with_its_jobs_and_not_before_it_has_ended,
}

fn rules(max: u32) -> Followups {
    Followups { max: Some(max), min_interval: Some("10s".parse().unwrap()), ..Followups::default() }
}

async fn begin(store: &Store, job: &JobId, now: Timestamp) -> i64 {
    let lease = SignedDuration::from_mins(1);
    match store.claim(job.clone(), 100, "n1".into(), lease, now).await.unwrap() {
        Claim::Claimed { epoch, .. } => epoch,
        other => panic!("{other:?}"),
    }
}

async fn running(store: &Store) -> JobId {
    let job = store.add_job(hand_job(), at(1)).await.unwrap().id().clone();
    begin(store, &job, at(2)).await;
    job
}

fn asked(by: &JobId, key: &str, rules: Vec<Followups>) -> NewFollowup {
    let new = NewJob { prompt: Some("Go on.".into()), ..hand_job() };
    NewFollowup { by: by.clone(), attempt: 1, key: key.into(), earliest: at(5), rules: Ok(rules), new }
}

async fn a_chain_stops_at_its_bound(db: TestDb) {
    let (store, _) = with_schedule(&db).await;
    let mut job = running(&store).await;
    for round in 0..3 {
        let now = at(20 + 20 * round);
        let made = store.make_followup(asked(&job, "k", vec![rules(3), rules(9)]), now).await.unwrap();
        let FollowupOutcome::Made(next) = made else { panic!("{made:?}") };
        assert_eq!(JobRecord::from(next.clone()).not_before, Some(at(30 + 20 * round)));
        assert_eq!(next.prompt(), Some("Go on."));
        job = next.id().clone();
        begin(&store, &job, at(31 + 20 * round)).await;
    }
    let made = store.make_followup(asked(&job, "k", vec![rules(3)]), at(90)).await.unwrap();
    assert_eq!(made, FollowupOutcome::Refused(FollowupRefused::TooMany { made: 3, max: 3 }));
    let refused = NewFollowup { rules: Err(FollowupRefused::NotAllowed), ..asked(&job, "k", vec![]) };
    let made = store.make_followup(refused, at(90)).await.unwrap();
    assert_eq!(made, FollowupOutcome::Refused(FollowupRefused::NotAllowed));
    let short = Followups { expires: Some("1m".parse().unwrap()), ..rules(9) };
    let made = store.make_followup(asked(&job, "k", vec![short]), at(90)).await.unwrap();
    assert!(matches!(made, FollowupOutcome::Refused(FollowupRefused::TooLong { .. })), "{made:?}");
    let types = event_types(&store).await;
    let count = |name: &str| types.iter().filter(|kind| **kind == name).count();
    assert_eq!((count("job:created"), count("job:followup"), count("followup:refused")), (4, 3, 3));
}

async fn end(store: &Store, job: &JobId, epoch: i64, now: Timestamp) {
    let done = Outcome::Completed { summary: None };
    store.settle(job.clone(), epoch, done, Retry::default(), now).await.unwrap();
}

/// If jobs of a chain are pruned, the chain must not get more follow-ups.
async fn a_chain_is_forgotten_with_its_jobs_and_not_before_it_has_ended(db: TestDb) {
    let (store, _) = with_schedule(&db).await;
    let prune = async |jobs: &[&JobId]| {
        let asked = jobs.iter().map(|job| ((*job).clone(), RetentionLimit::MaxAge)).collect();
        assert_eq!(store.prune(asked, at(900)).await.unwrap().len(), jobs.len());
    };
    let mut chain = vec![store.add_job(hand_job(), at(1)).await.unwrap().id().clone()];
    for round in 0..2 {
        let (job, now) = (chain.last().unwrap().clone(), at(100 * (round + 1)));
        let epoch = begin(&store, &job, now).await;
        let made = store.make_followup(asked(&job, "k", vec![rules(2)]), now).await.unwrap();
        let FollowupOutcome::Made(next) = made else { panic!("{made:?}") };
        end(&store, &job, epoch, now).await;
        chain.push(next.id().clone());
    }
    let [first, second, third] = &chain[..] else { panic!("{chain:?}") };
    let of = store.followups_of(second.clone()).await.unwrap();
    assert_eq!((of.follows.as_ref(), &of.followed_by, of.refused), (Some(first), &vec![third.clone()], None));

    prune(&[first, second]).await;
    let epoch = begin(&store, third, at(400)).await;
    let made = store.make_followup(asked(third, "k", vec![rules(2)]), at(401)).await.unwrap();
    let refused = FollowupRefused::TooMany { made: 2, max: 2 };
    assert_eq!(made, FollowupOutcome::Refused(refused.clone()), "those that are gone count");
    let kept = Some(RefusedFollowup { job: third.clone(), at: at(401), message: refused.to_string() });
    assert_eq!(store.followups_of(third.clone()).await.unwrap().refused, kept);
    assert_eq!(store.last_refusal(hand_job().agent).await.unwrap(), kept);
    assert_eq!(store.last_refusal("other".parse().unwrap()).await.unwrap(), None);
    end(&store, third, epoch, at(402)).await;
    assert_eq!(store.followups_of(second.clone()).await.unwrap().followed_by, vec![third.clone()], "not yet");
    assert!(matches!(store.remove_job(third.clone(), at(901)).await.unwrap(), Removal::Done(_)));
    for job in &chain {
        let of = store.followups_of(job.clone()).await.unwrap();
        assert_eq!((of.follows, of.followed_by, of.refused), (None, vec![], None), "nothing is left");
    }
}

async fn the_same_key_is_the_same_followup(db: TestDb) {
    let (store, _) = with_schedule(&db).await;
    let job = running(&store).await;
    let first = store.make_followup(asked(&job, "k", vec![rules(1)]), at(20)).await.unwrap();
    assert_eq!(store.make_followup(asked(&job, "k", vec![rules(1)]), at(21)).await.unwrap(), first);
    let other = store.make_followup(asked(&job, "other", vec![rules(1)]), at(22)).await.unwrap();
    assert!(matches!(other, FollowupOutcome::Refused(_)), "{other:?}");
}

async fn only_an_attempt_that_runs_can_ask_for_one(db: TestDb) {
    let (store, _) = with_schedule(&db).await;
    let waiting = store.add_job(hand_job(), at(1)).await.unwrap();
    let made = store.make_followup(asked(waiting.id(), "k", vec![rules(1)]), at(20)).await.unwrap();
    assert_eq!(made, FollowupOutcome::NotRunning);
}

async fn concurrent_followups_do_not_exceed_the_limit(db: TestDb) {
    let (store, _) = with_schedule(&db).await;
    let job = running(&store).await;
    let asks = (0..12).map(|number| {
        let (store, asked) = (store.clone(), asked(&job, &format!("k{number}"), vec![rules(5)]));
        tokio::spawn(async move { store.make_followup(asked, at(20)).await.unwrap() })
    });
    let mut made = 0;
    for one in asks.collect::<Vec<_>>() {
        made += usize::from(matches!(one.await.unwrap(), FollowupOutcome::Made(_)));
    }
    assert_eq!(made, 5);
}
