//! Durable deliveries of webhooks to an agent that has no free place.

use std::fs::{self, File};
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use super::Bench;
use super::agent::Program;
use super::config::Config;
use super::daemon::{Daemon, wait_for};
use super::database::Database;
use super::figure::Figure;
use super::http::Http;
use super::queue::WEBHOOK;
use super::samples::Samples;

const BODY_BYTES: usize = 1_024;

pub(crate) fn measure(bench: &Bench) -> Vec<Figure> {
    let time = Duration::from_secs(bench.size(2, 10));
    let mut figures = Vec::new();
    for (clients, least) in [(1, 1_200.0), (8, 4_000.0), (64, 8_000.0)] {
        // The speed of a disk varies, so its limit is measured directly before and after.
        let before = syncs(time / 4);
        let (per_second, times) = deliveries(bench, clients, time);
        let limit = before.max(syncs(time / 4));
        let name = format!("webhooks of {clients} {}", if clients == 1 { "client" } else { "clients" });
        figures.push(Figure::new(name.clone(), per_second, "/s").limit(limit).at_least(least));
        let slow = Figure::new(format!("{name}, p99"), times.p99(), "ms");
        figures.push(if clients == 8 { slow.at_most(10.0) } else { slow });
    }
    figures
}

/// Returns how many appends of 1 KB a file takes in a second, each of them synced.
fn syncs(time: Duration) -> f64 {
    let mut file: File = tempfile::tempfile().unwrap();
    let (begin, mut count) = (Instant::now(), 0);
    while begin.elapsed() < time {
        file.write_all(&[b'x'; BODY_BYTES]).unwrap();
        file.sync_data().unwrap();
        count += 1;
    }
    f64::from(count) / begin.elapsed().as_secs_f64()
}

fn deliveries(bench: &Bench, clients: usize, time: Duration) -> (f64, Samples) {
    let config = Config::new().agent("worker", 1, &Program::shell("exec sleep 1000"), WEBHOOK);
    let daemon = Daemon::start(bench, &config);
    Http::connect(daemon.address()).deliver("worker", "first", "{}");
    wait_for("the job that takes the place", || Database::Sqlite.jobs(&daemon, "running") == 1);
    let begin = Instant::now();
    let times = thread::scope(|scope| {
        let send = |client| send(&daemon, client, begin + time);
        let clients: Vec<_> = (0..clients).map(|client| scope.spawn(move || send(client))).collect();
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect::<Vec<f64>>()
    });
    let per_second = times.len() as f64 / begin.elapsed().as_secs_f64();
    assert_eq!(Database::Sqlite.jobs(&daemon, "pending"), times.len(), "each delivery is a job");
    let views = || fs::read_dir(daemon.state("jobs")).map_or(0, Iterator::count);
    wait_for("the views of all jobs", || views() > times.len());
    (per_second, Samples::of(times))
}

/// Sends one delivery after the other, and returns the time of each in milliseconds.
fn send(daemon: &Daemon, client: usize, until: Instant) -> Vec<f64> {
    let mut http = Http::connect(daemon.address());
    let mut times = Vec::new();
    while Instant::now() < until {
        let id = format!("{client}-{}", times.len());
        let filler = "x".repeat(BODY_BYTES - 20 - id.len());
        let begin = Instant::now();
        let answer = http.deliver("worker", &id, &format!("{{\"id\":\"{id}\",\"text\":\"{filler}\"}}"));
        times.push(begin.elapsed().as_secs_f64() * 1e3);
        assert_eq!(answer["status"], "accepted");
    }
    times
}
