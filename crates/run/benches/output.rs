//! Measures the path from an agent's raw stdout to the job's JSONL: `cargo bench -p cowhand-run --bench output`.
//!
//! The limit, in the same run, is a plain copy of the same file. The ratio to the limit can be compared between
//! machines.

#![expect(clippy::unwrap_used, reason = "a benchmark that fails panics")]
#![expect(clippy::cast_precision_loss, reason = "sizes of files")]

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use cowhand_run::redact::Redactor;
use cowhand_run::runtime::Reader;
use cowhand_run::tail::{TailFiles, Tailer};
use jiff::Timestamp;
use serde_json::json;

const MB: u64 = 1_000_000;
const ROUNDS: usize = 3;

/// A kind of output: its name, its reader, and its lines by number.
struct Case {
    name: &'static str,
    reader: fn() -> Reader,
    line: fn(u64) -> String,
}

const CASES: [Case; 7] = [
    Case { name: "command, text of 60 bytes", reader: Reader::command, line: |n| text(n, 60) },
    Case { name: "command, text of 500 bytes", reader: Reader::command, line: |n| text(n, 500) },
    Case { name: "command, text of 5 KB", reader: Reader::command, line: |n| text(n, 5_000) },
    Case { name: "command, coloured text", reader: Reader::command, line: coloured },
    Case { name: "command, JSON log lines", reader: Reader::command, line: log_line },
    Case { name: "command, messages", reader: Reader::command, line: message },
    Case { name: "claude, stream-json", reader: Reader::claude, line: stream_json },
];

fn main() {
    // `cargo test --benches` passes no `--bench` argument. Then one short run shows that the benchmark works.
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let (bytes, rounds) = if is_bench { (200 * MB, ROUNDS) } else { (MB / 10, 1) };
    let only = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    println!("{:<28} {:>8} {:>10} {:>12} {:>9}", "output", "secrets", "MB/s", "lines/s", "of a copy");
    for case in CASES.iter().filter(|case| only.as_ref().is_none_or(|only| case.name.contains(only))) {
        let folder = tempfile::tempdir().unwrap();
        let (size, lines) = write_stdout(folder.path(), case.line, bytes);
        let copy = fastest(rounds, || copy(folder.path()));
        print(case.name, "(copy)", size, lines, copy, copy);
        for secrets in [0, 20] {
            let took = fastest(rounds, || tail(folder.path(), (case.reader)(), secrets, lines));
            print(case.name, &secrets.to_string(), size, lines, took, copy);
        }
    }
}

fn print(name: &str, secrets: &str, size: u64, lines: u64, took: Duration, copy: Duration) {
    let seconds = took.as_secs_f64();
    println!(
        "{name:<28} {secrets:>8} {:>10.1} {:>12.0} {:>9.4}",
        size as f64 / MB as f64 / seconds,
        lines as f64 / seconds,
        copy.as_secs_f64() / seconds
    );
}

fn fastest(rounds: usize, run: impl Fn() -> Duration) -> Duration {
    (0..rounds).map(|_| run()).min().unwrap_or_default()
}

/// Writes about `bytes` bytes of lines, and returns the size and the number of lines.
fn write_stdout(folder: &Path, line: fn(u64) -> String, bytes: u64) -> (u64, u64) {
    let (mut size, mut lines) = (0, 0);
    let mut file = BufWriter::new(File::create(folder.join("stdout")).unwrap());
    while size < bytes {
        let line = line(lines);
        writeln!(file, "{line}").unwrap();
        size += line.len() as u64 + 1;
        lines += 1;
    }
    file.flush().unwrap();
    (size, lines)
}

/// Copies stdout with reads and writes of 256 KiB.
fn copy(folder: &Path) -> Duration {
    let path = folder.join("copy");
    let began = Instant::now();
    let (mut from, mut to) = (File::open(folder.join("stdout")).unwrap(), File::create(&path).unwrap());
    let mut buffer = vec![0; 256 << 10];
    loop {
        let count = std::io::Read::read(&mut from, &mut buffer).unwrap();
        if count == 0 {
            break;
        }
        to.write_all(&buffer[..count]).unwrap();
    }
    let took = began.elapsed();
    fs::remove_file(path).unwrap();
    took
}

