//! Codex's own record of a thread, which Codex calls a rollout. The record states the usage of the thread so far, the
//! usage windows of the account, and when usage limits end.

use std::path::Path;

use cowhand_core::percent::Percent;
use cowhand_core::provider::{UsageWindow, WindowReport};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::super::session_file;
use super::Tokens;

/// Returns the time at which the last of the reached usage limits ends. The last line of the record that states a
/// reached limit counts. Returns `None` if there is no such line.
pub(super) fn resets_at(home: &Path, thread: &str) -> Option<Timestamp> {
    let record = session_file::find(&home.join("sessions"), &format!("-{thread}.jsonl"), 3)?;
    session_file::last_value(record, "\"rate_limits\"", |line| {
        let limits = line.get("payload")?.get("rate_limits")?;
        let windows = ["primary", "secondary"].into_iter().filter_map(|name| limits.get(name));
        let full = windows.filter(|window| window["used_percent"].as_f64().is_some_and(|used| used >= 100.0));
        full.filter_map(|window| window["resets_at"].as_i64()).max()
    })
    .and_then(|second| Timestamp::from_second(second).ok())
}

/// Returns the last report about each usage window of the account.
pub(super) fn windows(home: &Path, thread: &str) -> Vec<WindowReport> {
    let record = session_file::find(&home.join("sessions"), &format!("-{thread}.jsonl"), 3);
    let reports =
        record.and_then(|record| session_file::last_value(record, "\"rate_limits\"", window_reports));
    reports.unwrap_or_default()
}

/// Reads the windows of a line of the record. A line without windows, or about the limit of a single model, is no
/// report. The time of the line is needed, because the record of a continued thread has reports of earlier attempts.
fn window_reports(line: &Value) -> Option<Vec<WindowReport>> {
    let at: Timestamp = line["timestamp"].as_str()?.parse().ok()?;
    let limits = &line["payload"]["rate_limits"];
    if limits["limit_id"].as_str().is_some_and(|id| id != "codex") {
        return None;
    }
    let report = |name| {
        let stated = &limits[name];
        let used = Percent::of_part(stated["used_percent"].as_f64()? / 100.0)?;
        // Without a length, the first window is the short one.
        let usual = if name == "primary" { UsageWindow::FiveHour } else { UsageWindow::Weekly };
        let window = stated["window_minutes"].as_u64().map_or(Some(usual), UsageWindow::of_minutes)?;
        let after = || at.checked_add(SignedDuration::from_secs(stated["resets_in_seconds"].as_i64()?)).ok();
        let resets_at = stated["resets_at"].as_i64().and_then(|second| Timestamp::from_second(second).ok());
        Some(WindowReport { window, used, resets_at: resets_at.or_else(after)?, at: Some(at) })
    };
    let reports: Vec<_> = ["primary", "secondary"].into_iter().filter_map(report).collect();
    (!reports.is_empty()).then_some(reports)
}

/// Returns the usage of a thread, or zero if there is no record. Codex cannot resume a thread without a record.
pub(super) fn used(home: &Path, thread: &str) -> Tokens {
    // The records are in folders by year, month and day.
    let record = session_file::find(&home.join("sessions"), &format!("-{thread}.jsonl"), 3);
    let used = record.and_then(|record| {
        session_file::last_value(record, "\"token_count\"", |line| {
            Some(Tokens::read(line.get("payload")?.get("info")?.get("total_token_usage")?))
        })
    });
    used.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_last_report_about_windows_is_used() {
        let home = tempfile::tempdir().unwrap();
        let day = home.path().join("sessions/2026/11/15");
        fs::create_dir_all(&day).unwrap();
        let line = |limits: &str| {
            let payload = format!(r#"{{"type":"token_count","info":null,"rate_limits":{limits}}}"#);
            format!(r#"{{"timestamp":"2026-11-15T06:00:00Z","type":"event_msg","payload":{payload}}}"#)
        };
        let shown = |lines: &[String]| {
            fs::write(day.join("rollout-2026-11-15T06-00-00-t-1.jsonl"), lines.join("\n")).unwrap();
            let shown =
                |report: WindowReport| format!("{} {} {}", report.window, report.used, report.resets_at);
            windows(home.path(), "t-1").into_iter().map(shown).collect::<Vec<_>>().join(", ")
        };
        let both = r#"{"limit_id":"codex","primary":{"used_percent":12.5,"window_minutes":299,"resets_at":1794738000},
            "secondary":{"used_percent":80,"window_minutes":10080,"resets_in_seconds":3600},"plan_type":"pro"}"#;
        let both = both.replace('\n', "");
        let shown_both = "five_hour 12.5% 2026-11-15T10:20:00Z, weekly 80% 2026-11-15T07:00:00Z";
        for (limits, expected) in [
            (both.as_str(), shown_both),
            (
                r#"{"primary":{"used_percent":5,"resets_in_seconds":60},"secondary":null}"#,
                "five_hour 5% 2026-11-15T06:01:00Z",
            ),
            (
                r#"{"primary":{"used_percent":5,"window_minutes":10080,"resets_in_seconds":60}}"#,
                "weekly 5% 2026-11-15T06:01:00Z",
            ),
            (r#"{"primary":{"used_percent":5,"window_minutes":43200,"resets_in_seconds":60}}"#, ""),
            (r#"{"primary":{"used_percent":5,"window_minutes":300}}"#, ""),
            (r#"{"primary":{"resets_in_seconds":60}}"#, ""),
            ("null", ""),
        ] {
            assert_eq!(shown(&[line(limits)]), expected, "{limits}");
        }
        let of_model = line(r#"{"limit_id":"other","primary":{"used_percent":99,"resets_in_seconds":60}}"#);
        assert_eq!(shown(&[line(&both), of_model, line("null"), "{half".to_owned()]), shown_both);
        let undated = line(&both).replace("timestamp", "time");
        assert_eq!(shown(&[undated]), "");
        assert_eq!(windows(home.path(), "t-2"), []);
    }

    #[test]
    fn the_last_token_count_is_used() {
        let home = tempfile::tempdir().unwrap();
        let day = home.path().join("sessions/2026/11/15");
        fs::create_dir_all(&day).unwrap();
        let count = |input: u64| {
            format!(
                r#"{{"type":"event_msg","payload":{{"type":"token_count","info":{{"total_token_usage":{{"input_tokens":{input},"cached_input_tokens":1,"output_tokens":2}}}}}}}}"#
            )
        };
        let none = r#"{"type":"event_msg","payload":{"type":"token_count","info":null}}"#;
        let lines = [count(5), "{half".to_owned(), count(9), none.to_owned()].join("\n");
        fs::write(day.join("rollout-2026-11-15T06-00-00-t-1.jsonl"), lines).unwrap();
        let expected = Tokens { input: 9, cached: 1, written: 0, output: 2 };
        assert_eq!(used(home.path(), "t-1"), expected);
        assert_eq!(used(home.path(), "t-2"), Tokens::default());
    }
}
