//! The daemon dies between an event and its firing: nothing is lost, and nothing fires twice.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use cowhand::store::{JobFilter, Store};
use cowhand_core::job::{Job, JobStatus};
use cowhand_testing::postgres::Postgres;

use crate::{FleetFolder, on_both, wait_for};

on_both! {
    a_death_before_the_firing_loses_nothing,
    a_death_after_the_firing_repeats_nothing,
}

async fn a_death_before_the_firing_loses_nothing(home: FleetFolder) {
    dies_at("sighted", home).await;
}

async fn a_death_after_the_firing_repeats_nothing(home: FleetFolder) {
    dies_at("dispatched", home).await;
}

async fn dies_at(place: &str, home: FleetFolder) {
    let store = home.server.as_ref().map(|server| format!("store: {}\n", server.url())).unwrap_or_default();
    let agent =
        |name: &str| format!("  - name: {name}\n    runtime: command\n    command: [cat]\n    schedules:\n");
    let config = format!(
        "{store}agents:\n{}      build: {{type: manual, prompt: x}}\n{}      after: {{type: dispatch_result, schedule: builder/build}}\n",
        agent("builder"),
        agent("tester"),
    );
    std::fs::write(home.path().join("cowhand.yaml"), config).unwrap();
    let mut daemon = start(&home, Some(place));
    for _ in 0..3 {
        // The daemon may die before the second or the third call.
        cowhand(&home)
            .args(["trigger", "builder", "build"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
    }
    wait_for("the planned death", async || daemon.try_wait().unwrap().is_some()).await;

    let mut daemon = start(&home, None);
    assert!(
        cowhand(&home)
            .args(["trigger", "builder", "build", "--wait"])
            .stdout(Stdio::null())
            .status()
            .unwrap()
            .success()
    );
    let file = home.path().join(".cowhand/store.db").display().to_string();
    let store = Store::open(&home.server.as_ref().map_or(file, Postgres::url)).await.unwrap();
    let jobs = async |agent: &str| -> Vec<Job> {
        let filter = JobFilter { agent: Some(agent.parse().unwrap()), ..JobFilter::default() };
        store.jobs(filter, 100).await.unwrap()
    };
    let all_done = |jobs: &[Job]| jobs.iter().all(|job| job.status() == JobStatus::Completed);
    wait_for("an answer to each", async || {
        let (built, tested) = (jobs("builder").await, jobs("tester").await);
        tested.len() >= built.len() && all_done(&built) && all_done(&tested)
    })
    .await;
    assert!(cowhand(&home).arg("stop").stdout(Stdio::null()).status().unwrap().success());
    assert!(daemon.wait().unwrap().success());
    assert_eq!(jobs("tester").await.len(), jobs("builder").await.len());
    store.close().await;
}

pub(crate) fn cowhand(home: &FleetFolder) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cowhand"));
    command.arg("-c").arg(home.path());
    command
}

pub(crate) fn start(home: &FleetFolder, fault: Option<&str>) -> Child {
    let mut command = cowhand(home);
    command.args(["start", "--no-server"]).stdout(Stdio::piped()).stderr(Stdio::null());
    if let Some(fault) = fault {
        command.env("COWHAND_FAULT", fault);
    }
    let mut daemon = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("ready"), "{line}");
    daemon
}
