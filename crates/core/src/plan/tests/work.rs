//! Schedules that take items from a work source: free places are filled while other jobs run long.

use super::*;
use crate::breaker::Pause;

impl Scene {
    fn takes_work(mut self) -> Self {
        let source = serde_json::json!({"type": "files", "path": "tasks"});
        self.roster.agents[0].schedules[0].work_source = Some(serde_json::from_value(source).unwrap());
        self
    }

    fn polled(mut self, at_time: &str) -> Self {
        self.record().polled_at = Some(at(at_time).into());
        self.record().interval_count = 1;
        self
    }

    fn fill(mut self) -> Self {
        self.record().fill = true;
        self
    }

    fn preparing(mut self) -> Self {
        let schedule = self.roster.agents[0].schedules[0].id;
        let key = FiringKey::stored("interval:1".to_owned());
        self.snapshot.preparing.push(Preparing { schedule, key, since: at("09:00"), has_failed: true });
        self
    }
}

/// Returns an interval that looks for work, with a running job.
fn polling() -> Scene {
    Scene::new(EVERY).takes_work().polled("10:00").job("clock", RUNNING)
}

fn delayed_poll() -> Scene {
    Scene::new(r#"{"type":"delay","run_at":"2026-01-05T10:00:00Z"}"#).takes_work().job("clock", RUNNING)
}

fn hourly_polling(policies: &str) -> Scene {
    hourly(policies).takes_work().job("clock", RUNNING)
}

#[test]
fn polls_continue_while_jobs_run() {
    check([
        ("not due", polling().max(3), "10:04", "wake 10:05"),
        ("due, with a free place", polling().max(3), "10:05", "ran interval:2 10:05"),
        ("due, without a free place", polling(), "10:05", "Skipping a/s: at max capacity (1/1), due 10:05"),
        (
            "a delay without a free place",
            delayed_poll(),
            "10:05",
            "Skipping a/s: at max capacity (1/1), due 10:00",
        ),
        ("a delay with a free place", delayed_poll().max(3), "10:05", "ran delay:2026-01-05T10:00:00Z 10:00"),
        ("counts from the end of a job, too", polling().last_run("10:02").max(3), "10:05", "wake 10:07"),
        ("no second poll while one is prepared", polling().max(3).preparing(), "10:05", "prepare interval:1"),
        (
            "without a work source it waits for its job",
            Scene::new(EVERY).polled("10:00").job("clock", RUNNING).max(3),
            "10:05",
            "",
        ),
    ]);
    for overlap in ["skip", "queue", "cancel_previous", "allow"] {
        let policy = format!(r#""overlap":"{overlap}""#);
        let free = hourly_polling(&policy).max(3).plan("10:00");
        assert_eq!(free, "ran cron 10:00 | wake 11:00", "{overlap} does not apply with a work source");
        let full = hourly_polling(&policy).plan("10:00");
        assert_eq!(full, "Skipping a/s: at max capacity (1/1), due 10:00", "{overlap}");
        let plan = hourly_polling(&policy).max(3).preparing().plan("10:00");
        assert_eq!(plan, "prepare interval:1 | skipped already_running cron 10:00 | wake 11:00", "{overlap}");
    }
}

#[test]
fn a_free_place_is_filled_between_two_due_times() {
    let closed = r#"{"type":"interval","interval":"5m","active_hours":{"start":"00:00","end":"10:01"}}"#;
    check([
        ("a place is free", polling().max(3).fill(), "10:02", "ran fill:1 10:02 | wake 10:05"),
        ("no place is free", polling().fill(), "10:02", "wake 10:05"),
        ("one poll at a time", polling().max(3).fill().preparing(), "10:02", "prepare interval:1"),
        ("cron", hourly_polling("\"jitter\":0").max(2).fill(), "09:30", "ran fill:1 09:30 | wake 10:00"),
        (
            "a due firing comes before a fill",
            hourly_polling("\"jitter\":0").max(3).fill(),
            "10:00",
            "ran cron 10:00 | wake 11:00",
        ),
        (
            "ends of jobs do not postpone the regular poll",
            polling().last_run("10:04").max(3).fill(),
            "10:05",
            "ran interval:2 10:05",
        ),
        (
            "outside its hours",
            Scene::new(closed).takes_work().polled("10:00").max(3).fill(),
            "10:02",
            "wake 01-06 00:00",
        ),
        (
            "without a work source there is nothing to fill with",
            Scene::new(EVERY).last_run("10:00").max(3).fill(),
            "10:02",
            "wake 10:05",
        ),
    ]);
    let mut over = polling().max(3).fill();
    over.record().fill_count = 7;
    assert_eq!(over.plan("10:02"), "ran fill:8 10:02 | wake 10:05");
    over.record().disable(DisabledBy::Person);
    assert_eq!(over.plan("10:02"), "");
}

/// After a pause one probe runs first. Until the probe ends, no items are claimed, because they would only wait.
#[test]
fn no_items_are_claimed_while_a_probe_runs() {
    let mut probe = polling().max(3).fill();
    probe.record().breaker_state.pauses = 1;
    assert_eq!(probe.plan("10:06"), "");
    probe.record().armed_at = at("10:05");
    assert_eq!(
        probe.plan("10:06"),
        polling().max(3).fill().plan("10:06"),
        "the running job began before the pause"
    );
}

#[test]
fn a_re_enabled_schedule_polls_at_its_next_due_time() {
    let off = |scene: &mut Scene, paused: bool| {
        let pause = Pause { until: at("11:00"), reason: "it failed".into() };
        let moment = at("10:02").into();
        if paused { scene.record().pause(pause, moment) } else { scene.record().disable(DisabledBy::Person) }
    };
    for paused in [true, false] {
        let mut interval = Scene::new(EVERY).takes_work().polled("10:00").last_run("10:01").max(3).fill();
        assert!(off(&mut interval, paused));
        assert!(interval.record().enable(at("10:30").into()));
        assert_eq!(interval.plan("10:30"), "wake 10:35", "paused: {paused}");
        let mut polled = Scene::new(EVERY).takes_work().polled("10:00").max(3).fill();
        assert!(off(&mut polled, paused) && polled.record().enable(at("10:30").into()));
        assert_eq!(polled.plan("10:30"), "wake 10:35", "none of its jobs has ended; paused: {paused}");
        let mut cron = hourly("\"jitter\":0").takes_work().max(3).fill();
        assert!(off(&mut cron, paused) && cron.record().enable(at("10:30").into()));
        assert_eq!(cron.plan("10:30"), "wake 11:00", "paused: {paused}");
    }
}

fn free_places_of(scene: &Scene, now: Timestamp) -> usize {
    let agent = &scene.roster.agents[0];
    free_places(now, agent, &agent.schedules[0], &scene.snapshot)
}

#[test]
fn running_and_ready_jobs_take_places() {
    let agent = |scene: &Scene| free_places_of(scene, at("10:00"));
    let later = LiveState::Pending { not_before: Some(at("11:00")) };
    assert_eq!(agent(&Scene::new(EVERY).max(3)), 3);
    assert_eq!(agent(&Scene::new(EVERY).max(3).job("clock", RUNNING).job("agent", PENDING)), 1);
    assert_eq!(agent(&Scene::new(EVERY).max(3).job("clock", RUNNING).job("agent", later)), 2);
    assert_eq!(agent(&Scene::new(EVERY).job("clock", RUNNING).job("agent", PENDING)), 0);
}

/// Later jobs do not overtake a requeued job, and no items are taken for its place.
#[test]
fn a_requeued_job_keeps_its_place() {
    let scene = |times| {
        let wait = LiveState::Pending { not_before: Some(at("10:10")) };
        let mut scene =
            Scene::new(EVERY).job("agent", wait).job("agent", LiveState::Pending { not_before: None });
        let reason = Some("no space left on device".to_owned());
        scene.snapshot.jobs[0].requeued = Requeued { reason, times, total: times };
        scene
    };
    let free = |scene: &Scene| free_places_of(scene, at("10:09"));
    let waits = scene(1).max(1);
    assert!(!waits.plan("10:09").contains("start"), "{}", waits.plan("10:09"));
    assert!(waits.plan("10:10").contains("start 1"), "{}", waits.plan("10:10"));
    let two = scene(1).max(3);
    assert!(two.plan("10:09").contains("start 2"), "{}", two.plan("10:09"));
    assert_eq!(free(&two), 1);
    // A job that can never be started does not block the other jobs forever.
    assert!(scene(6).max(1).plan("10:09").contains("start 2"));
}

/// A queue that is never empty does not block the other schedules of its agent.
#[test]
fn a_schedule_that_waits_gets_a_free_place_before_more_items_are_taken() {
    let second = |name: &str, due: Option<&str>| {
        let mut scene = polling().max(2).fill();
        let id = scene.add(name, r#"{"type":"interval","interval":"1m"}"#);
        let record = scene.snapshot.schedules.get_mut(&id).unwrap();
        record.record_run_or_poll(at("10:00").into());
        record.interval_count = 4;
        record.waiting = due.map(|due| WaitingFiring { due: at(due), reason: SkipReason::AtCapacity });
        scene
    };
    check([
        ("it waits", second("plain", Some("10:01")), "10:02", "ran interval:5 10:01 | wake 10:05"),
        ("it is due only now", second("plain", None), "10:02", "ran interval:5 10:01 | wake 10:05"),
        ("it is not due", second("plain", None), "10:00:30", "ran fill:1 10:00:30 | wake 10:01"),
    ]);
    // The due schedule that has waited longer comes first, whatever the order in the config.
    let mut both = second("plain", Some("10:01")).waiting("10:05", SkipReason::AtCapacity);
    assert_eq!(both.plan("10:06"), "ran interval:5 10:01");
    both.record().waiting = Some(WaitingFiring { due: at("10:00:30"), reason: SkipReason::AtCapacity });
    assert_eq!(both.plan("10:06"), "ran interval:2 10:05");
}
