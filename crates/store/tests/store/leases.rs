//! Leases: renewal, requeuing and expiry.

use cowhand_core::attempt::Superseded;
use cowhand_core::event::Fact;
use cowhand_core::firing::{Decision, NewFiring};
use cowhand_core::id::ScheduleId;
use cowhand_core::job::{Job, JobState, JobStatus, JobUsage, MAX_REQUEUES, NotBegun};
use cowhand_core::lease::OnLostLease;
use cowhand_core::plan::{Action, LiveState, plan};
use cowhand_core::policy::Retry;
use cowhand_core::roster::Roster;
use cowhand_store::{Claim, Fired, RequeueOutcome, Settled, Starter, Store};
use jiff::SignedDuration;

use crate::conformance::{claim, completed, event_types, fire};
use crate::{HOURLY, TestDb, at, cron_key, hand_job, new_job, on_both, roster, with_schedule};

on_both! {
    a_firing_claims_its_job_if_there_is_a_place,
    a_firing_leaves_the_place_of_a_requeued_job,
    renewal_returns_the_leases_still_held,
    an_attempt_that_never_began_is_requeued,
    a_job_is_requeued_at_most_so_often_for_one_reason,
    a_settled_attempt_gets_no_location,
    an_expired_lease_is_settled_after_one_lease_of_contact,
    a_lease_whose_agent_continues_is_settled_only_after_a_cancellation,
    the_end_of_a_superseded_attempt_is_stored_once,
}

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

/// Fires the schedule on a node whose agent has `max_concurrent` places.
async fn fire_and_claim(store: &Store, schedule: ScheduleId, second: i64, max_concurrent: u32) -> Fired {
    let decision = Decision::Run(new_job());
    let firing = NewFiring { schedule, key: cron_key(second), due: at(second), decision, note: None };
    let starter = Starter {
        node: "node-a".into(),
        lease: MINUTE,
        on_lost: OnLostLease::Pause,
        max_concurrent,
        shared: cowhand_store::SharedLimits::default(),
        session_key: None,
        limits: None,
        slot: None,
    };
    store.fire_and_claim(firing, starter, at(second)).await.unwrap()
}

async fn a_firing_claims_its_job_if_there_is_a_place(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let fire = async |second, places| fire_and_claim(&store, schedule, second, places).await;
    let Fired::Claimed { job, epoch } = fire(3_600, 1).await else { panic!("it has a place") };
    assert_eq!(fire(3_600, 2).await, Fired::Duplicate, "the key is the lock here as well");
    assert_eq!((job.status(), job.attempts()), (JobStatus::Running, 1));
    assert_eq!(store.job(job.id().clone()).await.unwrap().as_ref(), Some(&job));
    assert_eq!(event_types(&store).await, ["schedule:fired", "job:created", "job:started"]);
    let renewed = store.renew("node-a".into(), vec![job.id().clone()], MINUTE, at(3_610)).await.unwrap();
    assert_eq!(renewed[0].epoch, epoch);
    assert!(matches!(fire(3_601, 1).await, Fired::Recorded(Some(_))), "the only place is taken");
    assert!(matches!(fire(3_602, 2).await, Fired::Recorded(Some(_))), "the one that waits comes first");
    assert!(matches!(fire(3_603, 4).await, Fired::Claimed { .. }), "there is a place for all of them");
    let done = store.settle(job.id().clone(), epoch, completed(), Retry::default(), at(3_611)).await;
    assert!(matches!(done.unwrap(), Settled::Done(_)));
}

/// Both the planner and the transaction of a new firing keep the place of a job that was requeued.
async fn a_firing_leaves_the_place_of_a_requeued_job(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let fire = async |second, places| fire_and_claim(&store, schedule, second, places).await;
    let Fired::Claimed { job, epoch } = fire(0, 1).await else { panic!("it has a place") };
    let full = NotBegun::Shortage("no space left on device".to_owned());
    let back = store.requeue(job.id().clone(), epoch, full, at(100)).await.unwrap();
    let RequeueOutcome::Done(back) = back else { panic!("{back:?}") };
    assert!(matches!(*back.state(), JobState::Pending { not_before: Some(until) } if until > at(100)));
    let newer = fire(100, 1).await;
    assert!(matches!(newer, Fired::Recorded(Some(_))), "the requeued job has the only place: {newer:?}");
    let snapshot = store.snapshot().await.unwrap();
    let plan = plan(at(100), &roster(&[HOURLY]), &snapshot);
    assert!(!plan.actions.iter().any(|action| matches!(action, Action::Start { .. })), "{plan:?}");
    let newest = fire(100 - 1, 3).await;
    assert!(matches!(newest, Fired::Claimed { .. }), "there is a place for all of them: {newest:?}");
}

