//! CPU and memory of a daemon while many jobs end.

use super::Bench;
use super::daemon::Daemon;
use super::database::Database;
use super::figure::{Figure, thousands};
use super::process::{CpuClock, megabytes};
use super::queue;

/// Jobs that are queued at a time. The queue stays short, so only the number of ended jobs grows.
const BATCH: usize = 100;
const FLAT: f64 = 1.1;

/// State of the daemon after a part of the jobs.
struct Part {
    /// CPU of the daemon for each job, in milliseconds.
    cpu: f64,
    resident: f64,
}

pub(crate) fn measure(bench: &Bench) -> Vec<Figure> {
    let jobs = bench.size(1_000, 12_000);
    let part = bench.size(jobs / 2, jobs / 12);
    let daemon = queue::start_worker(bench, 8, &Database::Sqlite);
    queue::open_gate(&daemon);
    // The first jobs fill caches.
    let mut ended = run(&daemon, 0, BATCH).0;
    let mut parts = Vec::new();
    while ended < jobs {
        let (now, part) = run(&daemon, ended, part.min(jobs - ended));
        ended = now;
        parts.push(part);
    }
    let (first, last) = (parts.first().unwrap(), parts.last().unwrap());
    let jobs = thousands(jobs);
    vec![
        Figure::new(format!("daemon CPU of a job, first of {jobs}"), first.cpu, "ms"),
        Figure::new(format!("daemon CPU of a job, last of {jobs}"), last.cpu, "ms"),
        Figure::new(format!("growth of this CPU over {jobs} jobs"), last.cpu / first.cpu, "×").at_most(FLAT),
        Figure::new(format!("growth of memory over {jobs} jobs"), last.resident / first.resident, "×")
            .at_most(FLAT)
            .note(format!("{:.1} to {:.1} MB", first.resident, last.resident)),
    ]
}

/// Runs more jobs. Returns how many have ended in total.
fn run(daemon: &Daemon, ended: usize, count: usize) -> (usize, Part) {
    let mut clock = CpuClock::start(daemon.pid());
    let mut done = 0;
    while done < count {
        let batch = BATCH.min(count - done);
        queue::deliver(daemon, ended + done, batch);
        done += batch;
        queue::wait_until_completed(daemon, &Database::Sqlite, ended + done);
        clock.look();
    }
    let cpu = clock.milliseconds() / count as f64;
    (ended + count, Part { cpu, resident: megabytes(daemon.pid(), "VmRSS") })
}
