//! Measures how many firings a second the store writes durably, with one caller and with many callers at once. The
//! difference is the effect of group commit.
//!
//! `cargo bench -p cowhand-store --bench store [-- postgres://…]`. The limit, measured in the same run in the temporary
//! folder that also contains the SQLite file, is an append of 512 bytes and a sync. Without group commit, a store on
//! this disk cannot be faster, because each firing waits for its own sync.

#![expect(clippy::unwrap_used, reason = "a benchmark that fails panics")]

use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

use cowhand_core::firing::{Decision, NewFiring};
use cowhand_core::id::{AgentName, ScheduleId};
use cowhand_core::job::{NewJob, TriggerType};
use cowhand_core::roster::{Agent, Roster, Schedule};
use cowhand_core::trigger::{Occurrence, TriggerConfig};
use cowhand_store::Store;
use jiff::Timestamp;
use tokio::task::JoinSet;

const TIME: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() {
    let folder = tempfile::tempdir().unwrap();
    let url = std::env::args().skip(1).find(|arg| !arg.starts_with("--"));
    let place = url.unwrap_or_else(|| folder.path().join("store.db").display().to_string());
    let store = Store::open(&place).await.unwrap();
    let (roster, schedule) = roster();
    store.load_schedules(roster, Timestamp::now()).await.unwrap();
    let limit = syncs_a_second(&folder.path().join("sync"));
    println!("append and sync one line       {limit:>9.0} /s   (limit of one sync each)");
    let mut next = Timestamp::now().as_second();
    for callers in [1, 8, 64, 256] {
        let fired = firings_a_second(&store, schedule, callers, &mut next).await;
        println!(
            "fire_once, {callers:>3} callers at once  {fired:>9.0} /s   ({:.2} of the limit)",
            fired / limit
        );
    }
    store.close().await;
}

fn syncs_a_second(path: &std::path::Path) -> f64 {
    let mut file = File::create(path).unwrap();
    let start = Instant::now();
    let mut count = 0.0;
    while start.elapsed() < TIME {
        file.write_all(&[b'x'; 512]).unwrap();
        file.sync_data().unwrap();
        count += 1.0;
    }
    count / start.elapsed().as_secs_f64()
}

/// Returns how many firings a second all callers write together. Each call writes a firing, a job, the progress of the
/// schedule and two events.
async fn firings_a_second(store: &Store, schedule: ScheduleId, callers: i64, next: &mut i64) -> f64 {
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    for caller in 0..callers {
        let (store, first) = (store.clone(), *next + caller);
        let step = usize::try_from(callers).unwrap();
        tasks.spawn(async move {
            let mut done = 0_u32;
            for second in (first..).step_by(step) {
                if start.elapsed() >= TIME {
                    break;
                }
                let due = Timestamp::from_second(second).unwrap();
                let key = Occurrence::Cron(due).key(0);
                let firing = NewFiring { schedule, key, due, decision: Decision::Run(job()), note: None };
                store.fire_once(firing, due).await.unwrap();
                done += 1;
            }
            done
        });
    }
    let done: u32 = tasks.join_all().await.into_iter().sum();
    *next += i64::from(done) * 2 + callers;
    f64::from(done) / start.elapsed().as_secs_f64()
}

fn job() -> NewJob {
    NewJob {
        agent: "bench".parse().unwrap(),
        trigger_type: TriggerType::Schedule,
        schedule: Some("s".parse().unwrap()),
        prompt: Some("Look for what is new and tidy up.".to_owned()),
        origin: None,
        work_item: None,
        chat: None,
        message: None,
        confined: None,
        not_before: None,
    }
}

fn roster() -> (Roster, ScheduleId) {
    let name: AgentName = "bench".parse().unwrap();
    let trigger = TriggerConfig::Cron { expression: "* * * * * *".parse().unwrap(), timezone: None };
    let schedule = Schedule::new(&name, "s".parse().unwrap(), trigger);
    let id = schedule.id;
    let agent = Agent { schedules: vec![schedule], ..Agent::new(name) };
    (Roster::of(vec![agent]), id)
}
