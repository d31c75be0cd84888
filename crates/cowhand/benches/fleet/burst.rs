//! Many schedules that are due at one instant.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::Bench;
use super::agent::{Program, Stamp, nanoseconds, stamps};
use super::clock::{cron_at, sleep_until};
use super::config::Config;
use super::daemon::{Daemon, wait_for};
use super::figure::{Figure, thousands};
use super::http::Http;
use super::queue::WEBHOOK;
use super::samples::Samples;

const FILE: &str = "stamps";
/// Agent whose webhook arrives shortly after the burst. A cron schedule cannot be due between two seconds.
const LATE: &str = "late";
const LATE_BY: u64 = 100_000_000;
const ASK_EVERY: Duration = Duration::from_millis(5);

pub(crate) fn measure(bench: &Bench) -> Vec<Figure> {
    let count = bench.size(200, 1_000);
    let limit = spawns(count);
    // Far enough ahead that a slow daemon is ready.
    let due = nanoseconds() / 1_000_000_000 + bench.size(5, 12);
    let daemon = start(bench, count, due);
    let due = due * 1_000_000_000;
    assert!(nanoseconds() < due, "the daemon was ready only after the burst was due");
    let has_ended = AtomicBool::new(false);
    let asked = thread::scope(|scope| {
        let asked = scope.spawn(|| ask_meanwhile(&daemon, due, &has_ended));
        scope.spawn(|| {
            // The server closes a connection without a request after some seconds.
            sleep_until(due + LATE_BY);
            let mut http = Http::connect(daemon.address());
            http.deliver(LATE, "1", "{}");
        });
        wait_for("the start of all agents", || stamps(&daemon.path(FILE)).len() > count);
        has_ended.store(true, Ordering::Relaxed);
        asked.join().unwrap()
    });
    figures(count, due, limit, &asked, &stamps(&daemon.path(FILE)))
}

fn start(bench: &Bench, count: usize, due: u64) -> Daemon {
    let program = Program::stamp(FILE);
    let schedule = format!("type: cron, cron: '{}', timezone: UTC", cron_at(due));
    let config = Config::new().agent(LATE, 1, &program, WEBHOOK);
    let add = |config: Config, index| config.agent(&format!("a{index}"), 1, &program, &schedule);
    Daemon::start(bench, &(0..count).fold(config, add))
}

fn figures(count: usize, due: u64, limit: f64, asked: &Samples, all: &[Stamp]) -> Vec<Figure> {
    let (late, burst): (Vec<&Stamp>, Vec<&Stamp>) = all.iter().partition(|stamp| stamp.agent == LATE);
    assert_eq!((late.len(), burst.len()), (1, count), "each agent ran once");
    let last = burst.iter().map(|stamp| stamp.nanoseconds).max().unwrap();
    let after = (late[0].nanoseconds as f64 - last as f64) / 1e6;
    let count = thousands(count);
    let name = format!("{count} due at one instant: last one started");
    let last = Figure::new(name, last.saturating_sub(due) as f64 / 1e9, "s").limit(limit);
    vec![
        if count == "1,000" { last.at_most(1.2) } else { last.times_limit(1.2 / 0.34) },
        Figure::new(format!("API p99 while {count} start"), asked.p99(), "ms").at_most(50.0),
        Figure::new(
            format!("a webhook 100 ms later: started after the last of {count}"),
            after.max(0.0),
            "ms",
        )
        .at_most(50.0),
    ]
}

/// Spawns the same program as often, two at a time. Returns the seconds until the last one has started.
fn spawns(count: usize) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let program = Program::stamp(FILE);
    let begin = nanoseconds();
    let worker = || {
        for _ in 0..count / 2 {
            assert!(program.command(folder.path()).status().unwrap().success(), "the spawn failed");
        }
    };
    thread::scope(|scope| {
        scope.spawn(worker);
        scope.spawn(worker);
    });
    let stamps = stamps(&folder.path().join(FILE));
    assert_eq!(stamps.len(), count, "spawns");
    let last = stamps.iter().map(|stamp| stamp.nanoseconds).max().unwrap();
    (last - begin) as f64 / 1e9
}

/// Lists jobs again and again during the burst. Returns the times in milliseconds.
fn ask_meanwhile(daemon: &Daemon, due: u64, has_ended: &AtomicBool) -> Samples {
    let mut api = daemon.api();
    sleep_until(due);
    let mut times = Vec::new();
    while !has_ended.load(Ordering::Relaxed) {
        let begin = Instant::now();
        assert!(api.get("/api/v1/jobs?limit=20")["items"].is_array(), "a list of jobs");
        times.push(begin.elapsed().as_secs_f64() * 1e3);
        thread::sleep(ASK_EVERY);
    }
    Samples::of(times)
}
