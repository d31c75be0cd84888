//! The daemon dies at each step of claim, run and report: afterwards every item was done once or is
//! available.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use cowhand_core::event::Fact;
use cowhand_core::job::JobStatus;

use crate::{Scene, jobs, stop, until};

/// Declares a test for each step, on each database.
macro_rules! dies_at_every_step {
    ($($step:ident),+ $(,)?) => {
        mod sqlite { $(#[tokio::test] async fn $step() { super::dies_at("sqlite", stringify!($step)).await; })+ }
        mod postgres { $(#[tokio::test] async fn $step() { super::dies_at("postgres", stringify!($step)).await; })+ }
    };
}

// Every durable step, in order.
dies_at_every_step!(
    item_taken,
    work_file_written,
    work_file_replaced,
    item_claimed,
    prepared,
    claimed,
    launched,
    ended,
    settled,
    told,
);

/// Starts a daemon in its own process, which dies at the fault.
fn doomed(scene: &Scene, fault: &str) -> Child {
    let log = fs::File::create(scene.path("log")).unwrap();
    let mut daemon = Command::new(env!("CARGO_BIN_EXE_cowhand"))
        .args(["start", "--no-server", "-c"])
        .arg(scene.path("cowhand.yaml"))
        .env("COWHAND_FAULT", fault)
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut line).unwrap();
    daemon
}

async fn dies_at(database: &str, step: &str) {
    for turn in 1..=2 {
        let script = "echo $COWHAND_JOB_ID >> runs; cat";
        let scene = Scene::on(database, script, "", "type: interval, interval: 1s, prompt: Go.");
        for name in ["a", "b"] {
            scene.task(name, "");
        }
        let fault = format!("{step}:{turn}");
        let died = doomed(&scene, &fault).wait().unwrap();
        assert!(!died.success(), "{fault}: it should have died there");
        let fleet = scene.started().await;
        let mut events = fleet.subscribe_after(0);
        until(&mut events, 2, |fact| matches!(fact, Fact::WorkReported { .. })).await;
        let jobs = jobs(&fleet).await;
        assert!(jobs.iter().all(|job| job.status() == JobStatus::Completed), "{fault}: {jobs:?}");
        assert_eq!(jobs.len(), 2, "{fault}: {jobs:?}");
        let mut runs: Vec<String> =
            fs::read_to_string(scene.path("runs")).unwrap().lines().map(str::to_owned).collect();
        runs.sort();
        let mut ids: Vec<String> = jobs.iter().map(|job| job.id().to_string()).collect();
        ids.sort();
        assert_eq!(runs, ids, "{fault}: each job ran once");
        for name in ["a", "b"] {
            let text = scene.read(name);
            assert_eq!(scene.status(name), "completed", "{fault}: {text}");
            assert_eq!(text.matches("Job: job-").count(), 1, "{fault}: one word for each fact: {text}");
        }
        assert!(fleet.store().items().await.unwrap().is_empty(), "{fault}");
        stop(fleet).await;
    }
}
