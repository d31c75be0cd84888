//! The ends of pauses: by a job that a person started, and by a config that turns the breaker off.

use cowhand_core::attempt::Settlement;
use cowhand_core::breaker::Breaker;
use cowhand_core::event::Fact;
use cowhand_core::firing::{Decision, NewFiring};
use cowhand_core::policy::Retry;
use cowhand_core::schedule::{DisabledBy, ScheduleState};
use cowhand_store::{Claim, Fired, Store};
use jiff::SignedDuration;

use crate::budgets::{LEASE, completed, failed, fire_and_settle};
use crate::{HOURLY, TestDb, at, cron_key, new_job, on_both, roster, with_schedule};

on_both! {
    a_completed_job_by_hand_ends_the_pause,
    a_completed_job_by_hand_resets_the_breaker,
    a_pause_ends_when_the_breaker_is_turned_off,
    jobs_that_began_before_the_pause_do_not_change_it,
}

async fn a_completed_job_by_hand_ends_the_pause(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let breaker = Breaker { failures: 1, ..Breaker::default() };
    fire_and_settle(&store, schedule, 1, failed("no", breaker)).await;
    assert!(matches!(store.schedule(schedule).await.unwrap().unwrap().state, ScheduleState::Paused { .. }));
    complete_by_hand(&store, schedule, 2).await;
    assert_eq!(store.schedule(schedule).await.unwrap().unwrap().state, ScheduleState::Active);
    // A person can also end the pause with `enable`.
    fire_and_settle(&store, schedule, 5, failed("no", breaker)).await;
    assert!(store.enable(schedule, at(6)).await.unwrap());
    assert_eq!(store.schedule(schedule).await.unwrap().unwrap().state, ScheduleState::Active);
}

/// Fires a schedule by hand, and completes the job.
async fn complete_by_hand(store: &Store, schedule: cowhand_core::id::ScheduleId, number: i64) {
    let key = cowhand_core::trigger::Occurrence::Manual(&format!("me {number}")).key(0);
    let due = at(number);
    let firing = NewFiring { schedule, key, due, decision: Decision::Run(new_job()), note: None };
    let Fired::Recorded(Some(job)) = store.fire_once(firing, due).await.unwrap() else { panic!("not fired") };
    let claim = store.claim(job.id().clone(), 9, "node".into(), LEASE, due).await.unwrap();
    let Claim::Claimed { epoch, .. } = claim else { panic!("{claim:?}") };
    store.settle(job.id().clone(), epoch, completed(None), Retry::default(), at(number + 1)).await.unwrap();
}

async fn a_completed_job_by_hand_resets_the_breaker(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let breaker = Breaker { failures: 2, ..Breaker::default() };
    fire_and_settle(&store, schedule, 1, failed("no", breaker)).await;
    complete_by_hand(&store, schedule, 2).await;
    fire_and_settle(&store, schedule, 4, failed("no", breaker)).await;
    assert_eq!(store.schedule(schedule).await.unwrap().unwrap().state, ScheduleState::Active);
    // The same for a schedule that a person disabled during the pause.
    fire_and_settle(&store, schedule, 5, failed("no", breaker)).await;
    assert!(store.disable(schedule, DisabledBy::Person, at(6)).await.unwrap());
    assert!(store.schedule(schedule).await.unwrap().unwrap().pause_while_disabled.is_some());
    // The pause ends, and the probe fails.
    assert!(store.resume(schedule, at(5_000)).await.unwrap());
    fire_and_settle(&store, schedule, 5_001, failed("no", breaker)).await;
    complete_by_hand(&store, schedule, 5_002).await;
    assert_eq!(store.schedule(schedule).await.unwrap().unwrap().pause_while_disabled, None);
    let events = store.events_after(0, 100).await.unwrap();
    let count = |is_meant: fn(&Fact) -> bool| events.iter().filter(|event| is_meant(&event.fact)).count();
    assert_eq!(
        count(|fact| matches!(fact, Fact::SchedulePaused { .. })),
        2,
        "also the pause that is renewed"
    );
    assert_eq!(count(|fact| matches!(fact, Fact::ScheduleResumed)), 1, "{events:?}");
}

/// Several jobs of a schedule run at the same time. The first failure pauses the schedule; the results of the other
/// jobs change neither this pause nor the length of the next one.
async fn jobs_that_began_before_the_pause_do_not_change_it(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let breaker = Breaker { failures: 1, ..Breaker::default() };
    let completed = || Settlement { breaker: Some(breaker), ..completed(None) };
    let mut jobs = Vec::new();
    for number in 1..=5 {
        let firing = NewFiring {
            schedule,
            key: cron_key(number),
            due: at(number),
            decision: Decision::Run(new_job()),
            note: None,
        };
        let fired = store.fire_once(firing, at(number)).await.unwrap();
        let Fired::Recorded(Some(job)) = fired else { panic!("{fired:?}") };
        let claim = store.claim(job.id().clone(), 9, "node".into(), LEASE, at(number)).await.unwrap();
        let Claim::Claimed { epoch, .. } = claim else { panic!("{claim:?}") };
        jobs.push((job.id().clone(), epoch));
    }
    let mut jobs = jobs.into_iter();
    let mut end = async |settlement, second| {
        let (id, epoch) = jobs.next().unwrap();
        store.settle(id, epoch, settlement, Retry::default(), at(second)).await.unwrap();
        let record = store.schedule(schedule).await.unwrap().unwrap();
        (record.state, record.breaker_state)
    };
    let first = end(failed("no", breaker), 10).await;
    let until = at(10) + SignedDuration::from_mins(15);
    assert_eq!(first.0, ScheduleState::Paused { reason: "one job failed: no (exit)".into(), until });
    assert_eq!(end(failed("no", breaker), 11).await, first, "a failure during the pause");
    assert_eq!(end(completed(), 12).await, first, "a success during the pause");
    assert!(store.resume(schedule, until).await.unwrap());
    let resumed = (ScheduleState::Active, first.1);
    assert_eq!(end(failed("no", breaker), 1_000).await, resumed, "a failure after the pause");
    assert_eq!(end(completed(), 1_001).await, resumed, "a success after the pause");
    fire_and_settle(&store, schedule, 1_010, failed("no", breaker)).await;
    let ScheduleState::Paused { until, .. } = store.schedule(schedule).await.unwrap().unwrap().state else {
        panic!("the probe failed")
    };
    assert_eq!(until, at(1_010) + SignedDuration::from_mins(30), "twice as long as the first pause");
    let events = store.events_after(0, 1_000).await.unwrap();
    let pauses = events.iter().filter(|event| matches!(event.fact, Fact::SchedulePaused { .. })).count();
    assert_eq!(pauses, 2, "{events:?}");
}

/// A breaker that is turned off in the config ends the pause.
async fn a_pause_ends_when_the_breaker_is_turned_off(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let breaker = Breaker { failures: 1, ..Breaker::default() };
    fire_and_settle(&store, schedule, 1, failed("no", breaker)).await;
    let mut off = roster(&[HOURLY]);
    off.agents[0].schedules[0].breaker.failures = 0;
    for _ in ["at first", "again"] {
        store.load_schedules(off.clone(), at(2)).await.unwrap();
    }
    assert_eq!(store.schedule(schedule).await.unwrap().unwrap().state, ScheduleState::Active);
    let events = store.events_after(0, 100).await.unwrap();
    let resumed = events.iter().filter(|event| event.fact == Fact::ScheduleResumed).count();
    assert_eq!(resumed, 1, "{events:?}");
}
