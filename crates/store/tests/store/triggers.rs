//! The verbs of triggers: lists, cursors, schedules that trigger each other, and triggers that give up.

use cowhand_core::event::Event;
use cowhand_core::firing::{Decision, NewFiring};
use cowhand_core::id::JobId;
use cowhand_core::job::{JobState, NewJob};
use cowhand_core::schedule::{DisabledBy, ScheduleState, SkipReason, TriggerFailure};
use cowhand_core::trigger::{FiringKey, Occurrence};
use cowhand_store::Fired;

use crate::conformance::{event_types, fire};
use crate::{HOURLY, TestDb, at, new_job, no_such_job, on_both, roster, with_schedule};

on_both! {
    a_listed_item_fires_once_and_again_after_it_comes_back,
    a_cursor_moves_with_the_firing,
    a_chain_of_firings_is_counted,
    a_trigger_that_gave_up_is_enabled_again,
    an_error_of_a_trigger_has_one_event,
    a_job_that_waits_for_the_calendar_follows_the_config,
}

async fn a_job_that_waits_for_the_calendar_follows_the_config(db: TestDb) {
    let store = db.open().await;
    let opens = |second| {
        let mut roster = roster(&[r#"{"type":"chat"}"#]);
        roster.agents[0].schedules[0].timing.start_at = Some(at(second));
        roster
    };
    let schedule = opens(0).agents[0].schedules[0].id;
    store.load_schedules(opens(90), at(0)).await.unwrap();
    let fire = async |key: FiringKey, not_before: Option<i64>| {
        let job = NewJob { not_before: not_before.map(at), ..new_job() };
        let firing = NewFiring { schedule, key, due: at(1), decision: Decision::Run(job), note: None };
        let Fired::Recorded(Some(job)) = store.fire_once(firing, at(1)).await.unwrap() else { panic!("new") };
        job.id().clone()
    };
    let outside = |item: &str| Occurrence::custom(item).key(0);
    let waits = fire(outside("a"), Some(90)).await;
    let open = fire(outside("b"), None).await;
    let by_hand = fire(Occurrence::Manual("k").key(0), Some(90)).await;
    let earliest = async |id: &JobId| store.job(id.clone()).await.unwrap().unwrap().state().clone();
    let pending = |not_before: Option<i64>| JobState::Pending { not_before: not_before.map(at) };
    for (start, now, expected, events) in
        [(90, 2, Some(90), 0), (50, 3, Some(50), 1), (70, 4, Some(70), 2), (5, 6, None, 3), (80, 7, None, 3)]
    {
        store.load_schedules(opens(start), at(now)).await.unwrap();
        assert_eq!(earliest(&waits).await, pending(expected), "{start}");
        assert_eq!(earliest(&open).await, pending(None), "it was accepted while the calendar was open");
        assert_eq!(earliest(&by_hand).await, pending(Some(90)), "it does not wait for the calendar");
        let moved = event_types(&store).await.iter().filter(|kind| **kind == "job:rescheduled").count();
        assert_eq!(moved, events, "{start}");
    }
}

async fn a_listed_item_fires_once_and_again_after_it_comes_back(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let key = |item: &str| Occurrence::custom(item).key(0);
    let sight = async |items: &[&str]| -> Vec<String> {
        let open =
            store.record_sightings(schedule, items.iter().map(|item| key(item)).collect()).await.unwrap();
        open.into_iter().map(|(db, key)| format!("{db} {key}")).collect()
    };
    let fire = async |key: &str| {
        let key = FiringKey::stored(key.to_owned());
        let firing = NewFiring { schedule, key, due: at(0), decision: Decision::Run(new_job()), note: None };
        assert!(matches!(store.fire_once(firing, at(0)).await.unwrap(), Fired::Recorded(Some(_))));
    };
    assert_eq!(sight(&["a", "b"]).await, ["0 custom:a", "1 custom:b"]);
    assert_eq!(sight(&["b", "a"]).await, ["0 custom:b", "1 custom:a"], "seen, but nobody fired it");
    fire("custom:a").await;
    assert_eq!(sight(&["a", "b"]).await, ["1 custom:b"]);
    fire("custom:b").await;
    assert!(sight(&["a", "b"]).await.is_empty());
    assert!(sight(&["b"]).await.is_empty());
    assert_eq!(sight(&["a", "b"]).await, ["0 custom:a#1"], "it came back");
    assert!(sight(&[]).await.is_empty());
    assert_eq!(
        sight(&["c", "a"]).await,
        ["0 custom:c", "1 custom:a#2"],
        "a generation that nobody fired is gone"
    );
    let many: Vec<String> = (0..1_000).map(|number| number.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(sight(&many).await.len(), 1_000);
}

async fn a_cursor_moves_with_the_firing(db: TestDb) {
    let store = db.open().await;
    let roster = roster(&[HOURLY, r#"{"type":"dispatch_result","schedule":"s0"}"#]);
    let [clock, listener] = [roster.agents[0].schedules[0].id, roster.agents[0].schedules[1].id];
    store.load_schedules(roster.clone(), at(0)).await.unwrap();
    assert_eq!(store.cursor(clock).await.unwrap(), None);
    let armed = store.cursor(listener).await.unwrap().unwrap();
    fire(&store, clock, 3_600).await;
    let last = store.last_event().await.unwrap();
    store.load_schedules(roster, at(1)).await.unwrap();
    assert_eq!(
        store.cursor(listener).await.unwrap(),
        Some(armed),
        "an unchanged trigger goes on where it was"
    );

    let firing = |seq| {
        let key = Occurrence::Event { seq }.key(0);
        NewFiring {
            schedule: listener,
            key,
            due: at(2),
            decision: Decision::Skip(SkipReason::Filtered),
            note: None,
        }
    };
    assert_eq!(store.fire_once(firing(last), at(2)).await.unwrap(), Fired::Recorded(None));
    assert_eq!(store.cursor(listener).await.unwrap(), Some(last));
    assert_eq!(
        store.fire_all(vec![firing(last), firing(last + 1)], at(2)).await.unwrap(),
        [Fired::Duplicate, Fired::Recorded(None)]
    );
    store.pass_events(listener, 1).await.unwrap();
    assert_eq!(store.cursor(listener).await.unwrap(), Some(last + 1), "never back");
    store.pass_events(listener, last + 5).await.unwrap();
    assert_eq!(store.cursor(listener).await.unwrap(), Some(last + 5));

    store.disable(listener, DisabledBy::Person, at(3)).await.unwrap();
    store.clear_agent("coder".parse().unwrap(), at(3)).await.unwrap();
    let now = store.last_event().await.unwrap();
    store.enable(listener, at(4)).await.unwrap();
    assert_eq!(store.cursor(listener).await.unwrap(), Some(now), "from now on");

    store.finish(listener, at(5)).await.unwrap();
    let now = store.last_event().await.unwrap();
    store.reopen(listener, at(6)).await.unwrap();
    assert_eq!(store.cursor(listener).await.unwrap(), Some(now), "events after its end do not count");
}

async fn a_chain_of_firings_is_counted(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    let mut job = fire(&store, schedule, 3_600).await;
    assert_eq!(store.triggered_in_a_row(job.id().clone(), 10).await.unwrap(), 0);
    for length in 1..=5 {
        let events = store.events_after(0, 1_000).await.unwrap();
        let created = |event: &&Event| event.job.as_ref() == Some(job.id());
        let seq = events.iter().rfind(created).unwrap().seq;
        let key = Occurrence::Event { seq }.key(0);
        let firing = NewFiring { schedule, key, due: at(0), decision: Decision::Run(new_job()), note: None };
        let Fired::Recorded(Some(next)) = store.fire_once(firing, at(0)).await.unwrap() else {
            panic!("new")
        };
        job = next;
        assert_eq!(store.triggered_in_a_row(job.id().clone(), 3).await.unwrap(), length.min(3));
    }
    assert_eq!(store.triggered_in_a_row(no_such_job(), 3).await.unwrap(), 0);
}

async fn a_trigger_that_gave_up_is_enabled_again(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    store.record_delay(schedule, Some("away".into()), at(1)).await.unwrap();
    assert_eq!(store.schedules().await.unwrap()[0].last_error.as_deref(), Some("away"));
    store.record_delay(schedule, None, at(2)).await.unwrap();
    assert_eq!(store.schedules().await.unwrap()[0].last_error, None);
    assert!(store.fail_schedule(schedule, "no such folder".into(), at(1)).await.unwrap());
    assert!(!store.fail_schedule(schedule, "again".into(), at(2)).await.unwrap());
    let error = ScheduleState::Error { reason: "no such folder".into() };
    assert_eq!(store.schedules().await.unwrap()[0].state, error);
    let stopped = &store.schedules().await.unwrap()[0];
    assert_eq!(stopped.trigger_error.as_ref().map(|error| error.since), Some(at(1)));
    assert!(store.enable(schedule, at(3)).await.unwrap());
    assert_eq!(event_types(&store).await, ["schedule:delayed", "schedule:error", "schedule:enabled"]);
}

async fn an_error_of_a_trigger_has_one_event(db: TestDb) {
    let (store, schedule) = with_schedule(&db).await;
    for (second, error) in [(1, Some("401")), (2, Some("401")), (3, Some("502")), (4, None), (5, None)] {
        let error = error.map(str::to_owned);
        store.record_trigger_error(schedule, error.clone(), at(second)).await.unwrap();
        let stored = store.schedules().await.unwrap().remove(0);
        let expected = error.clone().map(|message| TriggerFailure { message, since: at(1) });
        assert_eq!((stored.trigger_error, stored.last_error), (expected, error), "{second}");
    }
    assert_eq!(event_types(&store).await, ["schedule:delayed"]);
}
