//! A process that is killed in the middle of its work: confirmed writes are in the store, and other writes are complete
//! or missing.

use std::collections::HashSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use cowhand_core::event::Fact;
use cowhand_core::firing::{Decision, NewFiring};
use cowhand_core::schedule::FiringOutcome;
use cowhand_store::Fired;
use tokio::task::JoinSet;

use crate::{HOURLY, TestDb, at, cron_key, new_job, on_both, roster};

on_both! { confirmed_writes_survive_a_kill }

/// Variable with the location of the store to which the child writes. Without it, the child's test does nothing.
const STORE: &str = "COWHAND_TEST_CRASH_STORE";
const ROUNDS: i64 = 5;

async fn confirmed_writes_survive_a_kill(db: TestDb) {
    let mut answered = HashSet::new();
    for round in 0..ROUNDS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::the_process_that_gets_killed", "--nocapture"])
            .env(STORE, &db.url)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut line_count = 0;
        while line_count < 40 * (round + 1) {
            let line = lines.next().expect("the child writes until it is killed").unwrap();
            if let Some(id) = line.strip_prefix("answered ") {
                answered.insert(id.to_owned());
                line_count += 1;
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // Lines that the child wrote before its end count as well.
        let rest = lines.map_while(Result::ok);
        answered.extend(rest.filter_map(|line| line.strip_prefix("answered ").map(str::to_owned)));
    }

    let store = db.open().await;
    let schedule = roster(&[HOURLY]).agents[0].schedules[0].id;
    let ledger = store.ledger(schedule, 1_000_000).await.unwrap();
    let jobs: HashSet<String> =
        store.snapshot().await.unwrap().jobs.iter().map(|job| job.id.to_string()).collect();
    let fired: HashSet<String> =
        ledger.iter().filter_map(|row| row.job.as_ref()).map(ToString::to_string).collect();
    assert!(ledger.iter().all(|row| row.outcome == FiringOutcome::Ran && row.job.is_some()));
    assert_eq!(fired, jobs, "each firing has its job and each job its firing");
    let lost: Vec<_> = answered.difference(&jobs).collect();
    assert!(lost.is_empty(), "answered but lost: {lost:?}");
    let events = store.events_after(0, 1_000_000).await.unwrap();
    assert!(events.iter().zip(1..).all(|(event, seq)| event.seq == seq), "no gap in the events");
    let created = events.iter().filter(|event| event.fact == Fact::JobCreated).count();
    assert_eq!(created, jobs.len());
}

/// Runs as the process that the test above starts and kills.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_that_gets_killed() {
    let Ok(url) = std::env::var(STORE) else { return };
    let store = TestDb::at(url).open().await;
    let roster = roster(&[HOURLY]);
    let schedule = roster.agents[0].schedules[0].id;
    store.load_schedules(roster, at(0)).await.unwrap();
    let start = i64::from(std::process::id()) * 1_000_000;
    let mut tasks = JoinSet::new();
    for task in 0..8 {
        let store = store.clone();
        tasks.spawn(async move {
            for second in (start + task..).step_by(8) {
                let key = cron_key(second);
                let firing = NewFiring {
                    schedule,
                    key,
                    due: at(second),
                    decision: Decision::Run(new_job()),
                    note: None,
                };
                if let Fired::Recorded(Some(job)) = store.fire_once(firing, at(second)).await.unwrap() {
                    println!("answered {}", job.id());
                }
            }
        });
    }
    tasks.join_all().await;
}