fn tail(folder: &Path, reader: Reader, secrets: u64, lines: u64) -> Duration {
    let files = TailFiles {
        stdout: folder.join("stdout"),
        stderr: folder.join("stderr"),
        jsonl: folder.join("job.jsonl"),
        index: folder.join("job.index"),
        attempt: 1,
        previous_ending: None,
    };
    // Each secret has the form of a GitHub token.
    let secrets = (0..secrets).map(|n| format!("ghp_{n:02}{:032x}", u128::from(n + 7).pow(20))).collect();
    let now = Timestamp::UNIX_EPOCH;
    let began = Instant::now();
    let mut tailer = Tailer::open(files.clone(), reader, Redactor::of(secrets), now).unwrap();
    loop {
        tailer.advance(now).unwrap();
        if !tailer.is_behind() {
            break;
        }
    }
    let took = began.elapsed();
    assert!(tailer.lines() >= lines, "{} messages of {lines} lines", tailer.lines());
    drop(tailer);
    fs::remove_file(files.jsonl).unwrap();
    fs::remove_file(files.index).unwrap();
    took
}

const WORDS: &str =
    "Compiling the crate of the queue, then checking that every test of the store passes again; ";

fn text(number: u64, bytes: usize) -> String {
    let mut line = format!("{number:>9} ");
    while line.len() < bytes {
        line.push_str(WORDS);
    }
    line.truncate(bytes - 1);
    line
}

fn coloured(number: u64) -> String {
    format!("\u{1b}[1m\u{1b}[32m   Compiling\u{1b}[0m crate-{number} v1.{number}.0 (crates/part-{number})")
}

fn log_line(number: u64) -> String {
    json!({"level": "info", "time": 1_790_000_000 + number, "target": "store::jobs", "message": WORDS,
        "fields": {"path": "crates/store/src/jobs.rs", "rows": number, "took": 0.25}})
    .to_string()
}

fn message(number: u64) -> String {
    let text = format!("Step {number}:\n{}\n\"{}\"", WORDS.repeat(2), WORDS.repeat(2));
    json!({"type": "assistant", "content": text, "step": number}).to_string()
}

/// A message of the agent, a call of a tool, and the result of the tool, in turn.
fn stream_json(number: u64) -> String {
    let session = "1f3c9c53-7d3e-4f3a-9d5f-3a54a7c0b1d2";
    let usage = json!({"input_tokens": 4, "cache_creation_input_tokens": 1200, "cache_read_input_tokens": 14_000,
        "cache_creation": {"ephemeral_5m_input_tokens": 1200}, "output_tokens": 3, "service_tier": "standard"});
    let of_agent = |block: serde_json::Value| {
        json!({"type": "assistant", "message": {"id": format!("msg_{}", number / 3), "type": "message",
            "role": "assistant", "model": "claude-opus-4-5", "content": [block], "stop_reason": null,
            "stop_sequence": null, "usage": usage}, "parent_tool_use_id": null, "session_id": session,
            "uuid": "0b3a4b43-90a8-4a62-8d1b-6f2a5e1f7c11"})
    };
    let code = "    let rows = self.rows(\"jobs\")?;\n    for row in rows {\n        check(&row)?;\n    }\n";
    let id = format!("toolu_{}", number / 3);
    match number % 3 {
        0 => of_agent(json!({"type": "text", "text": format!("I read the file now.\n\n{}", WORDS.repeat(2))})),
        1 => of_agent(json!({"type": "tool_use", "id": id, "name": "Bash",
            "input": {"command": "sed -n 1,40p crates/store/src/jobs.rs", "description": "Read the file"}})),
        _ => json!({"type": "user", "message": {"role": "user", "content": [{"tool_use_id": id,
            "type": "tool_result", "content": code.repeat(12), "is_error": false}]}, "parent_tool_use_id": null,
            "session_id": session, "tool_use_result": {"stdout": code.repeat(12), "stderr": "",
            "interrupted": false, "isImage": false}}),
    }
    .to_string()
}
