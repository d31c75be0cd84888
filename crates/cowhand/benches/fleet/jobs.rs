//! Jobs per second from end to end: durable, with views, and with three lines of output each.

use std::io::Read;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use super::Bench;
use super::agent::nanoseconds;
use super::daemon::wait_for;
use super::database::{self, Database};
use super::figure::Figure;
use super::process::{reaped_cpu, tree_cpu};
use super::queue::{self, GATE};

const MOST_CPU_MS: f64 = 2.0;
const LEAST_PER_SECOND: f64 = 500.0;

/// Speed and CPU time of the agents without cowhand.
struct Limit {
    per_second: f64,
    cpu: f64,
}

pub(crate) fn measure(bench: &Bench) -> Vec<Figure> {
    let count = bench.size(300, 2_000);
    let limit = spawns(count);
    let mut figures = Vec::new();
    for places in [2, 8] {
        figures.extend(run(bench, &Database::Sqlite, places, count, &limit));
    }
    match database::postgres() {
        Some(postgres) => figures.extend(run(bench, &postgres, 8, count, &limit)),
        None => eprintln!("PostgreSQL is not installed, so it is not measured"),
    }
    figures
}

/// Spawns the same program and reads its output, two at a time.
fn spawns(count: usize) -> Limit {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(GATE), "").unwrap();
    let program = queue::three_lines();
    let cpu = reaped_cpu(std::process::id());
    let begin = Instant::now();
    let worker = || {
        for _ in 0..count / 2 {
            let mut child = program.command(folder.path()).stdout(Stdio::piped()).spawn().unwrap();
            let mut output = String::new();
            child.stdout.take().unwrap().read_to_string(&mut output).unwrap();
            child.wait().unwrap();
            assert_eq!(output, "one\ntwo\nthree\n");
        }
    };
    thread::scope(|scope| {
        scope.spawn(worker);
        scope.spawn(worker);
    });
    let per_second = count as f64 / begin.elapsed().as_secs_f64();
    Limit { per_second, cpu: (reaped_cpu(std::process::id()) - cpu) / count as f64 }
}

fn run(bench: &Bench, database: &Database, places: usize, count: usize, limit: &Limit) -> Vec<Figure> {
    let daemon = queue::start_worker(bench, places, database);
    queue::deliver(&daemon, 0, count);
    wait_for("the first jobs", || database.jobs(&daemon, "running") == places);
    assert_eq!(database.jobs(&daemon, "pending"), count - places, "all other jobs wait");
    // The views of the waiting jobs are part of the deliveries, which are another group of figures.
    thread::sleep(Duration::from_secs(1));
    let cpu = tree_cpu(daemon.pid());
    let begin = nanoseconds() / 1_000;
    queue::open_gate(&daemon);
    queue::wait_until_completed(&daemon, database, count);
    let end = database.number(&daemon, "select max(finished_at) from jobs") as u64;
    let per_second = count as f64 / ((end - begin) as f64 / 1e6);
    let cpu = (tree_cpu(daemon.pid()) - cpu) / count as f64 - limit.cpu;
    queue::check_files(&daemon, count);
    let name = format!("{}, {places} places", database.name());
    let speed = Figure::new(format!("jobs per second, {name}"), per_second, "/s").limit(limit.per_second);
    let speed = if places == 8 { speed.at_least(LEAST_PER_SECOND) } else { speed };
    let cpu = Figure::new(format!("CPU of a job, daemon and keeper, {name}"), cpu, "ms").limit(limit.cpu);
    vec![speed, cpu.at_most(MOST_CPU_MS)]
}
