//! What a pending job waits for although its time has come.

use super::*;
use crate::plan::AwaitedStart;

fn awaited(scene: &Scene) -> Option<AwaitedStart> {
    let job = scene.snapshot.jobs.last().unwrap();
    scene.snapshot.awaited_start(&scene.roster, &scene.roster.agents[0], job, at("10:00"))
}

#[test]
fn what_a_pending_job_waits_for() {
    let manual = || Scene::new(r#"{"type":"manual"}"#);
    let alone = |scene: Scene| scene.up_since("10:00");
    let ahead = LiveState::Pending { not_before: Some(at("10:01")) };
    let full = "a has 1 place (`max_concurrent`), and as many jobs run";
    let nobody = "no daemon runs; it starts when a daemon does";
    for (case, scene, expected) in [
        ("the daemon's next look", manual().job("hand", PENDING), None),
        ("it runs", alone(manual()).job("hand", RUNNING), None),
        ("a time that lies ahead", alone(manual()).job("hand", ahead), None),
        ("nobody starts it", alone(manual()).job("hand", PENDING), Some((None, nobody.to_owned()))),
        (
            "a place",
            alone(manual()).job("hand", RUNNING).job("hand", PENDING),
            Some((Some(SkipReason::AtCapacity), format!("{full}; it is the next"))),
        ),
        (
            "a place, after another",
            manual().job("hand", RUNNING).job("hand", PENDING).job("hand", PENDING),
            Some((Some(SkipReason::AtCapacity), format!("{full}; 1 job waits before it"))),
        ),
    ] {
        let awaited = awaited(&scene).map(|awaited| (awaited.reason, awaited.sentence));
        assert_eq!(awaited, expected, "{case}");
    }
}

#[test]
fn since_when_a_retry_is_due() {
    let due = LiveState::Pending { not_before: Some(at("09:59")) };
    let mut scene = Scene::new(EVERY).job("clock", due);
    assert_eq!(scene.snapshot.jobs[0].retry_due(at("10:00")), None, "it had no attempt");
    scene.snapshot.jobs[0].began_at = Some(at("09:30"));
    assert_eq!(scene.snapshot.jobs[0].retry_due(at("10:00")), Some(at("09:59")));
    assert_eq!(scene.snapshot.jobs[0].retry_due(at("09:58")), None);
}
