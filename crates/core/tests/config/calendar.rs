//! A schedule whose calendar never lets it fire is reported. The time of these tests is [`super::NOW`], a Monday.

use super::mistakes::schedule;
use super::{lines, load_text};

#[test]
fn schedules_that_can_never_fire_are_reported() {
    let cron = |cron: &str, more: &str| format!("{{type: cron, cron: '{cron}', timezone: UTC, {more}}}");
    for (text, expected) in [
        (cron("0 3 * * *", "active_hours: {start: 02:00, end: 04:00}"), None),
        (
            cron("0 3 * * *", "active_hours: {start: 09:00, end: 17:00}"),
            Some("`a/s` can never fire: its `active_hours` allow none of its times change `cron` or `active_hours`"),
        ),
        (
            cron("0 3,12 * * *", "active_hours: {start: 09:00, end: 17:00}"),
            None,
        ),
        // A window over midnight belongs to the day on which it begins.
        (cron("0 3 * * sat", "active_hours: {start: 22:00, end: 06:00, days: [fri]}"), None),
        (
            cron("0 3 * * fri", "active_hours: {start: 22:00, end: 06:00, days: [fri]}"),
            Some("`active_hours` allow none"),
        ),
        (
            cron("0 9 * * sat,sun", "active_hours: {start: 00:00, end: 23:59, days: [mon, tue, wed, thu, fri]}"),
            Some("`active_hours` allow none"),
        ),
        (
            cron("0 9 * * *", "active_hours: {start: 09:00, end: 10:00, timezone: Asia/Tokyo}"),
            Some("the times of `cron` are in UTC, those of `active_hours` in Asia/Tokyo"),
        ),
        (cron("0 0 * * *", "active_hours: {start: 09:00, end: 10:00, timezone: Asia/Tokyo}"), None),
        // This date is a Monday once in 28 years.
        (cron("0 0 29 2 *", "active_hours: {start: 00:00, end: 01:00, days: [mon]}"), None),
        // Equal times are a window of 24 hours, which begins on its day.
        (cron("0 3 * * tue", "active_hours: {start: 09:00, end: 09:00, days: [mon]}"), None),
        (
            cron("0 3 * * mon", "active_hours: {start: 09:00, end: 09:00, days: [mon]}"),
            Some("`active_hours` allow none"),
        ),
        (
            cron("0 3 * * *", "active_hours: {start: 09:00, end: 09:00}"),
            Some("`active_hours` has no effect: without `days`, equal `start` and `end` allow every time"),
        ),
        (
            cron("0 9 24 12 *", "end_at: 2026-12-24T00:00:00Z, start_at: 2026-02-01T00:00:00Z"),
            Some("none of its times is before its `end_at`"),
        ),
        (cron("0 9 24 12 *", "end_at: 2026-12-25T00:00:00Z"), None),
        (
            cron("0 9 24 12 *", "end_at: 2026-12-25T00:00:00Z, exclude_dates: [2026-12-24]"),
            Some("its `exclude_dates` and `end_at` allow none of its times"),
        ),
        (cron("0 9 * * *", "end_at: 2026-01-01T00:00:00Z"), Some("`a/s` has no further due times: its `end_at` (2026-01-01T00:00:00Z) has passed set a later")),
        (cron("0 9 * * *", "enabled: false, end_at: 2026-01-01T00:00:00Z"), None),
        ("{type: interval, interval: 1h, end_at: 2026-01-01T00:00:00Z}".to_owned(), Some("has passed")),
        (
            "{type: webhook, allow_unsigned: true, end_at: 2026-01-01T00:00:00Z}".to_owned(),
            Some("`a/s` does not fire any more: its `end_at` (2026-01-01T00:00:00Z) has passed"),
        ),
        // A missed time before `end_at` still runs.
        (
            "{type: delay, run_at: 2025-12-01T00:00:00Z, end_at: 2026-01-01T00:00:00Z}".to_owned(),
            Some("`a/s` has no further due times: its `end_at` (2026-01-01T00:00:00Z) has passed"),
        ),
        ("{type: manual, end_at: 2026-01-01T00:00:00Z}".to_owned(), None),
        (
            "{type: interval, interval: 1h, end_at: 2026-01-06T00:00:00Z, exclude_dates: [2026-01-05, 2026-01-06]}".to_owned(),
            Some("its `exclude_dates` and `end_at` allow no time"),
        ),
        ("{type: interval, interval: 1h, start_at: 2026-01-01T00:00:00Z}".to_owned(), None),
        (
            "{type: delay, run_at: 2026-03-01T00:00:00Z, end_at: 2026-02-01T00:00:00Z}".to_owned(),
            Some("its `end_at` allows no time from its `run_at` on"),
        ),
        ("{type: delay, run_at: 2026-01-20T00:00:00Z, end_at: 2026-02-01T00:00:00Z}".to_owned(), None),
    ] {
        let loaded = load_text(&schedule(&text));
        let helps = loaded.problems.iter().map(|problem| problem.help.clone().unwrap_or_default());
        let found: Vec<String> =
            lines(&loaded).into_iter().zip(helps).map(|(line, help)| format!("{line} {help}")).collect();
        match expected {
            None => assert!(found.is_empty(), "{text}: {found:#?}"),
            Some(words) => {
                assert_eq!(found.len(), 1, "{text}: {found:#?}");
                assert!(found[0].contains(words), "{text}: {found:#?}");
                assert!(found[0].contains("cowhand.yaml:4:") && found[0].contains("warning:"), "{found:#?}");
            }
        }
    }
}

/// One pass reports everything, also for an agent with an error.
#[test]
fn schedules_of_an_agent_with_an_error_are_checked() {
    let loaded = load_text(
        "agents:\n  - name: a\n    runtime: command\n    command: [x]\n    bogus: 2\n    schedules:\n      s: {type: cron, cron: '0 9 * * *', end_at: 2026-01-01T00:00:00Z}\n",
    );
    let found = lines(&loaded);
    assert!(found.iter().any(|line| line.contains("bogus")), "{found:#?}");
    assert!(found.iter().any(|line| line.contains("`a/s` has no further due times")), "{found:#?}");
}

#[test]
fn wrong_address_of_the_store_is_answered_with_an_example() {
    let loaded =
        load_text("store: mysql://user:secret@host/x\nagents: [{name: a, runtime: command, command: [x]}]\n");
    let found = lines(&loaded).join("\n");
    assert!(found.contains("for example `postgres://user@host/database`"), "{found}");
    assert!(!found.contains("secret"), "{found}");
}
