//! The command line with many ended jobs in the store.

use std::process::Command;

use rusqlite::Connection;

use super::Bench;
use super::agent::Program;
use super::config::Config;
use super::daemon::{Daemon, timed};
use super::figure::{Figure, thousands};
use super::queue::WEBHOOK;
use super::samples::Samples;

const AGENTS: usize = 20;

pub(crate) fn measure(bench: &Bench) -> Vec<Figure> {
    let times = bench.size(30, 200);
    let limit = median(times, || timed(&mut Command::new("true")).0);
    let start = median(times, || timed(Command::new(&bench.program).arg("--version")).0);
    let mut figures = vec![Figure::new("command line: --version", start, "ms").limit(limit).at_most(2.1)];
    let program = Program::shell("true");
    let add = |config: Config, index| config.agent(&format!("agent{index}"), 1, &program, WEBHOOK);
    let config = (0..AGENTS).fold(Config::new(), add);
    let mut folder = Daemon::start(bench, &config).stop();
    let mut made = 0;
    for jobs in bench.size(vec![10_000], vec![10_000, 100_000, 1_000_000]) {
        make(&Connection::open(folder.path().join(".cowhand/store.db")).unwrap(), made, jobs);
        made = jobs;
        let daemon = Daemon::start_in(bench, folder).expect("the daemon starts again");
        figures.extend(of_running(&daemon, jobs, times, limit));
        folder = daemon.stop();
    }
    figures
}

fn of_running(daemon: &Daemon, jobs: u32, times: usize, limit: f64) -> Vec<Figure> {
    let list = median(times, || {
        let (time, text) = timed(&mut daemon.command(&["jobs"]));
        assert_eq!(text.lines().filter(|line| line.contains("nightly")).count(), 20, "{text}");
        time
    });
    let status = median(times, || {
        let (time, text) = timed(&mut daemon.command(&["status"]));
        assert!(text.contains("agent19"), "{text}");
        time
    });
    let jobs = thousands(jobs as usize);
    vec![
        Figure::new(format!("command line: list 20 of {jobs} jobs"), list, "ms").limit(limit).at_most(4.7),
        Figure::new(format!("command line: status with {jobs} jobs"), status, "ms").limit(limit).at_most(4.6),
        Figure::new(format!("ready with {jobs} ended jobs"), daemon.ready.as_secs_f64() * 1e3, "ms"),
    ]
}

fn median(times: usize, mut run: impl FnMut() -> f64) -> f64 {
    Samples::of((0..times).map(|_| run()).collect()).p50()
}

/// Creates ended jobs with a prompt and a summary, like those of a real fleet.
fn make(connection: &Connection, from: u32, to: u32) {
    let sql = "with recursive n(i) as (select ?1 union all select i + 1 from n where i + 1 < ?2) \
        insert into jobs (id, agent, schedule, by_trigger, trigger_type, status, exit_reason, started_at, finished_at, \
        prompt, summary, attempt, run_started_at, attempt_started_at) \
        select printf('job-2026-01-01-%06x', i), 'agent' || (i % 20), 'nightly', 1, 'schedule', 'completed', 'success', \
        1767225600000000 + i, 1767225660000000 + i, 'Look at the newest issues and mend what you can.', \
        'Mended two of them, and left a word in the third.', 1, 1767225600000000 + i, null from n";
    connection.execute(sql, (from, to)).unwrap();
}
