//! Codex's own record of a thread, which Codex calls a rollout. The record states the usage of the thread so far, and
//! when usage limits end.

use std::path::Path;

use jiff::Timestamp;

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
