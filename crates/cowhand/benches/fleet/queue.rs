//! A queue of jobs that wait for a file: all of them are accepted before the first one runs.

use std::fs;
use std::path::Path;
use std::thread;

use super::Bench;
use super::agent::Program;
use super::config::Config;
use super::daemon::{Daemon, wait_for};
use super::database::Database;
use super::http::Http;

/// File for which the agents wait.
pub(crate) const GATE: &str = "go";
pub(crate) const WEBHOOK: &str = "type: webhook, allow_unsigned: true, prompt: Do the work.";
/// Connections over which deliveries arrive.
const SENDERS: usize = 8;

/// Returns an agent that prints three lines.
pub(crate) fn three_lines() -> Program {
    Program::shell(&format!("while ! [ -e {GATE} ]; do sleep 0.05; done; echo one; echo two; echo three"))
}

/// Starts a fleet with one agent, `worker`, that prints three lines in each job.
pub(crate) fn start_worker(bench: &Bench, places: usize, database: &Database) -> Daemon {
    let config = Config::new().agent("worker", places, &three_lines(), WEBHOOK);
    Daemon::start(bench, &database.of(config))
}

/// Delivers `count` webhooks to `worker`. `round` makes them different from those of other rounds.
pub(crate) fn deliver(daemon: &Daemon, round: usize, count: usize) {
    thread::scope(|scope| {
        for sender in 0..SENDERS {
            scope.spawn(move || {
                let mut http = Http::connect(daemon.address());
                for index in (sender..count).step_by(SENDERS) {
                    let id = format!("{round}-{index}");
                    http.deliver("worker", &id, &format!("{{\"id\": \"{id}\"}}"));
                }
            });
        }
    });
}

pub(crate) fn open_gate(daemon: &Daemon) {
    fs::write(daemon.path(GATE), "").unwrap();
}

pub(crate) fn wait_until_completed(daemon: &Daemon, database: &Database, jobs: usize) {
    // Looking takes time from the daemon.
    wait_for("the end of all jobs", || {
        thread::sleep(database.pause());
        database.jobs(daemon, "completed") >= jobs
    });
}

/// Checks that each job has its output and its view.
pub(crate) fn check_files(daemon: &Daemon, jobs: usize) {
    let folder = daemon.state("jobs");
    let has = |ending: &str, text: &str| {
        let is_whole = |path: &Path| fs::read_to_string(path).is_ok_and(|content| content.contains(text));
        let paths = fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.path());
        paths.filter(|path| path.extension().is_some_and(|found| found == ending) && is_whole(path)).count()
    };
    wait_for("the views of all jobs", || has("yaml", "status: completed") == jobs);
    assert_eq!(has("jsonl", "three"), jobs, "jobs with their output");
}
