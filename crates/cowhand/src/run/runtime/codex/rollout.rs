//! Codex's own record of a thread, which says what it has used so far.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Tokens;

/// What a thread had used; nothing if there is no record of it, and then it cannot go on either.
pub(super) fn used(home: &Path, thread: &str) -> Tokens {
    let record = record(&home.join("sessions"), &format!("-{thread}.jsonl"), 4);
    record.and_then(|record| last_count(&record)).unwrap_or_default()
}

/// They lie in folders by year, month and day.
fn record(folder: &Path, ending: &str, depth: usize) -> Option<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
    // The newest first.
    entries.sort_unstable_by(|one, other| other.cmp(one));
    entries.into_iter().find_map(|path| {
        let named =
            path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.ends_with(ending));
        if named {
            Some(path)
        } else if depth > 1 && path.is_dir() {
            record(&path, ending, depth - 1)
        } else {
            None
        }
    })
}

fn last_count(record: &Path) -> Option<Tokens> {
    let lines = BufReader::new(File::open(record).ok()?).split(b'\n');
    let counts =
        lines.map_while(Result::ok).filter(|line| memchr::memmem::find(line, b"\"token_count\"").is_some());
    let total = |line: Vec<u8>| {
        let line: Value = serde_json::from_slice(&line).ok()?;
        let total = line.get("payload")?.get("info")?.get("total_token_usage")?;
        Some(Tokens::read(total))
    };
    counts.filter_map(total).last()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_figure_counts() {
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
