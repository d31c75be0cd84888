//! Due times that have passed: their treatment by a daemon that starts now, and the number of due times for which a
//! firing waits.

use super::*;
use crate::plan::next_firings::Outlook;

/// Describes the missed due times, if a daemon has been running since `start`.
fn missed(scene: Scene, start: &str, now: &str) -> Option<String> {
    let scene = scene.up_since(start);
    let agent = &scene.roster.agents[0];
    let outlook = Outlook::new(at(now), &scene.roster, &scene.snapshot);
    outlook.missed(agent, &agent.schedules[0]).map(|missed| missed.sentence())
}

#[test]
fn missed_firings_are_described_with_their_policy() {
    let lateness = r#""misfire":"run_all","max_lateness":"10m""#;
    let hours = r#""active_hours":{"start":"10:30","end":"12:30"}"#;
    for (case, scene, expected) in [
        (
            "run_once",
            hourly(r#""misfire":"run_once""#),
            "3 times were missed since 2026-01-05T10:00:00Z, because no daemon ran or the daemon was stopping; one run makes up for that when a \
             daemon starts (`misfire: run_once`)",
        ),
        (
            "one due time was missed",
            Scene::new(HOURLY).last_due("11:00"),
            "its time 2026-01-05T12:00:00Z was missed, because no daemon ran or the daemon was stopping; one run makes up for that when a daemon \
             starts (`misfire: run_once`)",
        ),
        (
            "skip",
            hourly(r#""misfire":"skip""#),
            "3 times were missed since 2026-01-05T10:00:00Z, because no daemon ran or the daemon was stopping; they are skipped when a daemon \
             starts (`misfire: skip`)",
        ),
        (
            "run_all",
            hourly(r#""misfire":"run_all""#),
            "3 times were missed since 2026-01-05T10:00:00Z, because no daemon ran or the daemon was stopping; 3 runs make up for them when a \
             daemon starts (`misfire: run_all`)",
        ),
        (
            "too late",
            hourly(lateness),
            "3 times were missed since 2026-01-05T10:00:00Z, because no daemon ran or the daemon was stopping; they are skipped when a daemon \
             starts (`max_lateness`)",
        ),
        (
            "a due time that the calendar does not allow was not missed",
            hourly(hours),
            "2 times were missed since 2026-01-05T11:00:00Z, because no daemon ran or the daemon was stopping; one run makes up for that when a \
             daemon starts (`misfire: run_once`)",
        ),
    ] {
        assert_eq!(missed(scene, "12:20", "12:20").as_deref(), Some(expected), "{case}");
    }
}

#[test]
fn missed_delays_are_described() {
    let delay = |policies: &str| {
        Scene::new(&format!(r#"{{"type":"delay","run_at":"2026-01-05T10:00:00Z"{policies}}}"#))
    };
    let enabled_after = |mut scene: Scene| {
        scene.record().disable(DisabledBy::Person);
        scene.record().enable(at("11:00").into());
        scene
    };
    let fires = "its time 2026-01-05T10:00:00Z was missed, because no daemon ran or the daemon was stopping; it fires when a daemon starts";
    for (case, scene, expected) in [
        ("plain", delay(""), Some(fires)),
        ("its end has passed", delay(r#","end_at":"2026-01-05T11:00:00Z""#), Some(fires)),
        ("its end was before its time", delay(r#","end_at":"2026-01-05T09:00:00Z""#), None),
        (
            "its day is excluded",
            delay(r#","exclude_dates":["2026-01-05"]"#),
            Some(
                "it did not run at 2026-01-05T10:00:00Z, because the day is one of its `exclude_dates`; it waits until \
                 2026-01-06T00:00:00Z, when its calendar allows it",
            ),
        ),
        (
            "its hours have passed",
            delay(r#","active_hours":{"start":"09:00","end":"11:00"}"#),
            Some(
                "it did not run at 2026-01-05T10:00:00Z, because no daemon ran or the daemon was stopping; it waits until 2026-01-06T09:00:00Z, \
                 when its calendar allows it",
            ),
        ),
        ("it is not due", Scene::new(r#"{"type":"delay","run_at":"2026-01-05T13:00:00Z"}"#), None),
        ("it waits", delay("").waiting("10:00", SkipReason::OutsideHours), None),
        ("it was off at its time", enabled_after(delay("")), None),
    ] {
        assert_eq!(missed(scene, "12:20", "12:20").as_deref(), expected, "{case}");
    }
    assert_eq!(missed(delay(""), "09:00", "12:20"), None, "a daemon runs, so it is only late");
}

#[test]
fn late_held_and_disabled_firings_are_not_missed() {
    let off = || {
        let mut scene = hourly(r#""misfire":"run_all""#);
        scene.record().state = ScheduleState::Disabled { why: DisabledBy::Person };
        scene
    };
    for (case, scene, start) in [
        ("a daemon runs", Scene::new(HOURLY).last_due("09:00"), "09:00"),
        ("nothing was due", Scene::new(HOURLY).last_due("12:00"), "12:20"),
        ("it is disabled", off(), "12:20"),
        (
            "it waits for a place",
            Scene::new(HOURLY).last_due("09:00").waiting("10:00", SkipReason::AtCapacity),
            "12:20",
        ),
        ("an interval is late, and misses nothing", Scene::new(EVERY).last_run("09:00"), "12:20"),
    ] {
        assert_eq!(missed(scene, start, "12:20"), None, "{case}");
    }
}

#[test]
fn a_missed_firing_that_runs_is_marked() {
    let marked = |scene: &Scene| {
        let plan = plan(at("12:20"), &scene.roster, &scene.snapshot);
        plan.actions.iter().any(|action| matches!(action, Action::Fire { by_misfire: true, .. }))
    };
    assert!(marked(&hourly(r#""misfire":"run_once""#).up_since("12:20")));
    assert!(!marked(&hourly(r#""misfire":"skip""#).up_since("12:20")));
    assert!(!marked(&hourly(r#""misfire":"run_once""#).up_since("09:00")), "it is only late");
}

#[test]
fn due_times_of_a_waiting_schedule_are_counted() {
    for (case, scene, expected) in [
        ("it does not wait", Scene::new(HOURLY), 0),
        ("three due times", Scene::new(HOURLY).waiting("10:00", SkipReason::AtCapacity), 3),
        ("an interval is due once", Scene::new(EVERY).waiting("10:00", SkipReason::AtCapacity), 1),
    ] {
        let agent = &scene.roster.agents[0];
        let outlook = Outlook::new(at("12:20"), &scene.roster, &scene.snapshot);
        assert_eq!(outlook.times_waited(agent, &agent.schedules[0]), expected, "{case}");
    }
}
