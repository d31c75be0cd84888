//! The next firings as they are shown: never in the past, and only of schedules that fire.

use super::*;
use crate::budget::{Amount, Budget, HighestCost, Spending};
use crate::plan::next_firings::Outlook;
use crate::provider::Parked;

/// Returns the first three firings from now on.
fn coming(scene: &Scene, now: &str) -> String {
    from(scene, now, now, 3)
}

fn from(scene: &Scene, now: &str, from: &str, count: usize) -> String {
    let outlook = Outlook::new(at(now), &scene.roster, &scene.snapshot);
    let agent = &scene.roster.agents[0];
    let times = outlook.firings(agent, &agent.schedules[0], at(from), count);
    let next = outlook.next(agent, &agent.schedules[0]);
    if from == now {
        assert_eq!(times.first().copied(), next, "the first of the firings is the next one");
    }
    assert!(times.iter().all(|time| *time >= at(now)), "none has passed: {times:?}");
    times.into_iter().map(short).collect::<Vec<_>>().join(" ")
}

fn check(cases: impl IntoIterator<Item = (&'static str, Scene, &'static str, &'static str)>) {
    for (case, scene, now, expected) in cases {
        assert_eq!(coming(&scene, now), expected, "{case}");
    }
}

fn state(schedule: &str, state: ScheduleState) -> Scene {
    let mut scene = Scene::new(schedule);
    scene.record().state = state;
    scene
}

/// Creates an agent with a daily budget of five dollars, with these spent and reserved amounts.
fn poor(schedule: &str, spent: u64, reserved: u64) -> Scene {
    let mut scene = Scene::new(schedule);
    scene.roster.agents[0].budget = Budget { per_day_usd: Some(5.0), ..Budget::default() };
    let dollars = |dollars: u64| Amount { microdollars: dollars * 1_000_000, tokens: 0 };
    let (spent, committed) = (dollars(spent), dollars(reserved));
    let own = Spending { day: spent, month: spent, reported: Amount::default(), committed };
    let highest_cost = HighestCost { microdollars: Some(1_000_000), tokens: None };
    scene.snapshot.ledger.agents.insert("a".parse().unwrap(), (own, highest_cost));
    scene
}

fn parked(schedule: &str, until: &str) -> Scene {
    let mut scene = Scene::new(schedule);
    scene.roster.agents[0].program.provider = Some("shared".to_owned());
    let parked = Parked {
        provider: "shared".into(),
        since: at("09:00"),
        until: at(until),
        message: "the limit".into(),
        times: 1,
    };
    let state = ProviderState { parked: Some(parked), ..ProviderState::default() };
    scene.snapshot.providers.insert("shared".to_owned(), state);
    scene
}

#[test]
fn coming_times_follow_trigger_and_state() {
    let paused = || ScheduleState::Paused { reason: "it fails".into(), until: at("12:00") };
    let off = || ScheduleState::Disabled { why: DisabledBy::Person };
    let mut in_file = Scene::new(HOURLY);
    in_file.roster.agents[0].schedules[0].enabled = false;
    let mut unknown = Scene::new(EVERY);
    unknown.snapshot.schedules.clear();
    check(vec![
        ("the next hours", Scene::new(HOURLY).last_due("10:00"), "10:05", "11:00 12:00 13:00"),
        (
            "a decided due time is not shown",
            Scene::new(HOURLY).last_due("11:00"),
            "10:30",
            "12:00 13:00 14:00",
        ),
        ("never ran: now", Scene::new(EVERY), "10:05", "10:05 10:10 10:15"),
        ("from the end of the last run", Scene::new(EVERY).last_run("10:03"), "10:05", "10:08 10:13 10:18"),
        ("overdue: now", Scene::new(EVERY).last_run("09:00"), "10:05", "10:05 10:10 10:15"),
        (
            "unknown while its own job has not ended",
            Scene::new(EVERY).last_run("10:03").job("clock", RUNNING),
            "10:05",
            "",
        ),
        (
            "a job by hand does not move the next firing",
            Scene::new(EVERY).last_run("10:03").job("hand", RUNNING),
            "10:05",
            "10:08 10:13 10:18",
        ),
        ("paused", state(HOURLY, paused()), "10:05", ""),
        ("an interval that is paused", state(EVERY, paused()), "10:05", ""),
        ("disabled", state(HOURLY, off()), "10:05", ""),
        ("disabled in the config", in_file, "10:05", ""),
        ("with an error", state(HOURLY, ScheduleState::Error { reason: "no".into() }), "10:05", ""),
        ("by hand only", Scene::new(r#"{"type":"manual"}"#), "10:05", ""),
        ("not loaded yet: as if it were loaded now", unknown, "10:05", "10:05 10:10 10:15"),
        ("a delay", Scene::new(r#"{"type":"delay","run_at":"2026-01-05T11:00:00Z"}"#), "10:05", "11:00"),
        (
            "a delay whose time has passed",
            Scene::new(r#"{"type":"delay","run_at":"2026-01-05T09:00:00Z"}"#),
            "10:05",
            "10:05",
        ),
        (
            "a delay that may not fire yet",
            Scene::new(
                r#"{"type":"delay","run_at":"2026-01-05T09:00:00Z","start_at":"2026-01-05T11:30:00Z"}"#,
            ),
            "10:05",
            "11:30",
        ),
        (
            "a delay outside its hours",
            Scene::new(
                r#"{"type":"delay","run_at":"2026-01-05T09:00:00Z","active_hours":{"start":"12:00","end":"13:00"}}"#,
            ),
            "10:05",
            "12:00",
        ),
        (
            "a delay whose end comes before its time",
            Scene::new(r#"{"type":"delay","run_at":"2026-01-05T11:00:00Z","end_at":"2026-01-05T10:30:00Z"}"#),
            "10:05",
            "",
        ),
    ]);
}

#[test]
fn coming_times_follow_the_calendar() {
    let hours = r#""active_hours":{"start":"09:00","end":"11:00"}"#;
    let timed = |trigger: &str, policies: &str| {
        Scene::new(&format!("{},{policies}}}", trigger.trim_end_matches('}')))
    };
    let end = r#""end_at":"2026-01-05T12:00:00Z""#;
    check(vec![
        ("cron in its hours", timed(HOURLY, hours), "10:05", "01-06 09:00 01-06 10:00 01-07 09:00"),
        (
            "an interval in its hours",
            timed(EVERY, hours).last_run("10:53"),
            "10:55",
            "10:58 01-06 09:00 01-06 09:05",
        ),
        (
            "an interval that waits for its hours",
            timed(EVERY, hours).last_run("10:57").waiting("11:02", SkipReason::OutsideHours),
            "12:00",
            "01-06 09:00 01-06 09:05 01-06 09:10",
        ),
        (
            "excluded days",
            timed(HOURLY, r#""exclude_dates":["2026-01-05","2026-01-06"]"#),
            "10:05",
            "01-07 00:00 01-07 01:00 01-07 02:00",
        ),
        ("until its end", timed(HOURLY, end), "10:05", "11:00"),
        ("an interval until its end", timed(EVERY, end).last_run("11:50"), "11:51", "11:55"),
        ("past its end", timed(HOURLY, end), "12:05", ""),
        ("an interval past its end", timed(EVERY, end), "12:05", ""),
        (
            "from its start",
            timed(EVERY, r#""start_at":"2026-01-05T14:00:00Z""#),
            "10:05",
            "14:00 14:05 14:10",
        ),
        (
            "every second, from a distant start",
            timed(r#"{"type":"cron","expression":"* * * * * *"}"#, r#""start_at":"2027-03-01T00:00:00Z""#),
            "10:05",
            "03-01 00:00 03-01 00:00:01 03-01 00:00:02",
        ),
        (
            "hours without a due time",
            timed(r#"{"type":"cron","expression":"0 3 * * *"}"#, hours),
            "10:05",
            "",
        ),
    ]);
}

#[test]
fn coming_times_follow_capacity_budget_and_provider() {
    check(vec![
        (
            "a firing that waits for a place is not shown, later ones are",
            Scene::new(HOURLY).last_due("09:00").waiting("10:00", SkipReason::AtCapacity),
            "10:05",
            "11:00 12:00 13:00",
        ),
        (
            "an interval that waits for a place has no known next firing",
            Scene::new(EVERY).last_run("09:00").waiting("09:05", SkipReason::AtCapacity),
            "10:05",
            "",
        ),
        (
            "without budget, the firings of today are skipped",
            poor(HOURLY, 5, 0).last_due("10:00"),
            "10:05",
            "01-06 00:00 01-06 01:00 01-06 02:00",
        ),
        (
            "an interval waits for budget",
            poor(EVERY, 5, 0).last_run("09:00").waiting("09:05", SkipReason::OverBudget),
            "10:05",
            "01-06 00:00 01-06 00:05 01-06 00:10",
        ),
        ("running jobs may leave budget", poor(HOURLY, 3, 2).last_due("10:00"), "10:05", "11:00 12:00 13:00"),
        (
            "an interval that is due waits until running jobs leave budget, at an unknown time",
            poor(EVERY, 3, 2).last_run("09:00"),
            "10:05",
            "",
        ),
        (
            "used up: the first firing creates a job that waits, and the others are skipped",
            parked(HOURLY, "13:30").last_due("10:00"),
            "10:05",
            "11:00 14:00 15:00",
        ),
        (
            "used up: a job waits already",
            parked(HOURLY, "13:30").last_due("10:00").job("clock", PENDING),
            "10:05",
            "14:00 15:00 16:00",
        ),
        (
            "an interval continues after the usage limit",
            parked(EVERY, "13:30").last_run("10:03"),
            "10:05",
            "10:08 13:35 13:40",
        ),
        (
            "unknown while the job of an interval waits",
            parked(EVERY, "13:30").last_run("10:03").job("clock", PENDING),
            "10:05",
            "",
        ),
        ("a limit that has ended", parked(HOURLY, "10:00").last_due("10:00"), "10:05", "11:00 12:00 13:00"),
    ]);
    let mut queues = parked(HOURLY, "13:30").last_due("10:00").job("clock", PENDING);
    queues.roster.agents[0].schedules[0].timing.overlap = crate::policy::Overlap::Queue;
    assert_eq!(coming(&queues, "10:05"), "11:00 12:00 13:00", "`overlap: queue` skips none");
}

#[test]
fn coming_times_can_start_at_a_later_time() {
    let late = "2026-03-01T00:00";
    assert_eq!(from(&Scene::new(HOURLY), "10:05", late, 2), "03-01 01:00 03-01 02:00");
    assert_eq!(from(&Scene::new(EVERY).last_run("10:03"), "10:05", late, 2), "03-01 00:03 03-01 00:08");
    let delay = Scene::new(r#"{"type":"delay","run_at":"2026-01-05T11:00:00Z"}"#);
    assert_eq!(from(&delay, "10:05", late, 2), "");
    let park = parked(HOURLY, "13:30").last_due("10:00");
    assert_eq!(from(&park, "10:05", "11:30", 2), "14:00 15:00", "the firing at 11:00 counts");
}

#[test]
fn listed_times_can_start_in_the_past() {
    let times = |scene: &Scene, from: &str, count: usize| {
        let outlook = Outlook::new(at("10:05"), &scene.roster, &scene.snapshot);
        let agent = &scene.roster.agents[0];
        let times = outlook.times(agent, &agent.schedules[0], at(from), count);
        times.into_iter().map(short).collect::<Vec<_>>().join(" ")
    };
    let hourly = || Scene::new(HOURLY).last_due("10:00");
    assert_eq!(times(&hourly(), "08:00", 4), "09:00 10:00 11:00 12:00");
    assert_eq!(times(&hourly(), "08:00", 1), "09:00");
    assert_eq!(times(&hourly(), "10:30", 2), "11:00 12:00", "a start in the future");
    let calendar = r#"{"type":"cron","expression":"0 * * * *","exclude_dates":["2026-01-04"]}"#;
    assert_eq!(times(&Scene::new(calendar), "2026-01-03T22:00", 3), "01-03 23:00 00:00 01:00");
    assert_eq!(times(&Scene::new(EVERY).last_run("10:03"), "08:00", 2), "10:08 10:13", "no past times");
    let off = state(HOURLY, ScheduleState::Disabled { why: DisabledBy::Person });
    assert_eq!(times(&off, "08:00", 2), "");
}

/// With jitter, a due time can be in the past and its firing in the future.
#[test]
fn coming_times_include_jitter() {
    let mut scene = Scene::new(HOURLY).last_due("09:00");
    scene.roster.agents[0].schedules[0].timing.jitter = serde_json::from_str("10").unwrap();
    let outlook = Outlook::new(at("10:00"), &scene.roster, &scene.snapshot);
    let agent = &scene.roster.agents[0];
    let next = outlook.next(agent, &agent.schedules[0]).unwrap();
    assert!(next > at("10:00") && next < at("10:06"), "{next}");
    let wake = plan(at("10:00"), &scene.roster, &scene.snapshot).wake_at;
    assert_eq!(wake, Some(next), "the plan waits for the time that is shown");
}
