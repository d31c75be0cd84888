//! Retention: the rows that a removal deletes, the rows that stay, and the jobs that cannot be removed.

use cowhand_core::event::Fact;
use cowhand_core::firing::{Decision, NewFiring};
use cowhand_core::id::JobId;
use cowhand_core::job::{Job, JobStatus, NewJob, Origin, Outcome};
use cowhand_core::policy::Retry;
use cowhand_core::retention::RetentionLimit;
use cowhand_store::{Claim, Fired, JobFilter, Removal, Store, StoreError};
use jiff::SignedDuration;

use crate::{TestDb, at, cron_key, hand_job, new_job, no_such_job, on_both, with_schedule};

on_both! {
    the_firing_and_the_events_of_a_pruned_job_stay,
    a_live_job_is_never_pruned,
    the_origin_of_a_live_job_is_not_pruned,
    a_job_is_removed_once,
    a_list_after_a_pruned_job_is_an_error,
    concurrent_prunes_do_not_deadlock,
}

async fn run(store: &Store, job: &Job, second: i64) {
    let lease = SignedDuration::from_mins(1);
    let claim = store.claim(job.id().clone(), 9, "node-a".into(), lease, at(second)).await.unwrap();
    let Claim::Claimed { epoch, .. } = claim else { panic!("{claim:?}") };
    let outcome = Outcome::Completed { summary: None };
    store.settle(job.id().clone(), epoch, outcome, Retry::default(), at(second)).await.unwrap();
}

async fn finished(store: &Store, second: i64) -> Job {
    let job = store.add_job(hand_job(), at(second)).await.unwrap();
    run(store, &job, second).await;
    job
}

async fn prune(store: &Store, jobs: &[&Job], second: i64) -> Vec<JobId> {
    let requested = jobs.iter().map(|job| (job.id().clone(), RetentionLimit::MaxAge)).collect();
    store.prune(requested, at(second)).await.unwrap().iter().map(|job| job.id().clone()).collect()
}

async fn prunable(store: &Store) -> Vec<JobId> {
    store.ended_jobs(None).await.unwrap().into_iter().map(|ended| ended.id).collect()
}

async fn the_firing_and_the_events_of_a_pruned_job_stay(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let firing = || NewFiring {
        schedule,
        key: cron_key(60),
        due: at(60),
        decision: Decision::Run(new_job()),
        note: None,
    };
    let Fired::Recorded(Some(job)) = store.fire_once(firing(), at(60)).await.unwrap() else { panic!() };
    run(&store, &job, 61).await;
    let ended = store.ended_jobs(None).await.unwrap();
    assert_eq!((ended.len(), &ended[0].id, ended[0].at), (1, job.id(), at(61)));
    assert_eq!(store.ended_jobs(Some("other".parse().unwrap())).await.unwrap(), []);
    let before = store.last_event().await.unwrap();
    assert_eq!(prune(&store, &[&job], 100).await, [job.id().clone()]);

    assert_eq!(store.job(job.id().clone()).await.unwrap(), None);
    assert_eq!(store.jobs(JobFilter::default(), 10).await.unwrap(), []);
    assert_eq!(prunable(&store).await, []);
    let events = store.events_after(0, 100).await.unwrap();
    let pruned = events.last().unwrap();
    assert_eq!((pruned.seq, pruned.job.as_ref()), (before + 1, Some(job.id())));
    assert_eq!(pruned.fact, Fact::JobPruned { attempts: 1, limit: Some(RetentionLimit::MaxAge) });
    assert!(
        events.iter().any(|event| event.fact == Fact::JobCreated && event.job.as_ref() == Some(job.id()))
    );
    let removed = store.removed_job(job.id().clone()).await.unwrap().unwrap();
    assert_eq!((&removed.id, removed.at), (job.id(), at(100)));
    let suffix = &job.id().as_str()[15..];
    assert_eq!(store.removed_job_by_suffix(suffix).await.unwrap(), Some(removed));
    assert_eq!(store.removed_job(no_such_job()).await.unwrap(), None);
    assert_eq!(store.removed_job_by_suffix("zzzzzz").await.unwrap(), None);

    let row = store.firing(schedule, cron_key(60)).await.unwrap().unwrap();
    assert_eq!(row.job.as_ref(), Some(job.id()), "the ledger still says which job it was");
    assert_eq!(store.fire_once(firing(), at(200)).await.unwrap(), Fired::Duplicate, "the key stays taken");
}

