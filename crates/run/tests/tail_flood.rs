//! Agents that write too much: all output is read with little memory. This test has its own process, because it
//! measures the memory of the whole process.

#![expect(clippy::unwrap_used, reason = "clippy.toml allows it in #[test] functions, not in those they call")]

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use cowhand_run::redact::Redactor;
use cowhand_run::runtime::Reader;
use cowhand_run::tail::{TailFiles, Tailer};
use serde_json::Value;

const MIB: u64 = 1 << 20;

fn open(folder: &Path, reader: Reader) -> Tailer {
    let files = TailFiles {
        stdout: folder.join("stdout"),
        stderr: folder.join("stderr"),
        jsonl: folder.join("job.jsonl"),
        index: folder.join("job.index"),
        attempt: 1,
        previous_ending: None,
    };
    Tailer::open(files, reader, Redactor::default(), "2026-01-01T00:00:00Z".parse().unwrap()).unwrap()
}

/// Returns the peak memory of this process, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn advance(tail: &mut Tailer) -> u64 {
    let mut lines = 0;
    loop {
        lines += tail.advance("2026-01-01T00:00:00Z".parse().unwrap()).unwrap();
        if !tail.is_behind() {
            return lines;
        }
    }
}

/// There is only one test, so that nothing else runs in this process.
#[test]
fn floods_and_endless_lines_fit_in_little_memory() {
    let before = peak();
    flood(80 * MIB);
    endless_line(Reader::command(), 80 * MIB);
    endless_line(Reader::claude(), 80 * MIB);
    short_lines();
    let used = peak() - before;
    println!("{used} KiB more at the peak, from {before} KiB");
    assert!(used < 64 << 10, "{used} KiB more than before");
}

fn flood(bytes: u64) {
    let folder = tempfile::tempdir().unwrap();
    let mut file = BufWriter::new(File::create(folder.path().join("stdout")).unwrap());
    let filling = "abcdefghij".repeat(409);
    let count = bytes / 4096;
    for line in 0..count {
        writeln!(file, "{line} {filling}").unwrap();
    }
    drop(file);
    let mut tail = open(folder.path(), Reader::command());
    assert_eq!(advance(&mut tail), count);
    let lines = BufReader::new(File::open(folder.path().join("job.jsonl")).unwrap()).lines();
    for (number, line) in lines.enumerate() {
        let begin = format!("{{\"type\":\"system\",\"content\":\"{number} abc");
        assert!(line.unwrap().starts_with(&begin), "line {number}");
    }
}

/// Writes a line of NUL bytes, whose JSON escapes are the longest. The bytes are written, because gaps are not read.
fn endless_line(reader: Reader, bytes: u64) {
    let folder = tempfile::tempdir().unwrap();
    let mut file = File::create(folder.path().join("stdout")).unwrap();
    for _ in 0..bytes / MIB {
        file.write_all(&vec![0; 1 << 20]).unwrap();
    }
    drop(file);
    let mut tail = open(folder.path(), reader);
    assert_eq!(advance(&mut tail), 0);
    let mut file = File::options().append(true).open(folder.path().join("stdout")).unwrap();
    file.write_all(b"\nafter\n").unwrap();
    assert_eq!(advance(&mut tail), 2);
    let written = std::fs::read_to_string(folder.path().join("job.jsonl")).unwrap();
    let (long, after) = written.split_once('\n').unwrap();
    assert!(long.len() as u64 <= MIB);
    let content = serde_json::from_str::<Value>(long).unwrap()["content"].as_str().unwrap().to_owned();
    let (kept, marker) = content.split_once("[… ").unwrap();
    let cut: u64 = marker.strip_suffix(" bytes cut …]").unwrap().parse().unwrap();
    assert_eq!(kept.len() as u64 + cut, bytes, "all that is missing is counted");
    assert!(after.contains("\"after\""));
}

/// Reads short lines. Each becomes a message that is many times longer.
fn short_lines() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("stdout"), "\n".repeat(200_000)).unwrap();
    assert_eq!(advance(&mut open(folder.path(), Reader::command())), 200_000);
}
