//! Delay of live output: from the line that an agent prints to the client that follows its job.

use std::fs;
use std::io::BufRead;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use super::Bench;
use super::agent::{Program, TICK_MARK, nanoseconds};
use super::config::Config;
use super::daemon::{Daemon, wait_for};
use super::database::Database;
use super::figure::Figure;
use super::http::Http;
use super::queue::{GATE, WEBHOOK};
use super::samples::Samples;

const EVERY: Duration = Duration::from_millis(250);

pub(crate) fn measure(bench: &Bench) -> Vec<Figure> {
    let (jobs, lines) = (bench.size(20, 100), bench.size(10, 40));
    let program = Program::tick(GATE, lines, EVERY);
    let limit = pipes(&program, jobs, lines);
    let followed = streams(bench, &program, jobs, lines);
    let name = |percentile| format!("live output of {jobs} jobs, {percentile}");
    vec![
        Figure::new(name("p50"), followed.p50(), "ms").limit(limit.p50()),
        Figure::new(name("p99"), followed.p99(), "ms").limit(limit.p99()).at_most(10.0),
    ]
}

/// Reads the same programs through pipes.
fn pipes(program: &Program, jobs: usize, lines: u32) -> Samples {
    let folder = tempfile::tempdir().unwrap();
    let read = || {
        let mut child = program.command(folder.path()).stdout(Stdio::piped()).spawn().unwrap();
        let delays = delays(&mut std::io::BufReader::new(child.stdout.take().unwrap()));
        child.wait().unwrap();
        delays
    };
    let all = thread::scope(|scope| {
        let readers: Vec<_> = (0..jobs).map(|_| scope.spawn(read)).collect();
        thread::sleep(EVERY);
        fs::write(folder.path().join(GATE), "").unwrap();
        readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect::<Vec<f64>>()
    });
    assert_eq!(all.len(), jobs * lines as usize, "lines in the pipes");
    Samples::of(all)
}

/// Follows each job with its own stream of events.
fn streams(bench: &Bench, program: &Program, jobs: usize, lines: u32) -> Samples {
    let daemon = Daemon::start(bench, &Config::new().agent("worker", jobs, program, WEBHOOK));
    let mut http = Http::connect(daemon.address());
    let mut deliver = |index: usize| {
        let answer = http.deliver("worker", &index.to_string(), "{}");
        answer["job"].as_str().expect("the id of the job").to_owned()
    };
    let ids: Vec<String> = (0..jobs).map(&mut deliver).collect();
    wait_for("all jobs", || Database::Sqlite.jobs(&daemon, "running") == jobs);
    let follow = |id: &String| daemon.api().events(&format!("/api/v1/jobs/{id}/output?follow=1"));
    let streams: Vec<_> = ids.iter().map(follow).collect();
    let all = thread::scope(|scope| {
        let read = |mut stream| scope.spawn(move || delays(&mut stream));
        let readers: Vec<_> = streams.into_iter().map(read).collect();
        fs::write(daemon.path(GATE), "").unwrap();
        readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect::<Vec<f64>>()
    });
    assert_eq!(all.len(), jobs * lines as usize, "lines in the streams");
    Samples::of(all)
}

/// Reads to the end, and returns the age of each line that contains a time, in milliseconds.
fn delays(stream: &mut impl BufRead) -> Vec<f64> {
    let mut delays = Vec::new();
    let mut line = String::new();
    while stream.read_line(&mut line).unwrap() > 0 {
        let now = nanoseconds();
        if let Some((_, rest)) = line.split_once(TICK_MARK) {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            delays.push(now.saturating_sub(digits.parse().unwrap()) as f64 / 1e6);
        }
        line.clear();
    }
    delays
}
