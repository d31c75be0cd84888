//! Reasons why a pending job waits although its time has come.

use super::*;
use crate::plan::AwaitedStart;

fn awaited(scene: &Scene) -> Option<AwaitedStart> {
    let job = scene.snapshot.jobs.last().unwrap();
    scene.snapshot.awaited_start(&scene.roster, &scene.roster.agents[0], job, at("10:00"))
}

#[test]
fn the_wait_of_a_pending_job_is_explained() {
    let manual = || Scene::new(r#"{"type":"manual"}"#);
    let alone = |scene: Scene| scene.up_since("10:00");
    let ahead = LiveState::Pending { not_before: Some(at("10:01")) };
    let full = "the only place of a is taken (`max_concurrent`)";
    let nobody = "no daemon runs; it starts when a daemon does";
    for (case, scene, expected) in [
        ("the next tick starts it", manual().job("hand", PENDING), None),
        ("it runs", alone(manual()).job("hand", RUNNING), None),
        ("it waits for a time", alone(manual()).job("hand", ahead), None),
        ("it waits for a daemon", alone(manual()).job("hand", PENDING), Some((None, nobody.to_owned()))),
        (
            "without a daemon, the places may be free",
            alone(manual()).job("hand", RUNNING).job("hand", PENDING),
            Some((None, nobody.to_owned())),
        ),
        (
            "it waits for a place",
            manual().job("hand", RUNNING).job("hand", PENDING),
            Some((Some(SkipReason::AtCapacity), format!("{full}; it is the next"))),
        ),
        (
            "it waits for a place, after another job",
            manual().job("hand", RUNNING).job("hand", PENDING).job("hand", PENDING),
            Some((Some(SkipReason::AtCapacity), format!("{full}; 1 job waits before it"))),
        ),
        (
            "its agent had more places when the jobs started",
            manual().job("hand", RUNNING).job("hand", RUNNING).job("hand", PENDING),
            Some((
                Some(SkipReason::AtCapacity),
                "2 jobs of a run, and it has 1 place now (`max_concurrent`); it is the next".to_owned(),
            )),
        ),
    ] {
        let awaited = awaited(&scene).map(|awaited| (awaited.reason, awaited.sentence));
        assert_eq!(awaited, expected, "{case}");
    }
}

#[test]
fn a_retry_is_due_after_its_backoff() {
    let due = LiveState::Pending { not_before: Some(at("09:59")) };
    let mut scene = Scene::new(EVERY).job("clock", due);
    assert_eq!(scene.snapshot.jobs[0].retry_due(at("10:00")), None, "it had no attempt");
    scene.snapshot.jobs[0].began_at = Some(at("09:30"));
    assert_eq!(scene.snapshot.jobs[0].retry_due(at("10:00")), Some(at("09:59")));
    assert_eq!(scene.snapshot.jobs[0].retry_due(at("09:58")), None);
}

/// Returns the sentence about the jobs and firings before the last job of the scene.
fn before(scene: &Scene) -> String {
    let sentence = awaited(scene).unwrap().sentence;
    sentence.split_once("taken (`max_concurrent`); ").unwrap().1.to_owned()
}

#[test]
fn only_jobs_that_can_start_are_counted_before_a_pending_job() {
    let ahead = LiveState::Pending { not_before: Some(at("10:01")) };
    let manual = || Scene::new(r#"{"type":"manual"}"#).job("hand", RUNNING);
    let scene = manual().job("hand", ahead.clone()).job("hand", PENDING);
    assert_eq!(before(&scene), "it is the next", "the other job waits for its time");
    let mut scene = manual().job("hand", ahead).job("hand", PENDING);
    let requeued = serde_json::json!({"reason": "its folder is not there", "times": 1});
    scene.snapshot.jobs[1].requeued = serde_json::from_value(requeued).unwrap();
    assert_eq!(before(&scene), "1 job waits before it", "the requeued job keeps its place");
    let mut scene = manual().job("hand", PENDING).job("hand", PENDING);
    scene.snapshot.jobs[1].schedule = Some(ScheduleId::of(&"a".parse().unwrap(), &"gone".parse().unwrap()));
    scene.snapshot.jobs[1].schedule_name = Some("gone".parse().unwrap());
    assert_eq!(before(&scene), "it is the next", "the schedule of the other job was removed");
    let agent = &scene.roster.agents[0];
    let next = scene.snapshot.next_to_start(&scene.roster, agent, at("10:00")).map(|job| &job.id);
    assert_eq!(next, Some(&scene.snapshot.jobs[2].id));
    let held = scene.snapshot.jobs[1].schedule.unwrap();
    assert_eq!(scene.snapshot.first_ready(&scene.roster, agent, held, at("10:00")), None);
}

#[test]
fn firings_without_a_job_are_counted_before_a_pending_job() {
    let queue = r#"{"type":"cron","expression":"* * * * *","overlap":"queue"}"#;
    let mut scene = Scene::new(queue).job("clock", RUNNING).job("clock", PENDING);
    let other = scene.add("other", EVERY);
    assert_eq!(before(&scene), "it is the next");
    let waiting = |reason| Some(WaitingFiring { due: at("09:59"), reason });
    for (reason, expected) in [
        (SkipReason::AtCapacity, "1 firing without a job may come before it"),
        (SkipReason::OutsideHours, "it is the next"),
    ] {
        scene.snapshot.schedules.get_mut(&other).unwrap().waiting = waiting(reason);
        assert_eq!(before(&scene), expected, "{reason}");
    }
    let firing = |key: &str| Preparing {
        schedule: other,
        key: FiringKey::stored(key.to_owned()),
        since: at("09:59"),
        has_failed: true,
    };
    scene.snapshot.preparing = vec![firing("interval:0:1"), firing("interval:0:2")];
    assert_eq!(before(&scene), "2 firings without a job may come before it");
    let scene = scene.job("clock", PENDING);
    assert_eq!(before(&scene), "1 job waits before it, and 2 firings without a job may come before it");
    let scene = scene.job("hand", PENDING);
    assert_eq!(before(&scene), "2 jobs wait before it", "no firings are counted for a job by hand");
}
