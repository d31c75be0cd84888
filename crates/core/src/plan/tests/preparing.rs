//! Firings that are not prepared yet.

use super::*;

/// Returns an agent with one place, and the id of its second schedule. The first schedule has a firing in preparation
/// since 10:00, and the second schedule is due.
fn preparing(prepares: &str, has_failed: bool) -> (Scene, ScheduleId) {
    let mut scene = Scene::new(r#"{"type":"interval","interval":"5m"}"#);
    let schedule = &mut scene.roster.agents[0].schedules[0];
    match prepares {
        "when_command" => schedule.when_command = Some(vec!["sleep".to_owned(), "25".to_owned()]),
        "work_source" => {
            let source = serde_json::json!({"type": "files", "path": "tasks"});
            schedule.work_source = Some(serde_json::from_value(source).unwrap());
        }
        _ => {}
    }
    let (schedule, key) = (schedule.id, FiringKey::stored("interval:1".to_owned()));
    scene.snapshot.preparing.push(Preparing { schedule, key, since: at("10:00"), has_failed });
    let other = scene.add("other", r#"{"type":"interval","interval":"7m"}"#);
    (scene, other)
}

fn fires((scene, schedule): &(Scene, ScheduleId), now: &str) -> bool {
    let plan = plan(at(now), &scene.roster, &scene.snapshot);
    plan.actions.iter().any(|action| {
        matches!(action, Action::Fire { schedule: of, outcome: FiringOutcome::Ran, .. } if of == schedule)
    })
}

/// The schedule does not fire even after a failed try to prepare the firing.
#[test]
fn a_schedule_does_not_fire_while_a_firing_is_prepared() {
    for has_failed in [false, true] {
        let mut scene = Scene::new(r#"{"type":"interval","interval":"5m"}"#);
        let (schedule, key) = (scene.record().id, FiringKey::stored("interval:1".to_owned()));
        scene.snapshot.preparing.push(Preparing { schedule, key, since: at("10:00"), has_failed });
        assert_eq!(scene.plan("10:00"), "prepare interval:1");
    }
}

#[test]
fn other_schedules_do_not_wait_for_a_firing_that_is_prepared() {
    let table = [
        ("a command never takes a place", "when_command", false, "10:00", true),
        ("a command that failed", "when_command", true, "10:00", true),
        ("a check of trust takes no place", "", false, "10:00", true),
        ("a place is kept for items", "work_source", false, "10:00:01", false),
        ("it is kept for two seconds", "work_source", false, "10:00:02", true),
        ("none is kept after a failed try", "work_source", true, "10:00:01", true),
        ("none is kept if the clock was set back", "work_source", false, "09:59:59", true),
    ];
    for (case, prepares, has_failed, now, expected) in table {
        assert_eq!(fires(&preparing(prepares, has_failed), now), expected, "{case}");
    }
    let (scene, _) = preparing("work_source", false);
    let wakes = plan(at("10:00:01"), &scene.roster, &scene.snapshot).wake_at;
    assert_eq!(wakes, Some(at("10:00:02")), "it plans again when the place is no longer kept");
    let (scene, other) = preparing("work_source", false);
    assert!(fires(&(scene.max(2), other), "10:00:01"), "one place is kept, and the other is free");
}

/// Each poll keeps its own place: see decision 0029.
#[test]
fn two_polls_keep_two_places() {
    let (mut scene, other) = preparing("work_source", false);
    let second = scene.add("second", r#"{"type":"manual"}"#);
    let schedules = &mut scene.roster.agents[0].schedules;
    let source = schedules[0].work_source.clone();
    schedules.iter_mut().filter(|schedule| schedule.id == second).for_each(|schedule| {
        schedule.work_source.clone_from(&source);
    });
    let (schedule, key) = (second, FiringKey::stored("manual:1".to_owned()));
    scene.snapshot.preparing.push(Preparing { schedule, key, since: at("10:00"), has_failed: false });
    let mut scene = (scene.max(2), other);
    assert!(!fires(&scene, "10:00:01"), "both places are kept");
    assert!(fires(&scene, "10:00:02"));
    scene.0 = scene.0.max(3);
    assert!(fires(&scene, "10:00:01"), "the third place is free");
}

/// Two schedules are due at the same time, and the agent has one place.
#[test]
fn a_firing_with_a_when_command_takes_no_place() {
    for (prepares, expected) in [("when_command", true), ("work_source", false), ("", false)] {
        let (mut scene, other) = preparing(prepares, false);
        scene.snapshot.preparing.clear();
        assert_eq!(fires(&(scene, other), "10:00"), expected, "{prepares:?}");
    }
}

/// The job of a prepared firing waits like any other job, and starts before the job of a schedule that is due.
#[test]
fn the_job_of_a_prepared_firing_starts_before_due_firings() {
    let (mut scene, other) = preparing("when_command", false);
    scene.snapshot.preparing.clear();
    let scene = scene.job("clock", PENDING);
    assert!(!fires(&(scene, other), "10:00"));
}

/// An item that is being claimed takes one place for as long as the claim takes, and not a second place for its poll.
#[test]
fn an_item_that_is_being_claimed_takes_a_place() {
    let (mut scene, other) = preparing("work_source", false);
    let (agent, schedule) = ("a".parse().unwrap(), "s".parse().ok());
    scene.snapshot.claims.push(UnfinishedClaim { agent, schedule, until: at("10:05") });
    let mut scene = (scene, other);
    for now in ["10:00:01", "10:00:30", "10:04:59"] {
        assert!(!fires(&scene, now), "{now}");
        let agent = &scene.0.roster.agents[0];
        assert_eq!(free_places(at(now), agent, &agent.schedules[1], &scene.0.snapshot), 0);
    }
    let wakes = plan(at("10:00:30"), &scene.0.roster, &scene.0.snapshot).wake_at;
    assert_eq!(wakes, Some(at("10:05")), "it plans again when the claim has expired");
    assert!(fires(&scene, "10:05"), "the claim has expired");
    scene.0 = scene.0.max(2);
    assert!(fires(&scene, "10:00:01"), "the second place is free");
}