async fn renewal_returns_the_leases_still_held(db: TestDb) {
    let store = db.open().await;
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

    // The lease of the second job is not renewed any more, so it expires while the lease of the first job is valid.
    let renewed = store.renew("node-a".into(), vec![first.id().clone()], MINUTE, at(430)).await.unwrap();
    assert_eq!(renewed.iter().map(|held| &held.job).collect::<Vec<_>>(), [first.id()]);
    let lapse = async |job: &Job| {
        store.settle_expired(job.id().clone(), 1, false, Retry::default(), at(470)).await.unwrap()
    };
    assert_eq!(lapse(&first).await, Settled::Fenced);
    assert!(matches!(lapse(&second).await, Settled::Done(_)));
    let renewed = store.renew("node-a".into(), both(), MINUTE, at(480)).await.unwrap();
    assert_eq!(renewed.iter().map(|held| &held.job).collect::<Vec<_>>(), [first.id()]);
    assert!(store.renew("node-a".into(), vec![], MINUTE, at(480)).await.unwrap().is_empty());
}

async fn an_attempt_that_never_began_is_requeued(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let job = fire(&store, schedule, 0).await;
    let (_, epoch) = claim(&store, &job, 0).await;
    let requeue = async |epoch, second| {
        store.requeue(job.id().clone(), epoch, NotBegun::Interrupted, at(second)).await.unwrap()
    };
    let RequeueOutcome::Done(back) = requeue(epoch, 5).await else { panic!() };
    assert_eq!(back.status(), JobStatus::Pending);
    assert_eq!(requeue(epoch, 6).await, RequeueOutcome::Fenced);
    let (again, newer) = claim(&store, &job, 6).await;
    assert_eq!((again.attempts(), newer), (2, epoch + 1));
    assert_eq!(event_types(&store).await[2..], ["job:started", "job:requeued", "job:started"]);

    // The second attempt has reported usage, so it has begun.
    let usage = JobUsage { total_cost_usd: Some(0.25), ..JobUsage::default() };
    store.record_usage(job.id().clone(), newer, usage, None).await.unwrap();
    assert_eq!(requeue(newer, 7).await, RequeueOutcome::Began);
    assert_eq!(store.job(job.id().clone()).await.unwrap(), Some(again), "nothing was written");
    assert_eq!(store.history(job.id().clone()).await.unwrap().unwrap().attempts.len(), 1);
}

/// The number of requeues is kept in the database.
async fn a_job_is_requeued_at_most_so_often_for_one_reason(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let job = fire(&store, schedule, 0).await;
    let no_keeper = |round: u32| NotBegun::Failed(format!("the keeper in /x/job.{round} ended"));
    let mut second = 0;
    for round in 1..=MAX_REQUEUES {
        let (_, epoch) = claim(&store, &job, second).await;
        let back = store.requeue(job.id().clone(), epoch, no_keeper(round), at(second)).await.unwrap();
        let RequeueOutcome::Done(back) = back else { panic!("{back:?}") };
        assert_eq!((back.requeued().times, back.requeued().total), (round, round));
        assert_eq!(store.job(job.id().clone()).await.unwrap(), Some(back));
        second += 100;
    }
    let snapshot = store.snapshot().await.unwrap();
    let reported = snapshot.jobs[0].requeued_until(at(second - 100)).unwrap().1;
    assert!(reported.contains("5 times") && reported.contains("the keeper in /x/job.5 ended"), "{reported}");
    let (_, epoch) = claim(&store, &job, second).await;
    let back = |why| store.requeue(job.id().clone(), epoch, why, at(second));
    assert_eq!(back(no_keeper(6)).await.unwrap(), RequeueOutcome::TooOften);
    let full = NotBegun::Shortage("no space left on device".to_owned());
    let RequeueOutcome::Done(waits) = back(full).await.unwrap() else { panic!() };
    assert_eq!((waits.requeued().times, waits.requeued().total), (1, 6), "that is another reason");
    let events = store.events_after(0, 100).await.unwrap();
    let reason = |fact: &Fact| match fact {
        Fact::JobRequeued { reason, .. } => reason.clone(),
        _ => None,
    };
    let reasons: Vec<String> = events.iter().filter_map(|event| reason(&event.fact)).collect();
    assert_eq!(reasons.len(), 6);
    assert_eq!(reasons[5], "no space left on device");
}

async fn a_settled_attempt_gets_no_location(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let job = fire(&store, schedule, 0).await;
    let (_, epoch) = claim(&store, &job, 0).await;
    let set =
        async || store.set_attempt_location(job.id().clone(), 1, "/srv".as_ref(), "codex").await.unwrap();
    assert!(set().await);
    let lapsed = store.settle_expired(job.id().clone(), epoch, false, Retry::default(), at(10_000)).await;
    assert!(matches!(lapsed.unwrap(), Settled::Done(_)));
    assert!(!set().await, "another node has settled it");
}

/// Claims a job on `node-a` at second 0.
async fn claimed(store: &Store, on_lost: OnLostLease) -> (Job, i64) {
    let job = store.add_job(hand_job(), at(0)).await.unwrap();
    let starter = Starter {
        node: "node-a".into(),
        lease: MINUTE,
        on_lost,
        max_concurrent: 9,
        shared: cowhand_store::SharedLimits::default(),
        session_key: None,
        limits: None,
        slot: None,
    };
    let claim = store.claim_with_limits(job.id().clone(), starter, at(0)).await.unwrap();
    let Claim::Claimed { job, epoch } = claim else { panic!("{claim:?}") };
    (job, epoch)
}

