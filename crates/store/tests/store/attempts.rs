//! The history of a job: its firing and each attempt.

use cowhand_core::attempt::Settlement;
use cowhand_core::id::JobId;
use cowhand_core::job::{JobStatus, NotBegun, Outcome};
use cowhand_core::policy::Retry;
use cowhand_store::{Claim, PastAttempt, Store};
use jiff::SignedDuration;

use crate::conformance::fire;
use crate::{TestDb, at, hand_job, no_such_job, on_both, with_schedule};

on_both! {
    the_history_lists_attempts_in_order,
}

async fn claim(store: &Store, job: &JobId, node: &str, second: i64) -> i64 {
    let lease = SignedDuration::from_mins(1);
    match store.claim(job.clone(), 9, node.into(), lease, at(second)).await.unwrap() {
        Claim::Claimed { epoch, .. } => epoch,
        other => panic!("{job} is not ours: {other:?}"),
    }
}

async fn the_history_lists_attempts_in_order(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    assert_eq!(store.history(no_such_job()).await.unwrap(), None);
    let id = fire(&store, schedule, 7).await.id().clone();
    let history = store.history(id.clone()).await.unwrap().unwrap();
    assert_eq!((history.due, history.attempts), (Some(at(7)), vec![]));

    // The first attempt never began, the second failed, and the third runs.
    let epoch = claim(&store, &id, "a", 10).await;
    store.requeue(id.clone(), epoch, NotBegun::Interrupted, at(11)).await.unwrap();
    let epoch = claim(&store, &id, "a", 20).await;
    let lost = Outcome::lost("it broke");
    let retry = Retry { max_attempts: 9, ..Retry::default() };
    store.settle(id.clone(), epoch, lost.clone(), retry, at(30)).await.unwrap();
    let epoch = claim(&store, &id, "b", 3_600).await;
    let history = store.history(id.clone()).await.unwrap().unwrap();
    let first = PastAttempt {
        number: 2,
        node: "a".into(),
        started_at: at(20),
        agent_began_at: None,
        ended_at: Some(at(30)),
        outcome: Some(lost),
        usage: None,
        report: None,
        superseded: None,
    };
    let second = PastAttempt {
        number: 3,
        node: "b".into(),
        started_at: at(3_600),
        agent_began_at: None,
        ended_at: None,
        outcome: None,
        usage: None,
        report: None,
        superseded: None,
    };
    assert_eq!(history.attempts, [first.clone(), second.clone()]);
    assert_eq!(history.job.status(), JobStatus::Running);

    let done = Outcome::Completed { summary: None };
    let settlement = Settlement { agent_began_at: Some(at(3_601)), ..done.clone().into() };
    store.settle(id.clone(), epoch, settlement, Retry::default(), at(3_700)).await.unwrap();
    let history = store.history(id).await.unwrap().unwrap();
    let ended_at = Some(at(3_700));
    let second = PastAttempt { agent_began_at: Some(at(3_601)), ended_at, outcome: Some(done), ..second };
    assert_eq!((history.attempts, history.job.status()), (vec![first, second], JobStatus::Completed));

    let by_hand = store.add_job(hand_job(), at(0)).await.unwrap();
    assert_eq!(store.history(by_hand.id().clone()).await.unwrap().unwrap().due, None);
}
