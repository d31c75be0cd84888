//! Steps of the clock, and schedules with `start_at` and `end_at`.

use super::*;

#[test]
fn schedules_fire_after_the_clock_is_set_back() {
    let restarted = |mut scene: Scene, now: &str| {
        assert_eq!(scene.plan(now), "restart");
        scene.record().restart_from_now(at(now).into());
        scene
    };
    check([
        ("cron", restarted(Scene::new(HOURLY).last_due("2027-01-05T10:00"), "10:30"), "10:30", "wake 11:00"),
        (
            "interval",
            restarted(Scene::new(EVERY).last_run("2027-01-05T10:00"), "10:30"),
            "10:30",
            "wake 10:35",
        ),
        ("armed", restarted(Scene::new(HOURLY), "2026-01-04T10:30"), "2026-01-04T10:30", "wake 01-04 11:00"),
        (
            "a due time that was decided before the clock was set back cancels no job",
            restarted(hourly(r#""overlap":"cancel_previous""#).last_due("12:00"), "10:30")
                .job("clock", RUNNING),
            "11:00",
            "ran cron 11:00 | wake 12:00",
        ),
    ]);
}

/// The last run ended at 10:00, when the boot clock showed 500 s.
#[test]
fn the_boot_clock_decides_about_intervals() {
    let boot = |second: i64| Some(BootTime::new(uuid::Uuid::from_u128(1), second * 1_000_000));
    let ran = |now: i64| {
        let mut scene = Scene::new(EVERY).last_run("10:00");
        scene.record().interval_from = Some(Moment { wall: at("10:00"), boot: boot(500) });
        scene.snapshot.boot = boot(now);
        scene
    };
    check([
        ("no step", ran(620), "10:02", "wake 10:05"),
        ("set back", ran(620), "09:00", "wake 09:03"),
        ("set forward", ran(620), "12:00", "wake 12:03"),
        ("set forward, and due", ran(800), "12:00", "ran interval:2 12:00"),
    ]);
}

#[test]
fn times_outside_start_at_and_end_at_leave_no_firings() {
    let end = |hour: &str| hourly(&format!(r#""end_at":"2026-01-05T{hour}:00Z""#));
    let start = |hour: &str| hourly(&format!(r#""start_at":"2026-01-05T{hour}:00Z""#));
    let finished = |mut scene: Scene| {
        scene.record().finish();
        scene
    };
    let later = |mut scene: Scene| {
        scene.roster.agents[0].schedules[0].timing.end_at = Some(at("20:00"));
        scene
    };
    check([
        ("before its end", end("11:30"), "10:00", "ran cron 10:00 | wake 11:00"),
        ("no further firing, but not over", end("11:00"), "10:00", "ran cron 10:00 | wake 11:00"),
        ("over", end("11:30").last_due("11:00"), "12:00", "finish"),
        (
            "a due time before the end still runs",
            end("11:30"),
            "12:00",
            "coalesced cron 10:00 | ran cron 11:00",
        ),
        (
            "a firing that waits keeps the schedule open",
            end("11:30").last_due("10:00").job("agent", RUNNING).waiting("11:00", SkipReason::AtCapacity),
            "12:00",
            "",
        ),
        ("finished", finished(end("11:30").last_due("11:00")), "12:00", ""),
        ("its end was moved", later(finished(end("11:30").last_due("11:00"))), "12:00", "reopen"),
        ("not begun", start("12:30"), "11:00", "wake 13:00"),
        ("begun", start("12:30").last_due("09:00"), "13:00", "ran cron 13:00 | wake 14:00"),
        ("begins at a due time", start("13:00"), "11:00", "wake 13:00"),
    ]);
    let interval = |end: &str| {
        let policies = format!(r#"{{"type":"interval","interval":"5m","end_at":"2026-01-05T{end}:00Z"}}"#);
        Scene::new(&policies).last_run("10:00")
    };
    let hours = r#"{"type":"interval","interval":"5m","end_at":"2026-01-05T10:30:00Z",
        "active_hours":{"start":"10:40","end":"10:45"}}"#;
    let closed_until_end = Scene::new(hours).last_run("10:00");
    check([
        ("interval: wakes at its end", interval("10:03"), "10:01", "wake 10:03"),
        ("interval: over", interval("10:03"), "10:03", "finish"),
        (
            "interval: a firing that waits keeps the schedule open",
            interval("10:30").job("agent", RUNNING).waiting("10:05", SkipReason::AtCapacity),
            "10:30",
            "",
        ),
        (
            "interval: a firing that waits runs after the end",
            interval("10:30").waiting("10:05", SkipReason::AtCapacity),
            "10:31",
            "ran interval:2 10:05",
        ),
        ("interval: its job runs", interval("10:30").job("clock", RUNNING), "10:31", "finish"),
        (
            "interval: its calendar was closed until its end",
            closed_until_end.waiting("10:05", SkipReason::OutsideHours),
            "10:31",
            "finish",
        ),
    ]);
}