async fn expire(store: &Store, job: &Job, epoch: i64, second: i64) -> bool {
    let retry = Retry { max_attempts: 2, ..Retry::default() };
    let settled = store.settle_expired(job.id().clone(), epoch, false, retry, at(second)).await.unwrap();
    // The planner has to wait exactly as long as the verb.
    let snapshot = store.snapshot_of(&Roster::default(), at(second)).await.unwrap();
    let waits = snapshot.jobs.iter().any(|live| {
        matches!(live.state, LiveState::Running { lease_until, .. } if live.id == *job.id() && lease_until > at(second))
    });
    assert_eq!(waits, settled == Settled::Fenced, "{second}");
    settled != Settled::Fenced
}

async fn an_expired_lease_is_settled_after_one_lease_of_contact(db: TestDb) {
    let store = db.open().await;
    let is_shared = db.url.starts_with("postgres");
    let contact = async |second| store.renew("node-b".into(), Vec::new(), MINUTE, at(second)).await.unwrap();
    store.join("node-b".into(), at(0)).await.unwrap();
    let (job, epoch) = claimed(&store, OnLostLease::Pause).await;
    contact(0).await;
    contact(20).await;
    if !is_shared {
        assert!(!expire(&store, &job, epoch, 59).await);
        assert!(expire(&store, &job, epoch, 60).await, "there is no other node");
        return;
    }
    // The database is away from second 21 to second 300.
    assert!(!expire(&store, &job, epoch, 300).await, "no node had time to renew");
    contact(301).await;
    assert!(!expire(&store, &job, epoch, 302).await);
    contact(325).await;
    contact(350).await;
    assert!(!expire(&store, &job, epoch, 360).await);
    let overdue = store.overdue_leases(at(355)).await.unwrap();
    assert_eq!((overdue[0].expired_at, overdue[0].settled_from), (at(60), Some(at(361))), "{overdue:?}");
    assert!(expire(&store, &job, epoch, 361).await);
    assert!(store.overdue_leases(at(361)).await.unwrap().is_empty());
}

async fn a_lease_whose_agent_continues_is_settled_only_after_a_cancellation(db: TestDb) {
    let store = db.open().await;
    if !db.url.starts_with("postgres") {
        return;
    }
    store.join("node-b".into(), at(0)).await.unwrap();
    let (job, epoch) = claimed(&store, OnLostLease::Continue).await;
    for second in (0..=2_000).step_by(20) {
        store.renew("node-b".into(), Vec::new(), MINUTE, at(second)).await.unwrap();
    }
    assert!(!expire(&store, &job, epoch, 2_000).await);
    let held = store.adopt("node-a".into(), MINUTE, at(2_001)).await.unwrap();
    assert_eq!(held[0].on_lost, OnLostLease::Continue);
    store.cancel(job.id().clone(), at(2_010)).await.unwrap();
    for second in (2_010..=2_100).step_by(20) {
        store.renew("node-b".into(), Vec::new(), MINUTE, at(second)).await.unwrap();
    }
    assert!(expire(&store, &job, epoch, 2_100).await);
}

async fn the_end_of_a_superseded_attempt_is_stored_once(db: TestDb) {
    let store = db.open().await;
    let (job, epoch) = claimed(&store, OnLostLease::Pause).await;
    let (id, node) = (job.id().clone(), || "node-a".to_owned());
    let usage = |cost| JobUsage { total_cost_usd: Some(cost), ..JobUsage::default() };
    store.record_usage(id.clone(), epoch, usage(1.0), None).await.unwrap();
    let superseded = || Superseded { outcome: Some(completed()), usage: Some(usage(3.0)) };
    let record =
        async |node| store.record_superseded(id.clone(), 1, node, superseded(), at(200)).await.unwrap();
    record(node()).await;
    assert!(!store.is_superseded(id.clone(), 1, node()).await.unwrap(), "it still runs");
    assert!(expire(&store, &job, epoch, 100).await);
    assert!(store.is_superseded(id.clone(), 1, node()).await.unwrap());
    record("node-b".to_owned()).await;
    assert!(store.is_superseded(id.clone(), 1, node()).await.unwrap(), "it was another node's attempt");
    // Late writes of the attempt are refused.
    let late = store.settle(id.clone(), epoch, completed(), Retry::default(), at(150)).await.unwrap();
    assert_eq!(late, Settled::Fenced);
    record(node()).await;
    record(node()).await;
    let types = event_types(&store).await;
    assert_eq!(types.iter().filter(|name| **name == "job:superseded").count(), 1, "{types:?}");
    let job = store.job(id.clone()).await.unwrap().unwrap();
    assert_eq!(job.usage().unwrap().total_cost_usd, Some(3.0), "the rest is added once");
    let history = store.history(id).await.unwrap().unwrap();
    assert_eq!(history.attempts[0].superseded, Some(superseded()));
    assert!(matches!(job.state(), JobState::Pending { .. }));
}
