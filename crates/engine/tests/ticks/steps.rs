//! Steps of the clock, suspension and reboots, and the end of schedules.

use cowhand_core::job::{ErrorKind, FailReason, JobError};
use cowhand_core::schedule::ScheduleState;

use super::*;

on_both! {
    an_interval_waits_one_interval_at_most,
    a_step_forward_brings_no_interval_earlier,
    cron_continues_from_the_new_time,
    due_times_that_a_step_skips_are_missed,
    a_step_does_not_change_the_wait_of_a_retry,
    a_step_does_not_change_the_length_of_a_pause,
    a_lease_is_not_lost_by_a_step,
    suspended_is_missed_and_late_is_not,
    run_all_makes_up_each_firing_of_an_outage,
    the_end_of_a_schedule,
    an_enabled_interval_waits_one_interval,
}

const MINUTELY: &str = r#"{"type":"cron","expression":"* * * * *"}"#;
const HOURLY: &str = r#"{"type":"cron","expression":"0 * * * *"}"#;

fn failed() -> Outcome {
    let error = JobError { kind: ErrorKind::Exit, message: "it broke".into() };
    Outcome::Failed { reason: FailReason::Error, error, summary: None }
}

fn with_misfire(policy: &str) -> String {
    format!(r#"{{"type":"cron","expression":"0 * * * *","misfire":"{policy}"}}"#)
}

async fn an_interval_waits_one_interval_at_most(database: &str) {
    let mut story = Story::begin(database, "2026-01-05T10:00:00Z", &[("poll", EVERY)]).await;
    story.until("2026-01-05T10:04:00Z").await;
    story.started();
    // Two of its five minutes have passed.
    story.set_clock("2026-01-05T09:00:00Z").await;
    story.until("2026-01-05T09:04:00Z").await;
    assert_eq!(story.started(), ["05 09:03 poll"], "set back");
    story.until("2026-01-05T09:06:00Z").await;
    story.restart_at("2026-01-05T09:07:00Z").await;
    story.set_clock("2026-01-05T08:00:00Z").await;
    story.until("2026-01-05T08:04:00Z").await;
    assert_eq!(story.started(), ["05 08:03 poll"], "and again, with another daemon");
    story.until("2026-01-05T08:06:00Z").await;
    story.reboot_at("2026-01-05T07:00:00Z").await;
    story.until("2026-01-05T07:06:00Z").await;
    assert_eq!(story.started(), ["05 07:05 poll"], "another boot: nobody knows how long it has waited");
    story.until("2026-01-05T07:08:00Z").await;
    story.reboot_at("2026-01-05T07:10:00Z").await;
    story.until("2026-01-05T07:13:00Z").await;
    assert_eq!(story.started(), ["05 07:12 poll"], "another boot with a clock that goes on");
}

async fn a_step_forward_brings_no_interval_earlier(database: &str) {
    let mut story = Story::begin(database, "2026-01-05T10:00:00Z", &[("poll", EVERY)]).await;
    story.until("2026-01-05T10:04:00Z").await;
    story.started();
    story.set_clock("2026-01-06T10:00:00Z").await;
    story.until("2026-01-06T10:04:00Z").await;
    assert_eq!(story.started(), ["06 10:03 poll"]);
}

async fn cron_continues_from_the_new_time(database: &str) {
    let mut story = Story::begin(database, "2026-01-05T10:00:30Z", &[("s", MINUTELY)]).await.job_takes(0);
    story.until("2026-01-05T10:03:30Z").await;
    assert_eq!(story.started(), ["05 10:01 s", "05 10:02 s", "05 10:03 s"]);
    story.set_clock("2026-01-05T09:58:30Z").await;
    story.until("2026-01-05T10:04:30Z").await;
    let expected = ["05 09:59 s", "05 10:00 s", "05 10:04 s"];
    assert_eq!(story.started(), expected, "what has a row in the ledger never fires again");
}

async fn due_times_that_a_step_skips_are_missed(database: &str) {
    for (policy, starts, rows) in [
        (
            "run_once",
            vec!["05 13:10 s"],
            vec!["10:00 ran", "11:00 coalesced", "12:00 coalesced", "13:00 ran"],
        ),
        ("skip", vec![], vec!["10:00 ran", "11:00 missed", "12:00 missed", "13:00 missed"]),
    ] {
        let hourly = with_misfire(policy);
        let mut story = Story::begin(database, "2026-01-05T09:59:00Z", &[("s", &hourly)]).await;
        story.until("2026-01-05T10:30:00Z").await;
        story.started();
        story.set_clock("2026-01-05T13:10:00Z").await;
        assert_eq!(story.started(), starts, "{policy}");
        assert_eq!(story.ledger().await, rows, "{policy}");
    }
}

async fn a_step_does_not_change_the_wait_of_a_retry(database: &str) {
    let begin = async || {
        let mut story = Story::begin(database, "2026-01-05T09:59:00Z", &[("s", HOURLY)]).await;
        story.retry = serde_json::from_str(r#"{"max_attempts":2,"backoff":"10m"}"#).unwrap();
        story.outcome = failed();
        story.until("2026-01-05T10:04:00Z").await;
        assert_eq!(story.started(), ["05 10:00 s"]);
        story
    };
    let mut story = begin().await;
    story.set_clock("2026-01-05T09:04:00Z").await;
    story.until("2026-01-05T09:13:00Z").await;
    assert_eq!(story.started(), ["05 09:12 s"], "set back");
    let mut story = begin().await;
    story.set_clock("2026-01-05T10:34:00Z").await;
    story.until("2026-01-05T10:43:00Z").await;
    assert_eq!(story.started(), ["05 10:42 s"], "set forward");
    let mut story = begin().await;
    story.reboot_at("2026-01-05T09:04:00Z").await;
    assert_eq!(story.started(), ["05 09:04 s"], "set back and booted: nobody knows how long it has waited");
}

async fn a_step_does_not_change_the_length_of_a_pause(database: &str) {
    let mut story = Story::begin(database, "2026-01-05T10:00:00Z", &[("poll", EVERY)]).await;
    let id = story.roster.agents[0].schedules[0].id;
    story.until("2026-01-05T10:01:00Z").await;
    // With this failure, its breaker pauses the schedule for 15 minutes.
    let (job, epoch, _) = story.running.pop().unwrap();
    let breaker = serde_json::from_str(r#"{"failures":1,"pause":"15m"}"#).unwrap();
    let settlement = cowhand_core::attempt::Settlement { breaker: Some(breaker), ..failed().into() };
    story.store.settle(job, epoch, settlement, Retry::default(), story.now).await.unwrap();
    let state = async |story: &Story| story.store.schedule(id).await.unwrap().unwrap().state;
    story.set_clock("2026-01-05T09:01:00Z").await;
    story.until("2026-01-05T09:15:00Z").await;
    assert!(matches!(state(&story).await, ScheduleState::Paused { .. }));
    story.set_clock("2026-01-05T12:15:00Z").await;
    assert!(matches!(state(&story).await, ScheduleState::Paused { .. }));
    story.until("2026-01-05T12:16:00Z").await;
    assert_eq!(state(&story).await, ScheduleState::Active);
}

/// On PostgreSQL the database's clock counts, which the test does not set.
async fn a_lease_is_not_lost_by_a_step(database: &str) {
    let mut story = Story::begin(database, "2026-01-05T10:00:00Z", &[("poll", EVERY)]).await.job_takes(600);
    story.lease = SignedDuration::from_mins(1);
    story.tick().await;
    let job = story.running[0].0.clone();
    let status =
        async |story: &Story| story.store.job(job.clone()).await.unwrap().unwrap().status().to_string();
    story.set_clock("2026-01-06T10:00:00Z").await;
    assert_eq!(status(&story).await, "running", "set forward");
    story.set_clock("2026-01-04T10:00:00Z").await;
    story.hang_until("2026-01-04T10:00:59Z").await;
    assert_eq!(status(&story).await, "running", "set back");
    if database == "sqlite" {
        story.hang_until("2026-01-04T10:01:00Z").await;
        assert_eq!(status(&story).await, "failed", "nobody has renewed it");
    }
}

async fn suspended_is_missed_and_late_is_not(database: &str) {
    for policy in ["skip", "run_all"] {
        let hourly = with_misfire(policy);
        let begin = async || {
            let mut story = Story::begin(database, "2026-01-05T09:59:00Z", &[("s", &hourly)]).await;
            story.until("2026-01-05T10:30:00Z").await;
            story
        };
        let mut story = begin().await;
        story.sleep_until("2026-01-05T12:10:00Z").await;
        let outcome = if policy == "skip" { "missed" } else { "ran" };
        let rows = ["10:00 ran".to_owned(), format!("11:00 {outcome}"), format!("12:00 {outcome}")];
        assert_eq!(story.ledger().await, rows, "{policy}");
        let mut story = begin().await;
        story.hang_until("2026-01-05T12:10:00Z").await;
        let rows = match policy {
            "skip" => ["10:00 ran", "11:00 coalesced", "12:00 ran"],
            _ => ["10:00 ran", "11:00 ran", "12:00 skipped"],
        };
        assert_eq!(story.ledger().await, rows, "{policy}");
    }
}

async fn run_all_makes_up_each_firing_of_an_outage(database: &str) {
    let often = r#"{"type":"cron","expression":"*/2 * * * * *","misfire":"run_all"}"#;
    let mut story = Story::begin(database, "2026-01-05T10:00:01Z", &[("s", often)]).await;
    story.tick().await;
    story.restart_at("2026-01-05T10:01:36Z").await;
    let rows = story.store.ledger(story.roster.agents[0].schedules[0].id, 100).await.unwrap();
    let ran = rows.iter().filter(|row| row.outcome.as_str() == "ran").count();
    assert_eq!((rows.len(), ran), (48, 47), "the one that is due now is not among those that were missed");
}

async fn the_end_of_a_schedule(database: &str) {
    let ends = |end: &str, rest: &str| format!(r#"{{{rest},"end_at":"{end}"}}"#);
    let cron = ends("2026-01-05T11:30:00Z", r#""type":"cron","expression":"0 * * * *""#);
    let every = ends("2026-01-05T10:20:00Z", r#""type":"interval","interval":"5m""#);
    let mut story = Story::begin(database, "2026-01-05T09:59:00Z", &[("s", &cron), ("t", &every)]).await;
    story = story.places(2);
    story.until("2026-01-05T15:30:00Z").await;
    assert_eq!(story.ledger().await, ["10:00 ran", "11:00 ran"], "no row for what is over");
    let states = async |story: &Story| {
        let all = story.store.schedules().await.unwrap();
        all.into_iter().map(|schedule| schedule.state).collect::<Vec<_>>()
    };
    assert_eq!(states(&story).await, [ScheduleState::Finished, ScheduleState::Finished]);
    let events = story.store.events_after(0, 1_000).await.unwrap();
    let finished = events.iter().filter(|event| event.fact.type_name() == "schedule:finished").count();
    assert_eq!(finished, 2, "told once");
    // A later end lets the schedule continue, and nothing is made up.
    for schedule in &mut story.roster.agents[0].schedules {
        schedule.timing.end_at = Some("2026-01-05T16:30:00Z".parse().unwrap());
    }
    story.started();
    story.restart_at("2026-01-05T15:40:00Z").await;
    assert_eq!(states(&story).await, [ScheduleState::Active, ScheduleState::Active]);
    story.until("2026-01-05T16:01:00Z").await;
    assert_eq!(story.ledger().await, ["10:00 ran", "11:00 ran", "16:00 ran"]);
}

async fn an_enabled_interval_waits_one_interval(database: &str) {
    let mut story = Story::begin(database, "2026-01-05T10:00:00Z", &[("poll", EVERY)]).await;
    let id = story.roster.agents[0].schedules[0].id;
    story.store.disable(id, cowhand_core::schedule::DisabledBy::Person, story.now).await.unwrap();
    story.until("2026-01-05T10:10:00Z").await;
    story.store.enable(id, story.now).await.unwrap();
    story.tick().await;
    assert_eq!(story.started(), ["05 10:10 poll"], "it never ran: at once");
    story.until("2026-01-05T10:14:00Z").await;
    story.store.disable(id, cowhand_core::schedule::DisabledBy::Person, story.now).await.unwrap();
    story.until("2026-01-05T11:00:00Z").await;
    story.store.enable(id, story.now).await.unwrap();
    story.until("2026-01-05T11:06:00Z").await;
    assert_eq!(story.started(), ["05 11:05 poll"], "it ran before: one interval later");
}
