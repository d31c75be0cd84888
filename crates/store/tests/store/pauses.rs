//! The ends of pauses: by a job that a person started, and by a config that turns the breaker off.

use cowhand_core::breaker::Breaker;
use cowhand_core::event::Fact;
use cowhand_core::firing::{Decision, NewFiring};
use cowhand_core::policy::Retry;
use cowhand_core::schedule::{DisabledBy, ScheduleState};
use cowhand_store::{Claim, Fired, Store};

use crate::budgets::{LEASE, completed, failed, fire_and_settle};
use crate::{HOURLY, TestDb, at, new_job, on_both, roster, with_schedule};

on_both! {
    a_completed_job_by_hand_ends_the_pause,
    a_completed_job_by_hand_resets_the_breaker,
    a_pause_ends_when_the_breaker_is_turned_off,
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
    fire_and_settle(&store, schedule, 6, failed("no", breaker)).await;
    complete_by_hand(&store, schedule, 7).await;
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