async fn a_live_job_is_never_pruned(db: TestDb) {
    let (store, _) = with_schedule(&db).await;
    let [waiting, running] = [(); 2].map(|()| store.add_job(hand_job(), at(0)));
    let (waiting, running) = (waiting.await.unwrap(), running.await.unwrap());
    let lease = SignedDuration::from_mins(1);
    store.claim(running.id().clone(), 9, "node-a".into(), lease, at(1)).await.unwrap();
    let events = store.last_event().await.unwrap();
    assert_eq!(prunable(&store).await, []);
    assert_eq!(prune(&store, &[&waiting, &running], 999_999).await, []);
    for job in [&waiting, &running] {
        let in_use = Removal::InUse { by: job.id().clone() };
        assert_eq!(store.remove_job(job.id().clone(), at(999_999)).await.unwrap(), in_use);
    }
    let status = store.job(running.id().clone()).await.unwrap().unwrap().status();
    assert_eq!((status, store.last_event().await.unwrap()), (JobStatus::Running, events), "nothing changed");
    assert_eq!(
        store.adopt("node-a".into(), lease, at(2)).await.unwrap().len(),
        1,
        "the running job still has its lease"
    );
}

async fn the_origin_of_a_live_job_is_not_pruned(db: TestDb) {
    let (store, _) = with_schedule(&db).await;
    let parents = [finished(&store, 1).await, finished(&store, 2).await, finished(&store, 3).await];
    let fork = NewJob { origin: Some(Origin::ForkOf(parents[0].id().clone())), ..hand_job() };
    let retry = NewJob { origin: Some(Origin::RetryOf(parents[1].id().clone())), ..hand_job() };
    let (fork, retry) =
        (store.add_job(fork, at(4)).await.unwrap(), store.add_job(retry, at(4)).await.unwrap());
    assert_eq!(prunable(&store).await, [parents[2].id().clone()]);
    assert_eq!(prune(&store, &[&parents[0], &parents[1]], 5).await, []);
    let refused = store.remove_job(parents[0].id().clone(), at(5)).await.unwrap();
    assert_eq!(refused, Removal::InUse { by: fork.id().clone() });
    run(&store, &fork, 6).await;
    run(&store, &retry, 6).await;
    assert_eq!(prune(&store, &[&parents[0], &parents[1]], 7).await.len(), 2);
}

async fn a_job_is_removed_once(db: TestDb) {
    let (store, _) = with_schedule(&db).await;
    let job = finished(&store, 1).await;
    assert!(matches!(store.remove_job(job.id().clone(), at(2)).await.unwrap(), Removal::Done(_)));
    assert_eq!(store.remove_job(job.id().clone(), at(3)).await.unwrap(), Removal::Gone);
    assert_eq!(prune(&store, &[&job], 3).await, []);
    assert_eq!(store.remove_job(no_such_job(), at(3)).await.unwrap(), Removal::Gone);
    let events = store.events_after(0, 100).await.unwrap();
    let removals = |fact: &Fact| matches!(fact, Fact::JobPruned { .. } | Fact::JobDeleted { .. });
    let facts: Vec<Fact> = events.into_iter().map(|event| event.fact).filter(removals).collect();
    assert_eq!(facts, [Fact::JobDeleted { attempts: 1 }]);
    let removed = store.removed_job(job.id().clone()).await.unwrap();
    assert_eq!(removed.map(|removed| removed.at), Some(at(2)));
}

async fn a_list_after_a_pruned_job_is_an_error(db: TestDb) {
    let (store, _) = with_schedule(&db).await;
    let jobs = [finished(&store, 1).await, finished(&store, 2).await];
    let after = || JobFilter { after: Some(jobs[1].id().clone()), ..JobFilter::default() };
    assert_eq!(store.jobs(after(), 10).await.unwrap().len(), 1);
    prune(&store, &[&jobs[1]], 3).await;
    assert!(matches!(store.jobs(after(), 10).await, Err(StoreError::NoJob(id)) if id == *jobs[1].id()));
}

async fn concurrent_prunes_do_not_deadlock(db: TestDb) {
    let (store, _) = with_schedule(&db).await;
    let mut jobs = Vec::new();
    for second in 0..20 {
        jobs.push(finished(&store, second).await);
    }
    let forwards: Vec<&Job> = jobs.iter().collect();
    let backwards: Vec<&Job> = jobs.iter().rev().collect();
    let (one, other) = tokio::join!(prune(&store, &forwards, 100), prune(&store, &backwards, 100));
    assert_eq!(one.len() + other.len(), 20, "each job was pruned by one of them");
    assert_eq!(prunable(&store).await, []);
}
