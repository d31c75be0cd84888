//! A large output of one agent.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use super::Bench;
use super::agent::Program;
use super::config::Config;
use super::daemon::{Daemon, wait_for};
use super::database::Database;
use super::figure::Figure;
use super::http::Http;
use super::process::{megabytes, reset_peak};
use super::queue::WEBHOOK;

const FILE: &str = "text";

pub(crate) fn measure(bench: &Bench) -> Vec<Figure> {
    let bytes = bench.size(20_000_000, 200_000_000);
    let long = run(bench, bytes, 500);
    let short = run(bench, bytes, 60);
    let size = bytes / 1_000_000;
    vec![
        Figure::new(format!("output of {size} MB in lines of 500 bytes"), long.megabytes(), "MB/s")
            .limit(long.limit)
            .at_least(250.0),
        Figure::new(format!("output of {size} MB in lines of 60 bytes"), short.megabytes(), "MB/s")
            .limit(short.limit),
        Figure::new("lines of 60 bytes per second", short.lines as f64 / short.seconds, "/s")
            .at_least(500_000.0),
        Figure::new("growth of the daemon's memory meanwhile", long.memory.max(short.memory), "MB"),
    ]
}

/// Run of an agent that prints a file.
struct Printed {
    bytes: usize,
    lines: usize,
    seconds: f64,
    /// Speed of a copy of the file, in MB/s.
    limit: f64,
    /// Growth of the daemon to its peak, in MB.
    memory: f64,
}

impl Printed {
    fn megabytes(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.seconds
    }
}

fn run(bench: &Bench, bytes: usize, line: usize) -> Printed {
    let program = Program::shell(&format!("exec cat {FILE}"));
    let daemon = Daemon::start(bench, &Config::new().agent("worker", 1, &program, WEBHOOK));
    let lines = write_lines(&daemon.path(FILE), bytes, line);
    let limit = bytes as f64 / 1e6 / copy(&program, &daemon.path("."));
    reset_peak(daemon.pid());
    let before = megabytes(daemon.pid(), "VmRSS");
    let begin = Instant::now();
    let answer = Http::connect(daemon.address()).deliver("worker", "1", "{}");
    let job = answer["job"].as_str().expect("the id of the job").to_owned();
    wait_for("the end of the job", || Database::Sqlite.jobs(&daemon, "completed") == 1);
    let seconds = begin.elapsed().as_secs_f64();
    let memory = megabytes(daemon.pid(), "VmHWM") - before;
    check(&daemon.state(&format!("jobs/{job}.jsonl")), lines);
    Printed { bytes, lines, seconds, limit, memory }
}

/// Writes numbered lines of a fixed length, and returns their number.
fn write_lines(path: &Path, bytes: usize, length: usize) -> usize {
    let mut file = BufWriter::new(File::create(path).unwrap());
    let filler = "The agent reports what it did. ".repeat(length / 30 + 1);
    let lines = bytes / length;
    for number in 0..lines {
        let head = format!("line {number:09} ");
        writeln!(file, "{head}{}", &filler[..length - 1 - head.len()]).unwrap();
    }
    lines
}

/// Runs the same program with a file as its output. Returns its seconds.
fn copy(program: &Program, folder: &Path) -> f64 {
    let copy = folder.join("copy");
    let begin = Instant::now();
    let mut command = program.command(folder);
    assert!(command.stdout(File::create(&copy).unwrap()).status().unwrap().success(), "the copy failed");
    let seconds = begin.elapsed().as_secs_f64();
    assert_eq!(fs::metadata(&copy).unwrap().len(), fs::metadata(folder.join(FILE)).unwrap().len());
    fs::remove_file(copy).unwrap();
    seconds
}

/// Checks that the output of the job has each line, in order.
fn check(jsonl: &Path, lines: usize) {
    let mut next = 0;
    for line in BufReader::new(File::open(jsonl).unwrap()).lines() {
        let line = line.unwrap();
        if line.contains(&format!("\"line {next:09} ")) {
            next += 1;
        }
    }
    assert_eq!(next, lines, "lines in the output of the job");
}
