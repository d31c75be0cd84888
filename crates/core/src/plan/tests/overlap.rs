//! `overlap` of intervals, and `overlap: queue` beside other schedules of the agent.

use super::*;

/// The job of an interval has ended when the interval is due again, so `overlap` matters only for a job that was
/// started by hand.
#[test]
fn overlap_of_an_interval_applies_only_to_manual_jobs() {
    let every = |overlap: &str| {
        Scene::new(&format!(r#"{{"type":"interval","interval":"5m","overlap":"{overlap}"}}"#))
            .last_run("10:00")
    };
    for overlap in ["skip", "queue", "allow", "cancel_previous"] {
        let full = every(overlap).job("agent", RUNNING).plan("10:06");
        assert_eq!(full, "Skipping a/s: at max capacity (1/1), due 10:05", "{overlap}");
        assert_eq!(every(overlap).plan("10:06"), "ran interval:2 10:05", "{overlap}");
        let mut turn = every(overlap);
        turn.add("t", EVERY);
        let waits = turn.roster.agents[0].schedules[1].id;
        let waiting = WaitingFiring { due: at("10:01"), reason: SkipReason::AtCapacity };
        turn.snapshot.schedules.get_mut(&waits).unwrap().waiting = Some(waiting);
        let first = plan(at("10:06"), &turn.roster, &turn.snapshot).actions;
        let fired = |action: &Action| matches!(action, Action::Fire { schedule, .. } if *schedule == waits);
        assert!(fired(&first[0]), "{overlap}: the schedule that waits comes first: {first:?}");
        let is_firing = |action: &&Action| matches!(action, Action::Fire { .. });
        assert_eq!(first.iter().filter(is_firing).count(), 1, "{overlap}: {first:?}");
    }
    let by_hand = |overlap: &str| every(overlap).job("hand", RUNNING).plan("10:06");
    assert_eq!(by_hand("skip"), "Skipping a/s: already running, due 10:05");
    assert_eq!(by_hand("queue"), "ran interval:2 10:05");
    assert_eq!(by_hand("allow"), "Skipping a/s: at max capacity (1/1), due 10:05");
    assert_eq!(by_hand("cancel_previous"), "cancel 1 | ran interval:2 10:05");
}

const MINUTELY: &str = r#"{"type":"cron","expression":"* * * * *","overlap":"queue"}"#;

/// Creates two schedules. `s` queues a job every minute, has run, and has two pending jobs. `t` is as `other` describes
/// it, and has waited since 10:00. `last_run` is the end of the last run of `t`, if it ever ran.
fn queue_beside(other: &str, last_run: Option<&str>) -> Scene {
    let mut scene = Scene::new(MINUTELY).last_due("10:05").last_run("10:05");
    let id = scene.add("t", other);
    let record = scene.snapshot.schedules.get_mut(&id).unwrap();
    record.waiting = Some(WaitingFiring { due: at("10:00"), reason: SkipReason::AtCapacity });
    record.last_due = Some(at("09:00"));
    if let Some(end) = last_run {
        record.record_run_or_poll(at(end).into());
    }
    scene.job("clock", PENDING).job("clock", PENDING)
}

/// Jobs that `overlap: queue` made do not take every free place before the other schedules of the agent.
#[test]
fn a_queue_takes_turns_with_other_schedules() {
    let now = "10:05:30";
    let due = "ran cron 10:00 | wake 10:06";
    check([
        ("the other never ran", queue_beside(HOURLY, None), now, due),
        ("the other ran longer ago", queue_beside(HOURLY, Some("09:10")), now, due),
        ("an interval", queue_beside(EVERY, Some("09:10")), now, "ran interval:1 09:15 | wake 10:06"),
        ("the queue ran longer ago", queue_beside(HOURLY, Some("10:05:10")), now, "start 1 | wake 10:06"),
        ("no place", queue_beside(HOURLY, None).job("clock", RUNNING), now, "wake 10:06"),
        ("a place for each", queue_beside(HOURLY, None).max(2), now, "ran cron 10:00 | start 1 | wake 10:06"),
        (
            "of two places, the queue has one",
            queue_beside(HOURLY, Some("10:05:10")).max(2).job("clock", RUNNING),
            now,
            due,
        ),
        (
            "a job by hand keeps its place in the order",
            {
                let mut scene = queue_beside(HOURLY, None);
                scene.snapshot.jobs[0].by_trigger = false;
                scene
            },
            now,
            "start 1 | wake 10:06",
        ),
        ("a later job by hand changes nothing", queue_beside(HOURLY, None).job("agent", PENDING), now, due),
        (
            "a later job by hand gets neither of two places",
            queue_beside(HOURLY, None).max(2).job("agent", PENDING),
            now,
            "ran cron 10:00 | start 1 | wake 10:06",
        ),
    ]);
}

/// The job of the other schedule was made last and starts first.
#[test]
fn jobs_of_schedules_start_in_turn() {
    let with_job = |scene: Scene| {
        let t = scene.roster.agents[0].schedules[1].id;
        let mut scene = scene.job("clock", PENDING);
        scene.snapshot.jobs.last_mut().unwrap().schedule = Some(t);
        scene.snapshot.schedules.get_mut(&t).unwrap().last_due = Some(at("10:05"));
        scene.snapshot.schedules.get_mut(&t).unwrap().waiting = None;
        scene
    };
    let (now, never) = ("10:05:30", || with_job(queue_beside(MINUTELY, None)));
    check([
        ("it never ran", never(), now, "start 3 | wake 10:06"),
        ("two places", never().max(2), now, "start 3 | start 1 | wake 10:06"),
        ("three places", never().max(3), now, "start 3 | start 1 | start 2 | wake 10:06"),
        (
            "it ran after the queue",
            with_job(queue_beside(MINUTELY, Some("10:05:10"))),
            now,
            "start 1 | wake 10:06",
        ),
    ]);
    let mut full = never();
    full.snapshot.jobs.push(LiveJob { state: RUNNING, ..full.snapshot.jobs[0].clone() });
    let sentence = |number: usize| {
        let (agent, job) = (&full.roster.agents[0], &full.snapshot.jobs[number]);
        full.snapshot.awaited_start(&full.roster, agent, job, at(now)).unwrap().sentence
    };
    assert!(sentence(2).ends_with("it is the next"), "{}", sentence(2));
    assert!(sentence(0).ends_with("1 job waits before it"), "{}", sentence(0));
}

/// A poll of a work source keeps its place, although jobs of the queue wait.
#[test]
fn a_queue_waits_for_a_poll() {
    let mut scene = queue_beside(EVERY, None);
    let source = serde_json::from_str(r#"{"type":"files","path":"x"}"#).unwrap();
    scene.roster.agents[0].schedules[1].work_source = Some(source);
    let (t, s) = (&scene.roster.agents[0].schedules[1], &scene.roster.agents[0].schedules[0]);
    let key: FiringKey = crate::trigger::Occurrence::Interval(1).key(0);
    scene.snapshot.preparing =
        vec![Preparing { schedule: t.id, key, since: at("10:05:30"), has_failed: false }];
    assert_eq!(free_places(at("10:05:31"), &scene.roster.agents[0], t, &scene.snapshot), 1);
    assert_eq!(free_places(at("10:05:31"), &scene.roster.agents[0], s, &scene.snapshot), 0);
    assert_eq!(scene.plan("10:05:31"), "prepare interval:1 | wake 10:05:32");
    assert!(scene.plan("10:05:33").contains("start 1"), "{}", scene.plan("10:05:33"));
}

/// With `cancel_previous`, the new job takes its turn: no waiting job of another schedule, or by hand, stays behind the
/// jobs that replace each other.
#[test]
fn a_job_that_replaces_another_takes_its_turn() {
    let replaced = |last_run: Option<&str>| {
        let mut scene = queue_beside(MINUTELY, last_run);
        let t = scene.roster.agents[0].schedules[1].id;
        scene.roster.agents[0].schedules[1].timing.overlap = crate::policy::Overlap::CancelPrevious;
        scene = scene.job("agent", PENDING).job("clock", PENDING);
        scene.snapshot.jobs.last_mut().unwrap().schedule = Some(t);
        scene.snapshot.schedules.get_mut(&t).unwrap().last_due = Some(at("10:05"));
        scene.snapshot.schedules.get_mut(&t).unwrap().waiting = None;
        scene
    };
    let without_queue = |mut scene: Scene| {
        scene.snapshot.jobs.drain(..2);
        scene
    };
    let now = "10:05:30";
    check([
        ("it never ran", replaced(None), now, "start 4 | wake 10:06"),
        ("the queue ran longer ago", replaced(Some("10:05:10")), now, "start 1 | wake 10:06"),
        ("an older job by hand comes first", without_queue(replaced(None)), now, "start 3 | wake 10:06"),
    ]);
}
