//! `cowhand schedule next` as people and scripts see it: exit code, stdout and stderr of the real binary.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in #[test] functions, not in those they call")]

use std::process::Command;

use insta::assert_snapshot;

/// Runs the binary and returns its exit code and output, for a snapshot.
fn schedule_next(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_cowhand"))
        .args(["schedule", "next"])
        .args(arguments)
        .env_clear()
        .env("TZ", "UTC")
        .output()
        .unwrap();
    format!(
        "exit code {}\n----- stdout\n{}----- stderr\n{}",
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap()
    )
}

const AUTUMN: &str = "2026-10-24T12:00:00Z";

#[test]
fn json_is_an_array_of_utc_times() {
    assert_snapshot!(schedule_next(&[
        "--cron",
        "30 2 * * *",
        "--timezone",
        "Europe/Berlin",
        "--from",
        AUTUMN,
        "--count",
        "3",
        "--json",
    ]));
}

#[test]
fn text_shows_local_times_and_how_long_until_then() {
    assert_snapshot!(schedule_next(&[
        "--cron",
        "30 2 * * *",
        "--timezone",
        "Europe/Berlin",
        "--from",
        AUTUMN,
        "--count",
        "3",
    ]));
}

#[test]
fn ten_in_the_system_zone_by_default() {
    assert_snapshot!(schedule_next(&["--cron", "@hourly", "--from", AUTUMN]));
}

#[test]
fn seconds_are_a_sixth_field_in_front() {
    assert_snapshot!(schedule_next(&["--cron", "*/20 * * * * *", "--from", AUTUMN, "--count", "3"]));
}

#[test]
fn a_bad_expression_names_the_field() {
    assert_snapshot!(schedule_next(&["--cron", "0 25 * * *", "--json"]));
}

#[test]
fn an_expression_that_never_matches_is_refused() {
    assert_snapshot!(schedule_next(&["--cron", "0 0 30 2 *"]));
}

#[test]
fn a_bad_zone_is_named() {
    assert_snapshot!(schedule_next(&["--cron", "@daily", "--timezone", "Europe/Berlim"]));
}

#[test]
fn a_bad_time_is_named() {
    assert_snapshot!(schedule_next(&["--cron", "@daily", "--from", "tomorrow"]));
}

#[test]
fn a_count_of_zero_is_refused() {
    assert_snapshot!(schedule_next(&["--cron", "@daily", "--count", "0"]));
}

#[test]
fn help() {
    assert_snapshot!(schedule_next(&["--help"]));
}
