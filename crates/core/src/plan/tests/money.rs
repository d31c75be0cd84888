//! Budgets and pauses: without budget nothing starts, a paused schedule does not fire, and a probe comes first after a
//! pause.

use super::*;
use crate::budget::{Amount, Budget, HighestCost, Spending};

const EVERY_HOUR: &str = r#"{"type":"cron","expression":"0 * * * *"}"#;
const OFTEN: &str = r#"{"type":"interval","interval":"1h"}"#;

/// The agent may spend five dollars a day; `spent` is spent, and `reserved` is reserved by running attempts.
fn scene(schedule: &str, spent: u64, reserved: u64) -> Scene {
    let mut scene = Scene::new(schedule);
    scene.roster.agents[0].budget = Budget { per_day_usd: Some(5.0), ..Budget::default() };
    let dollars = |dollars: u64| Amount { microdollars: dollars * 1_000_000, tokens: 0 };
    let (spent, committed) = (dollars(spent), dollars(reserved));
    let own = Spending { day: spent, month: spent, reported: Amount::default(), committed };
    let highest_cost = HighestCost { microdollars: Some(1_000_000), tokens: None };
    scene.snapshot.ledger.agents.insert("a".parse().unwrap(), (own, highest_cost));
    scene
}

#[test]
fn firings_over_budget_are_skipped_or_wait() {
    check([
        ("enough", scene(EVERY_HOUR, 4, 0).last_due("09:00"), "10:00", "ran cron 10:00 | wake 11:00"),
        (
            "a cron firing is skipped",
            scene(EVERY_HOUR, 5, 0).last_due("09:00"),
            "10:00",
            "skipped over_budget cron 10:00 | wake 11:00",
        ),
        (
            "a cron firing waits if running jobs have only reserved the amount",
            scene(EVERY_HOUR, 3, 2).last_due("09:00").job("agent", RUNNING).max(9),
            "10:00",
            "Skipping a/s: a's daily budget of $5.00 has no room: $3.00 spent, $2.00 reserved by running jobs, \
             and a job may need $1.00; the job starts when running jobs have ended and enough of the budget is free; to reserve less for each job, \
             set or lower `budget.per_job_usd`, \
             due 10:00 | wake 01-06 00:00",
        ),
        (
            "this wait is recorded once",
            scene(EVERY_HOUR, 3, 2)
                .last_due("09:00")
                .job("agent", RUNNING)
                .max(9)
                .waiting("10:00", SkipReason::OverBudget),
            "10:00",
            "wake 01-06 00:00",
        ),
        (
            "an interval waits",
            scene(OFTEN, 5, 0).last_run("08:00").waiting("09:00", SkipReason::OverBudget),
            "10:00",
            "wake 01-06 00:00",
        ),
        (
            "a pending job waits",
            scene(EVERY_HOUR, 5, 0).last_due("10:00").job("agent", PENDING),
            "10:00",
            "wake 11:00",
        ),
        (
            "a pending job waits until the next day",
            scene(r#"{"type":"manual"}"#, 5, 0).job("agent", PENDING),
            "10:00",
            "wake 01-06 00:00",
        ),
        ("has budget", scene(r#"{"type":"manual"}"#, 4, 0).job("agent", PENDING), "10:00", "start 1"),
    ]);
}

/// The reservation of a job that `cancel_previous` cancels does not count against the job that takes its place.
#[test]
fn a_job_that_is_cancelled_leaves_its_reservation() {
    let replaced = |spent: u64, own: u64, other: u64| {
        let schedule = r#"{"type":"cron","expression":"0 * * * *","overlap":"cancel_previous"}"#;
        let mut scene = scene(schedule, spent, own + other).last_due("09:00").job("clock", RUNNING);
        scene.snapshot.jobs[0].reserved.microdollars = own * 1_000_000;
        scene
    };
    let of_fleet = |mut scene: Scene| {
        scene.roster.budget = std::mem::take(&mut scene.roster.agents[0].budget);
        scene.snapshot.ledger.fleet = scene.snapshot.ledger.agents.values().next().unwrap().0;
        scene
    };
    check([
        ("all is reserved by the job", replaced(0, 5, 0), "10:00", "cancel 1 | ran cron 10:00 | wake 11:00"),
        (
            "all of the budget of the fleet",
            of_fleet(replaced(0, 5, 0)),
            "10:00",
            "cancel 1 | ran cron 10:00 | wake 11:00",
        ),
        ("all is spent", replaced(5, 0, 0), "10:00", "skipped over_budget cron 10:00 | wake 11:00"),
    ]);
    let plan = replaced(0, 1, 4).plan("10:00");
    assert!(plan.starts_with("cancel 1"), "{plan}");
    let plan = replaced(1, 0, 4).plan("10:00");
    assert!(plan.starts_with("Skipping a/s: a's daily budget"), "other jobs have reserved it: {plan}");
}

/// `overlap: queue` makes a job for each due time while running jobs have reserved the budget.
#[test]
fn a_queue_makes_jobs_while_a_budget_is_reserved() {
    let schedule = r#"{"type":"cron","expression":"0 * * * *","overlap":"queue"}"#;
    let queue = |spent, reserved| scene(schedule, spent, reserved).last_due("09:00").job("clock", RUNNING);
    check([
        ("reserved", queue(0, 5), "10:00", "ran cron 10:00 | wake 11:00"),
        ("spent", queue(5, 0), "10:00", "skipped over_budget cron 10:00 | wake 11:00"),
    ]);
}

/// After its `end_at`, an interval waits for running jobs, and not for the next day of the budget.
#[test]
fn an_interval_does_not_wait_for_a_budget_after_its_end() {
    let schedule = r#"{"type":"interval","interval":"1h","end_at":"2026-01-05T09:30:00Z"}"#;
    let waits = |spent, reserved| {
        scene(schedule, spent, reserved).last_run("08:00").waiting("09:00", SkipReason::OverBudget)
    };
    check([
        ("reserved", waits(0, 5), "10:00", "wake 01-06 00:00"),
        ("spent", waits(5, 0), "10:00", "skipped over_budget interval:2 09:00"),
        ("room", waits(0, 0), "10:00", "ran interval:2 09:00"),
    ]);
}

#[test]
fn a_paused_schedule_resumes_at_the_end_of_its_pause() {
    let paused = |schedule: &str| {
        let mut scene = Scene::new(schedule).last_due("09:00");
        scene.record().state = ScheduleState::Paused { reason: "it fails".into(), until: at("10:30") };
        scene
    };
    check([
        ("during the pause", paused(EVERY_HOUR), "10:00", "wake 10:30"),
        ("the pause is over", paused(EVERY_HOUR), "10:30", "resume"),
        ("the pause of an interval", paused(OFTEN), "10:00", "wake 10:30"),
        ("the pause of a manual schedule", paused(r#"{"type":"manual"}"#), "10:31", "resume"),
    ]);
    let mut record = paused(EVERY_HOUR).record().clone();
    assert!(!record.resume(at("10:29").into()));
    assert!(record.resume(at("10:30").into()));
    assert_eq!((&record.state, record.armed_at, record.generation), (&ScheduleState::Active, at("10:30"), 0));
    // The breaker was turned off in the config.
    let mut without_breaker = paused(EVERY_HOUR);
    let on = without_breaker.roster.agents[0].schedules[0].clone();
    without_breaker.roster.agents[0].schedules[0].breaker.failures = 0;
    let off = without_breaker.roster.agents[0].schedules[0].clone();
    let mut record = without_breaker.record().clone();
    assert!(!record.resume_without_breaker(&on, at("10:10")));
    assert!(record.resume_without_breaker(&off, at("10:10")));
    assert_eq!((&record.state, record.armed_at), (&ScheduleState::Active, at("10:10")));
    assert!(!record.resume_without_breaker(&off, at("10:11")));
    let mut record = paused(EVERY_HOUR).record().clone();
    record.breaker_state.pauses = 3;
    assert!(record.enable(at("10:00").into()), "a person may end the pause");
    assert_eq!((record.breaker_state.pauses, record.generation), (0, 1));
    assert!(!record.reset_breaker(at("10:00")));
}

#[test]
fn jobs_wait_for_the_pause_and_then_for_the_probe() {
    let hook = r#"{"type":"webhook"}"#;
    let paused = |jobs: &[(&str, LiveState)]| {
        let scene = jobs
            .iter()
            .fold(Scene::new(hook).max(2), |scene, (origin, state)| scene.job(origin, state.clone()));
        let mut scene = scene.last_due("09:00");
        scene.record().state = ScheduleState::Paused { reason: "it fails".into(), until: at("10:30") };
        scene.record().breaker_state.pauses = 1;
        scene
    };
    let over = |jobs: &[(&str, LiveState)]| {
        let mut scene = paused(jobs);
        scene.record().state = ScheduleState::Active;
        scene
    };
    let began = |mut scene: Scene| {
        scene.snapshot.jobs[0].began_at = Some(at("09:30"));
        scene
    };
    let began_before_pause = |mut scene: Scene| {
        scene.record().armed_at = at("09:45");
        scene
    };
    let began_late = |mut scene: Scene| {
        scene.snapshot.jobs[0].began_at = Some(at("10:30"));
        scene
    };
    let later = LiveState::Pending { not_before: Some(at("10:20")) };
    let two = [("clock", PENDING), ("clock", PENDING)];
    let mut other = paused(&two);
    other.add("other", OFTEN);
    let off = |mut scene: Scene| {
        scene.record().disable(DisabledBy::Person);
        scene
    };
    let off_and_over = |scene: Scene| {
        let mut scene = off(scene);
        assert!(scene.record().resume(at("10:30").into()));
        scene
    };
    let mut by_clock = off(Scene::new(OFTEN).last_run("09:00").job("clock", PENDING));
    by_clock.record().breaker_state.pauses = 1;
    let mut without = over(&two);
    without.roster.agents[0].schedules[0].breaker.failures = 0;
    let mut gone = paused(&two);
    gone.roster.agents[0].schedules.clear();
    check(vec![
        ("new jobs wait", paused(&two), "10:00", "wake 10:30"),
        (
            "a job by hand does not wait",
            paused(&[("clock", PENDING), ("hand", PENDING)]),
            "10:00",
            "start 2 | wake 10:30",
        ),
        ("a job that has begun does not wait", began(paused(&two)), "10:00", "start 1 | wake 10:30"),
        ("jobs that wait take no place", other, "10:00", "ran interval:1 00:00 | wake 10:30"),
        ("the probe starts first", over(&two), "10:00", "start 1"),
        ("others wait for the probe", over(&[("clock", RUNNING), ("clock", PENDING)]), "10:00", ""),
        (
            "a job that began before the pause is not waited for",
            began_before_pause(over(&[("clock", RUNNING), ("clock", PENDING)])),
            "10:00",
            "start 2",
        ),
        (
            "others wait for the probe between its attempts, too",
            began(over(&[("clock", later.clone()), ("clock", PENDING)])),
            "10:00",
            "wake 10:20",
        ),
        (
            "the first ready job is the probe",
            over(&[("clock", later), ("clock", PENDING)]),
            "10:00",
            "start 2 | wake 10:20",
        ),
        ("disabled during the pause", off(paused(&two)), "10:00", "wake 10:30"),
        ("disabled, at the end of the pause", off(paused(&two)), "10:30", "resume"),
        ("disabled: the probe starts first", off_and_over(paused(&two)), "10:30", "start 1"),
        (
            "disabled: others wait for the probe",
            off_and_over(began_late(paused(&[("clock", RUNNING), ("clock", PENDING)]))),
            "10:40",
            "",
        ),
        ("disabled: a job that the clock fired waits", by_clock, "11:00", ""),
        ("the breaker was turned off", without, "10:00", "start 1 | start 2"),
        ("the schedule was removed", gone, "10:00", ""),
    ]);
    let mut well = over(&two);
    well.record().breaker_state = crate::breaker::BreakerState::default();
    assert_eq!(well.plan("10:00"), "start 1 | start 2", "the probe succeeded");
}

#[test]
fn a_delivery_is_not_prepared_during_a_pause() {
    let off = |mut scene: Scene| {
        scene.record().disable(DisabledBy::Person);
        scene
    };
    let scene = |key: &str, paused: bool| {
        let mut scene = Scene::new(r#"{"type":"webhook"}"#);
        let (schedule, key) = (scene.record().id, FiringKey::stored(key.to_owned()));
        scene.snapshot.preparing.push(Preparing { schedule, key, since: at("09:59"), has_failed: false });
        if paused {
            scene.record().state = ScheduleState::Paused { reason: "it fails".into(), until: at("10:30") };
        }
        scene
    };
    check([
        ("no pause", scene("webhook:7", false), "10:00", "prepare webhook:7"),
        ("a delivery", scene("webhook:7", true), "10:00", "wake 10:30"),
        ("a delivery, and disabled", off(scene("webhook:7", true)), "10:00", "wake 10:30"),
        ("a firing by hand", scene("manual:7", true), "10:00", "prepare manual:7 | wake 10:30"),
        ("a firing by the clock", scene("cron:7", true), "10:00", "prepare cron:7 | wake 10:30"),
    ]);
}
